"""What an installation can do: versions, device, optional packages, data, and a small search that really runs.

``archwright doctor`` prints it; each line is a :class:`Finding`, and what is missing says how to get it.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from archwright.errors import ArchwrightError

State = Literal["good", "missing", "bad"]
_SHOWN = ("archwright", "torch", "numpy", "scipy", "optuna", "kornia", "pydantic")
_TABLES = ("nb201.npz", "nb101.npz", "cifar10_10k2k.npz")
_PUT_IT = "Put it into a folder and set ARCHWRIGHT_DATA to that folder."


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``missing`` is optional, ``bad`` is not."""

    topic: str
    name: str
    state: State
    text: str


def examine() -> Iterator[Finding]:
    """All findings, the self-test last."""
    yield from versions()
    yield from machine()
    yield from extras()
    yield from data()
    yield runs_folder()
    yield self_test()


def versions() -> Iterator[Finding]:
    """Of Python and the packages that decide results."""
    yield Finding("versions", "python", "good", platform.python_version())
    for name in _SHOWN:
        found = _version(name)
        yield Finding("versions", name, "good" if found else "bad", found or f"Install it with: pip install {name}")


def machine() -> Iterator[Finding]:
    """What a search would compute on."""
    from archwright.device import Device, memory_bytes

    chosen = Device.choose()
    facts = chosen.describe()
    yield Finding("machine", "device", "good", f"{facts['device']} ({facts['model']})")
    threads = f"{chosen.threads} of {os.cpu_count()} processors; --threads changes it"
    yield Finding("machine", "threads", "good", threads)
    yield Finding("machine", "memory", "good", f"{memory_bytes() / 2**30:.1f} GiB")


def extras() -> Iterator[Finding]:
    """Each optional group of packages: all there, or how to get it."""
    groups: dict[str, list[str]] = {}
    for line in importlib.metadata.requires("archwright") or ():
        extra = re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        package = re.match(r"[\w.-]+", line)
        if extra and package and extra.group(1) not in ("dev", "e2e"):
            groups.setdefault(extra.group(1), []).append(package.group())
    for extra_name, packages in sorted(groups.items()):
        absent = [package for package in packages if _version(package) is None]
        text = f"without {', '.join(absent)}: pip install 'archwright[{extra_name}]'"
        yield Finding("extras", extra_name, "missing" if absent else "good", text if absent else ", ".join(packages))


def data() -> Iterator[Finding]:
    """Tables and images that are used where they are found."""
    from archwright.data.downloads import default_cache
    from archwright.tables.locate import shared_data

    for name in _TABLES:
        path = shared_data(name)
        yield Finding("data", name, "good" if path else "missing", str(path) if path else _PUT_IT)
    cache = default_cache()
    kept = len(list(cache.iterdir())) if cache.is_dir() else 0
    yield Finding("data", "downloads", "good", f"{kept} files in {cache}")


def runs_folder() -> Finding:
    """Whether a search could write its run."""
    from archwright.paths import check_writable
    from archwright.runs.run import runs_root

    try:
        check_writable(runs_root() / "new" / "run.json")
    except (ArchwrightError, OSError) as error:
        return Finding("runs", "folder", "bad", f"{error} Set ARCHWRIGHT_RUNS to another folder.")
    return Finding("runs", "folder", "good", str(runs_root().absolute()))


def self_test() -> Finding:
    """The smallest whole search: trains two networks on noise, saves one, loads it and asks it."""
    from PIL import Image

    from archwright.models import load_model
    from archwright.search.engine import search

    begin = time.perf_counter()
    small: dict[str, Any] = {"channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1, "evaluations": 1}
    try:
        with tempfile.TemporaryDirectory() as folder:
            run, image = Path(folder) / "run", Path(folder) / "image.png"
            search("random", run=run, data="random:count=48,size=8,classes=2", **small)
            Image.new("RGB", (8, 8)).save(image)
            load_model(run).predict([image])
    except Exception as error:  # noqa: BLE001 - whatever fails is what the user wants to know
        return Finding("self-test", "search", "bad", f"{type(error).__name__}: {error}")
    seconds = time.perf_counter() - begin
    return Finding("self-test", "search", "good", f"searched, trained, saved and loaded a network ({seconds:.1f} s)")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
