"""What a user names by text: an object of a module, a space, images or a table, parsed once and asked by attribute.

A run keeps the texts, so that another process finds the same things again. Importing a module runs it; this happens
only where a user or a run names one, never by loading a model or listing runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from archwright.errors import InputError
from archwright.owncode import OwnCodeError, own_code, told
from archwright.paths import odd_kind, user_path

_HERE = "here"
"""The place of an object that only this process has: a lambda, or something of a script or a notebook."""
_FILE = "archwright_user_"
"""Before the name that a file's module gets."""
_OF_FILES = ("folder", "tar", "npz", "kept", "nb201", "nb101", "nats")
"""Kinds of images and tables that take a path."""
_objects: dict[str, Any] = {}
_resolved: set[str] = set()
"""References that were used in this process."""


@dataclass(frozen=True)
class ObjectRef:
    """An object of the user's: ``MODULE:OBJECT``, ``FILE.py:OBJECT``, or ``here:NAME-ID``, which only this process has.

    Attributes:
        place: MODULE, FILE.py or ``here``.
        name: of the object in it, with dots where it belongs to another one.
    """

    place: str
    name: str

    @classmethod
    def find(cls, text: str) -> ObjectRef | None:
        """The object that ``text`` names; None where it is a plain word."""
        place, colon, name = text.rpartition(":")
        return cls(place, name) if colon else None

    def __str__(self) -> str:
        """The text that :meth:`find` reads."""
        return f"{self.place}:{self.name}"

    @property
    def is_local(self) -> bool:
        """Whether only the process that made this reference can resolve it."""
        return self.place == _HERE

    @property
    def path(self) -> Path | None:
        """The Python file that it is in."""
        return Path(self.place) if self.place.endswith(".py") else None

    @property
    def imports(self) -> str | None:
        """The file or module that resolving it imports."""
        return None if self.is_local else self.place

    @property
    def is_imported(self) -> bool:
        """Whether this process has imported the module, or run the file, that it is in."""
        return (self.place if self.path is None else _module_of(self.path)) in sys.modules

    def absolute(self) -> ObjectRef:
        """With the whole path of its file, so that it is found from any folder."""
        return self if self.path is None else ObjectRef(absolute_path(self.place), self.name)


@dataclass(frozen=True)
class SpaceRef:
    """A space: a registered name, ``choices:JSON``, ``choices:FILE``, ``width:NETWORK``, ``model:OBJECT`` or an object.

    Attributes:
        kind: which of them.
        argument: the name or the object, or what follows the colon of the others. NETWORK is a name or an object.
    """

    kind: Literal["name", "choices", "width", "model", "object"]
    argument: str

    @classmethod
    def parse(cls, text: str) -> SpaceRef:
        """Of any text; whether there is such a space shows when it is looked for."""
        kind, colon, argument = text.partition(":")
        known: tuple[Literal["choices", "width", "model"], ...] = ("choices", "width", "model")
        own = next((one for one in known if colon and one == kind), None)
        return cls("object" if colon else "name", text) if own is None else cls(own, argument)

    def __str__(self) -> str:
        """The text that :meth:`parse` reads."""
        return f"{self.kind}:{self.argument}" if self.kind in ("choices", "width", "model") else self.argument

    @property
    def object(self) -> ObjectRef | None:
        """The user's own space, or the function that makes the network to thin."""
        if self.kind == "choices":
            return None
        if self.kind == "width" and self.argument.startswith("{"):
            inner = saved_network(self.argument)["space"]
            return SpaceRef.parse(inner).object
        return ObjectRef.find(without_digest(self.argument)[0] if self.kind == "model" else self.argument)

    @property
    def is_local(self) -> bool:
        """Whether only the process that made this reference can resolve it."""
        return self.object is not None and self.object.is_local

    @property
    def path(self) -> Path | None:
        """The file of the user's that it is in."""
        if self.kind == "choices":
            return None if self.argument.lstrip().startswith("{") else Path(self.argument)
        return None if self.object is None else self.object.path

    @property
    def imports(self) -> str | None:
        """The file or module that making the space imports."""
        return None if self.object is None else self.object.imports

    def absolute(self) -> SpaceRef:
        """With the whole path of its file, so that it is found from any folder."""
        if self.path is None or self.argument.startswith("{"):  # a saved network has whole paths already
            return self
        return SpaceRef(self.kind, absolute_path(self.argument) if self.object is None else str(self.object.absolute()))


@dataclass(frozen=True)
class DataRef:
    """Images or a table: a registered name, and what follows a colon where it takes something, as ``folder:PATH``.

    ``object:NAME`` are images that were given in memory, ``kept:PATH`` such images in the file that a run keeps.
    """

    kind: str
    argument: str = ""

    @classmethod
    def parse(cls, text: str) -> DataRef:
        """Of any text; whether there is such a kind shows when it is looked for."""
        kind, _, argument = text.partition(":")
        return cls(kind, argument)

    def __str__(self) -> str:
        """The text that :meth:`parse` reads."""
        return f"{self.kind}:{self.argument}" if self.argument else self.kind

    @property
    def is_local(self) -> bool:
        """Whether only the process that was given the images has them."""
        return self.kind == "object"

    @property
    def path(self) -> Path | None:
        """The file or folder that is read."""
        return Path(self.argument) if self.kind in _OF_FILES and self.argument else None

    @property
    def imports(self) -> None:
        """Reading images or a table imports nothing of the user's."""
        return None

    def absolute(self) -> DataRef:
        """With the whole path, so that it is found from any folder."""
        return self if self.path is None else DataRef(self.kind, absolute_path(self.argument))


Reference = ObjectRef | SpaceRef | DataRef


def saved_network(text: str) -> dict[str, Any]:
    """The network of another space that ``width:TEXT`` thins, as JSON: its space, architecture and scale."""
    from archwright.strict import parse_json  # brings pydantic, which lists of commands do without

    try:
        found = parse_json(text, unique=True)
        kinds = {"space": str, "architecture": str, "scale": dict}
        if set(found) == set(kinds) and all(isinstance(found[name], kind) for name, kind in kinds.items()):
            return dict(found)
    except (ValueError, TypeError) as error:
        raise InputError("a saved network as JSON", f"{text[:80]!r} ({error})") from error
    raise InputError("a saved network with its space, architecture and scale", repr(text[:80]))


DIGEST = 8
"""Letters of the digest that follows the object of a saved ``model:`` space, after an ``@``."""


def without_digest(text: str) -> tuple[str, str]:
    """``MODULE:OBJECT`` and the digest behind an ``@``, empty where there is none."""
    before, _, digest = text.rpartition("@")
    is_digest = bool(before) and len(digest) == DIGEST and set(digest) <= set("0123456789abcdef")
    return (before, digest) if is_digest else (text, "")


def absolute_path(path: str) -> str:
    """The whole path, without ``~``; an empty text stays empty."""
    return str(user_path(path).absolute()) if path else path


def refer(thing: Any) -> str:
    """A text by which :func:`resolve` finds ``thing``: ``MODULE:NAME`` where importing gives this very object."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if module and name and module != "__main__" and _attribute(sys.modules.get(module), name) is thing:
        place = sys.modules[module].__file__ if module.startswith(_FILE) else module
        return f"{place}:{name}"
    for known, other in _objects.items():
        if other is thing:
            return known
    text = str(ObjectRef(_HERE, f"{name or type(thing).__name__}-{uuid.uuid4().hex[:12]}"))
    _objects[text] = thing
    return text


def resolve(text: str, what: str) -> Any:
    """The object that ``text`` refers to: ``package.module:name``, or ``path/file.py:name``.

    Args:
        text: the reference.
        what: how to call the object in an error.
    """
    named = ObjectRef.find(text)
    if named is not None and named.is_local:
        if text not in _objects:
            raise InputError(
                f"the {what} {named.name.rpartition('-')[0]!r}, which lives in the program that gave it",
                "another process",
                "Give it again (archwright.resume takes it by the same name), or put it into a module and name it as "
                "MODULE:OBJECT.",
            )
        return _objects[text]
    if named is None or not named.place or not all(part.isidentifier() for part in named.name.split(".")):
        raise InputError(f"MODULE:OBJECT or FILE.py:OBJECT as {what}", repr(text))
    found = _attribute(_module(named, what), named.name)
    if found is None:
        raise InputError(f"an object {named.name!r} in {named.place} as {what}", "none of that name")
    _resolved.add(text)
    return found


def was_resolved(text: str) -> bool:
    """Whether this process has used the reference ``text`` before, by its user's own wish."""
    return text in _resolved


def _attribute(owner: Any, name: str) -> Any:
    for part in name.split("."):
        owner = getattr(owner, part, None)
    return owner


def _module(named: ObjectRef, what: str) -> ModuleType:
    """The module of that name, looked for in the present folder too, or the file of that path."""
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        with own_code(named.place):
            return importlib.import_module(named.place) if named.path is None else _file(named.path)
    except OwnCodeError as error:
        problem = f"{named.place} ({told(error.__cause__ or error)})"
        raise InputError(f"a module or a Python file that can be imported for the {what}", problem) from error


def _module_of(path: Path) -> str:
    """The name that the module of a file gets: by its stem and its absolute path."""
    path = user_path(str(path)).resolve()
    return f"{_FILE}{path.stem}_{zlib.crc32(str(path).encode()):x}"


def _file(path: Path) -> ModuleType:
    name, path = _module_of(path), user_path(str(path)).resolve()
    if name not in sys.modules:
        kind = odd_kind(path, follow=True)
        if kind is not None:  # reading a pipe would not end
            raise ImportError(f"{path} is {kind}")
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
