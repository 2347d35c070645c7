"""A pool of worker processes on this machine, kept for a whole run.

The standard pools do not serve: their workers import the caller's modules before anything of ours runs in them, so that
a parent killed during that import leaves them behind, and they do not say whose worker died. Here a worker is a fresh
interpreter that runs :mod:`archwright.execution.worker` first, and has one item at a time.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from archwright.device import visible_gpus
from archwright.errors import ArchwrightError, InputError
from archwright.execution.base import Executor, Item, Work
from archwright.runs.files import Json
from archwright.runs.stop import Stop

ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Environment of a worker: as many threads as workers, none of them spinning while it waits."""
WORKER = Path(__file__).with_name("worker.py")
POLL_SECONDS = 0.2
"""How often a waiting pool looks whether it is to stop."""


class Processes(Executor):
    """``workers`` fresh processes with one torch thread each; an item whose process dies is tried once more."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise InputError("at least one worker", str(workers))
        self.workers = workers
        self.started = 0
        """Processes started so far."""
        self._idle: list[_Worker] = []
        self._busy: dict[Connection[Any, Any], _Worker] = {}
        self._end = weakref.finalize(self, _end_all, self._idle, self._busy)  # also when nobody closes it

    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """Yield (key, result) as workers finish; an item whose worker died is tried once more."""
        _check_importable(work)
        queue, deaths = deque(items), Counter[str]()
        try:
            while queue or self._busy:
                self._deal(work, queue)
                failed: BaseException | None = None
                for worker in [self._busy.pop(connection) for connection in self._ready()]:
                    item, answer = worker.item, worker.receive()
                    if answer is None:
                        deaths[item.key] += 1
                        queue.appendleft(item)
                        continue
                    self._idle.append(worker)
                    if answer[0] == "done":
                        yield item.key, answer[1]
                    else:
                        failed = answer[1]
                stop.check()
                _refuse_second_death(deaths)
                if failed is not None:
                    raise failed
        finally:
            while self._busy:  # nobody waits for these any more
                self._busy.popitem()[1].end()

    def close(self) -> None:
        """End all workers; a later run starts new ones."""
        _end_all(self._idle, self._busy)

    def _deal(self, work: Work, queue: deque[Item]) -> None:
        """Give waiting items to idle workers, starting further ones up to the number allowed."""
        while queue and len(self._busy) < self.workers:
            if not self._idle:
                self._idle.append(_Worker(_least_used([one.gpu for one in self._busy.values()])))
                self.started += 1
            worker = self._idle.pop()
            worker.send(work, queue.popleft())
            self._busy[worker.connection] = worker

    def _ready(self) -> list[Any]:
        return wait(list(self._busy), POLL_SECONDS)


class _Worker:
    """One process, the pipe to it, and what it works on."""

    item: Item

    def __init__(self, gpu: str | None) -> None:
        self.connection, theirs = Pipe()
        self.gpu = gpu
        """The one GPU that it sees, as CUDA_VISIBLE_DEVICES names it."""
        seen = {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}
        # The kernel's parent-death signal follows the thread that starts the process, so it is for the main one only.
        by_signal = threading.current_thread() is threading.main_thread()
        arguments = [theirs.fileno(), os.getpid(), int(by_signal)]
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), *map(str, arguments)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=2,  # this process' stdout may be read by a script
            env={**os.environ, **ONE_THREAD, **seen},
            process_group=0,  # Ctrl-C in a terminal is this process' business
        )
        theirs.close()
        self._post(sys.path)

    def send(self, work: Work, item: Item) -> None:
        """Give it an item."""
        self.item = item
        self._post((work, item.payload))

    def _post(self, message: object) -> None:
        with contextlib.suppress(OSError):  # it died; receive says so
            self.connection.send(message)

    def receive(self) -> tuple[str, Any] | None:
        """("done", result) or ("failed", exception); None, and the process is put away, if it died."""
        try:
            answer: tuple[str, Any] = pickle.loads(self.connection.recv_bytes())  # noqa: S301 - of our own worker
        except (EOFError, OSError):
            self.end()
            return None
        return answer

    def end(self) -> None:
        """At once: it keeps nothing that a kill could damage."""
        self.process.kill()
        self.process.wait()
        self.connection.close()


def _least_used(used: Sequence[str | None]) -> str | None:
    """The GPU of this machine that the fewest of the workers with these GPUs have; None where there are none."""
    every = visible_gpus()
    return min(every, key=used.count) if every else None


def _end_all(idle: list[_Worker], busy: dict[Any, _Worker]) -> None:
    while idle:
        idle.pop().end()
    while busy:
        busy.popitem()[1].end()


def _check_importable(work: Work) -> None:
    if getattr(work, "__module__", "") == "__main__":
        raise InputError(
            "work that other processes can import", "a function of the script itself", "Move it into a module."
        )


def _refuse_second_death(deaths: Counter[str]) -> None:
    for key, count in deaths.items():
        if count > 1:
            raise ArchwrightError(
                f"a worker process died twice on the item {key}; it may need more memory than there is. "
                "What is finished is kept: use fewer workers and resume."
            )
