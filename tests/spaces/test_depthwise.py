"""The depth-wise convolution on tiny images equals the plain one, gradients included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from archwright.spaces.depthwise import depthwise_convolution


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
def test_equals_plain_convolution(size: int, kernel: int, stride: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 8, size, size, dtype=torch.double, requires_grad=True)
    weight = torch.randn(8, 1, kernel, kernel, dtype=torch.double, requires_grad=True)
    ours = depthwise_convolution(x, weight, stride)
    plain = F.conv2d(x, weight, None, stride, kernel // 2, groups=8)
    torch.testing.assert_close(ours, plain)
    probe = torch.randn_like(plain)
    for got, expected in zip(
        torch.autograd.grad(ours, (x, weight), probe), torch.autograd.grad(plain, (x, weight), probe), strict=True
    ):
        torch.testing.assert_close(got, expected)
