"""The table of an answer's models: its columns are declared here, for the terminal, the page and the documentation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from archwright.costs.limits import said_limits
from archwright.search.answer import Answer, Candidate
from archwright.search.values import OWN_FUNCTION


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        head: above it.
        meaning: what it says, for the documentation.
        text: of a model, given the best one of all; empty where nothing is known.
    """

    head: str
    meaning: str
    text: Callable[[Candidate, Candidate], str]


def accuracy_text(one: Candidate) -> str:
    """Percent with the 95 % interval; the score of a user's own function as it is; empty where nobody measured it."""
    if one.accuracy is None:
        return ""
    if one.accuracy_on == OWN_FUNCTION:
        return f"{one.accuracy:.6g}"
    spread = f" ({one.accuracy_interval[0]:.1f} to {one.accuracy_interval[1]:.1f})" if one.accuracy_interval else ""
    return f"{one.accuracy:.2f} %{spread}"


def latency_text(latency_ms: float | None) -> str:
    """Three digits and the unit; empty where it is not known."""
    return "" if latency_ms is None else f"{latency_ms:.3g} ms"


def limits_text(one: Candidate) -> str:
    """What a network was asked to keep to; empty where that is nothing."""
    return said_limits(one.limits or {})


def reasons(answer: Answer) -> list[str]:
    """Why networks were taken that look worse than others on validation; one sentence for limits with the same one."""
    said = dict[str, list[str]]()
    for one in answer.models:
        if one.reason:
            said.setdefault(one.reason, []).append(limits_text(one))
    return [f"{' and '.join(filter(None, where))}: {why}" if any(where) else why for why, where in said.items()]


def _limits(one: Candidate, _best: Candidate) -> str:
    return limits_text(one)


def _accuracy(one: Candidate, best: Candidate) -> str:
    text = accuracy_text(one)
    return f"{text} *" if text and one == best else text


def _measured(one: Candidate, _best: Candidate) -> str:
    return latency_text(one.measured_latency_ms.median_ms) if one.measured_latency_ms else ""


def _at_most(one: Candidate, _best: Candidate) -> str:
    return latency_text(one.measured_latency_ms.high_ms) if one.measured_latency_ms else ""


def _predicted(one: Candidate, _best: Candidate) -> str:
    """Where nothing was measured: a network has one latency."""
    return latency_text(one.predicted_latency_ms) if one.measured_latency_ms is None else ""


def _image_size(one: Candidate, _best: Candidate) -> str:
    return "" if one.image_size is None else f"{one.image_size} px"


def _precision(one: Candidate, _best: Candidate) -> str:
    return one.precision or ""


def _parameters(one: Candidate, _best: Candidate) -> str:
    return "" if one.params is None else f"{one.params:,}"


COLUMNS = (
    Column("limit", "what the network was asked to keep to", _limits),
    Column("test accuracy", "on the test part, with its 95 % interval; a star: the best on validation", _accuracy),
    Column("measured", "median time of one image through the whole network on this machine", _measured),
    Column("90 % below", "nine of ten of these times are below it", _at_most),
    Column("predicted", "its latency by the table of blocks, where it was not measured", _predicted),
    Column("images", "side of its input images in pixels, where models differ in it", _image_size),
    Column("precision", "fp32 or int8, where both were searched", _precision),
    Column("parameters", "numbers that were learned", _parameters),
)
"""All of them, in their order: what is shown of every model is changed here."""


def model_table(answer: Answer) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the models; a column of which nothing is known is left out."""
    columns = {one.head: [one.text(model, answer.best) for model in answer.models] for one in COLUMNS}
    shown = {head: texts for head, texts in columns.items() if any(texts)}
    return list(shown), [list(row) for row in zip(*shown.values(), strict=True)]


def model_note(answer: Answer) -> str:
    """What the accuracies of the table are; empty where there are none."""
    best = answer.best
    star = "* best on validation. " if best.accuracy is not None and best in answer.models else ""
    interval = ", with 95 % intervals" if best.accuracy_interval else ""
    return f"{star}Accuracies on {best.accuracy_on}{interval}." if best.accuracy_on else star.strip()
