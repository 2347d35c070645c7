"""Accuracy against cost: the front, the chosen networks, what was tried beside them, and the limits.

For the page as SVG that follows its colours; as a file of its own by :mod:`archwright.report.picture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from archwright.costs.limits import RESOURCES
from archwright.report.charts import Mark, scatter
from archwright.search.answer import Answer, Beside, Candidate
from archwright.search.values import OWN_FUNCTION

COSTS = ("latency_ms", "params", "macs", "memory_bytes")
"""What networks may be placed by, those with a limit before the others."""
HEIGHTS = {
    "accuracy": "on test",
    "predicted_accuracy": "as predicted (the front is exact for the predictor)",
    "validation_accuracy": "on validation",
    "search_accuracy": "in the search",
}
"""What accuracies may be, the best known first, and how the page says so."""
AXES = {
    "accuracy": "test accuracy (%)",
    "predicted_accuracy": "predicted accuracy (%)",
    "validation_accuracy": "validation accuracy (%)",
}
"""What the axis of accuracies is called."""
TRIED = ("validation_accuracy", "search_accuracy")
"""Heights of networks that were tried on the way to the answer."""
COLOURED = {"precision": "", "image_size": " px images"}
"""What points are coloured by, the first in which they differ, and what is said behind it."""


@dataclass(frozen=True)
class Front:
    """What a picture of an answer shows.

    Attributes:
        marks: points, chosen networks and what was tried beside them.
        way: by rising cost, what no other network beats in both.
        limits: on the axis of costs.
        x_label: of the axis of costs.
        y_label: of the other one.
        notes: sentences that say what is what.
    """

    marks: list[Mark]
    way: list[tuple[float, float]]
    limits: list[float]
    x_label: str
    y_label: str
    notes: list[str]


def front_chart(answer: Answer, tried: Sequence[Candidate] = ()) -> str:
    """The picture for a page with a note below it; empty where there is nothing to draw.

    Args:
        answer: of a finished search.
        tried: every network that it tried, as far as the run keeps them.
    """
    found = front_of(answer, tried)
    if found is None:
        return ""
    chart = scatter("accuracy against cost", found.marks, found.x_label, found.y_label, found.way, found.limits)
    return f'{chart}<p class="soft">{escape(" ".join(found.notes))}</p>'


def front_of(answer: Answer, tried: Sequence[Candidate] = ()) -> Front | None:
    """What there is to draw; None where no cost or no accuracy is known of all networks.

    One network is a picture, too, where something is beside it: a limit, or what was tried on the same images.

    Args:
        answer: of a finished search.
        tried: every network that it tried, as far as the run keeps them.
    """
    models = answer.models or [answer.best]
    small = tried or answer.front
    limited = {name for one in models for name in one.limits or {}}
    axis = _known([*small, *models], sorted(COSTS, key=lambda name: name not in limited))
    height = _known(small or models, list(HEIGHTS))
    if axis is None or height is None:
        return None
    limits = sorted({one.limits[axis] for one in models if one.limits and axis in one.limits})
    chosen_height = height if height == "validation_accuracy" or not small else "accuracy"
    points, chosen, beside = _marks(answer, models, small, axis, height, chosen_height)
    marks = [*points, *chosen, *beside]
    if len(marks) + len(limits) < 2:
        return None
    way = undominated([*points, *chosen] if height == chosen_height else points)
    notes = [_front_note(answer, height, len(points), len(way))]
    many = "s" * (len(chosen) > 1)
    tested = "; the numbers are test accuracies" if any(mark.label for mark in chosen) else ""
    notes += [f"Large point{many}: the chosen network{many}, {HEIGHTS[chosen_height]}{tested}."] if chosen else []
    notes += [f"Ring: {' and '.join(mark.title.partition(':')[0] for mark in beside)}, to compare."] if beside else []
    label = height_label(answer)
    if label == height_label(None) and (height == chosen_height or not chosen):
        label = AXES.get(height, label)
    return Front(marks, way, limits, cost_label(axis), label, [one for one in notes if one])


def objectives_chart(answer: Answer, tried: Sequence[Candidate]) -> str:
    """The first two objectives of everything that was evaluated, the front larger; empty where there are none.

    Args:
        answer: with the front.
        tried: every evaluated architecture.
    """
    names = list(answer.front[0].objectives or {}) if answer.front else []
    if len(names) < 2:
        return ""
    first, second = names[:2]
    best = {one.architecture for one in answer.front}
    marks = []
    for one in tried:
        known = one.objectives or {}
        if first in known and second in known:
            said = ", ".join(f"{name} {known[name]:.6g}" for name in names)
            kind: Literal["point", "chosen"] = "chosen" if one.architecture in best else "point"
            marks.append(Mark(known[second], known[first], f"{said}: {one.architecture}", kind))
    if not marks:
        return ""
    best_of = f"{len(answer.front):,} of {len(marks):,}"
    note = f"Large points: the front, {best_of} architectures that no other one beats in all objectives."
    return f'{scatter("objectives", marks, second, first)}<p class="soft">{escape(note)}</p>'


def height_label(answer: Answer | None) -> str:
    """What the other axis is called: a score of the user's own has no unit that we know."""
    own = answer is not None and answer.best.accuracy_on == OWN_FUNCTION
    return "score" if own else "accuracy (%)"


def _marks(
    answer: Answer, models: Sequence[Candidate], small: Sequence[Candidate], axis: str, height: str, chosen_height: str
) -> tuple[list[Mark], list[Mark], list[Mark]]:
    """Points, the chosen networks, and what was tried beside them.

    A network that was chosen is no point of its own where both have the same height: it has one mark, at one cost.
    """
    known = [one for one in models if getattr(one, chosen_height) is not None]
    field = _colouring([*small, *known])
    chosen = list(dict.fromkeys(_mark(one, one.architecture, axis, chosen_height, "chosen", field) for one in known))
    answers = {_network(one) for one in known} if height == chosen_height else set()
    points = [one for one in small if _network(one) not in answers]
    beside = [
        _mark(one, name, axis, chosen_height, "beside")
        for name, one in answer.beside.items()
        if getattr(one, axis, None) is not None and getattr(one, chosen_height, None) is not None
    ]
    return [_mark(one, one.architecture, axis, height, "point", field) for one in points], chosen, beside


def _colouring(candidates: Sequence[Candidate]) -> str:
    """The first field of :data:`COLOURED` in which ``candidates`` differ; empty where they differ in none."""
    return next((name for name in COLOURED if len({getattr(one, name) for one in candidates}) > 1), "")


def _front_note(answer: Answer, height: str, drawn: int, steps: int) -> str:
    """What the small points and the line are."""
    if height in TRIED:
        small = f"Small points: the other networks that were tried, {HEIGHTS[height]}." if drawn else ""
        return small + " Line: the front; no other network is both cheaper and better." * (steps > 1)
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


def _network(one: Candidate) -> tuple[str, int | None, str | None]:
    """What makes a candidate another network."""
    return one.architecture, one.image_size, one.precision


def _mark(
    one: Candidate | Beside,
    name: str,
    axis: str,
    height: str,
    kind: Literal["point", "beside", "chosen"],
    field: str = "",
) -> Mark:
    x, y = float(getattr(one, axis)), float(getattr(one, height))
    own = OWN_FUNCTION in (getattr(one, "accuracy_on", None), getattr(one, "search_accuracy_on", None))
    said = f"{x:,.4g} {RESOURCES[axis].unit}, " + (f"a score of {y:.6g}" if own else f"{y:.2f} % {HEIGHTS[height]}")
    known = [f"{value}{unit}" for key, unit in COLOURED.items() if (value := getattr(one, key, None)) is not None]
    title = f"{name}: {said}" if kind == "beside" else f"{', '.join([said, *known])}: {name}"
    group = f"{value}{COLOURED[field]}" if field and (value := getattr(one, field, None)) is not None else ""
    tested = kind == "chosen" and height != "accuracy" and one.accuracy is not None and not own
    return Mark(x, y, title, kind, group, f"{one.accuracy:.1f} %" if tested else "")
