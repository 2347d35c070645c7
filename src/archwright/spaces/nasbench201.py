"""NAS-Bench-201: cells of four nodes whose six edges each carry one of five operations; 15,625 architectures.

An architecture's text is the benchmark's own: ``|op~0|+|op~0|op~1|+|op~0|op~1|op~2|``. The network is a stem, three
stages of cells joined by residual blocks that halve the image and double the channels, and a classifier.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.spaces.base import Architecture, Encoding, Network, Scale
from archwright.spaces.cell_space import CellSpace, EdgeCell, MakeCell
from archwright.spaces.operations import OPERATIONS, RELU_CONV_3X3, Cost, DropPath, norm_params
from archwright.spaces.supernet_space import DecisionScores, Masks

EDGES: tuple[tuple[int, int], ...] = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""(source, target) of each edge, in the order of the text form."""

PATTERN = EdgeCell("cell", EDGES)
NAMES = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
_EDGE_TEXT = re.compile(r"([a-z0-9_]+)~(\d)")


@dataclass(frozen=True, order=True)
class Cell201(Architecture):
    """Operation index (into :data:`NAMES`) of each of the six edges."""

    operations: tuple[int, int, int, int, int, int]

    def __str__(self) -> str:
        words = [f"{NAMES[o]}~{source}" for o, (source, _) in zip(self.operations, EDGES, strict=True)]
        return f"|{words[0]}|+|{words[1]}|{words[2]}|+|{words[3]}|{words[4]}|{words[5]}|"

    @property
    def index(self) -> int:
        """Position in the lexicographic list of :func:`all_operations` (not the benchmark's own numbering)."""
        return int(np.ravel_multi_index(self.operations, (5,) * 6))


class NasBench201(CellSpace[Cell201]):
    """The topology space of NAS-Bench-201 (NATS-Bench)."""

    name = "nasbench201"
    operations = NAMES
    scales: ClassVar[Mapping[str, Scale]] = {
        "paper": Scale(channels=16, cells=5),
        "search": Scale(channels=16, cells=5),
        "small": Scale(channels=8, cells=1),
    }

    proxy_size = 4

    @property
    def size(self) -> int:
        """15,625: five operations on each of six edges."""
        return 15_625

    def enumerated(self) -> Iterator[Cell201]:
        """In the order of :func:`all_operations`."""
        return (cell_of(row) for row in all_operations().tolist())

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """One row an edge, one column an operation."""
        return {"cell": (6, 5)}

    def sample(self, rng: np.random.Generator) -> Cell201:
        """A cell whose operations are drawn uniformly, edge by edge."""
        return cell_of(rng.integers(5, size=6))

    def parse(self, text: str) -> Cell201:
        """Read the benchmark's text form."""
        expected = "an architecture like '|op~0|+|op~0|op~1|+|op~0|op~1|op~2|' with op one of " + ", ".join(NAMES)
        nodes = text.strip().split("+")
        if len(nodes) != 3:
            raise InputError(expected, f"{text!r} ({len(nodes)} nodes instead of 3)")
        operations: list[int] = []
        for target, node in enumerate(nodes, 1):
            if len(node) < 2 or node[0] != "|" or node[-1] != "|":
                raise InputError(expected, f"{text!r} (node {target} does not begin and end with '|')")
            words = node[1:-1].split("|")
            if len(words) != target:
                raise InputError(expected, f"{text!r} (node {target} has {len(words)} edges instead of {target})")
            for source, word in enumerate(words):
                match = _EDGE_TEXT.fullmatch(word)
                if match is None or match[1] not in NAMES or int(match[2]) != source:
                    raise InputError(expected, f"{text!r} (edge {word!r} where an operation with '~{source}' belongs)")
                operations.append(NAMES.index(match[1]))
        return cell_of(operations)

    def encode(self, architecture: Cell201) -> Encoding:
        """(6, 5), one 1 a row."""
        return {"cell": np.eye(5, dtype=np.int8)[list(architecture.operations)]}

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> Cell201:
        """The cell whose :meth:`encode` this is; anything else is refused."""
        array = self.check_encoding(encoding)["cell"]
        if not (array.sum(axis=1) == 1).all():
            raise InputError(
                "exactly one operation an edge", f"{array.sum(axis=1).tolist()} operations on the six edges"
            )
        return cell_of(array.argmax(axis=1))

    def neighbours(self, architecture: Cell201) -> list[Cell201]:
        """The 24 cells with one other operation on one edge."""
        found = []
        for edge, other in itertools.product(range(6), range(5)):
            if other != architecture.operations[edge]:
                changed = list(architecture.operations)
                changed[edge] = other
                found.append(cell_of(changed))
        return found

    def crossover(self, first: Cell201, second: Cell201, rng: np.random.Generator) -> Cell201:
        """Each edge from either parent."""
        return cell_of(np.where(rng.integers(2, size=6) == 0, first.operations, second.operations))

    def canonical(self, architecture: Cell201) -> Cell201:
        """The first cell, in lexicographic order, of the 4,930 classes of :func:`canonical_index`."""
        return cell_of(all_operations()[canonical_index()[architecture.index]])

    def is_connected(self, architecture: Cell201) -> bool:
        """Whether some path of non-zero operations leads from node 0 to node 3."""
        return _expression(architecture.operations) != ()

    def check_scale(self, scale: Scale) -> None:
        """As for every space; the benchmark's skeleton has no other stem."""
        if scale.stem != "plain":
            raise InputError("the stem 'plain' in nasbench201", repr(scale.stem))
        super().check_scale(scale)

    def build(self, architecture: Cell201, scale: Scale) -> Network:
        """The macro skeleton with this cell."""
        self.check_scale(scale)
        return self.skeleton(
            scale, lambda _pattern, _before, channels: StandaloneCell201(architecture, channels, scale.pool_norm)
        )

    def skeleton(self, scale: Scale, make_cell: MakeCell, affine: bool = True) -> Network:
        """Three stages of one kind of cell; its input is the residual block's output, whose norms are always affine."""
        return Skeleton201(scale, lambda channels: make_cell(PATTERN, channels, channels))

    def of_subgraph(self, on: Masks, scores: DecisionScores, rng: np.random.Generator | None) -> Cell201:
        """One of the operations that are on, uniformly, on every edge, and ``none`` where none is.

        Where that leaves the output without an input, empty edges take the operation with the largest score.
        """
        if rng is None:
            largest = np.where(on["cell"], scores["cell"], -np.inf).argmax(axis=1)
            chosen = [int(c) if row.any() else 0 for c, row in zip(largest, on["cell"], strict=True)]
        else:
            chosen = [int(rng.choice(np.flatnonzero(row))) if row.any() else 0 for row in on["cell"]]
        architecture = Cell201(tuple(chosen))  # type: ignore[arg-type]
        if not self.is_connected(architecture):
            best = self.strongest_columns("cell", np.asarray(scores["cell"]))
            filled = tuple(c or int(b) for c, b in zip(chosen, best, strict=True))
            architecture = Cell201(filled)  # type: ignore[arg-type]
        return architecture

    def cost(self, architecture: Cell201, scale: Scale) -> Cost:
        """Sum over stem, cells, residual blocks and classifier."""
        self.check_scale(scale)
        channels, size = scale.channels, scale.image_size
        total = Cost(9 * scale.image_channels * channels, 9 * scale.image_channels * channels * size * size)
        total += norm_params(channels)
        for stage in range(3):
            if stage:
                total += ResidualBlock.cost(channels, size)
                channels, size = 2 * channels, ceil(size / 2)
            for operation in architecture.operations:
                total += OPERATIONS[NAMES[operation]].cost(channels, channels, size, 1) * scale.cells
        classifier = Cost((channels + 1) * scale.classes, channels * scale.classes)
        return total + norm_params(channels) + classifier


def cell_of(operations: Iterable[Any]) -> Cell201:
    """The cell with these six operation indices."""
    a, b, c, d, e, f = (int(o) for o in operations)
    return Cell201((a, b, c, d, e, f))


# --- canonical forms -------------------------------------------------------------------------------------------------

Expression = tuple[Any, ...]
"""A node as a sorted tuple (multiset) of terms; a term is ``"x"`` (the cell's input) or (operation, Expression)."""


def _expression(operations: tuple[int, ...]) -> Expression:
    """What the output node computes: nothing of nothing is nothing, a skip passes its terms on, sums are multisets."""
    nodes: list[list[Any]] = [["x"], [], [], []]
    for operation, (source, target) in zip(operations, EDGES, strict=True):
        terms = nodes[source]
        if NAMES[operation] == "none" or not terms:
            continue
        if NAMES[operation] == "skip_connect":
            nodes[target].extend(terms)
        else:
            nodes[target].append((NAMES[operation], tuple(sorted(terms, key=repr))))
    return tuple(sorted(nodes[3], key=repr))


@cache
def all_operations() -> NDArray[np.uint8]:
    """All cells, (15625, 6), in lexicographic order."""
    grid = np.indices((5,) * 6, dtype=np.uint8).reshape(6, -1)
    return np.ascontiguousarray(grid.T)


@cache
def canonical_index() -> NDArray[np.int64]:
    """For each row of :func:`all_operations`, the row of its class' representative, (15625,); 4,930 distinct values."""
    first: dict[Expression, int] = {}
    return np.array([first.setdefault(_expression(tuple(row)), i) for i, row in enumerate(all_operations().tolist())])


# --- networks --------------------------------------------------------------------------------------------------------


class StandaloneCell201(nn.Module):
    """The cell as a network: node j is the sum of its incoming edges; node 3 is the output."""

    def __init__(self, architecture: Cell201, channels: int, pool_norm: bool = False) -> None:
        super().__init__()
        self.edges = nn.ModuleList(
            OPERATIONS[NAMES[o]].build(channels, channels, 1, True, pool_norm) for o in architecture.operations
        )
        self.live = [NAMES[o] != "none" for o in architecture.operations]
        self.drop = DropPath()

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to the same shape."""
        nodes: list[Tensor | None] = [x, None, None, None]
        for edge, live, (source, target) in zip(self.edges, self.live, EDGES, strict=True):
            value = nodes[source]
            if live and value is not None:
                value = edge(value) if isinstance(edge, nn.Identity) else self.drop(edge(value))
                so_far = nodes[target]
                nodes[target] = value if so_far is None else so_far + value
        output = nodes[3]
        return torch.zeros_like(x) if output is None else output


class ResidualBlock(nn.Module):
    """Between stages: halve the image, double the channels; shortcut by average pooling and a 1x1 convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = RELU_CONV_3X3.build(channels, 2 * channels, 2, True)
        self.second = RELU_CONV_3X3.build(2 * channels, 2 * channels, 1, True)
        self.pool = nn.AvgPool2d(2, 2, ceil_mode=True)
        self.shortcut = nn.Conv2d(channels, 2 * channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, 2C, ceil(H/2), ceil(W/2))."""
        out: Tensor = self.second(self.first(x)) + self.shortcut(self.pool(x))
        return out

    @staticmethod
    def cost(channels: int, size: int) -> Cost:
        """Cost of one block fed with ``channels`` channels of ``size`` x ``size`` pixels."""
        small, wide = ceil(size / 2), 2 * channels
        shortcut = Cost(channels * wide, channels * wide * small * small)
        first = RELU_CONV_3X3.cost(channels, wide, size, 2)
        return first + RELU_CONV_3X3.cost(wide, wide, small, 1) + shortcut


class Skeleton201(Network):
    """Stem, three stages of cells, classifier. The cells may take further arguments (a supernet's weights).

    Args:
        scale: channels, cells a stage, image and class numbers.
        make_cell: from the channel number, a module (B, C, H, W) -> (B, C, H, W).
    """

    def __init__(self, scale: Scale, make_cell: Callable[[int], nn.Module]) -> None:
        super().__init__()
        channels = scale.channels
        self.stem = nn.Sequential(
            nn.Conv2d(scale.image_channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        )
        self.stages = nn.ModuleList()
        self.reductions = nn.ModuleList()
        for stage in range(3):
            if stage:
                self.reductions.append(ResidualBlock(channels))
                channels *= 2
            self.stages.append(nn.ModuleList(make_cell(channels) for _ in range(scale.cells)))
        self.last_norm = nn.BatchNorm2d(channels)
        self.classifier = nn.Linear(channels, scale.classes)

    def cells(self) -> list[nn.Module]:
        """All cells in order."""
        return [cell for stage in self.stages for cell in stage]  # type: ignore[attr-defined]

    def blocks(self) -> list[nn.Module]:
        """Stem, cells and reductions in order."""
        found: list[nn.Module] = [self.stem]
        for stage, cells in enumerate(self.stages):
            found += [self.reductions[stage - 1]] if stage else []
            found += cells.children()
        return found

    def forward(self, x: Tensor, *cell_arguments: Any) -> Tensor:
        """Images ``x`` (B, image_channels, H, W) to logits (B, classes); ``cell_arguments`` go to every cell."""
        x = self.stem(x)
        for stage, cells in enumerate(self.stages):
            if stage:
                x = self.reductions[stage - 1](x)
            for cell in cells:  # type: ignore[attr-defined]
                x = cell(x, *cell_arguments)
        pooled = torch.relu(self.last_norm(x)).mean(dim=(2, 3))
        logits: Tensor = self.classifier(pooled)
        return logits


NASBENCH201 = NasBench201()
