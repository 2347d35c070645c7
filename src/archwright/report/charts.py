"""Small charts as inline SVG: points, lines and bars that can be read, focused by keyboard and printed.

Colours come from the page's CSS variables, so that a chart follows light and dark. Every mark has a title that browsers
show on hover; points can be reached with the tab key, and the page's script writes the title of a focused mark beside
the chart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Literal, NamedTuple

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 14, 44
SERIES = 6
"""Different colours; further series begin anew."""
MOST_POINTS = 400
"""Points of one line that are drawn; more are thinned out evenly."""
SHORT = 8
"""Characters of a text that fits above its point."""
FEW_POINTS = 12
"""Points of one line up to which each of them has a dot."""
LEAST_SPAN = 2.0
"""Percentage points that an axis of accuracies shows at least: a tenth of a point is not to look like much."""


class Mark(NamedTuple):
    """A point with what to say of it; a ``chosen`` one is drawn larger, one that is ``beside`` them as a ring.

    Points of different ``group`` have different colours, which a legend names; ``label`` is written at the point.
    """

    x: float
    y: float
    title: str
    kind: Literal["point", "beside", "chosen"] = "point"
    group: str = ""
    label: str = ""


RADIUS = {"point": 3.5, "beside": 5.0, "chosen": 7.0}
"""Of each kind of mark, in the order in which they are drawn."""


def ticks(low: float, high: float, count: int = 7) -> list[float]:
    """Round numbers from about ``low`` to ``high``, at most about ``count`` of them."""
    if not high > low:
        return [low]
    step = 10 ** math.floor(math.log10((high - low) / count))
    for factor in (1, 2, 5, 10):
        if (high - low) / (factor * step) <= count:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9) * step
    found = []
    while first <= high + 1e-9 * step:
        found.append(round(first, 12))
        first += step
    return found


class _Axes:
    """Where numbers are on the picture."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float], y_label: str) -> None:
        self.x_low, self.x_high = _range(xs)
        self.whole = all(float(x).is_integer() for x in xs)
        self.y_low, self.y_high = _range(ys)
        if y_label.endswith("(%)") and max(ys) <= 100:
            missing = max(0.0, LEAST_SPAN - (self.y_high - self.y_low))
            self.y_high = min(self.y_high + missing / 2, 100.0)  # there is no more than all
            self.y_low = min(self.y_low, self.y_high - LEAST_SPAN)

    def x(self, value: float) -> float:
        return LEFT + (value - self.x_low) / (self.x_high - self.x_low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.y_low) / (self.y_high - self.y_low) * (HEIGHT - TOP - BOTTOM)

    def frame(self, x_label: str, y_label: str) -> str:
        parts = []
        for value in ticks(self.x_low, self.x_high):
            if self.whole and not float(value).is_integer():
                continue  # there is no epoch 1.5
            x = self.x(value)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
            parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{value:g}</text>')
        for value in ticks(self.y_low, self.y_high):
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle">{escape(x_label)}</text>')
        parts.append(
            f'<text transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(y_label)}</text>"
        )
        return "".join(parts)


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or max(1e-9, 0.05 * abs(high))
    return low - room, high + room


def _svg(title: str, body: str) -> str:
    return (
        f'<div class="wide"><svg class="chart" role="group" aria-label="{escape(title)}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}">{body}</svg></div><p class="said" aria-live="polite"></p>'
    )


def scatter(
    title: str,
    marks: Sequence[Mark],
    x_label: str,
    y_label: str,
    front: Sequence[tuple[float, float]] = (),
    limits: Sequence[float] = (),
) -> str:
    """Points, the chosen ones above the others.

    Args:
        title: what screen readers say of the picture, before its numbers.
        marks: the points.
        x_label: under the picture.
        y_label: beside it.
        front: by rising x, drawn as steps through what it reaches.
        limits: values of x, each drawn as a line that the points should be left of.
    """
    axes = _Axes([*(mark.x for mark in marks), *limits], [mark.y for mark in marks], y_label)
    body = axes.frame(x_label, y_label) + "".join(_limit(axes.x(limit), limit) for limit in limits)
    if len(front) > 1:
        way = f"M{axes.x(front[0][0]):.1f},{axes.y(front[0][1]):.1f}"
        way += "".join(f" H{axes.x(x):.1f} V{axes.y(y):.1f}" for x, y in front[1:])
        body += f'<path class="front" d="{way}"/>'
    groups = list(dict.fromkeys(mark.group for mark in marks if mark.group))
    for mark in sorted(marks, key=lambda one: RADIUS[one.kind]):
        colour = f" s{groups.index(mark.group) % SERIES}" if mark.group and len(groups) > 1 else ""
        body += (
            f'<circle class="{mark.kind}{colour}" role="img" tabindex="0" '
            f'cx="{axes.x(mark.x):.1f}" cy="{axes.y(mark.y):.1f}" '
            f'r="{RADIUS[mark.kind]:g}" aria-label="{escape(mark.title)}"><title>{escape(mark.title)}</title></circle>'
        )
        body += _named(axes.x(mark.x), axes.y(mark.y), mark.label) if mark.label else ""
    return _svg(f"{title}: {_spoken(marks, x_label, y_label, limits)}", body) + _legend(groups)


def _named(x: float, y: float, label: str) -> str:
    """A text at a point: a short one above it, a longer one on the side where there is room."""
    if len(label) <= SHORT:
        return f'<text class="named" x="{x:.1f}" y="{y - 12:.1f}" text-anchor="middle">{escape(label)}</text>'
    side, anchor = (-10, "end") if x > (LEFT + WIDTH - RIGHT) / 2 else (10, "start")
    return f'<text class="named" x="{x + side:.1f}" y="{y - 8:.1f}" text-anchor="{anchor}">{escape(label)}</text>'


def _limit(x: float, limit: float) -> str:
    """A line at ``x`` of the picture, named at its foot, on the side where there is room."""
    side, anchor = (-4, "end") if x > (LEFT + WIDTH - RIGHT) / 2 else (4, "start")
    place = f'x="{x + side:.1f}" y="{HEIGHT - BOTTOM - 6}" text-anchor="{anchor}"'
    return (
        f'<line class="limit" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        f'<text class="named" {place}>limit {limit:.4g}</text>'
    )


def _spoken(marks: Sequence[Mark], x_label: str, y_label: str, limits: Sequence[float]) -> str:
    """What the picture shows, in numbers."""
    xs, ys = [mark.x for mark in marks], [mark.y for mark in marks]
    parts = [
        f"{len(marks)} point{'s' * (len(marks) != 1)}",
        f"{x_label} from {min(xs):.4g} to {max(xs):.4g}",
        f"{y_label} from {min(ys):.4g} to {max(ys):.4g}",
    ]
    parts += [f"limits at {', '.join(f'{limit:.4g}' for limit in limits)}"] if limits else []
    return ", ".join(parts)


def lines(
    title: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    x_label: str,
    y_label: str,
    background: Sequence[Sequence[tuple[float, float]]] = (),
) -> str:
    """One line a name, with a legend, as one SVG.

    Args:
        title: for those who hear the page.
        series: points (x, y) by name; names without points are left out.
        x_label: of the horizontal axis.
        y_label: of the vertical axis.
        background: further lines, thin and without a name.
    """
    shown = {name: _thinned(points) for name, points in series.items() if points}
    behind = [_thinned(points) for points in background if points]
    every = [point for points in (*behind, *shown.values()) for point in points]
    axes = _Axes([x for x, _ in every], [y for _, y in every], y_label)
    body, ends = axes.frame(x_label, y_label), list[str]()
    for points in behind:
        way = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
        body += f'<polyline class="behind" points="{way}"/>'
    for number, (name, points) in enumerate(shown.items()):
        way = " ".join(f"{axes.x(x):.1f},{axes.y(y):.1f}" for x, y in points)
        last = points[-1]
        said = f"{name}: {last[1]:.4g} at {last[0]:g}"
        ends.append(said)
        body += f'<polyline class="line s{number % SERIES}" points="{way}"><title>{escape(said)}</title></polyline>'
        for x, y in points if len(points) <= FEW_POINTS else [last]:
            said = f"{name}: {y:.4g} at {x:.4g}"
            body += (
                f'<circle class="end s{number % SERIES}" role="img" tabindex="0" cx="{axes.x(x):.1f}" '
                f'cy="{axes.y(y):.1f}" r="3.5" aria-label="{escape(said)}"><title>{escape(said)}</title></circle>'
            )
    return _svg(f"{title}: {y_label} by {x_label}; {'; '.join(ends)}", body) + _legend(list(shown))


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    if len(points) <= MOST_POINTS:
        return list(points)
    step = (len(points) - 1) / (MOST_POINTS - 1)
    return [points[round(number * step)] for number in range(MOST_POINTS)]


def _legend(names: Sequence[str]) -> str:
    if len(names) < 2:
        return ""
    items = "".join(f'<li><span class="key s{n % SERIES}"></span>{escape(name)}</li>' for n, name in enumerate(names))
    return f'<ul class="legend">{items}</ul>'


def bars(
    rows: Sequence[tuple[str, float, str, bool]], most: float, intervals: Sequence[tuple[float, float]] = ()
) -> str:
    """A table with a bar in each row.

    Args:
        rows: (name, value, text, chosen); the text is shown behind the bar.
        most: the value of a bar of full length.
        intervals: of each row's value, drawn as a thin line across the end of its bar; none by default.
    """
    lines_ = []
    for number, (name, value, text, chosen) in enumerate(rows):
        kind = "bar chosen-bar" if chosen else "bar"
        cell = f'<span class="{kind}" style="width:{_share(value, most):.1f}%"></span>'
        if intervals:
            low, high = (_share(end, most) for end in intervals[number])
            cell += f'<span class="interval" style="left:{low:.1f}%;width:{high - low:.1f}%"></span>'
        lines_.append(
            f'<tr><th scope="row">{escape(name)}</th><td class="barcell">{cell}</td><td>{escape(text)}</td></tr>'
        )
    return f'<table class="bars"><tbody>{"".join(lines_)}</tbody></table>'


def _share(value: float, most: float) -> float:
    """Percent of the full length."""
    return 100 * max(0.0, min(1.0, value / most)) if most > 0 else 0.0


def signed_bars(rows: Sequence[tuple[str, float]]) -> str:
    """A table of (name, value) with a bar each, from the middle to the left or to the right."""
    most = max(abs(value) for _, value in rows) or 1.0
    found = []
    for name, value in rows:
        share = 50 * abs(value) / most
        kind, left = ("bar chosen-bar", 50 - share) if value < 0 else ("bar raise-bar", 50.0)
        found.append(
            f'<tr><th scope="row">{escape(name)}</th><td class="barcell middle">'
            f'<span class="{kind}" style="margin-left:{left:.1f}%;width:{share:.1f}%"></span></td>'
            f"<td>{value:+.3g}</td></tr>"
        )
    return f'<table class="bars"><tbody>{"".join(found)}</tbody></table>'
