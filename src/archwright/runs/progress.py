"""What a person sees while a run works: one bar a stage with the time left, and lines of text, on stderr.

:class:`KeptProgress` writes the same into the run's folder, for those who look on from elsewhere;
:class:`LoggedProgress` says it to the logger ``archwright``, for programs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from archwright.errors import InputError
from archwright.log import logger
from archwright.runs import disk
from archwright.runs.files import atomic_file, strict_json
from archwright.terminal import visible

if TYPE_CHECKING:
    from archwright.runs.run import Run

FILE = "progress.json"
"""In the run's folder: ``{"bars": [{"title", "done", "total", "note", "begun", "before"}]}``, outermost bar first."""
SECONDS_A_WRITE = 1.0
"""Least time between two states of a bar that are kept."""

SECONDS_A_LINE = 30.0
"""Least time between two lines of a bar that is no terminal's."""


FEWEST_UNITS, LEAST_SHARE = 4, 0.03
"""Units, and the part of all, that must be done before the rest is known to a factor of two."""


def seconds_left(done: float, left: float, seconds: float) -> float | None:
    """How long the rest takes; None where that is not yet known to a factor of two.

    Args:
        done: units that this session did.
        left: units to do.
        seconds: that the session has worked.
    """
    if left <= 0 or done < FEWEST_UNITS or done < LEAST_SHARE * (done + left):
        return None
    return seconds / done * left


def said_seconds(seconds: float) -> str:
    """Seconds as a person says them: ``8 s``, ``12 min``, ``3.5 h``, ``2.1 days``."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


class Progress:
    """The silent progress; :class:`TerminalProgress` shows it."""

    def say(self, text: str) -> None:
        """Show one line of text."""

    def warn(self, text: str) -> None:
        """Show one line that should not be missed."""
        self.say(text)

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """A bar called ``title`` of ``total`` units, of which ``done`` are done before the start."""
        yield Bar()


class Bar:
    """A task under way."""

    def advance(self, count: int = 1) -> None:
        """``count`` further units are done."""

    def note(self, text: str) -> None:
        """Show a short remark beside the bar."""


class TerminalProgress(Progress):
    """Progress on stderr by rich; where stderr is no terminal, a line now and then instead of a bar."""

    def __init__(self) -> None:
        from archwright.terminal import console

        self.console = console(stderr=True)

    def say(self, text: str) -> None:
        """Print one line on stderr."""
        self.console.print(visible(text))

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """Show a bar with elapsed and remaining time."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        columns = [
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[note]}"),
        ]
        if not self.console.is_terminal:
            yield _PlainBar(self, title, total, done)
            return
        with RichProgress(*columns, console=self.console, transient=True) as live:
            yield _RichBar(live, live.add_task(title, total=total, completed=done, note="", left=""), total - done)


class QuietProgress(TerminalProgress):
    """Warnings on stderr, and nothing else."""

    def say(self, text: str) -> None:
        """Nothing: only warnings are shown."""
        if text.startswith("Warning"):
            super().say(text)

    def warn(self, text: str) -> None:
        """Print one line on stderr."""
        super().say(text)

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """Show no bar, whatever ``title`` and ``total`` are; ``done`` does not matter either."""
        yield Bar()


class _PlainBar(Bar):
    """A line now and then, for logs."""

    def __init__(self, progress: TerminalProgress, title: str, total: int, done: int) -> None:
        self._progress, self._title, self._total, self._start = progress, title, total, done
        self._done, self._note = done, ""
        self._begin = self._said = time.monotonic()

    def advance(self, count: int = 1) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._said >= SECONDS_A_LINE:
            self._said = now
            seconds = seconds_left(self._done - self._start, self._total - self._done, now - self._begin)
            left = "" if seconds is None else f", about {said_seconds(seconds)} left"
            rest = f" ({self._note})" if self._note else ""
            self._progress.say(f"{self._title}: {self._done:,} of {self._total:,}{left}{rest}")

    def note(self, text: str) -> None:
        self._note = text


class _RichBar(Bar):
    def __init__(self, live: Any, task: Any, units: int) -> None:
        self._live, self._task, self._units = live, task, units
        self._begin, self._done = time.monotonic(), 0

    def advance(self, count: int = 1) -> None:
        self._live.advance(self._task, count)
        self._done += count
        seconds = seconds_left(self._done, self._units - self._done, time.monotonic() - self._begin)
        self._live.update(self._task, left="" if seconds is None else f"about {said_seconds(seconds)} left")

    def note(self, text: str) -> None:
        self._live.update(self._task, note=text)


class LoggedProgress(Progress):
    """Shows what another progress shows, and says it to the logger: lines at INFO, warnings, bars at DEBUG."""

    def __init__(self, shown: Progress) -> None:
        self._shown = shown

    def say(self, text: str) -> None:
        """Show one line and log it at INFO."""
        self._shown.say(text)
        logger.info("%s", visible(text))

    def warn(self, text: str) -> None:
        """Show one line and log it at WARNING."""
        self._shown.warn(text)
        logger.warning("%s", visible(text))

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """Show a bar and log its beginning and its end at DEBUG."""
        logger.debug("%s: %d of %d", title, done, total)
        with self._shown.task(title, total, done) as bar:
            yield bar
        logger.debug("%s: ended", title)


def logged(progress: Progress | None) -> Progress:
    """``progress``, or a silent one, that the logger hears, too; one that is heard already stays as it is."""
    return progress if isinstance(progress, LoggedProgress) else LoggedProgress(progress or Progress())


class KeptProgress(Progress):
    """Shows what another progress shows, and keeps it: lines as events of the run, bars in ``progress.json``.

    A bar is for the moment: it is written without waiting for the disk, and a file that cannot be written is no reason
    to lose a search.
    """

    def __init__(self, shown: Progress, run: Run) -> None:
        self._shown, self._run = shown, run
        self._bars: list[_KeptBar] = []
        self._written = -SECONDS_A_WRITE

    def say(self, text: str) -> None:
        """Show one line and record it."""
        self._shown.say(text)
        self._run.event("said", text=text)

    def warn(self, text: str) -> None:
        """Show one line that should not be missed and record it."""
        self._shown.warn(text)
        self._run.event("said", text=text)

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """A bar in both places."""
        with self._shown.task(title, total, done) as bar:
            kept = _KeptBar(self, bar, {"title": title, "total": total, "done": done, "before": done, "note": ""})
            self._bars.append(kept)
            self.write()
            try:
                yield kept
            finally:
                self._bars.remove(kept)
                self.write()

    def moved(self) -> None:
        """A bar has changed."""
        if time.monotonic() - self._written >= SECONDS_A_WRITE:
            self.write()

    def write(self) -> None:
        """Keep the present state of all bars; without any, no file."""
        self._written = time.monotonic()
        path = self._run.folder / FILE
        with suppress(OSError, InputError):
            if self._bars:
                with atomic_file(path, lasting=False) as file:
                    file.write(strict_json({"bars": [bar.state for bar in self._bars]}).encode())
            else:
                disk.remove(path)


class _KeptBar(Bar):
    def __init__(self, progress: KeptProgress, shown: Bar, state: dict[str, Any]) -> None:
        self._progress, self._shown = progress, shown
        self.state = {**state, "begun": round(time.time(), 3)}

    def advance(self, count: int = 1) -> None:
        self._shown.advance(count)
        self.state["done"] += count
        self._progress.moved()

    def note(self, text: str) -> None:
        self._shown.note(text)
        self.state["note"] = text
        self._progress.moved()
