"""RARTS' figure 1 and tables 2 and 4, at a scale that one core can do.

Searches are ordinary runs in folders of their own, so that a killed reproduction continues where it stopped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from archwright.analysis.bilevel import (
    coercivity_warning,
    darts_trajectory,
    milenas_trajectory,
    plot_fig1,
    rarts_equilibrium,
    rarts_trajectory,
)
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.runs.files import read_json, write_json
from archwright.search.answer import Answer
from archwright.search.engine import resume, search

DEFAULT_SEEDS = 3


def finished(folder: Path, method: str, **settings: Any) -> Answer:
    """The search in ``folder``: started, continued or just read."""
    if (folder / "run.json").exists():
        return resume(folder)
    return search(method, run=folder, **settings)


# --- Fig. 1 ----------------------------------------------------------------------------------------------------------


@needs(images=False)
def rarts_fig1(settings: Settings) -> Outcome:
    """The solvable model: where each method ends. Deterministic; seeds and images play no part."""
    first, mixed = darts_trajectory(steps=20_000), milenas_trajectory(steps=20_000)
    rows = [
        Row.of("DARTS-1 alpha", "1", 2.0, [first.a[-1, 0]]),
        Row.of("DARTS-1 w", "1", 2.0, [first.w[-1, 0]]),
        Row.of("MiLeNAS alpha", "1", 2.0, [mixed.a[-1, 0]]),
        Row.of("MiLeNAS w", "1", 2.0, [mixed.w[-1, 0]]),
    ]
    printed = {(15.0, 15.0): (1.053, 1.018, 0.947)}
    gaps = []
    for lam, beta in ((15.0, 15.0), (10.0, 10.0), (5.0, 10.0), (10.0, 5.0)):
        end = [float(value[0]) for value in rarts_trajectory(lam=lam, beta=beta, steps=20_000).end]
        gaps += [abs(x - y) for x, y in zip(end, rarts_equilibrium(lam, beta), strict=True)]
        papers = printed.get((lam, beta), (None, None, None))
        for name, paper, ours in zip(("alpha", "w", "y"), papers, end, strict=True):
            rows.append(Row.of(f"RARTS lambda={lam:g} beta={beta:g} {name}", "1", paper, [ours]))
    for xi in (0.01, 0.1, 0.5, 1.0):
        ours = float(darts_trajectory(xi=xi, steps=20_000).a[-1, 0])
        gaps.append(abs(ours - 2 / (1 + 2 * xi)))
        rows.append(Row.of(f"DARTS-2 xi={xi:g} alpha", "1", None, [ours]))
    falls = bool((np.diff(rarts_trajectory().lagrangian) <= 1e-12).all())
    notes = [
        f"Largest distance of RARTS and DARTS-2 from the closed forms: {max(gaps):.1e}.",
        f"The Lagrangian falls in every step at lambda = beta = 15: {'yes' if falls else 'no'}.",
        coercivity_warning(0.5, 0.5),
    ]

    def draw(path: Path) -> None:
        plot_fig1(path)

    return Outcome("exact", rows, notes, plot=draw)


# --- Table 4 ---------------------------------------------------------------------------------------------------------

TABLE_4: dict[str, tuple[str, dict[str, Any], float | None, float | None]] = {
    "DARTS-1": ("darts", {"order": 1}, 40.16, 100.0),
    "MiLeNAS": ("milenas", {}, None, None),
    "RARTS": ("rarts", {"lam": 1.0, "beta": 0.1}, 11.48, 0.0),
    "RARTS fused": ("rarts", {"lam": 1.0, "beta": 0.1, "fused": True}, None, None),
    "DARTS-2": ("darts", {"order": 2}, 34.62, 100.0),
}
"""Method, options, and the paper's CIFAR-10 error and share of skip connections."""

TABLE_4_SETTINGS: dict[str, Any] = {
    "space": "nasbench201",
    "benchmark": "nb201",
    "image_size": 16,
    "channels": 8,
    "cells": 1,
    "threads": 1,
    "search_epochs": 20,
    "w_weight_decay": 5e-4,
    "alpha_lr": 1e-3,
}


@needs("nb201")
def rarts_4(settings: Settings) -> Outcome:
    """Cells found on NAS-Bench-201: table error and share of skip connections."""
    found: dict[str, list[dict[str, float]]] = {label: [] for label in TABLE_4}
    cells: dict[str, list[str]] = {label: [] for label in TABLE_4}
    for seed in range(settings.seeds or DEFAULT_SEEDS):
        for label, (method, options, _, _) in TABLE_4.items():
            folder = settings.folder / f"{label.lower().replace(' ', '-')}-{seed}"
            given = {**TABLE_4_SETTINGS, "data": settings.images().spec, "seed": seed}
            result = finished(folder, method, **given, options=options)
            cell = str(result.best.architecture)
            cells[label].append(cell)
            found[label].append(
                {
                    "error": 100 - (result.best.accuracy or 0.0),
                    "skips": 100 * cell.count("skip_connect") / 6,
                    "seconds": result.seconds,
                }
            )
            settings.progress.say(f"rarts-4 {label} seed {seed}: {result.best.accuracy:.2f} %, {cell}")
    rows = []
    for label, (_, _, error, skips) in TABLE_4.items():
        values = found[label]
        rows.append(Row.of(f"{label} CIFAR-10 error", "%", error, [one["error"] for one in values]))
        accuracy = None if error is None else 100 - error
        rows.append(Row.of(f"{label} CIFAR-10 accuracy", "%", accuracy, [100 - one["error"] for one in values]))
        rows.append(Row.of(f"{label} skip share", "%", skips, [one["skips"] for one in values]))
        rows.append(Row.of(f"{label} search time", "s", None, [one["seconds"] for one in values]))
    notes = [
        "Errors: NAS-Bench-201 table (test, 200 epochs, mean over its seeds); the paper's DARTS rows are single runs.",
        "Ours searches on the train part of the images, halved into D_t and D_v.",
        "The paper: 50,000 images at 32 px, 16 channels, 5 cells a stage, 100 epochs, alpha lr 3e-4 (ours 1e-3).",
        *(f"{label}: {', '.join(cells[label])}" for label in TABLE_4),
    ]
    epochs = TABLE_4_SETTINGS["search_epochs"]
    return Outcome(f"8 channels, 1 cell a stage, 16 px, {epochs} epochs, 4,000 images a half", rows, notes)


# --- Table 2 ---------------------------------------------------------------------------------------------------------

TABLE_2: dict[float, float] = {2e-4: 23.4, 2e-3: 21.7, 2e-2: 12.4}
"""Latency weight, and the milliseconds of the model the paper found with it."""

TABLE_2_SETTINGS: dict[str, Any] = {
    "space": "nasbench201",
    "benchmark": "nb201",
    "image_size": 16,
    "channels": 8,
    "cells": 1,
    "threads": 1,
    "search_epochs": 10,
    "w_weight_decay": 5e-4,
    "alpha_lr": 3e-3,
}


@needs("nb201")
def rarts_2(settings: Settings) -> Outcome:
    """Latency of the cells found with three latency weights, by operation latencies measured on this device."""
    table, path = _operation_latencies(settings.folder)
    latencies: dict[float, list[float]] = {weight: [] for weight in TABLE_2}
    notes = [
        "Ours: sum over the cell's six operations, each measured here at 8 channels, 16 px and a batch of 64.",
        "The paper's: a whole network of the DARTS space on a GPU; only the order can be compared.",
        f"Operation latencies (ms): {json.dumps(table)}",
    ]
    for seed in range(settings.seeds or DEFAULT_SEEDS):
        for weight in TABLE_2:
            options = {"latency_weight": weight, "latency_table": str(path), "fused": True}
            given = {**TABLE_2_SETTINGS, "data": settings.images().spec, "seed": seed}
            result = finished(settings.folder / f"weight-{weight:g}-{seed}", "rarts", **given, options=options)
            cell = str(result.best.architecture)
            latencies[weight].append(sum(table[word] for word in re.findall(r"\w+(?=~)", cell)))
            notes.append(f"weight {weight:g}, seed {seed}: {result.best.accuracy:.2f} % in the table, {cell}")
            settings.progress.say(f"rarts-2 weight {weight:g} seed {seed}: {latencies[weight][-1]:.3f} ms, {cell}")
    rows = [Row.of(f"latency weight {weight:g}", "ms", TABLE_2[weight], latencies[weight]) for weight in TABLE_2]
    return Outcome("nasbench201, 8 channels, 1 cell a stage, 16 px, 10 epochs, fused", rows, notes)


def _operation_latencies(folder: Path) -> tuple[dict[str, float], Path]:
    """The table of this device, measured once a folder so that all searches of the reproduction share it."""
    from archwright.costs.measure import Timing
    from archwright.costs.operations import operation_latencies
    from archwright.spaces.nasbench201 import NASBENCH201

    path = folder / "operations.json"
    if not path.exists():
        scale = NASBENCH201.scales["small"].changed(channels=8, image_size=16)
        write_json(path, operation_latencies(NASBENCH201, scale, Timing(batch=64)))
    table: dict[str, float] = read_json(path)
    return table, path
