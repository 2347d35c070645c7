"""NASI in the three spaces of NAS-Bench-1Shot1: figures 6.2, 6.6 and tables 6.4, 6.6 and 6.8 of the thesis.

All five look up the test error of what a search chose in NAS-Bench-101. The searches are kept beside the tables under
their settings, so those that the tables have in common are made once, and a killed table goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.execution.base import Item, run_items
from archwright.reproduce.arms import mean_gain
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import name_of
from archwright.reproduce.thesis6 import SPACES
from archwright.reproduce.thesis6_search import chosen_by_search
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.tables import nasbench101

Arms = Mapping[str, Mapping[str, Any]]
"""What is compared: settings of a search, its method among them, by label."""
Errors = dict[tuple[str, str], list[float]]
"""Test errors in percent, one a seed, by space and label."""

NASI: dict[str, Any] = {
    "method": "nasi",
    "steps": 20,
    "nu": "adaptive",
    "nu_samples": 10,
    "proxy_channels": 8,
    "proxy_cells": 1,
    "proxy_size": 8,
    "proxy_batch": 64,
    "threads": 1,
}
"""The search of section 6.5.1 in small: mu is 1, and nu starts at three times the mean trace of its own scale."""
SEEDS = 2
UNIT = "% test error"

TABLE_6_4: dict[str, tuple[float, float, float, float]] = {
    "standard": (7.3, 7.2, 7.2, 2.95),
    "random labels": (6.8, 7.0, 7.5, 2.90),
    "random data": (6.6, 7.5, 7.3, 2.97),
}
"""In spaces 1 to 3 and in the DARTS space."""
CHANGES_6_4: Arms = {"standard": {}, "random labels": {"labels": "random"}, "random data": {"images": "random"}}
TABLE_6_6: dict[int, tuple[float, float, float]] = {
    2: (7.0, 7.3, 7.6), 4: (8.3, 8.0, 7.7), 8: (8.0, 7.3, 6.8), 16: (7.3, 7.3, 6.8), 32: (6.5, 7.0, 6.4),
}  # fmt: skip
"""By the channels of the supernet, in spaces 1 to 3."""
TABLE_6_8: dict[int, tuple[float, float, float]] = {
    8: (6.8, 6.9, 7.0), 16: (6.7, 7.3, 6.6), 32: (6.7, 7.1, 6.7), 64: (6.0, 7.2, 6.6), 128: (7.0, 6.8, 7.1),
}  # fmt: skip
"""By the batch, in spaces 1 to 3."""

STARTS, PENALTIES = (0.3, 1.0, 3.0, 10.0), (0.5, 1.0, 2.0, 4.0)
"""Of figure 6.6: where nu starts, in mean traces, and mu."""

BUDGETS = (1, 5)
"""Epochs that DARTS gets in figure 6.2."""
RIVAL: dict[str, Any] = {
    "method": "darts",
    "channels": 8,
    "cells": 1,
    "image_size": 8,
    "threads": 1,
    "search_images": 640,
    "search_batch": 64,
    "alpha_lr": 3e-3,
}
"""An epoch of both halves has as many images as NASI's 20 batches of 64."""


def errors_of(settings: Settings, arms: Arms, seeds: int) -> Errors:
    """Test errors in percent of what every arm chooses in every space, one a seed.

    Args:
        settings: folder, images, executor and progress.
        arms: settings of a search, by label.
        seeds: number of them.
    """
    kept = settings.folder.parent / "shot1-searches"
    items: dict[tuple[str, str, int], Item] = {}
    for (name, space), (label, given), seed in product(SPACES.items(), arms.items(), range(seeds)):
        whole = {"space": space.name, "benchmark": "nb101", "data": settings.images().spec, "seed": seed, **given}
        key = name_of(whole)
        items[name, label, seed] = Item(key, {"folder": str(kept / key), "settings": whole})
    log = ItemLog(kept / "searches.jsonl")
    asked = list(items.values())
    with settings.progress.task("searches", len(asked), sum(item.key in log.done for item in asked)) as bar:
        found = run_items(settings.executor, chosen_by_search, asked, log, Stop(), bar)
    errors: Errors = {}
    table = nasbench101.load_compact()
    for (name, label, _), item in items.items():
        cell = SPACES[name].parse(found[item.key]["architecture"])
        errors.setdefault((name, label), []).append(100 - table.accuracy(cell, "cifar10", 108, "test"))
    return errors


@lru_cache(maxsize=3)
def space_errors(name: str) -> tuple[float, float, float]:
    """Mean, deviation and least test error in percent over all architectures of a space."""
    errors = 100 - nasbench101.load_compact().accuracies(SPACES[name], "cifar10", 108, "test")
    return float(errors.mean()), float(errors.std()), float(errors.min())


def rows_of(errors: Errors, papers: Mapping[str, Sequence[float]]) -> list[Row]:
    """One row a space and label, and the mean and the best of each space.

    Args:
        errors: in percent, one a seed, by space and label.
        papers: published numbers by label, one a space.
    """
    places = {name: place for place, name in enumerate(SPACES)}
    rows = []
    for (name, label), values in errors.items():
        paper = papers[label][places[name]] if label in papers else None
        rows.append(Row.of(f"{name} {label}", UNIT, paper, values))
    for name in SPACES:
        average, deviation, least = space_errors(name)
        rows.append(Row(f"{name} mean of the space", UNIT, None, average, deviation))
        rows.append(Row(f"{name} best of the space", UNIT, None, least))
    return rows


def beside_random(errors: Errors) -> str:
    """In how many cells of the table the mean error is below that of its space, in words."""
    below = sum(float(np.mean(values)) < space_errors(name)[0] for (name, _), values in errors.items())
    return f"mean errors below the mean of the space, a random architecture's: {below} of {len(errors)}"


def excess(errors: Errors, label: str) -> NDArray[np.float64]:
    """Mean test error over the spaces less that of a random cell, one a seed, (seeds,).

    Args:
        errors: in percent, one a seed, by space and label.
        label: of the searches.
    """
    found: NDArray[np.float64] = np.mean(
        [np.array(errors[name, label]) - space_errors(name)[0] for name in SPACES], axis=0
    )
    return found


def against_random(errors: Errors, labels: Sequence[str], seeds: int) -> str:
    """By label the mean error less a random cell's, and how far as many random cells are off by chance, in words.

    Args:
        errors: in percent, one a seed, by space and label.
        labels: of the searches.
        seeds: number of them.
    """
    said = ", ".join(f"{label} {mean_gain(excess(errors, label))}" for label in labels)
    chance = np.sqrt(sum(space_errors(name)[1] ** 2 for name in SPACES) / seeds) / len(SPACES)
    return (
        f"mean error over the spaces, less a random cell's, with its standard error over seeds: {said}; the mean of as "
        f"many random cells has a standard error of {chance:.2f}"
    )


def scale(seeds: int, **varied: str) -> str:
    """The searches in words.

    Args:
        seeds: number of them.
        **varied: settings of the searches that differ, and how.
    """
    s = {**NASI, **varied}
    return (
        f"supernets of {s['proxy_channels']} channels, {s['proxy_cells']} cell a stage, {s['proxy_size']} px, batch "
        f"{s['proxy_batch']}, {s['steps']} steps; {seeds} seeds; test errors of the NAS-Bench-101 table"
    )


# --- the figure and the tables ---------------------------------------------------------------------------------------


@needs("nb101")
def figure_6_2(settings: Settings) -> Outcome:
    """NASI with a budget of one epoch beside DARTS, which trains a supernet."""
    seeds = settings.seeds or SEEDS
    arms: dict[str, Mapping[str, Any]] = {"NASI, 1 epoch": NASI}
    for epochs in BUDGETS:
        arms[f"DARTS, {epochs} {'epoch' if epochs == 1 else 'epochs'}"] = {**RIVAL, "search_epochs": epochs}
    errors = errors_of(settings, arms, seeds)
    best = {label: sum(_leads(errors, name, label) for name in SPACES) for label in arms}
    notes = [
        settings.images_note(),
        "the thesis shows this figure without numbers: NASI's one epoch level with the others' 20, in each space",
        f"spaces in which the mean error is the lowest: {', '.join(f'{k} {v}' for k, v in best.items() if v)}",
        beside_random(errors),
        f"an epoch of DARTS: {RIVAL['search_images']} images of each half; the thesis' has 25,000",
    ]
    return Outcome(scale(seeds), rows_of(errors, {}), notes)


def _leads(errors: Errors, name: str, label: str) -> bool:
    """Whether no other label has a lower mean error in the space ``name``."""
    means = {other: float(np.mean(values)) for (space, other), values in errors.items() if space == name}
    return means[label] == min(means.values())


@needs("nb101")
def figure_6_6(settings: Settings) -> Outcome:
    """NASI by its constraint nu and its penalty mu, each with each."""
    seeds = settings.seeds or SEEDS
    arms = {f"nu {nu:g}, mu {mu:g}": {**NASI, "nu_start": nu, "mu": mu} for nu, mu in product(STARTS, PENALTIES)}
    errors = errors_of(settings, arms, seeds)
    notes = [
        settings.images_note(),
        f"nu is where it starts, in mean traces of {NASI['nu_samples']} random architectures",
        "the thesis shows it without numbers, in the DARTS space: errors fall and rise again in both, more so in nu",
    ]
    for word, values in (("nu", STARTS), ("mu", PENALTIES)):
        # Of each seed and space one mean over the other setting: its deviation is not that of single searches.
        each = {value: _mean_errors(errors, f"{word} {value:g}") for value in values}
        said = ", ".join(f"{value:g} {mean_gain(own)}" for value, own in each.items())
        notes.append(f"mean error by {word}, less a random cell's, with its error over spaces and seeds: {said}")
    return Outcome(scale(seeds), rows_of(errors, {}), [*notes, beside_random(errors)])


def _mean_errors(errors: Errors, setting: str) -> NDArray[np.float64]:
    """Test errors in percent of the searches with ``setting``, less the space's mean: one a space and seed."""
    found = [
        np.mean([own for (space, label), own in errors.items() if space == name and setting in label.split(", ")], 0)
        for name in SPACES
    ]
    return np.concatenate([own - space_errors(name)[0] for own, name in zip(found, SPACES, strict=True)])


@needs("nb101")
def table_6_4(settings: Settings) -> Outcome:
    """NASI with true and with random labels and images, in NAS-Bench-1Shot1."""
    seeds = settings.seeds or SEEDS
    errors = errors_of(settings, {label: {**NASI, **changes} for label, changes in CHANGES_6_4.items()}, seeds)
    rows = rows_of(errors, TABLE_6_4)
    rows += [Row(f"DARTS {label}", UNIT, numbers[3], None) for label, numbers in TABLE_6_4.items()]
    first, *others = CHANGES_6_4
    paired = ", ".join(f"{one} {mean_gain(excess(errors, one) - excess(errors, first))}" for one in others)
    notes = [
        settings.images_note(),
        beside_random(errors),
        against_random(errors, list(CHANGES_6_4), seeds),
        f"mean error over the spaces less that of the standard search of the same seed: {paired}",
        "DARTS: not measured, its cells are in no table and the thesis trains each for 600 epochs; see thesis-6.2",
    ]
    return Outcome(scale(seeds), rows, notes)


@needs("nb101")
def table_6_6(settings: Settings) -> Outcome:
    """NASI by the width of its supernet."""
    return _by(settings, "proxy_channels", "channels", TABLE_6_6)


@needs("nb101")
def table_6_8(settings: Settings) -> Outcome:
    """NASI by its batch."""
    return _by(settings, "proxy_batch", "batch", TABLE_6_8)


def _by(settings: Settings, field: str, word: str, papers: Mapping[int, Sequence[float]]) -> Outcome:
    """The standard search with other values of ``field``."""
    seeds = settings.seeds or SEEDS
    arms = {f"{word} {value}": {**NASI, field: value} for value in papers}
    errors = errors_of(settings, arms, seeds)
    notes = [settings.images_note(), against_random(errors, list(arms), seeds), beside_random(errors)]
    rows = rows_of(errors, {f"{word} {value}": numbers for value, numbers in papers.items()})
    return Outcome(scale(seeds, **{field: f"{min(papers)} to {max(papers)}"}), rows, notes)
