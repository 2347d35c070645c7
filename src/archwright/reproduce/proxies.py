"""All training-free scores beside each other, on two real tables: NAS-Bench-201 and 500 cells of the DARTS space.

The scores that lead the field (AZ-NAS, SWAP, ZiCo, MeCo) beside the thesis' and beside what is simply counted. Of ours
(`archwright.proxies.combinations`), *consensus* was chosen on a sample of 500 cells of NAS-Bench-201 by their
CIFAR-100 and ImageNet16-120 accuracies, together with the scale of the networks: CIFAR-10's accuracies and the DARTS
cells were not looked at. *paths* and its scale were chosen by the accuracies of the first 250 DARTS cells; the others
are reported on their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.methods.hnas import LOG_MU, BoostedPool, make_objective
from archwright.proxies.combinations import COMBINATIONS, joined_ranks, regularised
from archwright.proxies.engine import ScoreRequest, cached_scores
from archwright.proxies.score import Scores
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.correlations import RANK
from archwright.reproduce.networks import pair_scores
from archwright.reproduce.thesis7 import (
    DATASETS,
    EVALUATIONS,
    OPTIMUM,
    classes,
    score_space,
    spearman,
    tests_of,
)
from archwright.search.evaluator import Evaluated
from archwright.spaces.base import Scale
from archwright.spaces.cells import Cell, CellPair, cost_cells
from archwright.spaces.nasbench201 import NASBENCH201, Cell201
from archwright.strict import parse_json
from archwright.tables.locate import shared_data
from archwright.tables.nasbench201 import CompactTable, load_compact

BLOCKWISE = ("expressivity", "progressivity", "trainability", "jacob_cov", "naswot", "swap")
"""Metrics that need networks of some depth and width to say anything."""
DEEP: Mapping[str, object] = {"channels": 8, "cells": 5, "image_size": 8, "batch_size": 32, "initialisation": "he"}
MAPS: Mapping[str, object] = {"channels": 4, "cells": 1, "image_size": 16, "batch_size": 16}
"""For meco, which needs more pixels than channels, and zico."""
OTHERS = ("grad", "snip", "trace", "kappa", "knas", "fisher", "synflow")
"""The thesis' metrics, at the scale of its table."""
PAPER = {"C10 az-nas": 0.91}
"""Spearman correlations that the scores' papers report for NAS-Bench-201."""

CHOSEN = (
    f"consensus: log ranks of {', '.join(COMBINATIONS['consensus'])} summed; chosen, as was its scale, by CIFAR-100 "
    "and ImageNet16-120 accuracies of 500 cells of NAS-Bench-201, not by CIFAR-10"
)

DARTS_FIELDS: Mapping[str, object] = DEEP
ONE_CELL: Mapping[str, object] = {
    "channels": 4, "cells": 1, "image_size": 16, "batch_size": 32, "initialisation": "he",
}  # fmt: skip
"""A network of one reduction cell. Both cells of a pair are the same in this table, so that one stands for both."""
ONE_CELL_METRICS = ("synflow", "swap", "naswot", "zico", "meco")
CHOSEN_ON = 250
"""Cells of the table, the first ones, whose accuracies chose ``paths`` and its scale."""
PATHS_CHOSEN = (
    f"paths: log ranks of {' and '.join(COMBINATIONS['paths'])} summed; chosen, as was its scale, by the first "
    f"{CHOSEN_ON} cells. 'other cells' are the rest, and the interval is of a bootstrap over them"
)
DARTS_METRICS = (*BLOCKWISE, "grad", "snip", "trace", "kappa", "knas", "fisher", "synflow", "zico", "meco")


# --- NAS-Bench-201 ---------------------------------------------------------------------------------------------------


@needs("nb201")
def proxies_201(settings: Settings) -> Outcome:
    """Every score against the accuracies of NAS-Bench-201, all three data sets, and HNAS on the best score."""
    draws = settings.seeds or 5
    table, (cells, member) = load_compact(), classes()
    chosen = sample_of(settings, len(member))
    found: dict[str, list[float]] = {}
    answers: dict[str, list[Cell201]] = {}
    gains: dict[str, list[tuple[float, float]]] = {}
    kappa = np.ones(len(cells))
    for seed in range(draws):
        scores = all_scores(settings, seed)
        predicted = predictions(scores)
        for (metric, values), (name, dataset) in product(predicted.items(), DATASETS.items()):
            accuracy = table.accuracies(dataset, 200, "test")
            found.setdefault(f"{name} {metric}", []).append(spearman(values[member][chosen], accuracy[chosen]))
        ours, size = (predicted[metric][member][chosen] for metric in ("consensus", "params"))
        for name, dataset in DATASETS.items():
            accuracy = table.accuracies(dataset, 200, "test")[chosen]
            gains.setdefault(name, []).append(paired_interval(ours, size, accuracy))
        kappa = scores["kappa"] if seed == 0 else kappa
        for label, cell in searches(cells, scores, kappa, predicted["consensus"], table, seed).items():
            answers.setdefault(label, []).append(cell)
    rows = [Row.of(label, "Spearman", PAPER.get(label), values) for label, values in found.items()]
    rows += [row for name, gain in gains.items() for row in interval_rows(f"{name} consensus - params", gain)]
    for label, several in answers.items():
        for column, name in enumerate(DATASETS):
            tests = tests_of(several, table)[:, column].tolist()
            rows.append(Row.of(f"{label} {name}", "% test accuracy", None, tests))
    rows += [Row(f"optimum {n}", "% test accuracy", best, best) for n, best in zip(DATASETS, OPTIMUM, strict=True)]
    return Outcome(
        f"{len(chosen)} of 15,625 architectures; {draws} draws of {', '.join(BLOCKWISE)} ({in_words(DEEP)}); one of "
        f"zico and meco ({in_words(MAPS)}) and of the thesis' metrics (as in thesis-7.5)",
        rows,
        [
            settings.images_note(),
            CHOSEN,
            "az-nas: log ranks of expressivity, progressivity, trainability and macs",
            "params and macs are counted on the canonical cell at full scale",
            f"HNAS and '{EVALUATIONS} best' spend {EVALUATIONS} evaluations (CIFAR-10, 12 epochs, validation)",
        ],
    )


def sample_of(settings: Settings, total: int) -> NDArray[np.int64]:
    """The architectures that correlations are over: all of ``total``, or as many as ``settings`` ask for."""
    if settings.architectures is None or settings.architectures >= total:
        return np.arange(total)
    return np.sort(np.random.default_rng(0).choice(total, settings.architectures, replace=False))


def all_scores(settings: Settings, seed: int) -> Scores:
    """Scores of all classes: in the first draw by all metrics, then by those that the combinations need.

    Args:
        settings: images, cache, executor and progress.
        seed: number of the draw.
    """
    cells, member = classes()
    wanted = np.unique(member[sample_of(settings, len(member))])
    deep = ScoreRequest(metrics=BLOCKWISE, data=settings.images(), seed=seed, **DEEP)  # type: ignore[arg-type]
    parts = [_over_classes(settings, cells, wanted, deep)]
    if seed == 0:
        maps = ScoreRequest(metrics=("zico", "meco"), data=settings.images(), seed=seed, **MAPS)  # type: ignore[arg-type]
        parts += [_over_classes(settings, cells, wanted, maps), score_space(settings, OTHERS, seed)]
    costs = [NASBENCH201.cost(cell, NASBENCH201.scales["paper"]) for cell in cells]
    counted = np.array([[cost.params, cost.macs] for cost in costs], dtype=np.float64)
    parts.append(Scores(("params", "macs"), np.array([1, 1]), counted, np.zeros_like(counted)))
    return beside(parts)


def _over_classes(settings: Settings, cells: list[Cell201], wanted: NDArray[np.int64], request: ScoreRequest) -> Scores:
    """Scores of the ``wanted`` classes in their rows of a table of all; the other rows are 0 and never looked at."""
    some = [cells[index] for index in wanted]
    found = cached_scores(
        settings.cache, NASBENCH201, some, request, executor=settings.executor, progress=settings.progress
    )
    values = np.zeros((len(cells), len(found.metrics)))
    values[wanted] = found.values
    return Scores(found.metrics, found.directions, values, np.zeros_like(values))


def beside(parts: list[Scores]) -> Scores:
    """One table of several; a metric that several have is that of the last."""
    columns = {metric: (part, place) for part in parts for place, metric in enumerate(part.metrics)}
    return Scores(
        tuple(columns),
        np.array([part.directions[place] for part, place in columns.values()]),
        np.stack([part.values[:, place] for part, place in columns.values()], axis=1),
        np.stack([part.standard_errors[:, place] for part, place in columns.values()], axis=1),
    )


def predictions(scores: Scores) -> dict[str, NDArray[np.float64]]:
    """By the name of the score, the predicted quality of every network, (A,), higher is better."""
    found = {metric: scores.direction(metric) * scores[metric] for metric in scores.metrics}
    found["swap, regularised"] = regularised(scores["swap"], scores["params"])
    if "kappa" in scores.metrics:
        found["grad / kappa"] = scores["grad"] / scores["kappa"]
    for name, parts in COMBINATIONS.items():
        if set(parts) <= set(scores.metrics):
            found[name] = joined_ranks(scores, parts)
    return found


def paired_interval(
    first: NDArray[np.float64], second: NDArray[np.float64], accuracy: NDArray[np.float64], resamples: int = 500
) -> tuple[float, float]:
    """By how much one score correlates more with the accuracy than another: 2.5 and 97.5 % of a bootstrap.

    Spearman's; the networks are drawn with replacement, the same for both scores.

    Args:
        first: score, (n,).
        second: score, (n,).
        accuracy: (n,).
        resamples: of the bootstrap.
    """
    rng, found = np.random.default_rng(0), []
    for _ in range(resamples):
        drawn = rng.integers(len(accuracy), size=len(accuracy))
        found.append(spearman(first[drawn], accuracy[drawn]) - spearman(second[drawn], accuracy[drawn]))
    low, high = np.nanquantile(found, (0.025, 0.975))  # networks that all score the same have no correlation
    return float(low), float(high)


def interval_rows(label: str, intervals: list[tuple[float, float]]) -> list[Row]:
    """A row called ``label`` for each end of ``intervals``, one interval a draw."""
    ends = zip(("lower", "upper"), zip(*intervals, strict=True), strict=True)
    return [Row.of(f"{label}, {end} end of 95 %", "Spearman", None, list(values)) for end, values in ends]


def searches(
    cells: list[Cell201],
    scores: Scores,
    kappa: NDArray[np.float64],
    consensus: NDArray[np.float64],
    table: CompactTable,
    seed: int,
) -> dict[str, Cell201]:
    """What is found by the best score alone, by evaluating its first ones, and by HNAS boosting it.

    Args:
        cells: A of them, the pool.
        scores: of the pool; ``swap`` tells dead cells.
        kappa: (A,).
        consensus: (A,), the score that ranks.
        table: of accuracies.
        seed: of the boosting.
    """
    live = np.array([NASBENCH201.is_connected(cell) for cell in cells]) & (scores["swap"] > 0)
    pool, quality = [cell for cell, keep in zip(cells, live, strict=True) if keep], consensus[live]
    ranked = [pool[index] for index in np.argsort(-quality)[:EVALUATIONS]]
    seen = {cell: table.accuracy(cell, "cifar10", 12, "validation") for cell in ranked}
    values = np.stack([np.exp(quality), kappa[live]], axis=1)
    joined = Scores(("consensus", "kappa"), np.array([1, -1]), values, np.zeros_like(values))
    boosted = BoostedPool(pool, make_objective(joined, "consensus", "square"), seed, probes=5)
    history: list[Evaluated] = []
    for number in range(EVALUATIONS):
        cell = boosted.propose(history, number)
        history.append(Evaluated(cell, table.accuracy(cell, "cifar10", 12, "validation")))
    best = max(history, key=lambda one: one.accuracy).architecture
    assert isinstance(best, Cell201)
    return {
        "best score consensus": ranked[0],
        f"{EVALUATIONS} best by consensus": max(seen, key=lambda one: seen[one]),
        "HNAS consensus": best,
    }


def in_words(fields: Mapping[str, object]) -> str:
    """A scale for people."""
    start = fields.get("initialisation", "lecun")
    return (
        f"{fields['channels']} channels, {fields['cells']} cells, {fields['image_size']} px, "
        f"batch {fields['batch_size']}, {start}"
    )


# --- the DARTS space -------------------------------------------------------------------------------------------------


def darts_table(limit: int | None = None) -> tuple[list[CellPair], NDArray[np.float64]]:
    """The cells of `darts_cells_500.json` as they are (sources may repeat, operations may be none); accuracies in %."""
    path = shared_data("darts_cells_500.json")
    if path is None:
        raise InputError("darts_cells_500.json in the data folder", "none", "Set ARCHWRIGHT_DATA.")
    entries = parse_json(path.read_text(encoding="utf-8"))[:limit]

    def cell(edges: list[list[object]]) -> Cell:
        pairs = [(str(operation), int(str(source))) for operation, source in edges]
        return Cell(tuple(tuple(pairs[2 * n : 2 * n + 2]) for n in range(4)), (2, 3, 4, 5))

    pairs = [CellPair(cell(entry["normal"]), cell(entry["reduce"])) for entry in entries]
    return pairs, np.array([float(entry["accuracy"]) for entry in entries])


@needs()
def proxies_darts(settings: Settings) -> Outcome:
    """Every score against the accuracies of 500 real cells of the DARTS space: Spearman and Kendall."""
    draws = settings.seeds or 3
    cells, accuracy = darts_table(settings.architectures)
    found: dict[tuple[str, str], list[float]] = {}
    gains: list[tuple[float, float]] = []
    for seed in range(draws):
        predicted = darts_predictions(settings, cells, accuracy, seed)
        for (metric, values), (kind, correlation) in product(predicted.items(), RANK.items()):
            varies = len(np.unique(values)) > 1  # a score that tells nothing apart predicts nothing
            found.setdefault((metric, kind), []).append(correlation(values, accuracy) if varies else 0.0)
        ours, size, rest = predicted["paths, one cell"], predicted["params"], slice(CHOSEN_ON, None)
        if len(cells) > CHOSEN_ON:
            for metric, values in (("paths, one cell", ours), ("params", size)):
                label = (f"{metric}, other cells", "Spearman")
                found.setdefault(label, []).append(spearman(values[rest], accuracy[rest]))
            gains.append(paired_interval(ours[rest], size[rest], accuracy[rest]))
    rows = [Row.of(metric, kind, None, v) for (metric, kind), v in found.items() if kind == "Spearman"]
    rows += interval_rows("paths - params, other cells", gains) if gains else []
    rows += [Row.of(f"{metric} (Kendall)", kind, None, v) for (metric, kind), v in found.items() if kind == "Kendall"]
    empty = sum("none" in json.dumps(pair.normal.to_json()) for pair in cells)
    return Outcome(
        f"{len(cells)} cells, {in_words(DARTS_FIELDS)}, and where it says one cell {in_words(ONE_CELL)}; {draws} draws",
        rows,
        [
            settings.images_note(),
            f"{empty} of the cells hold none, and sources may repeat: they are read as they are",
            "az-nas is as published and consensus as chosen on NAS-Bench-201 (CIFAR-100, ImageNet16-120)",
            PATHS_CHOSEN,
            "params and macs are counted at 16 channels, 8 cells and 32 px",
            "'HNAS ..., both terms' chooses mu and nu of eq. 7.7 for the highest correlation, as thesis-7.5 does",
            "SWAP reports .93 in the DARTS space with its regulariser, on a network of one cell without a stem",
        ],
    )


def darts_predictions(
    settings: Settings, cells: list[CellPair], accuracy: NDArray[np.float64], seed: int
) -> dict[str, NDArray[np.float64]]:
    """By the name of the score, the predicted quality of every cell, (A,), higher is better.

    Args:
        settings: images, cache, executor and progress.
        cells: A of them.
        accuracy: (A,), by which HNAS' trade-off is chosen.
        seed: number of the draw.
    """
    counted, scores = counted_scores(cells), darts_scores(settings, cells, seed)
    found = predictions(scores)
    for metric in ("trace", "grad"):
        found[f"HNAS {metric}, both terms"] = best_trade_off(scores, metric, accuracy)
    single = ScoreRequest(metrics=ONE_CELL_METRICS, data=settings.images(), seed=seed, **ONE_CELL)  # type: ignore[arg-type]
    of_one = predictions(beside([pair_scores(settings, cells, single), counted]))
    return found | {f"{metric}, one cell": of_one[metric] for metric in of_one if metric not in counted.metrics}


def counted_scores(cells: list[CellPair]) -> Scores:
    """Parameters and multiply-accumulates of cells at 16 channels and 8 cells."""
    costs = [cost_cells(pair, Scale(16, 8)) for pair in cells]
    values = np.array([[cost.params, cost.macs] for cost in costs], dtype=np.float64)
    return Scores(("params", "macs"), np.array([1, 1]), values, np.zeros_like(values))


def darts_scores(settings: Settings, cells: list[CellPair], seed: int) -> Scores:
    """All metrics of cells in one draw, with their counts; cached.

    Args:
        settings: images, cache, executor and progress.
        cells: A of them.
        seed: number of the draw.
    """
    deep = ScoreRequest(metrics=DARTS_METRICS, data=settings.images(), seed=seed, **DARTS_FIELDS)  # type: ignore[arg-type]
    return beside([pair_scores(settings, cells, deep), counted_scores(cells)])


def best_trade_off(scores: Scores, metric: str, accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
    """HNAS' score with the mu and nu of a grid that correlate most, as in Table 7.5: an upper bound, (A,).

    Args:
        scores: with the metric and kappa, of A cells.
        metric: name of the first term.
        accuracy: (A,).
    """
    objective = make_objective(scores, metric, "square")
    grid = product(np.linspace(*LOG_MU, 13), np.linspace(0.1, 1.0, 10))
    tried = [-objective.values(log_mu, quantile) for log_mu, quantile in grid]
    return max(tried, key=lambda values: spearman(values, accuracy))
