"""Executors of one machine: in this process, or in several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from archwright.errors import ArchwrightError, InputError
from archwright.execution.base import Item, Work
from archwright.runs.files import Json
from archwright.runs.stop import Stop


class InProcess:
    """One item after the other, here; the work sees the run's own ``stop`` and can save in the middle of an item."""

    workers = 1

    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """In the order given."""
        for item in items:
            stop.check()
            yield item.key, work(item.payload, stop)


class Processes:
    """``workers`` fresh processes with one torch thread each; an item whose process dies is tried once more."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise InputError("at least one worker", str(workers))
        self.workers = workers

    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """As they finish."""
        left = {item.key: item for item in items}
        died: set[str] = set()
        while left:
            try:
                for key, result in self._run_pool(work, list(left.values()), stop):
                    del left[key]
                    yield key, result
            except BrokenProcessPool as error:
                # The pool does not say whose process died, so every unfinished item gets one more chance.
                if died & set(left):
                    raise ArchwrightError(
                        f"a worker process died twice on one of the items {sorted(left)[:3]}; it may need more memory "
                        "than there is. What is finished is kept: use fewer workers and resume."
                    ) from error
                died |= set(left)

    def _run_pool(self, work: Work, items: list[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_prepare_worker)
        waiting: dict[Future[Json], str] = {}
        queue = iter(items)
        try:
            for item in islice(queue, 2 * self.workers):
                waiting[pool.submit(_call, work, item.payload)] = item.key
            while waiting:
                done, _ = wait(waiting, timeout=0.2, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda one: one.exception() is not None):  # results before failures
                    yield waiting.pop(future), future.result()
                stop.check()
                for item in islice(queue, len(done)):
                    waiting[pool.submit(_call, work, item.payload)] = item.key
        finally:
            for process in list((pool._processes or {}).values()):
                process.terminate()
            pool.shutdown(wait=True, cancel_futures=True)


def _prepare_worker() -> None:
    """One thread a process; Ctrl-C is the parent's business, and no worker outlives it."""
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    os.environ["OMP_NUM_THREADS"] = "1"
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(1)


def _end_with(parent: int) -> None:
    """End this process when its parent is gone: one that was killed cannot say so, and its run may be resumed."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os._exit(1)


def _call(work: Work, payload: Json) -> Json:
    return work(payload, Stop())
