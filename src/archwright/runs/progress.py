"""What a person sees while a run works: one bar a stage with the time left, and lines of text, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from archwright.terminal import visible


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
    """Progress on stderr by rich; where stderr is no terminal only the lines of text appear."""

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
        with RichProgress(*columns, console=self.console, transient=True, disable=not self.console.is_terminal) as live:
            yield _RichBar(live, live.add_task(title, total=total, completed=done, note=""))


class _RichBar(Bar):
    def __init__(self, live: Any, task: Any) -> None:
        self._live, self._task = live, task

    def advance(self, count: int = 1) -> None:
        self._live.advance(self._task, count)

    def note(self, text: str) -> None:
        self._live.update(self._task, note=text)
