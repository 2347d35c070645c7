"""Arms of a comparison: every arm of every seed is one work item, kept when it is finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.execution.base import Item, run_items
from archwright.reproduce.base import Row, Settings
from archwright.runs.files import Json
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop

Accuracies = dict[str, NDArray[np.float64]]
"""By arm, (seeds, limits); NaN where nothing of the arm keeps the limit. An arm may have the first seed alone."""


def run_arms(
    settings: Settings,
    folder: Path,
    arms: Sequence[str],
    seeds: int,
    shared: Json,
    work: Callable[[Json, Stop], Json],
    what: str = "accuracies",
    behind: float | None = None,
) -> Accuracies:
    """Accuracies of every arm, (seeds, limits); the first arm is whole before the others start, which build on it.

    With ``behind``, all arms have their first seed before the others' further ones, of which those get none that are
    further behind the first arm, at every limit that they keep: seeds differ by a point or two.

    Args:
        settings: executor and progress.
        folder: of what is finished; its name is the data set's.
        arms: their names.
        seeds: number of seeds of each arm.
        shared: payload of all items beside arm, seed and folder.
        work: of an item; returns ``what``, and maybe more.
        what: of its result is wanted, a number a limit.
        behind: points of accuracy; None: all arms get all seeds.
    """
    own = {"folder": str(folder), **shared}
    log = ItemLog(folder / "finished.jsonl")
    found = {arm: list[list[float | None]]() for arm in arms}

    def run(names: Sequence[str], of_seeds: range) -> None:
        asked = [(f"{arm} seed {seed}", arm, seed) for arm, seed in product(names, of_seeds)]
        items = [Item(key, {"arm": arm, "seed": seed, **own}) for key, arm, seed in asked]
        done = sum(item.key in log.done for item in items)
        with settings.progress.task(f"{folder.name}: arms", len(items), done) as bar:
            results = run_items(settings.executor, work, items, log, Stop(), bar)
        for key, arm, _ in asked:
            found[arm].append(results[key][what])

    first, others = arms[0], list(arms[1:])
    run([first], range(seeds))
    run(others, range(1))
    if behind is not None:
        others = [arm for arm in others if not far_behind(found[first][0], found[arm][0], behind)]
    run(others, range(1, seeds))
    return {arm: np.array(values, dtype=float) for arm, values in found.items()}


def far_behind(ours: Sequence[float | None], theirs: Sequence[float | None], points: float) -> bool:
    """Whether ``theirs`` is more than ``points`` less than ``ours`` wherever there is a value of both.

    Args:
        ours: accuracies of one seed, in percent.
        theirs: the same of another arm; None where nothing of it keeps a limit.
        points: of accuracy.
    """
    gaps = np.array(ours, dtype=float) - np.array(theirs, dtype=float)
    return bool((gaps[~np.isnan(gaps)] > points).all())


def row_of(label: str, values: NDArray[np.float64]) -> Row:
    """A row called ``label`` of test accuracies ``values`` (seeds,); empty where nothing of an arm keeps the limit."""
    known = not np.isnan(values).any()
    return Row.of(label, "% on test", None, values.tolist()) if known else Row(label, "% on test", None, None)


def limit_rows(name: str, arm: str, values: NDArray[np.float64]) -> list[Row]:
    """A row a limit, of the accuracies of one arm.

    Args:
        name: of the data set.
        arm: name of the arm.
        values: (seeds, limits), in percent.
    """
    return [row_of(f"{arm} {name} limit {number}", own) for number, own in enumerate(values.T, 1)]


def mean_gain(gains: NDArray[np.float64]) -> str:
    """The mean of ``gains`` (seeds,) with its standard error."""
    error = f" ± {gains.std(ddof=1) / np.sqrt(len(gains)):.2f}" if len(gains) > 1 else ""
    return f"{gains.mean():+.2f}{error}"


def arm_rows(name: str, accuracies: Accuracies) -> list[Row]:
    """A row an arm and limit, and one of the mean over the limits.

    Args:
        name: of the data set.
        accuracies: by arm, (seeds, limits), in percent.
    """
    rows = []
    for arm, values in accuracies.items():
        rows += [*limit_rows(name, arm, values), row_of(f"{arm} {name} mean", values.mean(1))]
    return rows


def standing(name: str, ours: str, limits: Sequence[float], accuracies: Accuracies) -> list[str]:
    """How one arm stands beside each other one: the mean difference and its standard error, and where it is worse.

    Args:
        name: of the data set.
        ours: the arm.
        limits: in milliseconds.
        accuracies: by arm, (seeds, limits), in percent; NaN where nothing of an arm keeps the limit.
    """
    notes = []
    for arm, values in accuracies.items():
        kept = ~np.isnan(values).any(0)
        if arm == ours or not kept.any():
            continue
        gains = accuracies[ours][: len(values)] - values
        where = "the limits" if kept.all() else "those of the limits that it keeps"
        alone = ", first seed" * (len(values) < len(accuracies[ours]))
        notes.append(
            f"{name}: {ours} is {mean_gain(gains[:, kept].mean(1))} points beside {arm}, mean over {where}{alone}"
        )
        notes += below(name, ours, arm, limits, gains)
    return notes


def below(name: str, ours: str, arm: str, limits: Sequence[float], gains: NDArray[np.float64]) -> list[str]:
    """Where an arm is worse than another by more than the standard error, limit by limit.

    Args:
        name: of the data set.
        ours: name of the arm.
        arm: name of the other.
        limits: in milliseconds.
        gains: of the first over the other, (seeds, limits), in points; NaN where nothing of that keeps the limit.
    """
    found = []
    for limit, own in zip(limits, gains.T, strict=True):
        error = own.std(ddof=1) / np.sqrt(len(own)) if len(own) > 1 else 0.0
        if own.mean() < -error:
            found.append(f"{name}: {ours} is BELOW {arm} within {limit:.3g} ms: {mean_gain(own)} points")
    return found
