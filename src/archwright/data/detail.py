"""How large images must be to show what they show: photographs are often saved larger than what is in them."""

from __future__ import annotations

import numpy as np
import torch.nn.functional as F

from archwright.data.image_data import ImageData

SIZES = (32, 48, 64)
"""Sizes that are tried; images that are no larger than the first stay as they are."""
LOST = 0.01
"""Share of the variance of the pixels that may be lost."""
LOOKED_AT = 64
"""Images that are looked at."""


def lost_detail(data: ImageData, size: int) -> float:
    """Share of the variance of the pixels that is lost when images are made ``size`` px and enlarged again.

    Args:
        data: some of whose training images are looked at.
        size: pixels a side.
    """
    chosen = np.unique(np.linspace(0, len(data.train) - 1, LOOKED_AT).astype(np.int64))
    x = data.normalise(data.train.pixels(chosen))
    small = F.interpolate(x, (size, size), mode="bicubic", antialias=True)
    back = F.interpolate(small, x.shape[-2:], mode="bicubic")
    return float((x - back).square().mean() / x.var())


def sufficient_size(data: ImageData) -> int:
    """The smallest size that loses next to nothing, at most 64 px: small images train in a fraction of the time."""
    for size in SIZES:
        if size >= data.image_size or lost_detail(data, size) <= LOST:
            return min(size, data.image_size)
    return min(SIZES[-1], data.image_size)
