"""``npz:PATH`` and arrays in memory: images and labels under agreed names, checked before use."""

from __future__ import annotations

import lzma
import os
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from archwright.bounds import MOST_CLASSES
from archwright.data.raw import Labels, Pixels, RawImages, raw_from_arrays
from archwright.device import memory_bytes
from archwright.errors import InputError
from archwright.paths import check_utf8, user_path

_KEYS = "an archive with x_train and y_train (and x_test and y_test), or with x and y"


def npz(argument: str, *, image_size: int | None, skip_bad: bool, cache_dir: Path | None) -> RawImages:
    """The source behind ``npz:PATH``; arrays are all good or an error, and lie where the user says.

    Args:
        argument: path of the archive; ``~`` is the home.
        image_size: pixels a side to resize to; None keeps the shorter side.
        skip_bad: changes nothing here.
        cache_dir: changes nothing here.
    """
    del skip_bad, cache_dir
    path = user_path(argument)
    if not argument or not path.is_file():
        raise InputError("the path of an existing .npz file after 'npz:'", repr(argument))
    return raw_from_mapping(path.stem, read_archive(path), image_size)


def raw_from_mapping(name: str, arrays: Mapping[str, NDArray[Any]], image_size: int | None) -> RawImages:
    """A data set from arrays called as in an archive, each of them checked.

    Args:
        name: of the data set, for people.
        arrays: images and labels under the names that the module's docstring agrees on.
        image_size: pixels a side to resize to; None keeps the shorter side.
    """
    pool, test = _named_parts(arrays)
    parts = [_checked(arrays, *keys) for keys in (pool, test) if keys]
    classes = int(parts[0][1].max()) + 1
    if classes > len(parts[0][1]):  # every class needs images; a stray huge label must not make a huge count
        raise InputError(f"labels of {pool[1]} numbered 0, 1, 2 ... without gaps", str(classes - 1))
    names = _class_names(arrays, classes)
    if len(parts) > 1:
        _check_same_kind(parts[0], parts[1], len(names), (pool[0], "x_test"))
    return raw_from_arrays(name, parts, names, image_size)


def read_archive(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an ``.npz`` file; pickled objects and damaged files are refused."""
    try:
        check_claims(path)
        with np.load(path, allow_pickle=False) as archive:
            return {key: archive[key] for key in archive.files}
    except BAD_ARCHIVE as error:
        raise InputError("a readable .npz archive of plain arrays", f"{path.name} ({error})") from error


def write_archive(file: IO[bytes], arrays: Mapping[str, Any]) -> None:
    """As ``np.savez`` does, but always with the same date: the same bytes, and no clock before 1980 is an error.

    Args:
        file: open for writing.
        arrays: by name.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as part:
                np.lib.format.write_array(part, np.asanyarray(array), allow_pickle=False)


# What zipfile and NumPy are known to raise on files that are not, or no longer, archives of arrays.
BAD_ARCHIVE = (
    *(OSError, ValueError, EOFError, KeyError, AttributeError, TypeError, OverflowError, MemoryError, SyntaxError),
    *(NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError),
)


def check_claims(path: Path) -> None:
    """Refuse an archive whose arrays claim more than it holds or than memory holds, by its headers alone."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, kind = read(file)
                claimed = prod(shape) * kind.itemsize
                if claimed > member.file_size - file.tell():
                    raise ValueError(f"{member.filename} claims {claimed:,} bytes and has {member.file_size:,}")
        total = sum(member.file_size for member in archive.infolist())
    if total > memory_bytes():
        raise ValueError(f"its arrays take {total:,} bytes, and the machine has {memory_bytes():,}")


def _named_parts(arrays: Mapping[str, NDArray[Any]]) -> tuple[tuple[str, str], tuple[str, str] | None]:
    """Which keys hold the pool and the official test part."""
    names = set(arrays)
    if names & {"x", "y"} and names & {"x_train", "y_train"}:
        raise InputError(_KEYS, f"both: {', '.join(sorted(names))}", "Leave one pair out.")
    for images, labels in (("x_train", "y_train"), ("x", "y")):
        if {images, labels} <= names:
            break
    else:
        raise InputError(_KEYS, f"the keys {', '.join(sorted(names)) or '(none)'}")
    if images == "x" or not {"x_test", "y_test"} & names:
        return (images, labels), None
    if not {"x_test", "y_test"} <= names:
        raise InputError("x_test and y_test together", "only one of them")
    return (images, labels), ("x_test", "y_test")


def _checked(arrays: Mapping[str, NDArray[Any]], images_key: str, labels_key: str) -> tuple[Pixels, Labels]:
    pixels = as_pixels(arrays[images_key], images_key)
    labels = _labels(arrays[labels_key], labels_key)
    if len(pixels) != len(labels):
        raise InputError(f"as many labels as images in {images_key} ({len(pixels)})", f"{len(labels)} in {labels_key}")
    return pixels, labels


def as_pixels(array: NDArray[Any], key: str) -> Pixels:
    """Any accepted layout and type to uint8 (n, C, H, W); channels last wins where both readings are possible.

    Args:
        array: (n, H, W), (n, H, W, C) or (n, C, H, W), uint8 or floats in [0, 1].
        key: its name, for errors.
    """
    if array.ndim == 3:
        planar = array[:, None]
    elif array.ndim == 4 and array.shape[3] in (1, 3):
        planar = array.transpose(0, 3, 1, 2)
    elif array.ndim == 4 and array.shape[1] in (1, 3):
        planar = array
    else:
        raise InputError(f"{key} of shape (n,H,W), (n,H,W,C) or (n,C,H,W) with C of 1 or 3", f"the shape {array.shape}")
    if 0 in planar.shape:
        raise InputError(f"images in {key}", f"an empty array of shape {array.shape}")
    if planar.dtype == np.uint8:
        return np.ascontiguousarray(planar)
    if not np.issubdtype(planar.dtype, np.floating):
        raise InputError(f"{key} as uint8 or as floats in [0, 1]", f"the type {planar.dtype}", "Convert it to uint8.")
    if not np.isfinite(planar).all():
        raise InputError(f"finite numbers in {key}", f"{int((~np.isfinite(planar)).sum())} NaN or infinite values")
    if planar.min() < 0 or planar.max() > 1:
        raise InputError(
            f"floats of {key} in [0, 1]",
            f"values from {planar.min():g} to {planar.max():g}",
            "Save raw pixels: normalising is done here.",
        )
    return np.ascontiguousarray(np.rint(planar * 255).astype(np.uint8))


def _labels(array: NDArray[Any], key: str) -> Labels:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(f"{key} of shape (n,)", f"the shape {array.shape}")
    if not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"whole numbers from 0 in {key}", f"the type {array.dtype}")
    if array.size and not 0 <= array.min() <= array.max() < MOST_CLASSES:
        raise InputError(f"labels of {key} from 0 to {MOST_CLASSES - 1:,}", f"{array.min()} to {array.max()}")
    return array.astype(np.int64)


def _class_names(arrays: Mapping[str, NDArray[Any]], classes: int) -> tuple[str, ...]:
    if "class_names" not in arrays:
        return tuple(map(str, range(classes)))
    names = arrays["class_names"]
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise InputError("class_names as a list of strings", f"type {names.dtype} of shape {names.shape}")
    if len(names) < classes:
        raise InputError(f"labels below {len(names)}, the number of class_names", str(classes - 1))
    texts = [os.fsdecode(one) for one in names.tolist()]  # bytes are UTF-8
    for text in texts:
        check_utf8(text, "class_names")
    return tuple(texts)


def _check_same_kind(
    pool: tuple[Pixels, Labels], test: tuple[Pixels, Labels], classes: int, keys: tuple[str, str]
) -> None:
    if pool[0].shape[1:] != test[0].shape[1:]:
        raise InputError(
            f"{keys[0]} and {keys[1]} of one image shape (C, H, W)", f"{pool[0].shape[1:]} and {test[0].shape[1:]}"
        )
    if test[1].max() >= classes:
        raise InputError(f"labels of y_test below {classes}", str(test[1].max()))
