"""Work for the executor tests; worker processes import it by name. Every call leaves a line in ``payload["calls"]``."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from archwright.errors import InputError

if TYPE_CHECKING:  # they import torch, and most tests of workers need none
    from archwright.runs.files import Json
    from archwright.runs.stop import Stop


def _note(payload: Json) -> int:
    """Record the call; returns how many there were of this item, this one included."""
    path = Path(payload["calls"])
    with path.open("a") as file:
        file.write(f"{payload['n']}\n")
    return path.read_text().split().count(str(payload["n"]))


def square(payload: Json, stop: Stop) -> Json:
    _note(payload)
    return {"square": payload["n"] ** 2, "matrix": noise(payload["n"])}


def noise(seed: int) -> list[float]:
    import torch

    x = torch.randn(40, 40, generator=torch.Generator().manual_seed(seed))
    return [float(value) for value in (x @ x @ x).sum(0)[:4]]


def die_once(payload: Json, stop: Stop) -> Json:
    if _note(payload) == 1 and payload["n"] == 2:
        os._exit(9)
    return payload["n"]


def die_always(payload: Json, stop: Stop) -> Json:
    _note(payload)
    if payload["n"] == 2:
        time.sleep(0.3)  # the others of its batch finish first
        os._exit(9)
    return payload["n"]


def refuse(payload: Json, stop: Stop) -> Json:
    raise InputError("an even number", str(payload["n"]), "Add one.")


def slow(payload: Json, stop: Stop) -> Json:
    _note(payload)
    time.sleep(60 if payload["n"] else 0)
    return payload["n"]


def say_pid(payload: Json, stop: Stop) -> Json:
    """The process that did it."""
    return os.getpid()


class Strange(Exception):  # noqa: N818 - a name is enough
    """Does not survive pickling: its constructor wants more than the text."""

    def __init__(self, text: str, more: int) -> None:
        super().__init__(text)


def fail(payload: Json, stop: Stop) -> Json:
    """Raises what the payload names; other items answer."""
    if payload["raise"] == "ValueError":
        raise ValueError("three is no number")
    if payload["raise"] == "Strange":
        raise Strange("it is strange", 1)
    if payload["raise"] == "lambda":
        return lambda: None
    return payload["raise"]
