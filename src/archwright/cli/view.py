"""How results look in a terminal: tables for people on stdout, one JSON line for scripts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from archwright.search.values import OWN_FUNCTION
from archwright.terminal import brief, say, show_table

if TYPE_CHECKING:
    from archwright.models import Prediction
    from archwright.search.answer import Answer, Beside
    from archwright.search.limited import TimedAgain


MOST_ROWS = 30
"""Of a front."""
LONGEST_SHOWN = 2000
"""Characters of an architecture that are shown; longer ones are in the run's files."""


def print_json(value: dict[str, Any]) -> None:
    """One JSON object as the last line of stdout."""
    from archwright.runs.files import strict_json

    sys.stdout.write(strict_json(value) + "\n")
    sys.stdout.flush()


def show_answer(answer: Answer, as_json: bool) -> None:
    """Print what a search found and where its report is.

    Args:
        answer: of a finished search.
        as_json: whether as one line of JSON.
    """
    report = _written_report(answer)
    if as_json:
        print_json(answer.to_json())
        return
    show_found(answer)
    say(report)


def show_found(answer: Answer) -> None:
    """Print what a search found, for people."""
    if answer.models:
        _show_models(answer)
    else:
        _show_best(answer)


def _written_report(answer: Answer) -> str:
    """Writes the page of the run; where that cannot be, the sentence says why and the answer is shown all the same."""
    from archwright.report.page import report_run

    try:
        return f"Report: {report_run(answer.folder)}"
    except OSError as error:
        return f"No report was written: {error}"


def _show_best(answer: Answer) -> None:
    """An answer with one architecture."""
    from archwright.report.columns import accuracy_text

    best = answer.best
    interval = best.accuracy_interval
    spread = f"  (95 % interval {interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    own = best.search_accuracy_on == OWN_FUNCTION  # a score of the user's own is in no unit that we know
    if best.accuracy_on == OWN_FUNCTION:
        rows = [("score", f"{best.accuracy:.6g}"), ("by", OWN_FUNCTION)]
    else:
        measured = "not measured" if best.accuracy is None else f"{best.accuracy:.2f} %{spread}"
        rows = [("accuracy", measured), ("measured on", best.accuracy_on or "")]
        if best.search_accuracy is not None:
            seen = f"{best.search_accuracy:.6g}" if own else f"{best.search_accuracy:.2f} %"
            rows.append(("seen by the search", f"{seen} ({best.search_accuracy_on})"))
    rows += [(f"test {dataset}", f"{accuracy:.2f} %") for dataset, accuracy in (best.tests or {}).items()]
    if best.params is not None and best.macs is not None:
        rows += [("parameters", f"{best.params:,.0f}"), ("multiply-accumulates", f"{best.macs:,.0f}")]
    if best.latency_ms is not None:
        rows.append(("latency", f"{best.latency_ms:.3f} ms"))
    if answer.members:
        rows.append(("members alone", ", ".join(accuracy_text(one) for one in answer.members)))
    failed = f", of which {answer.failures} failed" if answer.failures else ""
    rows += [("evaluations", f"{answer.evaluations}{failed}"), ("time", f"{answer.seconds:.1f} s")]
    show_table(("", ""), rows, title=_title(answer))
    _show_front(answer)
    beside = ", ".join(_beside(name, one) for name, one in answer.beside.items())
    for text in (f"To compare, on the same images: {beside}." if beside else "", answer.verdict):
        if text:
            say(text)
    _say_all(answer.insights)
    if len(best.architecture) <= LONGEST_SHOWN:
        say(best.architecture)
    say(f"Run: {answer.run}")
    if best.model is not None:
        say(f"Use it with: archwright predict {answer.run} IMAGE...")


def _show_front(answer: Answer) -> None:
    """The front of several objectives."""
    front = [one for one in answer.front if one.objectives]
    if front:
        names = list(front[0].objectives or {})
        rows = [[*(f"{(one.objectives or {})[name]:.6g}" for name in names), one.architecture] for one in front]
        show_table((*names, "architecture"), rows[:MOST_ROWS], title=f"the front: {len(front)} that no other beats")


def _show_models(answer: Answer) -> None:
    """An answer with several models, whatever is known of them."""
    from archwright.report.columns import model_note, model_table, reasons

    heads, rows = model_table(answer)
    show_table(heads, rows, title=_title(answer))
    files = ", ".join(dict.fromkeys(path for one in answer.models if (path := one.onnx or one.model)))
    beside = ", ".join(_beside(name, one) for name, one in answer.beside.items())
    for text in (
        model_note(answer),
        f"Files: {files}" if files else "",
        _latency(answer),
        f"To compare, on the same images: {beside}." if beside else "",
        answer.verdict,
    ):
        if text:
            say(text)
    _say_all(reasons(answer))
    _say_all(answer.insights)
    say(f"Run: {answer.run} ({answer.seconds:.0f} s)")
    if answer.best.model is not None:
        allowed = " --allow-import" if answer.needs_import else ""
        say(f"Use the best with: archwright predict {answer.run} IMAGE...{allowed}")


def _title(answer: Answer) -> str:
    return f"{answer.method} on {brief(answer.space)} ({answer.data}), seed {answer.seed}"


def _say_all(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        say(f"- {sentence}")


def _latency(answer: Answer) -> str:
    """The device of the latencies, and the range that the space has, as far as the method says so."""
    parts = [answer.latency_on] if answer.latency_on else []
    if answer.reachable_ms is not None:
        parts.append("networks of this space take {:.3g} to {:.3g} ms".format(*answer.reachable_ms))
    return f"Latency: {'; '.join(parts)}." if parts else ""


def _beside(name: str, one: Beside) -> str:
    return f"{name} {one.accuracy:.1f} %" + (f" ({one.latency_ms:.3g} ms)" if one.latency_ms is not None else "")


def show_times(found: Sequence[TimedAgain]) -> None:
    """Networks that were timed again, each time beside the limit."""
    rows = []
    for one in found:
        times = ", ".join(f"{median:.3g}" for median in one.medians_ms)
        rows.append((f"{one.limit_ms:.3g} ms", f"{times} ms", "yes" if one.within else "no", one.architecture))
    show_table(("limit", "median, each time", "within", "network"), rows)
    if not all(one.within for one in found):
        say("Over a limit: is the machine quiet? To choose again by new times: archwright runs resume RUN --remeasure")


def show_predictions(predictions: Sequence[Prediction]) -> None:
    """Each image with its likeliest classes."""
    rows = []
    for one in predictions:
        rest = ", ".join(f"{name} {100 * p:.1f} %" for name, p in one.top[1:])
        rows.append((one.image, one.label, f"{100 * one.probability:.1f} %", rest))
    show_table(("image", "class", "probability", "then"), rows)
