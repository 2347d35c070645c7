"""One supernet for every method on cell spaces: a method is what it puts on the decisions.

``supernet(x, weights, active=None)`` takes one weight tensor (edges, operations) for each decision of the space: a
softmax (DARTS, RARTS), a straight-through Gumbel sample (NASI, NESBS, GDAS), a one-hot (single path), a 0/1 mask
(CoNAS). Node values are the weighted sums over edges and operations; an operation of a node that nothing reached is
nothing, as in a stand-alone network.

**Which operations run** is said by ``active`` (see :mod:`archwright.supernets.base`).

**Batch-norm policy.** ``statistics="batch"`` (default): every forward pass, in training and when a shared-weight
sub-network is measured, normalises by the batch's own statistics; nothing is remembered. ``statistics="running"``
keeps running averages that evaluation mode uses; for a sub-network they must be recalibrated
(:func:`archwright.training.recalibrate` after :meth:`CellSupernet.inherit`) to mean anything. The skeleton around the
cells follows the same policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError, unknown_name
from archwright.spaces.base import Architecture, Network, Scale, Space
from archwright.spaces.cell_space import CellSpace, EdgeCell, VertexCell, as_cell_space
from archwright.spaces.operations import OPERATIONS
from archwright.supernets.base import Active, Statistics, Supernet, Weights
from archwright.supernets.node_cell import NodeCell, inherit_node_network
from archwright.supernets.parallel import (
    Parallel,
    ParallelLayers,
    ParallelModules,
    Shared,
    make_parallel,
    mixtures,
    set_statistics,
)


class MixedCell(nn.Module):
    """A cell whose every edge carries every operation, each with a weight.

    Args:
        pattern: nodes and edges.
        operations: names, in the order of the columns.
        channels: of each node.
        partial: each operation sees 1/partial of the channels, the rest passes by times the sum of the edge's
            weights (1 but for weighted edges), and the channels are shuffled.
    """

    def __init__(
        self,
        pattern: EdgeCell,
        operations: Sequence[str],
        channels: int,
        *,
        affine: bool,
        statistics: Statistics,
        pool_norm: bool,
        partial: int,
    ) -> None:
        super().__init__()
        if channels % partial:
            raise InputError(f"a channel number divisible by {partial} (partial channels)", str(channels))
        edges = pattern.edges
        self.inputs, self.edges, self.operations = pattern.inputs, edges, tuple(operations)
        self.halved, self.join, self.partial = pattern.reduction, pattern.join, partial
        self.nodes = max(target for _, target in edges) + 1
        self.leaving = [[row for row, (source, _) in enumerate(edges) if source == node] for node in range(self.nodes)]
        self.parallel = nn.ModuleDict()
        for source, rows in enumerate(self.leaving):
            stride = self._stride(source)
            for name in self.operations if rows else ():
                if name != "none":
                    self.parallel[f"{source}:{name}"] = make_parallel(
                        OPERATIONS[name], len(rows), channels // partial, stride, affine, statistics, pool_norm
                    )

    def _stride(self, source: int) -> int:
        return 2 if self.halved and source < self.inputs else 1

    def forward(self, *arguments: Any) -> Tensor:
        """Input nodes (B, C, H, W) each, then ``weights`` (edges, operations) and ``active`` of the same shape."""
        inputs: Sequence[Tensor] = arguments[: self.inputs]
        weights, active = arguments[self.inputs :]
        states: list[Tensor | None] = list(inputs)
        known = None if weights.requires_grad else weights.cpu().numpy()  # read off the device once a cell
        sums: dict[int, Tensor] = {}
        bypass: dict[int, Tensor] = {}
        for source in range(self.nodes):
            if source >= self.inputs:
                states.append(self._finish(source, sums, bypass))
            value = states[source]
            if value is not None:
                self._send(source, value, weights, known, active, sums, bypass)
        step = self._stride(0)
        outputs = [torch.zeros_like(inputs[0][:, :, ::step, ::step]) if s is None else s for s in states[self.inputs :]]
        return outputs[-1] if self.join == "last" else torch.cat(outputs, dim=1)

    def _finish(self, node: int, sums: dict[int, Tensor], bypass: dict[int, Tensor]) -> Tensor | None:
        """The value of ``node`` now that all its edges are in; None if nothing reached it."""
        total = sums.get(node)
        if self.partial == 1:
            return total
        rest = bypass[node]
        if total is None:
            b, c, h, w = rest.shape
            total = rest.new_zeros(b, c // (self.partial - 1), h, w)
        return shuffle_channels(torch.cat([total, rest], dim=1), self.partial)

    def _send(
        self,
        source: int,
        value: Tensor,
        weights: Tensor,
        known: NDArray[np.float32] | None,
        active: NDArray[np.bool_],
        sums: dict[int, Tensor],
        bypass: dict[int, Tensor],
    ) -> None:
        """Add what ``source`` contributes to every later node."""
        rows = self.leaving[source]
        if self.partial > 1 and rows:
            size = value.shape[1] // self.partial
            value, rest = value[:, :size], value[:, size:]
            rest = F.max_pool2d(rest, 2, 2, ceil_mode=True) if self._stride(source) == 2 else rest
            for row, share in zip(rows, weights[rows].sum(dim=1).unbind(), strict=True):
                whole = known is not None and known[row].max() == 1 and np.count_nonzero(known[row]) == 1
                add(bypass, self.edges[row][1], rest if whole else rest * share)
        wide: list[Tensor] = []  # outputs of all edges side by side, (B, n*C, H, W) each
        shared: list[tuple[Tensor, Tensor]] = []  # an output that all edges have in common, and its weights (n,)
        columns = weights[rows].unbind(1) if rows else ()
        for column, name in enumerate(self.operations):
            chosen = [position for position, row in enumerate(rows) if active[row, column]]
            if name == "none" or not chosen:
                continue
            scale = columns[column] if len(chosen) == len(rows) else columns[column][chosen]
            plain = known is not None and bool((known[[rows[place] for place in chosen], column] == 1).all())
            module: Parallel = self.parallel[f"{source}:{name}"]  # type: ignore[assignment]
            if plain or len(chosen) < len(rows) or isinstance(module, ParallelModules):
                for position, output in zip(chosen, module(value, chosen, None if plain else scale), strict=True):
                    add(sums, self.edges[rows[position]][1], output)
            elif isinstance(module, Shared):
                shared.append((module(value, chosen, None)[0], scale))
            else:
                wide += module(value, chosen, scale, joined=True)
        if wide:
            outputs = torch.split(reduce(torch.add, wide), wide[0].shape[1] // len(rows), dim=1)
            for row, output in zip(rows, outputs, strict=True):
                add(sums, self.edges[row][1], output)
        if shared:
            for row, output in zip(rows, mixtures(*zip(*shared, strict=True)), strict=True):
                add(sums, self.edges[row][1], output)

    def export(self, row: int, operation: str) -> dict[str, Tensor]:
        """State of one operation on one edge under the names of its stand-alone module.

        Args:
            row: number of the edge.
            operation: its name, not ``none``.
        """
        source = self.edges[row][0]
        module: Parallel = self.parallel[f"{source}:{operation}"]  # type: ignore[assignment]
        return module.export(self.leaving[source].index(row))


def add(sums: dict[int, Tensor], node: int, value: Tensor) -> None:
    """Accumulate ``value`` at ``node`` of ``sums``, in place."""
    sums[node] = sums[node] + value if node in sums else value


def shuffle_channels(x: Tensor, groups: int) -> Tensor:
    """Interleave ``groups`` blocks of the channels of ``x`` (B, C, H, W): the next partial operation sees others."""
    b, c, h, w = x.shape
    return x.view(b, groups, c // groups, h, w).transpose(1, 2).reshape(b, c, h, w)


class Picked(nn.Module):
    """A mixed cell that picks its own decision out of the supernet's weights."""

    def __init__(self, decision: str, cell: MixedCell, pool_after: bool = False) -> None:
        super().__init__()
        self.decision, self.cell, self.pool_after = decision, cell, pool_after

    def forward(self, *arguments: Any) -> Tensor:
        """Inputs, weights by decision, active by decision."""
        *inputs, weights, active = arguments
        out: Tensor = self.cell(*inputs, weights[self.decision], active[self.decision])
        return F.max_pool2d(out, 2, 2, ceil_mode=True) if self.pool_after else out


class CellSupernet(Supernet):
    """All architectures of a cell space in one network.

    Args:
        space: a cell space (:class:`archwright.spaces.cell_space.CellSpace`), such as ``nasbench201`` or ``darts``.
        scale: as for a stand-alone network; ``auxiliary`` is ignored.
        downsample: ``strided`` halves the image inside reduction cells, ``pooled`` by a max-pool after them (NASI).
        operations: names of the operations to keep on the edges; the others' columns never run.
        affine: whether the cells' batch norms have trainable parameters.
        partial: partial channels (1: all).
        statistics: batch-norm policy, see the module's text.
    """

    space: CellSpace[Any]

    def __init__(
        self,
        space: Space[Any],
        scale: Scale,
        *,
        downsample: Literal["strided", "pooled"] = "strided",
        operations: Sequence[str] | None = None,
        affine: bool = False,
        partial: int = 1,
        statistics: Statistics = "batch",
    ) -> None:
        super().__init__()
        self.space = as_cell_space(space)
        space.check_scale(scale)
        self.scale = scale.changed(auxiliary=False)
        self.downsample, self.affine, self.partial, self.statistics = downsample, affine, partial, statistics
        kept = space.operations if operations is None else tuple(operations)
        for name in kept:
            if name not in space.operations:
                raise unknown_name("operation", name, space.operations)
        self.kept = np.array([name in kept for name in space.operations])
        self.links = set(self.space.links)
        self.network = self.space.skeleton(self.scale, self._make_cell, affine)
        set_statistics(self.network, statistics)

    def forward(self, x: Tensor, weights: Weights, active: Active | None = None) -> Tensor:
        """Images to logits (B, classes).

        Args:
            x: images (B, image_channels, H, W).
            weights: (edges, operations) for each decision.
            active: which operations run, 0/1 of the same shapes; by default see the module's text.
        """
        running = self.active_operations(weights) if active is None else active
        masks = {name: running[name] & (True if name in self.links else self.kept) for name in weights}
        return self.network(x, weights, masks)  # type: ignore[no-any-return]

    def identity(self) -> dict[str, Any]:
        """What a file of weights must agree in: space, scale and options."""
        return {
            "space": self.space.supernet_name,
            "scale": self.scale.to_dict(),
            "downsample": self.downsample,
            "operations": [name for name, kept in zip(self.space.operations, self.kept, strict=True) if kept],
            "affine": self.affine,
            "partial": self.partial,
            "statistics": self.statistics,
        }

    def inherit(self, architecture: Architecture) -> Network:
        """The stand-alone network of ``architecture`` with this supernet's weights and statistics, copied.

        For ``nasbench1shot1`` it is the wide form of :mod:`archwright.supernets.node_cell`, not ``space.build``.
        """
        if any(isinstance(module, NodeCell) for module in self.network.modules()):
            return inherit_node_network(self.network, architecture, self.scale)
        if self.downsample == "pooled":
            raise InputError(
                "a supernet that halves images by strides",
                "one that pools between cells",
                "Stand-alone networks are strided; build the supernet with downsample='strided'.",
            )
        if self.partial > 1:
            raise InputError(
                "a supernet whose operations see all channels",
                f"partial={self.partial}",
                "Stand-alone networks have no partial channels; build the supernet with partial=1.",
            )
        network = self.space.build(architecture, self.scale)
        mixed = {name: m for name, m in self.network.named_modules() if isinstance(m, Picked)}
        inside = tuple(f"{name}." for name in mixed)
        state = {key: value for key, value in self.network.state_dict().items() if not key.startswith(inside)}
        kept = self.space.kept(architecture)
        for place, picked in mixed.items():
            for position, (row, operation) in enumerate(kept[picked.decision]):
                if operation != "none":
                    exported = picked.cell.export(row, operation)
                    state |= {f"{place}.edges.{position}.{key}": value for key, value in exported.items()}
        missing, unexpected = network.load_state_dict({k: v.clone() for k, v in state.items()}, strict=False)
        norms = {name for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)}
        wrong = [key for key in missing if key.rpartition(".")[0] not in norms] + list(unexpected)
        if wrong:
            raise RuntimeError(f"the supernet does not cover {wrong}")
        return network

    def operation_weights(self) -> Iterator[tuple[Tensor, int, list[int]]]:
        """Every parameter inside a cell's edges; operations are numbered over all cells."""
        number = 0
        for picked in self.modules():
            if not isinstance(picked, Picked):
                continue
            for module in picked.cell.parallel.values():
                if isinstance(module, ParallelLayers):
                    weights = list(module.parameters())
                    edges = weights[0].shape[0] // module.channels if weights else 0
                    for weight in weights:
                        yield weight, edges, [number + edge for edge in range(edges)]
                    number += edges
                elif isinstance(module, ParallelModules):
                    for one in module.edges:
                        own = list(one.parameters())
                        for weight in own:
                            yield weight, 1, [number]
                        number += bool(own)

    def _make_cell(self, pattern: EdgeCell | VertexCell, in_channels: int, channels: int) -> nn.Module:
        """The mixed cell of a pattern."""
        shared: dict[str, Any] = {"affine": self.affine, "pool_norm": self.scale.pool_norm}
        if isinstance(pattern, VertexCell):
            if self.partial != 1:
                raise InputError(
                    f"all channels (partial=1) in the supernet of {self.space.name}", f"partial={self.partial}"
                )
            return NodeCell(pattern, in_channels, channels, **shared)
        pooled = pattern.reduction and self.downsample == "pooled"
        cell = MixedCell(
            replace(pattern, reduction=False) if pooled else pattern,
            self.space.operations,
            channels,
            statistics=self.statistics,
            partial=self.partial,
            **shared,
        )
        return Picked(pattern.decision, cell, pool_after=pooled)


__all__ = ["Active", "CellSupernet", "MixedCell", "Statistics", "Weights"]
