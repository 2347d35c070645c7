"""Figures 7.3 and 7.5 of the thesis: HNAS on NAS-Bench-201 by the evaluations that it has spent.

Figure 7.3 is the test error of what it would answer, beside other searches; figure 7.5 how well the objective that it
would answer by orders all cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.methods.baselines import Evolution, RandomSearch
from archwright.methods.hnas import LOG_MU, QUANTILES, BoostedPool, make_objective
from archwright.proxies.score import Scores
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.thesis7 import (
    OPTIMUM,
    PROXY_SCALE,
    TABLE_7_13,
    best_of,
    classes,
    evaluated,
    score_space,
    spearman,
    table_search,
    tests_of,
)
from archwright.runs.files import save_figure
from archwright.search.evaluator import Evaluated
from archwright.search.proposals import Propose
from archwright.spaces.nasbench201 import NASBENCH201, Cell201
from archwright.tables.nasbench201 import load_compact

EVALUATIONS = 50
SHOWN = (1, 5, 10, 20, 50)
"""Evaluations after which the table has a row; the figure has all."""
DRAWS = 3
"""Draws of scores; several searches share one, whose mean is one observation."""
SCORED = ("HNAS", "zero-cost")
"""Searches that depend on a draw of scores."""
SMALL_POPULATION = {"population": 10, "sample": 5}
"""Of evolution: with its default of 20 it would only begin after the twentieth evaluation."""


@needs("nb201")
def figure_7_3(settings: Settings) -> Outcome:
    """CIFAR-10 test error of the best cell so far by 12-epoch validation accuracy, after each evaluation."""
    seeds = settings.seeds or 10
    histories: dict[str, list[list[Evaluated]]] = {"HNAS": [], "zero-cost": [], "random": [], "evolution": []}
    for seed in range(seeds):
        pool, scores = live_scores(settings, seed % DRAWS)
        boosted = BoostedPool(pool, make_objective(scores, "trace", "square"), seed, probes=5)
        histories["HNAS"].append(evaluated(boosted.propose, EVALUATIONS))
        drawn = np.random.default_rng([seed, 73]).permutation(len(pool))[:1000]
        best_first = [pool[index] for index in drawn[np.argsort(-scores["trace"][drawn], kind="stable")]]
        histories["zero-cost"].append(evaluated(in_order(best_first), EVALUATIONS))
        histories["random"].append(table_search(RandomSearch, seed, EVALUATIONS))
        histories["evolution"].append(table_search(Evolution, seed, EVALUATIONS, **SMALL_POPULATION))
    curves = {label: error_curves(searches) for label, searches in histories.items()}
    curves |= {label: by_draw(curves[label]) for label in SCORED}
    rows = []
    for label, errors in curves.items():
        for spent in SHOWN:
            paper = round(100 - TABLE_7_13["trace"][0], 2) if (label, spent) == ("HNAS", 20) else None
            rows.append(Row.of(f"{label} after {spent}", "% test error", paper, errors[:, spent - 1].tolist()))
    rows.append(Row("optimum", "% test error", round(100 - OPTIMUM[0], 2), round(100 - OPTIMUM[0], 2)))
    notes = [
        settings.images_note(),
        "the thesis shows the figure without numbers; HNAS after 20 is that of table 7.3",
        "zero-cost: the best by trace of 1,000 random cells, evaluated in that order (Abdelfattah et al., 2021)",
        "deviations are over draws of scores, of random and evolution over searches",
        f"evolution: population {SMALL_POPULATION['population']}, tournaments of {SMALL_POPULATION['sample']}",
    ]
    scale = f"{PROXY_SCALE}; {seeds} seeds ({min(DRAWS, seeds)} draws of scores), {EVALUATIONS} evaluations"
    return Outcome(scale, rows, notes, plot=lambda path: plot_curves(curves, path))


@needs("nb201")
def figure_7_5(settings: Settings) -> Outcome:
    """Spearman correlation with test accuracy of eq. 7.7 by the mu and nu of the best cell so far, by evaluations."""
    seeds, table = settings.seeds or 10, load_compact()
    curves, references = list[NDArray[np.float64]](), dict[str, list[float]]()
    for seed in range(seeds):
        pool, scores = live_scores(settings, seed % DRAWS)
        accuracy = tests_of(pool, table)[:, 0]
        boosted = BoostedPool(pool, make_objective(scores, "trace", "square"), seed, probes=5)
        history = evaluated(boosted.propose, EVALUATIONS)
        curves.append(orders(boosted, history, accuracy))
        if seed < DRAWS:
            tried = [spearman(-boosted.objective.values(*one), accuracy) for one in product(*grid())]
            for label, value in {
                "trace alone": spearman(scores["trace"], accuracy),
                "best of a grid": max(tried),
                "mean of a grid": float(np.mean(tried)),
            }.items():
                references.setdefault(label, []).append(value)
    found = by_draw(np.array(curves))
    rows = [Row.of(f"after {spent}", "Spearman", None, found[:, spent - 1].tolist()) for spent in SHOWN]
    gained = found[:, -1] - found[:, 0]
    rows.append(Row.of(f"after {EVALUATIONS} less after 1", "Spearman", None, gained.tolist()))
    rows += [Row.of(label, "Spearman", None, values) for label, values in references.items()]
    notes = [
        settings.images_note(),
        "the thesis shows a rising curve without numbers; cells are those whose input and output are connected",
        "the best so far is by 12-epoch validation accuracy, the correlation is with 200-epoch test accuracy",
    ]
    scale = f"{PROXY_SCALE}; {seeds} seeds ({min(DRAWS, seeds)} draws of scores), {EVALUATIONS} evaluations, trace"
    return Outcome(scale, rows, notes, plot=lambda path: plot_orders(found, references, path))


def grid() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Values of log10 mu and of nu's quantile that a search may come to."""
    return np.linspace(*LOG_MU, 13), np.linspace(*QUANTILES, 11)


def orders(boosted: BoostedPool, history: Sequence[Evaluated], accuracy: NDArray[np.float64]) -> NDArray[np.float64]:
    """After each evaluation, the correlation of the objective that proposed the best cell so far, (evaluations,).

    Args:
        boosted: that proposed them.
        history: evaluations.
        accuracy: of the pool's cells on test, (A,).
    """
    best = [best_of(history[: spent + 1]) for spent in range(len(history))]
    found = {cell: spearman(-boosted.objective.values(*boosted.tried[cell]), accuracy) for cell in set(best)}
    return np.array([found[cell] for cell in best])


def plot_orders(curves: NDArray[np.float64], references: dict[str, list[float]], path: Path) -> None:
    """The mean curve with its standard error, and lines for what it can be compared with.

    Args:
        curves: correlations (draws, evaluations).
        references: correlations by label.
        path: of the image.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    spent, mean = np.arange(1, curves.shape[1] + 1), curves.mean(axis=0)
    error = curves.std(axis=0, ddof=min(1, len(curves) - 1)) / np.sqrt(len(curves))
    axes.plot(spent, mean, label="HNAS")
    axes.fill_between(spent, mean - error, mean + error, alpha=0.2)
    for number, (label, values) in enumerate(references.items()):
        axes.axhline(float(np.mean(values)), linestyle="--", color=f"C{number + 1}", label=label)
    axes.set_xlabel("evaluations")
    axes.set_ylabel("Spearman correlation with test accuracy")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    save_figure(figure, path)


def by_draw(curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means (draws, evaluations) of the searches (searches, evaluations) that share a draw of scores."""
    return np.array([curves[draw::DRAWS].mean(axis=0) for draw in range(min(DRAWS, len(curves)))])


def in_order(cells: Sequence[Cell201]) -> Propose:
    """Propose one cell after another."""
    return lambda history, number: cells[number]


def live_scores(settings: Settings, draw: int) -> tuple[list[Cell201], Scores]:
    """The connected classes of cells, (A,), and their trace and kappa in one draw.

    Args:
        settings: images, cache, executor and progress.
        draw: its number.
    """
    cells, _ = classes()
    scores = score_space(settings, ("trace", "kappa"), draw)
    live = np.array([NASBENCH201.is_connected(cell) for cell in cells])
    kept = Scores(scores.metrics, scores.directions, scores.values[live], scores.standard_errors[live])
    return [cell for cell, keep in zip(cells, live, strict=True) if keep], kept


def error_curves(searches: Sequence[Sequence[Evaluated]]) -> NDArray[np.float64]:
    """Test error of the best so far, (searches, evaluations)."""
    table = load_compact()
    chosen = [[best_of(history[: spent + 1]) for spent in range(len(history))] for history in searches]
    return np.array([100 - tests_of(cells, table)[:, 0] for cells in chosen])


def plot_curves(curves: dict[str, NDArray[np.float64]], path: Path) -> None:
    """Means with their standard errors over the evaluations.

    Args:
        curves: errors (seeds, evaluations) in percent, by label.
        path: of the image.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for label, errors in curves.items():
        spent, mean = np.arange(1, errors.shape[1] + 1), errors.mean(axis=0)
        error = errors.std(axis=0, ddof=min(1, len(errors) - 1)) / np.sqrt(len(errors))
        axes.plot(spent, mean, label=label)
        axes.fill_between(spent, mean - error, mean + error, alpha=0.2)
    axes.set_xlabel("evaluations")
    axes.set_ylabel("CIFAR-10 test error of the best so far, %")
    axes.set_ylim(top=min(axes.get_ylim()[1], 12))
    axes.legend()
    axes.grid(alpha=0.3)
    save_figure(figure, path)
