"""Tensor operations on lanes: small networks run side by side, the images of the batch innermost.

A lane is one network's feature map; lanes are stacked as (L, C, H, W, B). With the batch innermost, the patches of a
convolution are copies of long contiguous runs and a convolution is one `bmm` over lanes, which is what makes tens of
four-channel networks cheap. Nothing here knows about architectures or metrics.
"""

from __future__ import annotations

import torch
from torch import Tensor

BATCH_NORM_EPS = 1e-5

Pair = tuple[int, int]
"""Along height and width."""


def patches(x: Tensor, kernel: Pair, stride: Pair = (1, 1)) -> tuple[Tensor, int, int]:
    """im2col with "same" zero padding: (L, C, H, W, B) -> (L, C*k*k, H'*W'*B) and (H', W').

    Args:
        x: (L, C, H, W, B).
        kernel: height and width of the window, odd.
        stride: down and across.
    """
    if kernel == (1, 1):
        x = x[:, :, :: stride[0], :: stride[1]]
        return x.reshape(*x.shape[:2], -1), x.shape[2], x.shape[3]
    lanes, channels, height, width, batch = x.shape
    pad_h, pad_w = kernel[0] // 2, kernel[1] // 2
    padded = x.new_zeros(lanes, channels, height + 2 * pad_h, width + 2 * pad_w, batch)
    padded[:, :, pad_h : pad_h + height, pad_w : pad_w + width] = x
    view = padded.unfold(2, kernel[0], stride[0]).unfold(3, kernel[1], stride[1])  # (L, C, H', W', B, k, k)
    out_height, out_width = view.shape[2], view.shape[3]
    columns = view.permute(0, 1, 5, 6, 2, 3, 4).reshape(lanes, channels * kernel[0] * kernel[1], -1)
    return columns, out_height, out_width


def convolve(x: Tensor, weight: Tensor, stride: Pair = (1, 1)) -> Tensor:
    """Convolution of every lane with its own weight, "same" padding: (L, C', H', W', B).

    Args:
        x: (L, C, H, W, B).
        weight: (L, C', C, k, k).
        stride: down and across.
    """
    columns, height, width = patches(x, (weight.shape[3], weight.shape[4]), stride)
    out = torch.bmm(weight.flatten(2), columns)
    return out.view(x.shape[0], weight.shape[1], height, width, x.shape[-1])


def convolve_input_gradient(gradient: Tensor, weight: Tensor, stride: Pair, height: int, width: int) -> Tensor:
    """Adjoint of `convolve` in its input: (L, C', H', W', B) -> (L, C, H, W, B).

    Args:
        gradient: of the output, (L, C', H', W', B).
        weight: (L, C', C, k, k).
        stride: down and across.
        height: H of the input.
        width: W of the input.
    """
    lanes, _, channels, kernel_h, kernel_w = weight.shape
    batch = gradient.shape[-1]
    if stride == (1, 1):
        return convolve(gradient, weight.flip(3, 4).transpose(1, 2))
    pad_h, pad_w = kernel_h // 2, kernel_w // 2
    columns = torch.bmm(weight.flatten(2).transpose(1, 2), gradient.flatten(2))
    columns = columns.view(lanes, channels, kernel_h, kernel_w, *gradient.shape[2:])
    # The last window may begin where less than a whole stride is left.
    tall, wide = stride[0] * gradient.shape[2] + kernel_h - 1, stride[1] * gradient.shape[3] + kernel_w - 1
    padded = gradient.new_zeros(lanes, channels, tall, wide, batch)
    rows, cols = stride[0] * gradient.shape[2], stride[1] * gradient.shape[3]
    for i in range(kernel_h):
        for j in range(kernel_w):
            padded[:, :, i : i + rows : stride[0], j : j + cols : stride[1]] += columns[:, :, i, j]
    return padded[:, :, pad_h : pad_h + height, pad_w : pad_w + width]


def convolve_weight_gradient(gradient: Tensor, x: Tensor, kernel: Pair, stride: Pair) -> Tensor:
    """Adjoint of `convolve` in its weight, summed over the batch: (L, C', C, k, k).

    Args:
        gradient: of the output, (L, C', H', W', B).
        x: the input, (L, C, H, W, B).
        kernel: height and width of the window.
        stride: down and across.
    """
    columns, _, _ = patches(x, kernel, stride)
    out = torch.bmm(gradient.flatten(2), columns.transpose(1, 2))
    return out.view(x.shape[0], gradient.shape[1], x.shape[1], *kernel)


def convolve_single_gradients(gradients: Tensor, x: Tensor, kernel: Pair, stride: Pair) -> Tensor:
    """Adjoint of `convolve` in its weight where all lanes have one input, example by example: (T, L, C', C, k, k, B).

    One matrix product an image for all lanes.

    Args:
        gradients: T cotangents of the output, (T, L, C', H', W', B).
        x: the input of all lanes, (C, H, W, B).
        kernel: height and width of the window.
        stride: down and across.
    """
    columns, _, _ = patches(x[None], kernel, stride)
    batch = x.shape[-1]
    seen = columns.view(columns.shape[1], -1, batch).permute(2, 1, 0)  # (B, H'*W', C*k*k)
    signal = gradients.flatten(3, 4).flatten(0, 2).permute(2, 0, 1)  # (B, T*L*C', H'*W')
    found = torch.bmm(signal.contiguous(), seen)
    return found.permute(1, 2, 0).view(*gradients.shape[:3], x.shape[0], *kernel, batch)


def normalise(x: Tensor) -> tuple[Tensor, Tensor]:
    """Train-mode batch norm without affine parameters: the lanes and their 1/sqrt(var + eps), (L, C, 1)."""
    flat = x.flatten(2)
    centred = flat - flat.mean(2, keepdim=True)
    scale = ((centred * centred).mean(2, keepdim=True) + BATCH_NORM_EPS).rsqrt()
    return centred.mul_(scale).view(x.shape), scale


def normalise_gradient(gradient: Tensor, normalised: Tensor, scale: Tensor) -> Tensor:
    """Adjoint of `normalise`: (T, L, C, H, W, B).

    Args:
        gradient: T cotangents of the same forward pass, (T, L, C, H, W, B).
        normalised: what `normalise` gave, (L, C, H, W, B).
        scale: what it multiplied by, its second answer.
    """
    flat, hat = gradient.flatten(3), normalised.flatten(2)
    slope = (flat * hat).mean(3, keepdim=True)
    out = flat - flat.mean(3, keepdim=True)  # the rest in place: fresh memory is what costs most here
    return out.addcmul_(hat, slope, value=-1).mul_(scale).view(gradient.shape)


def box_sum(x: Tensor) -> Tensor:
    """Sum over the 3x3 neighbourhood, zero outside: its own adjoint. Acts on axes -3 and -2 (H and W)."""
    rows = x.clone()
    rows[..., 1:, :, :] += x[..., :-1, :, :]
    rows[..., :-1, :, :] += x[..., 1:, :, :]
    out = rows.clone()
    out[..., 1:, :] += rows[..., :-1, :]
    out[..., :-1, :] += rows[..., 1:, :]
    return out


def inverse_counts(like: Tensor) -> Tensor:
    """1 / number of real pixels under a 3x3 window, (H, W, 1): average pooling does not count the padding."""
    height, width = like.shape[-3], like.shape[-2]
    return 1 / box_sum(like.new_ones(height, width, 1))


def halve(x: Tensor) -> Tensor:
    """Average over windows of 2x2 pixels: (L, C, H, W, B) -> (L, C, H/2, W/2, B)."""
    lanes, channels, height, width, batch = x.shape
    return x.reshape(lanes, channels, height // 2, 2, width // 2, 2, batch).mean((3, 5))
