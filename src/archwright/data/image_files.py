"""Many image files, wherever they lie: what their headers say, and their pixels, decoded by threads when they are read.

A folder and archives are both this; neither is known here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from archwright.data.images import BAD_IMAGE, is_grey, square_pixels, window_pixels
from archwright.data.raw import Labels, MemoryPixels, Pixels, PixelSource, RawImages
from archwright.errors import InputError

MEMORY_LIMIT_BYTES = 512 * 2**20  # decoded images below this are kept in memory, more are read when they are used
IMAGE_SUFFIXES = frozenset(
    f".{kind}" for kind in ("jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff", "ppm", "pgm", "pbm")
)
IMAGE_SIZES = (8, 16, 32, 64, 96, 128, 224)
MOST_NAMED = 50
"""Damaged files that an error names."""
THREADS = min(8, os.cpu_count() or 1)
CHUNK = 4096
"""Files that are looked at together: what is known of more of them is in arrays."""
PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Words that name a data set's own parts."""

T = TypeVar("T")


class Names(Sequence[str]):
    """Many texts in one block of bytes: a million paths as ``str`` would take 100 MB.

    Args:
        block: the bytes of all of them (UTF-8, or as the file system has them).
        ends: where each ends in the block, (n,).
    """

    def __init__(self, block: bytes, ends: NDArray[np.int64]) -> None:
        self.block, self.ends = block, ends

    @classmethod
    def of(cls, texts: Iterable[str]) -> Names:
        """The texts in their order."""
        parts = [os.fsencode(text) for text in texts]
        return cls(b"".join(parts), np.cumsum([len(part) for part in parts], dtype=np.int64))

    def raw(self, index: int) -> bytes:
        """The text ``index`` as bytes."""
        return self.block[self.ends[index - 1] if index else 0 : self.ends[index]]

    def chosen(self, indices: NDArray[np.int64]) -> Names:
        """Those at ``indices``, in that order."""
        if len(indices) == len(self) and (indices == np.arange(len(self))).all():
            return self
        parts = [self.raw(int(index)) for index in indices]
        return Names(b"".join(parts), np.cumsum([len(part) for part in parts], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return os.fsdecode(self.raw(index % len(self)))


class ImageFiles(Protocol):
    """Image files by number."""

    @property
    def names(self) -> Names:
        """What each is called below the root of the data set."""

    def opened(self, index: int) -> AbstractContextManager[Image.Image]:
        """The image in file ``index``; what is no image, or no plain file, raises one of :data:`BAD_IMAGE`."""

    def place(self, index: int) -> str:
        """Where file ``index`` lies, for people."""


@dataclass(frozen=True, eq=False)
class Headers:
    """What image files say about themselves before their pixels are decoded.

    Attributes:
        short_side: in pixels, (n,); 0 where a file is no readable image.
        grey: whether it has no colour, (n,).
        reasons: why it is no image, by number.
    """

    short_side: NDArray[np.int32]
    grey: NDArray[np.bool_]
    reasons: dict[int, str]

    @classmethod
    def unread(cls, count: int) -> Headers:
        """Of ``count`` files that nothing is known of."""
        return cls(np.zeros(count, np.int32), np.zeros(count, np.bool_), {})

    def read(self, files: ImageFiles, indices: NDArray[np.int64]) -> None:
        """Look at ``files`` of numbers ``indices``: catches what is no image; a truncated photograph only shows later.

        Args:
            files: the images.
            indices: of those that are to be looked at, (m,).
        """
        for some in _chunks(indices):
            for index, found in zip(some, in_threads(lambda one: _header(files, one), some), strict=True):
                if isinstance(found, str):
                    self.reasons[index] = found
                else:
                    self.short_side[index], self.grey[index] = found


def _header(files: ImageFiles, index: int) -> tuple[int, bool] | str:
    """Short side and greyness, or why it is no image."""
    try:
        with files.opened(index) as image:
            found = min(image.size), is_grey(image)
            image.verify()
    except BAD_IMAGE as error:
        return _reason(error)
    return found


@dataclass(frozen=True, eq=False)
class StreamedPixels:
    """Images decoded each time they are read.

    Attributes:
        files: all files of the data set.
        numbers: which of them the images are, (N,).
        image_size: pixels a side.
        image_channels: 1 or 3.
    """

    files: ImageFiles
    numbers: NDArray[np.int64]
    image_size: int
    image_channels: int
    in_memory: bool = False
    has_windows: bool = True

    def read(self, indices: NDArray[np.int64]) -> Pixels:
        """The images at ``indices``, (n, C, H, W); one that turns out damaged is an error that names it."""
        return self._each(indices, lambda image, _: square_pixels(image, self.image_size, self.image_channels))

    def read_windows(self, indices: NDArray[np.int64], windows: NDArray[np.float64]) -> Pixels:
        """A part of each image, out of the file at its own resolution.

        Args:
            indices: of the images, (n,).
            windows: height and width in short sides, and the place from top and left as a share of the room, (n, 4).
        """
        size, channels = self.image_size, self.image_channels
        return self._each(indices, lambda image, place: window_pixels(image, windows[place], size, channels))

    def _each(self, indices: NDArray[np.int64], work: Callable[[Image.Image, int], Pixels]) -> Pixels:
        pixels = np.empty((len(indices), self.image_channels, self.image_size, self.image_size), np.uint8)

        def one(place: int) -> str | None:
            try:
                with self.files.opened(int(self.numbers[indices[place]])) as image:
                    pixels[place] = work(image, place)
            except BAD_IMAGE as error:
                return _reason(error)
            return None

        outcomes = in_threads(one, range(len(indices)))
        bad = {int(self.numbers[indices[i]]): why for i, why in enumerate(outcomes) if why is not None}
        if bad:
            raise bad_images(self.files, bad)
        return pixels

    def decoded(self) -> tuple[Pixels, dict[int, str]]:
        """All images, (N, C, H, W), and why some could not be read, by file number."""
        pixels = np.empty((len(self.numbers), self.image_channels, self.image_size, self.image_size), np.uint8)
        bad: dict[int, str] = {}
        for some in _chunks(np.arange(len(self.numbers))):
            try:
                pixels[some] = self.read(np.array(some))
            except InputError:  # look again, one by one
                for index in some:
                    number = int(self.numbers[index])
                    try:
                        with self.files.opened(number) as image:
                            pixels[index] = square_pixels(image, self.image_size, self.image_channels)
                    except BAD_IMAGE as error:
                        bad[number] = _reason(error)
        return pixels, bad


@dataclass(frozen=True, eq=False)
class Labelled:
    """Image files with their classes, in the order train, validation, test.

    Attributes:
        name: of the data set, for people.
        files: the images.
        class_names: by label.
        labels: (n,).
        parts: how many files are of the data set's own validation and test part, the last ones.
    """

    name: str
    files: ImageFiles
    class_names: tuple[str, ...]
    labels: Labels
    parts: tuple[int, int] = (0, 0)

    def raw(
        self,
        headers: Headers,
        image_size: int | None,
        skip_bad: bool,
        content: Callable[[NDArray[np.int64]], str],
    ) -> RawImages:
        """The data set, in memory where it is small.

        Args:
            headers: of all files.
            image_size: pixels a side to resize to; None goes by the files' own sizes.
            skip_bad: leave unreadable files out instead of refusing them.
            content: SHA-256 of the files of these numbers.
        """
        good = np.flatnonzero(headers.short_side > 0)
        bad = dict(headers.reasons)
        self._refuse(bad, skip_bad)
        size = image_size or default_size(headers.short_side[good])
        channels = 1 if headers.grey[good].all() else 3
        source: PixelSource
        source = streamed = StreamedPixels(self.files, good, size, channels)
        if len(good) * channels * size * size < MEMORY_LIMIT_BYTES:
            pixels, late = streamed.decoded()
            self._refuse(bad := bad | late, skip_bad)
            if late:
                kept = ~np.isin(good, list(late))
                good, pixels = good[kept], pixels[kept]
            source = MemoryPixels(pixels)
        validation, test = self.parts
        last = len(self.labels) - test
        return RawImages(
            name=self.name,
            labels=self.labels[good],
            class_names=self.class_names,
            pixels=source,
            content=content(good),
            official_test=int((good >= last).sum()),
            official_validation=int(((good >= last - validation) & (good < last)).sum()),
            skipped=tuple(sorted(self.files.names[index] for index in bad)),
            files=self.files.names.chosen(good),
        )

    def _refuse(self, bad: dict[int, str], skip_bad: bool) -> None:
        if bad and (not skip_bad or len(bad) == len(self.labels)):
            raise bad_images(self.files, bad)


def default_size(short_sides: Sequence[int] | NDArray[np.int32]) -> int:
    """The largest usual size not above the median short side, so that most images are not blown up."""
    median = float(np.median(short_sides))
    return max((size for size in IMAGE_SIZES if size <= median), default=IMAGE_SIZES[0])


def bad_images(files: ImageFiles, bad: dict[int, str]) -> InputError:
    """What to say of unreadable images.

    Args:
        files: that they are of.
        bad: why each is unreadable, by number.
    """
    shown = ", ".join(f"{files.place(index)} ({bad[index]})" for index in sorted(bad)[:MOST_NAMED])
    more = f" and {len(bad) - MOST_NAMED} more" if len(bad) > MOST_NAMED else ""
    do = "Repair or remove them, or leave them out with --skip-bad (skip_bad=True)."
    return InputError("readable images", f"{shown}{more}", do)


def _reason(error: BaseException) -> str:
    return "not an image" if isinstance(error, UnidentifiedImageError) else str(error) or type(error).__name__


def _chunks(indices: NDArray[np.int64]) -> Iterator[list[int]]:
    for start in range(0, len(indices), CHUNK):
        yield indices[start : start + CHUNK].tolist()


@cache
def _pool() -> ThreadPoolExecutor:
    """The threads that decode, made once a process."""
    return ThreadPoolExecutor(THREADS, "decode")


os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not come along


def in_threads(work: Callable[[Any], T], things: Sequence[Any]) -> list[T]:
    """``work`` on each of ``things``, in their order; decoding releases the interpreter lock, so threads do help."""
    if len(things) < 2:
        return [work(thing) for thing in things]
    share = -(-len(things) // (4 * THREADS))  # a future for each of some thousand files would cost as much as some do
    some = [things[start : start + share] for start in range(0, len(things), share)]
    return [one for done in _pool().map(lambda part: [work(thing) for thing in part], some) for one in done]
