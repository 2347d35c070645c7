"""Where data outside the project may lie: the folder named by ``ARCHWRIGHT_DATA``, or ``../shared/data``.

What is read from there is read once a process.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from archwright.errors import InputError

T = TypeVar("T")


def shared_data(name: str) -> Path | None:
    """The file ``name`` in the data folder, or None where it is absent."""
    folders = [Path(os.environ["ARCHWRIGHT_DATA"])] if os.environ.get("ARCHWRIGHT_DATA") else []
    here = Path.cwd()
    folders += [parent / "shared" / "data" for parent in (here, *here.parents)]
    return next((folder / name for folder in folders if (folder / name).is_file()), None)


def require_data(name: str, what: str) -> Path:
    """As :func:`shared_data` of ``name``; an absent file is an error that says ``what`` it is and where to put it."""
    path = shared_data(name)
    if path is None:
        raise InputError(
            f"the file {name} ({what})",
            "none in $ARCHWRIGHT_DATA or ../shared/data",
            f"Put {name} into a folder and set ARCHWRIGHT_DATA to it.",
        )
    return path


def read_once(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """``read``, remembering its last answer: a file in the same state (time and size) is not read again."""

    @lru_cache(maxsize=1)
    def read_state(path: Path, _changed: int, _size: int) -> T:
        return read(path)

    def read_file(path: Path) -> T:
        state = path.stat()
        return read_state(path.absolute(), state.st_mtime_ns, state.st_size)

    return read_file
