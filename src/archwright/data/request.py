"""Which images to load, as a small value that can be sent to another process; loading is remembered there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from archwright.data.image_data import ImageData, load
from archwright.data.kept import load_kept
from archwright.data.tar import braces
from archwright.paths import user_path
from archwright.references import DataRef


@dataclass(frozen=True)
class DataRequest:
    """Which images to load, and how.

    Of ``kept:PATH``, a file that :func:`archwright.data.kept.keep` wrote, the rest of a request is already in the file.
    """

    spec: str
    seed: int
    image_size: int | None = None
    skip_bad: bool = False
    split: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.split is not None:  # JSON has no tuples, and a request is hashed
            object.__setattr__(self, "split", tuple(self.split))

    @property
    def source(self) -> DataRef:
        """The reference that :attr:`spec` is written as."""
        return DataRef.parse(self.spec)

    @property
    def needs(self) -> tuple[str, ...]:
        """Absolute paths that loading reads: a user's own folder or archive; named data sets are found by name."""
        path = self.source.path
        if self.source.kind == "tar":
            return tuple(braces(str(path.absolute()))) if path is not None else ()
        return () if path is None else (str(path.absolute()),)


LOADED: dict[DataRequest, ImageData] = {}
"""Images of this process, by request."""
MOST_LOADED = 6
"""Requests whose images are remembered; the oldest are forgotten."""


def load_data(request: DataRequest) -> ImageData:
    """The images, loaded once a process, also where one request says their own size and another none."""
    if request not in LOADED:
        data = _load(request)
        LOADED.update({request: data, replace(request, image_size=data.image_size): data})
        for oldest in list(LOADED)[:-MOST_LOADED]:
            del LOADED[oldest]
    return LOADED[request]


def _load(request: DataRequest) -> ImageData:
    if request.source.kind == "kept":
        return load_kept(user_path(request.source.argument))
    values: dict[str, Any] = {"seed": request.seed, "image_size": request.image_size, "skip_bad": request.skip_bad}
    return load(request.spec, **values, split=None if request.split is None else tuple(request.split))


def request_of(data: ImageData) -> DataRequest | None:
    """The request that ``data`` was loaded by in this process; None where it was made otherwise."""
    return next((request for request, loaded in LOADED.items() if loaded is data), None)


def remember(request: DataRequest, data: ImageData) -> None:
    """Let ``data``, which lies where ``request`` says, count as loaded by it."""
    LOADED[request] = data
