"""Figure 7.3 with scores that are made up: curves by hand, and the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from archwright.methods.hnas import BoostedPool, make_objective
from archwright.proxies.score import Scores
from archwright.reproduce import thesis7_budget as budget
from archwright.reproduce.base import Settings
from archwright.reproduce.thesis7 import classes
from archwright.search.evaluator import Evaluated
from archwright.spaces.nasbench201 import all_operations, cell_of
from archwright.tables.locate import shared_data
from archwright.tables.nasbench201 import load_compact

pytestmark = pytest.mark.skipif(
    shared_data("nb201.npz") is None, reason="needs nb201.npz in $ARCHWRIGHT_DATA or ../shared/data"
)


def test_a_curve_is_the_test_error_of_the_best_validated_so_far() -> None:
    first, second, third = (cell_of(all_operations()[index]) for index in (100, 2000, 9000))
    test = load_compact().accuracies("cifar10", 200, "test")
    curves = budget.error_curves([[Evaluated(first, 50.0), Evaluated(second, 40.0), Evaluated(third, 60.0)]])
    assert curves.tolist() == [[100 - test[100], 100 - test[100], 100 - test[9000]]]


def test_figure_7_3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracy = load_compact().accuracies("cifar10", 200, "test")
    known = np.array([accuracy[cell.index] for cell in classes()[0]])

    def oracle(settings: Settings, metrics: tuple[str, ...], seed: int) -> Scores:
        """A trace that orders the cells as their test accuracies do, and one kappa for all."""
        values = np.stack([known.argsort().argsort() + 1.0, np.ones(len(known))], axis=1)
        return Scores(metrics, np.array([1, -1]), values, np.zeros_like(values))

    monkeypatch.setattr(budget, "score_space", oracle)
    monkeypatch.setattr(budget, "EVALUATIONS", 3)
    monkeypatch.setattr(budget, "SHOWN", (1, 3))
    outcome = budget.figure_7_3(Settings(tmp_path / "figure", seeds=2, data="random:count=64"))
    found = {row.label: row.ours for row in outcome.rows}
    assert list(found) == [f"{m} after {n}" for m in ("HNAS", "zero-cost", "random", "evolution") for n in (1, 3)] + [
        "optimum"
    ]
    assert found["zero-cost after 1"] < 6.5  # the best of a thousand by an oracle
    assert found["zero-cost after 1"] < found["random after 1"]
    assert outcome.plot is not None
    outcome.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_figure_7_5_follows_the_parameters_of_the_best_cell_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracy = load_compact().accuracies("cifar10", 200, "test")
    known = np.array([accuracy[cell.index] for cell in classes()[0]])
    rng = np.random.default_rng(0)

    def made(settings: Settings, metrics: tuple[str, ...], seed: int) -> Scores:
        """A trace that orders the cells roughly, and one kappa for all."""
        values = np.stack([np.exp(0.02 * known + 0.2 * rng.normal(size=len(known))), np.ones(len(known))], axis=1)
        return Scores(metrics, np.array([1, -1]), values, np.zeros_like(values))

    monkeypatch.setattr(budget, "score_space", made)
    monkeypatch.setattr(budget, "EVALUATIONS", 7)
    monkeypatch.setattr(budget, "SHOWN", (1, 7))
    outcome = budget.figure_7_5(Settings(tmp_path, seeds=2, data="digits"))
    rows = {row.label: row for row in outcome.rows}
    assert list(rows) == [
        "after 1",
        "after 7",
        "after 7 less after 1",
        "trace alone",
        "best of a grid",
        "mean of a grid",
    ]
    assert rows["after 7 less after 1"].ours == pytest.approx(rows["after 7"].ours - rows["after 1"].ours)
    assert rows["best of a grid"].ours >= max(rows["mean of a grid"].ours, rows["after 7"].ours - 0.02)
    outcome.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000

    pool, scores = budget.live_scores(Settings(tmp_path, data="digits"), 0)
    boosted = BoostedPool(pool, make_objective(scores, "trace", "square"), 0, probes=5)
    cells = [boosted.propose([], 0)]
    first = Evaluated(cells[0], 50.0)
    cells.append(boosted.propose([first], 1))
    parameters = [boosted.tried[cell] for cell in cells]
    tests = budget.tests_of(pool, load_compact())[:, 0]
    kappa, trace = scores["kappa"], scores["trace"] / np.median(scores["trace"])
    by_hand = []
    for (
        log_mu,
        quantile,
    ) in parameters:  # eq. 7.7, F(x) = x ** 2: kappa / M + mu (M ** 2 - nu) ** 2, the less the better
        penalty = (trace**2 - np.quantile(trace, quantile) ** 2) ** 2
        mu = 10**log_mu * np.median(kappa / trace) / np.median(penalty)
        by_hand.append(spearmanr(-(kappa / trace + mu * penalty), tests).statistic)
    found = budget.orders(boosted, [first, Evaluated(cells[1], 60.0)], tests)
    assert found == pytest.approx(by_hand)
    assert budget.orders(boosted, [first, Evaluated(cells[1], 40.0)], tests) == pytest.approx(by_hand[:1] * 2)
