"""Every registered space and method keeps its contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archwright.costs.measure import Timing
from archwright.execution.local import InProcess
from archwright.search.registry import methods
from archwright.spaces.registry import spaces
from archwright.testing import check_method, check_space
from helpers.binas_plans import planned_run, space_of
from helpers.latency_tables import SteadyWatch, counted_table, steady_clock
from helpers.own_limits import TwoSearch
from helpers.tiny_start import tiny_start, write_grey_photos

GRADIENTS = {"search_epochs": 1, "search_batch": 256}
SHARED = {"supernet_epochs": 1, "supernet_batch": 256, "measurements": 8, "images": 64}
GREY = "random:classes=3,size=8,channels=1,count=200"
OWN_TIME: dict[str, Any] = dict.fromkeys(("channels", "cells", "epochs", "final_epochs"))
"""Settings of a search that counts steps, and not epochs."""
SMALL: dict[str, dict[str, Any]] = {
    "evolution": {"population": 2, "sample": 1},
    "nsga2": {"population": 2},
    "nasi": {"steps": 4, "nu_samples": 4, "proxy_channels": 4, "proxy_batch": 16},
    "hnas": {"pool": 20, "replicates": 1, "probes": 2, "proxy_size": 8, "proxy_batch": 16},
    "binas": {**OWN_TIME, "data": GREY, "pretrained": "none"},
    "nesbs": {
        "size": 2,
        "candidates": 1,
        "delta": 1.0,
        "svgd_steps": 50,
        "supernet_epochs": 1,
        "posterior_epochs": 1,
        "supernet_batch": 400,
    },
    **dict.fromkeys(("darts", "milenas", "gdas", "snas", "rarts", "drnas", "smooth-darts", "oles"), GRADIENTS),
    "pc-darts": {**GRADIENTS, "partial_channels": 2},
    "rarts-width": {
        **GRADIENTS,
        "network": "helpers.own_networks:plain",
        "keep_channels": (0.6,),
        "timing": False,
        "compare": False,
        **dict.fromkeys(("channels", "cells")),
    },
    "rsps": SHARED,
    "train": {
        "architecture": "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|none~1|avg_pool_3x3~2|",
        "final_epochs": None,
    },
    "conas": {**SHARED, "threshold": 9.0, "rounds": 1},
}
"""Settings that let a method show all it does within a few evaluations."""


@pytest.mark.parametrize("name", [entry.name for entry in spaces])
def test_space(name: str) -> None:
    # networks of the free space have half of all operations: few of them say as much
    check_space(spaces.get(name), samples=3 if name == "darts-free" else 20)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the work items that searches send to their executor."""
    keys: list[str] = []
    usual = InProcess.run

    def run(self: InProcess, work: Any, items: Any, stop: Any) -> Any:
        keys.extend(item.key for item in items)
        return usual(self, work, items, stop)

    monkeypatch.setattr(InProcess, "run", run)
    return keys


@pytest.mark.parametrize("name", [entry.name for entry in methods if entry.name != "binas"])
def test_method(name: str, sent: list[str]) -> None:
    check_method(name, kills=2, **SMALL.get(name, {}))
    assert bool(sent) == ("executor" in methods.get(name).uses), "a method shows the executor if it sends work to it"


# --- methods that time networks, by a clock that is the same each time ------------------------------------------------


def test_binas_from_scratch(tmp_path: Path) -> None:
    """By a plan that is repeated, with counted steps: what a training step takes is measured anew in every search."""
    space = space_of(classes=3)
    lightest = SteadyWatch(space.build(space.lightest(), space.scale), (1, 8, 8), Timing()).ms
    plan = planned_run(tmp_path / "plan", space, reference_ms=lightest)
    with steady_clock():
        check_method("binas", kills=3, **SMALL["binas"], plan_from=plan, minutes_of="processor")


def test_binas_from_pretrained_weights(tmp_path: Path) -> None:
    data = write_grey_photos(tmp_path / "photos")
    with tiny_start():
        check_method("binas", kills=3, **OWN_TIME, data=data, pretrained="tiny", threads=1)


def test_binas_by_a_supernet(tmp_path: Path) -> None:
    table = str(counted_table(tmp_path / "table.json", classes=3))
    small = {"rows": 100, "rank_networks": 2, "batch_size": 36, "data": GREY.replace("200", "120")}
    with steady_clock():
        check_method("binas", kills=2, plan="paper", channels=None, cells=None, latency_table=table, **small)


def test_a_method_of_somebody_else_that_answers_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(methods, "entries", dict(methods.entries))
    monkeypatch.setattr(methods, "_added", set(methods._added))
    methods.register("two", TwoSearch)
    with steady_clock():
        check_method("two", kills=3, data=GREY, **OWN_TIME)
