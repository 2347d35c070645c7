"""What a person sees while a run works: one bar a stage with the time left, and lines of text, on stderr."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from archwright.terminal import visible

SECONDS_A_LINE = 30.0
"""Least time between two lines of a bar that is no terminal's."""


class Progress:
    """The silent progress; :class:`TerminalProgress` shows it."""

    def say(self, text: str) -> None:
        """Show one line."""

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """A bar of ``total`` units of which ``done`` are done before the start."""
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
        """Print one line."""
        self.console.print(visible(text))

    @contextmanager
    def task(self, title: str, total: int, done: int = 0) -> Iterator[Bar]:
        """Show a bar with elapsed and remaining time."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = [
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("elapsed"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        ]
        if not self.console.is_terminal:
            yield _PlainBar(self, title, total, done)
            return
        with RichProgress(*columns, console=self.console, transient=True) as live:
            yield _RichBar(live, live.add_task(title, total=total, completed=done, note=""))


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
            seconds = (now - self._begin) / max(1, self._done - self._start) * (self._total - self._done)
            left = f", about {seconds / 60:.1f} min left" if self._done < self._total else ""
            rest = f" ({self._note})" if self._note else ""
            self._progress.say(f"{self._title}: {self._done:,} of {self._total:,}{left}{rest}")

    def note(self, text: str) -> None:
        self._note = text


class _RichBar(Bar):
    def __init__(self, live: Any, task: Any) -> None:
        self._live, self._task = live, task

    def advance(self, count: int = 1) -> None:
        self._live.advance(self._task, count)

    def note(self, text: str) -> None:
        self._live.update(self._task, note=text)
