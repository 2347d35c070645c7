"""Every network that a search tried, with what it saw of each: ``artifacts/tried.json``, for pages and data frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from archwright.errors import RunError
from archwright.runs.files import read_json, write_json
from archwright.runs.run import Run
from archwright.search.answer import Candidate

FILE = "artifacts/tried.json"
MOST = 1000
"""Networks that are kept: of more the best ones."""


def keep_tried(run: Run, tried: Iterable[Candidate]) -> None:
    """Write the best :data:`MOST` of what was tried; nothing where there is nothing.

    Args:
        run: that keeps it.
        tried: the networks, with what the search saw of each.
    """
    found = sorted(tried, key=lambda one: -(seen(one) or 0.0))
    if found:
        rows = [one.model_dump(mode="json", exclude_none=True) for one in found[:MOST]]
        write_json(run.artifact(Path(FILE).name), {"tried": rows, "networks": len(found)})


def seen(one: Candidate) -> float | None:
    """What the search went by: the accuracy on validation, or what its evaluation gave."""
    return one.search_accuracy if one.validation_accuracy is None else one.validation_accuracy


def read_tried(folder: Path) -> Sequence[Candidate]:
    """What was tried in the run in ``folder``; nothing where it keeps nothing."""
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        return [Candidate(**one) for one in read_json(path)["tried"]]
    except (ValidationError, LookupError, TypeError, ValueError) as error:
        raise RunError(f"expected the networks that were tried in {path}, got a damaged or altered file.") from error
