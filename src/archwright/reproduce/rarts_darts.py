"""RARTS' tables 1 and 3 at the scale of one core: cells searched in the DARTS space, trained here and on other images.

Table 1 trains what each search found on the images that it saw, table 3 the same cells on Fashion-MNIST, which no
search has seen (the paper: ImageNet). Random cells get the same training beside. Searches and trainings are runs of
their own, kept by their names, so that both tables share the searches and a killed one goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.rarts import RARTS_OPTIONS
from archwright.reproduce.searches import finished
from archwright.search.answer import Answer
from archwright.search.engine import resume
from archwright.search.training import train
from archwright.spaces.darts import DARTS

NETWORK: dict[str, Any] = {"image_size": 8, "channels": 4, "cells": 3, "threads": 1}
SEARCH: dict[str, Any] = {"search_epochs": 4, "alpha_lr": 3e-3, "final_epochs": 1}
METHODS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "DARTS-1": ("darts", {"order": 1}),
    "DARTS-2": ("darts", {"order": 2}),
    "RARTS": ("rarts", RARTS_OPTIONS),
}
RANDOM, PUBLISHED = 3, "darts-v2"
"""Random cells a seed; a published cell beside."""
SEEDS, EPOCHS, TRANSFER_EPOCHS = 3, 12, 2
TRANSFER = "fashion-mnist"
TABLE_1 = {"DARTS-1": (3.00, 3.3), "DARTS-2": (2.76, 3.3), "RARTS": (2.65, 3.2), "random": (3.29, 3.2)}
"""Test error in percent and parameters in millions on CIFAR-10."""
TABLE_3 = {"DARTS-2": 26.7, "RARTS": 25.9}
"""Top-1 error in percent on ImageNet; the paper does not say of which order DARTS' row is (2 in DARTS' own paper)."""


def found_cells(settings: Settings, seed: int) -> dict[str, list[str]]:
    """The cells of one seed by row: what each search found, random ones, and a published one.

    Args:
        settings: folder, images and progress.
        seed: of the searches and draws.
    """
    cells: dict[str, list[str]] = {}
    for label, (method, options) in METHODS.items():
        folder = settings.folder.parent / "rarts-darts" / f"{label.lower()}-{seed}"
        given = {**NETWORK, **SEARCH, "space": "darts", "data": settings.images().spec, "seed": seed, **options}
        answer = finished(folder, method, settings.progress, **given)
        cells[label] = [answer.best.architecture]
    rng = np.random.default_rng([seed, 1])
    cells["random"] = [str(DARTS.sample(rng)) for _ in range(RANDOM)]
    return {**cells, PUBLISHED: [PUBLISHED]}


def trained(folder: Path, cell: str, data: str, seed: int, epochs: int) -> Answer:
    """A cell trained from scratch, continued or just read.

    Args:
        folder: of its run.
        cell: its text, or a published name.
        data: the images.
        seed: of the training.
        epochs: of the training.
    """
    if (folder / "run.json").exists():
        return resume(folder)
    return train(cell, space="darts", data=data, run=folder, seed=seed, epochs=epochs, onnx=False, yes=True, **NETWORK)


def compared(settings: Settings, data: str, epochs: int) -> dict[str, list[tuple[float, float, float]]]:
    """By row, of every seed: test error in percent, thousands of parameters and share of skips (means over cells).

    Args:
        settings: folder, images of the search, and progress.
        data: images that cells are trained on.
        epochs: of their training.
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for seed in range(settings.seeds or SEEDS):
        for label, cells in found_cells(settings, seed).items():
            several = []
            for number, cell in enumerate(cells):
                best = trained(settings.folder / f"{label}-{seed}-{number}", cell, data, seed, epochs).best
                assert best.accuracy is not None
                skips = best.architecture.count("skip_connect") / 16
                several.append((100 - best.accuracy, (best.params or 0) / 1e3, skips))
            error, params, skipped = np.mean(several, axis=0)
            found.setdefault(label, []).append((float(error), float(params), float(skipped)))
            settings.progress.say(f"{label} seed {seed}: {found[label][-1][0]:.2f} % error")
    return found


def beside_random(found: Mapping[str, Sequence[tuple[float, float, float]]]) -> list[str]:
    """What each search gains over random cells of the same seed, with its standard error."""
    notes, random = [], np.array([one[0] for one in found["random"]])
    for label in METHODS:
        gains = np.array([one[0] for one in found[label]]) - random
        error = f", standard error {gains.std(ddof=1) / np.sqrt(len(gains)):.2f}" if len(gains) > 1 else ""
        notes.append(f"{label} less random cells of the seed: {gains.mean():+.2f} points of error{error}")
    return notes


def _outcome(
    settings: Settings, data: str, epochs: int, papers: Mapping[str, float], sizes: Mapping[str, float]
) -> Outcome:
    found = compared(settings, data, epochs)
    rows = []
    for label, values in found.items():
        errors, params, skips = zip(*values, strict=True)
        rows.append(Row.of(f"{label} test error", "% test error", papers.get(label), errors))
        rows.append(Row.of(f"{label} parameters", "thousands", sizes.get(label), params))
        rows.append(Row.of(f"{label} skips", "share", None, skips))
    n, s = NETWORK, SEARCH
    scale = (
        f"{n['channels']} channels, {n['cells']} cells, {n['image_size']} px; searches of {s['search_epochs']} epochs, "
        f"cells trained for {epochs}; {len(found['random'])} seeds"
    )
    notes = [
        settings.images_note(),
        *beside_random(found),
        f"random: the mean of {RANDOM} cells a seed; {PUBLISHED}: the published cell, trained alike",
        "the paper trains 20 cells of 36 channels for 600 epochs (CIFAR-10), 14 of 48 for 250 (ImageNet)",
    ]
    return Outcome(scale, rows, notes)


@needs()
def rarts_1(settings: Settings) -> Outcome:
    """Cells of three searches and random ones, trained on the images of the searches."""
    papers = {label: one[0] for label, one in TABLE_1.items()}
    sizes = {label: 1e3 * one[1] for label, one in TABLE_1.items()}
    return _outcome(settings, settings.images().spec, EPOCHS, papers, sizes)


@needs()
def rarts_3(settings: Settings) -> Outcome:
    """The same cells on images that the searches have not seen."""
    outcome = _outcome(settings, TRANSFER, TRANSFER_EPOCHS, TABLE_3, {})
    outcome.notes.append(f"trained and tested on {TRANSFER}; searched on the images above")
    return outcome
