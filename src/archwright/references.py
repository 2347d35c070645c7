"""A user's own objects as text: ``MODULE:OBJECT``, so that a run can name them and another process can find them.

Importing a module runs it; this happens only where a user or a run names one, never by loading a model or listing runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import uuid
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

from archwright.errors import InputError

_HERE = "here:"
"""Before the name of an object that only this process has: a lambda, or something of a script or a notebook."""
_FILE = "archwright_user_"
"""Before the name that a file's module gets."""
_objects: dict[str, Any] = {}


def refer(thing: Any) -> str:
    """A text by which :func:`resolve` finds ``thing``: ``MODULE:NAME`` where importing gives this very object."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if module and name and module != "__main__" and _attribute(sys.modules.get(module), name) is thing:
        place = sys.modules[module].__file__ if module.startswith(_FILE) else module
        return f"{place}:{name}"
    for known, other in _objects.items():
        if other is thing:
            return known
    text = f"{_HERE}{name or type(thing).__name__}-{uuid.uuid4().hex[:12]}"
    _objects[text] = thing
    return text


def is_local(text: str) -> bool:
    """Whether only the process that made this reference can resolve it."""
    return text.startswith(_HERE)


def resolve(text: str, what: str) -> Any:
    """The object that ``text`` refers to: ``package.module:name``, or ``path/file.py:name``.

    Args:
        text: the reference.
        what: how to call the object in an error.
    """
    if is_local(text):
        if text not in _objects:
            name = text.removeprefix(_HERE).rpartition("-")[0]
            raise InputError(
                f"the {what} {name!r}, which lives in the program that gave it",
                "another process",
                "Give it again (archwright.resume takes it by the same name), or put it into a module and name it as "
                "MODULE:OBJECT.",
            )
        return _objects[text]
    place, _, name = text.rpartition(":")
    if not place or not all(part.isidentifier() for part in name.split(".")):
        raise InputError(f"MODULE:OBJECT or FILE.py:OBJECT as {what}", repr(text))
    found = _attribute(_module(place, what), name)
    if found is None:
        raise InputError(f"an object {name!r} in {place} as {what}", "none of that name")
    return found


def _attribute(owner: Any, name: str) -> Any:
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


def _module(place: str, what: str) -> ModuleType:
    """The module of that name, looked for in the present folder too, or the file of that path."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return _file(Path(place).expanduser().resolve()) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        problem = f"{place} ({type(error).__name__}: {error})"
        raise InputError(f"a module or a Python file that can be imported for the {what}", problem) from error


def _file(path: Path) -> ModuleType:
    name = f"{_FILE}{path.stem}_{zlib.crc32(str(path).encode()):x}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(f"no Python file {path}")
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
