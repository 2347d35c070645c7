"""A user's own spaces, functions, images and callbacks in a search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import archwright as aw
from archwright.data import from_object, load
from archwright.errors import ArchwrightError, InputError, Interrupted
from archwright.runs.run import Run
from archwright.search.registry import methods

CHOICES = {"a": range(5), "b": range(5), "c": range(5)}
SPACE = aw.ChoiceSpace(CHOICES)
CALLS: list[str] = []


def score(architecture) -> float:
    """Best at a=3, b=1, c=4."""
    CALLS.append(str(architecture))
    return -float((architecture["a"] - 3) ** 2 + (architecture["b"] - 1) ** 2 + (architecture["c"] - 4) ** 2)


def sometimes(architecture) -> float:
    if architecture["a"] == 0:
        raise ValueError("no zeros, please")
    return float("nan") if architecture["b"] == 0 else score(architecture)


def broken(architecture) -> float:
    raise RuntimeError("never works")


def small_network(choice, scale) -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(scale.image_channels * scale.image_size**2, choice["width"]),
        nn.ReLU(),
        nn.Linear(choice["width"], scale.classes),
    )


OWN_NETWORKS = aw.ChoiceSpace({"width": [4, 32]}, build=small_network)


def test_own_function_and_space() -> None:
    result = aw.search("evolution", space=SPACE, evaluate=score, evaluations=150, population=20, sample=10)
    assert result.best.accuracy == 0
    assert SPACE.parse(result.best.architecture) == SPACE.parse('{"a": 3, "b": 1, "c": 4}')
    assert result.best.params is None


def test_own_function_is_not_asked_twice() -> None:
    CALLS.clear()
    result = aw.search("evolution", space=SPACE, evaluate=score, evaluations=40, population=4, sample=2)
    assert len(CALLS) == len(set(CALLS))
    CALLS.clear()
    assert aw.resume(result.folder) == result
    assert CALLS == []


@pytest.mark.parametrize("evaluate", [score, lambda one: score(one)])
def test_a_stopped_search_goes_on_to_the_same_answer(evaluate, tmp_path: Path) -> None:
    settings = {"space": SPACE, "evaluate": evaluate, "evaluations": 30, "population": 4, "sample": 2}
    whole = aw.search("evolution", run=tmp_path / "whole", **settings)

    def stop_at_tenth(event) -> None:
        seen.append(event["kind"])
        if seen.count("evaluated") == 10:
            raise Interrupted("enough")

    seen: list[str] = []
    with pytest.raises(Interrupted):
        aw.search("evolution", run=tmp_path / "part", callbacks=[stop_at_tenth], **settings)
    CALLS.clear()
    again = aw.resume(tmp_path / "part")
    assert len(CALLS) < 30
    assert again.best == whole.best
    assert again.evaluations == 30


def test_by_text_in_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text("def score(a):\n    return a['a'] - a['b']\n")
    monkeypatch.chdir(tmp_path)
    space = 'choices:{"a": [0, 1, 2], "b": [0, 1]}'
    settings = {"space": space, "evaluate": f"{tmp_path}/own.py:score", "evaluations": 6, "seed": 2}
    here = aw.search("random", **settings)
    away = aw.search("random", executor="processes", workers=2, **settings)
    assert here.best == away.best
    assert here.best.accuracy == 2


def test_objects_that_other_processes_cannot_import_are_refused(tmp_path: Path) -> None:
    for evaluate, space in ((lambda a: 0.0, SPACE), ("json:dumps", OWN_NETWORKS)):
        with pytest.raises(InputError, match="MODULE:OBJECT"):
            aw.search("random", space=space, evaluate=evaluate, executor="processes", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_failures_are_kept_and_the_search_goes_on(tmp_path: Path) -> None:
    result = aw.search(
        "evolution",
        space=SPACE,
        evaluate=sometimes,
        evaluations=60,
        population=8,
        sample=4,
        failures=150,
        run=tmp_path / "r",
    )
    assert result.best.accuracy == 0
    events = [event for event in Run.open(tmp_path / "r").events() if event["kind"] == "failed"]
    assert events
    reasons = {event["why"].partition(" (")[0] for event in events}
    assert reasons == {"ValueError: no zeros, please", "the score is nan"}


def test_too_many_failures_are_an_error_and_can_be_allowed_later(tmp_path: Path) -> None:
    settings = {"space": SPACE, "evaluate": sometimes, "evaluations": 150, "population": 20, "sample": 10}
    with pytest.raises(ArchwrightError, match=r"at most 1 evaluations to fail .*, got 2"):
        aw.search("evolution", run=tmp_path / "r", failures=1, **settings)
    whole = aw.search("evolution", failures=150, **settings)
    assert aw.resume(tmp_path / "r", failures=150).best == whole.best


def test_a_function_that_never_works(tmp_path: Path) -> None:
    with pytest.raises(ArchwrightError, match="never works"):
        aw.search("random", space=SPACE, evaluate=broken, run=tmp_path / "a")
    with pytest.raises(ArchwrightError, match="all 3 evaluations failed"):
        aw.search("random", space=SPACE, evaluate=broken, evaluations=3, run=tmp_path / "b")


def test_diverged_trainings_are_failures(tmp_path: Path) -> None:
    settings = {"data": "random:classes=2,size=8,channels=1,count=60", "epochs": 2, "batch_size": 16, "recipe": "short"}
    with pytest.raises(ArchwrightError, match="all 2 evaluations failed"):
        aw.search(
            "random", space=OWN_NETWORKS, evaluations=2, lr=1e15, training={"clip": 0}, run=tmp_path / "r", **settings
        )


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    x = rng.integers(0, 60, (120, 8, 8), dtype=np.uint8)
    x[np.arange(120), y * 2] = 255
    return x, y


SMALL = {"epochs": 2, "final_epochs": 2, "batch_size": 16, "evaluations": 2}


def test_arrays_are_kept_in_the_run(images, tmp_path: Path) -> None:
    result = aw.search("random", space=OWN_NETWORKS, data=images, run=tmp_path / "r", split=(2, 1, 1), **SMALL)
    kept = np.load(tmp_path / "r" / "data.npz")
    assert len(kept["x_train"]) == 60
    assert 0 <= result.best.accuracy <= 100
    assert result.best.params in {4 * 65 + 5 * 3, 32 * 65 + 33 * 3}
    model = result.best.load()
    assert model.preprocessing.image_size == 8
    same = aw.search("random", space=OWN_NETWORKS, data=from_object(images, split=(2, 1, 1)), **SMALL)
    planes = torch.from_numpy(images[0][:, None].copy())
    third = aw.search(
        "random", space=OWN_NETWORKS, data=TensorDataset(planes, torch.from_numpy(images[1])), split=(2, 1, 1), **SMALL
    )
    answers = [one.best.model_dump(exclude={"accuracy_on", "search_accuracy_on"}) for one in (result, same, third)]
    assert answers[0] == answers[1] == answers[2]


def test_a_killed_run_reads_its_images_in_another_process(images, tmp_path: Path) -> None:
    settings = {"space": "nasbench201", "data": images, "channels": 4, "cells": 1, **SMALL}
    whole = aw.search("random", run=tmp_path / "whole", **settings)

    def stop(event) -> None:
        if event["kind"] == "evaluated":
            raise Interrupted("enough")

    with pytest.raises(Interrupted):
        aw.search("random", run=tmp_path / "part", callbacks=[stop], **settings)
    import os
    import subprocess
    import sys

    (tmp_path / "part").rename(tmp_path / "moved")
    code = f"import archwright as aw; aw.resume({str(tmp_path / 'moved')!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)
    again = aw.resume(tmp_path / "moved")
    assert again.best == whole.best


def test_own_augmentation_changes_the_training(images) -> None:
    settings = {"space": OWN_NETWORKS, "data": images, **SMALL}
    seen: list[tuple[int, ...]] = []

    def black(batch):
        seen.append(tuple(batch.shape))
        return torch.zeros_like(batch)

    off = aw.search("random", augment="off", **settings)
    dark = aw.search("random", augment=black, **settings)
    assert set(seen) == {(16, 1, 8, 8)}
    assert off.best.search_accuracy > dark.best.search_accuracy


@pytest.mark.parametrize(
    "wrong",
    [
        {"evaluate": "no_such_module:f"},
        {"evaluate": "json:no_such"},
        {"evaluate": "math:pi"},
        {"evaluate": 3},
        {"evaluate": score, "benchmark": "nb201"},
        {"evaluate": score, "data": "digits"},
        {"space": 3, "evaluate": score},
        {"space": "choices:{}", "evaluate": score},
        {},
        {"evaluate": score, "limits": {"params": 1000.0}},
        {"evaluate": score, "augment": "off"},
        {"evaluate": score, "split": "70,15,15"},
        {"evaluate": score, "minutes": 1.0},
        {"evaluate": score, "failures": -1},
        {"data": object()},
        {"data": (np.zeros((3, 8, 8)), [0, 1])},
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(wrong, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        aw.search("random", run=tmp_path / "run", **{"space": SPACE, **wrong})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", [entry.name for entry in methods])
def test_every_method_refuses_objects_that_it_cannot_use(method: str, tmp_path: Path) -> None:
    chosen = methods.get(method)
    settings = {"space": chosen.default_space, "data": "digits", "run": tmp_path / "run"}
    if "evaluate" not in chosen.uses:
        with pytest.raises(InputError, match="random, evolution"):
            aw.search(method, evaluate=score, **settings)
    for wrong in ({"augment": "json:no_such"}, {"augment": "crop=99"}, {"augment": 3}, {"split": "1,2,3,4"}):
        with pytest.raises(InputError):
            aw.search(method, **settings, **wrong)
    assert not (tmp_path / "run").exists()


def test_own_functions_are_for_methods_that_evaluate(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="random, evolution"):
        aw.search("darts", space="nasbench201", data="digits", evaluate=score, run=tmp_path / "run")
    with pytest.raises(InputError, match="builds none"):
        aw.search("hnas", space=SPACE, evaluate=score, run=tmp_path / "run")


def test_a_registered_space_is_found_by_its_name() -> None:
    from archwright.spaces.registry import spaces

    spaces.register("test-objects", SPACE)
    result = aw.search("random", space="test-objects", evaluate=score, evaluations=5)
    assert result.space == "test-objects"


def test_load_model_imports_nothing(images, tmp_path: Path) -> None:
    result = aw.search("random", space=OWN_NETWORKS, data=images, run=tmp_path / "r", **SMALL)
    import os
    import subprocess
    import sys

    code = f"import archwright as aw; aw.load_model({str(result.folder)!r})"
    done = subprocess.run([sys.executable, "-c", code], check=False, env=os.environ, capture_output=True, text=True)
    assert "InputError" in done.stderr
    assert aw.load_model(result.folder, space=OWN_NETWORKS).architecture == result.best.load().architecture
    assert load("digits").classes == 10
