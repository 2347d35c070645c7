"""Run independent work items and record each as soon as it is done.

An item is a key and a JSON payload; the work is a module-level function ``function(payload, stop)`` that returns JSON,
so that it can run here, in another process or on another machine. Results are the same whatever the executor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from archwright.errors import unknown_name
from archwright.runs.files import Json
from archwright.runs.progress import Bar
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop

Work = Callable[[Json, Stop], Json]


@dataclass(frozen=True)
class Item:
    """One piece of independent work."""

    key: str
    payload: Json


class Executor(Protocol):
    """Something that runs items; results come back in any order."""

    workers: int

    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """Yield (key, result) as items finish. When ``stop`` is requested, end what runs and raise."""


def run_items(
    executor: Executor, work: Work, items: Sequence[Item], log: ItemLog, stop: Stop, bar: Bar | None = None
) -> dict[str, Json]:
    """Run the items that ``log`` does not have yet; return the results of all of ``items`` by key."""
    waiting = [item for item in items if item.key not in log.done]
    for key, result in executor.run(work, waiting, stop) if waiting else ():
        log.record(key, result)
        if bar is not None:
            bar.advance()
    return {item.key: log.done[item.key] for item in items}


def make_executor(name: str = "here", workers: int = 1, address: str = "") -> Executor:
    """``here`` (this process), ``processes`` (``workers`` of one thread each) or ``ray`` (a cluster at ``address``)."""
    from archwright.execution.local import InProcess, Processes

    if name == "here":
        return InProcess()
    if name == "processes":
        return Processes(workers)
    if name == "ray":
        from archwright.execution.ray import RayExecutor

        return RayExecutor(address, workers)
    raise unknown_name("executor", name, ("here", "processes", "ray"))
