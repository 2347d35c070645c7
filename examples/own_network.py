"""A small residual network with choices in it, which every method searches as it is.

    archwright search binas --space model:examples/own_network.py:Net --data digits --latency-ms 0.3
    archwright search rarts --space model:examples/own_network.py:Net --data digits

The first option of everything is the network as one would write it by hand: ``Net(10)(x)`` works without any search.
``Mobile`` (inverted residuals) and ``Transformer`` (patches, attention) show the same with other modules.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

import archwright as aw


def conv(width: int, kernel: int) -> nn.Module:
    """Convolution, norm, ReLU."""
    return nn.Sequential(nn.Conv2d(width, width, kernel, 1, kernel // 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())


def separable(width: int, kernel: int) -> nn.Module:
    """A convolution of each channel alone, then one of all channels."""
    return nn.Sequential(
        nn.Conv2d(width, width, kernel, 1, kernel // 2, groups=width, bias=False),
        nn.Conv2d(width, width, 1, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
    )


class Residual(nn.Module):
    """x + body(x), whose body is chosen."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = aw.nn.Choice({"conv3": conv(width, 3), "conv5": conv(width, 5), "sep3": separable(width, 3)})

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to the same shape."""
        return x + self.body(x)


class Net(nn.Module):
    """One to three residual blocks, perhaps one convolution more, and a choice of what the classifier sees."""

    def __init__(self, classes: int, image_channels: int = 3, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(image_channels, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()
        )
        self.stage = aw.nn.Depth([Residual(channels) for _ in range(3)], least=1)
        self.extra = aw.nn.Optional(conv(channels, 3))
        self.pick = aw.nn.Inputs(["after", "before"])
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        x = self.stage(self.stem(x))
        return self.head(self.pick([self.extra(x), x]).mean((2, 3)))


# --- a MobileNet-like network -----------------------------------------------------------------------------------------


def inverted(width: int, expansion: int, kernel: int) -> nn.Module:
    """Widen, a convolution of each channel alone, narrow."""
    inner = width * expansion
    return nn.Sequential(
        nn.Conv2d(width, inner, 1, bias=False),
        nn.BatchNorm2d(inner),
        nn.ReLU6(inplace=True),
        nn.Conv2d(inner, inner, kernel, 1, kernel // 2, groups=inner, bias=False),
        nn.BatchNorm2d(inner),
        nn.ReLU6(inplace=True),
        nn.Conv2d(inner, width, 1, bias=False),
        nn.BatchNorm2d(width),
    )


class InvertedResidual(nn.Module):
    """x + an inverted bottleneck of chosen expansion and kernel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        kinds = {f"e{expansion}k{kernel}": (expansion, kernel) for expansion in (2, 4) for kernel in (3, 5)}
        self.body = aw.nn.Choice({name: inverted(width, *kind) for name, kind in kinds.items()})

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to the same shape."""
        return x + self.body(x)


class Mobile(nn.Module):
    """Two stages of inverted residuals; between them a fixed convolution halves the image."""

    def __init__(self, classes: int, image_channels: int = 3, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(image_channels, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU6()
        )
        self.first = aw.nn.Depth([InvertedResidual(channels) for _ in range(2)], least=0)
        self.down = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * channels), nn.ReLU6()
        )
        self.second = aw.nn.Depth([InvertedResidual(2 * channels) for _ in range(3)], least=1)
        self.head = nn.Linear(2 * channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        return self.head(self.second(self.down(self.first(self.stem(x)))).mean((2, 3)))


# --- a transformer ----------------------------------------------------------------------------------------------------


class Attention(nn.Module):
    """Attention of every patch to every other one."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.norm, self.attend = nn.LayerNorm(width), nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Patches (B, N, C) to the same shape."""
        normed = self.norm(x)
        return x + self.attend(normed, normed, normed, need_weights=False)[0]


class Mlp(nn.Module):
    """Two linear layers."""

    def __init__(self, width: int, expansion: int) -> None:
        super().__init__()
        layers = nn.Linear(width, width * expansion), nn.GELU(), nn.Linear(width * expansion, width), nn.Dropout(0.1)
        self.layers = nn.Sequential(nn.LayerNorm(width), *layers)

    def forward(self, x: Tensor) -> Tensor:
        """Patches (B, N, C) to the same shape."""
        return x + self.layers(x)


class Transformer(nn.Module):
    """Patches through one to three pairs: attention, an MLP or nothing, then a small or a large MLP."""

    def __init__(self, classes: int, image_size: int = 32, image_channels: int = 3, channels: int = 32) -> None:
        super().__init__()
        patch = max(1, image_size // 4)
        self.patches = nn.Conv2d(image_channels, channels, patch, patch)
        self.place = nn.Parameter(torch.zeros(1, (image_size // patch) ** 2, channels))
        self.blocks = aw.nn.Depth([self.pair(channels) for _ in range(3)], least=1)
        self.head = nn.Linear(channels, classes)

    @staticmethod
    def pair(channels: int) -> nn.Module:
        """What follows each other in a block."""
        mix = aw.nn.Choice({"attention": Attention(channels), "mlp": Mlp(channels, 2), "skip": nn.Identity()})
        think = aw.nn.Choice({"small": Mlp(channels, 2), "large": Mlp(channels, 4)})
        return nn.Sequential(OrderedDict(mix=mix, think=think))

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        x = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.head(self.blocks(x).mean(1))
