"""The torch modules of the mbconv space and their costs by formula. Convolutions have no bias."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

import torch
from torch import Tensor, nn

from archwright.spaces.base import Network
from archwright.spaces.depthwise import DepthwiseConv2d
from archwright.spaces.mbconv_scale import ActivationName, MbConvScale, SqueezeOf
from archwright.spaces.operations import Cost, norm_params
from archwright.spaces.staged_scale import round_to_eight

ACTIVATIONS: Mapping[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "relu6": nn.ReLU6,
    "swish": nn.SiLU,
    "hard_swish": nn.Hardswish,
}


@dataclass(frozen=True)
class BlockGeometry:
    """Everything that decides what a block computes and costs; equal geometries are equal blocks.

    ``size`` is the height and width of its input. ``residual`` says whether the input is added to the output: so it is
    in all blocks of a stage but the first, whatever its widths happen to be.
    """

    in_channels: int
    channels: int
    expansion: int
    kernel: int
    squeeze_excite: bool
    stride: int
    size: int
    activation: ActivationName
    residual: bool
    squeeze_of: SqueezeOf = "expanded"

    def __str__(self) -> str:
        word = f"ir_k{self.kernel}_s{self.stride}_e{self.expansion}_i{self.in_channels}_c{self.channels}"
        could_add = self.stride == 1 and self.in_channels == self.channels
        return f"{word}{f'_se{self.squeezed}' * self.squeeze_excite}_{self.activation}_{self.size}px" + "_noskip" * (
            could_add and not self.residual
        )

    @property
    def inner(self) -> int:
        """Channels between the two 1x1 convolutions."""
        return self.expansion * self.in_channels

    @property
    def squeezed(self) -> int:
        """Width of squeeze-excite: a quarter of the channels it is ``squeeze_of``; of the expanded ones in eights."""
        return round_to_eight(self.inner / 4) if self.squeeze_of == "expanded" else max(8, self.in_channels // 4)

    @property
    def out_size(self) -> int:
        """Height and width of the output."""
        return ceil(self.size / self.stride)

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates of one image."""
        inner, before, after = self.inner, self.size**2, self.out_size**2
        expand, depthwise, project = self.in_channels * inner, self.kernel**2 * inner, inner * self.channels
        total = Cost(expand + depthwise + project, expand * before + (depthwise + project) * after)
        total += norm_params(inner) * 2 + norm_params(self.channels)
        if self.squeeze_excite:
            weights = 2 * inner * self.squeezed
            total += Cost(weights + inner + self.squeezed, weights)
        return total

    def activation_elements(self) -> int:
        """Numbers in the block's intermediate and output tensors for one image: what training keeps of it."""
        return self.inner * (self.size**2 + self.out_size**2) + self.channels * self.out_size**2

    def build(self) -> InvertedResidual:
        """A freshly initialised block."""
        return InvertedResidual(self)


class SqueezeExcite(nn.Module):
    """Scale every channel by a gate computed from all channels' means."""

    def __init__(self, channels: int, squeezed: int, activation: ActivationName) -> None:
        super().__init__()
        self.reduce = nn.Linear(channels, squeezed)
        self.activation = ACTIVATIONS[activation]()
        self.expand = nn.Linear(squeezed, channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same shape."""
        gate = torch.sigmoid(self.expand(self.activation(self.reduce(x.mean(dim=(2, 3))))))
        return x * gate[:, :, None, None]


class InvertedResidual(nn.Module):
    """1x1 expansion, depth-wise convolution, squeeze-excite, 1x1 projection; batch norm after each convolution."""

    def __init__(self, geometry: BlockGeometry) -> None:
        super().__init__()
        inner, kernel, activation = geometry.inner, geometry.kernel, ACTIVATIONS[geometry.activation]
        self.expand = nn.Conv2d(geometry.in_channels, inner, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(inner)
        self.expand_activation = activation()
        self.depthwise = DepthwiseConv2d(inner, kernel, geometry.stride)
        self.depthwise_norm = nn.BatchNorm2d(inner)
        self.depthwise_activation = activation()
        self.gate = (
            SqueezeExcite(inner, geometry.squeezed, geometry.activation) if geometry.squeeze_excite else nn.Identity()
        )
        self.project = nn.Conv2d(inner, geometry.channels, 1, bias=False)
        self.project_norm = nn.BatchNorm2d(geometry.channels)
        self.residual = geometry.residual

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, size, size) to (B, channels, out_size, out_size)."""
        inner = self.expand_activation(self.expand_norm(self.expand(x)))
        inner = self.depthwise_activation(self.depthwise_norm(self.depthwise(inner)))
        out: Tensor = self.project_norm(self.project(self.gate(inner)))
        return out + x if self.residual else out


class NetworkEnd(nn.Sequential):
    """1x1 convolutions, average pooling and the classifier: (B, channels, H, W) to logits (B, classes)."""

    def __init__(self, scale: MbConvScale, channels: int) -> None:
        activation = ACTIVATIONS[scale.activations[-1]]
        layers: list[nn.Module] = []
        for before, width in pairwise((channels, *scale.unpooled_channels)):
            layers += [nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width), activation()]
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        if scale.pooled_last:
            layers += [nn.Linear(scale.last_channels[-2], scale.last_channels[-1]), activation()]
        super().__init__(*layers, nn.Linear(scale.last_channels[-1], scale.classes))


def make_start(scale: MbConvScale) -> nn.Sequential:
    """Stem (3x3 convolution) and the fixed block without expansion: images to (B, first_channels, H', W')."""
    stem, first = scale.stem_channels, scale.first_channels
    activation = ACTIVATIONS[scale.activations[0]]
    return nn.Sequential(
        *(nn.Conv2d(scale.image_channels, stem, 3, scale.stem_stride, 1, bias=False), nn.BatchNorm2d(stem)),
        activation(),
        *(DepthwiseConv2d(stem, 3), nn.BatchNorm2d(stem), activation()),
        *(nn.Conv2d(stem, first, 1, bias=False), nn.BatchNorm2d(first)),
    )


@dataclass(frozen=True)
class StartGeometry:
    """The stem and the fixed block of a scale, as a part of a network."""

    scale: MbConvScale

    def __str__(self) -> str:
        scale = self.scale
        channels = f"i{scale.image_channels}_c{scale.stem_channels}_c{scale.first_channels}"
        return f"start_s{scale.stem_stride}_{channels}_{scale.activations[0]}_{scale.image_size}px"

    @property
    def in_channels(self) -> int:
        """Channels of the images."""
        return self.scale.image_channels

    @property
    def size(self) -> int:
        """Height and width of the images."""
        return self.scale.image_size

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates of one image."""
        stem, first = self.scale.stem_channels, self.scale.first_channels
        weights = 9 * self.in_channels * stem + 9 * stem + stem * first
        return Cost(weights, weights * self.scale.stem_size**2) + norm_params(stem) * 2 + norm_params(first)

    def activation_elements(self) -> int:
        """The images and what the three convolutions make of them."""
        stem = (2 * self.scale.stem_channels + self.scale.first_channels) * self.scale.stem_size**2
        return self.in_channels * self.size**2 + stem

    def build(self) -> nn.Module:
        """A freshly initialised start."""
        return make_start(self.scale)


@dataclass(frozen=True)
class EndGeometry:
    """The last layers of a scale after ``size`` x ``size`` maps of ``in_channels``, as a part of a network."""

    scale: MbConvScale
    in_channels: int
    size: int

    def __str__(self) -> str:
        widths = "_c".join(map(str, (*self.scale.last_channels, self.scale.classes)))
        pooled = "_pooled" * self.scale.pooled_last
        return f"end_i{self.in_channels}_c{widths}_{self.scale.activations[-1]}_{self.size}px{pooled}"

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates of one image."""
        last = self.scale.last_channels
        total = Cost((last[-1] + 1) * self.scale.classes, last[-1] * self.scale.classes)
        if self.scale.pooled_last:
            total += Cost((last[-2] + 1) * last[-1], last[-2] * last[-1])
        for before, width in pairwise((self.in_channels, *self.scale.unpooled_channels)):
            total += Cost(before * width, before * width * self.size**2) + norm_params(width)
        return total

    def activation_elements(self) -> int:
        """Outputs of the convolutions, the pooling and the classifier."""
        before = self.scale.unpooled_channels
        pooled = self.scale.last_channels[-1] * self.scale.pooled_last
        return sum(before) * self.size**2 + before[-1] + pooled + self.scale.classes

    def build(self) -> nn.Module:
        """Freshly initialised last layers."""
        return NetworkEnd(self.scale, self.in_channels)


def set_norm_eps(module: nn.Module, eps: float) -> None:
    """Let all batch norms in ``module`` add ``eps`` to their variances."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.eps = eps


class MbConvNetwork(Network):
    """The fixed start of a scale, blocks of any geometry, and the end that fits the last of them."""

    def __init__(self, scale: MbConvScale, geometries: Iterable[BlockGeometry]) -> None:
        super().__init__()
        geometries = list(geometries)
        self.start = make_start(scale)
        self.blocks = nn.Sequential(*(InvertedResidual(geometry) for geometry in geometries))
        self.end = NetworkEnd(scale, geometries[-1].channels)
        set_norm_eps(self, scale.norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        logits: Tensor = self.end(self.blocks(self.start(x)))
        return logits
