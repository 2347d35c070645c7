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
        weight, bias = (module._parameters.get(name) for name in ("weight", "bias"))
        if weight is not None and weight.ndim >= 2:  # any convolution or linear layer, a supernet's stacked ones too
            scale = weight_scale(tuple(weight.shape), initialisation)
            weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
        elif weight is not None:
            weight.fill_(1)
        if bias is not None:
            bias.zero_()
