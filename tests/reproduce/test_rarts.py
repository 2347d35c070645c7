import numpy as np
import pytest

from archwright.reproduce import rarts
from archwright.reproduce.base import Settings
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
def test_table_4_has_error_and_skip_share_of_every_method(tmp_path, monkeypatch):
    monkeypatch.setattr(rarts, "TABLE_4_SETTINGS", {**rarts.TABLE_4_SETTINGS, **TINY})
    monkeypatch.setattr(rarts, "TABLE_4", {name: rarts.TABLE_4[name] for name in ("DARTS-1", "RARTS fused")})
    settings = Settings(tmp_path, seeds=2, data="digits")
    outcome = rarts.rarts_4(settings)
    rows = {row.label: row for row in outcome.rows}
    assert rows["DARTS-1 CIFAR-10 error"].paper == 40.16
    assert np.isclose(rows["DARTS-1 CIFAR-10 error"].ours + rows["DARTS-1 CIFAR-10 accuracy"].ours, 100)
    assert 0 <= rows["RARTS fused skip share"].ours <= 100
    again = rarts.rarts_4(settings)  # finished searches are only read
    assert again.rows == outcome.rows


@NEEDS_TABLE
def test_table_2_measures_once_and_reports_three_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(rarts, "TABLE_2_SETTINGS", {**rarts.TABLE_2_SETTINGS, **TINY})
    outcome = rarts.rarts_2(Settings(tmp_path, seeds=1, data="digits"))
    assert [row.paper for row in outcome.rows] == [23.4, 21.7, 12.4]
    assert all(row.ours >= 0 for row in outcome.rows)
    assert (tmp_path / "operations.json").is_file()
