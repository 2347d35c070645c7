"""How long the layers of a network take with fewer channels, measured one by one on a device.

Time against channels is a staircase: processors work on eight or sixteen channels at once, and a width between two
steps is as slow as the next step, or slower. :func:`step_of` finds the steps; :func:`time_layers` times every layer on
a grid of widths that lie on them. What a whole thinned network takes is then the sum over its layers, fitted to the
whole and the thinnest network, which are timed as they are (:class:`NetworkTimes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

import numpy as np
import torch
from torch import Tensor, nn

from archwright.costs.measure import Stopwatch, Timing
from archwright.runs.values import StageResult

STEPS = (1, 2, 4, 8, 16)
"""Widths of a step that are looked for."""
PROBED = 64
"""Channels of the layer on which steps are looked for, at most twice as many."""
PROBED_PIXELS = 14
"""A side of what it sees, at least."""
WORTH = 0.4
"""Part of the saving in proportion to its channels that going down a step must bring."""
MOSTLY = 0.7
"""Share of the steps down that must bring it."""
GRID = 4
"""Widths of each side of a layer that are timed."""
REPEATS, ROUNDS = 20, 2
"""Calls behind one time, and rounds of them, of which the quickest counts: other work on the machine only adds time."""

Widths = Mapping[str, tuple[int, int]]
"""Inputs and outputs of every layer, by its name."""


@dataclass(frozen=True)
class LayerKind:
    """What the time of a layer depends on beside its channels.

    Attributes:
        inputs: channels, of the whole network; ``outputs`` alike.
        kernel: pixels of it, down and across; empty for a linear layer. ``stride``, ``padding``, ``dilation`` alike.
        groups: of a convolution.
        bias: whether it has one.
        rows: of what it sees, ``columns`` alike; of a linear layer its tokens and 1.
    """

    inputs: int
    outputs: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    bias: bool
    rows: int
    columns: int

    @property
    def depthwise(self) -> bool:
        """Whether every channel is filtered alone."""
        return self.groups == self.outputs > 1

    def module(self, inputs: int, outputs: int) -> tuple[nn.Module, tuple[int, int, int]]:
        """Such a layer with so many channels, and the shape of what it sees.

        Args:
            inputs: channels.
            outputs: channels; a depth-wise layer has as many as inputs.
        """
        if not self.kernel:
            return nn.Linear(inputs, outputs, self.bias), (1, self.rows, inputs)
        groups = outputs if self.depthwise else self.groups
        ins = outputs if self.depthwise else max(groups, inputs - inputs % groups)
        outs = max(groups, outputs - outputs % groups)
        conv = nn.Conv2d(
            ins,
            outs,
            self.kernel,  # type: ignore[arg-type]
            self.stride,  # type: ignore[arg-type]
            self.padding,  # type: ignore[arg-type]
            self.dilation,  # type: ignore[arg-type]
            groups,
            self.bias,
        )
        return conv, (ins, self.rows, self.columns)


def layer_kinds(network: nn.Module, example: Tensor) -> dict[str, LayerKind]:
    """Every convolution and linear layer that ``network`` calls on ``example`` (1, C, H, W), by name."""
    found: dict[str, LayerKind] = {}
    names = {module: name for name, module in network.named_modules()}

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen = inputs[0]
        if isinstance(module, nn.Linear):
            rows = seen.numel() // module.in_features
            nothing: tuple[int, ...] = ()
            kind = LayerKind(
                module.in_features, module.out_features, nothing, nothing, nothing, nothing, 1,
                module.bias is not None, rows, 1,
            )  # fmt: skip
        else:
            assert isinstance(module, nn.Conv2d)
            kind = LayerKind(
                module.in_channels, module.out_channels, module.kernel_size, module.stride, module.padding,
                module.dilation, module.groups, module.bias is not None, *map(int, seen.shape[-2:]),
            )  # fmt: skip
        found[names[module]] = kind

    layers = [module for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_pre_hook(note) for layer in layers]
    try:
        with torch.no_grad():
            network.eval()(example)
    finally:
        for hook in hooks:
            hook.remove()
    return found


class LayerTimes(StageResult):
    """Milliseconds of one kind of layer on a grid of widths.

    Attributes:
        inputs: widths, rising; of a depth-wise layer one, which does not count.
        outputs: widths, rising.
        ms: (inputs, outputs).
    """

    inputs: list[int]
    outputs: list[int]
    ms: list[list[float]]

    def at(self, inputs: int, outputs: int) -> float:
        """Between the timed widths by straight lines.

        Args:
            inputs: channels.
            outputs: channels.
        """
        rows = [float(np.interp(outputs, self.outputs, row)) for row in self.ms]
        return float(np.interp(inputs, self.inputs, rows))


class NetworkTimes(StageResult):
    """What thinned networks take on one device.

    Attributes:
        step: channels of a step of the staircase.
        tables: times of the kinds of layers that there are.
        layers: which of them each layer is, by name.
        offset_ms: of the straight line from the sum over layers to what whole networks take; ``slope`` alike.
    """

    step: int
    tables: list[LayerTimes]
    layers: dict[str, int]
    offset_ms: float = 0.0
    slope: float = 1.0

    def layers_ms(self, widths: Widths) -> float:
        """The sum over all layers with these widths."""
        return sum(self.tables[number].at(*widths[name]) for name, number in self.layers.items())

    def latency_ms(self, widths: Widths) -> float:
        """What a network with these widths is predicted to take."""
        return self.offset_ms + self.slope * self.layers_ms(widths)

    def fitted(self, whole: tuple[Widths, float], thinnest: tuple[Widths, float]) -> NetworkTimes:
        """The same, with the line through the two networks that were timed as they are.

        Args:
            whole: widths and milliseconds of the network with all its channels.
            thinnest: of the one with the fewest.
        """
        (most, most_ms), (least, least_ms) = ((self.layers_ms(one), ms) for one, ms in (whole, thinnest))
        if most <= least or most_ms <= least_ms:  # nothing to learn: a network too small to tell, or a busy machine
            return self.model_copy(update={"offset_ms": 0.0, "slope": most_ms / max(most, 1e-9)})
        slope = (most_ms - least_ms) / (most - least)
        return self.model_copy(update={"offset_ms": most_ms - slope * most, "slope": slope})


def grid_of(least: int, most: int, step: int) -> list[int]:
    """A few widths from ``least`` to ``most``, both among them, the others on the steps.

    Args:
        least: the fewest channels.
        most: the most.
        step: channels of a step.
    """
    spread = np.linspace(least, most, GRID)[1:-1]
    between = {min(most, max(least, ceil(one / step) * step)) for one in spread}
    return sorted({least, most} | between)


def time_layers(
    kinds: Mapping[str, LayerKind], least: Widths, step: int, timing: Timing, advance: Callable[[], None]
) -> NetworkTimes:
    """Every kind of layer on a grid of widths; layers of one kind and range are timed once.

    Args:
        kinds: of the layers, by name.
        least: fewest inputs and outputs of each.
        step: channels of a step.
        timing: how a layer is measured.
        advance: called after each kind.
    """
    numbers: dict[tuple[LayerKind, tuple[int, int]], int] = {}
    layers = {name: numbers.setdefault((kind, least[name]), len(numbers)) for name, kind in kinds.items()}
    tables = []
    for kind, (fewest_in, fewest_out) in numbers:
        outputs = grid_of(fewest_out, kind.outputs, step)
        inputs = [kind.inputs] if kind.depthwise else grid_of(fewest_in, kind.inputs, step)
        ms = [[quickest_ms(kind, ins, outs, timing) for outs in outputs] for ins in inputs]
        tables.append(LayerTimes(inputs=inputs, outputs=outputs, ms=ms))
        advance()
    return NetworkTimes(step=step, tables=tables, layers=layers)


def quickest_ms(kind: LayerKind, inputs: int, outputs: int, timing: Timing) -> float:
    """Milliseconds of one layer: the least median of a few rounds.

    Args:
        kind: of the layer.
        inputs: channels.
        outputs: channels.
        timing: how it is measured.
    """
    module, shape = kind.module(inputs, outputs)
    watch = Stopwatch(module.eval(), shape, replace(timing, warm_up=3))
    return min(float(np.median(watch.times_ms(REPEATS))) for _ in range(ROUNDS))


def step_of(kinds: Mapping[str, LayerKind], timing: Timing) -> int:
    """Channels of a step of the staircase: the least number whose every step down saves time.

    The layer that costs most is timed with all numbers of outputs over two of the widest steps.

    Args:
        kinds: of the layers of a network, by name.
        timing: how a layer is measured.
    """
    mixing = [one for one in kinds.values() if not one.depthwise and one.groups == 1]
    if not mixing:
        return 1
    heavy = max(mixing, key=lambda one: one.inputs * one.outputs * one.rows * one.columns * int(np.prod(one.kernel)))
    if heavy.kernel:  # on a few pixels only the call would be timed
        heavy = replace(heavy, rows=max(PROBED_PIXELS, heavy.rows), columns=max(PROBED_PIXELS, heavy.columns))
    inputs = min(2 * PROBED, max(PROBED, heavy.inputs - heavy.inputs % STEPS[-1]))
    times = {n: quickest_ms(heavy, inputs, n, timing) for n in range(PROBED - 2 * STEPS[-1], PROBED + 1)}
    return step_from(times)


def step_from(times: Mapping[int, float]) -> int:
    """The step of a staircase.

    Args:
        times: milliseconds by channels, of all numbers of channels in some range.
    """
    for step in STEPS:
        on = [n for n in sorted(times) if n % step == 0]
        worth = [times[fewer] <= times[more] * (1 - WORTH * (more - fewer) / more) for fewer, more in pairwise(on)]
        if worth and np.mean(worth) >= MOSTLY:
            return step
    return STEPS[-2]
