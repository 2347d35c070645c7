"""The torch modules of the compact space and their costs by formula.

Convolutions have no bias, and every block ends in ReLU. Outputs are thus never negative, and so a block that adds
nothing to its input, or a convolution that copies it, changes nothing: that is how networks can grow.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

import torch.nn.functional as F
from torch import Tensor, nn

from archwright.spaces.base import Network
from archwright.spaces.compact_scale import Configuration
from archwright.spaces.depthwise import DepthwiseConv2d
from archwright.spaces.operations import Cost, norm_params


@dataclass(frozen=True)
class BlockGeometry:
    """Everything that decides what a block computes and costs; equal geometries are equal blocks.

    ``size`` is the height and width of its input. ``first`` says that it is the first of its stage: then nothing is
    added to its output but, in a basic block, a 1x1 convolution of its input. In all others the input is, the plain
    ones aside.
    """

    in_channels: int
    channels: int
    configuration: Configuration
    stride: int
    size: int
    first: bool

    def __str__(self) -> str:
        word = f"{self.configuration}_s{self.stride}_i{self.in_channels}_c{self.channels}"
        return f"{word}{'_first' * (self.first and self.configuration.kind != 'cn')}_{self.size}px"

    @property
    def inner(self) -> int:
        """Channels inside: the expanded ones, or those between a basic block's convolutions."""
        kind, expansion = self.configuration.kind, self.configuration.expansion
        return self.channels if kind in ("cn", "bb") else expansion * self.in_channels

    @property
    def out_size(self) -> int:
        """Height and width of the output."""
        return ceil(self.size / self.stride)

    def _layers(self) -> list[tuple[int, int, int]]:
        """(weights, output channels, output size) of every convolution."""
        inner, area = self.inner, self.configuration.kernel**2
        if self.configuration.kind == "cn":
            return [(area * self.in_channels * self.channels, self.channels, self.out_size)]
        if self.configuration.kind == "bb":
            both = [(area * count * inner, inner, self.out_size) for count in (self.in_channels, inner)]
            return both + [(self.in_channels * self.channels, self.channels, self.out_size)] * self.first
        project = (inner * self.channels, self.channels, self.out_size)
        if self.configuration.kind == "er":
            return [(area * self.in_channels * inner, inner, self.out_size), project]
        return [(self.in_channels * inner, inner, self.size), (area * inner, inner, self.out_size), project]

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates of one image."""
        total = Cost()
        for weights, channels, size in self._layers():
            total += Cost(weights, weights * size**2) + norm_params(channels)
        return total

    def activation_elements(self) -> int:
        """Numbers in the convolutions' outputs for one image: what training keeps of the block."""
        return sum(channels * size**2 for _, channels, size in self._layers())

    def build(self) -> nn.Module:
        """A freshly initialised block."""
        return {"cn": PlainBlock, "bb": BasicBlock, "er": FusedBlock, "ir": InvertedBlock}[self.configuration.kind](
            self
        )


class PlainBlock(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, geometry: BlockGeometry) -> None:
        super().__init__()
        self.conv = _conv(geometry.in_channels, geometry.channels, geometry.configuration.kernel, geometry.stride)
        self.norm = nn.BatchNorm2d(geometry.channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, size, size) to (B, channels, out_size, out_size)."""
        return F.relu(self.norm(self.conv(x)))


class BasicBlock(nn.Module):
    """Two convolutions, batch norm after each, and the input added, by way of a 1x1 convolution in a first block."""

    def __init__(self, geometry: BlockGeometry) -> None:
        super().__init__()
        kernel, channels = geometry.configuration.kernel, geometry.channels
        self.conv1 = _conv(geometry.in_channels, channels, kernel, geometry.stride)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = _conv(channels, channels, kernel)
        self.norm2 = nn.BatchNorm2d(channels)
        self.shortcut = _conv(geometry.in_channels, channels, 1, geometry.stride) if geometry.first else nn.Identity()
        self.shortcut_norm = nn.BatchNorm2d(channels) if geometry.first else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, size, size) to (B, channels, out_size, out_size)."""
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut_norm(self.shortcut(x)))


class FusedBlock(nn.Module):
    """Expanding convolution, 1x1 projection, batch norm after each; the input added unless it is a first block."""

    def __init__(self, geometry: BlockGeometry) -> None:
        super().__init__()
        inner = geometry.inner
        self.expand = _conv(geometry.in_channels, inner, geometry.configuration.kernel, geometry.stride)
        self.expand_norm = nn.BatchNorm2d(inner)
        self.project = _conv(inner, geometry.channels, 1)
        self.project_norm = nn.BatchNorm2d(geometry.channels)
        self.residual = not geometry.first

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, size, size) to (B, channels, out_size, out_size)."""
        out = self.project_norm(self.project(F.relu(self.expand_norm(self.expand(x)))))
        return F.relu(out + x if self.residual else out)


class InvertedBlock(nn.Module):
    """1x1 expansion, depth-wise convolution, 1x1 projection, batch norm after each; input added as in a fused one."""

    def __init__(self, geometry: BlockGeometry) -> None:
        super().__init__()
        inner = geometry.inner
        self.expand = _conv(geometry.in_channels, inner, 1)
        self.expand_norm = nn.BatchNorm2d(inner)
        self.depthwise = DepthwiseConv2d(inner, geometry.configuration.kernel, geometry.stride)
        self.depthwise_norm = nn.BatchNorm2d(inner)
        self.project = _conv(inner, geometry.channels, 1)
        self.project_norm = nn.BatchNorm2d(geometry.channels)
        self.residual = not geometry.first

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, size, size) to (B, channels, out_size, out_size)."""
        inner = F.relu(self.expand_norm(self.expand(x)))
        inner = F.relu(self.depthwise_norm(self.depthwise(inner)))
        out = self.project_norm(self.project(inner))
        return F.relu(out + x if self.residual else out)


def _conv(in_channels: int, channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_channels, channels, kernel, stride, kernel // 2, bias=False)


class MapMean(nn.AdaptiveAvgPool2d):
    """The mean of every map; in training by a window of its size, whose gradient keeps the memory format of the maps.

    The gradient of the adaptive form is laid out anew, which makes a step of a small network a tenth slower and more.
    """

    def __init__(self) -> None:
        super().__init__(1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C, 1, 1)."""
        if not self.training:
            return super().forward(x)
        return F.avg_pool2d(x, (x.shape[-2], x.shape[-1]))


@dataclass(frozen=True)
class EndGeometry:
    """Average pooling and the classifier after ``size`` x ``size`` maps of ``in_channels``, as a part of a network."""

    in_channels: int
    size: int
    classes: int

    def __str__(self) -> str:
        return f"end_i{self.in_channels}_c{self.classes}_{self.size}px"

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates of one image."""
        return Cost((self.in_channels + 1) * self.classes, self.in_channels * self.classes)

    def activation_elements(self) -> int:
        """Outputs of the pooling and the classifier."""
        return self.in_channels + self.classes

    def build(self) -> nn.Sequential:
        """A freshly initialised end."""
        return nn.Sequential(MapMean(), nn.Flatten(), nn.Linear(self.in_channels, self.classes))


class CompactNetwork(Network):
    """Blocks and end; the first block is the stem."""

    def __init__(self, stages: Iterable[Iterable[BlockGeometry]], end: EndGeometry) -> None:
        super().__init__()
        self.stages = nn.ModuleList(nn.Sequential(*(geometry.build() for geometry in stage)) for stage in stages)
        self.end = end.build()

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        for stage in self.stages:
            x = stage(x)
        logits: Tensor = self.end(x)
        return logits
