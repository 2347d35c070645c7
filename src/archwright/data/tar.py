"""``tar:PATH/{000..127}.tar``: archives of images, for storage where a million single files are slow.

Files of one image have one name and end in what they are: ``cat1.jpg`` the image, ``cat1.cls`` its class, as a number
or a word. Nothing is unpacked: an archive is read where its header says an image lies. The class of every image, where
it lies and what its own header says are kept in the cache, archive by archive, until the archive changes.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from archwright.bounds import MOST_CLASSES
from archwright.data.image_files import IMAGE_SUFFIXES, PARTS, Headers, Labelled, Names
from archwright.data.images import opened_stream
from archwright.data.index import keep_arrays, kept_arrays
from archwright.data.raw import RawImages
from archwright.errors import InputError
from archwright.paths import check_utf8, open_plain, user_path

MOST_ARCHIVES = 100_000
MOST_IMAGE_BYTES = 256 * 2**20
"""Of an image file in an archive; a header that says more is a mistake or an attack."""
MOST_CLASS_BYTES = 1000
_RANGE = re.compile(r"(\d{1,9})\.\.(\d{1,9})")
_ARRAYS = {"block": np.uint8, "classes": np.uint8, "short_side": np.int32, "grey": np.bool_}
_INTEGERS = ("ends", "class_ends", "offset", "size")


@dataclass(frozen=True, eq=False)
class Archive:
    """What is in one archive.

    Attributes:
        path: where it lies.
        names: of its images.
        classes: a text for each.
        offset: where each begins, in bytes, (n,).
        size: of each, in bytes, (n,).
        headers: what the images say of themselves.
    """

    path: Path
    names: Names
    classes: Names
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    headers: Headers

    @contextmanager
    def opened(self, index: int) -> Iterator[Image.Image]:
        """The image of number ``index``, opened."""
        with open_plain(self.path) as file:
            content = os.pread(file.fileno(), int(self.size[index]), int(self.offset[index]))
        with opened_stream(io.BytesIO(content)) as image:
            yield image

    def place(self, index: int) -> str:
        """Archive and name of the image ``index``."""
        return f"{self.path}: {self.names[index]}"


@dataclass(frozen=True, eq=False)
class ArchiveFiles:
    """The images of several archives, one after the other.

    Attributes:
        archives: in the order of their images.
        names: of the images, each below the name of its archive.
        begins: number of the first image of each archive, (archives,).
    """

    archives: Sequence[Archive]
    names: Names
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, archives: Sequence[Archive]) -> ArchiveFiles:
        """All images of ``archives``."""
        counts = [len(one.names) for one in archives]
        names = Names.of(f"{one.path.name}/{name}" for one in archives for name in one.names)
        return cls(archives, names, np.cumsum([0, *counts[:-1]], dtype=np.int64))

    def opened(self, index: int) -> Any:
        """The image of number ``index``, opened."""
        archive, inside = self._find(index)
        return archive.opened(inside)

    def place(self, index: int) -> str:
        """Archive and name of the image ``index``."""
        archive, inside = self._find(index)
        return archive.place(inside)

    def _find(self, index: int) -> tuple[Archive, int]:
        number = int(np.searchsorted(self.begins, index, side="right")) - 1
        return self.archives[number], index - int(self.begins[number])


def tar(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """The source behind ``tar:PATH``.

    Args:
        argument: path of an archive, or of several by braces: ``{000..127}`` counts, ``{a,b}`` lists. Where the names
            of all say so (``train-000.tar``, ``val-000.tar``, ``test-000.tar``), they are the data set's own parts.
        image_size: pixels a side to resize to; None goes by the images' own sizes.
        skip_bad: leave unreadable images out instead of refusing the archives.
        cache_dir: where what is known of the archives is kept; None is the default cache.
    """
    if not argument:
        raise InputError("the path of an archive after 'tar:'", "nothing", "As in tar:photos/{000..127}.tar")
    paths, (validation, test) = _in_parts([user_path(text) for text in braces(argument)])
    archives = [_indexed(path, cache_dir) for path in paths]
    files = ArchiveFiles.of(archives)
    texts, labels = _labels(archives)
    counts = [len(one.names) for one in archives]
    first = len(archives) - validation - test
    every = Labelled(
        name=re.sub(r"[^\w-]+", "-", Path(argument).stem).strip("-") or "tar",
        files=files,
        class_names=texts,
        labels=labels,
        parts=(sum(counts[first : first + validation]), sum(counts[first + validation :])),
    )
    headers = Headers(
        np.concatenate([one.headers.short_side for one in archives]),
        np.concatenate([one.headers.grey for one in archives]),
        {},
    )
    headers.read(files, np.flatnonzero(headers.short_side == 0))  # to say again what is wrong with them
    sizes, names = np.concatenate([one.size for one in archives]).tolist(), files.names
    return every.raw(headers, image_size, skip_bad, lambda good: _content(names, sizes, texts, labels, good))


def braces(text: str) -> list[str]:
    """The texts that ``a{000..002}{x,y}`` stands for, in order."""
    pieces = re.split(r"\{([^{}]*)\}", text)
    options: list[list[str]] = []
    for number, piece in enumerate(pieces):
        counted = _RANGE.fullmatch(piece) if number % 2 else None
        if counted is not None:
            low, high, width = int(counted[1]), int(counted[2]), len(counted[1])
            if high < low or high - low >= MOST_ARCHIVES:
                raise InputError(f"a range of 1 to {MOST_ARCHIVES:,} numbers", f"{{{piece}}} in {text}")
            options.append([f"{one:0{width}d}" for one in range(low, high + 1)])
        else:
            options.append(piece.split(",") if number % 2 else [piece])
    if np.prod([len(one) for one in options], dtype=object) > MOST_ARCHIVES:
        raise InputError(f"at most {MOST_ARCHIVES:,} archives", text)
    return ["".join(chosen) for chosen in product(*options)]


def _in_parts(paths: list[Path]) -> tuple[list[Path], tuple[int, int]]:
    """The archives in the order train, validation, test; how many are of the last two parts."""
    named = [{PARTS[word] for word in re.findall("[a-z]+", path.stem.lower()) if word in PARTS} for path in paths]
    if not all(len(one) == 1 for one in named) or len(set(map(min, named))) < 2:
        return paths, (0, 0)
    part = [min(one) for one in named]
    if "train" not in part:
        raise InputError("an archive of the train part, too", ", ".join(sorted(set(part))))
    order = sorted(range(len(paths)), key=lambda one: ("train", "validation", "test").index(part[one]))
    return [paths[one] for one in order], (part.count("validation"), part.count("test"))


def _labels(archives: Sequence[Archive]) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Classes, numbers by value and words by the alphabet, and the class of every image."""
    found = sorted({text for one in archives for text in one.classes}, key=lambda text: (_number(text), text))
    if not 2 <= len(found) <= MOST_CLASSES:
        raise InputError(f"two to {MOST_CLASSES:,} classes in the .cls files", str(len(found)))
    labels = {text: label for label, text in enumerate(found)}
    each = [labels[text] for one in archives for text in one.classes]
    return tuple(found), np.array(each, dtype=np.int64)


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 10 else 10**10


def _content(
    names: Names, sizes: Sequence[int], classes: Sequence[str], labels: NDArray[np.int64], numbers: NDArray[np.int64]
) -> str:
    """SHA-256 of names, classes and sizes of the images of these ``numbers``."""
    digest, each = hashlib.sha256(), labels.tolist()
    for number in numbers.tolist():
        digest.update(names.raw(number) + f"\0{sizes[number]}\0{classes[each[number]]}\n".encode())
    return digest.hexdigest()


# --- one archive -----------------------------------------------------------------------------------------------------


def _indexed(path: Path, cache_dir: Path | None) -> Archive:
    """What is in the archive ``path``: as it is kept, or by reading through it."""
    if not path.is_file():
        raise InputError("the path of an existing archive after 'tar:'", str(path))
    status, place = path.stat(), f"archive {path.absolute()}"
    state = np.array([status.st_size, status.st_mtime_ns], dtype=np.int64)
    kept = kept_arrays(place, cache_dir)
    if _is_archive(kept, state):
        headers = Headers(kept["short_side"], kept["grey"], {})
        names, classes = (
            Names(kept["block"].tobytes(), kept["ends"]),
            Names(kept["classes"].tobytes(), kept["class_ends"]),
        )
        return Archive(path, names, classes, kept["offset"], kept["size"], headers)
    archive = _read(path, status.st_size)
    archive.headers.read(archive, np.arange(len(archive.names)))
    arrays = {
        "state": state,
        "block": np.frombuffer(archive.names.block, np.uint8),
        "ends": archive.names.ends,
        "classes": np.frombuffer(archive.classes.block, np.uint8),
        "class_ends": archive.classes.ends,
        "offset": archive.offset,
        "size": archive.size,
        "short_side": archive.headers.short_side,
        "grey": archive.headers.grey,
    }
    keep_arrays(place, arrays, cache_dir)
    return archive


def _is_archive(kept: dict[str, NDArray[Any]], state: NDArray[np.int64]) -> bool:
    """Whether ``kept`` is of an archive in this state, and as it was written."""
    types = {**_ARRAYS, **dict.fromkeys((*_INTEGERS, "state"), np.int64)}
    if any(name not in kept or kept[name].dtype != kind or kept[name].ndim != 1 for name, kind in types.items()):
        return False
    count = len(kept["ends"])
    long = all(len(kept[name]) == count for name in (*_INTEGERS, "short_side", "grey"))
    blocks = (("ends", "block"), ("class_ends", "classes"))
    whole = count > 0 and all(
        (np.diff(kept[e], prepend=0) >= 0).all() and kept[e][-1] == len(kept[b]) for e, b in blocks
    )
    inside = bool(count) and bool((kept["offset"] >= 0).all() and (kept["offset"] + kept["size"] <= state[0]).all())
    return bool(long and whole and inside and np.array_equal(kept["state"], state))


def _read(path: Path, length: int) -> Archive:
    """Names, classes and places of all images, by the headers of the archive."""
    images: dict[str, tuple[str, int, int]] = {}
    classes: dict[str, str] = {}
    try:
        with open_plain(path) as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                stem, ending = _stem(member.name)
                if not member.isreg() or member.sparse is not None or stem.rpartition("/")[2].startswith("."):
                    continue
                if ending == ".cls":
                    classes[stem] = _class_text(file.fileno(), member, path)
                elif ending in IMAGE_SUFFIXES:
                    _check_place(member, path, length, stem in images)
                    images[stem] = member.name, member.offset_data, member.size
    except (tarfile.TarError, OSError, EOFError, ValueError, OverflowError) as error:
        do = "Compressed archives (.tar.gz) cannot be read at any place: unpack them to .tar."
        raise InputError("a readable, uncompressed .tar archive", f"{path} ({error})", do) from error
    if not images:
        raise InputError(f"images ({', '.join(sorted(IMAGE_SUFFIXES))}) in the archive", f"none in {path}")
    lost = [name for stem, (name, _, _) in images.items() if stem not in classes]
    if lost:
        shown = f"{len(lost):,} without, as {lost[0]}"
        raise InputError(f"a file KEY.cls beside every image KEY.jpg of {path}", shown)
    names, offsets, sizes = zip(*images.values(), strict=True)
    return Archive(
        path,
        Names.of(names),
        Names.of(classes[stem] for stem in images),
        np.array(offsets, dtype=np.int64),
        np.array(sizes, dtype=np.int64),
        Headers.unread(len(images)),
    )


def _stem(name: str) -> tuple[str, str]:
    """What the files of one image share, and what the file is: the key ends at the first dot of the last part."""
    folder, slash, last = name.rpartition("/")
    key, dot, ending = last.partition(".")
    return f"{folder}{slash}{key}", f"{dot}{ending}".lower()


def _check_place(member: tarfile.TarInfo, path: Path, length: int, twice: bool) -> None:
    check_utf8(member.name, f"names in {path}")
    if twice:
        raise InputError(f"one image of each name in {path}", f"two for {member.name}")
    if not 0 < member.size <= MOST_IMAGE_BYTES or member.offset_data + member.size > length:
        raise InputError(
            f"images of 1 to {MOST_IMAGE_BYTES:,} bytes in {path}", f"{member.name} of {member.size:,} bytes"
        )


def _class_text(descriptor: int, member: tarfile.TarInfo, path: Path) -> str:
    if not 0 < member.size <= MOST_CLASS_BYTES:
        raise InputError(f"the number or name of a class in {member.name} of {path}", f"{member.size:,} bytes")
    content = os.pread(descriptor, member.size, member.offset_data)
    try:
        text = content.decode().strip()
    except UnicodeDecodeError as error:
        raise InputError(f"UTF-8 in {member.name} of {path}", str(error)) from error
    if not text or not text.isprintable():
        raise InputError(f"the number or name of a class in {member.name} of {path}", repr(text[:80]))
    return text
