"""Batch norms over the whole batch, wherever its images are: for plain training whose shards are small.

With it a batch is not cut for one process, which then does what a training of one shard does. Several processes add up
sums of every layer, forward and backward, so they agree with one process to rounding, not to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from archwright.training.team import Team


class _Sum(torch.autograd.Function):
    """The sum of a tensor over all processes, whose losses are means over as many images as each has."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, images: int, team: Team) -> Tensor:
        ctx.images, ctx.team = images, team
        return team.summed(own)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        """The loss of all is the mean over all images, so gradients of others count by how many images they have."""
        return ctx.team.summed(gradients[0] * ctx.images) / ctx.images, None, None


def _summed(own: Tensor, images: int, team: Team) -> Tensor:
    found: Tensor = _Sum.apply(own, images, team)  # type: ignore[no-untyped-call]
    return found


def whole_norm(norm: _BatchNorm, team: Team, x: Tensor) -> Tensor:
    """What ``norm`` in training makes of the images of all processes, for those of this one.

    Args:
        norm: a batch norm; one that is not in training does what it always does.
        team: the processes.
        x: (n, C, ...) of this process.
    """
    if not norm.training:
        return type(norm).forward(norm, x)
    dims = [axis for axis in range(x.dim()) if axis != 1]
    shape = [1, -1, *[1] * (x.dim() - 2)]
    count = team.summed(x.new_tensor([float(x.numel() // x.shape[1])]))
    mean = _summed(x.sum(dims), len(x), team) / count
    centred = x - mean.view(shape)
    variance = _summed((centred * centred).sum(dims), len(x), team) / count
    _move(norm, mean.detach(), variance.detach() * count / (count - 1))
    found: Tensor = centred * torch.rsqrt(variance + norm.eps).view(shape)
    return found * norm.weight.view(shape) + norm.bias.view(shape) if norm.affine else found


def _move(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics as torch does; ``variance`` is the unbiased one."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    part = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, part)
    norm.running_var.lerp_(variance, part)


@contextmanager
def whole_norms(network: nn.Module, team: Team) -> Iterator[None]:
    """Let the batch norms of ``network`` see the images of the whole ``team``; afterwards they are as before.

    Args:
        network: that all processes have.
        team: of as many shards as processes.
    """
    norms = [one for one in network.modules() if isinstance(one, _BatchNorm)] if team.size > 1 else []
    for norm in norms:
        norm.forward = partial(whole_norm, norm, team)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for norm in norms:
            del norm.forward
