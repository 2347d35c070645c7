"""Cells of NAS-Bench-101: operations on vertices, at most seven vertices and nine edges; value, identity and network.

A cell's vertices are numbered 0 (its input), 1 to n (operations) and n + 1 (its output). Vertices that are not on a
path from input to output have no effect and are pruned before anything is hashed, counted or built.

**The network.** A 3x3 stem, three stages of cells with a 2x2 max-pool and twice the channels between them, global
average pooling, a linear classifier. Inside a cell the output's channels are divided among the vertices that feed it
(the first ones take the remainder); any other vertex is as wide as the widest it feeds. Inner edges are added,
dropping channels that are too many; the cell's input reaches a vertex through a 1x1 convolution of its own; the
output joins its vertices and, where the input feeds it too, adds the projected input.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from math import ceil
from operator import add
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError, unknown_name
from archwright.spaces.base import Architecture, Network, Scale
from archwright.spaces.operations import Convolution, Cost, Operation
from archwright.strict import parse_json

NAMES = ("conv1x1", "conv3x3", "maxpool3x3")
OPERATIONS_101 = (
    Operation("conv1x1", "layers", (Convolution((1, 1)), "norm", "relu")),
    Operation("conv3x3", "layers", (Convolution((3, 3)), "norm", "relu")),
    Operation("maxpool3x3", "maximum"),
)
"""In the order of :data:`NAMES`."""
PROJECTION, STEM = OPERATIONS_101[0], OPERATIONS_101[1]


@dataclass(frozen=True, order=True)
class Cell101(Architecture):
    """A cell; its text is compact JSON, ``{"operations":["conv3x3",...],"parents":[[0],[0,1],...]}``.

    Attributes:
        operations: index into :data:`NAMES` of vertices 1 to n.
        parents: ascending parents of vertices 1 to n + 1, the output last.
    """

    operations: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.operations) + 1:
            raise InputError(
                "parents for every operation and for the output",
                f"{len(self.parents)} lists of parents and {len(self.operations)} operations",
            )
        for vertex, parents in enumerate(self.parents, 1):
            if list(parents) != sorted(set(parents)) or not set(parents) <= set(range(vertex)):
                raise InputError(f"ascending parents from 0 to {vertex - 1} at vertex {vertex}", str(list(parents)))
        if not set(self.operations) <= set(range(len(NAMES))):
            raise InputError(f"operations from 0 to {len(NAMES) - 1}", str(list(self.operations)))

    def __str__(self) -> str:
        value = {"operations": [NAMES[o] for o in self.operations], "parents": self.parents}
        return json.dumps(value, separators=(",", ":"))

    @property
    def output(self) -> int:
        """Number of the output vertex."""
        return len(self.parents)

    def edges(self) -> NDArray[np.bool_]:
        """Adjacency matrix (n + 2, n + 2), row = source."""
        matrix = np.zeros((self.output + 1,) * 2, dtype=bool)
        for vertex, parents in enumerate(self.parents, 1):
            matrix[list(parents), vertex] = True
        return matrix

    def live(self) -> list[int]:
        """The vertices on a path from input to output, ascending; a cell without such a path is an error."""
        reached, needed = {0}, {self.output}
        for vertex, parents in enumerate(self.parents, 1):
            if reached.intersection(parents):
                reached.add(vertex)
        for vertex in range(self.output, 0, -1):
            if vertex in needed:
                needed.update(self.parents[vertex - 1])
        if self.output not in reached:
            raise InputError("a cell whose output depends on its input", str(self))
        return sorted(reached & needed)

    def pruned(self) -> Cell101:
        """The same cell with its live vertices only, renumbered."""
        live = self.live()
        new = {vertex: number for number, vertex in enumerate(live)}
        kept = tuple(tuple(new[p] for p in self.parents[vertex - 1] if p in new) for vertex in live[1:])
        return Cell101(tuple(self.operations[vertex - 1] for vertex in live[1:-1]), kept)


def parse_cell101(text: str) -> Cell101:
    """Inverse of ``str``; malformed text is an :class:`InputError`."""
    expected = 'a cell like {"operations":["conv3x3","maxpool3x3"],"parents":[[0],[0,1],[1,2]]}'
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InputError(expected, f"{text[:80]!r} ({error})") from error
    if not isinstance(value, dict) or set(value) != {"operations", "parents"}:
        raise InputError(expected, repr(value)[:200])
    names, parents = value["operations"], value["parents"]
    if not isinstance(names, list) or not isinstance(parents, list) or not all(map(_is_integers, parents)):
        raise InputError(expected, repr(value)[:200])
    for name in names:
        if name not in NAMES:
            raise unknown_name("operation of NAS-Bench-101", str(name), NAMES)
    return Cell101(tuple(NAMES.index(name) for name in names), tuple(tuple(p) for p in parents))


def _is_integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(number) is int for number in value)


# --- identity up to renumbering --------------------------------------------------------------------------------------

_ROUNDS = 6
"""Refinements: information crosses the longest possible path of a seven-vertex cell."""
_CHUNK = 8192
"""Cells hashed at a time: their words stay in the processor's cache."""


def graph_hashes(edges: NDArray[np.bool_], operations: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """Hashes (N,) that agree exactly for cells that are equal up to pruning and the numbering of vertices.

    Colour refinement: a vertex' colour is mixed, six times, with the multisets of its parents' and its children's
    colours (sums of mixed words, which know no order); the hash mixes the multiset of the final colours. The 423,624
    different cells of NAS-Bench-101 get as many hashes.

    Args:
        edges: (N, V, V), row = source, upper triangular; vertex V - 1 is the output.
        operations: (N, V - 2), index into :data:`NAMES`; values at pruned vertices do not matter.
    """
    starts = range(0, len(edges), _CHUNK)
    parts = [_hash_chunk(edges[i : i + _CHUNK], operations[i : i + _CHUNK]) for i in starts]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)


def _hash_chunk(edges: NDArray[np.bool_], operations: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    count, vertices = edges.shape[0], edges.shape[1]
    edges = without_dead(edges)
    pairs = [(a, b, edges[:, a, b].astype(np.uint64)) for a, b in combinations(range(vertices), 2)]
    colours = np.empty((vertices, count), dtype=np.uint64)
    colours[0], colours[1:-1], colours[-1] = 11, operations.T.astype(np.uint64) + np.uint64(13), 17
    colours = _mix(colours)
    for _ in range(_ROUNDS):
        forward, backward = _mix(colours + np.uint64(1)), _mix(colours + np.uint64(2))
        gathered = colours.copy()
        for a, b, edge in pairs:
            gathered[b] += edge * forward[a]
            gathered[a] += edge * backward[b]
        colours = _mix(gathered)
    present = (edges.any(axis=1) | edges.any(axis=2)).T.astype(np.uint64)
    return _mix((present * _mix(colours + np.uint64(3))).sum(axis=0, dtype=np.uint64))


def cell_hash(cell: Cell101) -> int:
    """The hash of one cell; see :func:`graph_hashes`."""
    return int(graph_hashes(cell.edges()[None], np.array([cell.operations], dtype=np.uint8))[0])


def without_dead(edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """``edges`` (N, V, V) without those at vertices that are not on a path from input to output."""
    live = _live(edges).T
    return edges & live[:, :, None] & live[:, None, :]


def _live(edges: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(V, N): whether each vertex lies on a path from vertex 0 to vertex V - 1."""
    count, vertices = edges.shape[0], edges.shape[1]
    reached, needed = np.zeros((2, vertices, count), dtype=bool)
    reached[0] = needed[-1] = True
    for vertex in range(1, vertices):
        reached[vertex] = (edges[:, :vertex, vertex].T & reached[:vertex]).any(axis=0)
    for vertex in range(vertices - 2, -1, -1):
        needed[vertex] = (edges[:, vertex, vertex + 1 :].T & needed[vertex + 1 :]).any(axis=0)
    both: NDArray[np.bool_] = reached & needed
    return both


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A bijection of 64-bit words that spreads every bit (xor-shifts and odd multiplications)."""
    words = (words + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xD6E8FEB86659FD93)
    words ^= words >> np.uint64(32)
    words *= np.uint64(0xD6E8FEB86659FD93)
    words ^= words >> np.uint64(29)
    return words


# --- networks --------------------------------------------------------------------------------------------------------


def vertex_channels(cell: Cell101, channels: int) -> list[int]:
    """Channels of vertices 1 to n of a pruned ``cell`` whose output has ``channels``."""
    feeding = [vertex for vertex in cell.parents[-1] if vertex != 0]
    if channels < len(feeding):
        raise InputError(
            f"at least {len(feeding)} channels to divide among the vertices that feed the output", str(channels)
        )
    width = dict.fromkeys(range(1, cell.output), 0)
    for position, vertex in enumerate(feeding):
        width[vertex] = channels // len(feeding) + (position < channels % len(feeding))
    for vertex in range(cell.output - 1, 0, -1):
        if vertex not in feeding:
            width[vertex] = max(width[c] for c in range(vertex + 1, cell.output) if vertex in cell.parents[c - 1])
    return list(width.values())


def cell_cost(cell: Cell101, in_channels: int, channels: int, size: int) -> Cost:
    """Cost of one pruned cell.

    Args:
        cell: pruned.
        in_channels: of its input.
        channels: of its output.
        size: height and width of its images, in pixels.
    """
    total = Cost()
    widths = vertex_channels(cell, channels)
    for operation, parents, width in zip(cell.operations, cell.parents[:-1], widths, strict=True):
        total += OPERATIONS_101[operation].cost(width, width, size, 1)
        if 0 in parents:
            total += PROJECTION.cost(in_channels, width, size, 1)
    return total + PROJECTION.cost(in_channels, channels, size, 1) if 0 in cell.parents[-1] else total


def network_cost(cell: Cell101, scale: Scale) -> Cost:
    """Cost of the whole network of ``cell`` (pruned here) at ``scale``, for one image."""
    cell, channels, size = cell.pruned(), scale.channels, scale.image_size
    total = STEM.cost(scale.image_channels, channels, size, 1) + cell_cost(cell, channels, channels, size) * scale.cells
    for _ in range(2):
        wide, size = 2 * channels, ceil(size / 2)
        total += cell_cost(cell, channels, wide, size) + cell_cost(cell, wide, wide, size) * (scale.cells - 1)
        channels = wide
    return total + Cost((channels + 1) * scale.classes, channels * scale.classes)


class StandaloneCell101(nn.Module):
    """One pruned cell, (B, in_channels, H, W) to (B, channels, H, W)."""

    def __init__(self, cell: Cell101, in_channels: int, channels: int, pool_norm: bool) -> None:
        super().__init__()
        self.cell = cell
        self.widths = [*vertex_channels(cell, channels), channels]
        self.operations = nn.ModuleList(
            OPERATIONS_101[operation].build(width, width, 1, True, pool_norm)
            for operation, width in zip(cell.operations, self.widths, strict=False)
        )
        self.projections = nn.ModuleDict(
            {
                str(vertex): PROJECTION.build(in_channels, self.widths[vertex - 1], 1, True)
                for vertex, parents in enumerate(cell.parents, 1)
                if 0 in parents
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, H, W) to (B, channels, H, W), vertex by vertex."""
        states = [x]
        for vertex, parents in enumerate(self.cell.parents, 1):
            values = [states[parent] for parent in parents if parent]
            if vertex == self.cell.output:
                values = [torch.cat(values, dim=1)] if values else []
            values = [value[:, : self.widths[vertex - 1]] for value in values]
            if 0 in parents:
                values.append(self.projections[str(vertex)](x))
            total = reduce(add, values)
            states.append(total if vertex == self.cell.output else self.operations[vertex - 1](total))
        return states[-1]


class Skeleton101(Network):
    """Stem, three stages of cells, classifier. The cells may take further arguments (a supernet's weights).

    Args:
        scale: channels, cells a stage, image and class numbers.
        make_cell: from the channels of its input and of its stage, a module
            (B, in_channels, H, W) -> (B, blocks * channels, H, W).
        blocks: how many times the stage's channels a cell gives. NAS-Bench-101's cells give one; where they give
            more, a last 1x1 convolution brings the channels back before the classifier.
    """

    def __init__(self, scale: Scale, make_cell: Callable[[int, int], nn.Module], blocks: int | None = None) -> None:
        super().__init__()
        channels = width = scale.channels
        self.stem = STEM.build(scale.image_channels, channels, 1, True)
        self.stages = nn.ModuleList()
        for stage in range(3):
            channels *= 2 if stage else 1
            cells = nn.ModuleList()
            for _ in range(scale.cells):
                cells.append(make_cell(width, channels))
                width = channels * (blocks or 1)
            self.stages.append(cells)
        self.last: nn.Module = nn.Identity()
        if blocks is not None:
            convolution = nn.Conv2d(width, channels, 1, bias=False)
            self.last = nn.Sequential(nn.ReLU(), convolution, nn.BatchNorm2d(channels, affine=False))
        self.classifier = nn.Linear(channels, scale.classes)

    def cells(self) -> list[nn.Module]:
        """All cells in order."""
        return [cell for stage in self.stages for cell in stage]  # type: ignore[attr-defined]

    def forward(self, x: Tensor, *cell_arguments: Any) -> Tensor:
        """Images ``x`` (B, image_channels, H, W) to logits (B, classes); ``cell_arguments`` go to every cell."""
        x = self.stem(x)
        for stage, cells in enumerate(self.stages):
            if stage:
                x = F.max_pool2d(x, 2, 2, ceil_mode=True)
            for cell in cells:  # type: ignore[attr-defined]
                x = cell(x, *cell_arguments)
        logits: Tensor = self.classifier(self.last(x).mean(dim=(2, 3)))
        return logits


def build_network(cell: Cell101, scale: Scale) -> Skeleton101:
    """The network of ``cell`` (pruned here) at ``scale``, as NAS-Bench-101 trains it."""
    whole = cell.pruned()
    return Skeleton101(scale, lambda before, channels: StandaloneCell101(whole, before, channels, scale.pool_norm))
