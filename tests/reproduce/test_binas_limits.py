"""What many limits cost, at a tiny scale and by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from archwright.reproduce import binas_limits
from archwright.reproduce.base import Settings
from archwright.reproduce.binas_limits import pays_from, spread_limits
from helpers.latency_tables import unfitted


def test_the_supernet_pays_from_where_the_lines_cross() -> None:
    totals = {count: 100.0 + 2 * count for count in (1, 3, 10, 30)}
    assert pays_from(totals, 12.0) == pytest.approx(10)  # 100 + 2 n = 12 n
    assert pays_from(totals, 500.0) == 1
    assert pays_from(totals, 1.5) is None


def test_limits_lie_between_the_quickest_and_the_slowest() -> None:
    limits = spread_limits([1.0, 4.0, 2.0], 5)
    assert len(limits) == 5
    assert limits == sorted(limits)
    assert limits[0] > 1
    assert limits[-1] < 4


def test_one_search_is_asked_for_more_and_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"image_size": 8, "epochs": 1, "supernet_epochs": 1, "final_epochs": 1, "rows": 100, "batch_size": 36}
    monkeypatch.setattr(binas_limits, "SEARCH", {**binas_limits.SEARCH, **tiny, "latency_repeats": 1, "verify": False})
    monkeypatch.setattr(binas_limits, "COUNTS", (1, 3))
    monkeypatch.setattr(binas_limits, "SCRATCH_EPOCHS", 1)
    monkeypatch.setattr("archwright.costs.tables.fit_correction", unfitted)
    settings = Settings(tmp_path, data="random:classes=2,size=8,channels=1,count=120")
    outcome = binas_limits.binas_limits(settings)
    rows = {row.label: row.ours for row in outcome.rows}
    assert 0 < rows["supernet, 1 limits"] < rows["supernet, 3 limits"]
    assert rows["one training a limit, 3 limits"] == pytest.approx(3 * rows["one training a limit, 1 limits"])
    assert all(
        0 <= rows[f"mean accuracy over the limits, {w}"] <= 100
        for w in ("supernet's weights, fine-tuned", "from scratch")
    )
    monkeypatch.setattr(binas_limits, "train", lambda *_, **__: pytest.fail("trained again"))
    assert binas_limits.binas_limits(settings).rows == outcome.rows
