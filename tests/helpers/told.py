"""Progress that keeps what is said."""

from __future__ import annotations

from archwright.runs.progress import Progress


class Told(Progress):
    """Keeps every line in :attr:`lines`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        """One line."""
        self.lines.append(text)
