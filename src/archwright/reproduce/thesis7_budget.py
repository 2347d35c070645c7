"""Figure 7.3 of the thesis: HNAS and other searches on NAS-Bench-201 by the evaluations they have spent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.methods.baselines import Evolution, RandomSearch
from archwright.methods.hnas import BoostedPool, make_objective
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
