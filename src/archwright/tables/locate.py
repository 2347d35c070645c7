"""Where data outside the project may lie: the folder named by ``ARCHWRIGHT_DATA``, or ``../shared/data``."""

from __future__ import annotations

import os
from pathlib import Path

from archwright.errors import InputError


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
