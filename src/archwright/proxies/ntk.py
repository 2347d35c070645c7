"""The empirical neural tangent kernel from layer records, its condition number and the trace's approximations.

Theta (m x m, eq. 7.1) is the Gram matrix of per-example gradients of the true-class logit. It is a sum over layers, so
each layer's part is formed on its own and no network's whole Jacobian is ever held.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from archwright.proxies.records import Geometry, LayerRecord

EIGENVALUE_FLOOR = 1e-7
"""Smallest eigenvalue, relative to the largest, that kappa believes: Theta is float32, below this it is rounding."""


def input_patches(record: LayerRecord) -> Tensor:
    """What each output position of the layer saw: (A*m, H'*W', groups, k*k*C/groups), channels innermost."""
    padded = _padded_images(record)
    images, _, _, channels = padded.shape
    step, row, column, _ = padded.stride()
    (stride_h, stride_w), (dilation_h, dilation_w) = record.geometry.stride, record.geometry.dilation
    groups = record.geometry.groups
    view = padded.as_strided(
        (images, *record.output_shape, groups, *record.weight.shape[-2:], channels // groups),
        (step, row * stride_h, column * stride_w, channels // groups, row * dilation_h, column * dilation_w, 1),
    )
    return view.reshape(images, record.output_shape[0] * record.output_shape[1], groups, -1)


def _padded_images(record: LayerRecord) -> Tensor:
    """The layer's inputs, zero-padded and with channels innermost: (A*m, H + 2p, W + 2p, C)."""
    lanes, examples, channels, height, width = record.inputs.shape
    pad_h, pad_w = record.geometry.padding
    padded = record.inputs.new_zeros(lanes, examples, height + 2 * pad_h, width + 2 * pad_w, channels)
    padded[:, :, pad_h : pad_h + height, pad_w : pad_w + width] = record.inputs.permute(0, 1, 3, 4, 2)
    return padded.flatten(0, 1)


def per_example_gradients(record: LayerRecord, gradients: Tensor) -> list[Tensor]:
    """Contraction of activations with output gradients, example by example: parts (A, m, weights of the part).

    The parts together are the layer's weights, each once; their order is that of the contraction.

    Args:
        record: of a layer, with its inputs.
        gradients: of its outputs, (A, m, C', H', W').
    """
    lanes, examples, out_channels = gradients.shape[:3]
    groups = record.geometry.groups
    if record.geometry == Geometry() and record.weight.shape[-2:] == (1, 1):
        seen_once = record.inputs.reshape(lanes * examples, record.inputs.shape[2], -1)
        product = torch.bmm(gradients.reshape(lanes * examples, out_channels, -1), seen_once.transpose(1, 2))
        return [product.view(lanes, examples, -1)]
    signal = gradients.permute(0, 1, 3, 4, 2).reshape(lanes * examples, -1, groups, out_channels // groups)
    if groups == 1 and record.geometry.stride == (1, 1) and record.geometry.dilation == (1, 1):
        seen = _kernel_row_patches(record)
    else:
        seen = [input_patches(record)]
    if groups == 1:
        found = [torch.bmm(signal[:, :, 0].transpose(1, 2), part.flatten(2)) for part in seen]
    else:
        found = [torch.einsum("npgo,npgk->ngok", signal, part) for part in seen]
    return [part.reshape(lanes, examples, -1) for part in found]


def weight_jacobian(record: LayerRecord, gradients: Tensor) -> Tensor:
    """As :func:`per_example_gradients`, in the order of the weight: (A, m, C', C/groups, k, k).

    Args:
        record: of a layer, with its inputs.
        gradients: of its outputs, (A, m, C', H', W').
    """
    lanes, examples, out_channels = gradients.shape[:3]
    groups = record.geometry.groups
    signal = gradients.permute(0, 1, 3, 4, 2).reshape(lanes * examples, -1, groups, out_channels // groups)
    found = torch.einsum("npgo,npgk->ngok", signal, input_patches(record))
    kernel = record.weight.shape[-2:]
    return found.view(lanes, examples, out_channels, *kernel, -1).permute(0, 1, 2, 5, 3, 4)


def _kernel_row_patches(record: LayerRecord) -> list[Tensor]:
    """`input_patches` of a plain convolution in k parts, one a row of the kernel: k views of one k-fold copy.

    A full im2col copies every pixel k*k times; patches along the width alone (k times) serve all rows of the kernel,
    each as the same memory seen from another row on.
    """
    padded = _padded_images(record)
    images, tall, _, channels = padded.shape
    out_h, out_w = record.output_shape
    kernel_h, kernel_w = record.weight.shape[-2:]
    step, row, column, _ = padded.stride()
    run = kernel_w * channels
    wide = padded.as_strided((images, tall, out_w, run), (step, row, column, 1)).contiguous()
    return [
        wide.as_strided((images, out_h * out_w, run), (tall * out_w * run, run, 1), first * out_w * run)
        for first in range(kernel_h)
    ]


def _gram(parts: list[Tensor]) -> Tensor:
    """Sum over parts (A, m, p) of part @ part^T: (A, m, m)."""
    total = torch.bmm(parts[0], parts[0].transpose(1, 2))
    for part in parts[1:]:
        total.baddbmm_(part, part.transpose(1, 2))
    return total


def layer_kernel(record: LayerRecord) -> Tensor:
    """One layer's part of Theta, (A, m, m): from the true Jacobian where the record has one, else contracted.

    Forming the m gradients costs m*P*(H'W' + m) multiplications for P weights; contracting pairs of positions costs
    about (m H'W')^2 (C + C'), less where the map has shrunk to a few positions and the weights are many.
    """
    if record.jacobian is not None:
        return _gram([record.jacobian.flatten(2)])
    assert record.logit_gradients is not None
    if _pairs_are_cheaper(record):
        return _kernel_over_position_pairs(record)
    return _gram(per_example_gradients(record, record.logit_gradients))


def _pairs_are_cheaper(record: LayerRecord) -> bool:
    positions = record.output_shape[0] * record.output_shape[1]
    examples, weights = record.inputs.shape[1], record.weight[0].numel()
    depth = record.weight[0, 0].numel() + record.weight.shape[1]
    forming = examples * weights * (positions + examples)
    pairing = (examples * positions) ** 2 * (depth + 4)
    return record.geometry.groups == 1 and pairing < forming


def _kernel_over_position_pairs(record: LayerRecord) -> Tensor:
    """Theta_ij = sum over positions p, q of <patch_ip, patch_jq> <gradient_ip, gradient_jq>."""
    assert record.logit_gradients is not None
    lanes, examples, out_channels = record.logit_gradients.shape[:3]
    seen = input_patches(record).view(lanes, -1, record.weight[0, 0].numel())
    signal = record.logit_gradients.permute(0, 1, 3, 4, 2).reshape(lanes, -1, out_channels)
    pairs = torch.bmm(seen, seen.transpose(1, 2)) * torch.bmm(signal, signal.transpose(1, 2))
    positions = pairs.shape[1] // examples
    return pairs.view(lanes, examples, positions, examples, positions).sum((2, 4))


def condition_number(kernel: Tensor) -> Tensor:
    """Ratio kappa = lambda_max / lambda_min of Theta (A, m, m), eigenvalues in float64.

    lambda_min is floored at `EIGENVALUE_FLOOR` * lambda_max, so that rounding below zero cannot make a bad network the
    best one; a network whose kernel is zero (disconnected) gets the worst value, 1 / `EIGENVALUE_FLOOR`.
    """
    symmetric = (kernel + kernel.transpose(1, 2)).double() / 2
    finite = torch.isfinite(symmetric).all(2).all(1)
    eigenvalues = torch.linalg.eigvalsh(torch.where(finite[:, None, None], symmetric, 0.0))
    largest = eigenvalues[:, -1]
    smallest = torch.maximum(eigenvalues[:, 0], EIGENVALUE_FLOOR * largest)
    return torch.where(largest > 0, largest / smallest, 1 / EIGENVALUE_FLOOR)


def trace_norm(kernel: Tensor) -> Tensor:
    """||Theta||_tr of a positive semi-definite Theta (A, m, m): the sum of its diagonal (eq. 6.4)."""
    return kernel.diagonal(dim1=1, dim2=2).sum(1)


def sample_gradient_trace(records: list[LayerRecord], lipschitz: float = 1.0) -> Tensor:
    """Approximation of ||Theta||_tr by the sum over examples of squared loss gradients (eq. 6.5, 6.6 left), (A,).

    The recorded loss is the batch mean, so each example's own gradient is m times its contraction.

    Args:
        records: of all layers, with loss gradients.
        lipschitz: gamma of the loss, which divides.
    """
    total = records[0].inputs.new_zeros(1)
    for record in records:
        assert record.loss_gradients is not None
        parts = per_example_gradients(record, record.loss_gradients * record.inputs.shape[1])
        total = total + sum(part.square().sum((1, 2)) for part in parts)
    return total / lipschitz


def batch_gradient_trace(records: list[LayerRecord], lipschitz: float = 1.0) -> Tensor:
    """Approximation of ||Theta||_tr by one mini-batch: m / gamma * ||mean gradient||^2 (eq. 6.7), (A,).

    Args:
        records: of all layers, with weight gradients.
        lipschitz: gamma of the loss, which divides.
    """
    total = records[0].inputs.new_zeros(1)
    for record in records:
        assert record.weight_gradient is not None
        total = total + record.weight_gradient.flatten(1).square().sum(1)
    return total * records[0].inputs.shape[1] / lipschitz


def layer_outputs(record: LayerRecord) -> Tensor:
    """The layer's response without bias, recomputed from its record: (A, m, C', H', W')."""
    lanes, examples = record.inputs.shape[:2]
    images = record.inputs.transpose(0, 1).flatten(1, 2)
    out = F.conv2d(
        images,
        record.weight.flatten(0, 1),
        stride=record.geometry.stride,
        padding=record.geometry.padding,
        dilation=record.geometry.dilation,
        groups=lanes * record.geometry.groups,
    )
    return out.view(examples, lanes, -1, *out.shape[2:]).transpose(0, 1)
