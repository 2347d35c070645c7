"""A kill, a torn write, a power cut or a full disk at any change of a file: going on ends with the same bytes.

``make test-slow`` goes through every change of every method; here and there a real kill shows that the states which
are recorded inside one process (see :mod:`helpers.faults`) are what a kill leaves.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import torch

import archwright as aw
from archwright.data import Preprocessing
from archwright.ensembles import Ensemble
from archwright.errors import ArchwrightError
from archwright.export import OnnxClassifier
from archwright.models import Model, load_member, load_model
from archwright.runs import checkpoints, disk, index, progress
from archwright.runs.files import ASIDE, write_json
from archwright.runs.run import Run
from archwright.search.engine import resume, search
from archwright.search.registry import methods
from archwright.spaces.nasbench201 import NASBENCH201
from helpers.faults import Tree, fail_at, look, put, states, watched
from helpers.small_searches import smallest

METHODS = [entry.name for entry in methods]
SAMPLED = ("random", "rarts", "rarts-width", "nesbs", "hnas")
Count = Callable[[int], None]
OF_THE_MOMENT = {"seconds", "run", "checksum", "created", "latency_ms", "member_latency_ms"}
"""Fields that differ from one run to the next, and the checksum over them."""
RUNS = ("run/", "study/")
"""Folders that are swept of what was written aside; beside a model file of yours it may stay."""
LOGS = ("events.jsonl", "lock", "progress.json")


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Checkpoints after every step, bars kept at their begin and end only, and no time for pictures and waiting.

    The folder that is watched.
    """
    monkeypatch.setattr(disk, "sync", lambda _: None)
    monkeypatch.setattr(disk, "sync_folder", lambda _: None)
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(progress, "SECONDS_A_WRITE", 1e9)
    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", lambda self, file, **_: file.write(b"a picture"))
    folder = tmp_path / "watched"
    monkeypatch.setenv("ARCHWRIGHT_RUNS", str(folder / "runs"))
    folder.mkdir()
    return folder


@pytest.fixture
def count_points(record_property: Callable[[str, object], None]) -> Count:
    """Says at the end how many faults were tried in all."""
    return lambda count: record_property("fault points", count)


def essence(folder: Path) -> dict[str, Any]:
    """What must be the same: every file but logs of events, and in JSON all but what differs from run to run."""
    found: dict[str, Any] = {}
    for name, content in look(folder).items():
        path = Path(name)
        if content is None or path.name in LOGS or (ASIDE.fullmatch(path.name) and not name.startswith(RUNS)):
            continue
        if path.suffix == ".json":
            found[name] = _without(json.loads(content))
        elif path.suffix == ".jsonl":
            found[name] = [_without(json.loads(line)) for line in content.splitlines()]
        else:
            found[name] = content
    return found


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without(one) for key, one in value.items() if key not in OF_THE_MOMENT}
    return [_without(one) for one in value] if isinstance(value, list) else value


def go_through(
    folder: Path, action: Callable[[], object], every: int = 1, fail_every: int = 1, first: Tree | None = None
) -> int:
    """Let ``action`` go on from what faults left of it, every so many of them; how many that were.

    Args:
        folder: that is watched; all is inside.
        action: begins, or goes on with what is there, to the end.
        every: state is gone on from.
        fail_every: change fails once.
        first: what is in the folder before; nothing by default.
    """
    put(folder, first or {})
    found, changes = states(folder, action)
    expected = essence(folder)
    assert changes > 3
    for state in found[::every]:
        put(folder, state.tree)
        action()
        _compare(essence(folder), expected, str(state))
    numbers = range(1, changes + 1, fail_every)
    for number in numbers:
        put(folder, first or {})
        error = fail_at(folder, number, action)
        assert error is None or isinstance(error, OSError | ArchwrightError), f"change {number} fails: {error!r}"
        action()
        _compare(essence(folder), expected, f"change {number} fails")
    return len(found[::every]) + len(numbers)


def _compare(found: dict[str, Any], expected: dict[str, Any], what: str) -> None:
    different = sorted(name for name in found | expected if found.get(name) != expected.get(name))
    assert not different, f"{what}: {different}"


# --- searches --------------------------------------------------------------------------------------------------------


def searching(name: str, folder: Path, plan: Path) -> Callable[[], object]:
    """Begin a search, or go on with it."""
    settings, run = smallest(name, plan), folder / "run"
    return lambda: resume(run) if (run / "run.json").exists() else search(name, run=run, **settings)


@pytest.mark.parametrize("name", SAMPLED)
def test_a_search_goes_on_after_a_fault(name: str, small_steps: Path, tmp_path: Path) -> None:
    go_through(small_steps, searching(name, small_steps, tmp_path / "plan"), every=47, fail_every=83)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_search_goes_on_after_every_fault(name: str, small_steps: Path, tmp_path: Path, count_points: Count) -> None:
    often = 6 if name == "binas" else 1  # it writes three times as much as others
    count_points(go_through(small_steps, searching(name, small_steps, tmp_path / "plan"), fail_every=often))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_second_kill_while_going_on_changes_nothing(
    name: str, small_steps: Path, tmp_path: Path, count_points: Count
) -> None:
    action = searching(name, small_steps, tmp_path / "plan")
    found, _ = states(small_steps, action)
    expected = essence(small_steps)
    middle = [state for state in found if "run/run.json" in state.tree][len(found) // 2]
    put(small_steps, middle.tree)
    again, _ = states(small_steps, action)
    for state in again[::7]:
        put(small_steps, state.tree)
        action()
        _compare(essence(small_steps), expected, f"{middle}, then {state}")
    count_points(len(again[::7]))


def in_memory(folder: Path) -> Callable[[], object]:
    """A search with images that are given in memory, which the run keeps."""
    rng = np.random.default_rng(0)
    images = (rng.integers(0, 256, (40, 8, 8), dtype=np.uint8), np.arange(40) % 2)
    settings, run = {**smallest("random", folder), "data": images, "evaluations": 1}, folder / "run"
    return lambda: resume(run) if (run / "run.json").exists() else search("random", run=run, **settings)


@pytest.mark.slow
def test_a_search_with_images_in_memory(small_steps: Path, count_points: Count) -> None:
    count_points(go_through(small_steps, in_memory(small_steps)))


@pytest.mark.parametrize("number", [1, 20, 60, 100])
def test_a_real_kill_leaves_what_is_gone_on_from(number: int, small_steps: Path, tmp_path: Path) -> None:
    """A forked process that ends itself (-9) ahead of a change; also the bytes that it leaves are those recorded."""
    action = searching("random", small_steps, tmp_path / "plan")
    _, changes = states(small_steps, action)
    expected = essence(small_steps)
    assert number < changes
    put(small_steps, {})
    child = os.fork()
    if child == 0:
        seen = iter(range(1, changes + 1))
        with watched(small_steps, lambda _: os.kill(os.getpid(), 9 if next(seen) == number else 0)):
            action()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    action()
    _compare(essence(small_steps), expected, f"killed at change {number}")


# --- studies ---------------------------------------------------------------------------------------------------------


def studying(method: str, folder: Path) -> Callable[[], object]:
    """Ask and tell five times in all."""
    space = aw.ChoiceSpace({"a": range(4), "b": range(4)})

    def study() -> None:
        with aw.Study(method, space, run=folder / "study", seed=2) as opened:
            while len(opened.history) < 5:
                asked = opened.ask()
                opened.tell(asked, None if asked["a"] == 3 else asked["a"] - asked["b"])

    return study


@pytest.mark.parametrize("method", ["random", "evolution"])
def test_a_study_goes_on_after_every_fault(method: str, small_steps: Path, count_points: Count) -> None:
    count_points(go_through(small_steps, studying(method, small_steps)))


# --- models ----------------------------------------------------------------------------------------------------------


def model(seed: int) -> Model:
    scale = NASBENCH201.scales["small"].changed(channels=4, cells=1, classes=3, image_size=8, image_channels=1)
    torch.manual_seed(seed)
    cell = NASBENCH201.sample(np.random.default_rng(seed))
    preprocessing = Preprocessing(8, 1, (0.5,), (0.2,), ("a", "b", "c"))
    return Model(NASBENCH201.build(cell, scale), "nasbench201", cell, scale, preprocessing)


def old_or_new(
    folder: Path, load: Callable[[], list[str]], write_old: Callable[[], object], write: Callable[[], object]
) -> int:
    """Write over what is there: whatever the fault, it is the old one, the new one, or refused; then write again."""
    write_old()
    first, old = look(folder), load()
    found, _ = states(folder, write)
    new = load()
    assert new != old
    for state in found:
        put(folder, state.tree)
        with suppress(ArchwrightError):
            assert load() in (old, new), str(state)
    return len(found) + go_through(folder, write, first=first)


def test_an_ensemble_is_never_one_of_old_and_new_members(small_steps: Path, count_points: Count) -> None:
    path = small_steps / "both"

    def members() -> list[str]:
        return [str(one.architecture) for one in load_model(path).members]  # type: ignore[union-attr]

    old, new = (Ensemble((model(seed), model(seed + 1))) for seed in (0, 2))
    count_points(old_or_new(small_steps, members, lambda: old.save(path), lambda: new.save(path)))


def test_a_model_is_the_old_or_the_new_one(small_steps: Path, count_points: Count) -> None:
    path, old, new = small_steps / "m.safetensors", model(0), model(1)
    count_points(
        old_or_new(
            small_steps, lambda: [str(load_member(path).architecture)], lambda: old.save(path), lambda: new.save(path)
        )
    )


def test_an_export_is_the_old_or_the_new_one(small_steps: Path, count_points: Count) -> None:
    pytest.importorskip("onnxruntime")
    path, old, new = small_steps / "m.onnx", model(0), model(1)

    def architecture() -> list[str]:
        metadata = OnnxClassifier(path).session.get_modelmeta().custom_metadata_map
        return [json.loads(metadata["archwright"])["architecture"]]

    count_points(old_or_new(small_steps, architecture, lambda: old.export(path), lambda: new.export(path)))


# --- lists, tables and further limits --------------------------------------------------------------------------------


def test_an_index_is_whole_or_made_again(
    small_steps: Path, monkeypatch: pytest.MonkeyPatch, count_points: Count
) -> None:
    monkeypatch.setattr(index, "YOUNG_NS", 0)
    root = small_steps / "runs"
    for name in ("a", "b"):
        Run.create(root / name, {"method": "random", "space": "nasbench201", "seed": 0}, {})
    expected = index.list_folder(root)
    (root / index.FILE).unlink()
    first = look(small_steps)
    found, changes = states(small_steps, lambda: index.list_folder(root))
    for state in found:
        put(small_steps, state.tree)
        assert index.list_folder(root) == expected
        assert index.list_folder(root) == expected
    for number in range(1, changes + 1):
        put(small_steps, first)
        assert fail_at(small_steps, number, lambda: index.list_folder(root)) is None
        assert index.list_folder(root) == expected
    count_points(len(found) + changes)


def test_a_run_asked_for_more_is_as_before_or_as_asked(small_steps: Path, count_points: Count) -> None:
    """Never the new wish with a result of the old one."""
    folder = small_steps / "run"

    run = Run.create(folder, {"method": "binas", "space": "compact", "seed": 0, "limits": 1}, {})
    for stage in ("table", "train", "answer"):
        run.finish_stage(stage, {"limits": 1})
    write_json(run.artifact("result.json"), {"limits": 1})
    found, _ = states(small_steps, lambda: run.reopen({"limits": 2}, ("train", "answer")))
    for state in found:
        put(small_steps, state.tree)
        opened = Run.open(folder)
        kept = [opened.stage_result(stage) for stage in ("train", "answer")]
        assert opened.stage_result("table") == {"limits": 1}
        assert opened.configuration["limits"] == 1 or kept == [None, None], str(state)
        assert opened.status() == "stopped" or opened.configuration["limits"] == 1, str(state)
    count_points(len(found))
