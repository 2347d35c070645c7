"""The DARTS space: two cells of four nodes, two inputs a node, seven operations (``none`` only while searching)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import comb, prod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.spaces.base import Encoding, Network, Scale
from archwright.spaces.cell_space import CellSpace, EdgeCell, MakeCell
from archwright.spaces.cells import (
    Cell,
    CellNetwork,
    CellPair,
    Edge,
    build_cells,
    cost_cells,
    parse_cell_pair,
    reaches_output,
)
from archwright.spaces.operations import Cost
from archwright.spaces.supernet_space import DecisionScores, DrawnRows

NAMES = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
NODES = 4
EDGES: tuple[tuple[int, int], ...] = tuple((source, node) for node in range(2, NODES + 2) for source in range(node))
"""(source, target) of the 14 possible edges of a cell, in the order of the rows of an encoding."""
CONCAT = tuple(range(2, NODES + 2))
NORMAL = EdgeCell("normal", EDGES, inputs=2, join="concat")
REDUCE = EdgeCell("reduce", EDGES, inputs=2, join="concat", reduction=True)


class Darts(CellSpace[CellPair]):
    """The cell space of DARTS for CIFAR and ImageNet."""

    name = "darts"
    operations = NAMES
    fewest_cells = 3
    edges_compete = True
    fewest_channels = 4
    additive_costs: ClassVar[bool] = True
    scales: ClassVar[Mapping[str, Scale]] = {
        "paper": Scale(channels=36, cells=20, auxiliary=True),
        "imagenet": Scale(channels=48, cells=14, classes=1000, image_size=224, stem="imagenet", auxiliary=True),
        "search": Scale(channels=16, cells=8),
        "small": Scale(channels=8, cells=3),
    }

    @property
    def size(self) -> int:
        """About 1.08e18: per cell, each node's two distinct sources and their operations."""
        return int(prod(comb(node, 2) * 7 * 7 for node in CONCAT)) ** 2

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """One row an edge, one column an operation, for each kind of cell."""
        return {"normal": (len(EDGES), len(NAMES)), "reduce": (len(EDGES), len(NAMES))}

    def sample(self, rng: np.random.Generator) -> CellPair:
        """Two distinct sources a node and their operations, uniformly."""
        return CellPair(_sample_cell(rng), _sample_cell(rng))

    def parse(self, text: str) -> CellPair:
        """Read the JSON form and check that it is of this space."""
        pair = parse_cell_pair(text)
        for name, cell in (("normal", pair.normal), ("reduce", pair.reduce)):
            problem = _problem(cell)
            if problem:
                raise InputError(
                    "a cell of the darts space (4 nodes with 2 inputs from distinct sources, all nodes joined)",
                    f"a {name} cell with {problem}",
                )
        return pair

    def encode(self, architecture: CellPair) -> Encoding:
        """(14, 8) a cell; rows of unused edges are zero."""
        return {"normal": encode_cell(architecture.normal), "reduce": encode_cell(architecture.reduce)}

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> CellPair:
        """The pair of cells whose :meth:`encode` this is; anything else is refused."""
        arrays = self.check_encoding(encoding)
        return CellPair(_decode_cell("normal", arrays["normal"]), _decode_cell("reduce", arrays["reduce"]))

    def neighbours(self, architecture: CellPair) -> list[CellPair]:
        """One other operation on an edge, or one other source for it, in either cell."""
        normal = [CellPair(cell, architecture.reduce) for cell in _cell_neighbours(architecture.normal)]
        return normal + [CellPair(architecture.normal, cell) for cell in _cell_neighbours(architecture.reduce)]

    def crossover(self, first: CellPair, second: CellPair, rng: np.random.Generator) -> CellPair:
        """Each node, with both its inputs, from either parent."""

        def mix(one: Cell, other: Cell) -> Cell:
            picks = rng.integers(2, size=NODES)
            return Cell(tuple((one, other)[p].nodes[i] for i, p in enumerate(picks)), CONCAT)

        return CellPair(mix(first.normal, second.normal), mix(first.reduce, second.reduce))

    def canonical(self, architecture: CellPair) -> CellPair:
        """The smallest of all renumberings of the nodes that keep sources before targets."""
        return CellPair(canonical_cell(architecture.normal), canonical_cell(architecture.reduce))

    def is_connected(self, architecture: CellPair) -> bool:
        """Always true here: no genotype has ``none``."""
        return reaches_output(architecture.normal) and reaches_output(architecture.reduce)

    def build(self, architecture: CellPair, scale: Scale) -> Network:
        """The evaluation network (with ``pool_norm``, the network a supernet's path is)."""
        self.check_scale(scale)
        return build_cells(architecture, scale)

    def cost(self, architecture: CellPair, scale: Scale) -> Cost:
        """Counted by formula, auxiliary head left out."""
        self.check_scale(scale)
        return cost_cells(architecture, scale)

    # --- supernets and their searches ---

    def skeleton(self, scale: Scale, make_cell: MakeCell, affine: bool = True) -> Network:
        """Normal and reduction cells, each with two inputs and all its nodes joined."""

        def place(channels: int, reduction: bool) -> nn.Module:
            return make_cell(REDUCE if reduction else NORMAL, channels, channels)

        return CellNetwork(scale, (NODES, NODES), place, affine)

    def check_scale(self, scale: Scale) -> None:
        """Also refuses fewer than four channels: two in a depth-wise convolution end the process (torch 2.13)."""
        super().check_scale(scale)
        if scale.channels < self.fewest_channels:
            raise InputError(f"at least {self.fewest_channels} channels in the {self.name} space", str(scale.channels))

    def supernet_scale(self, scale: Scale) -> Scale:
        """With a batch norm after every pool, which final networks do not have: pooling must not win by its scale."""
        return super().supernet_scale(scale).changed(pool_norm=True)

    def derive(self, weights: DecisionScores) -> CellPair:
        """The strongest operation other than ``none`` of every edge; a node keeps the two edges where it is largest."""
        return self.decode({name: self._two_edges_a_node(np.asarray(weights[name])) for name in self.decisions})

    def _two_edges_a_node(self, weights: NDArray[np.floating[Any]]) -> NDArray[np.int8]:
        """0/1 rows of the kept edges, (14, 8)."""
        columns = self.strongest_columns("normal", weights)
        chosen = np.eye(len(NAMES), dtype=np.int8)[columns]
        strength = np.take_along_axis(weights, columns[:, None], axis=1)[:, 0]
        for node in CONCAT:
            rows = [row for row, (_, target) in enumerate(EDGES) if target == node]
            for row in sorted(rows, key=lambda row: -strength[row])[2:]:
                chosen[row] = 0
        return chosen

    @property
    def draws(self) -> dict[str, DrawnRows]:
        """One row of operations and one of inputs for each node, chosen independently (as the thesis' NASI does)."""
        rows: dict[str, DrawnRows] = {}
        for cell in self.decisions:
            rows[f"{cell}:operation"] = DrawnRows(NODES, len(NAMES), tuple(self.candidates(cell).tolist()))
            rows |= {f"{cell}:inputs:{node}": DrawnRows(1, node, tuple(range(node))) for node in CONCAT}
        return rows

    def weights_of(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """An edge's weights are its node's operations where its source was drawn, zero elsewhere."""
        weights = {}
        for cell in self.decisions:
            operations = drawn[f"{cell}:operation"]
            edges = [drawn[f"{cell}:inputs:{node}"][0, source] * operations[node - 2] for source, node in EDGES]
            weights[cell] = torch.stack(edges)
        return weights

    def derive_draws(self, scores: DecisionScores) -> CellPair:
        """Of each node the two strongest operations and the two strongest inputs, paired in order."""
        cells = []
        for cell in self.decisions:
            nodes = []
            for node in CONCAT:
                operations = np.argsort(-scores[f"{cell}:operation"][node - 2, 1:], kind="stable")[:2] + 1
                inputs = np.argsort(-scores[f"{cell}:inputs:{node}"][0], kind="stable")[:2]
                pairs = zip(operations, inputs, strict=True)
                nodes.append(tuple((NAMES[int(o)], int(i)) for o, i in pairs))
            cells.append(Cell(tuple(nodes), CONCAT))
        return CellPair(cells[0], cells[1])


def _sample_cell(rng: np.random.Generator) -> Cell:
    nodes = []
    for node in CONCAT:
        sources = rng.choice(node, size=2, replace=False)
        nodes.append(tuple((NAMES[int(rng.integers(1, len(NAMES)))], int(source)) for source in sources))
    return Cell(tuple(nodes), CONCAT)


def _problem(cell: Cell) -> str:
    """What keeps ``cell`` out of the space; empty if nothing does."""
    if len(cell.nodes) != NODES or cell.concat != CONCAT:
        return f"{len(cell.nodes)} nodes, joined {list(cell.concat)}"
    for number, node in enumerate(cell.nodes, 2):
        if len({source for _, source in node}) != 2 or len(node) != 2:
            return f"the inputs {[list(edge) for edge in node]} at node {number}"
        for operation, _ in node:
            if operation not in NAMES[1:]:
                return f"the operation {operation!r} (known here: {', '.join(NAMES[1:])})"
    return ""


def encode_cell(cell: Cell) -> NDArray[np.int8]:
    """0/1 of (edge, operation), (14, 8)."""
    array = np.zeros((len(EDGES), len(NAMES)), dtype=np.int8)
    for number, node in enumerate(cell.nodes, 2):
        for operation, source in node:
            array[EDGES.index((source, number)), NAMES.index(operation)] = 1
    return array


def _decode_cell(name: str, array: NDArray[np.int8]) -> Cell:
    nodes: list[list[Edge]] = [[] for _ in CONCAT]
    for row, (source, target) in enumerate(EDGES):
        for column in np.flatnonzero(array[row]):
            nodes[target - 2].append((NAMES[column], source))
    cell = Cell(tuple(map(tuple, nodes)), CONCAT)
    problem = _problem(cell)
    if problem:
        raise InputError(f"two inputs a node in the decision {name!r}", problem)
    return cell


def _cell_neighbours(cell: Cell) -> list[Cell]:
    found = []
    for index, node in enumerate(cell.nodes):
        for position, (operation, source) in enumerate(node):
            other = node[1 - position]
            edges = [(name, source) for name in NAMES[1:] if name != operation]
            edges += [(operation, new) for new in range(index + 2) if new not in (source, other[1])]
            for edge in edges:
                nodes = list(cell.nodes)
                nodes[index] = (edge, other)
                found.append(Cell(tuple(nodes), CONCAT))
    return found


def canonical_cell(cell: Cell) -> Cell:
    """The smallest renumbering of the nodes that keeps sources before targets."""
    best = cell
    for order in itertools.permutations(range(NODES)):
        place = {0: 0, 1: 1, **{old + 2: new + 2 for new, old in enumerate(order)}}
        nodes = tuple(tuple((name, place[source]) for name, source in cell.nodes[old]) for old in order)
        if all(source < number for number, node in enumerate(nodes, 2) for _, source in node):
            best = min(best, Cell(nodes, CONCAT))
    return best


DARTS = Darts()
