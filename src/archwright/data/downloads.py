"""Files of public data sets: found in the cache or downloaded whole, with their published checksum."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pooch

from archwright.errors import InputError

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
    return Path(chosen).expanduser() if chosen else Path(pooch.os_cache("archwright"))


def fetch(file: RemoteFile, cache_dir: Path | None) -> Path:
    """The file in the cache, downloaded if absent. A download appears under its name only once whole and checked."""
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
    downloader = pooch.HTTPDownloader(timeout=30)
    try:
        pooch.retrieve(file.url, f"md5:{file.md5}", fname=file.name, path=str(folder), downloader=downloader)
    except (OSError, ValueError) as error:  # requests' errors are OSErrors; a wrong checksum is a ValueError
        raise InputError(
            f"to download {file.url}",
            str(error) or type(error).__name__,
            f"Without a network, put the file (MD5 {file.md5}) at {path} by hand.",
        ) from error
    return path
