"""Width and depth of a DARTS-style cell: wide, shallow cells train fast, deep, narrow ones poorly (Shu et al., 2020).

*Depth* is the number of connections on the longest path from an input of the cell to its output; that of a node to the
output, where nodes are joined, counts as one. *Width*, in units of a node's channels, adds up over the nodes the share
of their incoming edges that come from the cell's two inputs. Only what carries something counts: not ``none``, nor an
edge from a node that nothing reaches, nor a node from which no path leads to the output.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from archwright.runs.files import Json
from archwright.spaces.cells import Cell, CellPair, Edge


@dataclass(frozen=True)
class CellTopology:
    """How a cell is connected.

    Attributes:
        width: in units of a node's channels.
        depth: connections on the longest path; 0 where no input reaches the output.
        skips: skip connections among the edges.
    """

    width: float
    depth: int
    skips: int


def cell_topology(cell: Cell) -> CellTopology:
    """Width, depth and number of skip connections of ``cell``."""
    nodes = _used_edges(cell)
    longest = {0: 0, 1: 0}
    for number, edges in nodes.items():
        longest[number] = 1 + max(longest[source] for _, source in edges)
    return CellTopology(
        width=sum(sum(source < 2 for _, source in edges) / len(edges) for edges in nodes.values()),
        depth=1 + max(longest[node] for node in cell.concat if node in nodes) if nodes else 0,
        skips=sum(operation == "skip_connect" for edges in nodes.values() for operation, _ in edges),
    )


def pair_topology(pair: CellPair) -> dict[str, dict[str, Json]]:
    """The topology of both cells of an architecture, as ``{"normal": {"width": ..., ...}, "reduce": {...}}``."""
    return {"normal": asdict(cell_topology(pair.normal)), "reduce": asdict(cell_topology(pair.reduce))}


def _used_edges(cell: Cell) -> dict[int, list[Edge]]:
    """Nodes on a path from an input to the output, in order, and those of their edges that carry something."""
    reached: dict[int, list[Edge]] = {0: [], 1: []}
    for number, node in enumerate(cell.nodes, 2):
        edges = [(operation, source) for operation, source in node if operation != "none" and source in reached]
        if edges:
            reached[number] = edges
    useful = set(cell.concat)
    for number in sorted(reached, reverse=True):
        if number in useful:
            useful |= {source for _, source in reached[number]}
    return {number: edges for number, edges in reached.items() if number >= 2 and number in useful}
