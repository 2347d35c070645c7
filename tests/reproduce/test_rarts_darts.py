"""Tables 1 and 3 of RARTS at a tiny scale: one set of searches, two sets of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from archwright.reproduce import rarts_darts
from archwright.reproduce.base import Settings
from archwright.reproduce.rarts_darts import beside_random

SMALL = "random:classes=4,size=8,channels=3,count=160"


def test_gains_are_of_the_same_seed() -> None:
    found = {
        "random": [(50.0, 1, 0), (60.0, 1, 0)],
        **{name: [(49.0, 1, 0), (57.0, 1, 0)] for name in rarts_darts.METHODS},
    }
    assert (
        beside_random(found)[0] == "DARTS-1 less random cells of the seed: -2.00 points of error, standard error 1.00"
    )


def test_both_tables_share_the_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"search_epochs": 1, "alpha_lr": 3e-3, "final_epochs": 1, "search_images": 32, "search_batch": 16}
    monkeypatch.setattr(rarts_darts, "SEARCH", tiny)
    monkeypatch.setattr(rarts_darts, "METHODS", {"RARTS": ("rarts", {"fused": True})})
    for name, value in {"RANDOM": 2, "EPOCHS": 1, "TRANSFER_EPOCHS": 1, "TRANSFER": "digits"}.items():
        monkeypatch.setattr(rarts_darts, name, value)
    first = rarts_darts.rarts_1(Settings(tmp_path / "rarts-1", seeds=1, data=SMALL))
    rows = {row.label: row for row in first.rows}
    assert rows["RARTS test error"].paper == 2.65
    assert rows["random parameters"].paper == 3200
    assert set(rows) == {
        f"{cell} {what}" for cell in ("RARTS", "random", "darts-v2") for what in ("test error", "parameters", "skips")
    }
    monkeypatch.setattr("archwright.reproduce.searches.search", lambda *_, **__: pytest.fail("searched again"))
    again = rarts_darts.rarts_1(Settings(tmp_path / "rarts-1", seeds=1, data=SMALL))
    assert again.rows == first.rows
    other = {row.label: row for row in rarts_darts.rarts_3(Settings(tmp_path / "rarts-3", seeds=1, data=SMALL)).rows}
    assert other["RARTS test error"].paper == 25.9
    assert other["RARTS skips"].ours == rows["RARTS skips"].ours  # the same cell
