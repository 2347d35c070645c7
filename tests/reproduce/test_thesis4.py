from __future__ import annotations

import numpy as np
import pytest

from archwright.reproduce import thesis4, thesis7_topology
from archwright.reproduce.base import Settings


@pytest.fixture
def small(tmp_path, monkeypatch) -> Settings:
    sizes = {"CHANNELS": 4, "CELLS": 3, "IMAGE_SIZE": 8, "IMAGES": 160, "EPOCHS": 1, "GRID": 3, "VARIANCE_GRID": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(thesis4, name, value)
    return Settings(tmp_path / "figure", seeds=1, data="digits")


def test_table_4_2_has_the_base_cells_of_the_paper(small) -> None:
    outcome = thesis4.table_4_2(small)
    rows = {row.label: row for row in outcome.rows}
    for row in rows.values():
        if row.paper is not None:
            assert row.ours == row.paper
    assert sum(row.paper is not None for row in rows.values()) == 8
    assert sum(" C13 " in label for label in rows) == 8
    assert any("3.35 M" in note for note in outcome.notes)


def test_the_family_goes_from_wide_to_narrow() -> None:
    family = thesis4.darts_family()
    widths = [float(one.label.split("(")[1].split("c")[0]) for one in family]
    assert widths == sorted(widths, reverse=True)
    assert len(set(widths)) == 4  # of two cells one is wider, so that every pair says something
    assert any(one.label == "DARTS (3.5c, 3)" for one in family)


def test_figures_share_their_trainings(small, tmp_path, monkeypatch) -> None:
    outcome = thesis4.figure_4_6(small)
    labels = [row.label for row in outcome.rows]
    assert sum(label.startswith("sharpness") for label in labels) == 4
    outcome.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").exists()
    monkeypatch.setattr(thesis4, "study_cell", lambda *_: pytest.fail("trained again"))
    again = thesis4.figure_4_7(small)
    assert all(row.ours > 0 for row in again.rows)


def test_a_diverging_training_is_a_result(small) -> None:
    found = thesis4.over_seeds(small, thesis4.darts_family()[:1], lr=1e6, default_seeds=1)
    (run,) = next(iter(found.values()))
    assert len(run["loss"]) == 1
    assert np.isfinite(run["area"])


def test_table_7_2_orders_wide_and_deep(small, monkeypatch) -> None:
    for name, value in {"CHANNELS": 4, "CELLS": 3, "IMAGE_SIZE": 8, "BATCH": 8}.items():
        monkeypatch.setattr(thesis7_topology, name, value)
    rows = {row.label: row for row in thesis7_topology.table_7_2(small).rows}
    for name, (width, depth, _, _) in thesis7_topology.TABLE_7_2.items():
        assert (rows[f"{name} width"].ours, rows[f"{name} depth"].ours) == (width, depth)
    assert rows["DEEP trace"].ours > 0


def test_the_theorems_of_section_4_3_3_beside_what_holds(small, monkeypatch) -> None:
    monkeypatch.setattr(thesis4, "LINEAR_CELLS", 50)
    rows = {row.label: row for row in thesis4.theorems_4_3_3(small).rows}
    broken = [f"{name}: broken" for name in ("theorem 4.3", "theorem 4.3 corrected", "theorem 4.4")]
    assert [rows[label].paper for label in broken] == [0, None, 0]
    assert rows[broken[0]].ours > 50
    assert rows[broken[1]].ours == rows[broken[2]].ours == 0
    assert rows["theorem 4.3: largest value / bound"].ours > 1 >= rows["theorem 4.4: largest value / bound"].ours
