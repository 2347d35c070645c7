"""The order of cells in a supernet beside the table's, at a tiny scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.reproduce import supernet_order
from archwright.reproduce.base import Settings
from archwright.reproduce.supernet_order import Measured, drawn_path, interval, judged_cells, order_rows
from archwright.tables.locate import shared_data
from archwright.tables.nasbench201 import load_compact

needs_table = pytest.mark.skipif(shared_data("nb201.npz") is None, reason="nb201.npz is not in the data folder")


def test_fair_paths_take_every_operation_of_an_edge_once_in_four_steps() -> None:
    for turn in range(3):
        cells = [drawn_path("fair", 5, 4 * turn + place) for place in range(4)]
        for edge in range(6):
            assert sorted(one.operations[edge] for one in cells) == sorted({one.operations[edge] for one in cells})
            assert len({one.operations[edge] for one in cells}) == 4
    assert drawn_path("fair", 5, 7) == drawn_path("fair", 5, 7)
    assert len({str(drawn_path("uniform", 0, index)) for index in range(30)}) > 20


def test_cells_are_different_and_have_no_none() -> None:
    cells = judged_cells(50)
    assert len({str(one) for one in cells}) == 50
    assert not any("none" in str(one) for one in cells)


def test_an_interval_holds_the_correlation_it_is_of() -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(200)
    low, high = interval((truth + rng.standard_normal((3, 200))), truth)
    assert low < 0.69 < high  # 6 / pi asin(r / 2) with r = 1 / sqrt 2
    assert high - low < 0.25


@needs_table
def test_a_supernet_that_knows_the_table_has_correlation_one() -> None:
    cells = judged_cells(20)
    accuracies = load_compact().accuracies("cifar10", 200, "test")[[one.index for one in cells]]
    told = {"losses": [(-accuracies).tolist()] * 2, "accuracies": [accuracies[::-1].tolist()] * 2}
    rows, notes = order_rows({("fair", 1): [{"steps": 1000, "batch": told, "recalibrated": told}]}, cells)
    found = {row.label: row.ours for row in rows}
    assert found["fair paths, 1,000 steps, batch norms: cross entropy"] == pytest.approx(1)
    assert found["fair paths, 1,000 steps, batch norms: halves agree, cross entropy"] == pytest.approx(1)
    assert abs(found["fair paths, 1,000 steps, batch norms: right or wrong"] or 0) < 0.9
    assert notes[0].endswith("1.00 to 1.00")


@needs_table
def test_supernets_are_trained_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CHANNELS": 4, "IMAGE_SIZE": 8, "EPOCHS": (1,), "RECALIBRATED": 32}.items():
        monkeypatch.setattr(supernet_order, name, value)
    data = "random:classes=4,size=8,channels=1,count=240"
    settings = Settings(tmp_path, seeds=2, data=data, architectures=5)
    outcome = supernet_order.supernet_order(settings)
    labels = {row.label: row for row in outcome.rows}
    assert len(labels) == 1 + 2 * 2 * 6
    assert labels["uniform paths, 1 steps, batch norms: cross entropy"].ours_std is not None
    monkeypatch.setattr(supernet_order, "trained_supernet", lambda *_: pytest.fail("trained again"))
    again = supernet_order.supernet_order(Settings(tmp_path, seeds=2, data=data, architectures=5))
    assert [row.ours for row in again.rows] == [row.ours for row in outcome.rows]
    assert Measured.of({"losses": [[1.0], [2.0]], "accuracies": [[3.0], [4.0]]}).losses.shape == (2, 1)
    fair = supernet_order.supernet_order(Settings(tmp_path, seeds=2, data=data, architectures=5, only="fair"))
    assert [row for row in again.rows if not row.label.startswith("uniform")] == fair.rows
    with pytest.raises(InputError, match="paths"):
        supernet_order.supernet_order(Settings(tmp_path, seeds=1, data=data, only="greedy"))
