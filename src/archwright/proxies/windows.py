"""Depthwise convolutions and pools over lanes (L, C, H, W, B), one tap of the window at a time.

A tap is one place of a k x k window: a slice of the input that is multiplied by one weight a channel and added to a
slice of the output. With the batch innermost the slices are long contiguous runs, nothing is padded or copied, and
taps that fall outside a small map altogether cost nothing. Gradients are written out by hand; those of several
cotangents of one forward pass have an axis T in front. Windows have an odd size and "same" padding.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from archwright.proxies.lanes import Pair, box_sum, inverse_counts


class Tap(NamedTuple):
    """Place in the window, and the pixels of the output and of the input that it joins, as indices from the left."""

    row: int
    column: int
    out: tuple[slice, slice, slice]
    into: tuple[slice, slice, slice]


def out_size(size: Pair, stride: Pair) -> Pair:
    """Height and width behind a window with "same" padding, from ``size`` before it and its ``stride``."""
    return -(-size[0] // stride[0]), -(-size[1] // stride[1])


@cache
def taps(size: Pair, kernel: Pair, stride: Pair = (1, 1), dilation: int = 1) -> tuple[Tap, ...]:
    """The taps of a window that slides over a map, row by row, without those that reach no pixel.

    Args:
        size: height and width of the map.
        kernel: height and width of the window.
        stride: down and across.
        dilation: distance of neighbouring taps.
    """
    rows, columns = (_reach(size[axis], kernel[axis], stride[axis], dilation) for axis in (0, 1))
    batch = slice(None)
    return tuple(
        Tap(i, j, (row_out, column_out, batch), (row_into, column_into, batch))
        for (i, row_out, row_into), (j, column_out, column_into) in product(rows, columns)
    )


def _reach(size: int, kernel: int, stride: int, dilation: int) -> list[tuple[int, slice, slice]]:
    """Along one axis: tap, outputs it serves, inputs it sees; output o sees input o * stride + offset."""
    found = []
    for tap in range(kernel):
        offset = (tap - kernel // 2) * dilation
        first = max(0, -(offset // stride))
        last = min(-(-size // stride) - 1, (size - 1 - offset) // stride)
        if first <= last:
            start = first * stride + offset
            found.append((tap, slice(first, last + 1), slice(start, last * stride + offset + 1, stride)))
    return found


def depthwise(x: Tensor, weight: Tensor, stride: Pair = (1, 1), dilation: int = 1) -> Tensor:
    """Every channel with its own window: (L, C, H, W, B) -> (L, C, H', W', B).

    Args:
        x: (L, C, H, W, B).
        weight: (L, C, 1, k, k).
        stride: down and across.
        dilation: distance of neighbouring taps.
    """
    size = (x.shape[2], x.shape[3])
    out = x.new_zeros(*x.shape[:2], *out_size(size, stride), x.shape[4])
    for tap in taps(size, _kernel(weight), stride, dilation):
        out[..., *tap.out].addcmul_(x[..., *tap.into], _at(weight, tap))
    return out


def depthwise_input_gradient(
    gradients: Tensor, weight: Tensor, size: Pair, stride: Pair = (1, 1), dilation: int = 1
) -> Tensor:
    """Adjoint of `depthwise` in its input: (T, L, C, H, W, B).

    Args:
        gradients: of the output, (T, L, C, H', W', B).
        weight: (L, C, 1, k, k).
        size: H and W of the input.
        stride: down and across.
        dilation: distance of neighbouring taps.
    """
    out = gradients.new_zeros(*gradients.shape[:3], *size, gradients.shape[5])
    for tap in taps(size, _kernel(weight), stride, dilation):
        out[..., *tap.into].addcmul_(gradients[..., *tap.out], _at(weight, tap))
    return out


def depthwise_weight_gradients(
    gradients: Tensor, x: Tensor, kernel: Pair, stride: Pair = (1, 1), dilation: int = 1
) -> Tensor:
    """Adjoint of `depthwise` in its weight, example by example: (T, L, C, k, k, B).

    Args:
        gradients: of the output, (T, L, C, H', W', B).
        x: the input, (L, C, H, W, B).
        kernel: height and width of the window.
        stride: down and across.
        dilation: distance of neighbouring taps.
    """
    found = gradients.new_zeros(*gradients.shape[:3], *kernel, gradients.shape[5])
    for tap in taps((x.shape[2], x.shape[3]), kernel, stride, dilation):
        found[..., tap.row, tap.column, :] = (gradients[..., *tap.out] * x[..., *tap.into]).sum((3, 4))
    return found


def maximum(x: Tensor, stride: int = 1) -> tuple[Tensor, Tensor]:
    """Greatest of 3x3 pixels and the number of the tap it came from, the first one where several are equal.

    Args:
        x: (L, C, H, W, B).
        stride: down and across alike.
    """
    size, step = (x.shape[2], x.shape[3]), (stride, stride)
    best = x.new_full((*x.shape[:2], *out_size(size, step), x.shape[4]), -torch.inf)
    source = torch.zeros_like(best, dtype=torch.uint8)
    for number, tap in enumerate(taps(size, (3, 3), step)):
        seen, before = x[..., *tap.into], best[..., *tap.out]
        better = seen > before
        best[..., *tap.out] = torch.where(better, seen, before)
        source[..., *tap.out].masked_fill_(better, number)
    return best, source


def maximum_gradient(gradients: Tensor, source: Tensor, size: Pair, stride: int = 1) -> Tensor:
    """Adjoint of `maximum`: (T, L, C, H, W, B).

    Args:
        gradients: of the output, (T, L, C, H', W', B).
        source: the second answer of `maximum`.
        size: H and W of the input.
        stride: down and across alike.
    """
    out = gradients.new_zeros(*gradients.shape[:3], *size, gradients.shape[5])
    for number, tap in enumerate(taps(size, (3, 3), (stride, stride))):
        out[..., *tap.into] += gradients[..., *tap.out] * (source[..., *tap.out] == number)
    return out


def average(x: Tensor, stride: int = 1) -> Tensor:
    """Mean of the real pixels among 3x3: (L, C, H, W, B) -> (L, C, H', W', B).

    Args:
        x: (L, C, H, W, B).
        stride: down and across alike.
    """
    return (box_sum(x) * inverse_counts(x))[..., ::stride, ::stride, :]


def average_gradient(gradients: Tensor, size: Pair, stride: int = 1) -> Tensor:
    """Adjoint of `average`: (T, L, C, H, W, B).

    Args:
        gradients: of the output, (T, L, C, H', W', B).
        size: H and W of the input.
        stride: down and across alike.
    """
    spread = gradients.new_zeros(*gradients.shape[:3], *size, gradients.shape[5])
    spread[..., ::stride, ::stride, :] = gradients
    return box_sum(spread * inverse_counts(spread))


def _kernel(weight: Tensor) -> Pair:
    return weight.shape[-2], weight.shape[-1]


def _at(weight: Tensor, tap: Tap) -> Tensor:
    """One tap's weights (L, C, 1, 1, 1)."""
    return weight[:, :, 0, tap.row, tap.column, None, None, None]
