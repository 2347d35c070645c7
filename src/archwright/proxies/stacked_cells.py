"""Tens of DARTS-style networks in one tensor program, as layer records for the training-free metrics.

The networks of a stack share everything but their cells. For every cell and node, all edges of all networks that carry
one operation are gathered into lanes and run together (`archwright.proxies.program`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from archwright.errors import InputError
from archwright.proxies import lanes, windows
from archwright.proxies.batches import check_batch
from archwright.proxies.initialise import Initialisation
from archwright.proxies.metrics import Pass, Proxy, Tally
from archwright.proxies.program import Program, SharedWeights, Weights, run_passes
from archwright.proxies.records import Geometry
from archwright.spaces.base import Architecture, Scale
from archwright.spaces.cells import Cell, CellPair, CellPlan, plan_cells
from archwright.spaces.operations import OPERATIONS, RELU_CONV_1X1, Convolution, Operation

Back = Callable[[Tensor], Tensor]
"""From cotangents (T, L, C', H', W', B) of an output to those of the input."""
CONCAT = (2, 3, 4, 5)


def pairs_of(architectures: Sequence[Architecture]) -> list[CellPair] | None:
    """The architectures where this program can run all of them: pairs of cells of four nodes, all joined; else None."""
    pairs = [one for one in architectures if isinstance(one, CellPair)]
    alike = all(len(cell.nodes) == 4 and cell.concat == CONCAT for one in pairs for cell in (one.normal, one.reduce))
    return pairs if alike and len(pairs) == len(architectures) else None


@dataclass(frozen=True)
class _Edge:
    """One edge of one network: its row, its source and how often the same edge came before at this node."""

    row: int
    source: int
    repeat: int


@dataclass(frozen=True)
class _Move:
    """The edges of one operation into one node: their networks, each source with its part of them, the way back."""

    rows: Tensor
    sources: list[tuple[int, slice]]
    back: Back


class _Program(Program):
    """Forward and backward of A networks of cells.

    The way back of a part is a function from cotangents (T, L, C', H', W', B) of its output to those of its input; it
    hands the records of its layers to the tally.
    """

    def __init__(self, pairs: Sequence[CellPair], scale: Scale, weights: Weights, tally: Tally, kind: Pass) -> None:
        super().__init__(torch.arange(len(pairs)), weights, tally, kind)
        self.pairs, self.scale = pairs, scale
        self.cells: list[Callable[[Tensor], tuple[Tensor, Tensor]]] = []
        self.ends: list[Callable[[Tensor], Any]] = []

    def forward(self, images: Tensor) -> Tensor:
        """Images (C, H, W, B) to logits (A, classes, B)."""
        before, leave = self.stem(images, 3 * self.scale.channels)
        last = self.block(before)
        for number, plan in enumerate(plan_cells(self.scale, (len(CONCAT), len(CONCAT)))):
            before, last = last, self.block(self._cell(before, last, plan, f"cell{number}"))
        pooled = last.mean((2, 3), keepdim=True)
        weight = self.common_weight("classifier", self.scale.classes, last.shape[1], 1, 1)
        logits, linear = self.convolve(pooled, weight, "classifier", self.rows, norm=False)

        def enter(gradients: Tensor) -> Tensor:
            back = self.convolve_back(gradients[:, :, :, None, None], linear) / (last.shape[2] * last.shape[3])
            return back.expand(*back.shape[:3], *last.shape[2:])

        self.ends = [enter, leave]
        return logits[:, :, 0, 0]

    def backward(self, gradients: Tensor) -> None:
        """Cotangents (T, A, classes, B) of the logits, back to the stem; each cell reads the two outputs before it."""
        enter, leave = self.ends
        last, before = enter(gradients), None
        while self.cells:
            second, first = self.cells.pop()(last)
            last, before = second if before is None else second + before, first
        leave(last if before is None else last + before)
        self.release()

    def through_block(self, number: int, gradients: Tensor) -> Tensor:
        """A cell's own way back; the first cell reads the stem twice."""
        second, first = self.cells[number - 1](gradients)
        return second + first if number == 1 else second

    def release(self) -> None:
        """Clear the ways back."""
        self.cells.clear()
        self.ends.clear()

    def _cell(self, before: Tensor, last: Tensor, plan: CellPlan, name: str) -> Tensor:
        """One cell of all networks: (A, C, H, W, B) of the two cells before to (A, 4 * C', H', W', B)."""
        count = len(self.rows)
        enter = self._halve if plan.halve_first else partial(self._layers, RELU_CONV_1X1, stride=1)
        first, first_back = enter(before, [f"{name}.first"] * count, self.rows, plan.channels)
        second, second_back = self._layers(
            RELU_CONV_1X1, last, [f"{name}.second"] * count, self.rows, plan.channels, stride=1
        )
        cells = [pair.reduce if plan.reduction else pair.normal for pair in self.pairs]
        states, moves = self._nodes(cells, [first, second], name, plan.reduction)

        def back(gradients: Tensor) -> tuple[Tensor, Tensor]:
            at_first, at_second = self._nodes_back(gradients, states, moves)
            return second_back(at_second), first_back(at_first)

        self.cells.append(back)
        return torch.cat(states[2:], 1)

    def _nodes(
        self, cells: Sequence[Cell], states: list[Tensor], name: str, reduction: bool
    ) -> tuple[list[Tensor], list[list[_Move]]]:
        """All six states of the cells (A, C, H, W, B) and, by node, what moved into it.

        A node that nothing reaches stays zero and passes nothing on.
        """
        alive = [{0, 1} for _ in cells]
        step = 2 if reduction else 1
        count, channels, height, width, batch = states[0].shape
        moves = []
        for node in range(2, 6):
            total = states[0].new_zeros(count, channels, -(-height // step), -(-width // step), batch)
            into = []
            for (operation, stride), edges in _groups(cells, alive, node, reduction).items():
                rows, sources = torch.tensor([edge.row for edge in edges]), _by_source(edges)
                seen = torch.cat([states[source].index_select(0, rows[part]) for source, part in sources])
                names = [f"{name}.{node}.{edge.source}.{operation}.{edge.repeat}" for edge in edges]
                out, back = self._run(OPERATIONS[operation], seen, names, rows, channels, stride)
                total.index_add_(0, rows, out)
                into.append(_Move(rows, sources, back))
            for move in into:
                for row in move.rows.tolist():
                    alive[row].add(node)
            states.append(total)
            moves.append(into)
        return states, moves

    def _nodes_back(
        self, gradients: Tensor, states: Sequence[Tensor], moves: list[list[_Move]]
    ) -> tuple[Tensor, Tensor]:
        """Cotangents (T, A, 4 * C, H', W', B) of the joined nodes to those of the cell's two inputs."""
        inputs = [gradients.new_zeros(len(gradients), *state.shape) for state in states[:2]]
        nodes = [*inputs, *(part.clone() for part in gradients.chunk(len(CONCAT), 2))]
        for node in reversed(range(2, 6)):
            for move in moves[node - 2]:
                back = move.back(nodes[node].index_select(1, move.rows))
                for source, part in move.sources:
                    nodes[source].index_add_(1, move.rows[part], back[:, part])
        return nodes[0], nodes[1]

    def _run(
        self, operation: Operation, x: Tensor, names: Sequence[str], rows: Tensor, channels: int, stride: int
    ) -> tuple[Tensor, Back]:
        """One operation on all its lanes (L, C, H, W, B), and its way back."""
        size = (x.shape[2], x.shape[3])
        if operation.kind == "skip":
            return (x, lambda gradients: gradients) if stride == 1 else self._halve(x, names, rows, channels)
        if operation.kind == "average":
            return windows.average(x, stride), lambda gradients: windows.average_gradient(gradients, size, stride)
        if operation.kind == "maximum":
            best, source = windows.maximum(x, stride)
            return best, lambda gradients: windows.maximum_gradient(gradients, source, size, stride)
        return self._layers(operation, x, names, rows, channels, stride)

    def _layers(
        self, operation: Operation, x: Tensor, names: Sequence[str], rows: Tensor, channels: int, stride: int
    ) -> tuple[Tensor, Back]:
        """The layers of an operation one after another; a batch norm belongs to the convolution before it."""
        steps: list[Back] = []
        for number, layer in enumerate(operation.layers):
            if layer == "relu":
                self.pattern(x, rows)
                x = x.relu()
                steps.append(partial(_relu_back, positive=x))
            elif isinstance(layer, Convolution):
                groups = x.shape[1] if layer.depthwise else 1
                geometry = Geometry(*layer.geometry(stride), groups)
                places = [f"{name}.{number}" for name in names]
                weight = self._lane_weights(places, (channels, x.shape[1] // groups, *layer.kernel))
                norm = operation.layers[number + 1 : number + 2] == ("norm",)
                x, conv = self.convolve(x, weight, places[0], rows, geometry, norm)
                steps.append(partial(self.convolve_back, conv=conv))
        return x, partial(_backwards, steps)

    def _halve(self, x: Tensor, names: Sequence[str], rows: Tensor, channels: int) -> tuple[Tensor, Back]:
        """The factorised reduction: two offset 1x1 convolutions of stride 2, joined, and a batch norm."""
        self.pattern(x, rows)
        positive, even, (height, width) = x.relu(), Geometry((2, 2)), x.shape[2:4]
        odd = F.pad(positive[:, :, 1:, 1:], (0, 0, 0, width % 2, 0, height % 2))
        shape = (channels // 2, x.shape[1], 1, 1)
        outs, convs = zip(
            *(
                self.convolve(part, self._lane_weights(places, shape), places[0], rows, even, norm=False)
                for part, places in (
                    (positive, [f"{name}.first" for name in names]),
                    (odd, [f"{name}.second" for name in names]),
                )
            ),
            strict=True,
        )
        joined = torch.cat(outs, 1)
        hat, scale = lanes.normalise(joined) if self.batch_norm else (joined, None)

        def back(gradients: Tensor) -> Tensor:
            if scale is not None:
                gradients = lanes.normalise_gradient(gradients, hat, scale)
            at_even, at_odd = map(self.convolve_back, gradients.chunk(2, 2), convs)
            at_even[..., 1:, 1:, :] += at_odd[..., : height - 1, : width - 1, :]
            return _relu_back(at_even, positive)

        return hat, back

    def _lane_weights(self, places: Sequence[str], shape: tuple[int, ...]) -> Tensor:
        """The lanes' weights, (L, *shape), by their names."""
        return torch.stack([self.weights(place, shape) for place in places])


def _relu_back(gradients: Tensor, positive: Tensor) -> Tensor:
    """Through a ReLU that gave ``positive``; in place, because only a convolution's own result comes here."""
    return gradients.mul_(positive.sign())


def _backwards(steps: Sequence[Back], gradients: Tensor) -> Tensor:
    """The ways back of parts that ran one after another."""
    for step in reversed(steps):
        gradients = step(gradients)
    return gradients


def _groups(
    cells: Sequence[Cell], alive: list[set[int]], node: int, reduction: bool
) -> dict[tuple[str, int], list[_Edge]]:
    """The edges into ``node`` of all networks by operation and stride, in the order of their sources."""
    found: dict[tuple[str, int], list[_Edge]] = {}
    for row, cell in enumerate(cells):
        before: Counter[tuple[str, int]] = Counter()
        for operation, source in cell.nodes[node - 2]:
            if operation != "none" and source in alive[row]:
                stride = 2 if reduction and source < 2 else 1
                edge = _Edge(row, source, before[operation, source])
                found.setdefault((operation, stride), []).append(edge)
                before[operation, source] += 1
    for edges in found.values():
        edges.sort(key=lambda edge: (edge.source, edge.row, edge.repeat))
    return found


def _by_source(edges: Sequence[_Edge]) -> list[tuple[int, slice]]:
    """The sources of sorted lanes, each with its part of them."""
    ends = {edge.source: place + 1 for place, edge in enumerate(edges)}
    starts = [0, *ends.values()]
    return [(source, slice(start, end)) for (source, end), start in zip(ends.items(), starts, strict=False)]


@torch.no_grad()
def score_stacked_cells(
    pairs: Sequence[CellPair],
    images: Tensor,
    labels: Tensor,
    proxies: Sequence[Proxy],
    *,
    scale: Scale,
    seed: int = 0,
    initialisation: Initialisation = "lecun",
    stack: int | None = None,
    weights: Weights | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Score pairs of DARTS-style cells, ``stack`` networks at a time.

    Args:
        pairs: as :func:`pairs_of` gives them.
        images: (m, C, H, W).
        labels: (m,) integer classes.
        proxies: the metrics; passes are shared between them.
        scale: of the networks.
        seed: draws the shared weights, together with each layer's name.
        initialisation: scale of the weights.
        stack: networks per tensor program; the scores do not depend on it. None: as many as memory and caches like.
        weights: in place of ``seed`` and ``initialisation``, a function from layer name and shape to its weight.

    Returns:
        Metric name -> (A,) scores.
    """
    check_batch(images, labels, proxies)
    if int(labels.max()) >= scale.classes:
        raise InputError(f"labels below {scale.classes}", f"up to {int(labels.max())}")
    drawn = weights or SharedWeights(seed, initialisation)
    parts, size = [], stack or _stack_size(images, scale)
    for start in range(0, len(pairs), size):
        some = pairs[start : start + size]
        tally = Tally(proxies, len(some))
        run_passes(partial(_Program, some, scale), images, labels, drawn, tally, seed)
        parts.append({name: score.numpy() for name, score in tally.scores(len(labels)).items()})
    return {proxy.name: np.concatenate([part[proxy.name] for part in parts]) for proxy in proxies}


def _stack_size(images: Tensor, scale: Scale) -> int:
    """Networks a stack: 48, fewer where the maps are so large that calls cost little and activations much (1 GB)."""
    numbers = images.shape[0] * images.shape[2] * images.shape[3] * scale.channels
    return max(4, min(48, 48 * 2**14 // numbers))
