"""Ends a local Ray cluster whose owner was killed: Ray's agents outlive a killed driver by minutes, some for ever.

It is started as a script, ``python -P ray_guard.py OWNER FOLDER``, so that nothing heavy is imported: it notes the
processes that the owner starts from Ray's own ``FOLDER``, and all that these start, and kills what is left of them when
the owner is gone. Linux only, where ``/proc`` tells who started whom.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import NamedTuple

SECONDS_A_LOOK = 0.5


class Process(NamedTuple):
    """What tells a process from a later one of the same number."""

    number: int
    started: str


def parents() -> dict[Process, int]:
    """The number of every process' parent."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            _, parent, *fields = (folder / "stat").read_text().rpartition(")")[2].split()
            found[Process(int(folder.name), fields[17])] = int(parent)
    return found


def started_from(process: Process, folder: str) -> bool:
    """Whether the command of ``process`` names a program inside ``folder``."""
    try:
        command = Path(f"/proc/{process.number}/cmdline").read_bytes()
    except OSError:
        return False
    return f"{folder}/".encode() in command  # which the guard's own command is not


def of_cluster(owner: int, folder: str, known: set[Process]) -> set[Process]:
    """The processes of the cluster that are alive: those known, new ones of the owner, and all that these started.

    Args:
        owner: number of the process that started the cluster.
        folder: of Ray's programs, which its processes are of.
        known: processes of the cluster that were seen before.
    """
    every = parents()
    found = {one for one in every if one in known}
    found |= {one for one, parent in every.items() if parent == owner and started_from(one, folder)}
    size = -1
    while len(found) != size:
        size, numbers = len(found), {one.number for one in found}
        found |= {one for one, parent in every.items() if parent in numbers}
    return found


def main() -> None:
    """Entry point of the script."""
    owner, folder = int(sys.argv[1]), sys.argv[2]
    for number in (signal.SIGINT, signal.SIGHUP):  # the owner's business
        signal.signal(number, signal.SIG_IGN)
    known: set[Process] = set()
    while os.getppid() == owner:
        known |= of_cluster(owner, folder, known)
        time.sleep(SECONDS_A_LOOK)
    for process in of_cluster(owner, folder, known):
        with contextlib.suppress(OSError):
            os.kill(process.number, signal.SIGKILL)


if __name__ == "__main__":
    main()
