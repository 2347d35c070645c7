"""Searches inside a reproduction: ordinary runs in folders of their own, so that a killed one goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from archwright.search.answer import Answer
from archwright.search.engine import resume, search


def finished(folder: Path, method: str, **settings: Any) -> Answer:
    """The search in ``folder``: started, continued or just read."""
    if (folder / "run.json").exists():
        return resume(folder)
    return search(method, run=folder, **settings)
