"""How runs look in a terminal, without waiting for torch."""

from __future__ import annotations

from collections.abc import Sequence

from archwright.cli.view import show_found
from archwright.runs.index import Listed
from archwright.runs.lock import holder
from archwright.runs.run import Run, resume_command
from archwright.runs.telling import told
from archwright.search.answer import Answer
from archwright.search.values import OWN_FUNCTION
from archwright.terminal import say, show_table

MOST_EVENTS = 40
"""The last ones are shown."""


def show_runs(runs: Sequence[Listed], damaged: Sequence[str]) -> None:
    """One row a run, and one line for each folder whose run cannot be read.

    Args:
        runs: in the order of the rows.
        damaged: what is wrong with the folders that cannot be read.
    """
    rows = [(run.name, run.status, run.method, run.space, run.source, run.seed, _accuracy(run)) for run in runs]
    if rows:
        show_table(("run", "status", "method", "space", "data", "seed", "accuracy"), rows)
    elif not damaged:
        say("No runs here. Start one with: archwright search random --data digits")
    for text in damaged:
        say(f"Not readable: {text}")


def _accuracy(run: Listed) -> str:
    if run.accuracy is None:
        return ""
    return f"{run.accuracy:.2f}" + " %" * (run.accuracy_on != OWN_FUNCTION)


def show_run(run: Run) -> None:
    """Configuration, stages and last events of one run, and what it found."""
    (events, total), status = run.last_events(MOST_EVENTS), run.status()
    say(f"{run.folder}: {status}")
    show_table(
        ("setting", "value"),
        [(name, str(value)) for name, value in run.configuration.items() if value not in (None, {}, False)],
    )
    plan = run.header.get("plan", [])
    for number, stage in enumerate(plan, 1):
        state = "to do" if run.stage_result(stage["name"]) is None else "done"
        say(f"stage {number} of {len(plan)}: {stage['title']}: {state}")
    if len(events) < total:
        say(f"{total:,} events, all in {run.folder / 'events.jsonl'}; the last {len(events)}:")
    for event in events:
        say(told(event))
    worker = holder(run.folder)
    if status != "finished" and worker is not None and worker.elsewhere:
        say(f"{'In use' if status == 'running' else 'Left behind'} by {worker}.")
    if status == "stopped":
        say(f"Continue with: {resume_command(run.folder)}")
    if status == "finished":
        show_found(Answer.read(run.folder))
