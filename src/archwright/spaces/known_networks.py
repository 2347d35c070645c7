"""Networks that people thin: ResNet-20 and -56, the pre-activation ResNet-164, MobileNetV2 and VGG-16 with batch norm.

Written for small images first: MobileNetV2 keeps its published strides from 96 px on, and VGG-16 pools while there is
something to pool. ``channels`` is the width of the first layer; the others follow in the published proportions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.spaces.base import Network, Scale

LARGE_IMAGES = 96
"""Image size from which MobileNetV2 has its published strides; smaller images are shrunk by 8 in all."""


def _conv(ins: int, outs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(ins, outs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)


def _pointwise(ins: int, outs: int, stride: int) -> nn.Sequential:
    """A 1x1 convolution of every ``stride``-th pixel, which a strided one is.

    Strided 1x1 convolutions with a few inputs, channels last, crash in the CPU kernels of torch 2.13.
    """
    skip = [nn.AvgPool2d(1, stride)] if stride != 1 else []
    return nn.Sequential(*skip, _conv(ins, outs, 1))


def _initialise(network: nn.Module) -> None:
    """He's normal initialisation of convolutions, by their fan-out."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(ins, outs, 3, stride), nn.BatchNorm2d(outs)
        self.conv2, self.norm2 = _conv(outs, outs, 3), nn.BatchNorm2d(outs)
        same = ins == outs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_pointwise(ins, outs, stride), nn.BatchNorm2d(outs))

    def forward(self, x: Tensor) -> Tensor:
        """(B, ins, H, W) to (B, outs, H/stride, W/stride)."""
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(inner)) + self.shortcut(x))


class PreActivationBottleneck(nn.Module):
    """1x1, 3x3, 1x1, each after batch norm and ReLU; the first block of a stage projects the activated input."""

    expansion = 4

    def __init__(self, ins: int, width: int, stride: int) -> None:
        super().__init__()
        outs = self.expansion * width
        self.norm1, self.conv1 = nn.BatchNorm2d(ins), _conv(ins, width, 1)
        self.norm2, self.conv2 = nn.BatchNorm2d(width), _conv(width, width, 3, stride)
        self.norm3, self.conv3 = nn.BatchNorm2d(width), _conv(width, outs, 1)
        self.shortcut = _pointwise(ins, outs, stride) if ins != outs or stride != 1 else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, ins, H, W) to (B, 4 width, H/stride, W/stride)."""
        activated = F.relu(self.norm1(x))
        inner: Tensor = self.conv2(F.relu(self.norm2(self.conv1(activated))))
        inner = self.conv3(F.relu(self.norm3(inner)))
        shortcut: Tensor = x if self.shortcut is None else self.shortcut(activated)
        return inner + shortcut


class ResNet(Network):
    """He's networks for small images: three stages of ``blocks`` blocks with 1, 2 and 4 times ``scale.channels``."""

    def __init__(self, scale: Scale, blocks: int, pre_activation: bool) -> None:
        super().__init__()
        kind = PreActivationBottleneck if pre_activation else BasicBlock
        expansion = PreActivationBottleneck.expansion if pre_activation else 1
        ins = scale.channels
        self.stem = _conv(scale.image_channels, ins, 3)
        self.stem_norm = nn.Identity() if pre_activation else nn.BatchNorm2d(ins)
        layers: list[nn.Module] = []
        for stage in range(3):
            width = scale.channels * 2**stage
            for block in range(blocks):
                layers.append(kind(ins, width, 2 if stage and not block else 1))
                ins = expansion * width
        self.blocks = nn.Sequential(*layers)
        self.last_norm = nn.BatchNorm2d(ins) if pre_activation else nn.Identity()
        self.classifier = nn.Linear(ins, scale.classes)
        self.pre_activation = pre_activation
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        x = self.stem_norm(self.stem(x))
        x = self.blocks(x if self.pre_activation else F.relu(x))
        x = F.relu(self.last_norm(x)) if self.pre_activation else x
        logits: Tensor = self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return logits


def _by_eight(channels: float) -> int:
    """The nearest multiple of eight that is no tenth smaller, as published."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


class InvertedResidual(nn.Module):
    """Expand by 1x1, filter by a depth-wise 3x3, project by 1x1; summed with the input where the shapes agree."""

    def __init__(self, ins: int, outs: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = expand * ins
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [_conv(ins, hidden, 1), nn.BatchNorm2d(hidden), nn.ReLU6()]
        layers += [_conv(hidden, hidden, 3, stride, groups=hidden), nn.BatchNorm2d(hidden), nn.ReLU6()]
        layers += [_conv(hidden, outs, 1), nn.BatchNorm2d(outs)]
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and ins == outs

    def forward(self, x: Tensor) -> Tensor:
        """(B, ins, H, W) to (B, outs, H/stride, W/stride)."""
        inner: Tensor = self.layers(x)
        return x + inner if self.residual else inner


class MobileNetV2(Network):
    """Sandler's network; its width multiplier is ``scale.channels / 32``."""

    stages = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    """Expansion, channels, blocks and stride of each."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        width, large = scale.channels / 32, scale.image_size >= LARGE_IMAGES
        ins, last = _by_eight(32 * width), _by_eight(1280 * max(1.0, width))
        stem = _conv(scale.image_channels, ins, 3, 2 if large else 1)
        layers: list[nn.Module] = [stem, nn.BatchNorm2d(ins), nn.ReLU6()]
        for number, (expand, channels, blocks, stride) in enumerate(self.stages):
            outs = _by_eight(channels * width)
            for block in range(blocks):
                first = 1 if number == 1 and not large else stride
                layers.append(InvertedResidual(ins, outs, 1 if block else first, expand))
                ins = outs
        layers += [_conv(ins, last, 1), nn.BatchNorm2d(last), nn.ReLU6()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(last, scale.classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        logits: Tensor = self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return logits


class Vgg16(Network):
    """VGG-16 with batch norm and one linear layer, as it is used on small images."""

    stages = ((1, 2), (2, 2), (4, 3), (8, 3), (8, 3))
    """Channels in units of the first layer's, and convolutions, of each; a max-pool after each."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        ins, size, layers = scale.image_channels, scale.image_size, list[nn.Module]()
        for times, convolutions in self.stages:
            for _ in range(convolutions):
                outs = times * scale.channels
                layers += [nn.Conv2d(ins, outs, 3, padding=1), nn.BatchNorm2d(outs), nn.ReLU()]
                ins = outs
            if size > 1:
                layers.append(nn.MaxPool2d(2))
                size //= 2
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(ins, scale.classes)
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        logits: Tensor = self.classifier(F.adaptive_avg_pool2d(self.features(x), 1).flatten(1))
        return logits


@dataclass(frozen=True)
class KnownNetwork:
    """How to build a network, the width of its published first layer, and the least image size."""

    build: Callable[[Scale], Network]
    channels: int
    least_pixels: int


NETWORKS = {
    "resnet20": KnownNetwork(lambda scale: ResNet(scale, 3, pre_activation=False), 16, 4),
    "resnet56": KnownNetwork(lambda scale: ResNet(scale, 9, pre_activation=False), 16, 4),
    "resnet164": KnownNetwork(lambda scale: ResNet(scale, 18, pre_activation=True), 16, 4),
    "mobilenetv2": KnownNetwork(MobileNetV2, 32, 8),
    "vgg16": KnownNetwork(Vgg16, 64, 4),
}
"""By the name that ``--network`` takes."""


def build_known(name: str, scale: Scale) -> Network:
    """The network ``name`` at ``scale``, freshly initialised and on the CPU, whatever torch's default device is."""
    with torch.device("cpu"):
        return NETWORKS[name].build(scale)
