"""The executor that needs nothing: this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from archwright.execution.base import Executor, Item, Work
from archwright.runs.files import Json
from archwright.runs.stop import Stop


class InProcess(Executor):
    """One item after the other, here; the work sees the run's own ``stop`` and can save in the middle of an item."""

    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """Yield (key, result) in the order of the items."""
        for item in items:
            stop.check()
            yield item.key, work(item.payload, stop)
