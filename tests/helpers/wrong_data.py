"""Pictures, arrays and texts that are none."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from archwright.spaces.registry import spaces


def png(width: int, height: int) -> bytes:
    """The start of a grey PNG that claims a size, with almost no pixels behind it."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    )


PICTURES: dict[str, bytes] = {
    "no bytes": b"",
    "text": b"a picture",
    "a claim of 30000 x 30000": png(30_000, 30_000),
    "a claim of 2 billion squared": png(2**31 - 1, 2**31 - 1),
    "no pixels": png(0, 0),
    "half a picture": png(400, 400),
    "a JPEG's first bytes": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00",
    "a GIF's first bytes": b"GIF89a\x01\x00",
    "a TIFF with wild offsets": b"II*\x00\xff\xff\xff\x7f" + bytes(64),
}
X = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
Y = np.arange(24) % 2
GOOD: dict[str, np.ndarray[Any, Any]] = {"x_train": X, "y_train": Y, "x_test": X[:6], "y_test": Y[:6]}
OBJECTS = np.array([{"a": 1}], dtype=object)
IMAGES: dict[str, Any] = {
    "missing": None,
    "flat": X.reshape(24, -1),
    "five axes": X[None],
    "two channels": X[..., :2],
    "none": X[:0],
    "no pixels": X[:, :0],
    "signed": X.astype(np.int64),
    "texts": np.array(["a"] * 24),
    "complex": X.astype(complex),
    "not in [0, 1]": X.astype(np.float32),
    "not a number": np.where(X > 9, np.nan, X / 255.0),
    "infinite": np.where(X > 9, np.inf, X / 255.0),
    "below zero": X / 255.0 - 1,
    "objects": OBJECTS,
    "one number": np.float32(0.5),
    "fewer than labels": X[:3],
    "booleans": X > 9,
    "dates": np.zeros((24, 8, 8), dtype="datetime64[s]"),
    "records": np.zeros((24, 8, 8), dtype=[("a", "u1")]),
}
LABELS: dict[str, Any] = {
    "missing": None,
    "floats": Y / 2,
    "texts": np.array(["cat"] * 24),
    "one hot": np.eye(2)[Y],
    "below zero": Y - 1,
    "a huge one": np.where(np.arange(24) == 3, 2**40, Y),
    "with gaps": Y * 7,
    "one class": Y * 0,
    "none": Y[:0],
    "objects": OBJECTS,
    "one number": np.int64(1),
    "unsigned overflow": np.where(np.arange(24) == 3, 2**64 - 1, Y.astype(np.uint64)),
    "booleans": Y > 0,
    "dates": Y.astype("datetime64[s]"),
}
NAMES: dict[str, Any] = {
    "numbers": np.arange(2),
    "too few": np.array(["cat"]),
    "a table": np.array([["cat", "dog"]]),
    "objects": OBJECTS,
    "one text": np.array("cat"),
}


def array_cases() -> Iterator[Any]:
    """Every array of an archive with every kind of wrong content."""
    for keys, kinds in ((("x_train", "x_test"), IMAGES), (("y_train", "y_test"), LABELS), (("class_names",), NAMES)):
        for key in keys:
            for kind, array in kinds.items():
                if key == "y_test" and kind == "one class":
                    continue  # a test part may lack a class
                yield pytest.param(key, array, id=f"{key} {kind}")


TEXTS = ("nonsense", "{}", "[]", "null", "1e999", '"text"', "[" * 100_000, "|~|+", "\x1b[31m", "9" * 5000, '{"a": NaN}')


def architecture_cases() -> Iterator[Any]:
    """Texts that are no architecture of a space: none at all, and every space's own, cut, doubled or of another."""
    rng = np.random.default_rng(0)
    own = {entry.name: str(spaces.get(entry.name).sample(rng)) for entry in spaces}
    for name, text in own.items():
        made = [text[: len(text) // 2], text[1:], text + text, text + "x", text.replace("3", "7777777777777777777")]
        for number, one in enumerate((*TEXTS, *made)):
            if one != text:
                yield pytest.param(name, one, id=f"{name} {number}")
