"""Random weights for scoring: the scale of a normal distribution from the shape of a weight."""

from __future__ import annotations

import math
import warnings
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from archwright.errors import InputError

Initialisation = Literal["lecun", "xavier", "he"]

NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)
"""Layers whose scales become 1 and shifts 0."""
_AS_THEY_ARE = (nn.Embedding, nn.EmbeddingBag, nn.PReLU)
"""Layers with a ``weight`` that multiplies no activations."""
_PROJECTIONS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


def weight_scale(shape: tuple[int, ...], initialisation: Initialisation) -> float:
    """Standard deviation of a weight: the root of LeCun 1/fan_in, Xavier 2/(fan_in + fan_out) or He 2/fan_in.

    Args:
        shape: (C', C, *kernel).
        initialisation: lecun, xavier or he.
    """
    window = math.prod(shape[2:])
    fan_in, fan_out = shape[1] * window, shape[0] * window
    variances = {"lecun": 1 / fan_in, "xavier": 2 / (fan_in + fan_out), "he": 2 / fan_in}
    if initialisation not in variances:
        raise InputError(f"an initialisation ({', '.join(get_args(Initialisation))})", repr(initialisation))
    return math.sqrt(variances[initialisation])


@torch.no_grad()
def initialise(model: nn.Module, generator: torch.Generator, initialisation: Initialisation = "lecun") -> None:
    """Draw the weights of all layers anew; biases become 0, the scales of normalisation layers 1.

    Frozen parameters, embeddings and parameters that belong to no layer stay as they are.

    Args:
        model: changed in place.
        generator: of the draws.
        initialisation: lecun, xavier or he.
    """
    for module in model.modules():
        if isinstance(module, NORMS):
            _fill(getattr(module, "weight", None), 1.0)
            _fill(getattr(module, "bias", None), 0.0)
        elif not isinstance(module, _AS_THEY_ARE):
            for name in _weight_names(module):
                _draw(module, name, generator, initialisation)
            for name in [own for own in module._parameters if own.startswith("bias") or own == "in_proj_bias"]:
                _fill(module._parameters[name], 0.0)


def _weight_names(module: nn.Module) -> list[str]:
    """``weight`` of any layer (a supernet's stacked ones too), projections of attention, matrices of recurrence."""
    names = ["weight", *_PROJECTIONS]
    names += [name for name in module._parameters if isinstance(module, nn.RNNBase) and name.startswith("weight_")]
    return [name for name in names if isinstance(getattr(module, name, None), Tensor)]


def _draw(module: nn.Module, name: str, generator: torch.Generator, initialisation: Initialisation) -> None:
    weight: Tensor = getattr(module, name)
    if weight.ndim < 2:
        _fill(weight, 1.0)
        return
    shape = tuple(weight.shape)
    if isinstance(module, nn.modules.conv._ConvTransposeNd):  # (C, C'/groups, *kernel)
        shape = (shape[1] * module.groups, shape[0] // module.groups, *shape[2:])
    elif name == "in_proj_weight":  # three weights in one
        shape = (shape[0] // 3, shape[1])
    drawn = torch.randn(weight.shape, generator=generator) * weight_scale(shape, initialisation)
    if not parametrize.is_parametrized(module, name):
        if weight.requires_grad:
            weight.copy_(drawn)
        return
    try:
        setattr(module, name, drawn.to(weight))
    except (NotImplementedError, RuntimeError) as error:
        warnings.warn(f"a parametrised {name} keeps its values: {error}", stacklevel=3)


def _fill(parameter: Tensor | None, value: float) -> None:
    if isinstance(parameter, nn.Parameter) and parameter.requires_grad:
        parameter.fill_(value)
