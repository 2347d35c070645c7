"""``folder:PATH``: image files of any size and kind, kept in memory or streamed.

One sub-folder a class; or the sub-folders ``train`` and ``test`` (and ``validation``), each with one a class.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import UnidentifiedImageError

from archwright.data.images import BAD_IMAGE, is_grey, opened, square_pixels
from archwright.data.raw import MemoryPixels, Pixels, PixelSource, RawImages
from archwright.errors import InputError
from archwright.paths import check_utf8, user_path

MEMORY_LIMIT_BYTES = 512 * 2**20  # decoded folders below this are kept in memory, larger ones are streamed
IMAGE_SUFFIXES = frozenset(
    f".{kind}" for kind in ("jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff", "ppm", "pgm", "pbm")
)
IMAGE_SIZES = (8, 16, 32, 64, 96, 128, 224)
_PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Sub-folders that are the data set's own parts, each with the classes inside."""
_THREADS = min(8, os.cpu_count() or 1)

T = TypeVar("T")


@dataclass(frozen=True)
class Header:
    """What an image file says about itself before its pixels are decoded."""

    short_side: int
    grey: bool


@dataclass(frozen=True, eq=False)
class StreamedPixels:
    """Images decoded each time they are read."""

    paths: tuple[Path, ...]
    image_size: int
    image_channels: int
    in_memory: bool = False

    def read(self, indices: NDArray[np.int64]) -> Pixels:
        """The images at ``indices``, (n, C, H, W); one that turns out damaged is an error that names it."""
        decoded = _in_threads(self.decode, [self.paths[index] for index in indices])
        for outcome in decoded:
            if isinstance(outcome, Bad):
                raise _bad_images([outcome])
        return _stack([pixels for pixels in decoded if not isinstance(pixels, Bad)], self)

    def decode(self, path: Path) -> Pixels | Bad:
        """One file to (C, H, W)."""
        try:
            with opened(path) as image:
                return square_pixels(image, self.image_size, self.image_channels)
        except BAD_IMAGE as error:
            return Bad(path, _reason(error))


@dataclass(frozen=True)
class Bad:
    """A file that is no readable image, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Listed:
    """An image file, its class and the part of the data set it belongs to; ``train`` where the folder has no parts."""

    path: Path
    label: int
    part: str


def folder(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """The source behind ``folder:PATH``; files are used where they lie, so there is nothing to cache.

    Args:
        argument: path of the folder; ``~`` is the home.
        image_size: pixels a side to resize to; None goes by the files' own sizes.
        skip_bad: leave unreadable files out instead of refusing the folder.
        cache_dir: changes nothing here.
    """
    del cache_dir
    root = user_path(argument)
    if not argument or not root.is_dir():
        raise InputError("the path of an existing folder after 'folder:'", repr(argument))
    class_names, listed = _list_parts(root)
    paths = [image.path for image in listed]
    headers = _in_threads(_read_header, paths)
    good, bad = _sort_out(headers, paths, root, skip_bad)
    sound = [header for header in headers if isinstance(header, Header)]
    size = image_size or default_size([header.short_side for header in sound])
    channels = 1 if all(header.grey for header in sound) else 3
    streamed = StreamedPixels(tuple(paths[i] for i in good), size, channels)
    source: PixelSource = streamed
    if len(good) * channels * size * size < MEMORY_LIMIT_BYTES:
        decoded = _in_threads(streamed.decode, streamed.paths)
        kept, late = _sort_out(decoded, streamed.paths, root, skip_bad)
        bad, good = sorted([*bad, *late]), [good[i] for i in kept]
        source = MemoryPixels(_stack([pixels for pixels in decoded if not isinstance(pixels, Bad)], streamed))
    used = [listed[i] for i in good]
    return RawImages(
        name=root.resolve().name,
        labels=np.array([image.label for image in used], dtype=np.int64),
        class_names=class_names,
        pixels=source,
        content=_content([image.path for image in used], root),
        official_test=sum(image.part == "test" for image in used),
        official_validation=sum(image.part == "validation" for image in used),
        skipped=tuple(bad),
    )


def default_size(short_sides: Sequence[int]) -> int:
    """The largest usual size not above the median short side, so that most images are not blown up."""
    median = float(np.median(short_sides))
    return max((size for size in IMAGE_SIZES if size <= median), default=IMAGE_SIZES[0])


def _list_parts(root: Path) -> tuple[tuple[str, ...], list[Listed]]:
    """Classes in alphabetical order, and every image below them: train first, then the folder's own other parts."""
    folders = _sub_folders(root)
    parts = {_PARTS[entry.name.lower()]: entry for entry in folders if entry.name.lower() in _PARTS}
    if not folders or len(parts) < len(folders):  # at least one is no part: they are classes
        classes = _class_folders(root)
        return tuple(entry.name for entry in classes), _list_images(classes, "train", None)
    if "train" not in parts or len(parts) == 1:
        raise InputError(
            "sub-folders that are classes, or train beside test or validation",
            f"{', '.join(entry.name for entry in folders)} in {root}",
            f"Give the one with the classes, as in folder:{folders[0]}",
        )
    classes = _class_folders(parts["train"])
    names = tuple(entry.name for entry in classes)
    listed = _list_images(classes, "train", None)
    for part in ("validation", "test"):
        if part in parts:
            listed += _list_images(_sub_folders(parts[part]), part, names)
    return names, listed


def _sub_folders(root: Path) -> list[Path]:
    return sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _class_folders(root: Path) -> list[Path]:
    classes = _sub_folders(root)
    for entry in classes:
        check_utf8(entry.name, "names of classes")
    if len(classes) < 2:
        found = f"{len(classes)} in {root}" + (f" ({classes[0].name})" if classes else "")
        raise InputError("a folder with at least two sub-folders of images, one a class", found)
    return classes


def _list_images(classes: Sequence[Path], part: str, known: tuple[str, ...] | None) -> list[Listed]:
    """Every image file below ``classes`` in a stable order; ``known`` are the classes of the train part."""
    names = known or tuple(entry.name for entry in classes)
    listed: list[Listed] = []
    for entry in classes:
        if entry.name not in names:
            raise InputError(f"the classes of the train part in {entry.parent}", repr(entry.name))
        files = image_files(entry)
        listed += [Listed(path, names.index(entry.name), part) for path in files]
    if not listed:
        raise InputError(f"classes in the {part} part", "none", "Add images or remove the sub-folder.")
    return listed


def image_files(folder: Path) -> list[Path]:
    """Every image file below ``folder`` in a stable order; hidden ones are passed over, and none at all is an error.

    Pipes and links to nothing with the name of an image are among them, to be refused where images are read.
    """
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and not path.is_dir())
    files = [path for path in files if not path.name.startswith(".")]
    if not files:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES))
        raise InputError(f"image files ({kinds})", f"none in {folder}", "Add images, or leave this folder out.")
    return files


def _read_header(path: Path) -> Header | Bad:
    """Open and verify without decoding: catches what is no image; a truncated photograph shows only in decoding."""
    try:
        with opened(path) as image:
            header = Header(min(image.size), is_grey(image))
            image.verify()
    except BAD_IMAGE as error:
        return Bad(path, _reason(error))
    return header


def _in_threads(work: Callable[[Path], T], paths: Sequence[Path]) -> list[T]:
    """``work`` on every path in order; decoding releases the interpreter lock, so threads do help."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(work, paths))


def _sort_out(
    outcomes: Sequence[object], paths: Sequence[Path], root: Path, skip_bad: bool
) -> tuple[list[int], list[str]]:
    """Positions of the good outcomes and names of the bad ones, which are an error unless they may be skipped."""
    bad = [outcome for outcome in outcomes if isinstance(outcome, Bad)]
    if bad and (not skip_bad or len(bad) == len(paths)):
        raise _bad_images(bad)
    good = [i for i, outcome in enumerate(outcomes) if not isinstance(outcome, Bad)]
    return good, [item.path.relative_to(root).as_posix() for item in bad]


def _bad_images(bad: Sequence[Bad]) -> InputError:
    shown = ", ".join(f"{item.path} ({item.reason})" for item in bad[:3])
    more = f" and {len(bad) - 3} more" if len(bad) > 3 else ""
    return InputError("readable images", f"{shown}{more}", "Repair or remove them, or load with skip_bad=True.")


def _reason(error: BaseException) -> str:
    return "not an image" if isinstance(error, UnidentifiedImageError) else str(error) or type(error).__name__


def _stack(images: Sequence[Pixels], like: StreamedPixels) -> Pixels:
    """(n, C, H, W), also for no images at all."""
    shape = (len(images), like.image_channels, like.image_size, like.image_size)
    stacked = np.empty(shape, dtype=np.uint8)
    for index, image in enumerate(images):
        stacked[index] = image
    return stacked


def _content(paths: Sequence[Path], root: Path) -> str:
    """SHA-256 of names and file sizes: reading every byte of a large folder would double the time to load it."""
    digest = hashlib.sha256()
    for path in paths:
        name = os.fsencode(path.relative_to(root).as_posix())
        digest.update(name + f"\0{path.stat().st_size}\n".encode())
    return digest.hexdigest()
