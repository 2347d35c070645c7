"""Files of public data sets: found in the cache or downloaded, resumably, with their published checksum."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

from archwright.errors import InputError
from archwright.paths import user_path
from archwright.runs import disk

CACHE_VARIABLE = "ARCHWRIGHT_CACHE"


@dataclass(frozen=True)
class RemoteFile:
    """A published file: ``name`` in the cache, where it comes from, and its MD5."""

    name: str
    url: str
    md5: str


def default_cache() -> Path:
    """The folder named by the environment variable ARCHWRIGHT_CACHE, or the operating system's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return user_path(chosen) if chosen else Path(pooch.os_cache("archwright"))


def fetch(file: RemoteFile, cache_dir: Path | None) -> Path:
    """The file in the cache, downloaded if absent. A download appears under its name only once whole and checked.

    Args:
        file: its name, address and published checksum.
        cache_dir: where it is kept; None is :func:`default_cache`.
    """
    folder = cache_dir or default_cache()
    path = folder / file.name
    if path.is_file():
        found = pooch.file_hash(str(path), alg="md5")
        if found != file.md5:
            raise InputError(
                f"{path} with MD5 {file.md5}",
                f"MD5 {found}",
                f"Remove it; it is downloaded again, or get it from {file.url}",
            )
        return path
    try:
        _download(file, path)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
        raise InputError(
            f"to download {file.url}",
            str(error) or type(error).__name__,
            f"Try again: it goes on where it stopped. Or put the file (MD5 {file.md5}) at {path} by hand.",
        ) from error
    return path


def _download(file: RemoteFile, path: Path) -> None:
    """Fetch into ``NAME.part``, continuing one that was cut off where the server can, and rename it once checked."""
    part = path.with_name(f"{path.name}.part")
    disk.make_folder(path.parent)
    done = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={done}-"} if done else {}
    with requests.get(file.url, headers=headers, stream=True, timeout=30) as answer:
        if answer.status_code != requests.codes.requested_range_not_satisfiable:  # else the part is already whole
            answer.raise_for_status()
            continued = answer.status_code == requests.codes.partial_content
            with disk.Writer(disk.append(part) if continued else disk.create(part)) as output:
                received = sum(output.write(chunk) for chunk in answer.iter_content(1 << 16))
            if received < int(answer.headers.get("Content-Length", 0)):
                raise OSError(f"the connection ended after {received} bytes")
    found = pooch.file_hash(str(part), alg="md5")
    if found != file.md5:
        disk.remove(part)
        raise ValueError(f"its MD5 is {found}, not {file.md5}")
    disk.rename(part, path)
