"""The torch building blocks of cell spaces: each operation is one description, read in three ways.

An :class:`Operation` lists its layers. ``build`` makes the stand-alone module, ``cost`` counts parameters and
multiply-accumulates without making anything, and the cell supernet stacks the same layers of several edges into one.
Convolutions have no bias; padding is such that stride 1 keeps the image size and stride 2 halves it (rounded up).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Cost:
    """What a network or a part of it costs: trainable parameters, and multiply-accumulates for one image."""

    params: int = 0
    macs: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.params + other.params, self.macs + other.macs)

    def __mul__(self, times: int) -> Cost:
        return Cost(self.params * times, self.macs * times)


class Geometry(NamedTuple):
    """How a convolution moves over the image."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


@dataclass(frozen=True)
class Convolution:
    """A convolution layer of an operation; ``strided`` layers take the operation's stride in the axes named."""

    kernel: tuple[int, int]
    depthwise: bool = False
    dilation: int = 1
    strided: Literal["both", "rows", "columns", "no"] = "both"

    def geometry(self, stride: int) -> Geometry:
        """Strides, paddings and dilations where the operation's stride is ``stride``."""
        rows = stride if self.strided in ("both", "rows") else 1
        columns = stride if self.strided in ("both", "columns") else 1
        padding = (self.dilation * (self.kernel[0] - 1) // 2, self.dilation * (self.kernel[1] - 1) // 2)
        return Geometry((rows, columns), padding, (self.dilation, self.dilation))


Layer = Literal["relu", "norm"] | Convolution


@dataclass(frozen=True)
class Operation:
    """One candidate operation of a cell.

    Attributes:
        name: as in the architecture strings of the papers.
        kind: ``layers`` has parameters and is described by ``layers``; ``average`` and ``maximum`` pool 3x3;
            ``skip`` passes its input on (halving the image by two offset 1x1 convolutions where the stride is 2);
            ``none`` is zero.
        layers: in order, for ``kind == "layers"``. The first convolution changes the channel number if asked to.
    """

    name: str
    kind: Literal["none", "skip", "average", "maximum", "layers"]
    layers: tuple[Layer, ...] = ()

    def build(self, channels: int, out_channels: int, stride: int, affine: bool, pool_norm: bool = False) -> nn.Module:
        """The stand-alone module, (B, channels, H, W) to (B, out_channels, ceil(H/stride), ceil(W/stride)).

        Args:
            channels: of the input.
            out_channels: of the output; pooling, ``none`` and ``skip`` of stride 1 keep ``channels``.
            stride: 1 or 2.
            affine: whether batch norms have trainable parameters.
            pool_norm: whether a batch norm follows pooling; it has no trainable parameters.
        """
        if self.kind == "none":
            return Zero(stride)
        if self.kind == "skip":
            return nn.Identity() if stride == 1 else FactorizedReduce(channels, out_channels, affine)
        if self.kind in ("average", "maximum"):
            pool = make_pool(self.kind, stride)
            return nn.Sequential(pool, nn.BatchNorm2d(channels, affine=False)) if pool_norm else pool
        modules: list[nn.Module] = []
        for layer in self.layers:
            if layer == "relu":
                modules.append(nn.ReLU())
            elif layer == "norm":
                modules.append(nn.BatchNorm2d(out_channels, affine=affine))
            else:
                assert isinstance(layer, Convolution)
                groups = channels if layer.depthwise else 1
                width = channels if layer.depthwise else out_channels
                geometry = layer.geometry(stride)
                modules.append(nn.Conv2d(channels, width, layer.kernel, *geometry, groups=groups, bias=False))
                channels = width
        return nn.Sequential(*modules)

    def cost(self, channels: int, out_channels: int, size: int, stride: int, affine: bool = True) -> Cost:
        """Parameters and multiply-accumulates for one image; pooling counts nothing.

        Args:
            channels: of the input.
            out_channels: of the output.
            size: height and width of the input, in pixels.
            stride: 1 or 2.
            affine: whether batch norms have trainable parameters.
        """
        small = ceil(size / stride)
        if self.kind == "skip" and stride == 2:
            half = channels * out_channels
            return Cost(half + 2 * out_channels * affine, half * small * small)
        if self.kind != "layers":
            return Cost()
        params, macs, rows, columns = 0, 0, size, size
        for layer in self.layers:
            if layer == "norm":
                params += 2 * out_channels * affine
            elif isinstance(layer, Convolution):
                width = channels if layer.depthwise else out_channels
                step = layer.geometry(stride).stride
                rows, columns = ceil(rows / step[0]), ceil(columns / step[1])
                weights = layer.kernel[0] * layer.kernel[1] * width * (1 if layer.depthwise else channels)
                params, macs, channels = params + weights, macs + weights * rows * columns, width
        return Cost(params, macs)


def _separable(kernel: int) -> tuple[Layer, ...]:
    first: tuple[Layer, ...] = ("relu", Convolution((kernel, kernel), True), Convolution((1, 1), strided="no"), "norm")
    second: tuple[Layer, ...] = (
        "relu",
        Convolution((kernel, kernel), True, strided="no"),
        Convolution((1, 1), strided="no"),
        "norm",
    )
    return first + second


def _dilated(kernel: int) -> tuple[Layer, ...]:
    return ("relu", Convolution((kernel, kernel), True, dilation=2), Convolution((1, 1), strided="no"), "norm")


OPERATIONS: Mapping[str, Operation] = {
    operation.name: operation
    for operation in (
        Operation("none", "none"),
        Operation("skip_connect", "skip"),
        Operation("avg_pool_3x3", "average"),
        Operation("max_pool_3x3", "maximum"),
        Operation("nor_conv_1x1", "layers", ("relu", Convolution((1, 1)), "norm")),
        Operation("nor_conv_3x3", "layers", ("relu", Convolution((3, 3)), "norm")),
        Operation("sep_conv_3x3", "layers", _separable(3)),
        Operation("sep_conv_5x5", "layers", _separable(5)),
        Operation("sep_conv_7x7", "layers", _separable(7)),
        Operation("dil_conv_3x3", "layers", _dilated(3)),
        Operation("dil_conv_5x5", "layers", _dilated(5)),
        Operation(
            "conv_7x1_1x7",
            "layers",
            ("relu", Convolution((1, 7), strided="columns"), Convolution((7, 1), strided="rows"), "norm"),
        ),
    )
}
RELU_CONV_1X1 = OPERATIONS["nor_conv_1x1"]
RELU_CONV_3X3 = OPERATIONS["nor_conv_3x3"]


class Zero(nn.Module):
    """The operation that passes nothing on."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Zeros of the output's shape, (B, C, ceil(H/stride), ceil(W/stride))."""
        return torch.zeros_like(x[:, :, :: self.stride, :: self.stride])


class FactorizedReduce(nn.Module):
    """Halve the image without losing a pixel: two 1x1 convolutions of stride 2, the second offset by one pixel."""

    def __init__(self, channels: int, out_channels: int, affine: bool) -> None:
        super().__init__()
        if out_channels % 2:
            raise ValueError(f"an even number of output channels is needed to halve an image, got {out_channels}")
        self.first = nn.Conv2d(channels, out_channels // 2, 1, stride=2, bias=False)
        self.second = nn.Conv2d(channels, out_channels // 2, 1, stride=2, bias=False)
        self.norm = nn.BatchNorm2d(out_channels, affine=affine)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, out_channels, ceil(H/2), ceil(W/2))."""
        x = F.relu(x)
        offset = F.pad(x[:, :, 1:, 1:], (0, x.shape[3] % 2, 0, x.shape[2] % 2))
        normed: Tensor = self.norm(torch.cat([self.first(x), self.second(offset)], dim=1))
        return normed


class DropPath(nn.Module):
    """Drop whole examples' paths in training with probability ``p`` (set during training by the loop)."""

    p: float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Zero x (B, ...) per example with probability p and rescale the rest; the identity in evaluation."""
        if not self.training or self.p == 0.0:
            return x
        keep = torch.empty(x.shape[0], 1, 1, 1, device=x.device, dtype=x.dtype).bernoulli_(1 - self.p)
        return x * keep / (1 - self.p)


def make_pool(kind: str, stride: int) -> nn.Module:
    """3x3 pooling, ``kind`` ``average`` or ``maximum``, of ``stride`` 1 or 2; padding never counts."""
    if kind == "average":
        return nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
    return nn.MaxPool2d(3, stride, padding=1)


def norm_params(channels: int, affine: bool = True) -> Cost:
    """Cost of one batch norm of ``channels``: two parameters each where it is ``affine``, and no multiplications."""
    return Cost(2 * channels * affine, 0)
