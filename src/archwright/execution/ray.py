"""Run items on a Ray cluster: ``--executor ray --address HOST:PORT``, or a local one that is started for the run.

Ray runs an item again when its worker dies; what is finished is recorded here, on the driver, as with every executor.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archwright.errors import ArchwrightError, InputError, missing_extra
from archwright.execution.base import Executor, Item, Work
from archwright.execution.ray_machines import RETRIES, Machine, Machines, Sent, one_line, pinned_to, receive
from archwright.execution.worker import portable
from archwright.runs.files import Json
from archwright.runs.stop import Stop

GUARD = Path(__file__).with_name("ray_guard.py")
CHUNK_SECONDS = 0.2
"""Of a task: smaller items go together, as sending and recording one takes milliseconds."""
MOST_TOGETHER = 64


class RayExecutor(Executor):
    """Items as Ray tasks of one CPU each (and one GPU where they use one); one connection for a whole run.

    Args:
        address: HOST:PORT of a running cluster's head; empty starts a local one with ``workers`` CPUs.
        workers: items that are worked on at once.
    """

    def __init__(self, address: str = "", workers: int = 1) -> None:
        if workers < 1:
            raise InputError("at least one worker", str(workers))
        self.address, self.workers = address, workers
        if address:
            _check_address(address)
        if "ray" not in sys.modules:
            _set_environment(address)
        try:
            import ray
        except ImportError as error:
            raise missing_extra("ray", "ray", "running on a Ray cluster") from error
        self._ray: Any = ray
        self._machines: Machines | None = None
        self._joined = False
        self._guard: subprocess.Popen[bytes] | None = None

    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """Yield (key, result) as tasks of the cluster finish; an item whose paths a machine lacks is refused first."""
        for some in self.batches(work, items, stop):
            yield from some

    def batches(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[list[tuple[str, Json]]]:
        """As :meth:`run`, what has come since the last look at a time."""
        self.require({path for item in items for path in item.needs})
        assert self._machines is not None
        dealt = _Dealt(self._ray, self._machines, work, list(items), self.workers)
        try:
            while dealt.left:
                dealt.give()
                results, failed = dealt.collect()
                if results:
                    yield results
                stop.check()
                if failed is not None:
                    raise failed
        finally:
            dealt.cancel()

    def close(self) -> None:
        """Leave the cluster; a local one ends."""
        if self._joined:
            self._ray.shutdown()
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
        self._machines, self._joined, self._guard = None, False, None

    def _connect(self) -> Machines:
        if self._machines is not None:
            return self._machines
        ray = self._ray
        if not ray.is_initialized():
            where: dict[str, Any] = {"address": self.address}
            if not self.address:
                where = {"address": "local", "num_cpus": self.workers, "include_dashboard": False}
                self._guard = _start_guard(Path(ray.__file__).parent)
            try:
                with _quiet(), nullcontext() if self.address else _on_loopback():
                    ray.init(**where, logging_level="CRITICAL", log_to_driver=False)
            except Exception as error:  # Ray raises its own, grpc's and built-in errors here
                self.close()
                raise InputError(
                    f"a Ray cluster that can be joined at {self.address or 'this machine'}",
                    one_line(error),
                    "It needs this version of Ray, and RAY_AUTH_MODE here as there: token (with the cluster's token in "
                    "~/.ray/auth_token) or disabled.",
                ) from error
            self._joined = True
        self._machines = Machines(ray)
        return self._machines

    def require(self, paths: Collection[str]) -> None:
        """Connect; refuse paths that a machine of the cluster lacks, and machines without this version of ours."""
        self._connect().require(paths)


@dataclass
class _Task:
    """Items that a machine works on, one after the other."""

    machine: Machine
    items: list[Item]


class _Dealt:
    """The items of one call: which wait, which are where, and how long one takes."""

    def __init__(self, ray: Any, machines: Machines, work: Work, items: list[Item], workers: int) -> None:
        self._ray, self._machines, self._work, self._workers = ray, machines, work, workers
        self._queue, self._tasks = deque(items), dict[Any, _Task]()
        self._gpu = items[0].gpu if items else "none"
        self._seconds: float | None = None
        self._lost = Counter[str]()
        self._remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_work_off)

    @property
    def left(self) -> int:
        """Items without a result."""
        return len(self._queue) + sum(len(task.items) for task in self._tasks.values())

    def give(self) -> None:
        """Give waiting items to machines with room; machines that have joined are asked."""
        self._machines.look()
        self._machines.deal(self._workers, self._gpu)
        while self._queue and (machine := self._machines.free()) is not None:
            some = [self._queue.popleft() for _ in range(self._together())]
            gpus = int(self._gpu != "none" and machine.gpus > 0)
            task = self._remote.options(num_gpus=gpus, scheduling_strategy=pinned_to(machine.node))
            reference = task.remote(self._work, [item.payload for item in some], self._machines.sent)
            self._tasks[reference] = _Task(machine, some)
            machine.under_way += 1

    def _together(self) -> int:
        """Items of the next task: one until it is known how long one takes; fewer where few are left to share."""
        if self._seconds is None:
            return 1
        fitting = min(MOST_TOGETHER, int(CHUNK_SECONDS / max(self._seconds, 1e-6)))
        return max(1, min(fitting, len(self._queue) // (2 * self._machines.slots)))

    def collect(self) -> tuple[list[tuple[str, Json]], BaseException | None]:
        """Results that have come within a moment, and why an item failed if one did."""
        waiting = list(self._tasks)
        done, _ = self._ray.wait(waiting, num_returns=1, timeout=0.2)
        if done:
            done, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        results: list[tuple[str, Json]] = []
        failed: BaseException | None = None
        for reference in done:
            task = self._tasks.pop(reference)
            task.machine.under_way -= 1
            try:
                seconds, found, error = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                failed = self._after(task, error) or failed
                continue
            self._seconds = seconds / max(1, len(found))
            results += [(item.key, result) for item, result in zip(task.items, found, strict=False)]
            failed = error or failed
        return results, failed

    def _after(self, task: _Task, error: Exception) -> BaseException | None:
        """What to raise after a task that ended without an answer; nothing where its machine is gone: others do it."""
        errors, what = self._ray.exceptions, f"the item {task.items[0].key}"
        if isinstance(error, errors.NodeDiedError | errors.TaskUnschedulableError | errors.ObjectLostError):
            self._machines.lose(task.machine)
            self._queue.extendleft(reversed(task.items))
            self._lost.update(item.key for item in task.items)
            if max(self._lost.values()) <= RETRIES:
                return None
        if isinstance(error, errors.RayTaskError):
            cause: BaseException = (
                error.cause
            )  # as it was raised there, without Ray's copy of the traceback in its text
            return cause
        if isinstance(error, errors.WorkerCrashedError):
            return ArchwrightError(
                f"the Ray worker of {what} died {RETRIES + 1} times; it may need more memory than there is. "
                "What is finished is kept: resume."
            )
        return ArchwrightError(f"Ray could not finish {what}: {one_line(error)}. What is finished is kept: resume.")

    def cancel(self) -> None:
        """End what is under way."""
        for reference, task in self._tasks.items():
            task.machine.under_way -= 1
            self._ray.cancel(reference, force=True)
        self._tasks.clear()


def _set_environment(address: str) -> None:
    """What Ray reads when it is imported; anything that the user has set stays.

    The head of `ray start` asks for the token that it left in the home folder, and a driver that joins it sends that
    only in token mode. A local cluster is Ray's own business.
    """
    given = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}  # else a note about it in every run
    if address:
        given["RAY_AUTH_MODE"] = "token"
    for name, value in given.items():
        os.environ.setdefault(name, value)


@contextmanager
def _on_loopback() -> Iterator[None]:
    """Let a cluster that begins meanwhile listen to this machine only; Ray does so where it may not form clusters."""
    from ray._private import ray_constants

    name, before = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR, ray_constants.ENABLE_RAY_CLUSTER
    kept = os.environ.get(name)
    os.environ[name], ray_constants.ENABLE_RAY_CLUSTER = "0", False  # its processes read the one, this one the other
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before
        os.environ.pop(name)
        if kept is not None:
            os.environ[name] = kept


def _start_guard(folder: Path) -> subprocess.Popen[bytes] | None:
    """A process that ends the cluster of this one, made from Ray's ``folder``, where this one is killed."""
    if not Path("/proc/self/stat").exists():
        return None
    command = [sys.executable, "-P", str(GUARD), str(os.getpid()), str(folder)]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, process_group=0)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what Ray's core prints while it connects (a line a second where it may not) off the screen."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _work_off(
    work: Work, payloads: Sequence[Json], sent: dict[str, Sent]
) -> tuple[float, list[Json], Exception | None]:
    """On a machine: seconds that all took, results of the first items, and why the next one failed if one did."""
    import torch

    torch.set_num_threads(1)
    receive(sent)
    results: list[Json] = []
    begin = time.perf_counter()
    for payload in payloads:
        try:
            results.append(work(payload, Stop()))
        except Exception as error:  # noqa: BLE001 - whatever it is, the driver is to know
            return time.perf_counter() - begin, results, portable(error)
    return time.perf_counter() - begin, results, None


def _check_address(address: str) -> None:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError("a Ray address HOST:PORT", repr(address))
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError as error:
        raise InputError(
            f"a Ray cluster that answers at {address}", f"no answer ({error})", "Start one with: ray start --head"
        ) from error
