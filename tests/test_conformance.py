"""Every registered space and method keeps its contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archwright.search.registry import methods
from archwright.spaces.registry import spaces
from archwright.testing import check_method, check_space
from helpers.binas_plans import planned_run, space_of
from helpers.latency_tables import counted_table

GRADIENTS = {"search_epochs": 1, "search_batch": 256}
SHARED = {"supernet_epochs": 1, "supernet_batch": 256, "measurements": 8, "images": 64}
SMALL: dict[str, dict[str, Any]] = {
    "evolution": {"population": 2, "sample": 1},
    "nasi": {"steps": 4, "nu_samples": 4, "proxy_channels": 4, "proxy_batch": 16},
    "hnas": {"pool": 20, "replicates": 1, "probes": 2, "proxy_size": 8, "proxy_batch": 16},
    "binas": {
        **dict.fromkeys(("channels", "cells", "epochs", "final_epochs")),
        "data": "random:classes=3,size=8,channels=1,count=200",
    },
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
        "ratio": 0.4,
        "timing": False,
        "compare": False,
        **dict.fromkeys(("channels", "cells")),
    },
    "rsps": SHARED,
    "conas": {**SHARED, "threshold": 9.0, "rounds": 1},
}
"""Settings that let a method show all it does within a few evaluations."""


@pytest.mark.parametrize("name", [entry.name for entry in spaces])
def test_space(name: str) -> None:
    # networks of the free space have half of all operations: few of them say as much
    check_space(spaces.get(name), samples=3 if name == "darts-free" else 20)


@pytest.mark.parametrize("name", [entry.name for entry in methods])
def test_method(name: str, tmp_path: Path) -> None:
    settings = dict(SMALL.get(name, {}))
    if name == "binas":  # what is measured differs from run to run; the answer is a function of the plan
        settings["plan_from"] = planned_run(tmp_path / "plan", space_of(classes=3))
    check_method(name, kills=2, **settings)


def test_the_paper_s_plan_of_binas(tmp_path: Path) -> None:
    table = str(counted_table(tmp_path / "table.json", classes=3))
    small = {"rows": 100, "rank_networks": 2, "batch_size": 60, "data": SMALL["binas"]["data"]}
    check_method("binas", kills=1, plan="paper", channels=None, cells=None, latency_table=table, verify=False, **small)
