"""Variants of a DARTS-style cell (thesis, appendix A.1.2): other connections, other operations, widest and shallowest.

The order of the nodes stays; a variant of connections keeps every operation, a variant of operations every source.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from archwright.errors import InputError
from archwright.spaces.cells import Cell, CellPair, Edge
from archwright.spaces.operations import OPERATIONS
from archwright.spaces.topology import cell_topology

Change = Callable[[Cell, np.random.Generator], Cell]
TRIES = 1000
"""Draws after which no further distinct variant is expected."""


def random_connections(cell: Cell, rng: np.random.Generator) -> Cell:
    """``cell`` with every source drawn anew by ``rng``, uniformly from the nodes before; operations stay in place."""
    return _changed(cell, lambda number, edge: (edge[0], int(rng.integers(number))))


def random_operations(cell: Cell, rng: np.random.Generator, operations: Sequence[str]) -> Cell:
    """``cell`` with every operation drawn anew by ``rng``, uniformly from ``operations``; the connections stay."""
    unknown = [name for name in operations if name not in OPERATIONS]
    if unknown or not operations:
        raise InputError("one or more known operations", ", ".join(unknown) or "none")
    return _changed(cell, lambda _, edge: (operations[int(rng.integers(len(operations)))], edge[1]))


def widest(cell: Cell) -> Cell:
    """The widest and shallowest adaptation (section 4.4): a node's edges come from the cell's inputs in turn."""
    nodes = tuple(tuple((edge[0], place % 2) for place, edge in enumerate(node)) for node in cell.nodes)
    return replace(cell, nodes=nodes)


def adapted(pair: CellPair) -> CellPair:
    """Both cells in their widest and shallowest form."""
    return CellPair(widest(pair.normal), widest(pair.reduce))


def distinct_variants(cell: Cell, change: Change, count: int, rng: np.random.Generator) -> list[Cell]:
    """Variants that differ from the cell and from each other, the deepest and narrowest first (Table 4.2).

    Args:
        cell: to be varied.
        change: makes a variant of a cell, as :func:`random_connections` does.
        count: number of variants; a cell with fewer is refused.
        rng: generator of the draws.
    """
    found: dict[Cell, None] = {}
    for _ in range(TRIES + 10 * count):
        variant = change(cell, rng)
        if variant != cell and cell_topology(variant).depth > 0:
            found[variant] = None
        if len(found) == count:
            break
    if len(found) < count:
        raise InputError(f"a cell with at least {count} variants", f"one with {len(found)}", "Ask for fewer.")

    def narrow_and_deep(variant: Cell) -> tuple[float, int]:
        topology = cell_topology(variant)
        return topology.width, -topology.depth

    return sorted(found, key=narrow_and_deep)


def connections(nodes: int, inputs: int = 2) -> Iterator[tuple[int, ...]]:
    """All ways to give one source to each intermediate node of a cell of N ``nodes``, of which ``inputs`` come first.

    The output is counted among the nodes.
    """
    return itertools.product(*(range(number) for number in range(inputs, nodes - 1)))


def number_of_connections(nodes: int, inputs: int = 2, sources: int = 1) -> int:
    """((N-2)! / (M-1)!)^sources; the thesis counts one source a node.

    Args:
        nodes: N, inputs and output included.
        inputs: M, input nodes of the cell.
        sources: sources of each intermediate node.
    """
    one: int = math.factorial(nodes - 2) // math.factorial(inputs - 1)
    return int(one**sources)


def _changed(cell: Cell, edge_of: Callable[[int, Edge], Edge]) -> Cell:
    nodes = tuple(tuple(edge_of(number, edge) for edge in node) for number, node in enumerate(cell.nodes, 2))
    return replace(cell, nodes=nodes)
