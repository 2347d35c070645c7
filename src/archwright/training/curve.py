"""The learning curve of a training whose steps are counted: mean metrics of every twentieth of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite

import torch
from torch import Tensor

from archwright.device import widest_float
from archwright.training.loop import Position, Step

PARTS = 20
"""Points of a curve."""

OnPart = Callable[[float, dict[str, float]], None]
"""Called with the percent of a training that are done, and the mean metrics of its steps since the call before."""


@dataclass
class Recorded:
    """A step that tells how the training goes. What is told is no part of its state: a resumed one begins a new mean.

    Args:
        step: that is called.
        on_part: is told, :data:`PARTS` times in a training.
    """

    step: Step
    on_part: OnPart
    _sums: dict[str, Tensor] = field(default_factory=dict)
    _steps: int = 0
    _last: int = -1

    def __call__(self, position: Position) -> Mapping[str, float | Tensor]:
        """One step, and a point of the curve where it is time."""
        metrics = self.step(position)
        for name, value in metrics.items():
            told = torch.as_tensor(value).detach()
            seen = told.to(widest_float(told.device))
            self._sums[name] = self._sums[name] + seen if name in self._sums else seen
        self._steps += 1
        total = position.epochs * position.steps_per_epoch
        part = PARTS * (position.index + 1) // total
        if self._last < 0:
            self._last = PARTS * position.index // total
        if part > self._last:
            sums = {name: float(value) for name, value in self._sums.items()}
            means = {name: value / self._steps for name, value in sums.items() if isfinite(value)}
            self._sums, self._steps, self._last = {}, 0, part
            self.on_part(100 * (position.index + 1) / total, means)
        return metrics
