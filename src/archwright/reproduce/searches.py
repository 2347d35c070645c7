"""Searches inside a reproduction: ordinary runs in folders of their own, so that a killed one goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from archwright.runs.progress import Progress
from archwright.search.answer import Answer
from archwright.search.engine import resume, search


def finished(folder: Path, method: str, progress: Progress | None = None, **settings: Any) -> Answer:
    """The search in a folder: started, continued or just read.

    Args:
        folder: of its run.
        method: name of the method.
        progress: where to show what happens.
        settings: of :func:`archwright.search.engine.search`, where it is started.
    """
    if (folder / "run.json").exists():
        return resume(folder, progress=progress)
    return search(method, run=folder, progress=progress, yes=True, **settings)


def name_of(settings: Mapping[str, Any]) -> str:
    """A folder's name that belongs to these settings alone, for searches that several tables share."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
