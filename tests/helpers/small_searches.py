"""Searches at their smallest: settings of every registered method that let it show all it does within a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from archwright.search.registry import methods
from helpers.binas_plans import planned_run, space_of

DATA = "random:classes=3,size=8,channels=1,count=60"
COMMON = {"data": DATA, "channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1, "batch_size": 16, "seed": 1}
GRADIENTS = {"search_epochs": 1, "search_batch": 16}
SHARED = {"supernet_epochs": 1, "supernet_batch": 32, "measurements": 4, "images": 16}
OWN: dict[str, dict[str, Any]] = {
    "evolution": {"population": 2, "sample": 1},
    "nsga2": {"population": 2},
    "train": {
        "final_epochs": None,
        "architecture": "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|none~0|skip_connect~1|nor_conv_3x3~2|",
    },
    "nasi": {"steps": 2, "nu_samples": 2, "proxy_channels": 4, "proxy_batch": 8},
    "hnas": {"pool": 4, "replicates": 1, "probes": 2, "proxy_size": 8, "proxy_batch": 8},
    "binas": dict.fromkeys(("channels", "cells", "epochs", "final_epochs", "batch_size")),
    "nesbs": {
        "size": 2,
        "candidates": 1,
        "delta": 1.0,
        "svgd_steps": 10,
        "supernet_epochs": 1,
        "posterior_epochs": 1,
        "supernet_batch": 40,
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
    "conas": {**SHARED, "threshold": 9.0, "rounds": 1},
}


def smallest(name: str, folder: Path) -> dict[str, Any]:
    """Settings of the method ``name``; a plan that its search repeats, where it needs one, is written to ``folder``."""
    settings = {**COMMON, **OWN.get(name, {})}
    if "evaluations" in methods.get(name).Options.model_fields:
        settings["evaluations"] = 2
    if name == "binas":  # what is measured differs from run to run; the answer is a function of the plan
        settings |= {"plan_from": planned_run(folder, space_of(classes=3)), "minutes_of": "processor"}
    return settings
