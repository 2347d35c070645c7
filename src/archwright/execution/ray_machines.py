"""Which machines of a Ray cluster get work items: those that have what these need, each with as many as it has CPUs.

Machines are asked before they get anything. Those that are there when a run begins have to fit; one that joins later
and does not fit is passed over. Files that a machine lacks are sent to it where they are small.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import archwright
from archwright.errors import ArchwrightError, InputError
from archwright.log import logger
from archwright.paths import move_path, read_plain
from archwright.runs import disk
from archwright.runs.files import Json, write_atomic

RETRIES = 3
"""How often Ray runs something again whose worker died."""
PROBE_SECONDS = 120
"""How long a machine of the cluster may take to say what it has; it may have to start a worker first."""
LOOK_SECONDS = 5.0
"""Between two looks for machines that have joined."""
MOST_SENT = 512 * 2**20
"""Bytes of the files that are sent to machines that lack them."""
AT_ONCE = 2
"""Tasks that a busy CPU has in hand: the next one is there when one ends."""


@dataclass
class Machine:
    """A machine of the cluster that fits.

    Attributes:
        node: Ray's name of it.
        name: for people.
        cpus: that Ray may use.
        gpus: that Ray may use.
        slots: items that it is to work on at once.
        under_way: tasks that were given to it and have not ended.
    """

    node: str
    name: str
    cpus: int
    gpus: int
    slots: int = 0
    under_way: int = 0

    @property
    def room(self) -> bool:
        """Whether it can take another task; where all of its CPUs are for this run, one waits for each of them."""
        return self.under_way < self.slots * (AT_ONCE if self.slots == self.cpus else 1)


@dataclass
class Sent:
    """A file in Ray's store.

    Attributes:
        content: Ray's reference of its bytes.
        size: how many there are.
        digest: SHA-256 of them.
    """

    content: Any
    size: int
    digest: str


@dataclass
class Machines:
    """The machines of the cluster that this process is connected to.

    Attributes:
        ray: the library.
        sent: files that machines lack, by path.
    """

    ray: Any
    sent: dict[str, Sent] = field(default_factory=dict)
    _fit: dict[str, Machine] = field(default_factory=dict)
    _refused: set[str] = field(default_factory=set)
    _asked: dict[Any, tuple[Any, dict[str, Json]]] = field(default_factory=dict)
    _needs: set[str] = field(default_factory=set)
    _looked: float = 0.0

    def require(self, paths: Collection[str]) -> None:
        """Refuse paths that a machine lacks and that are not sent, and machines without this version of ours."""
        new = set(paths) - self._needs
        if self._fit and not new:
            return
        self._needs |= new
        here = look(sorted(self._needs))
        asked = [(node, self._ask(node)) for node in self._alive()]
        for node, reference in asked:
            try:
                there = self.ray.get(reference, timeout=PROBE_SECONDS)
            except self.ray.exceptions.RayError as error:
                raise _unreachable(node, error) from error
            self._take(node, here, there)
        if not self._fit:
            raise InputError("a Ray cluster with machines", "none that is alive")

    def look(self) -> None:
        """Ask machines that have joined; those that do not fit are passed over, with a warning."""
        for reference in (
            self.ray.wait(list(self._asked), num_returns=len(self._asked), timeout=0)[0] if self._asked else ()
        ):
            node, here = self._asked.pop(reference)
            try:
                self._take(node, here, self.ray.get(reference))
                logger.info("The machine %s has joined the Ray cluster and takes part.", _name(node))
            except (InputError, self.ray.exceptions.RayError) as error:
                self._refused.add(node["NodeID"])
                logger.warning("A machine that joined the Ray cluster, %s, is passed over: %s", _name(node), error)
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked, alive = time.monotonic(), self._alive()
        here, pending = look(sorted(self._needs)), {node["NodeID"] for node, _ in self._asked.values()}
        for node in alive:
            if node["NodeID"] not in self._fit.keys() | self._refused | pending:
                self._asked[self._ask(node)] = node, here
        for gone in self._fit.keys() - {node["NodeID"] for node in alive}:
            del self._fit[gone]

    def deal(self, workers: int, gpu: str) -> None:
        """Give the machines their slots, one after the other, as many as there are ``workers``.

        Args:
            workers: items that are to be worked on at once.
            gpu: ``none``, ``any`` (a GPU where the machine has one) or ``must``.
        """
        left = {one.node: _capacity(one, gpu) for one in self._fit.values()}
        for machine in self._fit.values():
            machine.slots = 0
        while workers > 0 and any(left.values()):
            for node in [node for node, room in left.items() if room][:workers]:
                self._fit[node].slots, left[node], workers = self._fit[node].slots + 1, left[node] - 1, workers - 1
        if not any(one.slots for one in self._fit.values()):
            what = "GPUs" if gpu == "must" else "CPUs"
            raise InputError(f"machines with {what} in the Ray cluster", "none", "Start one with: ray start")

    def free(self) -> Machine | None:
        """The machine that has most room for a task; None where all are busy."""
        found = [one for one in self._fit.values() if one.room]
        return min(found, key=lambda one: one.under_way / one.slots) if found else None

    @property
    def slots(self) -> int:
        """Items that are worked on at once."""
        return sum(one.slots for one in self._fit.values())

    def lose(self, machine: Machine) -> None:
        """Give a machine that has died nothing more."""
        self._fit.pop(machine.node, None)
        self._refused.add(machine.node)

    # --- asking ---

    def _alive(self) -> list[Any]:
        return [node for node in self.ray.nodes() if node["Alive"]]

    def _ask(self, node: Any) -> Any:
        probe = self.ray.remote(num_cpus=0, max_retries=RETRIES)(look)
        return probe.options(scheduling_strategy=pinned_to(node["NodeID"])).remote(sorted(self._needs))

    def _take(self, node: Any, here: dict[str, Json], there: dict[str, Json]) -> None:
        """Count a machine among those that fit, or refuse it by an :class:`InputError`."""
        compare(
            _name(node), here, there, self._send([path for path in here["sizes"] if _lacks(here, there, path)], here)
        )
        resources = node["Resources"]
        found = Machine(node["NodeID"], _name(node), int(resources.get("CPU", 0)), int(resources.get("GPU", 0)))
        self._fit.setdefault(found.node, found)

    def _send(self, paths: Sequence[str], here: dict[str, Json]) -> Collection[str]:
        """Put the files at ``paths`` into Ray's store where they are plain and all that is sent is small; all sent."""
        new = [path for path in paths if path not in self.sent]
        total = sum(here["sizes"][path] or 0 for path in {*self.sent, *new} if path in here["sizes"])
        if all((here["sizes"][path] or -1) > 0 for path in new) and total <= MOST_SENT:
            for path in new:
                content = read_plain(Path(path), most=MOST_SENT)
                self.sent[path] = Sent(self.ray.put(content), len(content), hashlib.sha256(content).hexdigest())
        return self.sent.keys()


def pinned_to(node: str) -> Any:
    """The scheduling of a task on one machine and on no other."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def look(paths: Sequence[str]) -> dict[str, Json]:
    """What this machine has: the version of Archwright, and for each path its size, -1 a folder, None nothing."""
    sizes: dict[str, int | None] = {}
    for text in paths:
        path = Path(text)
        sizes[text] = -1 if path.is_dir() else path.stat().st_size if path.is_file() else None
    return {"version": archwright.__version__, "sizes": sizes}


def compare(machine: str, here: dict[str, Json], there: dict[str, Json], sent: Collection[str] = ()) -> None:
    """Refuse a machine that has less than this one.

    Args:
        machine: its name.
        here: what this one has (:func:`look`).
        there: what it has.
        sent: paths of files that it gets.
    """
    if here["version"] != there["version"]:
        raise InputError(f"archwright {here['version']} on {machine}", f"version {there['version']}")
    for path in here["sizes"]:
        if _lacks(here, there, path) and path not in sent:
            raise InputError(
                f"{path} on every machine of the Ray cluster",
                f"{'nothing' if there['sizes'][path] is None else 'something else'} on {machine}",
                f"Copy it there or share its folder: only files, up to {MOST_SENT // 2**20} MB of them, are sent.",
            )


def _lacks(here: dict[str, Json], there: dict[str, Json], path: str) -> bool:
    return there["sizes"][path] is None or there["sizes"][path] != here["sizes"][path]


def _capacity(machine: Machine, gpu: str) -> int:
    if gpu == "must" or (gpu == "any" and machine.gpus):
        return min(machine.cpus, machine.gpus)
    return machine.cpus


def _name(node: Any) -> str:
    return str(node["NodeManagerHostname"])


def _unreachable(node: Any, error: BaseException) -> ArchwrightError:
    return ArchwrightError(
        f"the machine {_name(node)} of the Ray cluster does not say what it has ({one_line(error)})."
    )


def one_line(error: BaseException) -> str:
    """The first line of what an error says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:300].rstrip(".")


# --- on the machine --------------------------------------------------------------------------------------------------


def receive(sent: dict[str, Sent]) -> None:
    """On a machine that lacks files, or has others of their names: write them once, for all its workers to read."""
    import ray

    for path, one in sent.items():
        if look([path])["sizes"][path] == one.size:
            continue
        place = _own_folder() / one.digest / Path(path).name
        if not place.is_file():
            write_atomic(place, ray.get(one.content))
        elif hashlib.sha256(place.read_bytes()).hexdigest() != one.digest:
            raise InputError(f"{path} as it was sent", f"something else at {place}", "Remove it.")
        move_path(path, str(place))


def _own_folder() -> Path:
    """A folder for what is sent, of this user alone."""
    folder = Path(tempfile.gettempdir()) / f"archwright-sent-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        disk.make_own_folder(folder)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise InputError("a folder of this user alone for files that are sent", str(folder), "Remove it.")
    return folder
