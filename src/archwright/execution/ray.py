"""Run items on a Ray cluster: ``--executor ray --address HOST:PORT``, or a local one that is started for the run.

Ray runs an item again when its worker dies; what is finished is recorded here, on the driver, as with every executor.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import archwright
from archwright.errors import ArchwrightError, InputError, missing_extra
from archwright.execution.base import Executor, Item, Work
from archwright.runs.files import Json
from archwright.runs.stop import Stop

RETRIES = 3
"""How often Ray runs an item again whose worker died."""
GUARD = Path(__file__).with_name("ray_guard.py")
PROBE_SECONDS = 120
"""How long a machine of the cluster may take to say what it has; it may have to start a worker first."""


class RayExecutor(Executor):
    """Items as Ray tasks of one CPU each; one connection for a whole run.

    Args:
        address: HOST:PORT of a running cluster's head; empty starts a local one with ``workers`` CPUs.
        workers: tasks under way at once.
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
        self._task: Any = None
        self._joined = False
        self._guard: subprocess.Popen[bytes] | None = None
        self._found: set[str] = set()

    def run(self, work: Work, items: Sequence[Item], stop: Stop) -> Iterator[tuple[str, Json]]:
        """Yield (key, result) as tasks of the cluster finish; an item whose paths a machine lacks is refused first."""
        self.require({path for item in items for path in item.needs})
        queue, waiting = iter(items), dict[Any, str]()
        try:
            while True:
                while len(waiting) < self.workers and (item := next(queue, None)) is not None:
                    waiting[self._task.remote(work, item.payload)] = item.key
                if not waiting:
                    return
                done, _ = self._ray.wait(list(waiting), num_returns=1, timeout=0.2)
                for reference in done:
                    key = waiting.pop(reference)
                    yield key, self._result(reference, f"the item {key}")
                stop.check()
        finally:
            for reference in waiting:
                self._ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leave the cluster; a local one ends."""
        if self._joined:
            self._ray.shutdown()
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
        self._task, self._joined, self._guard = None, False, None
        self._found.clear()

    def _connect(self) -> None:
        if self._task is not None:
            return
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
                    _one_line(error),
                    "It needs this version of Ray, and RAY_AUTH_MODE here as there: token (with the cluster's token in "
                    "~/.ray/auth_token) or disabled.",
                ) from error
            self._joined = True
        self._task = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)

    def require(self, paths: Collection[str]) -> None:
        """Connect; refuse paths that a machine of the cluster lacks, and machines without this version of ours."""
        self._connect()
        new = sorted(set(paths) - self._found)
        if self._found and not new:
            return
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe = self._ray.remote(num_cpus=0, max_retries=RETRIES)(_look)
        asked = []
        for node in self._ray.nodes():
            if node["Alive"]:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                asked.append((node["NodeManagerHostname"], probe.options(scheduling_strategy=there).remote(new)))
        here = _look(new)
        for machine, reference in asked:
            _compare(machine, here, self._result(reference, f"the machine {machine}", PROBE_SECONDS))
        self._found |= {"", *new}

    def _result(self, reference: Any, what: str, seconds: float | None = None) -> Json:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=seconds)
        except errors.RayTaskError as error:
            cause: Any = error.cause  # as it was raised there, without Ray's copy of the traceback in its text
            raise cause from None
        except errors.WorkerCrashedError:
            raise ArchwrightError(
                f"the Ray worker of {what} died {RETRIES + 1} times; it may need more memory than there is. "
                "What is finished is kept: resume."
            ) from None
        except errors.RayError as error:
            raise ArchwrightError(
                f"Ray could not finish {what}: {_one_line(error)}. What is finished is kept: resume."
            ) from error


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


def _call(work: Work, payload: Json) -> Json:
    import torch

    torch.set_num_threads(1)
    return work(payload, Stop())


def _look(paths: Sequence[str]) -> dict[str, Json]:
    """What this machine has: the version of Archwright, and for each path its size, -1 a folder, None nothing."""
    sizes: dict[str, int | None] = {}
    for text in paths:
        path = Path(text)
        sizes[text] = -1 if path.is_dir() else path.stat().st_size if path.is_file() else None
    return {"version": archwright.__version__, "sizes": sizes}


def _compare(machine: str, here: dict[str, Json], there: dict[str, Json]) -> None:
    """Refuse a machine that has less than this one."""
    if here["version"] != there["version"]:
        raise InputError(f"archwright {here['version']} on {machine}", f"version {there['version']}")
    for path, size in here["sizes"].items():
        found = there["sizes"][path]
        if found is None or found != size:
            raise InputError(
                f"{path} on every machine of the Ray cluster",
                f"{'nothing' if found is None else 'something else'} on {machine}",
                "Copy it there or share its folder; the work reads it on the machine where it runs.",
            )


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:300].rstrip(".")


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
