"""NASI and HNAS in the DARTS space end to end: tables 6.2 and 7.7 of the thesis at a scale that one core can do.

Every arm searches, derives its cells, and trains the network of them from scratch on the CIFAR-10 subset, beside random
cells of the same space. Arms are runs of their own, kept beside the tables under their settings: those that both tables
have are made once, and a killed table goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished, name_of

NETWORK: dict[str, Any] = {
    "space": "darts",
    "channels": 4,
    "cells": 3,
    "image_size": 8,
    "batch_size": 64,
    "epochs": 1,
    "final_epochs": 2,
    "threads": 1,
}
NASI: dict[str, Any] = {
    "method": "nasi",
    "mu": 2.0,
    "steps": 12,
    "nu_samples": 12,
    "proxy_channels": 4,
    "proxy_batch": 32,
}
EVALUATIONS = 4
ARMS: Mapping[str, Mapping[str, Any]] = {
    "NASI-FIX": {**NASI, "nu": "fixed"},
    "NASI-ADA": {**NASI, "nu": "adaptive"},
    "HNAS": {
        "method": "hnas",
        "pool": 80,
        "replicates": 1,
        "evaluations": EVALUATIONS,
        "probes": 2,
    },
    "random": {"method": "random", "evaluations": 1},
}
"""Settings of each."""
SEEDS = 3

TABLE_6_2: dict[str, tuple[float | None, float | None, float | None]] = {
    "NASI-FIX": (2.79, 3.9, 16.12),
    "NASI-ADA": (2.90, 3.7, 16.84),
    "random": (None, None, None),
}
TABLE_7_7: dict[str, tuple[float | None, float | None, float | None]] = {
    "HNAS": (2.62, 3.4, 17.10),
    "NASI-ADA": (2.90, 3.7, 16.84),
    "random": (None, None, None),
}
"""CIFAR-10 test error in percent, parameters in millions, CIFAR-100 test error."""


@dataclass(frozen=True)
class Measured:
    """What an arm ended with: test error in percent, millions of parameters, and its normal cell's topology."""

    error: float
    params: float
    width: float
    depth: float
    skips: float


def measured(settings: Settings, given: Mapping[str, Any], seed: int) -> Measured:
    """The arm of one seed: searched and trained, or read.

    Args:
        settings: folder and images.
        given: settings of the arm's search.
        seed: of the search.
    """
    whole = {**NETWORK, "data": settings.images().spec, "seed": seed, **given}
    answer = finished(settings.folder.parent / "darts-searches" / name_of(whole), **whole)
    best = answer.best
    assert best.topology is not None
    assert best.accuracy is not None
    normal = best.topology["normal"]
    return Measured(
        100 - best.accuracy, (best.params or 0) / 1e6, normal["width"], normal["depth"], normal["skip_share"]
    )


def in_words() -> str:
    """The networks and the searches."""
    n, s = NETWORK, NASI
    return (
        f"{n['channels']} channels, {n['cells']} cells, {n['image_size']} px, {n['final_epochs']} epochs; NASI's "
        f"supernet {s['proxy_channels']} channels, {s['steps']} steps of {s['proxy_batch']} images"
    )


@needs()
def table_6_2(settings: Settings) -> Outcome:
    """NASI with a fixed and an adaptive nu beside random cells."""
    return _compared(settings, TABLE_6_2, in_words())


@needs()
def table_7_7(settings: Settings) -> Outcome:
    """HNAS beside NASI and random cells."""
    hnas = ARMS["HNAS"]
    words = f"HNAS: {hnas['pool']} cells scored, {EVALUATIONS} trained {NETWORK['epochs']} epoch"
    return _compared(settings, TABLE_7_7, f"{in_words()}; {words}")


def _compared(
    settings: Settings, papers: Mapping[str, tuple[float | None, float | None, float | None]], scale: str
) -> Outcome:
    seeds = settings.seeds or SEEDS
    found: dict[str, list[Measured]] = {}
    for seed in range(seeds):
        for label in papers:
            one = measured(settings, ARMS[label], seed)
            found.setdefault(label, []).append(one)
            settings.progress.say(f"{label} seed {seed}: {one.error:.2f} % error")
    rows = []
    for label, (error, params, other) in papers.items():
        values = found[label]
        rows.append(Row.of(f"{label} C10 test error", "% test error", error, [one.error for one in values]))
        rows.append(Row.of(f"{label} parameters", "M", params, [one.params for one in values]))
        rows.append(Row.of(f"{label} width", "c", None, [one.width for one in values]))
        rows.append(Row.of(f"{label} depth", "connections", None, [float(one.depth) for one in values]))
        rows.append(Row.of(f"{label} skips", "share", None, [one.skips for one in values]))
        if other is not None:
            rows.append(Row(f"{label} C100 test error", "% test error", other, None))
    notes = [
        settings.images_note(),
        *(_beside_random(label, found) for label in papers if label != "random"),
        "width, depth and skips are of the normal cell",
        "C100: not measured; the thesis trains 20 cells of 36 channels for 600 epochs, also on C10",
    ]
    return Outcome(f"{scale}; {seeds} seeds", rows, notes)


def _beside_random(label: str, found: Mapping[str, list[Measured]]) -> str:
    """How far the arm's mean error lies from that of random cells, and the standard error of the difference."""
    ours, random = ([one.error for one in found[key]] for key in (label, "random"))
    parts = [stdev(one) ** 2 / len(one) for one in (ours, random) if len(one) > 1]
    error = f", standard error {sum(parts) ** 0.5:.2f}" if len(parts) == 2 else ""
    return f"{label} less random cells: {mean(ours) - mean(random):+.2f} points of error{error}"
