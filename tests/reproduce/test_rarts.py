import numpy as np
import pytest

from archwright.reproduce import rarts
from archwright.reproduce.base import Settings
from archwright.runs.files import read_json
from archwright.tables.locate import shared_data

TINY = {"image_size": 8, "channels": 4, "search_epochs": 1, "search_batch": 128}
NEEDS_TABLE = pytest.mark.skipif(shared_data("nb201.npz") is None, reason="the NAS-Bench-201 table is not here")


def test_fig_1_agrees_with_the_printed_numbers(tmp_path):
    outcome = rarts.rarts_fig1(Settings(tmp_path))
    printed = [row for row in outcome.rows if row.paper is not None]
    assert len(printed) == 7
    assert all(np.isclose(row.ours, row.paper, atol=6e-4) for row in printed)
    outcome.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


@NEEDS_TABLE
def test_table_4_has_accuracy_and_skips_of_every_method(tmp_path, monkeypatch):
    monkeypatch.setattr(rarts, "COLLAPSE_SETTINGS", {**rarts.COLLAPSE_SETTINGS, "cells": 1})
    monkeypatch.setattr(rarts, "COLLAPSE_STEPS", 4)
    monkeypatch.setattr(rarts, "TABLE_4", {name: rarts.TABLE_4[name] for name in ("DARTS-1", "RARTS fused", "OLES")})
    settings = Settings(tmp_path, seeds=2, data="digits")
    outcome = rarts.rarts_4(settings)
    rows = {row.label: row for row in outcome.rows}
    assert rows["DARTS-1"].paper == pytest.approx(59.84)
    assert 10 < rows["DARTS-1"].ours < 95
    assert 0 <= rows["RARTS fused skips"].ours <= 1
    assert rows["DARTS-1 CIFAR-100"].paper == pytest.approx(61.26)
    assert rows["DARTS-1 CIFAR-100"].ours < rows["DARTS-1"].ours  # the harder data set, cell by cell
    assert rows["most parameters CIFAR-100"].ours == pytest.approx(71.11, abs=5e-3)
    assert 1.5 < rows["OLES entropy"].ours < np.log(5) + 1e-6
    assert 0.1 < rows["OLES none"].ours < 0.3
    assert rows["random cell"].ours == pytest.approx(87.063, abs=1e-3)  # the mean of the whole table
    assert rows["most parameters"].ours == pytest.approx(93.76, abs=5e-3)  # six 3x3 convolutions
    assert ("No mean is above" in " ".join(outcome.notes)) == (
        max(rows[name].ours for name in ("DARTS-1", "RARTS fused", "OLES")) <= 93.76
    )
    again = rarts.rarts_4(settings)  # finished searches are only read
    assert again.rows == outcome.rows


@NEEDS_TABLE
def test_the_collapse_is_drawn_over_the_number_of_images(tmp_path, monkeypatch):
    monkeypatch.setattr(rarts, "COLLAPSE_SETTINGS", {**rarts.COLLAPSE_SETTINGS, "cells": 1})
    monkeypatch.setattr(rarts, "COLLAPSE_STEPS", 4)
    monkeypatch.setattr(rarts, "COLLAPSE_SIZES", (32, 64))
    monkeypatch.setattr(rarts, "COLLAPSE_METHODS", ("DARTS-1",))
    outcome = rarts.rarts_collapse(Settings(tmp_path, data="digits"))
    assert {row.label for row in outcome.rows if row.unit == "share"} == {
        f"DARTS-1 {how} {images} images skips" for how in ("plain", "augmented") for images in (32, 64)
    }
    outcome.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000


def test_every_number_of_images_gets_as_many_steps():
    for images in rarts.COLLAPSE_SIZES:
        given = rarts.few_images(images, augment=True)
        steps = given["search_epochs"] * (images // rarts.COLLAPSE_BATCH)
        assert abs(steps - rarts.COLLAPSE_STEPS) <= images // rarts.COLLAPSE_BATCH


@NEEDS_TABLE
def test_table_2_measures_once_and_every_row_changes_one_setting(tmp_path, monkeypatch):
    monkeypatch.setattr(rarts, "TABLE_2_SETTINGS", {**rarts.TABLE_2_SETTINGS, **TINY})
    outcome = rarts.rarts_2(Settings(tmp_path, seeds=1, data="digits"))
    assert [row.paper for row in outcome.rows if row.unit == "ms" and row.paper] == [
        *(21.7, 23.4, 12.4, 21.0, 23.1),
        *(21.3, 22.9, 20.1, 16.5),
    ]
    assert all(row.ours >= 0 for row in outcome.rows)
    table = read_json(tmp_path / "operations.json")
    by_hand = 6 * sum(table.values()) / len(table)  # each of six edges takes any of the operations
    assert next(row for row in outcome.rows if row.label == "random cell").ours == pytest.approx(by_hand)
    base = read_json(tmp_path / "baseline-0" / "run.json")["configuration"]["options"]
    for label, (changed, _) in rarts.TABLE_2.items():
        own = read_json(tmp_path / f"{label.replace(' ', '-')}-0" / "run.json")["configuration"]["options"]
        assert {name for name in own if own[name] != base[name]} - {"latency_table"} == set(changed), label
