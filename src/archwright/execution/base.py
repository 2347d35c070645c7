"""Run independent work items and record each as soon as it is done.

An item is a key and a JSON payload; the work is a module-level function ``function(payload, stop)`` that returns JSON,
so that it can run here, in another process or on another machine. Results are the same whatever the executor, and
whatever the order in which items finish.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from archwright.errors import InputError, unknown_name
from archwright.runs.files import Json
from archwright.runs.progress import Bar
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop

Work = Callable[[Json, Stop], Json]

_CHEAP: set[Work] = set()


def cheap(work: Work) -> Work:
    """Mark work that costs less than sending it away: whatever the executor, :func:`run_items` does it here."""
    _CHEAP.add(work)
    return work


@dataclass(frozen=True)
class Item:
    """One piece of independent work.

    Attributes:
        key: its name among the items of a stage.
        payload: what the work is given.
        needs: absolute paths that the work reads; an executor of several machines refuses it where one lacks them.
        gpu: whether the work computes on a GPU: ``none``, ``any`` (where the machine has one), or ``must``.
    """

    key: str
    payload: Json
    needs: tuple[str, ...] = ()
    gpu: Literal["none", "any", "must"] = "none"


class Executor(ABC):
    """Something that runs items. One serves a whole run: made once, used for any number of batches, then closed.

    What it starts (processes, a connection) it starts when the first item comes and keeps until :meth:`close`.
    """

    workers: int = 1
    """Items under way at once."""

    @abstractmethod
    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """Yield (key, result) as items finish, in any order.

        When ``stop`` is requested, or an item raises, what is under way is ended and the reason is raised here; the
        executor can be used again afterwards.

        Args:
            work: a function of a module, called with the payload of an item and a stop.
            items: what is to be done; their keys differ.
            stop: looked at while items run.
        """

    def batches(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[list[tuple[str, Json]]]:
        """As :meth:`run`, several at a time where they have come together: they are recorded together.

        Args:
            work: a function of a module, called with the payload of an item and a stop.
            items: what is to be done; their keys differ.
            stop: looked at while items run.
        """
        return ([one] for one in self.run(work, items, stop))

    def require(self, paths: Collection[str]) -> None:  # noqa: B027 - this machine needs no look
        """Refuse, before a run begins, a cluster that cannot be joined or that lacks one of these absolute paths."""

    def close(self) -> None:  # noqa: B027 - not every executor starts something
        """End what was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_items(
    executor: Executor,
    work: Work,
    items: Sequence[Item],
    log: ItemLog,
    stop: Stop,
    bar: Bar | None = None,
    on_result: Callable[[str, Json], None] = lambda key, result: None,
) -> dict[str, Json]:
    """Run the items that ``log`` does not have yet; return the results of all of ``items`` by key, in their order.

    Args:
        executor: where they run; work that is :func:`cheap` runs here.
        work: a function of a module, called with the payload of an item and a stop.
        items: what is to be done; their keys differ.
        log: finished items, each recorded as soon as it is done.
        stop: looked at while items run.
        bar: advanced by one for each item that was run.
        on_result: called with the key and result of each of them when it is on disk.
    """
    from archwright.execution.local import InProcess

    waiting = [item for item in items if item.key not in log.done]
    chosen = InProcess() if work in _CHEAP else executor
    for some in chosen.batches(work, waiting, stop) if waiting else ():
        log.record_all(some)
        for key, result in some:
            on_result(key, result)
            if bar is not None:
                bar.advance()
    return {item.key: log.done[item.key] for item in items}


def make_executor(name: str = "here", workers: int = 1, address: str = "") -> Executor:
    """The executor of a name.

    Args:
        name: ``here`` (this process), ``processes`` or ``ray``.
        workers: processes of one thread each, or items at once on a cluster.
        address: HOST:PORT of a Ray cluster; empty starts one on this machine.
    """
    from archwright.execution.local import InProcess
    from archwright.execution.processes import Processes

    if address and name != "ray":
        raise InputError("--executor ray beside an address", f"{address!r} with the executor {name!r}")
    if name == "here":
        if workers != 1:
            raise InputError("--executor processes or ray beside --workers", f"{workers} workers in one process")
        return InProcess()
    if name == "processes":
        return Processes(workers)
    if name == "ray":
        from archwright.execution.ray import RayExecutor

        return RayExecutor(address, workers)
    raise unknown_name("executor", name, ("here", "processes", "ray"))
