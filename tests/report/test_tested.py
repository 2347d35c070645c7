"""What pages say of a network on the test images, against counts by hand and another library."""

from __future__ import annotations

import re

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix as oracle

from archwright.data import load
from archwright.errors import RunError
from archwright.report.page import run_page
from archwright.report.tested import (
    binned,
    confusion_matrix,
    confusions,
    expected_calibration_error,
    file_address,
    mistakes,
    reliability,
)
from archwright.runs.run import Run
from archwright.search.engine import search
from archwright.search.tested import MOST_SHOWN, SUFFIX, OnTestImages, keep_tested, read_tested
from archwright.solvers.svgd import calibration_error
from archwright.training.evaluation import Outcomes


def outcomes(count: int = 400, classes: int = 5, seed: int = 0) -> tuple[Outcomes, np.ndarray]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.4), count)
    labels = np.where(rng.random(count) < 0.7, probabilities.argmax(1), rng.integers(classes, size=count))
    found = Outcomes(labels, probabilities.argmax(1), probabilities.max(1).astype(np.float32))
    return found, probabilities


def test_the_matrix_is_scikit_learns() -> None:
    found, _ = outcomes()
    np.testing.assert_array_equal(confusion_matrix(found, 5), oracle(found.labels, found.predicted))


def test_the_calibration_error_is_that_of_whole_probabilities() -> None:
    found, probabilities = outcomes()
    assert expected_calibration_error(found) == pytest.approx(calibration_error(probabilities, found.labels), abs=1e-4)


def test_bins_count_every_image_once() -> None:
    found, _ = outcomes()
    assert sum(count for *_, count in binned(found)) == 400
    sure = Outcomes(np.zeros(4, int), np.array([0, 0, 0, 1]), np.ones(4, np.float32))
    assert binned(sure) == [(100.0, 75.0, 4)]
    assert "overconfident" in reliability(sure)
    assert "25.00 %" in reliability(sure)


def test_names_are_escaped_and_many_classes_give_pairs() -> None:
    names = tuple(f"<b>{n}" for n in range(30))
    found = Outcomes(np.array([0, 0, 1]), np.array([1, 1, 1]), np.array([0.9, 0.8, 0.7], np.float32))
    text = confusions(OnTestImages(found, names, np.zeros(0, int), np.zeros((0, 1, 1, 1), np.uint8), ()))
    assert "<b>" not in text
    assert "2 of 2" in text
    assert "matrix" not in text


def test_what_is_kept_is_read_back_with_the_surest_mistakes_first(tmp_path) -> None:
    data = load("digits")
    count = len(data.test)
    predicted = data.test.labels.copy()
    predicted[:20] = (predicted[:20] + 1) % 10
    confidence = np.linspace(0.2, 1, count).astype(np.float32)
    (tmp_path / "artifacts").mkdir()
    keep_tested(
        tmp_path / f"artifacts/best{SUFFIX}", data, Outcomes(data.test.labels.astype(int), predicted, confidence)
    )
    found = read_tested(tmp_path, "artifacts/best.safetensors")
    assert found is not None
    assert found.shown.tolist() == list(range(19, 19 - MOST_SHOWN, -1))
    np.testing.assert_array_equal(found.pictures, data.test.pixels(found.shown).numpy())
    assert found.outcomes.right.sum() == count - 20
    assert set(found.files) == {""}
    assert "test image 19" in mistakes(found, None)
    assert read_tested(tmp_path, "artifacts/other.safetensors") is None
    assert read_tested(tmp_path, None) is None


@pytest.mark.parametrize(
    "change",
    [
        {"labels": np.array([7])},
        {"predicted": np.array([99] * 360)},
        {"confidence": np.full(360, np.nan, np.float32)},
        {"shown": np.array([4000])},
        {"pictures": np.zeros((1, 2, 3, 3), np.uint8)},
        {"files": None},
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, change) -> None:
    arrays = {
        "labels": np.zeros(360, int),
        "predicted": np.zeros(360, int),
        "confidence": np.ones(360, np.float32),
        "class_names": np.array(["a", "b"]),
        "shown": np.zeros(1, int),
        "pictures": np.zeros((1, 1, 3, 3), np.uint8),
        "files": np.array(["a.png"]),
    } | change
    np.savez(tmp_path / f"best{SUFFIX}", **{name: value for name, value in arrays.items() if value is not None})
    with pytest.raises(RunError, match=r"best-test\.npz"):
        read_tested(tmp_path, "best.safetensors")


def test_only_images_below_the_folder_are_linked(tmp_path) -> None:
    root = tmp_path / "photos"
    (root / "cat").mkdir(parents=True)
    Image.new("L", (8, 8)).save(root / "cat" / "a b.png")
    (root / "secret.txt").write_text("")
    Image.new("L", (8, 8)).save(tmp_path / "outside.png")
    assert file_address(root, "cat/a b.png").endswith("/photos/cat/a%20b.png")
    for name in ("../outside.png", str(tmp_path / "outside.png"), "secret.txt", "cat/none.png", ""):
        assert file_address(root, name) == ""
    assert file_address(None, "cat/a b.png") == ""


def test_the_page_of_a_folder_shows_where_the_network_errs(tmp_path) -> None:
    rng = np.random.default_rng(0)
    for name in ("dark & dim", "light"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(25):
            pixels = rng.integers(0, 255, (12, 12), dtype=np.uint8)  # nothing can be learnt: there are mistakes
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    folder = tmp_path / "run"
    small = {"evaluations": 2, "epochs": 1, "final_epochs": 1, "channels": 2, "cells": 1}
    found = search("random", data=f"folder:{tmp_path / 'photos'}", run=folder, **small)
    kept = read_tested(folder, found.best.model)
    assert kept is not None
    assert 100 * kept.outcomes.right.mean() == pytest.approx(found.best.accuracy)
    text = run_page(Run.open(folder))
    assert "Confusion matrix" in text
    assert "dark &amp; dim" in text
    links = re.findall(r'href="(file://[^"]+)"', text)
    assert len(links) == min(MOST_SHOWN, int((~kept.outcomes.right).sum()))
    assert all("/photos/" in link for link in links)
    assert "file://" not in run_page(Run.open(folder), linked=False)
    assert "that were tried, in the search" in text  # every tried network is drawn
