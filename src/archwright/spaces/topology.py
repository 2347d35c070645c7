"""Width and depth of a cell: wide, shallow cells train fast, deep, narrow ones poorly (thesis, section 4.2.2).

*Depth* is the number of connections on the longest path from an input of the cell to its output; that of a node to the
output, where nodes are joined, counts as one. *Width*, in units of a node's channels, adds up over the intermediate
nodes the share of their incoming edges that come from the cell's inputs. Only what carries something counts: not
``none``, nor an edge from a node that nothing reaches, nor a node from which no path leads to the output.

A NAS-Bench-201 cell has one input and a last node that sums instead of joining: that node is the output itself, so an
edge into it ends a path and only the two nodes between have a width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from archwright.runs.files import Json
from archwright.spaces.base import Architecture
from archwright.spaces.cells import Cell, CellPair, Edge
from archwright.spaces.nasbench201 import EDGES, NAMES, Cell201


@dataclass(frozen=True)
class CellTopology:
    """How a cell is connected.

    Attributes:
        width: in units of a node's channels.
        depth: connections on the longest path; 0 where no input reaches the output.
        skips: skip connections among the edges that carry something.
        edges: how many edges carry something.
    """

    width: float
    depth: int
    skips: int
    edges: int

    @property
    def skip_share(self) -> float:
        """Part of the carrying edges that are skip connections."""
        return self.skips / self.edges if self.edges else 0.0

    def to_json(self) -> dict[str, Json]:
        """All of it as plain numbers."""
        return {**asdict(self), "skip_share": round(self.skip_share, 4)}


def cell_topology(cell: Cell) -> CellTopology:
    """Width, depth and skip connections of a DARTS-style cell with two inputs."""
    nodes = _used_edges(cell)
    longest = _longest_paths(nodes, inputs=2)
    return CellTopology(
        width=_width(nodes, inputs=2),
        depth=1 + max(longest[node] for node in cell.concat if node in nodes) if nodes else 0,
        skips=_skips(nodes),
        edges=sum(map(len, nodes.values())),
    )


def cell201_topology(cell: Cell201) -> CellTopology:
    """Width, depth and skip connections of a NAS-Bench-201 cell; its width is at most 2, its depth at most 3."""
    incoming: dict[int, list[Edge]] = {}
    for (source, target), operation in zip(EDGES, cell.operations, strict=True):
        incoming.setdefault(target, []).append((NAMES[operation], source))
    nodes = _carrying(incoming, inputs=1, outputs={3})
    return CellTopology(
        width=_width({number: edges for number, edges in nodes.items() if number < 3}, inputs=1),
        depth=_longest_paths(nodes, inputs=1).get(3, 0),
        skips=_skips(nodes),
        edges=sum(map(len, nodes.values())),
    )


def topology_of(architecture: Architecture) -> dict[str, CellTopology]:
    """The topology of every cell of an architecture by the cell's name; empty where it is not made of cells."""
    if isinstance(architecture, CellPair):
        return {"normal": cell_topology(architecture.normal), "reduce": cell_topology(architecture.reduce)}
    return {"cell": cell201_topology(architecture)} if isinstance(architecture, Cell201) else {}


def topology_json(architecture: Architecture) -> dict[str, Json]:
    """What :func:`topology_of` says, as JSON."""
    return {name: topology.to_json() for name, topology in topology_of(architecture).items()}


def _used_edges(cell: Cell) -> dict[int, list[Edge]]:
    """Nodes on a path from an input to the output, in order, and those of their edges that carry something."""
    return _carrying(dict(enumerate(cell.nodes, 2)), inputs=2, outputs=set(cell.concat))


def _carrying(nodes: Mapping[int, Sequence[Edge]], inputs: int, outputs: set[int]) -> dict[int, list[Edge]]:
    """Of nodes given with their incoming edges: those between an input and an output, with the edges that carry."""
    reached: dict[int, list[Edge]] = {number: [] for number in range(inputs)}
    for number, node in nodes.items():
        edges = [(operation, source) for operation, source in node if operation != "none" and source in reached]
        if edges:
            reached[number] = edges
    useful = set(outputs)
    for number in sorted(reached, reverse=True):
        if number in useful:
            useful |= {source for _, source in reached[number]}
    return {number: edges for number, edges in reached.items() if number >= inputs and number in useful}


def _longest_paths(nodes: Mapping[int, list[Edge]], inputs: int) -> dict[int, int]:
    """Edges on the longest path from an input to each node."""
    longest = dict.fromkeys(range(inputs), 0)
    for number, edges in nodes.items():
        longest[number] = 1 + max(longest[source] for _, source in edges)
    return longest


def _width(nodes: Mapping[int, list[Edge]], inputs: int) -> float:
    return sum(sum(source < inputs for _, source in edges) / len(edges) for edges in nodes.values())


def _skips(nodes: Mapping[int, list[Edge]]) -> int:
    return sum(operation == "skip_connect" for edges in nodes.values() for operation, _ in edges)
