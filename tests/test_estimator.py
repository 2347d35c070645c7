"""The search as a scikit-learn classifier: scikit-learn's own checks, and images as people have them."""

from __future__ import annotations

from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from archwright import ArchwrightClassifier
from archwright.errors import InputError

SMALL = {"evaluations": 1, "epochs": 1, "final_epochs": 1, "channels": 2, "cells": 1, "beside": False, "augment": "off"}


class PaddedRows(ArchwrightClassifier):
    """Rows of any length as images: scikit-learn's checks have tables of two to twenty columns."""

    def __init__(self, random_state: int = 0) -> None:
        super().__init__("random", minutes=None, settings=SMALL, random_state=random_state)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {"random_state": self.random_state}

    def _shape_of_rows(self, pixels: int) -> tuple[int, ...]:
        side = isqrt(pixels)
        return side, side

    def _images(self, array: np.ndarray) -> np.ndarray:
        if array.ndim == 2:
            side = max(4, isqrt(array.shape[1] - 1) + 1)
            padded = np.full((len(array), side * side), array.dtype.type(self.pixel_range_[0]))
            padded[:, : array.shape[1]] = array
            array = padded
        return super()._images(array)


@pytest.mark.slow
@parametrize_with_checks([PaddedRows()])
def test_scikit_learns_checks(estimator: PaddedRows, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    found = load_digits(n_class=3)
    return found.data[:150], np.array(["zero", "one", "two"])[found.target[:150]]


def quick(**more: Any) -> ArchwrightClassifier:
    settings = {**SMALL, "channels": 8, "epochs": 4, "final_epochs": 12}
    return ArchwrightClassifier("random", minutes=None, settings=settings, **more)


def test_rows_of_pixels_and_labels_of_any_kind(digits, tmp_path: Path) -> None:
    x, y = digits
    found = quick(run=tmp_path / "run").fit(x[:120], y[:120])
    assert found.classes_.tolist() == ["one", "two", "zero"]
    assert found.score(x[120:], y[120:]) > 0.8
    probabilities = found.predict_proba(x[120:])
    assert probabilities.shape == (30, 3)
    assert probabilities.sum(1) == pytest.approx(np.ones(30), abs=1e-5)
    assert (found.predict(x[120:]) == found.classes_[probabilities.argmax(1)]).all()
    assert found.answer_.folder == tmp_path / "run"
    images = x.reshape(-1, 8, 8)
    assert found.pixel_range_ == (0.0, 16.0)
    same = quick().fit(images[:120], y[:120])
    assert same.answer_.best.accuracy == found.answer_.best.accuracy


def test_it_is_cloned_and_cross_validated(digits) -> None:
    x, y = digits
    scores = cross_val_score(clone(quick()), x, y, cv=2)
    assert scores.shape == (2,)
    assert scores.min() > 0.5


def test_rows_that_are_no_images_are_refused(digits) -> None:
    x, y = digits
    with pytest.raises(InputError, match="62 features a row"):
        quick().fit(x[:, :62], y)
    with pytest.raises(InputError, match="image_shape"):
        quick(image_shape=(2, 8)).fit(x, y)
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(np.full((10, 64), np.nan), y[:10])
    with pytest.raises(InputError, match="two classes"):
        quick().fit(x, np.zeros(len(x)))


def test_eight_bit_images_are_taken_as_they_are(digits) -> None:
    x, y = digits
    images = (x.reshape(-1, 8, 8) * 255 / 16).astype(np.uint8)
    found = quick().fit(images[:120], y[:120])
    assert found.pixel_range_ == (0.0, 255.0)
    assert found.score(images[120:], y[120:]) > 0.8
