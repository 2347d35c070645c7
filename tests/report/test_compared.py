from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from archwright.report.compared import Paired, comparison_page, holm, mcnemar
from archwright.runs.run import Run
from archwright.search.engine import search
from archwright.search.tested import OnTestImages
from archwright.training.evaluation import Outcomes


def network(right: list[int]) -> OnTestImages:
    """Of two classes, right on these of ten images."""
    predicted = np.ones(10, int)
    predicted[right] = 0
    outcomes = Outcomes(np.zeros(10, int), predicted, np.ones(10, np.float32))
    return OnTestImages(outcomes, ("a", "b"), np.zeros(0, int), np.zeros((0, 1, 1, 1), np.uint8), ())


def test_the_paired_chance_is_the_binomial_tail_on_both_sides() -> None:
    found = mcnemar(network([0, 1, 2, 3, 4, 5, 6, 7]), network([0, 9]))
    assert (found.won, found.lost, found.points) == (7, 1, 60.0)
    assert found.chance == pytest.approx(2 * binom.cdf(1, 8, 0.5))
    low, high = found.interval
    assert 0 < low < 60 < high < 100
    same = mcnemar(network([1, 2]), network([1, 2]))
    assert (same.points, same.chance) == (0.0, 1.0)
    assert same.interval[0] == pytest.approx(-same.interval[1])


def test_the_interval_of_a_difference_covers_the_true_one() -> None:
    """Drawn anew many times, 95 % intervals contain the true difference about 95 times in a hundred."""
    rng, hits, tries = np.random.default_rng(0), 0, 2000
    for _ in range(tries):
        won, lost, _ = rng.multinomial(200, [0.12, 0.07, 0.81])
        low, high = Paired(int(won), int(lost), 200, 1.0).interval
        hits += low <= 5.0 <= high
    assert 0.935 < hits / tries < 0.97


def test_several_tests_are_held_to_one_threshold() -> None:
    """Holm by hand: 3 x .01, then 2 x .02 raised to it, then .5."""
    assert holm([0.5, 0.01, 0.02]) == pytest.approx([0.5, 0.03, 0.04])
    assert holm([0.04, 0.01]) == pytest.approx([0.04, 0.02])
    assert holm([]) == []


def test_runs_are_compared_image_by_image_on_the_same_data_only(tmp_path) -> None:
    small = {"data": "digits", "evaluations": 1, "epochs": 1, "channels": 2, "cells": 1}
    for name, more in (("one", {"final_epochs": 1}), ("longer", {"final_epochs": 8}), ("other", {"seed": 1})):
        search("random", run=tmp_path / name, **small, **more)
    runs = [Run.open(tmp_path / name) for name in ("one", "longer")]
    text = comparison_page(runs)
    assert "longer is better than one" in text
    assert "final_epochs" in text
    assert ">one</text>" in text  # points have names
    other = comparison_page([runs[0], Run.open(tmp_path / "other")])
    assert "2 different sets of images" in other
    assert "Is one better?" not in other
