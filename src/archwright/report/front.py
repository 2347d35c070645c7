"""Accuracy against cost in a picture: the front, the chosen networks, what was tried beside them, and the limits."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

from archwright.costs.limits import RESOURCES
from archwright.report.charts import Mark, scatter
from archwright.search.answer import Answer, Beside, Candidate

COSTS = ("latency_ms", "params", "macs", "memory_bytes")
"""What networks may be placed by, those with a limit before the others."""
HEIGHTS = {
    "accuracy": "as tested",
    "predicted_accuracy": "as predicted (the front is exact for the predictor)",
    "validation_accuracy": "by validation accuracy",
}
"""What a front's accuracies may be, the best known first, and how the page says so."""
TRIED = "validation_accuracy"
"""The height of a front whose networks were trained on the way to the answer."""


def front_chart(answer: Answer) -> str:
    """The picture with a note below it; empty where no cost or no accuracy is known of all networks.

    One network is a picture, too, where something is beside it: a limit, or what was tried on the same images.
    """
    models = answer.models or [answer.best]
    limited = {name for one in models for name in one.limits or {}}
    axis = _known([*answer.front, *models], sorted(COSTS, key=lambda name: name not in limited))
    height = _known(answer.front or models, list(HEIGHTS))
    if axis is None or height is None:
        return ""
    limits = sorted({one.limits[axis] for one in models if one.limits and axis in one.limits})
    chosen_height = height if height == TRIED or not answer.front else "accuracy"
    points, chosen, beside = _marks(answer, models, axis, height, chosen_height)
    marks = [*points, *chosen, *beside]
    if len(marks) + len(limits) < 2:
        return ""
    way = undominated([*points, *chosen] if height == TRIED else points)
    chart = scatter("accuracy against cost", marks, cost_label(axis), "accuracy (%)", way, limits)
    notes = [_front_note(answer, height, len(points), len(way))]
    notes += [f"Large: {'the chosen network' + 's' * (len(chosen) > 1)}, {HEIGHTS[chosen_height]}."] if chosen else []
    notes += [f"Rings: beside, {' and '.join(mark.title.partition(':')[0] for mark in beside)}."] if beside else []
    return f'{chart}<p class="soft">{escape(" ".join(note for note in notes if note))}</p>'


def _marks(
    answer: Answer, models: Sequence[Candidate], axis: str, height: str, chosen_height: str
) -> tuple[list[Mark], list[Mark], list[Mark]]:
    """Points of the front, the chosen networks, and what was tried beside them.

    A network that was chosen is no point of a front of tried ones: its own mark is at its measured cost.
    """
    known = [one for one in models if getattr(one, chosen_height) is not None]
    chosen = list(dict.fromkeys(_mark(one, one.architecture, axis, chosen_height, "chosen") for one in known))
    answers = {_network(one) for one in known} if height == TRIED else set()
    tried = [one for one in answer.front if _network(one) not in answers]
    beside = [
        _mark(one, name, axis, chosen_height, "beside")
        for name, one in answer.beside.items()
        if getattr(one, axis, None) is not None and getattr(one, chosen_height, None) is not None
    ]
    return [_mark(one, one.architecture, axis, height, "point") for one in tried], chosen, beside


def _front_note(answer: Answer, height: str, drawn: int, steps: int) -> str:
    """What the small points and the line are."""
    if height == TRIED:
        small = "Small points: networks that were tried, with their cost then." if drawn else ""
        return small + " Line: what none of all these beats." * (steps > 1)
    if not answer.front:
        return ""
    points = answer.front_points or len(answer.front)
    part = "" if points == len(answer.front) else f" {len(answer.front)} of them are drawn."
    return f"{points:,} networks that no other one beats in both, {HEIGHTS[height]}.{part}"


def undominated(marks: Sequence[Mark]) -> list[tuple[float, float]]:
    """By rising cost, each higher than all that cost no more."""
    found: list[tuple[float, float]] = []
    for mark in sorted(marks, key=lambda one: (one.x, -one.y)):
        if not found or mark.y > found[-1][1]:
            found.append((mark.x, mark.y))
    return found


def cost_label(axis: str) -> str:
    """What an axis of costs is called."""
    return "latency (ms)" if axis == "latency_ms" else RESOURCES[axis].unit


def _known(candidates: Sequence[Candidate], names: Sequence[str]) -> str | None:
    """The first of the fields ``names`` that all candidates have."""
    return next((name for name in names if has_all(candidates, name)), None)


def has_all(candidates: Sequence[Candidate], name: str) -> bool:
    """Whether there are ``candidates``, and all have the field ``name``."""
    return bool(candidates) and all(getattr(one, name) is not None for one in candidates)


def _network(one: Candidate) -> tuple[str, int | None]:
    """What makes a candidate another network."""
    return one.architecture, one.image_size


def _mark(
    one: Candidate | Beside, name: str, axis: str, height: str, kind: Literal["point", "beside", "chosen"]
) -> Mark:
    x, y = float(getattr(one, axis)), float(getattr(one, height))
    said = f"{x:,.4g} {RESOURCES[axis].unit}, {y:.2f} % {HEIGHTS[height]}"
    return Mark(x, y, f"{name}: {said}" if kind == "beside" else f"{said}: {name}", kind)
