"""Good files made bad at random: bytes that differ, pieces that are missing or twice, and other values in other places.

What has a checksum gets a new one, so that the reader behind the checksum is tried, too: the file of somebody who wants
it to be read has one that fits.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from archwright.runs.files import _checksum

ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 0.5, -0.0, 1e308, 1e-320),
    *("", "a", "../..", "\0", "\ud800", "nan", "0" * 50, "x" * 3000, "os:abort", "/dev/zero", "artifacts/../../x"),
    *([], [[]], {}, {"a": 1}, [None] * 3, [{}], {"": {"": []}}, list(range(100))),
)
"""Values that a field is not made for."""
DEEP = 700
"""Levels of a value that a parser may just read, and others may not."""


def places(value: Any) -> list[tuple[Any, ...]]:
    """The ways to everything inside plain JSON, itself included."""
    found: list[tuple[Any, ...]] = []
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting:
        here, one = waiting.pop()
        found.append(here)
        inner = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
        waiting += [((*here, key), part) for key, part in inner]
    return found


def copied(value: Any) -> Any:
    """A copy of plain JSON, however deep."""
    return json.loads(json.dumps(value))


def other_json(value: Any, draw: random.Random) -> Any:
    """With one to three changes anywhere: another value, nothing, something twice or under another name."""
    value = copied(value)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        place = draw.choice(places(value))
        if not place:
            if draw.random() < 0.1:
                value = odd(draw)
            continue
        outer = value
        for step in place[:-1]:
            outer = outer[step]
        _change(outer, place[-1], draw)
    return value


def _change(outer: Any, key: Any, draw: random.Random) -> None:
    kind = draw.choice(("odd", "odd", "odd", "gone", "twice", "renamed", "near"))
    if kind == "gone":
        del outer[key]
    elif kind == "twice" and isinstance(outer, list):
        outer.insert(key, copied(outer[key]))
    elif kind == "renamed" and isinstance(outer, dict):
        outer[draw.choice(("", "a", "__tensor__", "__proto__", f"{key} "))] = outer.pop(key)
    elif kind == "near" and isinstance(outer[key], int | float) and not isinstance(outer[key], bool):
        outer[key] = draw.choice((outer[key] + 1, -outer[key], outer[key] * 1000, float(outer[key]) + 0.5))
    else:
        outer[key] = odd(draw)


def odd(draw: random.Random) -> Any:
    """A value that a field is not made for; now and then a very deep one."""
    if draw.random() < 0.03:
        return json.loads("[" * DEEP + "]" * DEEP)
    return copied(draw.choice(ODD))


def other_bytes(data: bytes, draw: random.Random) -> bytes:
    """Bits that differ, a piece that is gone, twice, zero or noise, or an end that is missing."""
    if draw.random() < 0.03:
        return b"[" * 100_000
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        begin = draw.randrange(len(found) + 1)
        end = min(len(found), begin + draw.choice((1, 1, 4, 30, 1000)))
        piece = {
            "flip": bytes(one ^ (1 << draw.randrange(8)) for one in found[begin:end]),
            "gone": b"",
            "twice": bytes(found[begin:end]) * 2,
            "zero": bytes(end - begin),
            "noise": draw.randbytes(end - begin),
        }
        found[begin:end] = piece[draw.choice(sorted(piece))]
    return bytes(found if draw.random() < 0.8 else found[: draw.randrange(len(found) + 1)])


# --- files by their kind ---------------------------------------------------------------------------------------------


def of_json(data: bytes, draw: random.Random) -> bytes:
    """A file of JSON; one that is sealed is sealed again."""
    value = json.loads(data)
    if isinstance(value, dict) and "checksum" in value and draw.random() < 0.9:
        rest = other_json({key: one for key, one in value.items() if key != "checksum"}, draw)
        return dumped({"checksum": _sealed(rest), **rest} if isinstance(rest, dict) else rest)
    return dumped(other_json(value, draw))


def _sealed(rest: dict[str, Any]) -> str:
    """The checksum of a stage's result, as far as that can still be computed."""
    kept = {"value": rest.get("value"), "made_with": rest.get("made_with", {}), "files": rest.get("files", {})}
    try:
        return _checksum(kept["value"] if set(rest) == {"value"} else kept)
    except (ValueError, TypeError):
        return "00000000"


def of_lines(data: bytes, draw: random.Random) -> bytes:
    """A log of JSON lines; sealed ones are sealed again."""
    lines = data.splitlines()
    if not lines:
        return b"{}\n"
    number = draw.randrange(len(lines))
    record = json.loads(lines[number])
    sealed = record.pop("checksum", None) is not None
    record = other_json(record, draw)
    if sealed and isinstance(record, dict):
        try:
            record["checksum"] = _checksum(record)
        except ValueError:
            record["checksum"] = "00000000"
    lines[number] = dumped(record)
    return b"\n".join(lines) + b"\n"


def of_safetensors(data: bytes, draw: random.Random) -> bytes:
    """Its header with other values, the text in its metadata read as JSON; a checkpoint's checksum made anew."""
    size = int.from_bytes(data[:8], "little")
    body = data[8 + size :]
    header = json.loads(data[8 : 8 + size])
    checked = zlib.crc32(data[:-4]).to_bytes(4, "little") == data[-4:]
    texts = header.get("__metadata__", {})
    if texts and draw.random() < 0.7:
        name = draw.choice(sorted(texts))
        try:
            texts[name] = dumped(other_json(json.loads(texts[name]), draw)).decode()
        except ValueError:
            texts[name] = "other"
    else:
        header = other_json(header, draw)
    text = dumped(header)
    text += b" " * (-len(text) % 8)
    found = len(text).to_bytes(8, "little") + text + body
    return found[:-4] + zlib.crc32(found[:-4]).to_bytes(4, "little") if checked else found


def dumped(value: Any) -> bytes:
    """As JSON, whatever is in it."""
    return json.dumps(value, ensure_ascii=draw_ascii(value)).encode(errors="surrogatepass")


def draw_ascii(value: Any) -> bool:
    """Half a surrogate pair can only be written as an escape."""
    return "\\ud800" in json.dumps(value)


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    ".json": of_json,
    ".jsonl": of_lines,
    ".safetensors": of_safetensors,
}


def mutated(name: str, data: bytes, draw: random.Random) -> bytes:
    """The content of the file ``name`` made bad, half of the time in a way that only its kind allows."""
    suffix = "." + name.rpartition(".")[2]
    if suffix in KINDS and draw.random() < 0.7:
        with suppress(ValueError):  # of what a kill tore
            return KINDS[suffix](data, draw)
    return other_bytes(data, draw)
