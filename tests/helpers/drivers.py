"""A driver for each line of stdin (the module of the work): a process that gives a pool of two workers something to do.

Drivers are forked from this one, which has everything imported. Each is a session of its own, so that its workers are
found at any moment of their lives, and says its process number when it is about to start them.
"""

from __future__ import annotations

import os
import sys

from archwright.execution.base import Item
from archwright.execution.processes import Processes
from archwright.runs.stop import Stop
from helpers.named_work import Named


def drive(module: str) -> None:
    """Say who this is and work until killed."""
    os.setsid()
    print(os.getpid(), flush=True)
    items = [Item(str(number), None) for number in range(2)]
    list(Processes(2).run(Named(module), items, Stop()))


if __name__ == "__main__":
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            drive(line.strip())
        os.waitpid(child, 0)
