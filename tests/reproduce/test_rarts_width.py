"""Tables 5 and 6 of RARTS, tiny."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from archwright.reproduce import rarts_width
from archwright.reproduce.base import Settings

TINY = {"network": "helpers.own_networks:plain", "channels": None, "search_epochs": 1, "final_epochs": 1, "batch": 64}
DATA = "random:classes=3,size=8,channels=1,count=200"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rarts_width, "SETTINGS", {**rarts_width.SETTINGS, "image_size": 8})
    for name in ("TABLE_5", "TABLE_6"):
        monkeypatch.setattr(rarts_width, name, replace(getattr(rarts_width, name), **TINY))
    monkeypatch.setattr(rarts_width, "ARMS", {"random": "random", "RARTS": "rarts"})
    monkeypatch.setattr(rarts_width, "LEARNED", {"RARTS": "rarts"})


def test_table_5_has_every_arm_and_continues(tmp_path: Path) -> None:
    settings = Settings(tmp_path, seeds=1, data=DATA)
    outcome = rarts_width.rarts_5(settings)
    rows = {row.label: row for row in outcome.rows}
    assert rows["unpruned"].paper == 5.42
    assert (rows["RARTS 40 %"].paper, rows["RARTS 60 %"].paper) == (4.58, 4.90)
    assert rows["CIFAR-100 RARTS 60 %"].ours is None
    assert rows["RARTS 60 %: channels left"].ours < rows["RARTS 40 %: channels left"].ours < 8
    assert all(0 <= rows[name].ours <= 100 for name in ("unpruned", "random 40 %", "RARTS 60 %"))
    assert rarts_width.rarts_5(settings).rows == outcome.rows  # finished arms are only read


def test_the_texts_count_of_channels_is_reproduced() -> None:
    once, read = rarts_width.counts_of_resnet_164()
    assert (once.ours, read.ours) == (4480, 11856)


def test_table_6_learns_its_share_and_random_takes_the_same(tmp_path: Path) -> None:
    rows = {row.label: row for row in rarts_width.rarts_6(Settings(tmp_path, seeds=1, data=DATA)).rows}
    assert rows["random: channels left"].ours == rows["RARTS: channels left"].ours
    assert rows["ImageNet-R RARTS, 71.2 %"].paper == 8.2
