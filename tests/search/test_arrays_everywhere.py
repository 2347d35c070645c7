"""Every method on what a user has in memory: arrays, a torch Dataset, a function; what is said beside the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from torch.utils.data import Dataset

from archwright.data import from_object
from archwright.errors import InputError
from archwright.search.beside import CHANCE, LOGISTIC, PLAIN, steps_within
from archwright.search.engine import search
from archwright.search.registry import methods
from archwright.training import Recipe
from helpers.small_searches import smallest

SMALL = {"epochs": 1, "final_epochs": 1, "channels": 2, "cells": 1}
NAMES = [entry.name for entry in methods]
Arrays = tuple[np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def arrays() -> Arrays:
    """Sixty digits of three classes, as the smallest searches have."""
    digits = load_digits(n_class=3)
    return (digits.images[:60] * 255 / 16).astype(np.uint8), digits.target[:60]


class Pairs(Dataset):
    """The same as a user's own Dataset."""

    def __init__(self, arrays: Arrays) -> None:
        self.images, self.labels = arrays

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return self.images[number][None], int(self.labels[number])


def settings(name: str, folder: Path) -> dict[str, Any]:
    return {key: value for key, value in smallest(name, folder).items() if key != "data" and value is not None}


@pytest.mark.parametrize("name", NAMES)
def test_every_method_takes_arrays_and_says_what_simple_things_reach(name: str, arrays: Arrays, tmp_path: Path) -> None:
    found = search(name, data=arrays, run=tmp_path / "run", **settings(name, tmp_path / "plan"))
    assert found.best.model is not None
    assert {CHANCE, LOGISTIC} <= set(found.beside)
    assert found.beside[LOGISTIC].accuracy > 80  # three digits are easy
    assert (found.verdict or "").startswith("Warning")  # one epoch of a network of four channels is not enough


def test_a_dataset_is_the_same_images(arrays: Arrays) -> None:
    assert from_object(Pairs(arrays)).fingerprint == from_object(arrays).fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_method_finds_the_same_in_a_dataset(name: str, arrays: Arrays, tmp_path: Path) -> None:
    given = settings(name, tmp_path / "plan")
    one, other = (
        search(name, data=data, run=tmp_path / kind, **given)
        for kind, data in (("arrays", arrays), ("dataset", Pairs(arrays)))
    )
    assert one.best == other.best


@pytest.mark.parametrize("name", NAMES)
def test_a_function_is_taken_by_methods_that_propose_and_refused_by_others(name: str, tmp_path: Path) -> None:
    method = methods.get(name)
    own = {"evaluations": 2} if "evaluations" in method.Options.model_fields else {}
    own |= {"population": 2, "sample": 1} if "sample" in method.Options.model_fields else {}
    own |= {"pool": 4, "probes": 1, "data": "digits"} if name == "hnas" else {}
    own |= {"population": 2, "objectives": ("length", "-macs")} if name == "nsga2" else {}

    def score(one: Any) -> Any:
        return {"length": len(str(one))} if name == "nsga2" else float(len(str(one)))

    def ask() -> Any:
        return search(name, evaluate=score, run=tmp_path / "run", **own)

    if "evaluate" not in method.uses:
        with pytest.raises(InputError, match="evaluate"):
            ask()
        assert not (tmp_path / "run").exists()
        return
    found = ask()
    assert found.best.search_accuracy == len(found.best.architecture)


# --- beside ---


def test_the_plain_network_takes_a_tenth_of_the_training_by_count(arrays: Arrays) -> None:
    """By hand: 8 x 8 x 9 x 32, 4 x 4 x 9 x 32 x 64, 2 x 2 x 9 x 64 x 128 and 128 x 3 multiply-accumulates."""
    data, recipe = from_object(arrays), Recipe(lr=0.1, epochs=40, batch_size=12)
    plain = 64 * 9 * 32 + 16 * 9 * 32 * 64 + 4 * 9 * 64 * 128 + 128 * 3
    each = len(data.train) // 12
    assert steps_within(data, recipe, plain) == 4 * each
    assert steps_within(data, recipe, 100 * plain) == 40 * each  # never more than the answer
    assert steps_within(data, recipe, plain / 8) == 0  # half a pass is none


def test_the_plain_network_is_trained_where_a_tenth_allows_it(arrays: Arrays, tmp_path: Path) -> None:
    large = {"epochs": 1, "final_epochs": 8, "channels": 32, "cells": 2, "evaluations": 1}
    found = search("random", data=arrays, run=tmp_path / "run", **large)
    assert found.beside[PLAIN].accuracy > found.beside[CHANCE].accuracy


def test_without_simple_things_only_chance_is_said(arrays: Arrays, tmp_path: Path) -> None:
    found = search("random", data=arrays, run=tmp_path / "run", evaluations=1, beside=False, **SMALL)
    assert set(found.beside) == {CHANCE}


def test_beside_is_refused_where_nothing_is_trained() -> None:
    with pytest.raises(InputError, match="beside"):
        search("random", evaluate=lambda one: 1.0, beside=False)


def test_tried_networks_are_a_frame(arrays: Arrays, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    found = search("random", data=arrays, run=tmp_path / "run", evaluations=3, **SMALL)
    frame = found.tried_frame()
    assert len(frame) == 3
    assert frame["search_accuracy"].is_monotonic_decreasing
    assert frame["search_accuracy"].iloc[0] == found.best.search_accuracy
    assert (frame["params"] > 0).all()
    assert found.models_frame()["accuracy"].tolist() == [found.best.accuracy]
