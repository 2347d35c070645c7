"""What a source hands over: labelled 8-bit square images, in memory or read on demand. Knows no torch, no splits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from archwright.data.images import resize_arrays
from archwright.errors import InputError

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


class PixelSource(Protocol):
    """Where pixels come from."""

    @property
    def image_size(self) -> int:
        """Side of the square images."""

    @property
    def image_channels(self) -> int:
        """1 (grey) or 3 (colour)."""

    @property
    def in_memory(self) -> bool:
        """Whether reading everything is cheap."""

    @property
    def has_windows(self) -> bool:
        """Whether images are larger where they lie, so that a part of one is better cut out there."""

    def read(self, indices: NDArray[np.int64]) -> Pixels:
        """The images at ``indices``, (n, C, H, W)."""

    def read_windows(self, indices: NDArray[np.int64], windows: NDArray[np.float64]) -> Pixels:
        """A part of each of the images, (n, C, H, W), where :attr:`has_windows`.

        Args:
            indices: of the images, (n,).
            windows: height and width in short sides, and the place from top and left as a share of the room, (n, 4).
        """


@dataclass(frozen=True, eq=False)
class MemoryPixels:
    """All images decoded, (N, C, H, W)."""

    array: Pixels
    in_memory: bool = True
    has_windows: bool = False

    @property
    def image_size(self) -> int:
        """Side of the square images."""
        return int(self.array.shape[2])

    @property
    def image_channels(self) -> int:
        """1 (grey) or 3 (colour)."""
        return int(self.array.shape[1])

    def read(self, indices: NDArray[np.int64]) -> Pixels:
        """The images at ``indices``, (n, C, H, W)."""
        return self.array[indices]

    def read_windows(self, indices: NDArray[np.int64], windows: NDArray[np.float64]) -> Pixels:
        """Never asked for: decoded images are all that there is of them; so for any ``indices`` and ``windows``."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class RawImages:
    """A whole data set before it is split.

    Args:
        name: for people.
        labels: (N,), indices into ``class_names``.
        pixels: N images in the same order.
        content: SHA-256 of what the images are, independent of where they lie.
        official_test: how many images, the last ones, are the data set's own test part; 0 if it has none.
        official_validation: how many images before those are its own validation part; 0 if it has none.
        skipped: bad images that were left out.
        files: path of each image below the root of the data set, where it is a file of its own.
    """

    name: str
    labels: Labels
    class_names: tuple[str, ...]
    pixels: PixelSource
    content: str
    official_test: int = 0
    official_validation: int = 0
    skipped: tuple[str, ...] = ()
    files: Sequence[str] = ()


class Source(Protocol):
    """How every registered data set is called; ``argument`` is what follows the colon of the spec."""

    def __call__(self, argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
        """The data set; anything wrong with the input is an InputError.

        Args:
            argument: what follows the colon of the spec.
            image_size: pixels a side to resize to; None leaves it to the source.
            skip_bad: leave unreadable images out instead of refusing the data.
            cache_dir: where downloads are kept; None is the default cache.
        """


def raw_from_arrays(
    name: str,
    parts: Sequence[tuple[Pixels, Labels]],
    class_names: Sequence[str],
    image_size: int | None,
) -> RawImages:
    """Join the pool and, if there is a second part, the official test.

    Args:
        name: of the data set, for people.
        parts: one or two pairs of pixels (n, C, H, W) and labels (n,).
        class_names: by label.
        image_size: pixels a side to resize to; None keeps the shorter side.
    """
    arrays = [resize_arrays(pixels, image_size) for pixels, _ in parts]
    pixels = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    labels = np.concatenate([labels for _, labels in parts]).astype(np.int64)
    digest = hashlib.sha256(labels.tobytes())
    digest.update(np.ascontiguousarray(pixels).data)
    return RawImages(
        name=name,
        labels=labels,
        class_names=tuple(class_names),
        pixels=MemoryPixels(pixels),
        content=digest.hexdigest(),
        official_test=len(arrays[1]) if len(arrays) > 1 else 0,
    )


def refuse_argument(name: str, argument: str) -> None:
    """Refuse an ``argument`` after ``name``: named sets take none."""
    if argument:
        raise InputError(f"{name!r} alone", repr(f"{name}:{argument}"), f"Write {name!r}.")
