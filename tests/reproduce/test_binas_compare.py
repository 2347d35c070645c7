"""BINAS beside other ways: networks within their limits, real validations, equal time, and a small run of it all."""

from __future__ import annotations

from pathlib import Path

import pytest

from archwright.costs.measure import Latency, Timing
from archwright.methods.binas import Binas
from archwright.reproduce import binas, binas_compare
from archwright.reproduce.base import Settings
from archwright.runs.files import read_json
from archwright.runs.run import Run
from archwright.spaces.mbconv import MbConv, MbConvArchitecture, scale_for
from latency_tables import counted_table

GREY = "random:classes=2,size=8,channels=1,count=120"


def test_every_arm_is_trained_and_reported_at_every_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = counted_table(tmp_path / "table.json", classes=2)
    tiny = {"epochs": 1, "supernet_epochs": 1, "final_epochs": 1, "rank_networks": 0, "rows": 200, "batch_size": 36}
    search = {**binas.SEARCH, **tiny, "latency_table": str(table), "verify": False}
    monkeypatch.setattr(binas, "SEARCH", search)
    monkeypatch.setattr(binas_compare, "TUNE_EPOCHS", 1)
    monkeypatch.setattr(binas_compare, "POPULATION", 4)
    monkeypatch.setattr(binas_compare, "stage_seconds", lambda run: 0.1)
    seen: list[MbConvArchitecture] = []

    def latency(method: Binas, architecture: MbConvArchitecture, table: object) -> Latency:
        seen.append(architecture)
        return Latency(1.0, 1.0, 1.0)

    monkeypatch.setattr(Binas, "latency_of", latency)
    monkeypatch.setattr(binas_compare, "measure", lambda network, shape, timing: Latency(1.0, 1.0, 1.0))
    settings = Settings(tmp_path / "binas-compare", data=GREY)
    outcome = binas_compare.binas_compare(settings)
    assert len(outcome.rows) == 3 * 4 * 2
    assert all(row.ours is not None and 0 <= row.ours <= 100 for row in outcome.rows)
    chosen = read_json(settings.folder / "chosen.json")
    space = MbConv(scale_for(8, 2, 1))
    predicted = aw_table(table).predict(space, seen)
    limits = sorted(float(key) for key in chosen if key != "evaluations")
    assert len(seen) == 9
    assert (limits >= predicted.reshape(3, 3).T).all()
    assert binas_compare.binas_compare(settings).rows == outcome.rows  # finished work is read


def aw_table(path: Path) -> binas_compare.LatencyTable:
    return binas_compare.LatencyTable.load(path)


def test_the_uniform_network_is_the_largest_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = scale_for(8, 2, 1)

    def by_size(network: object, shape: object, timing: Timing) -> Latency:
        ms = sum(parameter.numel() for parameter in network.parameters()) / 1e5  # type: ignore[attr-defined]
        return Latency(ms, ms, ms)

    monkeypatch.setattr(binas_compare, "measure", by_size)
    depth, width, ms = binas_compare.uniform(scale, 3.0, Timing())
    assert ms <= 3.0
    deeper, wider, _ = binas_compare.uniform(scale, 1e9, Timing())
    assert (deeper, wider) == (scale.depths[-1], binas_compare.UNIFORM_WIDTHS[-1])
    space = MbConv(scale.changed(width=width))
    architecture = binas_compare.uniform_architecture(space, depth)
    assert {len(blocks) for blocks in architecture.stages} == {depth}
    assert {block.configuration for blocks in architecture.stages for block in blocks} == {(6, 3, False)}


def test_the_time_of_a_search_is_that_of_its_trainings_and_its_pool(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {}, {})
    times = iter([0.0, 5.0, 65.0, 200.0, 230.0, 900.0, 905.0])
    for name in ("table", "heaviest", "supernet", "measure", "rank", "verify"):
        run._events.append({"kind": "stage", "name": name, "time": next(times)})
    run._events.append({"kind": "finished", "time": next(times)})
    assert binas_compare.stage_seconds(run) == 60 + 135 + 30
