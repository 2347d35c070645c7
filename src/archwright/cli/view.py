"""How results look in a terminal: tables for people on stdout, one JSON line for scripts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column, Table

from archwright.costs.limits import RESOURCES

if TYPE_CHECKING:
    from archwright.models import Prediction
    from archwright.runs.run import Run
    from archwright.search.engine import SearchResult


def print_json(value: dict[str, Any]) -> None:
    """One JSON object as the last line of stdout."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)


def show_answer(result: SearchResult, as_json: bool) -> None:
    """What a search found."""
    if as_json:
        print_json(result.answer)
        return
    if "models" in result.answer:
        _show_models(result)
        return
    answer, best = result.answer, result.best
    table = Table(
        title=f"{answer['method']} on {answer['space']} ({answer['data']}), seed {answer['seed']}", min_width=60
    )
    table.add_column("")
    table.add_column("")
    interval = best.get("accuracy_interval")
    spread = f"  (95 % interval {interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
    table.add_row("accuracy", f"{best['accuracy']:.2f} %{spread}")
    table.add_row("measured on", best["accuracy_on"])
    if best.get("search_accuracy") is not None:
        table.add_row("seen by the search", f"{best['search_accuracy']:.2f} % ({best['search_accuracy_on']})")
    for dataset, accuracy in best.get("tests", {}).items():
        table.add_row(f"test {dataset}", f"{accuracy:.2f} %")
    table.add_row("parameters", f"{best['params']:,.0f}")
    table.add_row("multiply-accumulates", f"{best['macs']:,.0f}")
    if "latency_ms" in best:
        table.add_row("latency", f"{best['latency_ms']:.3f} ms")
    table.add_row("evaluations", str(answer["evaluations"]))
    table.add_row("time", f"{answer['seconds']:.1f} s")
    console = _console()
    console.print(table)
    console.print(best["architecture"], markup=False)
    console.print(f"Run: {answer['run']}", markup=False)  # below the table, which would break a long path
    if "model" in best:
        console.print(f"Use it with: archwright predict {answer['run']} IMAGE...", markup=False)


def _show_models(result: SearchResult) -> None:
    """An answer with one model for every limit."""
    answer = result.answer
    title = f"{answer['method']} on {answer['space']} ({answer['data']}), seed {answer['seed']}"
    accuracies = Column("test accuracy", no_wrap=True)
    table = Table("limit", "predicted", "measured", "90 % in", accuracies, "params", title=title)
    for one in answer["models"]:
        limits = ", ".join(f"{limit:.3g} {RESOURCES[name].unit}" for name, limit in one["limits"].items())
        timed = one["measured_latency_ms"]
        measured = [f"{timed[key]:.3g} ms" for key in ("median_ms", "high_ms")] if timed else ["not here", ""]
        low, high = one["accuracy_interval"]
        best = " *" if one == answer["best"] else ""
        accuracy = f"{one['accuracy']:.1f} % ({low:.1f} to {high:.1f}){best}"
        table.add_row(limits, f"{one['predicted_latency_ms']:.3g} ms", *measured, accuracy, f"{one['params']:,}")
    console = _console()
    console.print(table)
    on = answer["best"]["accuracy_on"]
    console.print(f"* best on validation. Accuracies have their 95 % interval; they are on {on}.", markup=False)
    console.print(f"Files: {', '.join(one.get('onnx', one['model']) for one in answer['models'])}", markup=False)
    least, most = answer["reachable_ms"]
    console.print(f"Latency: {answer['latency_on']}; the space reaches {least:.3g} to {most:.3g} ms.", markup=False)
    if answer["beside"]:
        simple = [_beside(name, one) for name, one in answer["beside"].items()]
        console.print(f"Beside it, on the same images: {', '.join(simple)}.", markup=False)
    if answer["verdict"]:
        console.print(answer["verdict"], style="bold yellow", markup=False)
    for sentence in answer["insights"]:
        console.print(f"- {sentence}", markup=False)
    console.print(f"Run: {answer['run']} ({answer['seconds']:.0f} s)", markup=False)
    console.print(f"Use the best with: archwright predict {answer['run']} IMAGE...", markup=False)


def _beside(name: str, one: dict[str, Any]) -> str:
    latency = f" ({one['latency_ms']:.3g} ms)" if "latency_ms" in one else ""
    return f"{name} {one['accuracy']:.1f} %{latency}"


def show_predictions(predictions: Sequence[Prediction]) -> None:
    """Each image with its likeliest classes."""
    table = Table("image", "class", "probability", "then")
    for one in predictions:
        rest = ", ".join(f"{name} {100 * p:.1f} %" for name, p in one.top[1:])
        table.add_row(one.image, one.label, f"{100 * one.probability:.1f} %", rest)
    _console().print(table)


def show_runs(runs: Sequence[Run]) -> None:
    """One row a run."""
    if not runs:
        _console().print("No runs here. Start one with: archwright search random --data digits", markup=False)
        return
    table = Table(Column("run", no_wrap=True, overflow="fold"), "status", "method", "space", "data", "seed", "accuracy")
    for run in runs:
        c = run.configuration
        answer = run.stage_result("answer")
        accuracy = f"{answer['best']['accuracy']:.2f} %" if answer else ""
        source = c.get("data") or c.get("benchmark") or ""
        table.add_row(run.folder.name, run.status(), c["method"], c["space"], source, str(c["seed"]), accuracy)
    _console().print(table)


def show_run(run: Run) -> None:
    """Configuration, events and answer of one run."""
    console = _console()
    console.print(f"{run.folder}: {run.status()}", markup=False)
    table = Table("setting", "value")
    for name, value in run.configuration.items():
        if value not in (None, {}, False):
            table.add_row(name, str(value))
    console.print(table)
    for event in run.events():
        clock = time.strftime("%H:%M:%S", time.localtime(event["time"]))
        rest = ", ".join(f"{key} {value}" for key, value in event.items() if key not in ("time", "kind"))
        console.print(f"{clock}  {event['kind']}  {rest}", markup=False)
    if run.status() == "stopped":
        console.print(f"Continue with: archwright runs resume {run.folder}", markup=False)
