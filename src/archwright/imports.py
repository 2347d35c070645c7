"""Who decides that a module runs: a user who names it, never a file that does.

A model, an ensemble or a run may name code of its author's (``net.py:make``). It is imported only where its reader says
so (``allow_import=True``, ``--allow-import``), after having been told which file would run; what this process has used
before by its user's own wish needs no second permission.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from archwright.errors import InputError
from archwright.paths import user_path
from archwright.references import ObjectRef, was_resolved


def check_shape(named: ObjectRef, what: str) -> None:
    """Refuse a reference that cannot be a user's own ``MODULE:OBJECT`` or ``FILE.py:OBJECT``, without importing it.

    The standard library has no networks and no spaces, but functions that end the process or start others.

    Args:
        named: the reference.
        what: how to call the object in an error.
    """
    is_file = named.path is not None and "\0" not in named.place
    words = named.name.split(".") + ([] if is_file else named.place.split("."))
    if not all(word.isidentifier() for word in words):
        raise InputError(f"MODULE:OBJECT or FILE.py:OBJECT as {what}", repr(str(named)))
    if not is_file and named.place.partition(".")[0] in sys.stdlib_module_names:
        raise InputError(f"an object of your own as {what}", f"{str(named)!r}, of Python's standard library")


def require_permission(named: ObjectRef, what: str, named_by: str, allowed: bool) -> None:
    """Refuse to import what a file names, unless its reader allows it or has used this very object before.

    Args:
        named: ``MODULE:OBJECT`` or ``FILE.py:OBJECT``.
        what: how to call the object in an error.
        named_by: what names it, as "the model in FILE".
        allowed: whether the reader allows it.
    """
    check_shape(named, what)
    if allowed or was_resolved(str(named)):
        return
    raise InputError(
        f"your permission to run {file_of(named.place)}, which {named_by} names as its {what} ({named})",
        "none",
        "Read that file, then allow it: --allow-import (in Python: allow_import=True).",
    )


_trusted: set[str] = set()
"""What this process ran by its user's own wish, besides modules."""


def trust(what: str) -> None:
    """Note that the user asked for ``what``, as "what the Ray cluster at HOST:PORT answers"."""
    _trusted.add(what)


def require_trust(what: str, named_by: str, allowed: bool) -> None:
    """Refuse what is run without being imported, as :func:`require_permission` does with modules.

    Args:
        what: as :func:`trust` was told.
        named_by: what names it, as "the run in FOLDER".
        allowed: whether the reader allows it.
    """
    if not allowed and what not in _trusted:
        do = "If you trust it, allow it: --allow-import (in Python: allow_import=True)."
        raise InputError(f"your permission to run {what}, which {named_by} names", "none", do)


def file_of(place: str) -> str:
    """The file that importing ``place`` (a module's name, or a path) would run, found without importing anything."""
    if place.endswith(".py"):
        return str(user_path(place).absolute())
    spec: ModuleSpec | None = None
    folders: list[str] | None = [*sys.path, str(Path.cwd())]
    parts = place.split(".")
    for end in range(1, len(parts) + 1):
        spec = None if folders is None else PathFinder.find_spec(".".join(parts[:end]), folders)
        if spec is None:
            return f"the module {place} (not found here)"
        folders = spec.submodule_search_locations
    return spec.origin if spec is not None and spec.origin else f"the module {place}"
