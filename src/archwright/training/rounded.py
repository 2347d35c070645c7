"""Training with the rounding of int8 in it, so that a network learns to be right in spite of it.

Weights of convolutions and linear layers are rounded to some steps a side for each output channel, and what these
layers are given to 255 steps between bounds that are fixed. Gradients pass as if nothing was rounded (straight
through), but for values outside the bounds, which have none. A norm behind a layer scales its output channels, so that
rounding its weights before or after the two are joined is the same. The weights that are trained stay in float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

LAYERS = (nn.Conv2d, nn.Linear)
INPUT_STEPS = 255
AT_ONCE = 32
"""Images that are looked at together."""

Bounds = Mapping[str, tuple[float, float]]
"""The least and the greatest value that each layer is given, by its name."""


class Rounded(nn.Module):
    """Weights (out, ...) as int8 has them, with ``steps`` values on each side of zero."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, weight: Tensor) -> Tensor:
        """Each output channel in parts of its largest value."""
        step = weight.detach().abs().flatten(1).amax(1).clamp(min=1e-12) / self.steps
        step = step.view(-1, *[1] * (weight.ndim - 1))
        return weight + ((weight / step).round() * step - weight).detach()


def rounded_inputs(x: Tensor, low: float, high: float) -> Tensor:
    """``x`` in 255 steps between two bounds, of which zero is one.

    Args:
        x: of any shape.
        low: the least value; what is below becomes it.
        high: the greatest value.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    step = max(high - low, 1e-12) / INPUT_STEPS
    zero = round(-low / step)
    inside = x.clamp(-zero * step, (INPUT_STEPS - zero) * step)
    return inside + ((inside / step).round() * step - inside).detach()


@torch.no_grad()
def input_bounds(network: nn.Module, images: Tensor) -> Bounds:
    """What the layers of a network are given when it sees some images.

    Args:
        network: in evaluation mode afterwards.
        images: (n, C, H, W), as it is shown them.
    """
    found: dict[str, tuple[float, float]] = {}

    def look(name: str, x: Tensor) -> None:
        low, high = found.get(name, (0.0, 0.0))
        found[name] = min(low, float(x.min())), max(high, float(x.max()))

    hooks = [
        layer.register_forward_pre_hook(lambda _, given, name=name: look(name, given[0]))
        for name, layer in network.named_modules()
        if isinstance(layer, LAYERS)
    ]
    try:
        for start in range(0, len(images), AT_ONCE):
            network.eval()(images[start : start + AT_ONCE])
    finally:
        for hook in hooks:
            hook.remove()
    return found


@contextmanager
def rounding(network: nn.Module, bounds: Bounds, weight_steps: int) -> Iterator[None]:
    """Every layer of ``network`` rounds within the block, and is as before after it, with the weights it then has.

    Args:
        network: changed in place for the time.
        bounds: of the inputs of its layers, from :func:`input_bounds`.
        weight_steps: of weights, on each side of zero.
    """
    layers = {name: layer for name, layer in network.named_modules() if name in bounds}
    hooks = []
    for name, layer in layers.items():
        parametrize.register_parametrization(layer, "weight", Rounded(weight_steps))
        low, high = bounds[name]
        hooks.append(
            layer.register_forward_pre_hook(
                lambda _, given, low=low, high=high: (rounded_inputs(given[0], low, high), *given[1:])
            )
        )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in layers.values():
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
