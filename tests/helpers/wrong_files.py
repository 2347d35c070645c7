"""Files that the program refuses: fields with nothing, something else or something absurd, and damaged bytes."""

from __future__ import annotations

import copy
import math
import shutil
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from archwright.costs.tables import Correction, Entry, LatencyTable, Provenance
from archwright.data.preprocessing import Preprocessing
from archwright.search.configuration import Configuration
from archwright.spaces.base import Scale
from helpers.wrong_options import CELL, NONSENSE

SCALE = Scale(4, 1, classes=3, image_size=8, image_channels=3)


@dataclass
class Site:
    """One good file of every kind, made once; :meth:`copy` puts them into a test's own folder."""

    origin: Path
    folder: Path

    def copy(self) -> Path:
        shutil.copytree(self.origin, self.folder, dirs_exist_ok=True)
        return self.folder


Place = tuple[str | int, ...]
ABSENT = object()


def altered(value: Any, place: Place, new: Any) -> Any:
    """A copy of ``value`` with ``new`` at ``place``, or nothing there."""
    value = copy.deepcopy(value)
    inner = value
    for step in place[:-1]:
        inner = inner[step]
    if new is ABSENT:
        del inner[place[-1]]
    else:
        inner[place[-1]] = new
    return value


def other_types(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Values that cannot stand for ``value``: none at all, and one of another JSON type, chosen by ``name``."""
    others: list[tuple[str, Any]] = [("null", None)]
    others.append(("an object", {"a": 1} if not isinstance(value, dict) else ["a"]))
    others.append(("a text", "many" if not isinstance(value, str) else {"many": 1}))
    others.append(("a list", [["a"]] if not isinstance(value, list) else 7))
    yield "missing", ABSENT
    yield others[zlib.crc32(name.encode()) % 4]
    yield others[(zlib.crc32(name.encode()) + 2) % 4]


def absurd(value: Any) -> Iterator[tuple[str, Any]]:
    """Values of the same type that nothing can have."""
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield from (("huge", 10**12), ("below zero", -1), ("a fraction", 1.5), ("beyond floats", 10**400))
    elif isinstance(value, float):
        yield from (("not a number", math.nan), ("infinite", math.inf))
    elif isinstance(value, str):
        yield from (("unknown", NONSENSE), ("empty", ""))
    elif isinstance(value, list):
        yield from (("empty", []), ("doubled", value * 2), ("of others", [{}] * len(value)))


FACTS: dict[str, Any] = {
    "format": 1,
    "space": "nasbench201",
    "architecture": CELL,
    "scale": SCALE.to_dict(),
    "preprocessing": Preprocessing(8, 3, (0.5,) * 3, (0.25,) * 3, ("cat", "dog", "owl")).to_dict(),
    "measured": {},
}


def fact_cases() -> Iterator[Any]:
    """Every fact of a model and of its parts, missing, of another type, and absurd."""
    places: list[Place] = [(name,) for name in FACTS]
    places += [(part, name) for part in ("scale", "preprocessing") for name in FACTS[part]]
    for place in places:
        value = FACTS[place[0]] if len(place) == 1 else FACTS[place[0]][place[1]]
        for kind, new in (*other_types(value, str(place[-1])), *absurd(value)):
            if place[-1] in ("turned", "order") and new is ABSENT:
                continue  # older files do not say it
            yield pytest.param(place, new, id=f"{'.'.join(map(str, place))} {kind}")


def onnx_fact_cases() -> Iterator[Any]:
    """What is read of an ONNX file: its own parts, and the preprocessing."""
    for case in fact_cases():
        place = case.values[0]
        scale = len(place) == 2 and place[0] == "scale"
        if not scale or place[1] in ("image_size", "image_channels", "classes"):
            if place[0] in ("space", "architecture") and isinstance(case.values[1], str):
                continue  # the graph itself is run; no space is asked
            yield case


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut in half": lambda data: data[: len(data) // 2],
    "cut at the start": lambda data: data[:5],
    "text instead": lambda _: b"not at all what it says",
    "zeros instead": lambda data: bytes(len(data)),
    "without its start": lambda data: data[16:],
    "no UTF-8": lambda _: b"\xff\xfe{" * 9,
    "another JSON": lambda _: b"[1, 2]",
    "a JSON number": lambda _: b"12",
    "endless nesting": lambda _: b"[" * 100_000,
    "a huge number": lambda _: b'{"format": ' + b"1" * 5000 + b"}",
}


def table_cases() -> Iterator[Any]:
    """Every field of a table, from the models that declare them, missing, of another type, and beyond its bounds."""
    parts: dict[Place, type[BaseModel]] = {(): LatencyTable, ("provenance",): Provenance, ("correction",): Correction}
    parts[("entries", 0)] = Entry  # the first of them, whatever it is called
    for where, model in parts.items():
        for name, info in model.model_fields.items():
            optional = not info.is_required()
            for kind, new in other_types(_example(info), name):
                if not (optional and kind in ("missing", "null")):
                    yield pytest.param((*where, name), new, id=f"{'.'.join(map(str, (*where, name)))} {kind}")
            for wrong in _beyond(info):
                yield pytest.param((*where, name), wrong, id=f"{'.'.join(map(str, (*where, name)))} {wrong!s:.9}")


def _example(info: FieldInfo) -> Any:
    kinds = get_args(info.annotation) or (info.annotation,)
    origin = get_origin(info.annotation)
    return {} if origin is dict else next((one() for one in kinds if one in (int, float, str)), {})


def _beyond(info: FieldInfo) -> Iterator[Any]:
    for one in info.metadata:
        if isinstance(one, annotated_types.Ge):
            yield one.ge - 1
        elif isinstance(one, annotated_types.Gt):
            yield one.gt
    if float in (get_args(info.annotation) or (info.annotation,)):
        yield from (math.nan, math.inf, 10**400)


def plain_types(annotation: Any) -> set[Any]:
    """The types behind unions and ``Annotated``."""
    inner = get_args(annotation)
    return {annotation}.union(*map(plain_types, inner)) if inner else {annotation}


def header_cases() -> Iterator[Any]:
    """What every run says of itself, and each of its settings."""
    for name, value in {"format": 1, "created": "", "versions": {}, "machine": {}, "configuration": {}}.items():
        for kind, new in other_types(value, name):
            yield pytest.param((name,), new, id=f"{name} {kind}")
    for name, info in Configuration.model_fields.items():
        kinds = [get_origin(one) or one for one in (info.annotation, *get_args(info.annotation))]
        example: Any = {} if dict in kinds else "" if info.annotation is str else 0
        for kind, new in other_types(example, name):
            nothing = kind in ("missing", "null") and (not info.is_required() or None in get_args(info.annotation))
            if not nothing and not (kind == "a text" and str in plain_types(info.annotation)):
                yield pytest.param(("configuration", name), new, id=f"configuration.{name} {kind}")
