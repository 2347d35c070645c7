"""``folder:PATH``: image files of any size and kind, kept in memory or streamed.

One sub-folder a class; or the sub-folders ``train`` and ``test`` (and ``validation``), each with one a class.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from archwright.data.image_files import IMAGE_SUFFIXES, PARTS, Headers, Labelled, Names
from archwright.data.images import opened
from archwright.data.index import FRESH_NS, keep_index, kept_index
from archwright.data.raw import RawImages
from archwright.errors import InputError
from archwright.paths import check_utf8, user_path

_ENDINGS = tuple(IMAGE_SUFFIXES)
MANY_FILES = 2000
"""Of a folder whose index is kept: the headers of fewer are read in a second."""


@dataclass(frozen=True, eq=False)
class FolderFiles:
    """Files below ``root``.

    Attributes:
        names: paths below it.
        sizes: bytes of each, (n,).
        changed_ns: when each was changed, in nanoseconds, (n,).
    """

    root: Path
    names: Names
    sizes: NDArray[np.int64]
    changed_ns: NDArray[np.int64]

    def opened(self, index: int) -> AbstractContextManager[Image.Image]:
        """The image in file ``index``."""
        return opened(self.root / self.names[index])

    def place(self, index: int) -> str:
        """The path of file ``index``."""
        return str(self.root / self.names[index])


def folder(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """The source behind ``folder:PATH``; files are used where they lie, and what their headers say is kept.

    Args:
        argument: path of the folder; ``~`` is the home.
        image_size: pixels a side to resize to; None goes by the files' own sizes.
        skip_bad: leave unreadable files out instead of refusing the folder.
        cache_dir: where the index of a large folder is kept; None is the default cache.
    """
    root = user_path(argument)
    if not argument or not root.is_dir():
        raise InputError("the path of an existing folder after 'folder:'", repr(argument))
    listed = _list_parts(root)
    files = FolderFiles(
        root,
        Names.of(listed.names),
        np.array(listed.sizes, dtype=np.int64),
        np.array(listed.changed_ns, dtype=np.int64),
    )
    every = Labelled(
        name=root.resolve().name,
        files=files,
        class_names=listed.classes,
        labels=np.array(listed.labels, dtype=np.int64),
        parts=(listed.validation, listed.test),
    )
    del listed
    return every.raw(_headers(files, cache_dir), image_size, skip_bad, lambda good: _content(files, good))


def _headers(files: FolderFiles, cache_dir: Path | None) -> Headers:
    """What the files' headers say: of those that are as they were, what is kept; the others are looked at."""
    many = len(files.names) >= MANY_FILES
    place = f"folder {files.root.absolute()}"
    fields = {"size": files.sizes, "changed_ns": files.changed_ns}
    headers = kept_index(place, files.names, fields, cache_dir) if many else Headers.unread(len(files.names))
    unknown = np.flatnonzero(headers.short_side == 0)
    headers.read(files, unknown)
    if many and len(unknown) > len(headers.reasons):
        settled = time.time_ns() - FRESH_NS  # a file may be changed again within the clock's resolution
        changed = np.where(files.changed_ns < settled, files.changed_ns, -1)
        keep_index(place, files.names, {**fields, "changed_ns": changed}, headers, cache_dir)
    return headers


@dataclass
class _Listing:
    """Image files as they are found, in the order of the data set."""

    classes: tuple[str, ...] = ()
    names: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    changed_ns: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    validation: int = 0
    test: int = 0

    def add(self, root: Path, folders: Sequence[Path]) -> int:
        """Every image below ``folders``, one a class, as paths below ``root``; how many there are."""
        before = len(self.names)
        for folder in folders:
            if folder.name not in self.classes:
                raise InputError(f"the classes of the train part in {folder.parent}", repr(folder.name))
            label, begin = self.classes.index(folder.name), len(self.names)
            for name, size, changed_ns in _walk(str(folder), folder.relative_to(root).as_posix()):
                self.names.append(name)
                self.sizes.append(size)
                self.changed_ns.append(changed_ns)
            if len(self.names) == begin:
                raise _no_images(folder)
            self.labels += [label] * (len(self.names) - begin)
        return len(self.names) - before


def _list_parts(root: Path) -> _Listing:
    """Classes in alphabetical order, and every image below them: train first, then the folder's own other parts."""
    folders = _sub_folders(root)
    parts = {PARTS[entry.name.lower()]: entry for entry in folders if entry.name.lower() in PARTS}
    if not folders or len(parts) < len(folders):  # at least one is no part: they are classes
        classes = _class_folders(root)
        listed = _Listing(tuple(entry.name for entry in classes))
        listed.add(root, classes)
        return listed
    if "train" not in parts or len(parts) == 1:
        raise InputError(
            "sub-folders that are classes, or train beside test or validation",
            f"{', '.join(entry.name for entry in folders)} in {root}",
            f"Give the one with the classes, as in folder:{folders[0]}",
        )
    classes = _class_folders(parts["train"])
    listed = _Listing(tuple(entry.name for entry in classes))
    listed.add(root, classes)
    for part in ("validation", "test"):
        if part in parts:
            count = listed.add(root, _sub_folders(parts[part]))
            if not count:
                raise InputError(f"classes in the {part} part", "none", "Add images or remove the sub-folder.")
            setattr(listed, part, count)
    return listed


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


def _walk(folder: str, below: str) -> Iterator[tuple[str, int, int]]:
    """Every image file below ``folder`` in a stable order: its path, its bytes and when it was changed.

    Hidden files are passed over. Pipes and links to nothing with the name of an image are among them, to be refused
    where images are read.
    """
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        name = f"{below}/{entry.name}" if below else entry.name
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path, name)
        elif entry.name.lower().endswith(_ENDINGS) and not entry.name.startswith("."):
            try:
                status = entry.stat()
            except OSError:
                yield name, 0, -1
                continue
            if not entry.is_dir():
                yield name, status.st_size, status.st_mtime_ns


def image_files(folder: Path) -> list[Path]:
    """Every image file below ``folder`` in a stable order; hidden ones are passed over, and none at all is an error.

    Pipes and links to nothing with the name of an image are among them, to be refused where images are read.
    """
    files = [folder / name for name, _, _ in _walk(str(folder), "")]
    if not files:
        raise _no_images(folder)
    return files


def _no_images(folder: Path) -> InputError:
    kinds = ", ".join(sorted(IMAGE_SUFFIXES))
    return InputError(f"image files ({kinds})", f"none in {folder}", "Add images, or leave this folder out.")


def _content(files: FolderFiles, numbers: NDArray[np.int64]) -> str:
    """SHA-256 of names and file sizes: reading every byte of a large folder would double the time to load it."""
    digest, sizes = hashlib.sha256(), files.sizes.tolist()
    for number in numbers.tolist():
        digest.update(b"%s\0%d\n" % (files.names.raw(number), sizes[number]))
    return digest.hexdigest()
