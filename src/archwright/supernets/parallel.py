"""The same operation on all edges that leave one node, run as one.

Edges with a common source see the same input, so their convolutions differ only in weights: they are kept stacked,
(edges * channels, ...), and run as one wide convolution and one batch norm. Operations without parameters are computed
once. An edge's architecture weight multiplies its output; it is folded into the batch norm, where it costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from archwright.spaces.operations import Convolution, Operation, make_pool


def rows_of(stacked: Tensor, run: slice, channels: int) -> Tensor:
    """The part of a stacked tensor that belongs to some edges; all of it uncut, to save a copy backwards.

    Args:
        stacked: (edges * channels, ...).
        run: numbers of the edges.
        channels: of one edge.
    """
    if run.start == 0 and run.stop * channels == len(stacked):
        return stacked
    return stacked[run.start * channels : run.stop * channels]


class ParallelConvolution(nn.Module):
    """``edges`` convolutions of one geometry; weight (edges * C, in_per_group, *kernel)."""

    def __init__(self, edges: int, channels: int, layer: Convolution, stride: int) -> None:
        super().__init__()
        self.channels, self.depthwise, self.geometry = channels, layer.depthwise, layer.geometry(stride)
        inner = 1 if layer.depthwise else channels
        self.weight = nn.Parameter(torch.empty(edges * channels, inner, *layer.kernel))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, x: Tensor, run: slice, shared_input: bool) -> Tensor:
        """The n edges of ``run`` side by side, (B, n*C, H', W').

        Args:
            x: (B, C, H, W) if all edges share it, else (B, n*C, H, W).
            run: numbers of the edges.
            shared_input: which of the two it is.
        """
        count = run.stop - run.start
        weight = rows_of(self.weight, run, self.channels)
        if self.depthwise:
            x = x.repeat(1, count, 1, 1) if shared_input and count > 1 else x
            groups = count * self.channels
        else:
            groups = 1 if shared_input else count
        return F.conv2d(x, weight, None, *self.geometry, groups)


class ParallelNorm(nn.Module):
    """``edges`` batch norms of ``channels`` each; ``scale`` (n,) multiplies the output of each edge.

    Args:
        statistics: ``running`` keeps running statistics for evaluation; ``batch`` always uses the batch's own.
    """

    running_mean: Tensor | None
    running_var: Tensor | None

    def __init__(self, edges: int, channels: int, affine: bool, statistics: str) -> None:
        super().__init__()
        size = edges * channels
        self.channels, self.num_features, self.momentum = channels, size, 0.1
        self.weight = nn.Parameter(torch.ones(size)) if affine else None
        self.bias = nn.Parameter(torch.zeros(size)) if affine else None
        track = statistics == "running"
        self.register_buffer("running_mean", torch.zeros(size) if track else None)
        self.register_buffer("running_var", torch.ones(size) if track else None)

    def forward(self, x: Tensor, run: slice, scale: Tensor | None) -> Tensor:
        """``x`` (B, n*C, H, W) of the n edges ``run``, normalised over (B, H, W), times ``scale`` (n,) by edge."""
        weight = None if self.weight is None else rows_of(self.weight, run, self.channels)
        bias = None if self.bias is None else rows_of(self.bias, run, self.channels)
        if scale is not None:
            wide = scale.repeat_interleave(self.channels)
            weight = wide if weight is None else weight * wide
            bias = None if bias is None else bias * wide
        mean = None if self.running_mean is None else rows_of(self.running_mean, run, self.channels)
        variance = None if self.running_var is None else rows_of(self.running_var, run, self.channels)
        training = self.training or mean is None
        return F.batch_norm(x, mean, variance, weight, bias, training, self.momentum)


class ParallelLayers(nn.Module):
    """An operation with parameters on all edges of one source."""

    def __init__(
        self, operation: Operation, edges: int, channels: int, stride: int, affine: bool, statistics: str
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for layer in operation.layers:
            if layer == "relu":
                self.layers.append(nn.ReLU())
            elif layer == "norm":
                self.layers.append(ParallelNorm(edges, channels, affine, statistics))
            elif isinstance(layer, Convolution):
                self.layers.append(ParallelConvolution(edges, channels, layer, stride))
        self.channels = channels

    def forward(self, x: Tensor, edges: Sequence[int], scale: Tensor | None, joined: bool = False) -> list[Tensor]:
        """The output (B, C, H', W') of each edge.

        Args:
            x: (B, C, H, W).
            edges: numbers of those that run, ascending.
            scale: what their outputs are multiplied by, (n,); None for nothing.
            joined: whether consecutive edges come side by side in one tensor (B, n*C, H', W').
        """
        outputs: list[Tensor] = []
        done = 0
        for run in contiguous_runs(edges):
            count = run.stop - run.start
            part = None if scale is None else scale[done : done + count]
            value = self._run(x, run, part)
            outputs.extend([value] if joined or count == 1 else torch.split(value, self.channels, dim=1))
            done += count
        return outputs

    def _run(self, x: Tensor, run: slice, scale: Tensor | None) -> Tensor:
        last = len(self.layers) - 1
        shared = True
        for number, layer in enumerate(self.layers):
            if isinstance(layer, ParallelConvolution):
                x, shared = layer(x, run, shared), False
            elif isinstance(layer, ParallelNorm):
                x = layer(x, run, scale if number == last else None)
            else:
                x = layer(x)
        return x

    def export(self, edge: int) -> dict[str, Tensor]:
        """The state of one edge under the names of the stand-alone module."""
        state: dict[str, Tensor] = {}
        for number, layer in enumerate(self.layers):
            part = slice(edge * self.channels, (edge + 1) * self.channels)
            for name, tensor in layer.state_dict().items():
                state[f"{number}.{name}"] = tensor[part]
        return state


class ParallelModules(nn.Module):
    """An operation whose edges are run one by one (a skip that halves the image)."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.edges = nn.ModuleList(modules)

    def forward(self, x: Tensor, edges: Sequence[int], scale: Tensor | None) -> list[Tensor]:
        """The outputs of ``x`` (B, C, H, W) on ``edges``, (B, C, H', W') each, times ``scale`` (n,) unless None."""
        outputs = [self.edges[edge](x) for edge in edges]
        return outputs if scale is None else [o * s for o, s in zip(outputs, scale, strict=True)]

    def export(self, edge: int) -> dict[str, Tensor]:
        """The state of one edge under the names of the stand-alone module."""
        return dict(self.edges[edge].state_dict())


class Shared(nn.Module):
    """An operation without parameters: one output for all edges, weighted for each."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, edges: Sequence[int], scale: Tensor | None) -> list[Tensor]:
        """The one output of ``x`` (B, C, H, W) for each of ``edges``, times ``scale`` (n,) unless None."""
        value = self.module(x)
        return [value] * len(edges) if scale is None else [value * s for s in scale]

    def export(self, edge: int) -> dict[str, Tensor]:
        """The statistics of the batch norm behind a pool, where there is one; the same for every edge."""
        return dict(self.module.state_dict())


Parallel = ParallelLayers | ParallelModules | Shared


class _Mixtures(torch.autograd.Function):
    """See :func:`mixtures`; one pass over memory for each product, and inner products for the weights' gradients."""

    @staticmethod
    def forward(ctx: Any, count: int, *arguments: Tensor) -> tuple[Tensor, ...]:
        values, scales, beside = arguments[:count], arguments[count : 2 * count], arguments[2 * count :]
        ctx.count, ctx.beside = count, len(beside)
        ctx.save_for_backward(*values, *scales)
        edges = range(len(scales[0]))
        return tuple(_weighted_sum(values, [scale[edge] for scale in scales], beside) for edge in edges)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, scales = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        flat = [_flat(gradient) for gradient in gradients]
        by_value = [_weighted_sum(gradients, scale.unbind()) for scale in scales]
        by_scale = []
        for value in values:
            row = _flat(value)
            by_scale.append(torch.stack([torch.dot(row, other) for other in flat]))
        return (None, *by_value, *by_scale, *(gradients * ctx.beside))


def _flat(x: Tensor) -> Tensor:
    """All numbers in one row; of images in the order in which channels_last keeps them, which copies nothing."""
    return x.permute(0, 2, 3, 1).reshape(-1) if x.ndim == 4 else x.reshape(-1)


def _weighted_sum(terms: Sequence[Tensor], weights: Sequence[Tensor], beside: Sequence[Tensor] = ()) -> Tensor:
    total = torch.addcmul(beside[0], terms[0], weights[0]) if beside else terms[0] * weights[0]
    for term, weight in zip(terms[1:], weights[1:], strict=True):
        total.addcmul_(term, weight)
    for one in beside[1:]:
        total.add_(one)
    return total


def mixtures(values: Sequence[Tensor], scales: Sequence[Tensor], beside: Sequence[Tensor] = ()) -> Sequence[Tensor]:
    """For each edge e the sum over p of ``scales[p][e] * values[p]``.

    Args:
        values: p of (B, C, H, W).
        scales: p of (n,), for n edges.
        beside: (B, C, H, W) each, added as they are, where there is one edge.
    """
    mixed: tuple[Tensor, ...] = _Mixtures.apply(len(values), *values, *scales, *beside)  # type: ignore[no-untyped-call]
    return mixed


def make_parallel(
    operation: Operation, edges: int, channels: int, stride: int, affine: bool, statistics: str, pool_norm: bool
) -> Parallel:
    """The parallel form of an operation on all edges of one source.

    Args:
        operation: not ``none``.
        edges: how many there are.
        channels: of each.
        stride: 1 or 2.
        affine: whether batch norms have trainable parameters.
        statistics: ``running`` keeps running statistics, ``batch`` always uses the batch's own.
        pool_norm: whether a batch norm follows pooling.
    """
    if operation.kind == "layers":
        return ParallelLayers(operation, edges, channels, stride, affine, statistics)
    if operation.kind == "skip":
        if stride == 1:
            return Shared(nn.Identity())
        modules = [operation.build(channels, channels, stride, affine) for _ in range(edges)]
        return ParallelModules([set_statistics(module, statistics) for module in modules])
    pool = make_pool(operation.kind, stride)
    norm = nn.BatchNorm2d(channels, affine=False)
    return Shared(set_statistics(nn.Sequential(pool, norm), statistics) if pool_norm else pool)


def set_statistics(module: nn.Module, statistics: str) -> nn.Module:
    """Make every batch norm of ``module`` use the batch's own statistics always, if ``statistics`` is ``batch``."""
    if statistics == "batch":
        for norm in module.modules():
            if isinstance(norm, _BatchNorm):
                norm.track_running_stats = False
                norm.running_mean = norm.running_var = norm.num_batches_tracked = None
    return module


def contiguous_runs(edges: Sequence[int]) -> list[slice]:
    """Ascending integers as slices of consecutive ones; a slice of a stacked tensor is a view."""
    runs: list[slice] = []
    for edge in edges:
        if runs and runs[-1].stop == edge:
            runs[-1] = slice(runs[-1].start, edge + 1)
        else:
            runs.append(slice(edge, edge + 1))
    return runs
