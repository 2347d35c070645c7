"""A small network with its batch, and the count of hooks that were left on it."""

from __future__ import annotations

import torch
from torch import nn


def small_network(batch_norm: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    norm = (lambda c: nn.BatchNorm2d(c)) if batch_norm else (lambda c: nn.Identity())
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2, padding=1), norm(4), nn.ReLU(inplace=True),
        nn.Conv2d(4, 6, 3, padding=2, dilation=2, groups=2, bias=False), norm(6), nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5),
    )  # fmt: skip


def small_batch(m: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(m, 3, 8, 8, generator=generator), torch.randint(5, (m,), generator=generator)


def hook_count(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules())
