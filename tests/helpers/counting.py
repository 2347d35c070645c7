"""Costs of a network as it runs, for comparison with what a space counts."""

from __future__ import annotations

import torch
from torch import nn


def counted(network: nn.Module, channels: int, size: int) -> tuple[int, int]:
    """Parameters and multiply-accumulates of a network on the meta device, seen by hooks."""
    macs = 0

    def hook(module: nn.Module, _: object, output: torch.Tensor) -> None:
        nonlocal macs
        if isinstance(module, nn.Conv2d):
            macs += output[0].numel() * module.weight[0].numel()
        elif isinstance(module, nn.Linear):
            macs += module.weight.numel()

    for module in network.modules():
        module.register_forward_hook(hook)
    with torch.no_grad():
        network.eval()(torch.empty(1, channels, size, size, device="meta"))
    return sum(p.numel() for p in network.parameters()), macs
