"""What was learned about many image files, kept in the cache: a second start looks only at those that have changed.

Plain arrays in an ``.npz`` archive, read without pickle. One that is damaged, or that cannot be written, is as good as
none: everything is looked at again.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.data.arrays import read_archive, write_archive
from archwright.data.image_files import Headers, Names
from archwright.errors import InputError
from archwright.runs.files import atomic_file

FRESH_NS = 2_000_000_000
"""A file that was changed so shortly before it was looked at is looked at again: clocks of file systems are coarse."""
FIELDS = ("block", "ends", "short_side", "grey")


def keep_arrays(place: str, arrays: Mapping[str, Any], cache_dir: Path | None) -> None:
    """Keep ``arrays`` of ``place``, or nothing where the cache cannot be written.

    Args:
        place: what they are of.
        arrays: plain ones by name.
        cache_dir: None is the default cache.
    """
    with contextlib.suppress(OSError, InputError), atomic_file(_path(place, cache_dir), lasting=False) as file:
        write_archive(file, arrays)


def kept_arrays(place: str, cache_dir: Path | None) -> dict[str, NDArray[Any]]:
    """What :func:`keep_arrays` kept of ``place``; nothing where that is damaged or was never kept.

    Args:
        place: what they are of.
        cache_dir: None is the default cache.
    """
    path = _path(place, cache_dir)
    if not path.is_file():
        return {}
    try:
        return read_archive(path)
    except InputError:
        return {}


def _path(place: str, cache_dir: Path | None) -> Path:
    from archwright.data.downloads import default_cache  # deferred: what downloads is slow to import

    name = hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:32]
    return (cache_dir or default_cache()) / "indices" / f"{name}.npz"


def keep_index(
    place: str, names: Names, fields: Mapping[str, NDArray[np.int64]], headers: Headers, cache_dir: Path | None
) -> None:
    """Keep what is known of files.

    Args:
        place: where they lie.
        names: of the files.
        fields: numbers by which a changed file is told, each (n,), by name.
        headers: what they say.
        cache_dir: None is the default cache.
    """
    block = np.frombuffer(names.block, np.uint8)
    known = {"block": block, "ends": names.ends, "short_side": headers.short_side, "grey": headers.grey}
    keep_arrays(place, {**known, **fields}, cache_dir)


def kept_index(place: str, names: Names, fields: Mapping[str, NDArray[np.int64]], cache_dir: Path | None) -> Headers:
    """What is kept of files that have not changed; nothing of the others.

    Args:
        place: where they lie.
        names: of the files, as they are now.
        fields: numbers by which a changed file is told, as they are now.
        cache_dir: None is the default cache.
    """
    headers = Headers.unread(len(names))
    kept = kept_arrays(place, cache_dir)
    if not _is_index(kept, fields):
        return headers
    block = kept["block"].tobytes()
    if block == names.block and np.array_equal(kept["ends"], names.ends):
        now = then = np.arange(len(names))
    else:
        known = Names(block, kept["ends"])
        places = {known.raw(index): index for index in range(len(known))}
        found = [(index, places.get(names.raw(index), -1)) for index in range(len(names))]
        now, then = np.array([pair for pair in found if pair[1] >= 0], dtype=np.int64).reshape(-1, 2).T
    same = np.logical_and.reduce([fields[name][now] == kept[name][then] for name in fields])
    headers.short_side[now[same]] = kept["short_side"][then[same]]
    headers.grey[now[same]] = kept["grey"][then[same]]
    return headers


def _is_index(kept: Mapping[str, NDArray[Any]], fields: Mapping[str, Any]) -> bool:
    """Whether ``kept`` has an index's arrays, each as long as the others and of its type."""
    if not {*FIELDS, *fields} <= set(kept):
        return False
    types = {"block": np.uint8, "ends": np.int64, "short_side": np.int32, "grey": np.bool_}
    if any(kept[name].dtype != types.get(name, np.int64) or kept[name].ndim != 1 for name in (*FIELDS, *fields)):
        return False
    ends = kept["ends"]
    ordered = len(ends) == 0 or (ends[0] >= 0 and (np.diff(ends) >= 0).all() and ends[-1] == len(kept["block"]))
    return bool(ordered) and all(len(kept[name]) == len(ends) for name in (*FIELDS[1:], *fields))
