"""What the dashboard shows at this moment, looked up once for all pages that look on, however many these are."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool

from archwright.report.folders import open_run
from archwright.report.story import Reader, Story
from archwright.runs.files import Json
from archwright.runs.run import Run

MOST_READERS = 16
"""Runs whose story so far is kept, the latest looked at."""
MOST_SHOWN = 64
"""Pages that are kept for others who ask for the same."""


K = TypeVar("K")
V = TypeVar("V")


def _latest(kept: OrderedDict[K, V], key: K, make: Callable[[], V], most: int) -> V:
    """What is kept for ``key``, made where there is nothing; beyond ``most`` the longest unused goes."""
    found = kept.pop(key) if key in kept else make()
    kept[key] = found
    while len(kept) > most:
        kept.popitem(last=False)
    return found


class Readers:
    """The stories of the runs in a folder; what was read of a run is not read again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._readers: OrderedDict[str, Reader] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def story(self, name: str) -> Iterator[tuple[Run, Story]]:
        """The run called ``name``, opened and checked anew, and its story, which nobody else changes meanwhile."""
        run = open_run(self._root, name)
        with self._lock:
            reader = _latest(self._readers, name, lambda: Reader(run), MOST_READERS)
        with reader.lock:
            reader.run = run
            yield run, reader.read()


@dataclass
class _Shown:
    text: str = ""
    due: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Looks:
    """Texts that are made anew at most every so often, once for all who ask.

    Args:
        look: what is shown of a run, or of all runs for None; called in a thread.
        seconds: least time between two looks at the same; looks after the first, which reads everything, may take a
            tenth of the time at most.
    """

    def __init__(self, look: Callable[[str | None], Json], seconds: float) -> None:
        self._look, self._seconds = look, seconds
        self._shown: OrderedDict[str | None, _Shown] = OrderedDict()

    async def text(self, name: str | None) -> str:
        """What is to be shown of ``name``, as JSON."""
        shown = _latest(self._shown, name, _Shown, MOST_SHOWN)
        async with shown.lock:
            begin, first = time.monotonic(), shown.text == ""
            if begin >= shown.due:
                shown.text = json.dumps(await run_in_threadpool(self._look, name))
                end = time.monotonic()
                shown.due = end + max(self._seconds, 0 if first else 9 * (end - begin))
        return shown.text
