"""Figure 7.3 with scores that are made up: curves by hand, and the rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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
