"""BINAS beside other ways: networks within their limits, equal time, finished work kept, and a small run of it all."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.costs.measure import Latency
from archwright.costs.tables import LatencyTable
from archwright.methods.binas import Binas
from archwright.reproduce import binas, binas_compare
from archwright.reproduce.base import Settings
from archwright.reproduce.binas_compare import UNIFORM_WIDTHS, Choosing, uniform_architecture
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.spaces.mbconv import MbConv, MbConvArchitecture, scale_for
from latency_tables import counted_table

GREY = "random:classes=2,size=8,channels=1,count=120"


def by_macs(method: Binas, architecture: MbConvArchitecture, table: object, space: MbConv | None = None) -> Latency:
    """A device that takes a millisecond for a million multiply-accumulates."""
    space = space or method.space
    ms = space.cost(architecture, space.scale).macs / 1e6
    return Latency(ms, ms, ms)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A tiny search on noise and a device without noise."""
    tiny = {"epochs": 1, "supernet_epochs": 1, "final_epochs": 1, "rank_networks": 0, "rows": 200, "batch_size": 36}
    table = counted_table(tmp_path / "table.json", classes=2)
    monkeypatch.setattr(binas, "SEARCH", {**binas.SEARCH, **tiny, "latency_table": str(table), "verify": False})
    monkeypatch.setattr(binas_compare, "TUNE_EPOCHS", 1)
    monkeypatch.setattr(binas_compare, "POPULATION", 4)
    monkeypatch.setattr(binas_compare, "stage_seconds", lambda run: 0.1)
    monkeypatch.setattr(Binas, "latency_of", by_macs)
    return Settings(tmp_path / "binas-compare", data=GREY)


def test_every_arm_is_trained_at_every_limit_and_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = binas_compare.binas_compare(settings)
    assert len(outcome.rows) == 3 * 4 * 2
    assert all(row.ours is not None and 0 <= row.ours <= 100 for row in outcome.rows)
    (folder,) = settings.folder.parent.glob("binas-search-*")
    chosen = ItemLog(folder / "items" / "compare-chosen.jsonl").done
    assert len(chosen) == 3 * 4
    space, table = MbConv(scale_for(8, 2, 1)), LatencyTable.load(folder / "artifacts" / "latency.json")
    for key, one in chosen.items():
        if "architecture" in one:
            assert table.predict(space, [space.parse(one["architecture"])])[0] <= float(key.split()[0])

    def not_again(*_: Any) -> Any:
        raise AssertionError("done before")

    for name in ("tune_item", "train_uniform_item"):
        monkeypatch.setattr(binas_compare, name, not_again)
    monkeypatch.setattr(Choosing, "choose", not_again)
    assert binas_compare.binas_compare(settings).rows == outcome.rows


def test_uniform_networks_are_the_largest_within_the_limit(settings: Settings) -> None:
    choosing = Choosing(binas.finished_search(settings).folder, Progress())
    spaces = {width: MbConv(scale_for(8, 2, 1).changed(width=width)) for width in UNIFORM_WIDTHS}
    every = {
        (depth, width): spaces[width].cost(uniform_architecture(spaces[width], depth), spaces[width].scale).macs / 1e6
        for depth, width in product((2, 3, 4), UNIFORM_WIDTHS)
    }
    limit = sorted(every.values())[7] + 1e-9
    depth, width, ms = choosing.uniform(limit)
    assert ms == every[depth, width] == max(value for value in every.values() if value <= limit)
    assert choosing.uniform(0.0)[2] == min(every.values())  # none fits: the quickest
    architecture = uniform_architecture(spaces[width], depth)
    assert {len(blocks) for blocks in architecture.stages} == {depth}
    assert {block.configuration for blocks in architecture.stages for block in blocks} == {(6, 3, False)}


def test_evolution_spends_its_validations_and_keeps_the_limit(settings: Settings) -> None:
    choosing = Choosing(binas.finished_search(settings).folder, Progress())
    choosing.__dict__["evaluations"] = 60
    limit, seen = choosing.limits[1], []

    def by_size(architecture: MbConvArchitecture) -> float:
        seen.append(choosing.predicted_ms(architecture))
        return seen[-1]

    best = choosing.evolved(limit, by_size, np.random.default_rng(0))
    assert len(seen) == 60
    assert max(seen) <= limit
    assert choosing.predicted_ms(best) == max(seen)
    assert np.mean(seen[-10:]) > np.mean(seen[:10])  # what is rewarded becomes more


def test_the_time_of_a_search_is_that_of_its_trainings_and_its_pool(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {}, {})
    events = [
        *[("started", None, 0.0), ("stage", "table", 1.0), ("stage", "heaviest", 5.0), ("stage", "supernet", 65.0)],
        *[("started", None, 9000.0), ("stage", "supernet", 9001.0), ("interrupted", None, 9101.0)],
        *[("started", None, 20_000.0), ("stage", "supernet", 20_001.0), ("stage", "measure", 20_051.0)],
        *[("stage", "rank", 20_081.0), ("stage", "verify", 20_900.0), ("finished", None, 20_905.0)],
    ]
    for kind, name, at in events:
        run._events.append({"kind": kind, "time": at} | ({"name": name} if name else {}))
    assert binas_compare.stage_seconds(run) == 60 + 100 + 50 + 30
