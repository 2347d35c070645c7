"""Runs as a whole, in process: repeatability, failures at every write, time budgets, and what a resumed run says."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import archwright.search.evaluator
from archwright.errors import InputError, Interrupted, RunError
from archwright.execution import processes
from archwright.models import load_model
from archwright.runs.progress import FILE as PROGRESS
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.search.answer import Answer
from archwright.search.engine import resume, search
from archwright.tables.locate import shared_data
from archwright.tables.nasbench201 import CompactTable

TINY: dict[str, Any] = {"data": "digits", "channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1, "threads": 1}


class Said(Progress):
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def timeless(result: Answer) -> dict[str, Any]:
    return {key: value for key, value in result.to_json().items() if key not in ("seconds", "run")}


# --- on a table ------------------------------------------------------------------------------------------------------


def table_search(folder: Path, evaluations: int = 8) -> Answer:
    options = {"evaluations": evaluations, "population": 3, "sample": 2}
    return search("evolution", run=folder, benchmark="nb201", seed=4, options=options)


def test_the_answer_on_a_table_is_the_best_seen_with_its_reported_accuracy(nb201: CompactTable, tmp_path: Path) -> None:
    result = table_search(tmp_path / "run", 30)
    done = Run.open(tmp_path / "run").items("search").done
    best = max(done, key=lambda text: done[text]["accuracy"])
    assert result.best.architecture == best
    space = nb201.scale("cifar10")
    assert (space.channels, space.cells, space.image_size) == (16, 5, 32)
    from archwright.spaces.nasbench201 import NASBENCH201

    cell = NASBENCH201.parse(best)
    assert result.best.accuracy == nb201.accuracy(cell, "cifar10", 200, "test")
    assert result.best.search_accuracy == nb201.accuracy(cell, "cifar10", 12, "validation")
    assert result.best.accuracy_on == "cifar10 test after 200 epochs (nb201 table)"
    assert set(result.best.tests) == {"cifar10", "cifar100", "imagenet16-120"}
    assert result.evaluations == 30
    assert result.front == []
    assert json.loads((tmp_path / "run" / "artifacts" / "result.json").read_text()) == result.to_json()


class FailingDisk:
    """Makes the ``moment``-th sync or rename fail as a full disk does; counts them where ``moment`` is 0."""

    def __init__(self, patch: pytest.MonkeyPatch, moment: int) -> None:
        self.moment, self.count = moment, 0
        patch.setattr(os, "fsync", self._wrapped(os.fsync))
        patch.setattr(Path, "replace", self._wrapped(Path.replace))

    def _wrapped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            if f".{PROGRESS}." in str(arguments[0]):  # a bar, written now and then, is no loss
                return real(*arguments)
            self.count += 1
            if self.count == self.moment:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(*arguments)

        return call


def test_a_full_disk_at_any_write_or_rename_loses_nothing(
    nb201: CompactTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        disk = FailingDisk(patch, 0)
        expected = timeless(table_search(tmp_path / "whole"))
    assert disk.count > 20
    for moment in range(1, disk.count + 1):
        folder = tmp_path / f"failed-{moment}"
        with monkeypatch.context() as patch:
            FailingDisk(patch, moment)
            with pytest.raises(OSError, match="No space left"):
                table_search(folder)
        before = Run.open(folder).items("search").done if (folder / "run.json").exists() else {}
        result = resume(folder) if (folder / "run.json").exists() else table_search(folder)
        assert timeless(result) == expected, f"failure at write or rename {moment}"
        after = Run.open(folder).items("search").done
        assert before.items() <= after.items()
        assert not list(folder.rglob("*.tmp"))


def test_a_finished_evaluation_is_not_repeated(
    nb201: CompactTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = archwright.search.evaluator.look_up

    def counting(payload: Any, stop: Any) -> Any:
        if len(asked) == 5:
            raise KeyboardInterrupt
        asked.append(payload["architecture"])
        return real(payload, stop)

    with monkeypatch.context() as patch:
        patch.setattr(archwright.search.evaluator, "look_up", counting)
        with pytest.raises(KeyboardInterrupt):
            table_search(tmp_path / "run")
        first, asked = asked, []
        resume(tmp_path / "run")
    assert len(first) == 5
    assert not set(first) & set(asked)


def test_resuming_a_finished_run_returns_its_answer_and_writes_nothing(nb201: CompactTable, tmp_path: Path) -> None:
    result = table_search(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    assert resume(tmp_path / "run").to_json() == result.to_json()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


def test_searches_started_in_the_same_second_get_folders_of_their_own(nb201: CompactTable, runs_folder: Path) -> None:
    folders = {search("random", benchmark="nb201", evaluations=1).folder for _ in range(3)}
    assert len(folders) == 3
    assert {folder.parent for folder in folders} == {runs_folder}


def test_seconds_are_working_time_of_all_sessions(
    nb201: CompactTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session of 10 s that was killed, an hour's pause, and one of about nothing."""
    clock = [1000.0]
    monkeypatch.setattr("time.time", lambda: clock[0])

    def later(*_: Any) -> Any:
        clock[0] += 10
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(archwright.search.evaluator, "look_up", later)
        with pytest.raises(KeyboardInterrupt):
            table_search(tmp_path / "run")
    Run.open(tmp_path / "run").event("noted")  # the session's last sign of life
    clock[0] += 3600
    assert resume(tmp_path / "run").seconds == pytest.approx(10, abs=0.01)


def test_a_latency_limit_for_a_device_of_the_table_is_kept(nb201: CompactTable, tmp_path: Path) -> None:
    result = search(
        "random", run=tmp_path / "run", benchmark="nb201", evaluations=10, device="raspi4", limits={"latency_ms": 20.0}
    )
    assert result.best.latency_ms <= 20.0


# --- with training ---------------------------------------------------------------------------------------------------


def stop_at_first_stage(event: dict[str, object]) -> None:
    if event["kind"] == "stage":
        raise Interrupted("stopped by a test")


def test_sessions_that_end_at_once_leave_the_whole_answer_to_the_next(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match=r"by a test; everything is saved\. Continue with: archwright runs resume"):
        search("random", run=tmp_path / "run", callbacks=[stop_at_first_stage], evaluations=2, **TINY)
    with pytest.raises(Interrupted, match=r"time budget; everything is saved"):
        resume(tmp_path / "run", minutes=0)
    assert Run.open(tmp_path / "run").status() == "stopped"
    whole = search("random", run=tmp_path / "whole", evaluations=2, **TINY)
    assert timeless(resume(tmp_path / "run")) == timeless(whole)
    a, b = (load_model(folder).network.state_dict() for folder in (tmp_path / "run", tmp_path / "whole"))
    assert all(torch.equal(a[name], b[name]) for name in b)


def test_a_damaged_checkpoint_and_another_machine_are_said_on_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = search("random", run=tmp_path / "whole", evaluations=1, **TINY)
    folder = tmp_path / "run"

    def die(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("archwright.search.jobs.measure", die)  # after the last checkpoint of the training
        with pytest.raises(KeyboardInterrupt):
            search("random", run=folder, evaluations=1, **TINY)
    (checkpoint,) = folder.rglob("checkpoints/search/*/*.safetensors")
    checkpoint.write_bytes(checkpoint.read_bytes()[:100])
    header = json.loads((folder / "run.json").read_text())
    header["machine"]["threads"] = 7
    (folder / "run.json").write_text(json.dumps(header))
    said = Said()
    result = resume(folder, progress=said)
    assert any("threads was 7 and is 1 now" in line for line in said.lines)
    assert any(checkpoint.name in line and "truncated or altered" in line for line in said.lines)
    kinds = [event["kind"] for event in Run.open(folder).events()]
    assert {"changed", "damaged"} <= set(kinds)
    assert timeless(result) == timeless(whole)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The worker processes that were started, and that have ended with the search that started them."""
    pids: list[int] = []
    make = processes._Worker.__init__

    def noted(self: processes._Worker, gpu: str | None) -> None:
        make(self, gpu)
        pids.append(self.process.pid)

    monkeypatch.setattr(processes._Worker, "__init__", noted)
    return pids


def test_processes_give_the_same_answer_as_this_process(tmp_path: Path, started: list[int]) -> None:
    """Five evaluations are two batches of proposals; one worker serves both and ends with the search."""
    here = search("random", run=tmp_path / "here", evaluations=5, **TINY)
    assert started == []
    there = search("random", run=tmp_path / "there", evaluations=5, executor="processes", workers=1, **TINY)
    assert timeless(here) == timeless(there)
    assert len(started) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_look_ups_start_no_process(tmp_path: Path, started: list[int]) -> None:
    if shared_data("nb201.npz") is None:
        pytest.skip("the NAS-Bench-201 table is not in the data folder")
    settings = {"space": "nasbench201", "benchmark": "nb201", "dataset": "cifar10", "evaluations": 4}
    here = search("random", run=tmp_path / "here", **settings)
    there = search("random", run=tmp_path / "there", executor="processes", workers=2, **settings)
    assert timeless(here) == timeless(there)
    assert started == []


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "rando"}, "Did you mean 'random'"),
        ({"space": "nasbench21"}, "Did you mean 'nasbench201'"),
        ({"data": "digit"}, "Did you mean 'digits'"),
        ({"data": "folder:no/such/folder"}, "no/such/folder"),
        ({"benchmark": "nb202"}, "Did you mean 'nb201'"),
        ({"benchmark": "nb201:no/such/file.npz"}, "no/such/file.npz"),
        ({"recipe": "shrt"}, "Did you mean 'short'"),
        ({"scale": "smal"}, "Did you mean 'small'"),
        ({"executor": "process"}, "Did you mean 'processes'"),
        ({"device": "tpu"}, "a device of this machine"),
        ({"evaluatons": 3}, "Did you mean 'evaluations'"),
        ({"epochs": 0}, "epochs"),
        ({"channels": 3}, "an even number of channels"),
        ({"image_size": 3}, "at least 4 px"),
        ({"limits": {"parms": 3.0}}, "Did you mean 'params'"),
    ],
)
def test_bad_input_is_refused_early_and_leaves_no_folder(
    settings: dict[str, Any], message: str, runs_folder: Path
) -> None:
    values = {"method": "random", "data": "digits", **settings}
    with pytest.raises(InputError) as caught:
        search(**values)
    assert message in str(caught.value)
    assert not runs_folder.exists()


def test_a_benchmark_is_of_one_space_and_has_its_own_data_sets(nb201: CompactTable, runs_folder: Path) -> None:
    with pytest.raises(InputError, match="space of the benchmark"):
        search("random", space="darts", benchmark="nb201")
    with pytest.raises(InputError, match="Did you mean 'cifar100'"):
        search("random", benchmark="nb201", dataset="cifar1000")
    assert not runs_folder.exists()


def test_a_run_with_settings_of_another_version_is_refused(tmp_path: Path) -> None:
    machine = {"device": "cpu", "model": "?", "threads": 1}
    Run.create(tmp_path / "run", {"method": "random", "colour": "red"}, machine)
    with pytest.raises(InputError, match="colour"):
        resume(tmp_path / "run")


def test_a_damaged_stage_result_is_an_error_that_names_it(nb201: CompactTable, tmp_path: Path) -> None:
    table_search(tmp_path / "run")
    (tmp_path / "run" / "artifacts" / "result.json").unlink()
    (tmp_path / "run" / "stages" / "search.json").write_text('{"arch')
    with pytest.raises(RunError, match=r"stages/search\.json"):
        resume(tmp_path / "run")


def test_one_final_epoch_is_enough_also_where_the_recipe_warms_up(tmp_path: Path) -> None:
    """The recipe of eight epochs has one of warm-up, which a training of one epoch cannot have."""
    from archwright.search.configuration import Configuration
    from archwright.search.task import Task

    task = Task(Configuration(method="random", data="digits", final_epochs=1))
    assert (task.recipe.epochs, task.recipe.warmup_epochs) == (8, 1.0)
    assert (task.final_recipe.epochs, task.final_recipe.warmup_epochs) == (1, 0.25)
