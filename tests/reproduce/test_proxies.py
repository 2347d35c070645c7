"""The scores beside each other: the tables that they are compared on, and a small run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap, spearmanr

from archwright.errors import InputError
from archwright.proxies.score import Scores
from archwright.reproduce import proxies
from archwright.reproduce.base import Settings, reproduce
from archwright.reproduce.proxies import beside, darts_table, predictions, sample_of
from archwright.tables.locate import shared_data

needs_cells = pytest.mark.skipif(
    shared_data("darts_cells_500.json") is None, reason="darts_cells_500.json is not there"
)
NOISE = "random:classes=10,size=8,channels=3,count=64"


@needs_cells
def test_the_darts_cells_are_read_as_they_are() -> None:
    pairs, accuracy = darts_table()
    sources = [[[source for _, source in node] for node in pair.normal.nodes] for pair in pairs]
    assert sum(any(len(set(node)) < len(node) for node in cell) for cell in sources) == 403
    operations = [{operation for node in pair.normal.nodes for operation, _ in node} for pair in pairs]
    assert sum("none" in one for one in operations) == 316
    assert (accuracy.min(), accuracy.max()) == pytest.approx((10.2, 86.6), abs=0.06)
    assert accuracy.mean() == pytest.approx(79.2, abs=0.05)


@needs_cells
def test_a_few_darts_cells_get_every_score_and_are_not_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "DARTS_FIELDS", {"channels": 2, "cells": 3, "image_size": 8, "batch_size": 4})
    monkeypatch.setattr(proxies, "ONE_CELL", {"channels": 4, "cells": 1, "image_size": 8, "batch_size": 4})
    monkeypatch.setattr(proxies, "CHOSEN_ON", 2)
    settings = Settings(tmp_path / "a", seeds=1, data=NOISE, architectures=20)
    found = reproduce("proxies-darts", settings)
    labels = {row["label"] for row in found["rows"]}
    assert {"swap", "zico", "meco", "az-nas", "consensus", "params", "macs", "HNAS trace, both terms"} <= labels
    assert {"synflow, one cell", "paths, one cell", "paths, one cell, other cells", "params, other cells"} <= labels
    assert all(-1 <= row["ours"] <= 1 for row in found["rows"] if "paths - params" not in row["label"])
    monkeypatch.setattr("archwright.reproduce.networks.scored_pairs", None)
    assert reproduce("proxies-darts", settings)["rows"] == found["rows"]


def test_scores_side_by_side_and_what_they_predict() -> None:
    def one(metrics: tuple[str, ...], values: list[list[float]], directions: list[int]) -> Scores:
        array = np.array(values)
        return Scores(metrics, np.array(directions), array, np.zeros_like(array))

    names = ("swap", "jacob_cov", "trainability", "expressivity", "progressivity", "grad", "kappa")
    first = one(names, [[1, 1, 1, 1, 1, 8, 2], [2, 2, 2, 2, 2, 6, 3]], [1, 1, 1, 1, 1, 1, -1])
    found = predictions(beside([first, one(("params", "macs"), [[5, 5], [9, 9]], [1, 1])]))
    assert found["kappa"].tolist() == [-2, -3]
    assert found["grad / kappa"].tolist() == [4, 2]
    assert found["az-nas"] == pytest.approx([4 * np.log(0.5), 0.0])
    assert found["consensus"] == pytest.approx([5 * np.log(0.5), 0.0])


def test_only_combinations_whose_metrics_are_there() -> None:
    values = np.array([[1.0, 5.0, 1.0, 1.0], [2.0, 4.0, 1.0, 1.0]])
    names = ("synflow", "macs", "swap", "params")
    found = predictions(Scores(names, np.ones(4, int), values, np.zeros_like(values)))
    assert set(found) == {*names, "swap, regularised", "paths"}
    assert found["paths"] == pytest.approx([np.log(0.5), np.log(0.5)])


def test_the_interval_is_that_of_a_paired_bootstrap() -> None:
    rng = np.random.default_rng(1)
    accuracy = rng.normal(size=200)
    good, poor = accuracy + rng.normal(size=200), accuracy + 2 * rng.normal(size=200)

    def difference(first: np.ndarray, second: np.ndarray, truth: np.ndarray) -> float:
        return spearmanr(first, truth).statistic - spearmanr(second, truth).statistic

    theirs = bootstrap(
        (good, poor, accuracy),
        difference,
        paired=True,
        vectorized=False,
        n_resamples=500,
        method="percentile",
        rng=np.random.default_rng(2),
    ).confidence_interval
    assert proxies.paired_interval(good, poor, accuracy) == pytest.approx((theirs.low, theirs.high), abs=0.03)
    assert proxies.paired_interval(good, good, accuracy) == (0, 0)


def test_a_sample_is_the_same_every_time_and_only_where_it_means_something(tmp_path: Path) -> None:
    few = Settings(tmp_path, architectures=7)
    assert len(set(sample_of(few, 100).tolist())) == 7
    assert sample_of(few, 100).tolist() == sample_of(few, 100).tolist()
    assert sample_of(Settings(tmp_path), 5).tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="--architectures"):
        reproduce("thesis-6.7", few)
