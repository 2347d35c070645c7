"""What a file or an argument claims to be: JSON, and dataclasses out of it with every field of its declared type."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from archwright.errors import InputError

T = TypeVar("T", bound=Hashable)


MOST_LEVELS = 100
"""Of JSON inside JSON; what looks into deeper values calls itself as often, and ends where Python ends that."""


def parse_json(text: str | bytes, unique: bool = False) -> Any:
    """What ``text`` says; anything but JSON (also deep nesting, NaN, or bytes that are no text) is a ValueError.

    Args:
        text: to be read.
        unique: refuse an object that names a field twice, of which only the last would count.
    """
    try:
        found = json.loads(text, parse_constant=_no_number, object_pairs_hook=_once if unique else None)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    brackets = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    if sum(map(text.count, brackets)) > MOST_LEVELS and _levels(found) > MOST_LEVELS:  # type: ignore[arg-type]
        raise ValueError("nested too deeply")
    return found


def _levels(value: Any) -> int:
    """How deep lists and objects lie in each other, counted to just above :data:`MOST_LEVELS`."""
    level, count = [value], 0
    while count <= MOST_LEVELS:
        level = [one for one in level if isinstance(one, list | dict)]
        if not level:
            break
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
        count += 1
    return count


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for number, (name, _) in enumerate(pairs) if name in dict(pairs[:number]))
        raise ValueError(f"{twice!r} is there twice")
    return found


def from_plain(kind: type[T], values: Mapping[str, Any], what: str) -> T:
    """A dataclass out of plain JSON; all that is wrong is said at once.

    No type gives way to another: ``"3"`` is no number and ``1.5`` is no whole one; lists are read as tuples.

    Args:
        kind: the dataclass.
        values: its fields, all of them.
        what: the thing is called in errors.

    Example:
        >>> from archwright.spaces.base import Scale
        >>> from_plain(Scale, Scale(16, 5).to_dict(), "a scale").cells
        5
    """
    if not isinstance(values, Mapping):
        raise InputError(f"the fields of {what}", f"{type(values).__name__}")
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    problems = [f"no {name}" for name in sorted(known - set(values))]
    problems += [f"an unknown {name!r}" for name in sorted(map(str, set(values) - known))]
    if not problems:
        try:
            made: T = _adapter(kind).validate_json(json.dumps(dict(values)), strict=True)
            return made
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    raise InputError(f"the fields of {what}", "; ".join(problems[:5]))


@lru_cache(maxsize=32)
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
