"""Values of settings as one text each, as they stand after a flag of the command line, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from archwright.strict import parse_json


def write(value: Any) -> str:
    """``70.0,15.0,15.0`` of several numbers, ``momentum=0.8,nesterov=false`` of a mapping, else the plain text."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={write(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(write, value))
    return json.dumps(value) if isinstance(value, bool) else str(value)


def read_several(text: str) -> list[str]:
    """The inverse of :func:`write` for several values; whoever declares them makes numbers of the texts."""
    return text.split(",")


def read_mapping(text: str) -> dict[str, Any]:
    """The inverse of :func:`write` for a mapping."""
    pairs = [item.partition("=") for item in text.split(",")]
    if not all(equals for _, equals, _ in pairs):
        raise ValueError("write it as optimizer=adamw,label_smoothing=0.1")
    names = [name.strip() for name, _, _ in pairs]
    twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
    if twice is not None:
        raise ValueError(f"{twice} is given twice")
    return {name.strip(): read_word(word.strip()) for name, _, word in pairs}


def read_word(text: str) -> Any:
    """A number, ``true`` or ``false`` as what it says; any other word as it stands."""
    try:
        value = parse_json(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float) else text
