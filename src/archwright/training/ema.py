"""An exponential moving average of a network's weights, often better than the last weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Ema:
    """average <- d average + (1 - d) weights, with d = min(decay, (1 + n) / (10 + n)) at the n-th update.

    The smaller d of the first updates lets a short training forget its random start. Batch-norm statistics are averaged
    like weights; integer buffers are copied.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.average = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Take in the weights of ``network``."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        averaged: list[tuple[Tensor, Tensor]] = []
        for name, tensor in network.state_dict().items():
            if tensor.is_floating_point():
                averaged.append((self.average[name], tensor))
            else:
                self.average[name].copy_(tensor)
        if averaged:
            averages, weights = zip(*averaged, strict=True)
            torch._foreach_lerp_(averages, weights, 1 - decay)  # a few launches instead of one a tensor

    def copy_to(self, network: nn.Module) -> None:
        """Put the average into ``network``."""
        network.load_state_dict(self.average)

    def state_dict(self) -> dict[str, Any]:
        """The average and the number of updates."""
        return {"average": self.average, "updates": self.updates}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state_dict`; values are copied, so that layout and device stay."""
        self.updates = state["updates"]
        for name, tensor in state["average"].items():
            self.average[name].copy_(tensor)
