"""What trackers of experiments get of a run, read back from their own files."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from archwright import trackers
from archwright.cli.main import cli
from archwright.errors import InputError, Interrupted
from archwright.runs.run import Run
from archwright.search.engine import resume, search
from archwright.trackers import attach, check_trackers, numbers, tensorboard, wandb
from helpers.wandb_files import history

SMALL = {"data": "digits", "evaluations": 2, "epochs": 2, "final_epochs": 2, "channels": 2, "cells": 1}
SPACE = 'choices:{"x": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]}'


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    kept = EventAccumulator(str(folder))
    kept.Reload()
    return [(one.step, one.value) for one in kept.Scalars(name)]


def test_only_what_was_measured_is_told() -> None:
    event = {"kind": "part", "time": 1.0, "training": "a", "percent": 5.0, "loss": 2.0, "good": True}
    assert list(numbers(event)) == [("a/loss", 2.0)]
    assert list(numbers({"kind": "said", "text": "x", "time": 1.0})) == []


def test_tensorboards_files_read_back(tmp_path: Path) -> None:
    events: list[dict] = []
    found = search("random", run=tmp_path / "run", callbacks=[tensorboard(tmp_path / "logs"), events.append], **SMALL)
    losses = [one["loss"] for one in events if one["kind"] == "epoch" and one["stage"] == "train"]
    assert [value for _, value in scalars(tmp_path / "logs", "train/loss")] == pytest.approx(losses)
    best = max(value for _, value in scalars(tmp_path / "logs", "search/accuracy"))
    assert best == pytest.approx(found.best.search_accuracy)


def test_the_command_line_logs_into_the_run_and_goes_on_counting(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    calls: list[int] = []

    def score(one) -> float:
        calls.append(one["x"])
        if len(calls) == 3:
            raise Interrupted("enough for today")
        return float(one["x"])

    folder = tmp_path / "run"
    with pytest.raises(Interrupted):
        search("random", space=SPACE, evaluate=score, evaluations=5, run=folder, log=["tensorboard"])
    found = resume(folder, evaluate=score, log=["tensorboard"])
    steps, values = zip(*sorted(scalars(folder / "tensorboard", "search/accuracy")), strict=True)
    assert steps == (0, 1, 2, 3, 4)  # no number twice
    assert max(values) == found.best.accuracy


def test_mlflows_metrics_and_settings_read_back(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    found = search("random", space=SPACE, evaluate=len, evaluations=3, run=tmp_path / "run", log=[f"mlflow:{uri}"])
    client = MlflowClient(tracking_uri=uri)
    (run,) = client.search_runs([client.get_experiment_by_name("archwright").experiment_id])
    assert [one.value for one in client.get_metric_history(run.info.run_id, "search/accuracy")] == [1.0, 1.0, 1.0]
    assert run.data.params["method"] == "random"
    assert run.info.run_name == found.folder.name
    assert run.info.status == "FINISHED"


def test_weights_and_biases_offline_files_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    callback = wandb("tried", tmp_path)
    for loss in (2.0, 1.0):
        callback({"kind": "epoch", "stage": "train", "time": 0.0, "epoch": 0, "loss": loss})
    callback({"kind": "finished", "time": 0.0, "seconds": 3.0})
    (path,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    for _ in range(300):  # a process of its own writes them
        rows = history(path)
        if any("run/seconds" in row for row in rows):
            break
        time.sleep(0.1)
    assert [row["train/loss"] for row in rows if "train/loss" in row] == [2.0, 1.0]
    assert [row["run/seconds"] for row in rows if "run/seconds" in row] == [3.0]


def test_what_cannot_be_logged_to_is_refused_before_a_folder_exists(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(InputError, match="tensorboard"):
        search("random", space=SPACE, evaluate=len, run=tmp_path / "run", log=["tensorbord"])
    with pytest.raises(InputError, match="empty"):
        check_trackers(["tensorboard:"])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"archwright\[trackers\]"):
        check_trackers(["mlflow"])
    assert not (tmp_path / "run").exists()


def test_a_place_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple] = []
    for name in ("tensorboard", "mlflow", "wandb"):
        monkeypatch.setattr(trackers, name, lambda *places, name=name, **named: told.append((name, places, named)))
    run = Run(tmp_path, {"configuration": {}})
    for text in ("tensorboard", "tensorboard:logs", "mlflow:http://here", "wandb:mine"):
        attach(text, run)
    assert told[0][1][0] == tmp_path / "tensorboard"
    assert told[1][1][0] == "logs"
    assert told[2][2]["uri"] == "http://here"
    assert told[3][1][0] == "mine"


def test_quiet_says_the_result_only_and_the_log_level_says_more(tmp_path: Path) -> None:
    asked = ["search", "random", "--space", SPACE, "--evaluate", "builtins:len", "--evaluations", "2"]
    done = CliRunner().invoke(cli, [*asked, "--quiet", "--run", str(tmp_path / "a")], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stderr == ""
    assert "score" in done.stdout
    done = CliRunner().invoke(cli, [*asked, "--quiet", "--log-level", "debug", "--run", str(tmp_path / "b")])
    assert "reached 1." in done.stderr
