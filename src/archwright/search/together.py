"""How the processes of a team come together, and what a follower does: the trainings that the leader calls for.

Three ways to start them: ``--ranks N`` starts followers on this machine; ``torchrun`` and SLURM's ``srun`` start the
whole command several times, and say by their environment who is who. Followers open the run's folder read-only and
never plan; what is measured, decided and written is the leader's.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from archwright.errors import ArchwrightError, InputError
from archwright.execution.worker import end_with
from archwright.numerics import Numerics, use
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.spaces.registry import find_space
from archwright.training.team import WAIT, Team, TeamError, check_shared

LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
"""The interface that processes of one machine talk by; nothing listens on another one."""
FOLLOWER = Path(__file__).with_name("follower.py")
MEETING = timedelta(minutes=10)
"""How long processes that srun started wait for the last of them."""
INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
"""Variables that say by which interface processes talk."""
FIRST_PORT = 20_000
"""Of the ports that jobs of SLURM meet at, one of 20,000 by the number of the job."""


class FollowedError(Exception):
    """A follower's part of a stage is over."""


@dataclass(frozen=True)
class Place:
    """Of this process among those that were started with it.

    Attributes:
        rank: from 0, which leads.
        size: how many there are.
        local: number on its machine.
        sure: whether they are meant to be one team, whatever the search is asked.
        here: whether all of them are on this machine.
    """

    rank: int = 0
    size: int = 1
    local: int = 0
    sure: bool = False
    here: bool = True


def place_in(environment: Mapping[str, str]) -> Place:
    """The place that ``environment`` says, of torchrun or of srun; one process alone where neither started it."""
    if "WORLD_SIZE" in environment and "RANK" in environment:
        local, size = int(environment.get("LOCAL_RANK", "0")), int(environment["WORLD_SIZE"])
        here = int(environment.get("LOCAL_WORLD_SIZE", "0")) == size
        return Place(int(environment["RANK"]), size, local, sure=True, here=here)
    if "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment:  # set by srun, not in a batch script
        local, size = int(environment.get("SLURM_LOCALID", "0")), int(environment["SLURM_STEP_NUM_TASKS"])
        return Place(int(environment["SLURM_PROCID"]), size, local, here=environment.get("SLURM_STEP_NUM_NODES") == "1")
    return Place()


def meeting_point(environment: Mapping[str, str]) -> tuple[str, int]:
    """Host and port where processes that srun started meet: the first of their machines, by the number of the job."""
    nodes = "127.0.0.1" if place_in(environment).here else environment.get("SLURM_STEP_NODELIST", "127.0.0.1")
    first = re.split(r",(?![^\[]*\])", nodes)[0]  # of a list as rack[1-2]node[03,05],other
    host = re.sub(r"\[(\w+)[^\]]*\]", r"\1", first)
    job = int(environment.get("SLURM_JOB_ID", "0"))
    return environment.get("MASTER_ADDR", host), int(environment.get("MASTER_PORT", FIRST_PORT + job % 20_000))


def join(shards: int) -> Team | None:
    """The team of the processes that torchrun or srun started with this one; None where there are no others.

    As a follower this serves the leader, and then ends the process.

    Args:
        shards: of the run. With one, tasks of srun are searches of their own, and processes of torchrun a mistake.
    """
    place = place_in(os.environ)
    if place.size == 1 or (shards == 1 and not place.sure):
        return None
    check_shared(shards, place.size)
    if not dist.is_initialized():
        _meet(place, None if place.sure else meeting_point(os.environ))
    team = Team(shards, place.rank, place.size)
    if not team.leads:
        follow(team)
    atexit.register(_part, team)
    return team


def _meet(place: Place, at: tuple[str, int] | None = None, file: str | None = None) -> None:
    """Connect with the others: by torchrun's environment, at a host and port, or by a file on this machine.

    Args:
        place: of this process.
        at: host and port.
        file: that only this team knows.
    """
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(place.local % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    known: dict[str, Any] = {}
    try:
        with _on_loopback(place.here):
            if file is not None:
                known["store"] = FileStore(file, place.size)
            elif at is not None:
                known["store"] = _meeting_store(place, *at)
            else:
                known["store"] = _torchruns_store(place)
            dist.init_process_group(backend, timeout=WAIT, rank=place.rank, world_size=place.size, **known)
    except (RuntimeError, ValueError, OSError) as error:
        where = f" at {at[0]}:{at[1]}" if at is not None else ""
        raise TeamError(
            f"expected {place.size} processes that meet{where}, got no connection of number {place.rank} with the "
            "others. Where a machine has several networks, name the one to use: GLOO_SOCKET_IFNAME=eth0."
        ) from error


def _meeting_store(place: Place, host: str, port: int) -> TCPStore:
    """What the processes meet by; the first one listens at that address only, where torch would at every one."""
    if place.rank > 0:
        return TCPStore(host, port, place.size, is_master=False, timeout=MEETING)
    listener = socket.create_server((host, port))
    descriptor = listener.detach()  # the store's from now on
    return TCPStore(host, port, place.size, is_master=True, timeout=MEETING, master_listen_fd=descriptor)


def _torchruns_store(place: Place) -> Store:
    """What torchrun's processes meet by: a part of its agent's store, which outlives restarts, for one meeting."""
    store, _, _ = next(rendezvous("env://", timeout=MEETING))
    return PrefixStore(name_of_meeting(store, place), store)


def name_of_meeting(store: Store, place: Place) -> str:
    """A name that the leader gives, and that only the processes that are here now agree on.

    Addresses of processes that are gone lie in the store as those of the present ones do, and who takes one waits for
    ever. So each follower says a word of its own to the leader it has read of, and one that is gone does not repeat it.

    Args:
        store: that all of them see.
        place: of this process.
    """
    own, deadline = uuid.uuid4().hex, time.monotonic() + MEETING.total_seconds()
    if place.rank == 0:
        store.set("leader", own)
        for rank in range(1, place.size):
            store.set(f"{own} heard {rank}", store.get(f"{own} from {rank}").decode())  # waits for it
        return own
    while time.monotonic() < deadline:
        leader: str = store.get("leader").decode()
        store.set(f"{leader} from {place.rank}", own)
        with contextlib.suppress(RuntimeError):  # not yet, or a leader that is gone
            store.wait([f"{leader} heard {place.rank}"], timedelta(seconds=1))
            if store.get(f"{leader} heard {place.rank}").decode() == own:
                return leader
        time.sleep(0.05)
    raise RuntimeError("no leader answered")


@contextmanager
def _on_loopback(here: bool) -> Iterator[None]:
    """Where all processes are ``here``, nothing listens beyond this machine, unless the user names an interface."""
    missing = [name for name in INTERFACES if here and name not in os.environ]
    os.environ.update(dict.fromkeys(missing, LOOPBACK))
    try:
        yield
    finally:
        for name in missing:
            del os.environ[name]


def follow(team: Team) -> None:
    """Serve the leader, then end this process: 0 when it said goodbye."""
    stop = Stop()
    try:
        with stop.on_signals():
            team.follow(stop)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    raise SystemExit(0)


def _part(team: Team) -> None:
    with contextlib.suppress(ArchwrightError, RuntimeError):
        team.part()


# --- processes of this machine ---------------------------------------------------------------------------------------


@contextmanager
def with_ranks(ranks: int, shards: int, threads: int) -> Iterator[Team | None]:
    """This process with ``ranks - 1`` followers that it starts here; None with one rank.

    Args:
        ranks: processes in all.
        shards: of the run, a multiple.
        threads: of each process.
    """
    if ranks == 1:
        yield None
        return
    check_shared(shards, ranks)
    with tempfile.TemporaryDirectory(prefix="archwright-team-") as folder:
        file = str(Path(folder) / "meeting")
        followers = [_start(rank, ranks, shards, threads, file) for rank in range(1, ranks)]
        try:
            _meet(Place(0, ranks), file=file)
            team = Team(shards, 0, ranks)
            yield team
            _part(team)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
            for process in followers:
                process.kill()
                process.wait()


def _start(rank: int, ranks: int, shards: int, threads: int, file: str) -> subprocess.Popen[bytes]:
    """A follower, which is ready to meet when this returns."""
    ready, theirs = os.pipe()
    by_signal = threading.current_thread() is threading.main_thread()  # it would follow another thread
    arguments = [theirs, os.getpid(), int(by_signal), rank, ranks, shards, threads, file]
    process = subprocess.Popen(
        [sys.executable, "-P", str(FOLLOWER), *map(str, arguments)],
        pass_fds=[theirs],
        stdin=subprocess.PIPE,
        stdout=2,  # this process' stdout may be read by a script
        env={**os.environ, "OMP_WAIT_POLICY": "PASSIVE"},
        process_group=0,  # Ctrl-C in a terminal is this process' business
    )
    os.close(theirs)
    path = [one or str(Path.cwd()) for one in sys.path]
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it died, as is said below
        pipe.write(json.dumps(path).encode())  # as a variable it could be too long for the system
    with os.fdopen(ready, "rb") as pipe:
        if not pipe.read(1):
            process.wait()
            raise ArchwrightError(f"expected a process that trains along, got one that ended with {process.returncode}")
    return process


def run_follower(arguments: list[str]) -> None:
    """What a follower of this machine does, by the arguments that it was started with."""
    ready, parent, by_signal, rank, ranks, shards, threads = map(int, arguments[:7])
    end_with(parent, bool(by_signal))
    torch.set_num_threads(threads)
    os.write(ready, b"!")
    os.close(ready)
    _meet(Place(rank, ranks, rank), file=arguments[7])
    follow(Team(shards, rank, ranks))


# --- what a follower is called for -----------------------------------------------------------------------------------


def prepare(team: Team, stop: Stop, *, space: str, threads: int, numerics: Numerics) -> None:
    """As a follower: find the space of a search, so that networks of a user's own can be sent.

    Args:
        team: of the leader.
        stop: of this process.
        space: text that finds it.
        threads: that the leader computes with.
        numerics: how it computes.
    """
    use(numerics, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    find_space(space)
    torch.set_num_threads(threads)


def follow_stage(team: Team, stop: Stop, *, folder: str, stage: str) -> None:
    """As a follower: the one training of a stage, which is prepared here as the leader does.

    Args:
        team: of the leader.
        stop: of this process.
        folder: of the run, which is only read.
        stage: its name.
    """
    from archwright.search.engine import reopened

    method = reopened(Run.open(Path(folder)), stop, Progress())
    method.context.together = team
    (work,) = (one.work for one in method.stages() if one.name == stage)
    with contextlib.suppress(FollowedError):
        work()


def check_ranks(shards: int, ranks: int) -> None:
    """Refuse, before anything is loaded, processes that cannot share the shards or are started twice.

    Args:
        shards: that every batch of the run is cut into.
        ranks: processes that were asked for here.
    """
    if ranks < 1:
        raise InputError("at least one process (--ranks)", str(ranks))
    if ranks > 1 and place_in(os.environ).sure and place_in(os.environ).size > 1:
        raise InputError("--ranks, or processes that torchrun started", "both", "Leave --ranks out.")
    check_shared(shards, ranks)
