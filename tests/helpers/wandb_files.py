"""What an offline run of Weights & Biases keeps, read by its published form: blocks of records, as LevelDB's logs."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEAD = 32768, 7
"""Bytes of a block, and of the head of a record (checksum, length, kind); the file has a head of seven bytes, too."""
WHOLE, FIRST, LAST = 1, 2, 4


def records(path: Path) -> Iterator[bytes]:
    """The content of each record."""
    content, place, parts = path.read_bytes(), HEAD, b""
    while place + HEAD <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEAD:  # the end of a block that no head fits into
            place += left
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + HEAD])
        if kind == 0:
            return
        data = content[place + HEAD : place + HEAD + length]
        place += HEAD + length
        parts = data if kind in (WHOLE, FIRST) else parts + data
        if kind in (WHOLE, LAST):
            yield parts


def history(path: Path) -> list[dict[str, Any]]:
    """Every row that was logged."""
    from wandb.proto.wandb_internal_pb2 import Record

    found = []
    for content in records(path):
        record = Record()
        record.ParseFromString(content)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            found.append({one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items})
    return found
