"""The front of a search as a picture of its own (PNG, SVG, PDF), for a README, a slide or a mail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from archwright.errors import InputError
from archwright.paths import check_output
from archwright.report.charts import Mark
from archwright.report.front import Front, front_of
from archwright.report.parts import source_of
from archwright.runs.files import save_figure
from archwright.runs.run import Run
from archwright.search.answer import Answer
from archwright.search.tried import read_tried

WRITER = {".png": "Software", ".svg": "Creator", ".pdf": "Creator"}
"""Endings of pictures that can be drawn, and the field in which each says what drew it."""
MARK = "Archwright runs plot"
"""What every picture of ours says there."""
COLOURS = ("#2f6fde", "#d9822b", "#2a9d6f", "#9b51c9", "#c0392b", "#5c6b7a")
"""Of groups of points, in the order in which they come."""
LEAST_POINTS, ROOM = 1.0, 0.06
"""What is left free below the networks: points of accuracy at least, and a part of what they span."""
ABOVE = 0.3
"""What is left free above them, for the numbers of the chosen ones, as a part of what is below."""
WIDTH, HEIGHT, DOTS = 7.2, 3.6, 150
"""Inches, and dots an inch."""
LINE = 10
"""Points of a line of labels."""


def draw_front(folder: Path, path: Path, overwrite: bool = False) -> Path:
    """Draw what the search in ``folder`` found and tried; returns ``path``.

    Args:
        folder: of a finished run.
        path: of the picture; its ending says the format.
        overwrite: whether a file of another origin may be replaced.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    if path.suffix not in WRITER:
        raise InputError(f"a picture that ends with {', '.join(WRITER)}", str(path))
    check_output(path, MARK.encode(), overwrite)
    run = Run.open(folder)
    if run.status() != "finished":
        raise InputError("a finished run", f"one that is {run.status()} in {run.folder}")
    answer = Answer.read(run.folder)
    found = front_of(answer, read_tried(run.folder))
    if found is None:
        raise InputError("a search whose networks have a cost and an accuracy", f"{folder}, whose networks lack one")
    figure, axis = plt.subplots(figsize=(WIDTH, HEIGHT))
    labels = _draw(axis, found)
    title = f"{answer.method} on {source_of(run.configuration)}"
    axis.set_title(f"{title}\n{answer.latency_on}" if answer.latency_on else title, fontsize=8, loc="left")
    figure.tight_layout()
    canvas: Any = figure.canvas  # Agg's, whatever is written
    _apart(labels, canvas.get_renderer())
    save_figure(figure, path, DOTS, {WRITER[path.suffix]: MARK})
    plt.close(figure)
    return path


def _draw(axis: Any, found: Front) -> list[Any]:
    """Limits as dashed lines, the front as steps, points by group, the chosen ones large; returns their labels."""
    for limit in found.limits:
        axis.axvline(limit, color="#9aa4af", linestyle="--", linewidth=0.9)
        place = {"xycoords": ("data", "axes fraction"), "rotation": 90, **_beside(-2, "right")}
        axis.annotate(f"limit {limit:.4g}", (limit, 0.02), **place)
    if len(found.way) > 1:
        axis.step(*zip(*found.way, strict=True), where="post", color="#9aa4af", linewidth=1.2)
    groups = list(dict.fromkeys(mark.group for mark in found.marks if mark.kind != "beside"))
    for number, group in enumerate(groups):
        colour, own = COLOURS[number % len(COLOURS)], [mark for mark in found.marks if mark.group == group]
        _points(axis, [mark for mark in own if mark.kind == "point"], s=16, color=colour, alpha=0.55)
        _points(axis, [mark for mark in own if mark.kind == "chosen"], s=90, color=colour, edgecolor="black")
        if group and len(groups) > 1:
            axis.scatter([], [], color=colour, label=group)
    beside = [mark for mark in found.marks if mark.kind == "beside"]
    _points(axis, beside, s=60, facecolor="none", edgecolor="#5c6b7a")
    for mark in beside:
        axis.annotate(mark.title.partition(":")[0], (mark.x, mark.y), **_above(), color="#5c6b7a")
    labels = []
    for mark in found.marks:
        if mark.kind == "chosen":
            said = f"{mark.label} on test" if mark.label else None
            said = said or (f"{mark.y:.1f} %" if "%" in found.y_label else f"{mark.y:.4g}")
            labels.append(axis.annotate(said, (mark.x, mark.y), **_above()))
    if "%" in found.y_label:  # a tenth of a point is not to look like much
        low, high = (ends(mark.y for mark in found.marks) for ends in (min, max))
        room = max(LEAST_POINTS, ROOM * (high - low))
        top = high + ABOVE * (high - low + room)
        axis.set_ylim(low - room, top)
        axis.set_yticks([tick for tick in axis.get_yticks() if low - room <= tick <= min(top, 100)])
    axis.set_xlabel(found.x_label)
    axis.set_ylabel(found.y_label)
    axis.margins(x=0.08)
    axis.grid(color="#e6e9ed", linewidth=0.7)
    axis.set_axisbelow(True)
    if len(groups) > 1:
        place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncol": len(groups), "frameon": False}
        axis.legend(fontsize=8, borderaxespad=0.2, **place)
    return labels


def _apart(labels: list[Any], renderer: Any) -> None:
    """Raise labels that would lie over one to their left.

    Args:
        labels: annotations of points.
        renderer: that says how large they are.
    """
    placed: list[Any] = []
    for label in sorted(labels, key=lambda one: one.xy[0]):
        while any(label.get_window_extent(renderer).overlaps(other) for other in placed):
            label.xyann = (label.xyann[0], label.xyann[1] + LINE)
        placed.append(label.get_window_extent(renderer))


def _points(axis: Any, marks: list[Mark], **look: Any) -> None:
    if marks:
        axis.scatter([mark.x for mark in marks], [mark.y for mark in marks], zorder=3, **look)


def _beside(points: int, side: str) -> dict[str, Any]:
    return {"xytext": (points, 3), "textcoords": "offset points", "ha": side, "fontsize": 7, "color": "#5c6b7a"}


def _above() -> dict[str, Any]:
    return {"xytext": (0, 8), "textcoords": "offset points", "ha": "center", "fontsize": 8}
