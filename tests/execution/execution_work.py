"""Work for the executor tests; worker processes import it by name. Every call leaves a line in ``payload["calls"]``."""

from __future__ import annotations

import os
import time
from pathlib import Path

from archwright.errors import InputError
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


def say_pid_and_sleep(payload: Json, stop: Stop) -> Json:
    """Leaves a file named by the worker's process and stays."""
    (Path(payload["folder"]) / f"{os.getpid()}.pid").touch()
    time.sleep(600)
    return None
