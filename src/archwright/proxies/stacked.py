"""Tens of NAS-Bench-201 networks in one tensor program, as layer records for the training-free metrics.

The networks of a chunk share everything but their cells' operations. For every cell and source node, the (network,
edge) pairs that carry one operation are gathered into lanes and run together (`archwright.proxies.program`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from archwright.errors import InputError
from archwright.proxies import lanes
from archwright.proxies.batches import check_batch
from archwright.proxies.initialise import Initialisation
from archwright.proxies.metrics import Pass, Proxy, Tally
from archwright.proxies.program import PLAIN, Conv, Program, SharedWeights, Weights, run_passes
from archwright.proxies.records import Geometry
from archwright.spaces.base import Architecture
from archwright.spaces.nasbench201 import Cell201

NONE, SKIP, CONV_1X1, CONV_3X3, AVG_POOL = range(5)
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""(source, target) of the six edges in the order of the NAS-Bench-201 table."""
WINDOW, HALVING = Geometry(padding=(1, 1)), Geometry((2, 2), (1, 1))
"""Of 3x3 convolutions."""


@dataclass(frozen=True)
class ProxyScale:
    """Size of the networks that are scored: a small stand-in for the 16-channel, 5-cell, 32-pixel original."""

    channels: int = 4
    cells: int = 1
    classes: int = 10


def operations_of(architectures: Sequence[Architecture]) -> NDArray[np.int64] | None:
    """(A, 6) operations where every architecture is a cell of NAS-Bench-201, which this program is for; else None."""
    cells = [architecture for architecture in architectures if isinstance(architecture, Cell201)]
    return np.array([cell.operations for cell in cells]) if len(cells) == len(architectures) else None


@dataclass(frozen=True)
class _Move:
    """The lanes of one operation leaving one node: network, target node and the convolution that ran, if any."""

    operation: int
    rows: Tensor
    targets: Tensor
    convolution: Conv | None = None


class _Program(Program):
    """Forward and backward of A stacked networks.

    Every part of `forward` puts its own backward step on the tape. A step takes T cotangents (T, A, C, H, W, B) of the
    part's output, hands the records of its layers to the tally and returns the cotangents of its input.
    """

    def __init__(self, operations: Tensor, scale: ProxyScale, weights: Weights, tally: Tally, kind: Pass) -> None:
        super().__init__(torch.arange(len(operations), device=operations.device), weights, tally, kind)
        self.operations, self.scale = operations, scale
        self.tape: list[Callable[[Tensor], Tensor]] = []

    def forward(self, images: Tensor) -> Tensor:
        """Images (C, H, W, B) to logits (A, classes, B)."""
        x = self.block(self._stem(images))
        for stage in range(3):
            if stage:
                x = self.block(self._reduction(x, f"reduction{stage}"))
            for number in range(self.scale.cells):
                x = self.block(self._cell(x, f"cell{stage}.{number}"))
        return self._head(x)

    def through_block(self, number: int, gradients: Tensor) -> Tensor:
        """Blocks have their steps at their own places of the tape."""
        return self.tape[number](gradients)

    def backward(self, gradients: Tensor) -> None:
        """Cotangents (T, A, classes, B) of the logits, back through the tape; activations are freed on the way."""
        while self.tape:
            gradients = self.tape.pop()(gradients)

    def release(self) -> None:
        self.tape.clear()

    def _stem(self, images: Tensor) -> Tensor:
        out, leave = self.stem(images, self.scale.channels)

        def back(gradients: Tensor) -> Tensor:
            leave(gradients)
            return gradients

        self.tape.append(back)
        return out

    def _reduction(self, x: Tensor, name: str) -> Tensor:
        """Residual block that halves the map and doubles the channels; its shortcut has no batch norm."""
        narrow, wide = x.shape[1], 2 * x.shape[1]
        self.pattern(x, self.rows)
        weight = self.common_weight(f"{name}.first", wide, narrow, 3, 3)
        middle, first = self.convolve(x.relu(), weight, f"{name}.first", self.rows, HALVING)
        self.pattern(middle, self.rows)
        weight = self.common_weight(f"{name}.second", wide, wide, 3, 3)
        out, second = self.convolve(middle.relu(), weight, f"{name}.second", self.rows, WINDOW)
        pooled = lanes.halve(x)
        weight = self.common_weight(f"{name}.shortcut", wide, narrow, 1, 1)
        around, shortcut = self.convolve(pooled, weight, f"{name}.shortcut", self.rows, norm=False)

        def back(gradients: Tensor) -> Tensor:
            through = self.convolve_back(gradients, second) * (middle > 0)
            through = self.convolve_back(through, first) * (x > 0)
            short = self.convolve_back(gradients, shortcut) / 4
            return through + short.repeat_interleave(2, 3).repeat_interleave(2, 4)

        self.tape.append(back)
        return out + around

    def _head(self, x: Tensor) -> Tensor:
        """Batch norm, ReLU, global average pool and the linear classifier (its bias is zero)."""
        hat, scale = lanes.normalise(x) if self.batch_norm else (x, None)
        self.pattern(hat, self.rows)
        pooled = hat.relu().mean((2, 3), keepdim=True)
        weight = self.common_weight("classifier", self.scale.classes, x.shape[1], 1, 1)
        logits, linear = self.convolve(pooled, weight, "classifier", self.rows, norm=False)

        def back(gradients: Tensor) -> Tensor:
            spread = self.convolve_back(gradients[:, :, :, None, None], linear) / (x.shape[2] * x.shape[3])
            spread = spread * (hat > 0)
            return spread if scale is None else lanes.normalise_gradient(spread, hat, scale)

        self.tape.append(back)
        return logits[:, :, 0, 0]

    def _cell(self, x: Tensor, name: str) -> Tensor:
        """Four nodes (4, A, C, H, W, B); the pairs (network, edge) with one operation and source run as lanes."""
        nodes = torch.cat([x[None], x.new_zeros(3, *x.shape)])
        flat = nodes.flatten(0, 1)
        tape = []
        for source in range(3):
            self.pattern(nodes[source], self.rows, self._convolutions_leaving(source))
            moves = [self._run(nodes[source], move, f"{name}.node{source}") for move in self._moves(source)]
            for move, value in moves:
                flat.index_add_(0, move.targets * len(x) + move.rows, value)
            tape.append((source, nodes[source] > 0, [move for move, _ in moves]))
        self.tape.append(lambda gradients: self._cell_back(gradients, tape))
        return nodes[3]

    def _cell_back(self, gradients: Tensor, tape: list[tuple[int, Tensor, list[_Move]]]) -> Tensor:
        cotangents, count = gradients.shape[:2]
        nodes = torch.cat([gradients.new_zeros(cotangents, 3, *gradients.shape[1:]), gradients[:, None]], 1)
        flat = nodes.flatten(1, 2)
        for source, positive, moves in reversed(tape):
            behind_relu = torch.zeros_like(gradients)
            for move in moves:
                back = flat.index_select(1, move.targets * count + move.rows)
                if move.convolution is not None:
                    behind_relu.index_add_(1, move.rows, self.convolve_back(back, move.convolution))
                    continue
                if move.operation == AVG_POOL:
                    back = lanes.box_sum(back * lanes.inverse_counts(back))
                nodes[:, source].index_add_(1, move.rows, back)
            nodes[:, source] += behind_relu * positive
        return nodes[:, 0]

    def _moves(self, source: int) -> list[_Move]:
        """The lanes leaving ``source``, grouped by operation; operations nobody has do not run."""
        edges = [(index, target) for index, (start, target) in enumerate(EDGES) if start == source]
        chosen = self.operations[:, [index for index, _ in edges]].T
        found = []
        for operation in (SKIP, CONV_1X1, CONV_3X3, AVG_POOL):
            edge, rows = (chosen == operation).nonzero(as_tuple=True)
            if len(rows):
                found.append(_Move(operation, rows, edge + edges[0][1]))
        return found

    def _run(self, source: Tensor, move: _Move, name: str) -> tuple[_Move, Tensor]:
        x = source.index_select(0, move.rows)
        if move.operation == SKIP:
            return move, x
        if move.operation == AVG_POOL:
            return move, lanes.box_sum(x) * lanes.inverse_counts(x)
        kernel = 1 if move.operation == CONV_1X1 else 3
        width = x.shape[1]
        first = int(move.targets.min())
        drawn = torch.stack(
            [self.weights(f"{name}.to{t}.conv{kernel}", (width, width, kernel, kernel)) for t in range(first, 4)]
        )
        geometry = PLAIN if kernel == 1 else WINDOW
        out, conv = self.convolve(x.relu(), drawn[move.targets - first], f"{name}.conv{kernel}", move.rows, geometry)
        return replace(move, convolution=conv), out

    def _convolutions_leaving(self, source: int) -> Tensor:
        """How many ReLUs read ``source`` in each network: one a convolution, (A,)."""
        edges = [index for index, (start, _) in enumerate(EDGES) if start == source]
        chosen = self.operations[:, edges]
        return ((chosen == CONV_1X1) | (chosen == CONV_3X3)).sum(1)


@torch.no_grad()
def score_stacked(
    operations: NDArray[np.integer[Any]],
    images: Tensor,
    labels: Tensor,
    proxies: Sequence[Proxy],
    *,
    seed: int = 0,
    scale: ProxyScale | None = None,
    initialisation: Initialisation = "lecun",
    stack: int = 64,
    weights: Weights | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Score NAS-Bench-201 architectures, ``stack`` networks at a time.

    Args:
        operations: (A, 6) operation of each edge: 0 none, 1 skip, 2 conv 1x1, 3 conv 3x3, 4 average pool.
        images: (m, C, H, W), H and W divisible by 4.
        labels: (m,) integer classes.
        proxies: the metrics; passes are shared between them.
        seed: draws the shared weights, together with each layer's name.
        scale: channels, cells a stage and classes.
        initialisation: scale of the weights.
        stack: networks per tensor program; the scores do not depend on it.
        weights: in place of ``seed`` and ``initialisation``, a function from layer name and shape to its weight.

    Returns:
        Metric name -> (A,) scores. A disconnected network gets zero gradients and so the worst scores.
    """
    scale = scale or ProxyScale()
    chosen = _checked(operations, images, labels, scale)
    check_batch(images, labels, proxies)
    drawn = weights or SharedWeights(seed, initialisation)

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        return drawn(name, shape).to(images.device)

    # Networks alike in their operations run in one program, so that fewer kinds of lanes occur in it.
    order = np.lexsort(np.asarray(operations).T[[5, 4, 2, 3, 1, 0]])
    parts = []
    for rows in np.array_split(order, max(1, -(-len(order) // stack))):
        tally = Tally(proxies, len(rows))
        some = chosen[rows]

        def make(weights: Weights, tally: Tally, kind: Pass, some: Tensor = some) -> Program:
            here = some.cpu() if kind == "synflow" else some  # its weights and image are there
            return _Program(here, scale, weights, tally, kind)

        run_passes(make, images, labels, draw, tally, seed)
        parts.append({name: score.numpy() for name, score in tally.scores(len(labels)).items()})
    back = np.argsort(order)
    return {proxy.name: np.concatenate([part[proxy.name] for part in parts])[back] for proxy in proxies}


def _checked(operations: NDArray[np.integer[Any]], images: Tensor, labels: Tensor, scale: ProxyScale) -> Tensor:
    table = np.asarray(operations)
    if table.ndim != 2 or table.shape[1] != 6 or len(table) == 0 or table.min() < 0 or table.max() > 4:
        raise InputError("operations (A, 6) with values 0 to 4", f"an array of shape {table.shape}")
    if images.ndim != 4 or images.shape[2] % 4 or images.shape[3] % 4:
        raise InputError("images (m, C, H, W) with sides divisible by 4", f"shape {tuple(images.shape)}")
    if len(labels) != len(images) or int(labels.max()) >= scale.classes:
        raise InputError(
            f"{len(images)} labels below {scale.classes}", f"{len(labels)} labels up to {int(labels.max())}"
        )
    return torch.from_numpy(table.astype(np.int64)).to(images.device)
