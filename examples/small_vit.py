"""A small vision transformer: a network of one's own for ``archwright score --network examples.small_vit:build``.

``build`` is called with what the data decide (`classes`, `image_size`, `image_channels`) and returns the module.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class SmallVit(nn.Module):
    """Patches to tokens, a class token, encoder layers, a linear classifier."""

    def __init__(self, classes: int, image_size: int, image_channels: int, width: int, depth: int, heads: int) -> None:
        super().__init__()
        patch = max(1, image_size // 4)
        self.patches = nn.Conv2d(image_channels, width, patch, stride=patch)
        tokens = (image_size // patch) ** 2
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, tokens + 1, width))
        self.layers = nn.Sequential(
            *[
                nn.TransformerEncoderLayer(
                    width, heads, 2 * width, dropout=0.1, activation="gelu", batch_first=True, norm_first=True
                )
                for _ in range(depth)
            ]
        )
        self.norm = nn.LayerNorm(width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (m, C, H, W) to logits (m, classes)."""
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.first.expand(x.shape[0], -1, -1), tokens], 1) + self.positions
        return self.classifier(self.norm(self.layers(tokens))[:, 0])


def build(classes: int, image_size: int, image_channels: int) -> nn.Module:
    """Two layers of width 32."""
    return SmallVit(classes, image_size, image_channels, width=32, depth=2, heads=4)


def build_deeper(classes: int, image_size: int, image_channels: int) -> nn.Module:
    """Four layers of width 24."""
    return SmallVit(classes, image_size, image_channels, width=24, depth=4, heads=4)
