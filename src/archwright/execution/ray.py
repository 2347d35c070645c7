"""Run items on a Ray cluster: ``--executor ray --address HOST:PORT``, or a local one that is started for the run.

Ray runs an item again when its worker dies; what is finished is recorded here, on the driver, as with every executor.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

from archwright.errors import ArchwrightError, InputError, missing_extra
from archwright.execution.base import Item, Work
from archwright.runs.files import Json
from archwright.runs.stop import Stop


class RayExecutor:
    """Items as Ray tasks of one CPU each.

    Args:
        address: HOST:PORT of a running cluster's head; empty starts a local one with ``workers`` CPUs.
        workers: tasks under way at once.
    """

    def __init__(self, address: str = "", workers: int = 1) -> None:
        self.address, self.workers = address, workers
        if address:
            _check_address(address)
        try:
            import ray
        except ImportError as error:
            raise missing_extra("ray", "ray", "running on a Ray cluster") from error
        self._ray: Any = ray

    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """As they finish; the connection is closed afterwards."""
        ray = self._ray
        joined = not ray.is_initialized()
        if joined:
            where = (
                {"address": self.address} if self.address else {"num_cpus": self.workers, "include_dashboard": False}
            )
            ray.init(**where, logging_level="ERROR", log_to_driver=False)
        task = ray.remote(num_cpus=1, max_retries=3)(_call)
        queue, waiting = iter(items), {}
        try:
            for item in queue:
                waiting[task.remote(work, item.payload)] = item.key
                if len(waiting) >= 2 * self.workers:
                    break
            while waiting:
                stop.check()
                done, _ = ray.wait(list(waiting), num_returns=1, timeout=0.2)
                for reference in done:
                    key = waiting.pop(reference)
                    following = next(queue, None)
                    if following is not None:
                        waiting[task.remote(work, following.payload)] = following.key
                    yield key, self._result(reference, key)
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)
            if joined:
                ray.shutdown()

    def _result(self, reference: Any, key: str) -> Json:
        ray = self._ray
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.as_instanceof_cause() from error
        except ray.exceptions.WorkerCrashedError as error:
            raise ArchwrightError(
                f"the Ray worker of item {key} died again and again; what is finished is kept: resume."
            ) from error


def _call(work: Work, payload: Json) -> Json:
    import torch

    torch.set_num_threads(1)
    return work(payload, Stop())


def _check_address(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InputError("a Ray address HOST:PORT", repr(address))
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError as error:
        raise InputError(
            f"a Ray cluster that answers at {address}", f"no answer ({error})", "Start one with: ray start --head"
        ) from error
