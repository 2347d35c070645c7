"""Code of a user's that fails in every way: functions that score, networks, an augmentation."""

from __future__ import annotations

import signal
import sys
import time
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

CALLS: list[Any] = []


def raises(_: Any) -> float:
    raise ValueError("my own mistake\nin two lines")


def leaves(_: Any) -> float:
    sys.exit("I am done")


def recurses(architecture: Any) -> float:
    return recurses(architecture) + 1


def interrupts(_: Any) -> float:
    raise KeyboardInterrupt


def hangs(_: Any) -> float:
    while True:
        with suppress(Exception):  # as careless code does
            time.sleep(60)


def no_number(_: Any) -> str:
    return "high"


def nan(_: Any) -> float:
    return float("nan")


def signals(_: Any) -> float:
    return float(signal.getsignal(signal.SIGALRM) is signal.SIG_DFL)


class Plain(nn.Module):
    """A small network that works."""

    def __init__(self, classes: int = 10, image_channels: int = 1) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(image_channels, 4, 3, padding=1), nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


class Raising(Plain):
    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("a layer")


class Leaving(Plain):
    def forward(self, x: Tensor) -> Tensor:
        sys.exit(3)


class Detached(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


class Tupled(Plain):
    def forward(self, x: Tensor) -> Tensor:
        return (super().forward(x),)  # type: ignore[return-value]


def sound() -> nn.Module:
    return Plain()


def raising() -> nn.Module:
    return Raising()


def leaving() -> nn.Module:
    return Leaving()


def making_raises() -> nn.Module:
    raise RuntimeError("no weights today")


def making_leaves() -> nn.Module:
    sys.exit()


def other_arguments(colour: str) -> nn.Module:
    return Plain()


def wrong_channels() -> nn.Module:
    return Plain(image_channels=7)


def wrong_classes() -> nn.Module:
    return Plain(classes=3)


def double() -> nn.Module:
    return Plain().double()


def half() -> nn.Module:
    return Plain().half()


def complex_weights() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10, dtype=torch.complex64))


def lazy() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))


def meta() -> nn.Module:
    with torch.device("meta"):
        return Plain()


def jit() -> nn.Module:
    return torch.jit.trace(Plain(), torch.zeros(1, 1, 8, 8))  # type: ignore[no-any-return]


def detached() -> nn.Module:
    return Detached()


def tupled() -> nn.Module:
    return Tupled()


def no_module() -> int:
    return 3


def frozen() -> nn.Module:
    return Plain().requires_grad_(False)


def nothing() -> nn.Module:
    return nn.Identity()


NETWORKS = (
    *("raising", "leaving", "making_raises", "making_leaves", "other_arguments", "wrong_channels", "wrong_classes"),
    *("double", "half", "complex_weights", "lazy", "meta", "jit", "detached", "tupled", "no_module", "frozen"),
    "nothing",
)
FUNCTIONS = ("raises", "leaves", "recurses", "no_number", "nan")
