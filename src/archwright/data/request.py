"""Which images to load, as a small value that can be sent to another process; loading is remembered there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from archwright.data.image_data import ImageData, load


@dataclass(frozen=True)
class DataRequest:
    """Which images to load, and how."""

    spec: str
    seed: int
    image_size: int | None = None
    skip_bad: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Absolute paths that loading reads: a user's own folder or archive; named data sets are found by name."""
        kind, _, argument = self.spec.partition(":")
        return (str(Path(argument).absolute()),) if kind in ("folder", "npz") else ()


@lru_cache(maxsize=2)
def load_data(request: DataRequest) -> ImageData:
    """The images, loaded once a process."""
    return load(request.spec, seed=request.seed, image_size=request.image_size, skip_bad=request.skip_bad)
