"""What a page or another program sees of a run: its plan, its data, an event an epoch, its state; and other threads."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from archwright.cli.main import cli
from archwright.data.request import LOADED
from archwright.errors import InputError, Interrupted, RunError
from archwright.runs.run import Run
from archwright.search.answer import Answer
from archwright.search.engine import resume, search, stop
from archwright.search.study import Study
from archwright.spaces.choice_space import ChoiceSpace

TINY: dict[str, Any] = {"data": "digits", "channels": 4, "cells": 1, "epochs": 2, "final_epochs": 3, "threads": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("shown") / "run"
    found: list[Answer] = []
    heard: list[dict[str, Any]] = []
    settings = {**TINY, "run": folder, "evaluations": 2, "callbacks": [heard.append]}
    thread = threading.Thread(target=lambda: found.append(search("random", **settings)))
    thread.start()
    thread.join()
    assert found, "a search works outside the main thread"
    assert heard == Run.open(folder).events(), "callbacks hear every event"
    return Run.open(folder)


def test_the_run_keeps_its_plan_with_titles_and_its_data(run: Run) -> None:
    assert run.header["plan"] == [
        {"name": "search", "title": "evaluate architectures"},
        {"name": "train", "title": "train the chosen network"},
        {"name": "beside", "title": "simple models to compare"},
        {"name": "answer", "title": "answer"},
    ]
    assert len(run.header["fingerprint"]) == 64
    titles = [event["title"] for event in run.events() if event["kind"] == "stage"]
    assert titles == [stage["title"] for stage in run.header["plan"]]


def test_every_epoch_of_every_training_is_an_event(run: Run) -> None:
    epochs = [event for event in run.events() if event["kind"] == "epoch"]
    assert [one["epoch"] for one in epochs if one["stage"] == "train"] == [0, 1, 2]
    evaluated = [(one["architecture"], one["epoch"]) for one in epochs if one["stage"] == "search"]
    architectures = list(dict.fromkeys(name for name, _ in evaluated))
    assert len(architectures) == 2
    assert evaluated == [(name, epoch) for name in architectures for epoch in (0, 1)]
    assert all(np.isfinite(one["loss"]) and 0 <= one["accuracy"] <= 100 for one in epochs)


def test_paths_are_kept_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run started with a relative path is resumed from another folder."""
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    np.savez(tmp_path / "own.npz", x=images, y=labels)
    monkeypatch.chdir(tmp_path)

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("archwright.search.final.measure", die)
        with pytest.raises(KeyboardInterrupt):
            search("random", run=tmp_path / "run", evaluations=1, **{**TINY, "data": "npz:own.npz"})
    assert Run.open(tmp_path / "run").configuration["data"] == f"npz:{tmp_path / 'own.npz'}"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr("archwright.search.engine._finish", lambda method, **_: method.context.task.data.fingerprint)
        assert resume(tmp_path / "run") == Run.open(tmp_path / "run").header["fingerprint"]
    np.savez(tmp_path / "own.npz", x=255 - images, y=labels)
    LOADED.clear()
    with pytest.raises(RunError, match="fingerprint differs"):
        resume(tmp_path / "run")


def test_reading_the_status_takes_no_lock(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Run.create(tmp_path / "run", {}, {})

    def refused(*_: Any) -> None:
        raise AssertionError("a lock was taken")

    assert made.status() == "stopped"
    with made.locked():
        monkeypatch.setattr(fcntl, "flock", refused)
        assert made.status() == "running"
    assert made.status() == "stopped"
    assert run.status() == "finished"


def test_the_lock_of_a_process_that_is_gone_counts_for_nothing(tmp_path: Path) -> None:
    """Also where its number was given to another process since."""
    made = Run.create(tmp_path / "run", {}, {})
    with made.locked():
        number, started, machine = (made.folder / "lock").read_text().split(" ", 2)
    for text in ("", "rubbish", f"{number} {int(started) - 1} {machine}", f"{2**22 + 1} 5 {machine}"):
        (made.folder / "lock").write_text(text)
        assert made.status() == "stopped", text


def test_a_run_is_deleted_unless_somebody_works_on_it(tmp_path: Path) -> None:
    made = Run.create(tmp_path / "run", {}, {})
    with made.locked(), pytest.raises(RunError, match="nobody works on"):
        Run.open(made.folder).delete()
    made.delete()
    assert not made.folder.exists()


def test_files_are_strict_json(tmp_path: Path) -> None:
    made = Run.create(tmp_path / "run", {}, {})
    made.event("epoch", loss=float("nan"), parts=[float("inf"), 1.0])

    def refused(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    (line,) = (made.folder / "events.jsonl").read_text().splitlines()
    event = json.loads(line, parse_constant=refused)
    assert (event["loss"], event["parts"]) == (None, [None, 1.0])


def test_another_process_asks_a_search_to_stop(tmp_path: Path) -> None:
    """By a file in its folder; resumed, it ends with the answer of a search that nobody stopped."""
    space, folder = ChoiceSpace({"x": tuple(range(50))}), tmp_path / "run"

    def asks(event: dict[str, Any]) -> None:
        if event["kind"] == "evaluated":
            done = CliRunner().invoke(cli, ["runs", "stop", str(folder)])
            assert done.exit_code == 0, done.output

    asked: dict[str, Any] = {"space": space, "evaluate": _score, "evaluations": 6}
    with pytest.raises(Interrupted, match=r"a request.*runs resume"):
        search("random", run=folder, callbacks=[asks], **asked)
    kinds = [event["kind"] for event in Run.open(folder).events()]
    assert kinds.count("evaluated") == 1
    assert kinds[-1] == "interrupted"
    assert Run.open(folder).status() == "stopped"
    with pytest.raises(InputError, match="a run that a process works on"):
        stop(folder)
    found = resume(folder, space=space, evaluate=_score)
    assert found.best == search("random", run=tmp_path / "other", **asked).best
    assert not (folder / "stop").exists()
    assert "1 of 2: evaluate architectures" in [event.get("text") for event in Run.open(folder).events()]


def _score(choice: Any) -> float:
    return float(choice["x"])


def test_a_study_is_ended_by_the_program_that_asks_it(tmp_path: Path) -> None:
    study = Study("random", ChoiceSpace({"x": (1, 2)}), run=tmp_path / "study")
    with pytest.raises(InputError, match="a study"):
        stop(tmp_path / "study")
    study.close()
