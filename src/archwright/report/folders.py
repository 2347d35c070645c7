"""What the dashboard may read: run folders directly inside the runs folder, without links and odd files.

A run may come from somebody else. Whatever a request names goes through here, before anything of it is opened.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from archwright.errors import ArchwrightError
from archwright.paths import check_plain_run
from archwright.runs.run import Run

LONGEST_NAME = 255
"""Bytes of a name that file systems take."""
UNREAD = "checkpoints"
"""A folder of a run that no page reads; it may have thousands of files."""


class NotHereError(ArchwrightError):
    """There is no such run or file, or it must not be read."""


def open_run(root: Path, name: str) -> Run:
    """The run called ``name`` directly inside ``root``; paths, links and folders with links in them are refused."""
    folder = root / name
    odd = Path(name).name != name or "\0" in name or len(os.fsencode(name)) > LONGEST_NAME
    if odd or folder.is_symlink() or not (folder / "run.json").is_file():
        raise NotHereError(f"expected the name of a run in {root}, got {name[:LONGEST_NAME]!r}.")
    check_plain_run(folder, UNREAD)
    return Run.open(folder, whole=False)


def artifact(run: Run, name: str) -> Path:
    """The file ``artifacts/name`` of ``run``; a name that leads elsewhere is refused."""
    parts = name.split("/")
    path = run.folder.joinpath("artifacts", *parts)
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise NotHereError(f"expected the name of an artifact, got {name!r}.")
    try:
        plain = stat.S_ISREG(path.lstat().st_mode)
    except (OSError, ValueError):
        plain = False
    if not plain or not path.resolve().is_relative_to(run.folder.resolve()):
        raise NotHereError(f"expected a file among the artifacts of {run.folder.name}, got {name!r}.")
    return path


def every_run(root: Path) -> Iterator[tuple[str, Run | str]]:
    """Names of the runs in ``root``, newest first, each with its run or why it is not shown."""
    for name in sorted(os.listdir(root), reverse=True):  # noqa: PTH208 - of ten thousand, the first few hundred
        if not (root / name / "run.json").exists():
            continue
        try:
            yield name, open_run(root, name)
        except (ArchwrightError, OSError) as error:
            yield name, str(error)
