"""A data set ready to use: three splits, their normalisation, one fingerprint. `load` makes it from a spec string."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from archwright.data.images import resize_arrays
from archwright.data.index import keep_arrays, kept_arrays
from archwright.data.preprocessing import Preprocessing
from archwright.data.raw import Labels, MemoryPixels, PixelSource, RawImages, Source
from archwright.data.registry import datasets
from archwright.data.splits import Parts, Shares
from archwright.data.splits import split as cut
from archwright.errors import InputError
from archwright.references import DataRef

# Statistics of streamed data come from this many train images: a full decode at load would cost an epoch.
STREAMED_SAMPLE = 4096
LARGEST_SIDE = 4096
"""Of an image, in pixels: a mistyped size must not ask for all the memory there is."""


class Split:
    """One part of a data set: labels in memory, pixels on demand."""

    def __init__(
        self, source: PixelSource, labels: Labels, indices: NDArray[np.int64], files: Sequence[str] = ()
    ) -> None:
        self._source, self._files = source, files
        self.indices = indices
        self.labels: Labels = labels[indices]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def in_memory(self) -> bool:
        """Whether reading everything is cheap."""
        return self._source.in_memory

    @property
    def has_windows(self) -> bool:
        """Whether images are larger where they lie than they are shown."""
        return self._source.has_windows

    def file(self, index: int) -> str:
        """Path of the image ``index`` of this split below the root of the data set; empty where it is no file."""
        return self._files[int(self.indices[index])] if self._files else ""

    def pixels(self, indices: NDArray[np.int64]) -> Tensor:
        """uint8 (n, C, H, W); ``indices`` count within this split."""
        return torch.from_numpy(self._source.read(self.indices[indices]))

    def windows(self, indices: NDArray[np.int64], windows: NDArray[np.float64]) -> Tensor:
        """uint8 (n, C, H, W): a part of each image, cut out of the file where :attr:`has_windows`.

        Args:
            indices: within this split, (n,).
            windows: see :meth:`archwright.data.raw.PixelSource.read_windows`.
        """
        return torch.from_numpy(self._source.read_windows(self.indices[indices], windows))


@dataclass(frozen=True, eq=False)
class ImageData:
    """Labelled images of one size, split by a seed. Mean and standard deviation come from the train part alone."""

    spec: str
    name: str
    preprocessing: Preprocessing
    train: Split
    validation: Split
    test: Split
    fingerprint: str
    skipped: tuple[str, ...] = ()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Label i is called ``class_names[i]``."""
        return self.preprocessing.class_names

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def image_size(self) -> int:
        """Side of the square images, in pixels."""
        return self.preprocessing.image_size

    @property
    def image_channels(self) -> int:
        """1 (grey) or 3 (colour)."""
        return self.preprocessing.image_channels

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean a channel of the train part's pixels in [0, 1]."""
        return self.preprocessing.mean

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation a channel of the train part's pixels in [0, 1]."""
        return self.preprocessing.std

    def describe(self) -> str:
        """One line for people."""
        total = len(self.train) + len(self.validation) + len(self.test)
        kind = "grey" if self.image_channels == 1 else "colour"
        text = (
            f"{self.name}: {total:,} {kind} images at {self.image_size}x{self.image_size} in {self.classes} classes; "
            f"{len(self.train):,} train, {len(self.validation):,} validation, {len(self.test):,} test"
        )
        return f"{text}; {len(self.skipped):,} bad images skipped" if self.skipped else text

    def resized(self, size: int) -> ImageData:
        """The same images and parts at another size, in memory."""
        return replace(
            self,
            preprocessing=replace(self.preprocessing, image_size=size),
            train=_resized(self.train, size),
            validation=_resized(self.validation, size),
            test=_resized(self.test, size),
        )

    def normalise(self, pixels_uint8: Tensor) -> Tensor:
        """uint8 pixels (n, C, H, W) to normalised float32."""
        return self.preprocessing.normalise(pixels_uint8)

    def preprocess(self, image: Image.Image) -> Tensor:
        """Any image to a network's input (1, C, H, W)."""
        return self.preprocessing.preprocess(image)


def _resized(split: Split, size: int) -> Split:
    every = np.arange(len(split))
    files = tuple(map(split.file, range(len(split))))
    return Split(MemoryPixels(resize_arrays(split.pixels(every).numpy(), size)), split.labels, every, files)


def load(
    spec: str,
    *,
    seed: int = 0,
    image_size: int | None = None,
    split: Shares = None,
    skip_bad: bool = False,
    cache_dir: Path | None = None,
) -> ImageData:
    """Load a data set and split it.

    Args:
        spec: a registered name, with an argument after a colon where it takes one: "digits", "folder:photos".
        seed: of the splits.
        image_size: side the images are resized to; the data set's own if not given.
        split: relative sizes of the train, validation and test parts, as (70, 15, 15); a part that the data set itself
            names is left out of them. By default a fifth each to validate and to test on.
        skip_bad: leave out images that cannot be read instead of stopping at them.
        cache_dir: where downloads are kept and looked for.
    """
    _check_arguments(seed, image_size)
    named = DataRef.parse(spec)
    if named.kind not in datasets:
        _suggest_kind(spec)
    source: Source = datasets.get(named.kind)
    raw = source(named.argument, image_size=image_size, skip_bad=skip_bad, cache_dir=cache_dir)
    return from_raw(raw, spec, seed=seed, split=split, cache_dir=cache_dir)


def from_raw(
    raw: RawImages, spec: str, *, seed: int = 0, split: Shares = None, cache_dir: Path | None = None
) -> ImageData:
    """Split and describe what a source handed over.

    Args:
        raw: labelled images.
        spec: the text that names them.
        seed: of the splits.
        split: shares of training, validation and test; None for the defaults.
        cache_dir: where statistics of images that are read as they are used are kept; None is the default cache.
    """
    parts = cut(raw, split, seed)
    fingerprint = _fingerprint(raw, parts, seed)
    mean, std = _statistics(raw.pixels, parts.train, f"statistics {fingerprint}", cache_dir)
    return ImageData(
        spec=spec,
        name=raw.name,
        preprocessing=Preprocessing(raw.pixels.image_size, raw.pixels.image_channels, mean, std, raw.class_names),
        train=Split(raw.pixels, raw.labels, parts.train, raw.files),
        validation=Split(raw.pixels, raw.labels, parts.validation, raw.files),
        test=Split(raw.pixels, raw.labels, parts.test, raw.files),
        fingerprint=fingerprint,
        skipped=raw.skipped,
    )


def _suggest_kind(spec: str) -> None:
    """Say how a path is given, where ``spec`` is one."""
    path = Path(spec)
    kind = "folder" if path.is_dir() else {".npz": "npz", ".tar": "tar"}.get(path.suffix)
    if kind in ("npz", "tar") and "{" not in spec and not path.is_file():
        return
    if kind is not None:
        what = "a folder" if kind == "folder" else "an archive"
        raise InputError(f"{kind}:PATH for {what}", f"its bare path {spec!r}", f"Write {kind}:{spec}")


def _check_arguments(seed: int, image_size: int | None) -> None:
    if seed < 0:
        raise InputError("a seed of 0 or more", str(seed))
    if image_size is not None and not 1 <= image_size <= LARGEST_SIDE:
        raise InputError(f"an image size of 1 to {LARGEST_SIDE} pixels", str(image_size))


def _statistics(
    source: PixelSource, train: NDArray[np.int64], place: str, cache_dir: Path | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation a channel of pixels in [0, 1], exact from a histogram of the 256 values.

    Those of a large set that is read as it is used are kept, as decoding some thousand images takes long.
    """
    large = not source.in_memory and len(train) > STREAMED_SAMPLE
    histogram = kept_arrays(place, cache_dir).get("histogram") if large else None
    if histogram is None or not _is_histogram(histogram, source.image_channels):
        sample = np.linspace(0, len(train) - 1, STREAMED_SAMPLE).astype(np.int64) if large else np.arange(len(train))
        histogram = _histogram(source, train[sample])
        if large:
            keep_arrays(place, {"histogram": histogram}, cache_dir)
    shares = histogram / histogram.sum(axis=1, keepdims=True)
    values = np.arange(256) / 255
    mean = shares @ values
    variance = (shares * (values - mean[:, None]) ** 2).sum(axis=1)
    std = np.maximum(np.sqrt(variance), 1 / 255)  # a constant channel carries nothing; do not divide by zero
    return tuple(mean.tolist()), tuple(std.tolist())


def _is_histogram(kept: NDArray[Any], channels: int) -> bool:
    known = kept.dtype == np.int64 and kept.shape == (channels, 256)
    return known and bool((kept >= 0).all() and (kept.sum(axis=1) > 0).all())


def _histogram(source: PixelSource, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each value is in each channel of these images, (C, 256)."""
    histogram = np.zeros((source.image_channels, 256), dtype=np.int64)
    for start in range(0, len(indices), 1024):
        pixels = source.read(indices[start : start + 1024])
        for channel in range(source.image_channels):
            histogram[channel] += np.bincount(pixels[:, channel].ravel(), minlength=256)
    return histogram


def _fingerprint(raw: RawImages, parts: Parts, seed: int) -> str:
    """SHA-256 of the content, how it is shown, the splits and the seed; the same wherever the data lies."""
    digest = hashlib.sha256(
        repr((raw.content, raw.class_names, raw.pixels.image_size, raw.pixels.image_channels, seed)).encode()
    )
    for part in (parts.train, parts.validation, parts.test):
        digest.update(len(part).to_bytes(8, "little") + part.astype("<i8").tobytes())
    return digest.hexdigest()
