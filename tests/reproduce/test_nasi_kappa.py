"""NASI's order of cells, and another score that chooses among its best."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archwright.proxies.score import Scores
from archwright.reproduce import nasi_kappa
from archwright.reproduce.base import Settings
from archwright.reproduce.nasi_kappa import chosen_cells, connection_wise, ordered, without_none
from archwright.reproduce.thesis7 import classes
from archwright.spaces.nasbench201 import NASBENCH201, all_operations, cell_of
from archwright.tables.locate import shared_data

needs_table = pytest.mark.skipif(shared_data("nb201.npz") is None, reason="nb201.npz is not in the data folder")


def made_up(seed: int = 0) -> tuple[np.ndarray, Scores]:
    """Random numbers of all operations, and scores of all classes: trace and kappa, and grad equal to trace."""
    rng = np.random.default_rng(seed)
    values = np.exp(rng.standard_normal((len(classes()[0]), 3)))
    values[:, 0] = values[:, 1]
    return rng.standard_normal((6, 5)), Scores(("grad", "trace", "kappa"), np.array([1, 1, -1]), values, 0 * values)


def test_the_first_of_the_order_is_the_method_s_own_answer() -> None:
    operations, index = without_none()
    assert len(operations) == 4**6
    alpha, _ = made_up()
    first = cell_of(all_operations()[index[ordered(alpha, operations)[0]]])
    assert first == NASBENCH201.derive({"cell": alpha})


def test_connection_wise_means_find_an_additive_score() -> None:
    operations, _ = without_none()
    worth = np.random.default_rng(1).standard_normal((6, 5))
    quality = worth[np.arange(6), operations].sum(1)
    found = connection_wise(quality, operations)
    assert np.isneginf(found[:, NASBENCH201.operations.index("none")]).all()
    assert ordered(found, operations)[0] == quality.argmax()


def test_arms_choose_among_the_best_of_the_order() -> None:
    alpha, scores = made_up()
    operations, index = without_none()
    found = chosen_cells({"T": alpha}, scores, 0)
    best = index[ordered(alpha, operations)[:10]]
    assert found["NASI T"] == [best[0]]
    assert found["NASI T, any of 10"] == best.tolist()
    ratio = scores["trace"] / scores["kappa"]
    member = classes()[1]
    assert found["NASI T, best trace over kappa of 10"] == [max(best, key=lambda one: ratio[member[one]])]
    assert found["best trace over kappa of all"] == [max(index, key=lambda one: ratio[member[one]])]


@needs_table
def test_the_table_is_made_from_kept_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nasi_kappa, "BUDGETS", {"T": 2})
    monkeypatch.setattr(nasi_kappa, "KEPT", (5,))
    monkeypatch.setattr(nasi_kappa, "score_space", lambda _settings, _metrics, draw: made_up(draw)[1])
    settings = Settings(tmp_path / "study", seeds=2, data="random:classes=4,size=8,channels=3,count=240")
    rows = {row.label: row for row in nasi_kappa.table_6_1_kappa(settings).rows}
    assert rows["NASI T C10"].paper == 93.08
    assert all(0 < (row.ours or 0) < 95 for row in rows.values())
    monkeypatch.setattr(nasi_kappa, "finished", lambda *_, **__: pytest.fail("searched again"))
    again = nasi_kappa.table_6_1_kappa(settings)
    assert {row.label: row for row in again.rows} == rows
