"""DARTS cells without the rule of two: a node may have any number of inputs, several from one source, or none at all.

CoNAS' free cells (its "CoNAS (1)") are architectures of this space, as are published cells with ``none`` in them. An
edge carries any set of the eight operations, which are summed (``none`` adds nothing); the same operation twice on one
edge is not of the space.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces.cells import Cell, CellPair, Edge, parse_cell_pair, reaches_output
from archwright.spaces.darts import CONCAT, EDGES, NAMES, NODES, Darts, canonical_cell, encode_cell
from archwright.spaces.supernet_space import DecisionScores, Masks


class DartsFree(Darts):
    """Four nodes a cell, any operations on every edge."""

    name = "darts-free"
    any_encoding: ClassVar[bool] = True

    @property
    def supernet_name(self) -> str:
        """Its supernet is that of DARTS."""
        return Darts.name

    @property
    def size(self) -> int:
        """2^224, about 2.7e67: every operation of every edge on or off."""
        return int(2 ** (2 * len(EDGES) * len(NAMES)))

    def sample(self, rng: np.random.Generator) -> CellPair:
        """Every operation of every edge with probability one half."""
        normal, reduce = rng.integers(2, size=(2, len(EDGES), len(NAMES)), dtype=np.int8)
        return CellPair(_decode_cell(normal), _decode_cell(reduce))

    def parse(self, text: str) -> CellPair:
        """Read the JSON form and check that it is of this space."""
        pair = parse_cell_pair(text)
        for name, cell in (("normal", pair.normal), ("reduce", pair.reduce)):
            problem = _problem(cell)
            if problem:
                raise InputError(
                    "a cell of four nodes with operations of DARTS, all nodes joined", f"{name}: {problem}"
                )
        return pair

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> CellPair:
        """The pair of cells whose :meth:`encode` this is, which every 0/1 array is."""
        arrays = self.check_encoding(encoding)
        return CellPair(_decode_cell(arrays["normal"]), _decode_cell(arrays["reduce"]))

    def neighbours(self, architecture: CellPair) -> list[CellPair]:
        """One operation more or less on an edge, in either cell."""
        normal = [CellPair(cell, architecture.reduce) for cell in _cell_neighbours(architecture.normal)]
        return normal + [CellPair(architecture.normal, cell) for cell in _cell_neighbours(architecture.reduce)]

    def canonical(self, architecture: CellPair) -> CellPair:
        """Without ``none`` and edges of nodes that nothing reaches; then the smallest renumbering of the nodes."""
        return CellPair(canonical_cell(_pruned(architecture.normal)), canonical_cell(_pruned(architecture.reduce)))

    def is_connected(self, architecture: CellPair) -> bool:
        """Whether an input reaches the output of both cells, and so of a network of any depth."""
        return super().is_connected(architecture)

    def kept(self, architecture: CellPair) -> dict[str, list[tuple[int, str]]]:
        """As a stand-alone cell orders its modules: by node, source and name."""
        cells = {"normal": architecture.normal, "reduce": architecture.reduce}
        return {
            name: [
                (EDGES.index((source, node)), operation)
                for node, edges in enumerate(cell.nodes, 2)
                for operation, source in edges
            ]
            for name, cell in cells.items()
        }

    def of_subgraph(self, on: Masks, scores: DecisionScores, rng: np.random.Generator | None) -> CellPair:
        """Every operation that is on.

        A cell in which no input reaches the output takes, besides, the operation with the largest score on an edge that
        leaves an input.
        """
        from_inputs = [row for row, (source, _) in enumerate(EDGES) if source < 2]
        arrays = {name: mask.astype(np.int8) for name, mask in on.items()}
        for name, array in arrays.items():
            if not reaches_output(_decode_cell(array)):
                worth = np.asarray(scores[name])[from_inputs, 1:]
                row, column = np.unravel_index(int(worth.argmax()), worth.shape)
                array[from_inputs[int(row)], int(column) + 1] = 1
        return self.decode(arrays)


def _problem(cell: Cell) -> str:
    """What keeps ``cell`` out of the space; empty if nothing does."""
    if len(cell.nodes) != NODES or cell.concat != CONCAT:
        return f"{len(cell.nodes)} nodes, joined {list(cell.concat)}"
    for number, node in enumerate(cell.nodes, 2):
        unknown = [operation for operation, _ in node if operation not in NAMES]
        if unknown:
            return f"the operation {unknown[0]!r} (known here: {', '.join(NAMES)})"
        if len(set(node)) != len(node):
            return f"an operation twice on one edge at node {number}"
    return ""


def _decode_cell(array: NDArray[np.int8]) -> Cell:
    nodes: list[list[Edge]] = [[] for _ in CONCAT]
    for row, (source, target) in enumerate(EDGES):
        nodes[target - 2] += [(NAMES[column], source) for column in np.flatnonzero(array[row])]
    return Cell(tuple(map(tuple, nodes)), CONCAT)


def _cell_neighbours(cell: Cell) -> list[Cell]:
    array, found = encode_cell(cell), []
    for row in range(len(EDGES)):
        for column in range(len(NAMES)):
            other = array.copy()
            other[row, column] = 1 - array[row, column]
            found.append(_decode_cell(other))
    return found


def _pruned(cell: Cell) -> Cell:
    live, nodes = {0, 1}, []
    for number, node in enumerate(cell.nodes, 2):
        nodes.append(tuple(edge for edge in node if edge[0] != "none" and edge[1] in live))
        if nodes[-1]:
            live.add(number)
    return Cell(tuple(nodes), CONCAT)


DARTS_FREE = DartsFree()
