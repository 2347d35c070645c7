"""A depth-wise convolution that trains fast on tiny images.

The CPU library has no good kernel for the weight gradient where the image is smaller than the kernel: for a 5x5 kernel
on 4x4 images it takes fifty times as long as the forward pass, most of a training step at 8 px. Taps that never meet a
pixel are left out, and what remains is padded to the size of the kernel, which gives the same numbers.
"""

from __future__ import annotations

from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def depthwise_convolution(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Depth-wise convolution with padding k // 2, to (B, C, ceil(H/stride), ceil(W/stride)).

    Args:
        x: images (B, C, H, W).
        weight: (C, 1, k, k), k odd.
        stride: in both directions.
    """
    kernel, channels, (rows, columns) = weight.shape[-1], x.shape[1], x.shape[2:]
    if not torch.is_grad_enabled() or min(rows, columns) >= kernel:
        return F.conv2d(x, weight, None, stride, kernel // 2, groups=channels)
    reach = min(kernel // 2, max(rows, columns) - 1)
    unused = kernel // 2 - reach
    if unused:
        weight = weight[:, :, unused:-unused, unused:-unused]
    size = 2 * reach + 1
    x = F.pad(x, (0, max(0, size - columns), 0, max(0, size - rows)))
    y = F.conv2d(x, weight, None, stride, reach, groups=channels)[:, :, : ceil(rows / stride), : ceil(columns / stride)]
    channels_last = x.is_contiguous(memory_format=torch.channels_last)
    return y.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


class DepthwiseConv2d(nn.Conv2d):
    """``nn.Conv2d`` with one filter a channel, an odd kernel and no bias; see :func:`depthwise_convolution`."""

    def __init__(self, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__(channels, channels, kernel, stride, kernel // 2, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C, ceil(H/stride), ceil(W/stride))."""
        if not self.training:  # an exported network is a plain convolution
            return super().forward(x)
        return depthwise_convolution(x, self.weight, self.stride[0])
