"""Repeat the plan of an earlier run: everything that was timed there is taken over, so that the same steps are done."""

from __future__ import annotations

from pathlib import Path

from archwright.errors import InputError
from archwright.runs.files import write_atomic
from archwright.runs.run import Run
from archwright.search.values import StageResult

TIMED = ("stages/table.json", "stages/plan.json", "artifacts/latency.json")
"""Files that a run whose plan can be repeated has; the stages first."""
LOGS = ("items/proposals.jsonl", "items/growth.jsonl", "items/sizes.jsonl")
"""What it may have: networks that were timed when they were proposed."""


class RepeatResult(StageResult):
    """The run whose plan was taken over."""

    run: str


def source_of(folder: str, further: tuple[str, ...] = ()) -> Run:
    """The run in ``folder``, refused where it has no plan to repeat; ``further`` are files that it must have, too."""
    source = Run.open(Path(folder))
    missing = [name for name in (*TIMED, *further) if not (source.folder / name).is_file()]
    if missing:
        raise InputError("a run with a plan (of binas)", f"{source.folder} without {missing[0]}")
    return source


def take_over(run: Run, folder: str, further: tuple[str, ...] = ()) -> RepeatResult:
    """Copy the plan of the run in ``folder`` into ``run``: its stages ``table`` and ``plan`` are then done."""
    source = Path(folder)
    present = [name for name in LOGS if (source / name).is_file()]
    for name in (*present, *further, *TIMED[::-1]):  # the stages last: they say that the rest is there
        write_atomic(run.folder / name, (source / name).read_bytes())
    return RepeatResult(run=str(source))
