"""RARTS' figure 1 and tables 2 and 4, at a scale that one core can do.

Searches are ordinary runs in folders of their own, so that a killed reproduction continues where it stopped.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
from archwright.execution.base import Item, run_items
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.runs.files import Json, read_json, save_figure, write_json
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.spaces.nasbench201 import NASBENCH201, all_operations
from archwright.tables.nasbench201 import load_compact

DEFAULT_SEEDS = 3


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

RARTS_OPTIONS: dict[str, Any] = {"lam": 1.0, "beta": 0.1}
TABLE_4: dict[str, tuple[str, dict[str, Any], float | None, float | None]] = {
    "DARTS-1": ("darts", {"order": 1}, 40.16, 1.0),
    "DARTS-2": ("darts", {"order": 2}, 34.62, 1.0),
    "MiLeNAS": ("milenas", {}, None, None),
    "GDAS": ("gdas", {}, None, None),
    "SNAS": ("snas", {}, None, None),
    "RARTS": ("rarts", RARTS_OPTIONS, 11.48, 0.0),
    "RARTS fused": ("rarts", {**RARTS_OPTIONS, "fused": True}, None, None),
    "PC-DARTS": ("pc-darts", {"partial_channels": 2}, None, None),
    "DrNAS": ("drnas", {}, None, None),
    "SmoothDARTS": ("smooth-darts", {}, None, None),
    "OLES": ("oles", {}, None, None),
    "DARTS-1 stopped": ("darts", {"order": 1, "stop_skips": 0.3}, None, None),
}
"""Method, options, and the paper's CIFAR-10 error and share of skip connections."""
TABLE_4_CIFAR_100 = {"DARTS-1": 38.74, "DARTS-2": 39.51, "RARTS": 32.37}
"""The paper's errors of cells that were found on CIFAR-100; ours are found on CIFAR-10 and looked up."""
TABLE_4_LARGE = ("DARTS-1", "MiLeNAS", "RARTS", "RARTS fused", "DARTS-2")

COMMON_4: dict[str, Any] = {
    "space": "nasbench201",
    "benchmark": "nb201",
    "channels": 8,
    "threads": 1,
    "w_weight_decay": 5e-4,
}
COLLAPSE_STEPS, COLLAPSE_BATCH, COLLAPSE_IMAGES = 400, 32, 256
COLLAPSE_SETTINGS: dict[str, Any] = {
    **COMMON_4,
    "image_size": 8,
    "cells": 3,
    "search_batch": COLLAPSE_BATCH,
    "alpha_lr": 0.01,
}
"""Few images and a quick alpha: where DARTS-1 collapses."""
LARGE_SETTINGS: dict[str, Any] = {**COMMON_4, "image_size": 16, "cells": 1, "search_epochs": 20, "alpha_lr": 1e-3}


def few_images(images: int, augment: bool) -> dict[str, Any]:
    """Settings of a search on ``images`` of each half, always as many steps, with ``augment`` or without."""
    epochs = max(1, COLLAPSE_STEPS * COLLAPSE_BATCH // images)
    return {"search_images": images, "search_epochs": epochs, "search_augment": augment}


@dataclass(frozen=True)
class Ended:
    """What a search on the table ended with: accuracy in percent, skips as a share, entropy in nats, weight of none."""

    cell: str
    accuracy: float
    skips: float
    entropy: float
    none: float
    seconds: float


def searched(settings: Settings, asked: Mapping[str, tuple[str, dict[str, Any]]]) -> dict[str, Ended]:
    """By the name of its folder, what each search ended with; every search is one work item, done or read.

    Args:
        settings: folder, executor and progress.
        asked: method and settings, by the name of the folder.
    """
    items = []
    for name, (method, given) in asked.items():
        own = {"folder": str(settings.folder / name), "method": method, "settings": given}
        items.append(Item(name, own, settings.images().needs))
    log = ItemLog(settings.folder / "finished.jsonl")

    def say(name: str, found: Json) -> None:
        one = Ended(**found)
        settings.progress.say(f"{name}: {one.accuracy:.2f} %, {one.cell}")

    with settings.progress.task("searches", len(items), sum(item.key in log.done for item in items)) as bar:
        found = run_items(settings.executor, run_search, items, log, Stop(), bar, say)
    return {name: Ended(**one) for name, one in found.items()}


def run_search(payload: Json, _stop: Stop) -> Json:
    """Work item: one search, done or read.

    Args:
        payload: folder, method and settings of the search.
        _stop: not looked at; the search stops by itself and is resumed.
    """
    folder = Path(payload["folder"])
    result = finished(folder, payload["method"], **payload["settings"])
    cell = str(result.best.architecture)
    derived = Run.open(folder).stage_result("search")
    assert derived is not None
    none = np.array(derived["weights"]["cell"])[:, NASBENCH201.operations.index("none")]
    return asdict(
        Ended(
            cell=cell,
            accuracy=result.best.accuracy or 0.0,
            skips=cell.count("skip_connect") / 6,
            entropy=derived["cells"]["cell"]["entropy"],
            none=float(none.mean()),
            seconds=result.seconds,
        )
    )


@needs("nb201")
def rarts_4(settings: Settings) -> Outcome:
    """The collapse: few images, where first-order DARTS ends at skip connections and RARTS does not."""
    scale = (
        f"8 channels, 3 cells a stage, 8 px, {COLLAPSE_IMAGES} images a half, {COLLAPSE_STEPS} steps, alpha lr .01, "
        "no augmentation"
    )
    given = {**COLLAPSE_SETTINGS, **few_images(COLLAPSE_IMAGES, augment=False)}
    return _table_4(settings, list(TABLE_4), given, settings.seeds or 5, scale)


@needs("nb201")
def rarts_4_large(settings: Settings) -> Outcome:
    """The same with all images and a slow alpha, where nothing collapses."""
    scale = f"8 channels, 1 cell a stage, 16 px, {LARGE_SETTINGS['search_epochs']} epochs, 4,000 images a half"
    return _table_4(settings, list(TABLE_4_LARGE), LARGE_SETTINGS, settings.seeds or DEFAULT_SEEDS, scale)


def _table_4(settings: Settings, labels: list[str], given: dict[str, Any], seeds: int, scale: str) -> Outcome:
    named = {(label, seed): f"{label.lower().replace(' ', '-')}-{seed}" for seed in range(seeds) for label in labels}
    data = settings.images().spec
    asked = {name: _of_table_4(label, {**given, "data": data, "seed": seed}) for (label, seed), name in named.items()}
    ends = searched(settings, asked)
    found = {label: [ends[named[label, seed]] for seed in range(seeds)] for label in labels}
    rows = []
    for label, values in found.items():
        _, _, error, skips = TABLE_4[label]
        accuracy = None if error is None else 100 - error
        rows.append(Row.of(label, "%", accuracy, [one.accuracy for one in values]))
        rows.append(_on_cifar_100(label, [one.cell for one in values]))
        rows.append(Row.of(f"{label} skips", "share", skips, [one.skips for one in values]))
        rows.append(Row.of(f"{label} entropy", "nats", None, [one.entropy for one in values]))
        rows.append(Row.of(f"{label} none", "mean weight", None, [one.none for one in values]))
        rows.append(Row.of(f"{label} time", "s", None, [one.seconds for one in values]))
    table = load_compact()
    accuracies = table.accuracies("cifar10", 200, "test")
    largest = float(accuracies[table.column("c10_params").argmax()])
    rows += [Row.of("random cell", "%", None, accuracies.tolist()), Row("most parameters", "%", None, largest)]
    others = table.accuracies("cifar100", 200, "test")
    rows.append(Row.of("random cell CIFAR-100", "%", None, others.tolist()))
    rows.append(Row("most parameters CIFAR-100", "%", None, float(others[table.column("c10_params").argmax()])))
    best = max(np.mean([one.accuracy for one in values]) for values in found.values())
    verdict = f"No mean is above the {largest:.2f} % of the cell with most parameters, which needs no search."
    notes = [
        *([verdict] if best <= largest else []),
        "Accuracies: NAS-Bench-201 table (CIFAR-10 test, 200 epochs, mean over its seeds).",
        "CIFAR-100: the same cells, found on CIFAR-10, in the table's other column; the paper searched on CIFAR-100.",
        "Ours searches on the train part of the images, halved into D_t and D_v. Entropy of a row: 1.61 at the start.",
        "The paper: 50,000 images at 32 px, 16 channels, 5 cells a stage, 100 epochs, alpha lr 3e-4; single runs.",
        *(f"{label}: {', '.join(one.cell for one in values)}" for label, values in found.items()),
    ]
    return Outcome(scale, rows, notes)


def _of_table_4(label: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Method and settings of a row."""
    method, options, _, _ = TABLE_4[label]
    return method, {**given, **options}


def _on_cifar_100(label: str, cells: list[str]) -> Row:
    """The row of the cells that a method found, by their CIFAR-100 test accuracy in the table."""
    error, table = TABLE_4_CIFAR_100.get(label), load_compact()
    found = [table.accuracy(NASBENCH201.parse(one), "cifar100", 200, "test") for one in cells]
    return Row.of(f"{label} CIFAR-100", "%", None if error is None else 100 - error, found)


COLLAPSE_SIZES = (64, 256, 1024, 2048)
COLLAPSE_METHODS = ("DARTS-1", "RARTS")


@needs("nb201")
def rarts_collapse(settings: Settings) -> Outcome:
    """When DARTS collapses: share of skip connections by the images of a half, with and without augmentation."""
    asked, curves = {}, dict[tuple[str, bool], dict[int, list[str]]]()
    for seed in range(settings.seeds or 1):
        for label, augment, images in itertools.product(COLLAPSE_METHODS, (False, True), COLLAPSE_SIZES):
            name = f"{label.lower()}-{images}-{'augmented' if augment else 'plain'}-{seed}"
            given = {**COLLAPSE_SETTINGS, **few_images(images, augment), "data": settings.images().spec, "seed": seed}
            asked[name] = _of_table_4(label, given)
            curves.setdefault((label, augment), {}).setdefault(images, []).append(name)
    ends = searched(settings, asked)
    rows = []
    for (label, augment), by_size in curves.items():
        how = "augmented" if augment else "plain"
        for images, names in by_size.items():
            values = [ends[name] for name in names]
            rows.append(Row.of(f"{label} {how} {images} images skips", "share", None, [one.skips for one in values]))
            rows.append(Row.of(f"{label} {how} {images} images", "%", None, [one.accuracy for one in values]))
    shares = {
        curve: {images: float(np.mean([ends[name].skips for name in names])) for images, names in by_size.items()}
        for curve, by_size in curves.items()
    }

    def draw(path: Path) -> None:
        _plot_collapse(shares, path)

    scale = f"8 channels, 3 cells a stage, 8 px, {COLLAPSE_STEPS} steps of {COLLAPSE_BATCH} images, alpha lr .01"
    return Outcome(scale, rows, ["Accuracies: NAS-Bench-201 table (CIFAR-10 test)."], plot=draw)


def _plot_collapse(shares: Mapping[tuple[str, bool], Mapping[int, float]], path: Path) -> None:
    """A line a method, with augmentation or without: its mean share of skip connections by the images of a half."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    for (label, augment), by_size in shares.items():
        style, how = ("o-", ", augmented") if augment else ("o--", "")
        axis.plot(list(by_size), list(by_size.values()), style, label=label + how)
    sizes = list(next(iter(shares.values())))
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axis.set_xlabel("images of each half")
    axis.set_ylabel("share of skip connections")
    axis.set_ylim(-0.03, 1.03)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    save_figure(figure, path)


# --- Table 2 ---------------------------------------------------------------------------------------------------------

LATENCY_WEIGHT = 2e-3
"""Of the baseline."""
TABLE_2: dict[str, tuple[dict[str, Any], float | None]] = {
    "baseline": ({}, 21.7),
    "latency weight 2e-4": ({"latency_weight": 2e-4}, 23.4),
    "latency weight 2e-2": ({"latency_weight": 2e-2}, 12.4),
    "latency weight 0": ({"latency_weight": 0.0}, None),
    "learning rate x 10": ({"alpha_lr": 3e-2}, 21.0),
    "learning rate x .1": ({"alpha_lr": 3e-4}, 23.1),
    "weight decay 1e-4": ({"alpha_weight_decay": 1e-4}, 21.3),
    "weight decay 1e-2": ({"alpha_weight_decay": 1e-2}, 22.9),
    "batch 32": ({"search_batch": 32}, 20.1),
    "batch 16": ({"search_batch": 16}, 16.5),
}
"""What a row changes of the baseline, and the milliseconds of the model that the paper found with it."""

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
    "alpha_weight_decay": 1e-3,
    "search_batch": 64,
    "fused": True,
    "latency_weight": LATENCY_WEIGHT,
}


@needs("nb201")
def rarts_2(settings: Settings) -> Outcome:
    """Latency of the cells found with other weights of it, learning rates, decays and batches of the architecture."""
    table, path = _operation_latencies(settings.folder)
    seeds = settings.seeds or DEFAULT_SEEDS
    named = {(label, seed): f"{label.replace(' ', '-')}-{seed}" for seed in range(seeds) for label in TABLE_2}
    asked = {}
    for (label, seed), name in named.items():
        given = {**TABLE_2_SETTINGS, **TABLE_2[label][0], "data": settings.images().spec, "seed": seed}
        if given["latency_weight"]:
            given["latency_table"] = str(path)
        asked[name] = "rarts", given
    ends = searched(settings, asked)

    def latency(cell: str) -> float:
        return sum(table[word] for word in re.findall(r"\w+(?=~)", cell))

    rows = []
    for label, (_, paper) in TABLE_2.items():
        own = [ends[named[label, seed]] for seed in range(seeds)]
        rows.append(Row.of(label, "ms", paper, [latency(one.cell) for one in own]))
        rows.append(Row.of(f"{label} accuracy", "%", None, [one.accuracy for one in own]))
    times = np.array([table[name] for name in NASBENCH201.operations])
    rows.append(Row.of("random cell", "ms", None, times[all_operations()].sum(1).tolist()))
    rows.append(Row.of("random cell accuracy", "%", None, load_compact().accuracies("cifar10", 200, "test").tolist()))
    notes = [
        "Ours: sum over the cell's six operations, each measured here at 8 channels, 16 px and a batch of 64.",
        "The paper's: a whole network of the DARTS space on a GPU; only the order can be compared.",
        f"Rate and decay are alpha's; the paper's baseline is a rate of 3e-4, ours {TABLE_2_SETTINGS['alpha_lr']:g}.",
        f"Operation latencies (ms): {json.dumps(table)}",
        *(f"{name}: {one.accuracy:.2f} % in the table, {one.cell}" for name, one in ends.items()),
    ]
    scale = f"nasbench201, 8 channels, 1 cell a stage, 16 px, 10 epochs, fused, {seeds} seeds"
    return Outcome(scale, rows, notes)


def _operation_latencies(folder: Path) -> tuple[dict[str, float], Path]:
    """The table of this device, measured once a folder so that all searches of the reproduction share it."""
    from archwright.costs.measure import Timing
    from archwright.costs.operations import operation_latencies

    path = folder / "operations.json"
    if not path.exists():
        scale = NASBENCH201.scales["small"].changed(channels=8, image_size=16)
        write_json(path, operation_latencies(NASBENCH201, scale, Timing(batch=64)))
    table: dict[str, float] = read_json(path)
    return table, path
