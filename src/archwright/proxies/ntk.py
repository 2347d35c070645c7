"""The empirical neural tangent kernel from layer records, its condition number and the trace's approximations.

Theta (m x m, eq. 7.1) is the Gram matrix of per-example gradients of the true-class logit. It is a sum over layers, so
each layer's part is formed on its own and no network's whole Jacobian is ever held.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from archwright.proxies.records import LayerRecord

EIGENVALUE_FLOOR = 1e-7
"""Smallest eigenvalue, relative to the largest, that kappa believes: Theta is float32, below this it is rounding."""


def input_patches(record: LayerRecord) -> Tensor:
    """What each output position of the layer saw: (A*m, H'*W', groups, k*k*C/groups), channels innermost."""
    lanes, examples, channels, height, width = record.inputs.shape
    kernel_h, kernel_w = record.weight.shape[-2:]
    (stride_h, stride_w), (pad_h, pad_w) = record.geometry.stride, record.geometry.padding
    dilation_h, dilation_w = record.geometry.dilation
    images = record.inputs.permute(0, 1, 3, 4, 2)
    padded = images.new_zeros(lanes * examples, height + 2 * pad_h, width + 2 * pad_w, channels)
    padded[:, pad_h : pad_h + height, pad_w : pad_w + width] = images.flatten(0, 1)
    step, row, column, _ = padded.stride()
    out_h, out_w = record.output_shape
    groups = record.geometry.groups
    view = padded.as_strided(
        (lanes * examples, out_h, out_w, groups, kernel_h, kernel_w, channels // groups),
        (step, row * stride_h, column * stride_w, channels // groups, row * dilation_h, column * dilation_w, 1),
    )
    return view.reshape(lanes * examples, out_h * out_w, groups, -1)


def per_example_gradients(record: LayerRecord, gradients: Tensor) -> Tensor:
    """Contraction of activations with output gradients, example by example: (A, m, weights of the layer).

    The order of the weights inside the last axis is (group, C'/group, k, k, C/group).
    """
    lanes, examples, out_channels = gradients.shape[:3]
    groups = record.geometry.groups
    seen = input_patches(record)
    signal = gradients.permute(0, 1, 3, 4, 2).reshape(lanes * examples, -1, groups, out_channels // groups)
    if groups == 1:
        found = torch.bmm(signal[:, :, 0].transpose(1, 2), seen[:, :, 0])
    else:
        found = torch.einsum("npgo,npgk->ngok", signal, seen)
    return found.view(lanes, examples, -1)


def layer_kernel(record: LayerRecord) -> Tensor:
    """One layer's part of Theta, (A, m, m): from the true Jacobian where the record has one, else contracted.

    Forming the m gradients costs m*P*(H'W' + m) multiplications for P weights; contracting pairs of positions costs
    about (m H'W')^2 (C + C'), less where the map has shrunk to a few positions and the weights are many.
    """
    if record.jacobian is not None:
        rows = record.jacobian.flatten(2)
        return torch.bmm(rows, rows.transpose(1, 2))
    assert record.logit_gradients is not None
    if _pairs_are_cheaper(record):
        return _kernel_over_position_pairs(record)
    rows = per_example_gradients(record, record.logit_gradients)
    return torch.bmm(rows, rows.transpose(1, 2))


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
    """kappa = lambda_max / lambda_min of Theta (A, m, m), eigenvalues in float64.

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
    """Approximation of ||Theta||_tr by the sum over examples of squared loss gradients (eq. 6.5, 6.6 left).

    The recorded loss is the batch mean, so each example's own gradient is m times its contraction. Returns (A,).
    """
    total = torch.zeros(1)
    for record in records:
        assert record.loss_gradients is not None
        rows = per_example_gradients(record, record.loss_gradients * record.inputs.shape[1])
        total = total + rows.square().sum((1, 2))
    return total / lipschitz


def batch_gradient_trace(records: list[LayerRecord], lipschitz: float = 1.0) -> Tensor:
    """Approximation of ||Theta||_tr by one mini-batch: m / gamma * ||mean gradient||^2 (eq. 6.6 right, 6.7). Returns (A,)."""
    total = torch.zeros(1)
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
