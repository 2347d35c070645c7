"""All variants of chapter 4's cells, at a tiny scale and on made-up studies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.reproduce import thesis4, thesis4_variants
from archwright.reproduce.base import Settings
from archwright.reproduce.thesis4_variants import family_of, family_rows, related
from archwright.spaces.topology import cell_topology


def test_a_family_is_the_base_cell_and_all_its_variants() -> None:
    connected, operated = family_of("enas")
    assert len(connected) == 14
    assert len(operated) == 11
    assert connected[0] == operated[0]
    assert len({str(one.pair) for one in [*connected, *operated]}) == 24
    operations = {one.pair.normal.nodes for one in operated}
    assert len(operations) == 11


def test_correlations_of_made_up_studies() -> None:
    connected, operated = family_of("darts-v2")
    width = {one.label: float(cell_topology(one.pair.normal).width) for one in connected}

    def study(label: str) -> dict[str, object]:
        wide = width.get(label, 3.0)
        return {"area": 5 - wide, "accuracy": [0.0, 10 * wide], "share_under_double": wide, "median_variance": None}

    found = {one.label: [study(one.label)] * 2 for one in [*connected, *operated]}
    rows, notes = family_rows("DARTS on X", connected, operated, found)
    values = {row.label: row.ours for row in rows}
    assert values["DARTS on X: area under the test loss with width"] == pytest.approx(-1)
    assert values["DARTS on X: last accuracy with width"] == pytest.approx(1)
    assert values["DARTS on X: gradient variance with width"] == 0  # nothing known, nothing ordered
    assert values["DARTS on X: deviation of the area over operations"] < 0.2
    assert values["DARTS on X: deviation of the area over connections"] > 0.2
    assert len(notes) == 8


def test_an_interval_of_noise_holds_zero() -> None:
    rng = np.random.default_rng(0)
    _, low, high = related(rng.standard_normal((2, 14)), np.arange(14.0))
    assert low < 0 < high


def test_two_sets_of_images_and_one_base_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"CHANNELS": 4, "CELLS": 3, "IMAGE_SIZE": 8, "IMAGES": 80, "EPOCHS": 1}
    for name, value in small.items():
        monkeypatch.setattr(thesis4, name, value)
    own = {"CONNECTIONS": 3, "OPERATIONS": 2, "SECOND": "digits", "GRID": 2, "VARIANCE_GRID": 2}
    for name, value in own.items():
        monkeypatch.setattr(thesis4_variants, name, value)
    settings = Settings(tmp_path, data="random:classes=4,size=8,channels=3,count=160", only="enas")
    outcome = thesis4_variants.variants_4(settings)
    assert sum(row.label.startswith("ENAS on digits: accuracy") for row in outcome.rows) == 1 + 3 + 2
    assert len(outcome.rows) == 2 * (8 + 2 + 6)
    monkeypatch.setattr(thesis4, "study_cell", lambda *_: pytest.fail("trained again"))
    assert thesis4_variants.variants_4(settings).rows == outcome.rows
    with pytest.raises(InputError, match="base cell"):
        thesis4_variants.variants_4(Settings(tmp_path, only="resnet"))
