"""Everything that changes files, in one place: here a test can put a fault in the way of any write.

The rest of the package calls these as ``disk.write(...)``; :mod:`archwright.runs.files` makes whole files and logs of
them. Reading needs none of it.
"""

from __future__ import annotations

import io
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer


def create(path: Path) -> int:
    """A descriptor for writing a new, empty file; an old one there loses its content, a link is refused."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def append(path: Path) -> int:
    """A descriptor for reading, and for writing at the end of a file, which is made where there is none; no link."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def write(descriptor: int, data: Buffer) -> int:
    """How many bytes of ``data`` the system took for the file ``descriptor``; it may be fewer than there are."""
    return os.write(descriptor, data)


def cut(descriptor: int, length: int) -> None:
    """Shorten the file ``descriptor`` to ``length`` bytes."""
    os.ftruncate(descriptor, length)


def sync(descriptor: int) -> None:
    """Wait until what was written to a file survives a power cut."""
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in ``folder`` (new files, renames) survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def rename(source: Path, target: Path) -> None:
    """Give ``source`` the name of ``target``, which it replaces at once."""
    source.replace(target)


def link(source: Path, target: Path) -> None:
    """Give the file ``source`` the further name ``target``."""
    target.hardlink_to(source)


def remove(path: Path) -> None:
    """Remove a file, or nothing where there is none."""
    path.unlink(missing_ok=True)


def make_folder(folder: Path, new: bool = False) -> None:
    """Make ``folder`` and those above it; with ``new`` one that exists is an error."""
    if new or not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=not new)


def make_own_folder(folder: Path) -> None:
    """Make ``folder`` for this user alone; one that exists is an error."""
    folder.mkdir(mode=0o700)


def remove_folder(folder: Path) -> None:
    """Remove a folder and all in it."""
    shutil.rmtree(folder)


class Writer(io.FileIO):
    """A descriptor of :func:`create` or :func:`append` as a file that is written here, always whole pieces."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w")

    def write(self, data: Buffer) -> int:
        """Write all of ``data``."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest:
            rest = rest[write(self.fileno(), rest) :]
        return size
