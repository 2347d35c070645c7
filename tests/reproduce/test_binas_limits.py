"""What many limits cost, at a tiny scale and by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.reproduce import binas_limits, searches
from archwright.reproduce.base import Settings
from archwright.reproduce.binas_limits import (
    BENCHES,
    ChoiceNet,
    pays_from,
    published_choices,
    spread_limits,
    uniform_choices,
)
from archwright.search.answer import Answer
from archwright.spaces.gallery import NETWORKS
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.spaces.mbconv_scale import MbConvScale
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


@pytest.mark.parametrize("size", [8, 16, 32])
def test_the_network_of_choices_takes_any_image(size: int) -> None:
    x = torch.zeros(2, 1, size, size)
    assert ChoiceNet(5, 1, size, channels=8)(x).shape == (2, 5)


def test_uniform_networks_have_one_block_and_one_depth() -> None:
    space = MbConv(SCALES["mbconv-32-fast"])
    found = [space.from_choice(choice) for choice in uniform_choices(space)]
    assert len(set(map(str, found))) == len(found) == len(space.depths) * len(space.configurations)
    for one in found:
        assert len({len(blocks) for blocks in one.stages}) == 1
        assert len({(b.expansion, b.kernel, b.squeeze_excite) for blocks in one.stages for b in blocks}) == 1


def test_published_networks_keep_their_shape_at_a_small_scale() -> None:
    own = MbConv(MbConvScale(image_size=32, expansions=(3, 4, 6)))
    for name, choice in published_choices(own).items():
        small, whole = own.from_choice(choice), NETWORKS[name]
        for mine, theirs in zip(small.stages, whole.stages, strict=True):
            facts = [[(b.expansion, b.kernel, b.squeeze_excite) for b in blocks] for blocks in (mine, theirs)]
            assert facts[0] == facts[1]
    by_rank = published_choices(MbConv(MbConvScale(image_size=32)))["hardcore-a"]
    first = MbConv(MbConvScale(image_size=32)).from_choice(by_rank).stages[0][0]
    assert (first.expansion, first.kernel) == (2, 5)  # 3, the least of the published ones, and 5


TINY = {"image_size": 8, "epochs": 1, "final_epochs": 1, "batch_size": 36, "latency_repeats": 1, "verify": False}
OWN = {"mbconv": {"supernet_epochs": 1, "rows": 100}, "compact": {}}


@pytest.mark.parametrize("name", ["mbconv", "compact"])
def test_one_search_is_asked_for_more_and_more(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = next(one for one in BENCHES if one.name == name)
    tiny = replace(bench, search={**bench.search, **TINY, **OWN[name]}, scratch_epochs=1)
    for what, value in {"BENCHES": (tiny,), "COUNTS": (1, 3), "FAST_COUNTS": (3,), "COMPARED": 2}.items():
        monkeypatch.setattr(binas_limits, what, value)
    monkeypatch.setattr("archwright.costs.tables.fit_correction", unfitted)
    asked = list[dict[str, Any]]()

    def finished(folder: Path, method: str, *args: Any, **given: Any) -> Answer:
        """The search itself instead of the fast plan, whose few seconds may be too short here."""
        if not folder.name.startswith("fast-"):
            return searches.finished(folder, method, *args, **given)
        asked.append(given)
        return searches.finished(folder.parent / "search", method)

    monkeypatch.setattr(binas_limits, "finished", finished)
    settings = Settings(tmp_path, data="random:classes=2,size=8,channels=1,count=120", only=name)
    outcome = binas_limits.binas_limits(settings)
    rows = {row.label: row.ours for row in outcome.rows}
    assert 0 < rows[f"{name}: supernet, 1 limits"] < rows[f"{name}: supernet, 3 limits"]
    one = rows[f"{name}: one training a limit, 1 limits"]
    assert rows[f"{name}: one training a limit, 3 limits"] == pytest.approx(3 * one)
    arms = ["supernet's weights, fine-tuned", "the same from scratch", "uniform, from scratch"]
    arms += ["published, from scratch"] * (name == "mbconv")
    for arm in arms:
        found = [rows[f"{name}: {arm}, limit {number}"] for number in (1, 2)]
        assert all(value is None or 0 <= value <= 100 for value in found)
    assert 0 <= rows[f"{name}: fast plan in the same time, mean over 3 limits"] <= 100
    assert 60 * asked[0]["minutes"] == pytest.approx(rows[f"{name}: supernet, 3 limits"])
    assert len(asked[0]["limits"]["latency_ms"]) == 3
    assert np.isfinite(rows[f"{name}: supernet, mean over 3 limits"])
    monkeypatch.setattr(searches, "search", lambda *_, **__: pytest.fail("trained again"))
    assert binas_limits.binas_limits(settings).rows == outcome.rows


def test_a_bench_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="mbconv"):
        binas_limits.binas_limits(Settings(tmp_path, data="random:classes=2,size=8,channels=1,count=120", only="x"))
