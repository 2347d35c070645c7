"""Random weights for scoring: the scale of a normal distribution from the shape of a weight."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import nn

from archwright.errors import InputError

Initialisation = Literal["lecun", "xavier", "he"]


def weight_scale(shape: tuple[int, ...], initialisation: Initialisation) -> float:
    """Standard deviation for a weight (C', C, *kernel): LeCun 1/fan_in, Xavier 2/(fan_in + fan_out), He 2/fan_in."""
    window = math.prod(shape[2:])
    fan_in, fan_out = shape[1] * window, shape[0] * window
    variances = {"lecun": 1 / fan_in, "xavier": 2 / (fan_in + fan_out), "he": 2 / fan_in}
    if initialisation not in variances:
        raise InputError(f"an initialisation ({', '.join(get_args(Initialisation))})", repr(initialisation))
    return math.sqrt(variances[initialisation])


@torch.no_grad()
def initialise(model: nn.Module, generator: torch.Generator, initialisation: Initialisation = "lecun") -> None:
    """Draw all convolution and linear weights of ``model`` anew; biases become 0, batch-norm scales 1."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            scale = weight_scale(tuple(module.weight.shape), initialisation)
            module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * scale)
            if module.bias is not None:
                module.bias.zero_()
        elif isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d) and module.affine:
            module.weight.fill_(1)
            module.bias.zero_()
