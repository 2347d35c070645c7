"""Taps of windows against torch's own convolutions and pools, values and gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from archwright.proxies import windows

SIZES = [(8, 8), (2, 2), (5, 3)]


def images_of(lanes: Tensor) -> Tensor:
    """(L, C, H, W, B) as torch has images: (B, L * C, H, W)."""
    return lanes.flatten(0, 1).permute(3, 0, 1, 2)


def batch(size: tuple[int, int]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, *size, 4, generator=generator, dtype=torch.float64)


def cotangents(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, *like.shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("kernel", "dilation"), [((3, 3), 1), ((5, 5), 1), ((3, 3), 2), ((5, 5), 2), ((1, 7), 1)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 2)])
def test_depthwise(size: tuple[int, int], kernel: tuple[int, int], dilation: int, stride: tuple[int, int]) -> None:
    x = batch(size)
    weight = torch.randn(2, 3, 1, *kernel, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    images, filters = images_of(x).requires_grad_(), weight.flatten(0, 1).requires_grad_()
    padding = (dilation * (kernel[0] // 2), dilation * (kernel[1] // 2))
    plain = F.conv2d(images, filters, None, stride, padding, dilation, groups=6)
    out = windows.depthwise(x, weight, stride, dilation)
    torch.testing.assert_close(images_of(out), plain)
    signals = cotangents(out)
    back = windows.depthwise_input_gradient(signals, weight, size, stride, dilation)
    each = windows.depthwise_weight_gradients(signals, x, kernel, stride, dilation)
    for number, signal in enumerate(signals):
        (dx,) = torch.autograd.grad(plain, images, images_of(signal), retain_graph=True)
        torch.testing.assert_close(images_of(back[number]), dx)
        for example in range(4):
            (dw,) = torch.autograd.grad(plain[example], filters, images_of(signal)[example], retain_graph=True)
            torch.testing.assert_close(each[number, ..., example].flatten(0, 1), dw[:, 0])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("ties", [False, True])
def test_maximum(size: tuple[int, int], stride: int, ties: bool) -> None:
    x = batch(size).round() if ties else batch(size)  # of equal pixels torch takes the first, and so must the gradient
    images = images_of(x).requires_grad_()
    plain = F.max_pool2d(images, 3, stride, 1)
    out, source = windows.maximum(x, stride)
    assert torch.equal(images_of(out), plain)
    signals = cotangents(out)
    back = windows.maximum_gradient(signals, source, size, stride)
    for number, signal in enumerate(signals):
        (dx,) = torch.autograd.grad(plain, images, images_of(signal), retain_graph=True)
        torch.testing.assert_close(images_of(back[number]), dx)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stride", [1, 2])
def test_average(size: tuple[int, int], stride: int) -> None:
    x = batch(size)
    images = images_of(x).requires_grad_()
    plain = F.avg_pool2d(images, 3, stride, 1, count_include_pad=False)
    out = windows.average(x, stride)
    torch.testing.assert_close(images_of(out), plain)
    signals = cotangents(out)
    back = windows.average_gradient(signals, size, stride)
    for number, signal in enumerate(signals):
        (dx,) = torch.autograd.grad(plain, images, images_of(signal), retain_graph=True)
        torch.testing.assert_close(images_of(back[number]), dx)


def test_taps_that_reach_nothing_are_left_out() -> None:
    assert len(windows.taps((8, 8), (5, 5))) == 25
    assert len(windows.taps((2, 2), (5, 5), dilation=2)) == 1
