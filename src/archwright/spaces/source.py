"""Which code makes the networks of a space, as a digest: what is kept of networks between runs goes by it."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import resolve_name
from pathlib import Path
from types import ModuleType
from typing import Any

_OURS = "archwright"
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of packages, this environment's and others that it sees: of the user, of the system."""


def source_digest(makers: Iterable[Any]) -> str | None:
    """A digest of the files that have the code of ``makers`` (classes and functions), and of what these files import.

    This package, Python and other installed packages are left out: their versions say what they are. None where some of
    the code is in no file, as in a notebook.
    """
    files: dict[Path, None] = {}
    for maker in makers:
        module = sys.modules.get(_made_in(maker))
        if module is None or not _has_file(module):
            return None
        if _package(module) != _OURS:
            files |= dict.fromkeys(_files(module, _package(module), set()))
    contents = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return hashlib.sha256("".join(contents).encode()).hexdigest()


def _made_in(maker: Any) -> str:
    """The module that defines a class, a function, or the class of something else that can be called."""
    while isinstance(maker, partial):
        maker = maker.func
    return str(maker.__module__)


def _has_file(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).is_file()


def _package(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]


def _files(module: ModuleType, package: str, seen: set[str]) -> Iterator[Path]:
    """The file of ``module``, and of the modules that it imports, where these are followed."""
    seen.add(module.__name__)
    path = Path(str(module.__file__))
    yield path
    for name in _imports(path, module.__package__) if path.suffix == ".py" else ():
        other = sys.modules.get(name)
        if other is not None and name not in seen and _is_followed(other, package):
            yield from _files(other, package, seen)


def _imports(path: Path, package: str | None) -> Iterator[str]:
    """Names of modules that a file of ``package`` imports, and of what it takes from them, which may be modules."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                source = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # it was never run: the module has no such package
                continue
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def _is_followed(module: ModuleType, package: str) -> bool:
    """Whether a module is in a file of ``package`` or of the user: not of Python or of another installed package."""
    own = _package(module)
    if not _has_file(module) or own in (_OURS, *sys.stdlib_module_names):
        return False
    path = Path(str(module.__file__))
    folders = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    installed = not INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in folders)
    return own == package or not installed
