"""Which images to load, as a small value that can be sent to another process; loading is remembered there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from archwright.data.image_data import ImageData, load
from archwright.data.kept import load_kept

KEPT = "kept:"
"""Before the path of a file that :func:`archwright.data.kept.keep` wrote; what else a request says is already in it."""


@dataclass(frozen=True)
class DataRequest:
    """Which images to load, and how."""

    spec: str
    seed: int
    image_size: int | None = None
    skip_bad: bool = False
    split: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.split is not None:  # JSON has no tuples, and a request is hashed
            object.__setattr__(self, "split", tuple(self.split))

    @property
    def needs(self) -> tuple[str, ...]:
        """Absolute paths that loading reads: a user's own folder or archive; named data sets are found by name."""
        kind, _, argument = self.spec.partition(":")
        return (str(Path(argument).absolute()),) if kind in ("folder", "npz", "kept") else ()


@lru_cache(maxsize=6)
def load_data(request: DataRequest) -> ImageData:
    """The images, loaded once a process."""
    if request.spec.startswith(KEPT):
        return load_kept(Path(request.spec.removeprefix(KEPT)))
    values: dict[str, Any] = {"seed": request.seed, "image_size": request.image_size, "skip_bad": request.skip_bad}
    return load(request.spec, **values, split=None if request.split is None else tuple(request.split))
