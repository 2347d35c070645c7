"""Table 5.6 of the thesis: errors of ensembles as a supernet estimates them against those after training from scratch.

The thesis asks ten architectures, whose correlation has a sign by chance. Here thirty are trained once, ensembles of
them are drawn, several supernets estimate each by cross entropy, and two thirds of the architectures at a time say how
far a correlation depends on which they are. n = 1 on many more cells, against a table, is ``thesis-5.6-supernet``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import pearsonr, spearmanr

from archwright.methods.nesbs_ensembles import Inherited, distinct, mean_loss
from archwright.models import Model
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.thesis5 import NOTE_PAPER, SEEDS, Kept, scale_text
from archwright.solvers.svgd import Floats, ensemble_error
from archwright.supernets.posterior import Sampler

ESTIMATED, SIZES = 30, (1, 3, 5, 7)
"""Architectures that are trained, and members of an ensemble."""
GROUPS = 400
"""Ensembles of a size at most; all of them where there are fewer."""
SUBSETS = 100
"""Choices of two thirds of the architectures behind an interval."""
TABLE_5_6 = {1: (0.65, 0.82, 33.0), 3: (0.33, 0.45, 20.0), 5: (0.40, 0.45, 31.0), 7: (-0.12, -0.16, 25.0)}
NAMES = ("Spearman", "Pearson", "Agreement-30%")

Measure = Callable[[Sequence[Floats], NDArray[np.int64]], float]


def groups_of(places: Sequence[int], size: int, rng: np.random.Generator, most: int = GROUPS) -> list[tuple[int, ...]]:
    """Different ensembles of ``size`` out of ``places``: all, or ``most`` random ones.

    Args:
        places: numbers of the architectures.
        size: members.
        rng: of the draws.
        most: ensembles.
    """
    if comb(len(places), size) <= most:
        return list(itertools.combinations(places, size))
    found: dict[tuple[int, ...], None] = {}
    while len(found) < most:
        found[tuple(sorted(rng.choice(places, size, replace=False).tolist()))] = None
    return list(found)


def agreement(estimated: Sequence[float], true: Sequence[float]) -> tuple[float, float, float]:
    """Spearman and Pearson correlation (0 where one side is constant), and the share of both best 30 % in percent.

    Args:
        estimated: of the ensembles, lower is better.
        true: of the same.
    """
    constant = len(set(estimated)) == 1 or len(set(true)) == 1
    top = max(1, round(0.3 * len(true)))
    both = set(np.argsort(estimated, kind="stable")[:top]) & set(np.argsort(true, kind="stable")[:top])
    if constant:
        return 0.0, 0.0, 100 * len(both) / top
    rank, linear = spearmanr(estimated, true).statistic, pearsonr(estimated, true).statistic
    return float(rank), float(linear), 100 * len(both) / top


def compared(
    estimated: Sequence[Floats], true: Sequence[Floats], labels: NDArray[np.int64], groups: Sequence[tuple[int, ...]]
) -> tuple[float, float, float]:
    """How the cross entropy of ensembles with a supernet's weights agrees with their true error.

    Args:
        estimated: class probabilities (images, classes) of each architecture with the supernet's weights.
        true: the same after training.
        labels: (images,).
        groups: members of each ensemble.
    """
    pairs = [
        [measure([part[i] for i in group], labels) for group in groups]
        for measure, part in ((mean_loss, estimated), (ensemble_error, true))
    ]
    return agreement(*pairs)


def spread(
    estimated: Sequence[Floats], true: Sequence[Floats], labels: NDArray[np.int64], size: int
) -> tuple[float, float]:
    """The middle 90 % of the rank correlation over choices of two thirds of the architectures.

    Args:
        estimated: class probabilities with the supernet's weights, by architecture.
        true: the same after training.
        labels: (images,).
        size: members of an ensemble.
    """
    rng, found = np.random.default_rng(0), []
    for _ in range(SUBSETS):
        some = rng.permutation(len(true))[: max(size, 2 * len(true) // 3)].tolist()
        found.append(compared(estimated, true, labels, groups_of(some, size, rng, 60))[0])
    low, high = np.quantile(found, (0.05, 0.95))
    return float(low), float(high)


def halves(estimated: Sequence[Floats], labels: NDArray[np.int64], measure: Measure) -> float:
    """Spearman of what ``measure`` says of each architecture on every other image and on the rest; 0 if constant.

    Args:
        estimated: class probabilities (images, classes) of each architecture.
        labels: (images,).
        measure: of an ensemble.
    """
    first, second = ([measure([one[half::2]], labels[half::2]) for one in estimated] for half in (0, 1))
    return agreement(first, second)[0]


def trained_probabilities(model: Model, inherited: Inherited) -> Floats:
    """Class probabilities of a trained ``model`` on the images of ``inherited``, in their order."""
    parts = [model.probabilities(images.cpu()).numpy() for images, _ in inherited.batches]
    return np.concatenate(parts).astype(np.float64)


@needs()
def table_5_6(settings: Settings) -> Outcome:
    """Estimated (cross entropy, inherited weights) against true test errors of ensembles, over several supernets."""
    seeds = settings.seeds or SEEDS
    first = Kept(settings, 0)
    space = first.method(sampler="uniform").space
    rng, uniform = np.random.default_rng(0), Sampler(space)
    pool = distinct(space, (uniform.monte_carlo(rng) for _ in range(100 * ESTIMATED)), ESTIMATED)
    groups = {size: groups_of(range(len(pool)), size, np.random.default_rng(size)) for size in SIZES}
    values: dict[tuple[int, str], list[float]] = {}
    agreed: dict[str, list[float]] = {}
    notes: list[str] = []
    true: list[Floats] = []
    measures: dict[str, Any] = {"cross entropy": mean_loss, "right or wrong": ensemble_error}
    for seed in range(seeds):
        inherited = Kept(settings, seed).method(sampler="uniform").inherited("test")
        true = true or [trained_probabilities(first.trained(one), inherited) for one in pool]
        estimated = [inherited.of(one) for one in pool]
        for size in SIZES:
            found = compared(estimated, true, inherited.labels, groups[size])
            for name, value in zip(NAMES, found, strict=True):
                values.setdefault((size, name), []).append(value)
            low, high = spread(estimated, true, inherited.labels, size)
            notes.append(
                f"n = {size}, supernet {seed}: Spearman {found[0]:.2f}, 90 % of subsets {low:.2f} to {high:.2f}"
            )
        for name, measure in measures.items():
            agreed.setdefault(name, []).append(halves(estimated, inherited.labels, measure))
    rows = [Row.of(f"halves of the images agree, {name}", "correlation", None, one) for name, one in agreed.items()]
    for (size, name), several in values.items():
        place = NAMES.index(name)
        paper = TABLE_5_6[size][place] if size in TABLE_5_6 else None
        rows.append(Row.of(f"n = {size} {name}", "%" if place == 2 else "correlation", paper, several))
    notes += [
        settings.images_note(),
        NOTE_PAPER,
        f"{len(pool)} architectures, trained once; at most {GROUPS} ensembles a size; deviations are between supernets",
        "estimated: cross entropy with the supernet's weights; true: error after training; both on the test images",
        "subsets: two thirds of the architectures; halves: Spearman of estimates on two halves of the images",
    ]
    return Outcome(scale_text(seeds), rows, notes)
