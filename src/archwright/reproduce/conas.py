"""CoNAS' tables 1, 2 and 6, at a scale that one core can do.

Searches are ordinary runs in folders of their own, so that a killed reproduction continues where it stopped; the arms
of a comparison share one supernet, and where they look at the same sub-graphs, the measurements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from archwright.errors import InputError
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer
from archwright.search.engine import reopened
from archwright.search.final import train_answer
from archwright.solvers.fourier import RecoverySettings, clean, recover
from archwright.solvers.polynomial import minimise
from archwright.spaces.darts import DARTS
from archwright.spaces.darts_free import DARTS_FREE
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.subgraphs import Subgraphs, read_bits
from archwright.tables.base import load_benchmark


def measured(folder: Path) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Sub-graphs (m, n) and losses (m,) of a run's measurements, NaN where one has none."""
    done = Run.open(folder).items("measure").done
    losses = [np.nan if one["loss"] is None else one["loss"] for one in done.values()]
    return np.stack([read_bits(key) for key in done]), np.array(losses)


# --- Table 2 ---------------------------------------------------------------------------------------------------------

TABLE_2: dict[str, tuple[float | None, ...]] = {
    "CoNAS": (91.22, 66.39, 38.82),
    "CoNAS strongest": (None, None, None),
    "RSPS": (None, None, None),
    "RSPS on CoNAS' sub-graphs": (None, None, None),
}
"""Test accuracies on CIFAR-10, CIFAR-100 and ImageNet16-120; the paper's row of RSPS is lost in the text."""

TABLE_2_SETTINGS: dict[str, Any] = {
    "space": "nasbench201",
    "benchmark": "nb201",
    "image_size": 8,
    "channels": 8,
    "cells": 1,
    "threads": 1,
    "supernet_epochs": 8,
    "supernet_batch": 128,
    "images": 256,
    "measure_batch": 256,
}
TABLE_2_MEASUREMENTS = 300
TABLE_2_RECOVERY: dict[str, Any] = {"rounds": 2}
PAPER_TAU = 0.15
"""Kendall's tau of supernet loss and true loss in the paper (Appendix A.4; DARTS space, 32 cells)."""


@needs("nb201")
def conas_2(settings: Settings) -> Outcome:
    """CoNAS and RSPS on one supernet with as many measurements: accuracy of their cells in the table."""
    table = load_benchmark("nb201")
    split, epochs = table.report_protocol
    found: dict[str, list[tuple[float, ...]]] = {label: [] for label in TABLE_2}
    taus: list[float] = []
    notes: list[str] = []
    for seed in range(settings.seeds or 5):
        for label, result in _arms(settings, seed).items():
            cell = NASBENCH201.parse(result.best.architecture)
            found[label].append(tuple(table.accuracy(cell, d, epochs, split) for d in table.datasets))
            notes.append(f"seed {seed}, {label}: {found[label][-1][0]:.2f} %, {cell}")
            settings.progress.say(f"conas-2 {notes[-1]}")
        taus.append(_tau(settings.folder / f"rsps-{seed}", table, epochs, split))
    rows = []
    for label, papers in TABLE_2.items():
        for k, (dataset, paper) in enumerate(zip(table.datasets, papers, strict=True)):
            rows.append(Row.of(f"{label} {dataset} test accuracy", "%", paper, [one[k] for one in found[label]]))
    for k, dataset in enumerate(table.datasets):
        gains = [a[k] - b[k] for a, b in zip(found["CoNAS"], found["RSPS"], strict=True)]
        rows.append(Row.of(f"CoNAS less RSPS, {dataset}", "points", None, gains))
        error = float(np.std(gains, ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else 0.0
        notes.append(f"CoNAS less RSPS, {dataset}: {np.mean(gains):+.2f} points, standard error {error:.2f}")
    rows.append(Row.of("tau of supernet loss and table accuracy", "tau", PAPER_TAU, taus))
    return Outcome(
        f"8 channels, 1 cell a stage, 8 px, {TABLE_2_SETTINGS['supernet_epochs']} epochs, {settings.images_note()}",
        rows,
        [
            (
                "Accuracies: NAS-Bench-201 table (test, 200 epochs). All arms of a seed share one supernet and have "
                f"at most {TABLE_2_MEASUREMENTS} measurements of {TABLE_2_SETTINGS['images']} validation images."
            ),
            (
                "RSPS measures architectures of the space; 'on CoNAS' sub-graphs' takes the best of those that CoNAS "
                "measured, with a uniform choice where an edge has several operations, as CoNAS does; "
                "'CoNAS strongest' takes the operation that the polynomial misses most instead. CoNAS measures in "
                "two rounds of half as many (restriction)."
            ),
            "The paper: 32 px, 16 channels, 5 cells a stage, 100 epochs, 3 seeds; its tau is of 32 DARTS cells.",
            *notes,
        ],
    )


def _arms(settings: Settings, seed: int) -> dict[str, Answer]:
    """The searches of one seed; the first trains the supernet."""
    given = {**TABLE_2_SETTINGS, "data": settings.images().spec, "seed": seed}
    first = settings.folder / f"conas-{seed}"
    shared = {**given, "supernet": str(first)}
    halved = {"measurements": TABLE_2_MEASUREMENTS // 2, **TABLE_2_RECOVERY}
    whole: dict[str, Any] = {"measurements": TABLE_2_MEASUREMENTS}
    return {
        "CoNAS": finished(first, "conas", **given, **halved),
        "CoNAS strongest": finished(
            settings.folder / f"strongest-{seed}", "conas", **shared, **halved, choice="strongest"
        ),
        "RSPS": finished(settings.folder / f"rsps-{seed}", "rsps", **shared, **whole),
        "RSPS on CoNAS' sub-graphs": finished(
            settings.folder / f"bits-{seed}", "rsps", **shared, **whole, subgraphs="bits"
        ),
    }


def _tau(folder: Path, table: Any, epochs: int, split: str) -> float:
    """Kendall's tau of minus the supernet's loss and the CIFAR-10 accuracy, over the architectures RSPS measured."""
    bits = Subgraphs(NASBENCH201)
    x, losses = measured(folder)
    rng = np.random.default_rng(0)
    cells = [NASBENCH201.of_subgraph(bits.masks(one), {"cell": np.zeros((6, 5))}, rng) for one in x]
    usable = [k for k, cell in enumerate(cells) if np.isfinite(losses[k]) and NASBENCH201.is_connected(cell)]
    accuracies = [table.accuracy(cells[k], "cifar10", epochs, split) for k in usable]
    return float(kendalltau(-losses[usable], accuracies).statistic)


# --- Table 1 ---------------------------------------------------------------------------------------------------------

TABLE_1: dict[str, tuple[str, str, float | None, float | None]] = {
    "CoNAS (1) free cell": ("conas", "darts-free", 2.67, 3.2),
    "CoNAS (2) two inputs a node": ("conas", "darts", 2.85, 2.7),
    "RSPS": ("rsps", "darts", 2.85, 3.7),
    "random": ("random", "darts", 3.29, 3.1),
}
"""Method, space, and the paper's mean test error (%) and parameters (millions)."""

TABLE_1_SETTINGS: dict[str, Any] = {
    "image_size": 8,
    "channels": 4,
    "cells": 3,
    "threads": 1,
    "epochs": 1,
    "final_epochs": 3,
}
TABLE_1_SEARCH: dict[str, Any] = {"supernet_epochs": 5, "supernet_batch": 128, "measurements": 200, "images": 256}
TABLE_1_RECOVERY: dict[str, Any] = {"rounds": 1, "threshold": 4.0}
"""So short a training leaves many sub-graphs worse than guessing; only the abnormal ones are dropped."""


@needs()
def conas_1(settings: Settings) -> Outcome:
    """Cells found in the DARTS space, trained alike from scratch: test error and parameters."""
    errors: dict[str, list[float]] = {label: [] for label in TABLE_1}
    params: dict[str, list[float]] = {label: [] for label in TABLE_1}
    for seed in range(settings.seeds or 2):
        given = {**TABLE_1_SETTINGS, "data": settings.images().spec, "seed": seed}
        first = settings.folder / f"conas-darts-free-{seed}"
        for label, (method, space, _, _) in TABLE_1.items():
            folder = settings.folder / f"{method}-{space}-{seed}"
            extra: dict[str, Any] = {"evaluations": 1} if method == "random" else dict(TABLE_1_SEARCH)
            if method == "conas":
                extra |= TABLE_1_RECOVERY
            if method != "random" and folder != first:
                extra["supernet"] = str(first)
            result = finished(folder, method, **given, space=space, **extra)
            errors[label].append(100 - (result.best.accuracy or 0.0))
            params[label].append((result.best.params or 0) / 1e6)
            settings.progress.say(f"conas-1 {label} seed {seed}: {errors[label][-1]:.2f} % error")
    rows = []
    for label, (_, _, error, size) in TABLE_1.items():
        rows.append(Row.of(f"{label} test error", "%", error, errors[label]))
        rows.append(Row.of(f"{label} parameters", "M", size, params[label]))
    c, s = TABLE_1_SETTINGS, TABLE_1_SEARCH
    return Outcome(
        f"{c['channels']} channels, {c['cells']} cells, {c['image_size']} px, supernet {s['supernet_epochs']} epochs, "
        f"{s['measurements']} measurements, answers {c['final_epochs']} epochs; {settings.images_note()}",
        rows,
        [
            "The paper: 600 epochs, 36 channels, 20 cells, 3,000 measurements. Its means over seeds are quoted.",
            (
                "Both cells of CoNAS come from the same supernet and the same measurements; the two-input cell keeps, "
                "for each node, the operations the polynomial misses most."
            ),
        ],
    )


# --- Table 6 ---------------------------------------------------------------------------------------------------------

TABLE_6: dict[float, tuple[float, float]] = {0.5: (0.0, 3.74), 2.0: (0.0, 3.74), 5.0: (8.0, 3.51), 10.0: (12.0, 3.62)}
"""Lambda, and the paper's Hamming distance of its solution from that of lambda = 1 and its test error."""
TABLE_6_EPOCHS, TABLE_6_RANDOM, TABLE_6_RANDOM_ERROR = 12, 3, 4.43
"""Of each solution's training; random strings a seed; the paper's test error of those."""


@needs()
def conas_6(settings: Settings) -> Outcome:
    """How far the solution moves with lambda on the measurements of table 1's free cells, and its test error."""
    bits = Subgraphs(DARTS)
    distances: dict[float, list[int]] = {lam: [] for lam in TABLE_6}
    errors: dict[str, list[float]] = {}
    on: list[int] = []
    for seed in range(settings.seeds or 2):
        folder = settings.folder.parent / "conas-1" / f"conas-darts-free-{seed}"
        if not folder.exists():
            conas_1(Settings(settings.folder.parent / "conas-1", seed + 1, settings.data, settings.workers))
        measurements = clean(*measured(folder), TABLE_1_RECOVERY["threshold"])
        share = len(measurements.y) / 3000
        solutions = {lam: _solution(measurements, lam * share) for lam in (1.0, *TABLE_6)}
        on.append(int((solutions[1.0] > 0).sum()))
        for lam in TABLE_6:
            distances[lam].append(int((solutions[lam] != solutions[1.0]).sum()))
        drawn = [_random_string(bits.n, on[-1], seed, number) for number in range(TABLE_6_RANDOM)]
        errors.setdefault("random", []).append(float(np.mean(_errors(settings, folder, drawn))))
        for lam, error in zip(solutions, _errors(settings, folder, list(solutions.values())), strict=True):
            errors.setdefault(f"lambda {lam:g}", []).append(error)
    rows = [Row.of(f"Hamming distance, lambda {lam:g}", "bits", TABLE_6[lam][0], d) for lam, d in distances.items()]
    random = [2 * k * (1 - k / bits.n) for k in on]
    rows.append(Row.of("Hamming distance, random", "bits", 29.0, random))
    papers = {"random": TABLE_6_RANDOM_ERROR, **{f"lambda {lam:g}": one[1] for lam, one in TABLE_6.items()}}
    rows += [Row.of(f"test error, {label}", "%", papers.get(label), values) for label, values in errors.items()]
    rows.append(Row.of("bits on, lambda 1", "bits", 15.0, on))
    return Outcome(
        f"{bits.n} bits of the DARTS space, measurements of conas-1; {settings.images_note()}",
        rows,
        [
            (
                "Distances are from the solution of lambda = 1. Lambda is scaled by our measurements over 3,000: "
                "measurements over the paper's 3,000, for the square in eq. 2.3 is a sum over them."
            ),
            (
                "Random: the expected distance of two strings with as many bits on, 2 k (1 - k / n). The paper says "
                "27.58 in the text and 29 in the table; the formula gives 26.8 for its 15 of 140."
            ),
            (
                f"The paper has 140 bits (5 operations) and trains each solution for 150 epochs; here {TABLE_6_EPOCHS} "
                f"as a small network. Random: the mean of {TABLE_6_RANDOM} strings with as many bits on as lambda = 1."
            ),
        ],
    )


def _random_string(n: int, on: int, seed: int, number: int) -> NDArray[np.int8]:
    """A string of n bits of which ``on`` are 1, the others -1."""
    x = np.full(n, -1, dtype=np.int8)
    x[np.random.default_rng([seed, number]).choice(n, on, replace=False)] = 1
    return x


def _errors(settings: Settings, folder: Path, strings: Sequence[NDArray[np.int8]]) -> list[float]:
    """Test errors of the free cells of sub-graphs, trained from scratch; a cell once, and kept beside the tables.

    Args:
        settings: folder and progress.
        folder: of the search whose images, sizes and recipe are taken.
        strings: (n,) each.
    """
    method = reopened(Run.open(folder), Stop(), settings.progress, final_epochs=TABLE_6_EPOCHS)
    bits, log, found = Subgraphs(DARTS_FREE), ItemLog(settings.folder / "trained.jsonl"), list[float]()
    for x in strings:
        cell = bits.architecture(x, np.zeros(bits.n), None)
        key = hashlib.sha256(f"{folder.name} {cell} {TABLE_6_EPOCHS}".encode()).hexdigest()[:16]
        if key not in log.done:
            trained = train_answer(method.context, cell, f"lambda/{key}", stage=f"lambda-{key}", onnx=False)
            log.record(key, 100 - trained.accuracy)
            method.context.run.checkpoints(f"lambda-{key}").clear()
        found.append(float(log.done[key]))
    return found


def _solution(measurements: Any, lam: float) -> NDArray[np.int8]:
    if len(measurements.y) < 2:
        raise InputError("measurements below the loss of guessing", str(len(measurements.y)))
    recovery = recover(measurements.x, measurements.y, RecoverySettings(lam=lam, sparsity=12))
    return minimise(recovery.polynomial).x
