"""Means of a step's metrics over one epoch, gathered on the device so that a step need not wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from archwright.device import widest_float
from archwright.errors import DivergedError

WATCHED = "loss"
"""The metric that must stay finite."""


class Meter:
    """Sums and counts of named metrics; part of a checkpoint, so that an epoch can be resumed in the middle."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}
        self._first_bad: Tensor | None = None
        """0-d float tensor on the loss's device: index of the first step whose loss was not finite, else infinity."""

    def add(self, index: int, metrics: Mapping[str, float | Tensor]) -> None:
        """Count the ``metrics`` of step ``index``; on the CPU, where looking is free, check the loss at once."""
        for name, value in metrics.items():
            term = torch.as_tensor(value).detach()
            term = term.to(widest_float(term.device))
            self._sums[name] = self._sums[name] + term if name in self._sums else term
            self._counts[name] = self._counts.get(name, 0) + 1
        if WATCHED in metrics:
            self._watch(index, torch.as_tensor(metrics[WATCHED]).detach())

    def _watch(self, index: int, loss: Tensor) -> None:
        infinity = torch.full((), float("inf"), dtype=widest_float(loss.device), device=loss.device)
        bad = torch.where(torch.isfinite(loss), infinity, float(index))
        self._first_bad = bad if self._first_bad is None else torch.minimum(self._first_bad, bad)
        if loss.device.type == "cpu":
            self.check()

    def check(self) -> None:
        """Raise :class:`DivergedError` if a loss was not finite; on an accelerator this waits for it."""
        if self._first_bad is None:
            return
        first = self._first_bad.item()
        if first != float("inf"):
            raise DivergedError(
                f"expected a finite loss, got a non-finite one at step {int(first)} (counted from 0). "
                "The last good checkpoint is kept. Try a lower learning rate, a warm-up or gradient clipping."
            )

    def close(self) -> dict[str, float]:
        """The mean of every metric since the last closing; starts anew."""
        self.check()
        means = {name: float(total) / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state_dict(self) -> dict[str, Any]:
        """Sums and counts so far."""
        return {"sums": dict(self._sums), "counts": dict(self._counts)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the sums of :meth:`state_dict`."""
        self._sums, self._counts = dict(state["sums"]), dict(state["counts"])
