"""Learning rates as pure functions of the position, so that a resumed training needs no scheduler state."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeAlias

from archwright.training.loop import Position

Schedule: TypeAlias = Callable[[Position], float]
ScheduleName: TypeAlias = Literal["cosine", "constant", "linear"]


def make_schedule(kind: ScheduleName, lr: float, lr_min: float = 0.0, warmup_epochs: float = 0.0) -> Schedule:
    """The learning rate at each step: a linear climb over ``warmup_epochs``, then from ``lr`` down to ``lr_min``.

    With p in [0, 1] the part of the steps after the climb that is done:
    cosine  lr_min + (lr - lr_min) (1 + cos(pi p)) / 2;  linear  lr + (lr_min - lr) p;  constant  lr.
    It changes with every step, not with every epoch.

    Args:
        kind: cosine, linear or constant.
        lr: the highest rate.
        lr_min: the rate at the end.
        warmup_epochs: epochs of the climb, also parts of one.
    """

    def rate(position: Position) -> float:
        climb = warmup_epochs * position.steps_per_epoch
        if position.index + 1 < climb:
            return lr * (position.index + 1) / climb
        if kind == "constant":
            return lr
        steps = position.epochs * position.steps_per_epoch
        p = max(0.0, (position.index - climb) / (steps - climb))
        left = (1 + math.cos(math.pi * p)) / 2 if kind == "cosine" else 1 - p
        return lr_min + (lr - lr_min) * left

    return rate
