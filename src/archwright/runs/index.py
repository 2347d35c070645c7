"""Many runs in one look: a small file beside them remembers what was read, and each is checked against its files.

The index is a memory, never a source: an entry counts only while the files that it was read from are as they were
(times of change and size), and whether a run is finished or at work is looked up every time. Without it, or where it
cannot be read or written, everything is read again.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from archwright.errors import ArchwrightError, InputError
from archwright.runs.files import Json, atomic_file
from archwright.runs.run import Run, runs_root, status_of

FILE = ".archwright-index.json"
LARGEST = 100_000_000
"""Bytes of an index that is read."""
YOUNG_NS = 2_000_000_000
"""A file that changed so short a time ago may change again within the same tick of the clock: it is not remembered."""
SOURCES = ("run.json", "stages/answer.json")
"""What an entry is made of."""

State = tuple[int, int, int] | None
"""Of a file: when its content and its name changed, in nanoseconds, and its bytes; None where there is none."""
Stamp = tuple[State, State]
"""Of :data:`SOURCES`."""
Row = tuple[str, str, str, str, float | None, str]
"""The fields of :class:`Listed` from ``method`` on."""
Entries = dict[str, tuple[Stamp, Row]]
"""What is remembered of each run by the name of its folder."""


@dataclass(frozen=True)
class Listed:
    """A run as a list shows it.

    Attributes:
        name: of its folder.
        status: finished, running, stopped, or damaged where its answer cannot be read.
        method: that searches.
        space: that is searched.
        source: data or benchmark; empty where there is none.
        seed: of the search.
        accuracy: of the answer, in percent or a user's own score; None where there is none yet.
        accuracy_on: what that was measured on.
    """

    name: str
    status: str
    method: str
    space: str
    source: str
    seed: str
    accuracy: float | None
    accuracy_on: str


def list_folder(root: Path | None = None) -> tuple[list[Listed], list[str]]:
    """The runs of a folder by name, which is oldest first, and one sentence for each that is not readable."""
    root = runs_root() if root is None else root
    known, kept = _remembered(root), Entries()
    found, damaged = list[Listed](), list[str]()
    for name, stamp in _stamps(root):
        before, row = known.get(name, (None, None))
        whole = True
        try:
            if row is None or before != stamp:
                row, whole = _read(root / name)
            found.append(Listed(name, shown_status(root / name) if whole else "damaged", *row))
        except (ArchwrightError, OSError) as error:
            damaged.append(f"{name}: {error}")
            continue
        if whole and _is_settled(stamp):
            kept[name] = stamp, row
    if kept != known:
        _remember(root, kept)
    return found, damaged


def shown_status(folder: Path) -> str:
    """The status of the run in ``folder``; ``damaged`` where its files do not say."""
    try:
        return status_of(folder)
    except (ArchwrightError, OSError):
        return "damaged"


def _stamps(root: Path) -> Iterator[tuple[str, Stamp]]:
    """Folders with a ``run.json``, by name, and the state of what an entry is made of."""
    try:
        with os.scandir(root) as every:
            names = sorted(one.name for one in every if one.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        header, answer = (_state(f"{root}/{name}/{source}") for source in SOURCES)
        if header is not None:
            yield name, (header, answer)


def _state(path: str) -> State:
    try:
        found = os.stat(path)  # noqa: PTH116 - ten thousands of them, and a Path takes as long as the system
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _is_settled(stamp: Stamp) -> bool:
    """Whether a further change would have another time."""
    newest = max(max(state[:2]) for state in stamp if state is not None)
    return newest < time.time_ns() - YOUNG_NS


def _read(folder: Path) -> tuple[Row, bool]:
    """What the files say, and whether the answer among them could be read."""
    run = Run.open(folder, whole=False)
    asked, best, whole = run.configuration, dict[str, Json](), True
    try:
        answer = run.stage_result("answer")
        best = {} if answer is None else dict(answer["best"])
    except (ArchwrightError, OSError, LookupError, TypeError, ValueError):  # the run is there; its answer is not
        whole = False
    accuracy = best.get("accuracy")
    row = (
        str(asked.get("method", "?")),
        str(asked.get("space", "?")),
        str(asked.get("data") or asked.get("benchmark") or ""),
        str(asked.get("seed", "?")),
        float(accuracy) if isinstance(accuracy, int | float) else None,
        str(best.get("accuracy_on") or ""),
    )
    return row, whole


# --- the file --------------------------------------------------------------------------------------------------------


class _Index(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    format: Literal[1] = 1
    runs: Entries


def _remembered(root: Path) -> Entries:
    """What the index says; nothing where there is none, or something else in its place."""
    path = root / FILE
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            return {}
        return _Index.model_validate_json(path.read_bytes()).runs
    except (OSError, ValueError):  # pydantic's errors are ValueErrors
        return {}


def _remember(root: Path, entries: Entries) -> None:
    """Write the index; a folder that cannot be written has none."""
    with suppress(OSError, InputError, ValueError), atomic_file(root / FILE, lasting=False) as file:
        file.write(_Index(runs=entries).model_dump_json().encode())
