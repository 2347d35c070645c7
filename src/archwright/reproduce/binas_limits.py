"""What many limits cost: BINAS' supernet beside one training a limit, total time for 1, 3, 10 and 30 latency limits.

The paper's plan pays for its supernet once, and every further limit costs a solution and a fine-tuning: one run is
asked for more and more limits, and its working time is read after each. Beside, the network of every limit is trained
from scratch, as somebody without a supernet would. Accuracies of both stand beside their times, for a cheap answer that
is worse is no saving. The fast plan's time is what it is given (--minutes), whatever the number of limits.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished, name_of
from archwright.runs.run import ItemLog, Run
from archwright.search.answer import Answer
from archwright.search.engine import resume
from archwright.search.training import train

COUNTS = (1, 3, 10, 30)
"""Limits that are asked for in all."""
SEARCH: dict[str, Any] = {
    "plan": "paper",
    "image_size": 16,
    "epochs": 12,
    "supernet_epochs": 16,
    "final_epochs": 3,
    "rank_networks": 0,
    "rows": 100_000,
    "rounds": 0,
    "threads": 1,
    "beside": False,
}
SCRATCH_EPOCHS = 12
"""Of one network from scratch: as many as the supernet's heaviest network has."""
LOOSE_MS = 1000.0
"""The first limit: met by every network."""


def spread_limits(latencies: Sequence[float], count: int) -> list[float]:
    """``count`` limits between the quickest and the slowest network of a front, the slowest left out.

    Args:
        latencies: of the front's networks, in milliseconds.
        count: how many.
    """
    low, high = 1.02 * min(latencies), max(latencies)
    return [float(one) for one in np.geomspace(low, max(low, high), count + 1)[:-1]]


def asked_in_turn(settings: Settings, seed: int) -> tuple[Answer, dict[int, float]]:
    """One search that is asked for more and more limits; the last answer, and working seconds by number of limits.

    Args:
        settings: folder, images and progress.
        seed: of the search.
    """
    given = {**SEARCH, "data": settings.images().spec, "seed": seed, "limits": {"latency_ms": [LOOSE_MS]}}
    folder = settings.folder / f"search-{seed}"
    log = ItemLog(settings.folder / f"spent-{seed}.jsonl")
    answer = finished(folder, "binas", settings.progress, **given)
    if "1" not in log.done:
        latencies = [float(one.latency_ms) for one in answer.front if one.latency_ms is not None]
        log.record("limits", spread_limits(latencies, max(COUNTS) - 1))
        log.record("1", answer.seconds)
    limits = np.random.default_rng(seed).permutation(log.done["limits"]).tolist()
    for before, count in itertools.pairwise(COUNTS):
        if str(count) not in log.done:
            answer = resume(folder, latency_ms=limits[before - 1 : count - 1], progress=settings.progress)
            log.record(str(count), answer.seconds)
    return answer, {count: float(log.done[str(count)]) for count in COUNTS}


def from_scratch(settings: Settings, answer: Answer, seed: int) -> list[tuple[float, float, float]]:
    """Of every answered limit: test accuracy with the supernet's weights, that from scratch, and the latter's seconds.

    Args:
        settings: folder and images.
        answer: of the search.
        seed: of the trainings.
    """
    found, scale = [], Run.open(answer.folder).configuration.get("scale")
    for model in answer.models:
        folder = settings.folder / f"scratch-{seed}" / name_of({"architecture": model.architecture})
        own = {"space": "mbconv", "scale": scale, "image_size": SEARCH["image_size"]}
        if (folder / "run.json").exists():
            alone = resume(folder)
        else:
            data = settings.images().spec
            how: dict[str, Any] = {"seed": seed, "epochs": SCRATCH_EPOCHS, "threads": 1, "onnx": False}
            alone = train(model.architecture, data=data, run=folder, yes=True, **own, **how)
        found.append((float(model.accuracy or 0), float(alone.best.accuracy or 0), alone.seconds))
    return found


def pays_from(totals: dict[int, float], each: float) -> float | None:
    """Number of limits from which one supernet takes less than a training a limit; None where it never does.

    Args:
        totals: seconds of the supernet's run by number of limits.
        each: seconds of one training.
    """
    counts = np.array(list(totals))
    slope, start = np.polyfit(counts, list(totals.values()), 1)
    return float(max(1.0, start / (each - slope))) if each > slope else None


@needs()
def binas_limits(settings: Settings) -> Outcome:
    """Total seconds by number of limits, with accuracies, and where the supernet begins to pay."""
    seeds = settings.seeds or 1
    totals: dict[int, list[float]] = {count: [] for count in COUNTS}
    alone: list[list[tuple[float, float, float]]] = []
    begins = list[float | None]()
    for seed in range(seeds):
        answer, spent = asked_in_turn(settings, seed)
        alone.append(from_scratch(settings, answer, seed))
        for count, seconds in spent.items():
            totals[count].append(seconds)
        begins.append(pays_from(spent, float(np.mean([one[2] for one in alone[-1]]))))
    each = [float(np.mean([one[2] for one in several])) for several in alone]
    rows = [Row.of(f"supernet, {count} limits", "s", None, values) for count, values in totals.items()]
    rows += [Row.of(f"one training a limit, {n} limits", "s", None, [n * one for one in each]) for n in COUNTS]
    for place, what in enumerate(("supernet's weights, fine-tuned", "from scratch")):
        means = [float(np.mean([one[place] for one in several])) for several in alone]
        rows.append(Row.of(f"mean accuracy over the limits, {what}", "% on test", None, means))
    known = [one for one in begins if one is not None]
    rows.append(
        Row.of("limits from which the supernet takes less time", "limits", None, known)
        if len(known) == seeds
        else Row("limits from which the supernet takes less time", "limits", None, None)
    )
    notes = [
        settings.images_note(),
        f"supernet: {SEARCH['epochs']} + {SEARCH['supernet_epochs']} epochs, {SEARCH['final_epochs']} of fine-tuning",
        f"from scratch: the same architectures, {SCRATCH_EPOCHS} epochs each",
        "seconds are working time of one thread, so that a busy machine makes all of them longer",
        "a row without a number: a training takes less than a further limit of the supernet, which then never pays",
        "the fast plan takes the minutes it is given whatever the limits; binas-compare has its accuracies",
        "the paper: 435 GPU hours once, and 8 more for each network",
    ]
    return Outcome(f"mbconv at {SEARCH['image_size']} px, {max(COUNTS)} latency limits, {seeds} seed(s)", rows, notes)
