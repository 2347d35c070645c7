"""Searches in the DARTS space that a table can judge: 500 random cells with real accuracies (for tables 6.2 and 7.7).

Two epochs of training tell no cell from another, and hundreds are out of reach here. So every search chooses from a
pool of these cells and evaluates a few of them, by the accuracy that the publisher's training reached; its regret is
how far the best it saw is below the best of the pool. Arms that only score evaluate the best by their score. HNAS
boosts the same scores, so that the two rows of a score say what boosting adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from archwright.methods.hnas import BoostedPool, make_objective
from archwright.proxies.score import Scores
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.proxies import darts_scores, darts_table, predictions
from archwright.search.evaluator import Evaluated
from archwright.spaces.cells import CellPair

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EVALUATIONS = 8
POOLS = 50
POOLED = 250
DRAWS = 3
PROBES = 4
"""First evaluations of HNAS, on a grid; with eight there is no room for more."""
SCORED = ("params", "macs", "paths", "consensus", "az-nas", "trace", "grad", "snip")
"""Scores whose best cells are evaluated."""
BOOSTED = ("trace", "grad", "snip", "params", "paths")
"""Scores that HNAS takes as M."""
Seen = Callable[[Ints], Ints]
"""The cells of a pool that an arm looks at."""


def nasi_reward(trace: Floats) -> Floats:
    """NASI's reward with mu = 2 and nu the mean (eq. 6.14): rises up to nu, falls beyond, (n,)."""
    squared = trace**2
    reward: Floats = squared - 2 * np.maximum(0.0, squared - squared.mean())
    return reward


def best_first(quality: Floats) -> Seen:
    """Look at the best of a pool by a score."""
    return lambda pool: pool[np.argsort(-quality[pool], kind="stable")[:EVALUATIONS]]


def boosted(cells: Sequence[CellPair], accuracy: Floats, metric: Floats, kappa: Floats, name: str, seed: int) -> Seen:
    """Look at what HNAS proposes.

    Args:
        cells: all of them.
        accuracy: (n,).
        metric: M, (n,).
        kappa: (n,).
        name: of the metric.
        seed: of the proposals.
    """

    def look(pool: Ints) -> Ints:
        values = np.stack([metric[pool], kappa[pool]], axis=1)
        scores = Scores((name, "kappa"), np.array([1, -1]), values, np.zeros_like(values))
        search = BoostedPool([cells[i] for i in pool], make_objective(scores, name, "square"), seed, PROBES)
        number_of = {cells[i]: int(i) for i in pool}
        history: list[Evaluated] = []
        for number in range(EVALUATIONS):
            cell = search.propose(history, number)
            assert isinstance(cell, CellPair)
            history.append(Evaluated(cell, float(accuracy[number_of[cell]])))
        return np.array([number_of[one.architecture] for one in history if isinstance(one.architecture, CellPair)])

    return look


def regrets(arms: Mapping[str, Seen], accuracy: Floats, draw: int) -> dict[str, float]:
    """Mean over pools of each arm's regret in points.

    Args:
        arms: by name.
        accuracy: of all cells, (n,).
        draw: which pools.
    """
    lost: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(POOLS):
        size = min(POOLED, len(accuracy) // 2)
        pool = np.random.default_rng([draw, number]).permutation(len(accuracy))[:size]
        for name, look in arms.items():
            lost[name].append(float(accuracy[pool].max() - accuracy[look(pool)].max()))
    return {name: float(np.mean(values)) for name, values in lost.items()}


def arms_of(cells: Sequence[CellPair], accuracy: Floats, scores: Scores, draw: int) -> dict[str, Seen]:
    """All arms with one draw of scores.

    Args:
        cells: of the table.
        accuracy: theirs, (n,).
        scores: theirs, with kappa.
        draw: its number.
    """
    quality = predictions(scores)
    rng = np.random.default_rng([draw, 99])
    arms: dict[str, Seen] = {"random": lambda pool: rng.permutation(pool)[:EVALUATIONS]}
    arms |= {f"best by {name}": best_first(quality[name]) for name in SCORED if name in quality}
    arms["best by NASI's reward"] = best_first(nasi_reward(scores["trace"]))
    for name in BOOSTED:
        if name in quality:
            metric = quality[name] if name not in scores.metrics else scores[name]
            positive = metric if (metric >= 0).all() else np.exp(metric - metric.max())
            arms[f"HNAS {name}"] = boosted(cells, accuracy, positive, scores["kappa"], name, draw)
    return arms


@needs()
def darts_searches(settings: Settings) -> Outcome:
    """Regret of every arm, mean over pools, deviation over draws of scores."""
    draws = settings.seeds or DRAWS
    cells, accuracy = darts_table(settings.architectures)
    found: dict[str, list[float]] = {}
    with settings.progress.task("draws of scores", draws) as bar:
        for draw in range(draws):
            arms = arms_of(cells, accuracy, darts_scores(settings, cells, draw), draw)
            for name, lost in regrets(arms, accuracy, draw).items():
                found.setdefault(name, []).append(lost)
            bar.advance()
    rows = [Row.of(name, "points of regret", None, values) for name, values in found.items()]
    notes = [
        settings.images_note(),
        f"{POOLS} pools of half of the cells a draw, {EVALUATIONS} evaluations a search; n is the number of draws",
        "accuracies are those of the publisher's small networks on CIFAR-10",
        "a row 'best by' a score and a row 'HNAS' with it: what boosting adds to a good score and to a poor one",
        "'paths' was chosen on some of these cells (see proxies-darts)",
    ]
    return Outcome(f"{len(cells)} cells of the DARTS space; {draws} draws", rows, notes)
