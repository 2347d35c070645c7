"""Who works on a run: the file ``lock`` in its folder, held while a process does.

The lock itself is the system's and ends with its process, however that ends. The file says who holds it: number, start
and machine of the process. Its time of change is a sign of life, renewed while the lock is held: where a folder is
shared, or was copied, nothing else tells whether a process of another machine still works.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from archwright.errors import RunError
from archwright.paths import open_plain
from archwright.runs import disk

FILE = "lock"
SECONDS_A_SIGN = 30.0
"""Time between two signs of life."""
SILENT_SECONDS = 300.0
"""After so long without a sign a process on another machine counts as gone."""
_HOLDER = re.compile(r"([0-9]{1,9}) (\w*) (\S.*)")


@dataclass(frozen=True)
class Holder:
    """What a lock file says of the process that wrote it.

    Attributes:
        process: its number.
        started: what tells it from a later process of the same number.
        machine: its name.
        silent: seconds since its last sign of life.
    """

    process: int
    started: str
    machine: str
    silent: float

    @property
    def elsewhere(self) -> bool:
        """Whether it is on another machine than this."""
        return self.machine != platform.node()

    @property
    def works(self) -> bool:
        """Whether it still runs; on another machine, as far as its signs of life tell."""
        if self.elsewhere:
            return self.silent < SILENT_SECONDS
        return self.started != "" and self.started == _started(self.process)

    def __str__(self) -> str:
        if not self.elsewhere:
            return f"process {self.process}"
        return f"process {self.process} on {self.machine}, last sign of life {age(self.silent)} ago"


def holder(folder: Path) -> Holder | None:
    """Who wrote the lock of the run in ``folder`` and did not take it back; None where nobody did."""
    try:
        with open_plain(folder / FILE, follow=False) as file:
            return _read(file.fileno())
    except FileNotFoundError:
        return None


def _read(descriptor: int) -> Holder | None:
    found = _HOLDER.fullmatch(os.pread(descriptor, 1000, 0).decode(errors="replace"))
    if found is None:
        return None
    silent = max(0.0, time.time() - os.fstat(descriptor).st_mtime)
    return Holder(int(found[1]), found[2], found[3], silent)


@contextmanager
def held(folder: Path) -> Iterator[Holder | None]:
    """Hold the run in ``folder`` for this process; whoever else holds it is named in an error.

    Yields who left the lock behind, where that was a process of another machine that has been silent since.
    """
    with disk.Writer(disk.append(folder / FILE)) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise RunError(
                f"expected a run that nobody works on, got {folder} in use by {_read(file.fileno()) or 'a process'}. "
                "Wait for it, or stop that process."
            ) from error
        before = _read(file.fileno())
        if before is not None and before.elsewhere and before.works:
            raise RunError(
                f"expected a run that nobody works on, got {folder} in use by {before}. Wait for it; if that process "
                f"is gone, {age(SILENT_SECONDS - before.silent)} from now the run can be resumed here."
            )
        disk.cut(file.fileno(), 0)
        file.write(f"{os.getpid()} {_started(os.getpid())} {platform.node()}".encode())
        try:
            with _signs_of_life(file.fileno()):
                yield before if before is not None and before.elsewhere else None
        finally:
            disk.cut(file.fileno(), 0)


@contextmanager
def _signs_of_life(descriptor: int) -> Iterator[None]:
    """Renew the time of a lock file until the work is done."""
    done = threading.Event()

    def renew() -> None:
        while not done.wait(SECONDS_A_SIGN):
            with suppress(OSError):
                os.utime(descriptor)

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def age(seconds: float) -> str:
    """Seconds as a person says them."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _started(number: int) -> str:
    """When process ``number`` started, in clock ticks of the system; empty where there is none."""
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return _alive_elsewhere(number)
    return "" if state in "ZX" else fields[18]  # Z: ended, but not yet collected by its parent


def _alive_elsewhere(number: int) -> str:
    """On systems without /proc: whether there is such a process at all."""
    if Path("/proc/self").exists():
        return ""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        return "alive"
    return "alive"
