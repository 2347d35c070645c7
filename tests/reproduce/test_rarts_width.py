"""Tables 5 and 6 of RARTS, tiny."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from archwright.reproduce import rarts_width
from archwright.reproduce.base import Settings

TINY = {"search_epochs": 1, "final_epochs": 1, "batch": 64}


def test_table_5_has_every_arm_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rarts_width, "SETTINGS", {**rarts_width.SETTINGS, "image_size": 8})
    own = replace(rarts_width.TABLE_5, network="helpers.own_networks:plain", channels=None, **TINY)
    monkeypatch.setattr(rarts_width, "TABLE_5", own)
    monkeypatch.setattr(rarts_width, "ARMS", {"random": "random", "RARTS": "rarts"})
    settings = Settings(tmp_path, seeds=1, data="random:classes=3,size=8,channels=1,count=200")
    outcome = rarts_width.rarts_5(settings)
    rows = {row.label: row for row in outcome.rows}
    assert rows["unpruned"].paper == 5.42
    assert (rows["RARTS 40 %"].paper, rows["RARTS 60 %"].paper) == (4.58, 4.90)
    assert rows["CIFAR-100 RARTS 60 %"].ours is None
    assert 0 < rows["RARTS 60 %: MACs left"].ours < rows["RARTS 40 %: MACs left"].ours < 100
    assert all(0 <= rows[name].ours <= 100 for name in ("unpruned", "random 40 %", "RARTS 60 %"))
    assert rarts_width.rarts_5(settings).rows == outcome.rows  # finished arms are only read
