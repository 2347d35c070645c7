"""One-shot losses beside real accuracies of cells of the DARTS space."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archwright.reproduce import conas_order
from archwright.reproduce.base import Settings
from archwright.reproduce.conas_order import bits_of, of_some, tau
from archwright.spaces.cells import Cell, CellPair
from archwright.spaces.darts import DARTS
from archwright.spaces.subgraphs import Subgraphs
from archwright.tables.locate import shared_data

needs_cells = pytest.mark.skipif(shared_data("darts_cells_500.json") is None, reason="no darts_cells_500.json")


def test_a_cell_of_the_space_has_the_bits_that_the_space_gives_it() -> None:
    pair = DARTS.sample(np.random.default_rng(0))
    assert (bits_of(pair) == Subgraphs(DARTS).of(pair)).all()


def test_none_is_off_and_a_repeated_edge_counts_once() -> None:
    nodes = ((("skip_connect", 0), ("skip_connect", 0)), (("none", 0), ("sep_conv_3x3", 2)))
    cell = Cell((*nodes, *((("skip_connect", 0), ("skip_connect", 1)),) * 2), (2, 3, 4, 5))
    names = np.array(Subgraphs(DARTS).names)[bits_of(CellPair(cell, cell)) > 0]
    assert len(names) == 2 * (1 + 1 + 2 + 2)
    assert sum("sep_conv_3x3" in name for name in names) == 2


def test_tau_leaves_out_what_has_no_loss_and_varies_with_few_cells() -> None:
    accuracy = np.arange(40.0)
    losses = np.where(accuracy == 3, np.nan, -accuracy)
    assert tau(losses, accuracy) == 1
    noisy = np.random.default_rng(0).standard_normal(400)
    few, many = (of_some(noisy, np.arange(400.0), count) for count in (16, 200))
    assert few == pytest.approx((2 * (2 * 16 + 5) / (9 * 16 * 15)) ** 0.5, rel=0.1)  # of independent ranks
    assert many < few / 2


@needs_cells
def test_rows_by_epochs_and_controls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conas_order, "EPOCHS", (1,))
    monkeypatch.setattr(conas_order, "MEASURED", {**conas_order.MEASURED, "images": 16, "measure_batch": 16})
    settings = Settings(tmp_path, seeds=1, data="random:classes=10,size=8,channels=3,count=120", architectures=12)
    outcome = conas_order.conas_a4(settings)
    found = {row.label: row for row in outcome.rows}
    assert found["one-shot model of 1 epochs"].paper == 0.15
    assert found["parameters alone"].ours > 0
    assert all(-1 <= row.ours <= 1 for row in outcome.rows)
    assert conas_order.conas_a4(settings).rows == outcome.rows
