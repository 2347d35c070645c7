"""Chapter 7 of the thesis: training-free metrics on NAS-Bench-201, and HNAS.

All tables share the scores of :func:`space_scores`: every canonical class of NAS-Bench-201 by the small network that
stands in for the real one, one *draw* of initialisation and mini-batch a seed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from archwright.device import Device
from archwright.execution.base import Item, run_items
from archwright.methods.baselines import Evolution, RandomSearch
from archwright.methods.hnas import LOG_MU, ROOTED, BoostedPool, make_objective
from archwright.proxies.engine import ScoreRequest, cached_scores
from archwright.proxies.score import Scores
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.runs.files import Json
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.evaluator import Evaluated
from archwright.search.proposals import ProposalSearch, Propose
from archwright.spaces.nasbench201 import NASBENCH201, Cell201, all_operations, canonical_index, cell_of
from archwright.tables.nasbench201 import CompactTable, load_compact

METRICS = ("grad", "snip", "grasp", "trace")
DATASETS = {"C10": "cifar10", "C100": "cifar100", "IN-16": "imagenet16-120"}

TABLE_7_5 = {
    "C10": {
        "realisable": (0.637, 0.639, 0.566, 0.538), "+ trade-off": (0.642, 0.641, 0.570, 0.549),
        "+ kappa": (0.724, 0.728, 0.658, 0.657), "both": (0.750, 0.748, 0.686, 0.697),
    },
    "C100": {
        "realisable": (0.638, 0.638, 0.571, 0.535), "+ trade-off": (0.642, 0.645, 0.578, 0.546),
        "+ kappa": (0.716, 0.719, 0.649, 0.651), "both": (0.740, 0.746, 0.680, 0.686),
    },
    "IN-16": {
        "realisable": (0.578, 0.578, 0.550, 0.486), "+ trade-off": (0.588, 0.589, 0.566, 0.526),
        "+ kappa": (0.646, 0.649, 0.612, 0.587), "both": (0.682, 0.685, 0.655, 0.660),
    },
}  # fmt: skip

TABLE_7_13 = {
    "grad": (94.04, 71.75, 45.91), "snip": (93.94, 71.49, 46.07), "grasp": (94.13, 72.59, 46.24),
    "trace": (94.07, 72.30, 45.93), "knas": (94.19, 72.94, 46.31), "fisher": (93.28, 69.42, 42.85),
    "synflow": (94.13, 72.50, 45.47), "naswot": (92.10, 66.81, 39.26),
}  # fmt: skip
"""Test accuracy on the three data sets of the architecture that HNAS selects, by metric."""

PROXY_SCALE = "4 channels, 3 cells a stage, 4 px, batch 64"
REPLICATES = 3
"""Initialisations and mini-batches that one draw of Table 7.5 averages."""
TOGETHER = ("grad", "snip", "trace", "kappa", "knas", "fisher", "synflow", "naswot", "params")
"""Metrics that share a forward and backward pass; grasp, which needs the Hessian, is scored on its own."""


def proxy_request(settings: Settings, metrics: tuple[str, ...], seed: int, **changes: object) -> ScoreRequest:
    """The stand-in network used for NAS-Bench-201.

    Args:
        settings: say the images.
        metrics: names of the scores.
        seed: of the draw.
        changes: fields of the request with other values.
    """
    fields: dict[str, object] = {"channels": 4, "cells": 3, "image_size": 4, "batch_size": 64, "seed": seed, **changes}
    return ScoreRequest(metrics=metrics, data=settings.images(), **fields)  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def classes() -> tuple[list[Cell201], NDArray[np.int64]]:
    """One cell of each of the 4,930 classes, and for each of the 15,625 cells its class, (15625,)."""
    representatives, member = np.unique(canonical_index(), return_inverse=True)
    return [cell_of(all_operations()[index]) for index in representatives], member


def space_scores(settings: Settings, seed: int) -> Scores:
    """All metrics of all classes; cached and shared by the tables.

    Args:
        settings: images, cache, executor and progress.
        seed: number of the draw.
    """
    return joined(score_space(settings, TOGETHER, seed), score_space(settings, ("grasp-abs",), seed))


def averaged_scores(settings: Settings, seed: int) -> Scores:
    """The metrics of Table 7.5: means over :data:`REPLICATES` draws, but for grasp, which costs as much in one.

    Args:
        settings: images, cache, executor and progress.
        seed: of the draws.
    """
    basic = score_space(settings, ("grad", "snip", "trace", "kappa"), seed, replicates=REPLICATES)
    return joined(basic, score_space(settings, ("grasp-abs",), seed))


def joined(scores: Scores, grasp: Scores) -> Scores:
    """``scores`` with the absolute grasp as ``grasp``."""
    return Scores(
        (*scores.metrics, "grasp"),
        np.concatenate([scores.directions, grasp.directions]),
        np.concatenate([scores.values, grasp.values], axis=1),
        np.concatenate([scores.standard_errors, grasp.standard_errors], axis=1),
    )


def score_space(settings: Settings, metrics: tuple[str, ...], seed: int, **changes: object) -> Scores:
    """Scores of all classes in one draw; cached.

    Args:
        settings: images, cache, executor and progress.
        metrics: names of the scores.
        seed: number of the draw.
        changes: fields of the request with other values.
    """
    request = proxy_request(settings, metrics, seed, **changes)
    found, _ = classes()
    return cached_scores(
        settings.cache, NASBENCH201, found, request, executor=settings.executor, progress=settings.progress
    )


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Rank correlation of ``first`` (n,) and ``second`` (n,); ties share their mean rank."""
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def scenario_scores(scores: Scores, metric: str, scenario: str, accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
    """Predicted quality of every class, (4930,), higher is better, in one of the four scenarios of Table 7.5.

    mu and nu of the trade-off are chosen for the highest correlation, as in the thesis (there by hundreds of steps of
    Bayesian optimisation, here on a grid).

    Args:
        scores: of all classes, with the metric and kappa.
        metric: name of the first term.
        scenario: of the table.
        accuracy: of all 15,625 cells.
    """
    if scenario == "realisable":
        return scores[metric]
    objective = make_objective(scores, metric, "square")
    if scenario == "+ kappa":
        return -objective.kappa / objective.metric
    if scenario == "+ trade-off":
        objective = type(objective)(objective.metric, np.ones_like(objective.kappa), objective.penalty)
    _, member = classes()
    grid = product(np.linspace(*LOG_MU, 13), np.linspace(0.1, 1.0, 10))
    tried = [-objective.values(log_mu, quantile) for log_mu, quantile in grid]
    ranks = rankdata(accuracy)
    quality = [np.corrcoef(rankdata(values[member]), ranks)[0, 1] for values in tried]
    return tried[int(np.argmax(quality))]


@needs("nb201")
def table_7_5(settings: Settings) -> Outcome:
    """Spearman correlation with test accuracy over all 15,625 architectures, per scenario and metric."""
    table = load_compact()
    draws = settings.seeds or 5
    _, member = classes()
    accuracy = {name: table.accuracies(dataset, 200, "test") for name, dataset in DATASETS.items()}
    found: dict[tuple[str, str, str], list[float]] = {}
    for seed in range(draws):
        scores = averaged_scores(settings, seed)
        for name, scenario, metric in product(DATASETS, TABLE_7_5["C10"], METRICS):
            predicted = scenario_scores(scores, metric, scenario, accuracy[name])
            found.setdefault((name, scenario, metric), []).append(spearman(predicted[member], accuracy[name]))
    rows = []
    for name, scenario in product(DATASETS, TABLE_7_5["C10"]):
        for metric, paper in zip(METRICS, TABLE_7_5[name][scenario], strict=True):
            rows.append(Row.of(f"{name} {scenario} {metric}", "Spearman", paper, found[name, scenario, metric]))
    cells, _ = classes()
    params = np.array([NASBENCH201.cost(cell, NASBENCH201.scales["paper"]).params for cell in cells], dtype=np.float64)
    for name in DATASETS:
        found_params = spearman(params[member], accuracy[name])
        rows.append(Row(f"{name} parameters of the canonical cell", "Spearman", None, found_params))
    lowest = {metric: f"{min(v):.3f} to {max(v):.3f}" for metric in METRICS if (v := found["C10", "both", metric])}
    return Outcome(
        scale=f"{PROXY_SCALE}; {draws} draws of {REPLICATES} replicates",
        rows=rows,
        notes=[
            settings.images_note(),
            f"range over draws, C10, both terms: {lowest}",
            "mu and nu are chosen for the highest correlation, as in the thesis; 'realisable' and '+ kappa' have none",
            "grasp is the absolute value of eq. 7.3",
        ],
    )


# --- HNAS ------------------------------------------------------------------------------------------------------------

BASELINES = {
    "random": (93.70, 71.04, 44.57), "evolution": (93.92, 71.84, 45.15), "naswot, 1000 sampled": (92.96, 69.98, 44.44),
    "te-nas, 1000 sampled": (93.90, 71.24, 42.38), "knas, 1000 sampled": (93.05, 68.91, 34.11),
}  # fmt: skip
"""Table 7.3; there random and evolution spent 12,000 GPU seconds, here they get as many evaluations as HNAS."""
OVER_DRAWS = (
    "deviations are over draws of scores (searches on one draw are averaged), over searches where there are none"
)
EVALUATIONS = 20
OPTIMUM = (94.37, 73.51, 47.31)


def tests_of(cells: Sequence[Cell201], table: CompactTable) -> NDArray[np.float64]:
    """Test accuracies of ``cells`` in ``table`` after 200 epochs on the three data sets, (cells, 3), in percent."""
    columns = [table.accuracies(dataset, 200, "test") for dataset in DATASETS.values()]
    return np.array([[column[cell.index] for column in columns] for cell in cells])


def hnas_choice(
    pool: Sequence[Cell201], scores: Scores, metric: str, seed: int, evaluations: int = EVALUATIONS
) -> Cell201:
    """One HNAS search on CIFAR-10's 12-epoch validation accuracies.

    Args:
        pool: of cells.
        scores: of the pool, with the metric and kappa.
        metric: that is boosted.
        seed: of the search.
        evaluations: looks at the table.
    """
    boosted = BoostedPool(pool, make_objective(scores, metric, "square"), seed, probes=5)
    return best_of(evaluated(boosted.propose, evaluations))


def evaluated(propose: Propose, evaluations: int) -> list[Evaluated]:
    """What a search on CIFAR-10's 12-epoch validation accuracies looks at, in order.

    Args:
        propose: the next cell, from what was seen and its number.
        evaluations: looks at the table.
    """
    table = load_compact_once()
    history: list[Evaluated] = []
    for number in range(evaluations):
        cell = propose(history, number)
        history.append(Evaluated(cell, table.accuracy(cell, "cifar10", 12, "validation")))
    return history


def best_of(history: Sequence[Evaluated]) -> Cell201:
    """The cell of the highest accuracy."""
    best = max(history, key=lambda one: one.accuracy).architecture
    assert isinstance(best, Cell201)
    return best


def hnas_searches(payload: Json, stop: Stop) -> Json:
    """Work item: the cells that HNAS chooses with one draw of scores and one metric, for several seeds.

    Args:
        payload: pool, metric, its values, kappa and seeds, as JSON.
        stop: not looked at; an item takes seconds.
    """
    pool = [NASBENCH201.parse(text) for text in payload["pool"]]
    values = np.array([payload["metric_values"], payload["kappa"]]).T
    scores = Scores((payload["metric"], "kappa"), np.array([1, -1]), values, np.zeros_like(values))
    return [str(hnas_choice(pool, scores, payload["metric"], seed)) for seed in payload["seeds"]]


Draws = list[list[Cell201]]
"""The cells that a method chose, one list a draw of scores. Those of one draw are nearly one observation."""


def hnas_cells(settings: Settings, metrics: Sequence[str], seeds: int) -> dict[str, Draws]:
    """The cells that HNAS finds, by metric: 5 draws of scores, ``seeds / 5`` searches on each (at least one).

    Args:
        settings: images, folder, executor and progress.
        metrics: each searched with.
        seeds: searches a metric.
    """
    draws = min(5, seeds)
    pool_of, items = classes()[0], []
    live = np.array([NASBENCH201.is_connected(cell) for cell in pool_of])
    texts = [str(cell) for cell, keep in zip(pool_of, live, strict=True) if keep]
    for draw in range(draws):
        scores = space_scores(settings, draw)
        share = [seed for seed in range(seeds) if seed % draws == draw]
        for metric, start in product(metrics, range(0, len(share), 5)):
            payload = {
                "pool": texts,
                "metric": metric,
                "metric_values": scores[metric][live].tolist(),
                "kappa": scores["kappa"][live].tolist(),
                "seeds": share[start : start + 5],
            }
            rooted = ":root" * (metric in ROOTED)
            items.append(Item(f"{draw}:{metric}:{share[start]}:{len(share[start : start + 5])}{rooted}", payload))
    images = re.sub(r"[^A-Za-z0-9]+", "-", Path(settings.images().spec).stem)
    log = ItemLog(settings.folder.parent / "hnas" / f"{images}.jsonl")
    with settings.progress.task("HNAS searches", len(items), sum(item.key in log.done for item in items)) as bar:
        found = run_items(settings.executor, hnas_searches, items, log, Stop(), bar)
    cells: dict[str, Draws] = {metric: [[] for _ in range(draws)] for metric in metrics}
    for item in items:
        number, metric, *_ = item.key.split(":")
        cells[metric][int(number)] += [NASBENCH201.parse(text) for text in found[item.key]]
    return cells


def table_search(method: type[ProposalSearch], seed: int, evaluations: int, **options: Any) -> list[Evaluated]:
    """What a registered baseline looks at on the table, without a run folder.

    Args:
        method: that proposes.
        seed: of the search.
        evaluations: looks at the table.
        options: further ones of the method.
    """
    given = {"evaluations": evaluations, **options}
    configuration = Configuration(method=method.name, benchmark="nb201", seed=seed, options=given)
    prepared = method(Context(configuration, Run(Path("unused"), {}), Device("cpu", 1)))
    prepared.check()
    return evaluated(prepared.propose, evaluations)


@lru_cache(maxsize=1)
def load_compact_once() -> CompactTable:
    """The table, read once."""
    return load_compact()


def sampled_best(quality: NDArray[np.float64], seeds: int, sample: int = 1000) -> list[Cell201]:
    """For each seed the best by quality of some random connected cells: no evaluation is spent.

    Args:
        quality: of the classes, (4930,), higher is better.
        seeds: number of answers.
        sample: cells that each is the best of.
    """
    cells, member = classes()
    everything = all_operations()
    found = []
    for seed in range(seeds):
        drawn = np.random.default_rng([seed, 11]).choice(len(everything), size=sample, replace=False)
        drawn = np.array([i for i in drawn if NASBENCH201.is_connected(cells[member[i]])])
        found.append(cell_of(everything[drawn[quality[member[drawn]].argmax()]]))
    return found


def training_free_cells(settings: Settings, seeds: int) -> dict[str, Draws]:
    """Baselines that only score: NASWOT, TE-NAS' sum of ranks, KNAS, and the best of the whole space by each metric.

    Args:
        settings: images, cache, executor and progress.
        seeds: answers of each baseline that samples.
    """
    draws = min(5, seeds)
    found: dict[str, Draws] = {}
    for draw in range(draws):
        scores = space_scores(settings, draw)
        # Every image has a linear region of its own even in these small networks; how different the patterns are
        # (naswot's log-determinant) stands in for their number.
        ranks = rankdata(-scores["kappa"]) + rankdata(scores["naswot"])
        count = seeds // draws
        for label, quality in (
            ("naswot, 1000 sampled", scores["naswot"]),
            ("te-nas, 1000 sampled", ranks),
            ("knas, 1000 sampled", scores["knas"]),
        ):
            found.setdefault(label, []).append(sampled_best(quality, count))
        for metric in METRICS:
            found.setdefault(f"best score {metric}", []).append([classes()[0][int(scores[metric].argmax())]])
    return found


def accuracy_rows(
    cells: Mapping[str, Draws], paper: Mapping[str, Sequence[float]], spent: Mapping[str, int]
) -> list[Row]:
    """Mean and deviation over draws of the mean test accuracy of a draw's cells, and the evaluations spent.

    Args:
        cells: by method; what depends on no scores has a draw for every search.
        paper: published accuracies by method, one a data set.
        spent: evaluations by method; none where it is not in there.
    """
    table = load_compact_once()
    rows = []
    for label, chosen in cells.items():
        tests = np.array([tests_of(one, table).mean(axis=0) for one in chosen])
        for column, name in enumerate(DATASETS):
            known = paper[label][column] if label in paper else None
            rows.append(Row.of(f"{label} {name}", "% test accuracy", known, tests[:, column].tolist()))
        rows.append(Row(f"{label} evaluations", "evaluations", None, spent.get(label, 0)))
    return rows


@needs("nb201")
def table_7_3(settings: Settings) -> Outcome:
    """HNAS with the four gradient metrics, and baselines, searched on CIFAR-10's 12-epoch validation accuracy."""
    seeds = settings.seeds or 10
    cells = {f"HNAS {metric}": found for metric, found in hnas_cells(settings, METRICS, seeds).items()}
    cells |= training_free_cells(settings, seeds)
    for label, method in (("random", RandomSearch), ("evolution", Evolution)):
        cells[label] = [[best_of(table_search(method, seed, EVALUATIONS))] for seed in range(seeds)]
    paper = {**BASELINES, **{f"HNAS {metric}": TABLE_7_13[metric] for metric in METRICS}}
    spent = {label: EVALUATIONS for label in cells if label.startswith(("HNAS", "random", "evolution"))}
    rows = accuracy_rows(cells, paper, spent)
    rows += [
        Row(f"optimum {name}", "% test accuracy", best, best) for name, best in zip(DATASETS, OPTIMUM, strict=True)
    ]
    return Outcome(
        scale=f"{PROXY_SCALE}; {seeds} seeds ({min(5, seeds)} draws of scores), {EVALUATIONS} evaluations",
        rows=rows,
        notes=[
            settings.images_note(),
            "the thesis' random search and evolution spent 12,000 GPU seconds; here they get HNAS' evaluations",
            "grasp is the absolute value of eq. 7.3",
            "te-nas: ranks of kappa and of naswot, because the number of linear regions saturates at the batch size",
            OVER_DRAWS,
        ],
    )


@needs("nb201")
def table_7_13(settings: Settings) -> Outcome:
    """HNAS with every metric."""
    seeds = settings.seeds or 5
    found = hnas_cells(settings, tuple(TABLE_7_13), seeds)
    cells = {f"HNAS {metric}": chosen for metric, chosen in found.items()}
    paper = {f"HNAS {metric}": values for metric, values in TABLE_7_13.items()}
    return Outcome(
        scale=f"{PROXY_SCALE}; {seeds} seeds ({min(5, seeds)} draws of scores), {EVALUATIONS} evaluations",
        rows=accuracy_rows(cells, paper, dict.fromkeys(cells, EVALUATIONS)),
        notes=[settings.images_note(), "the thesis' naswot is a linear kernel; ours is the Hamming kernel", OVER_DRAWS],
    )
