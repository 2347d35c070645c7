"""Cells as graphs in SVG: plain text, no system program, the same drawing everywhere.

Nodes stand in columns by their distance from the inputs (the longest path, which is the depth), sources left of their
targets. Operations are written on their edges and coloured by kind; what carries nothing is dashed and grey.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from archwright.errors import InputError
from archwright.spaces.base import Architecture
from archwright.spaces.cells import Cell, CellPair
from archwright.spaces.nasbench101 import NAMES as NAMES_101
from archwright.spaces.nasbench101 import Cell101
from archwright.spaces.nasbench201 import EDGES, NAMES, Cell201

COLUMN, ROW, RADIUS, MARGIN = 210, 84, 17, 50
SHARES = (0.5, 0.4, 0.6, 0.32, 0.68, 0.26, 0.74, 0.2, 0.8)
"""Where along its edge a label may stand, the best place first."""
INK = {"convolution": "#0b63c4", "pool": "#8a5a00", "skip": "#1d7f3f", "none": "#777777"}
"""Colours of the kinds of operations, dark enough to read on white and on a card of a dark page."""


class GraphEdge(NamedTuple):
    """An operation from one node to another; ``carries`` where it does anything."""

    source: int
    target: int
    operation: str
    carries: bool = True


@dataclass(frozen=True)
class CellGraph:
    """A cell as a drawing sees it: names of the nodes and edges between them, sources before targets."""

    title: str
    names: tuple[str, ...]
    edges: tuple[GraphEdge, ...]


def cell_graphs(architecture: Architecture) -> list[CellGraph]:
    """The graphs of an architecture made of cells; another kind is an error."""
    if isinstance(architecture, CellPair):
        return [_darts_graph("normal", architecture.normal), _darts_graph("reduce", architecture.reduce)]
    if isinstance(architecture, Cell201):
        edges = tuple(
            GraphEdge(source, target, NAMES[operation], NAMES[operation] != "none")
            for (source, target), operation in zip(EDGES, architecture.operations, strict=True)
        )
        return [CellGraph("cell", ("in", "1", "2", "out"), edges)]
    if isinstance(architecture, Cell101):  # operations are on the nodes
        joined = tuple(
            GraphEdge(source, target, "")
            for target, sources in enumerate(architecture.parents, 1)
            for source in sources
        )
        return [CellGraph("cell", ("in", *(NAMES_101[one] for one in architecture.operations), "out"), joined)]
    raise InputError("an architecture made of cells", type(architecture).__name__)


def _darts_graph(title: str, cell: Cell) -> CellGraph:
    inner = [str(number) for number in range(len(cell.nodes))]
    out = len(cell.nodes) + 2
    edges = [
        GraphEdge(source, number, operation, operation != "none")
        for number, node in enumerate(cell.nodes, 2)
        for operation, source in node
    ]
    edges += [GraphEdge(number, out, "") for number in cell.concat]
    return CellGraph(title, ("c(k-2)", "c(k-1)", *inner, "c(k)"), tuple(edges))


def draw_cells(architecture: Architecture) -> str:
    """One SVG document with all cells of an architecture below each other."""
    return stack([draw(graph) for graph in cell_graphs(architecture)])


def draw(graph: CellGraph) -> str:
    """The graph as one SVG document with a title for screen readers."""
    place = _places(graph)
    width = 2 * MARGIN + COLUMN * max(column for column, _ in place)
    height = 2 * MARGIN + ROW * max(row for _, row in place)
    x = [MARGIN + COLUMN * column for column, _ in place]
    y = [MARGIN + ROW * row for _, row in place]
    curves = [_curve(graph, number, x, y) for number in range(len(graph.edges))]
    taken = [_around(x[number], y[number], 2 * RADIUS, 2 * RADIUS) for number in range(len(graph.names))]
    parts = [_line(edge, curve) for edge, curve in zip(graph.edges, curves, strict=True)]
    parts += [_label(edge, curve, taken) for edge, curve in zip(graph.edges, curves, strict=True) if edge.operation]
    parts += [_node(name, x[number], y[number]) for number, name in enumerate(graph.names)]
    words = f"{graph.title} cell: " + "; ".join(
        f"{edge.operation or 'joined'} from {graph.names[edge.source]} to {graph.names[edge.target]}"
        for edge in graph.edges
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12">'
        f"<title>{escape(words)}</title>"
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>'
        f'<text x="10" y="20" font-weight="bold" fill="#222222">{escape(graph.title)}</text>{"".join(parts)}</svg>'
    )


def _sentence(graph: CellGraph, edge: GraphEdge) -> str:
    return f"{edge.operation or 'joined'} from {graph.names[edge.source]} to {graph.names[edge.target]}"


def stack(drawings: Sequence[str]) -> str:
    """Several drawings below each other as one document."""
    sizes = [_size(one) for one in drawings]
    width, height = max(w for w, _ in sizes), sum(h for _, h in sizes)
    moved, top = [], 0.0
    for one, (_, tall) in zip(drawings, sizes, strict=True):
        moved.append(one.replace("<svg ", f'<svg y="{top:.0f}" ', 1))
        top += tall
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">{"".join(moved)}</svg>'
    )


def _size(svg: str) -> tuple[float, float]:
    numbers = svg.split('viewBox="', 1)[1].split('"', 1)[0].split()
    return float(numbers[2]), float(numbers[3])


def _places(graph: CellGraph) -> list[tuple[float, float]]:
    """Column (longest path from an input) and row of every node; rows of a column are spread around the middle."""
    column = [0] * len(graph.names)
    for edge in sorted(graph.edges, key=lambda edge: edge.target):
        column[edge.target] = max(column[edge.target], column[edge.source] + 1)
    column[-1] = max(column[-1], max(column))
    members = {c: [n for n in range(len(column)) if column[n] == c] for c in set(column)}
    tallest = max(len(nodes) for nodes in members.values())
    rows: dict[int, float] = {}
    for nodes in members.values():
        for place, node in enumerate(nodes):
            # half a row of stagger keeps edges that skip a column off the nodes between
            rows[node] = (tallest - len(nodes)) / 2 + place + (0.28 if column[node] % 2 else 0.0)
    return [(float(column[node]), rows[node]) for node in range(len(column))]


class _Curve(NamedTuple):
    """A cubic Bezier curve: four x and four y."""

    x: tuple[float, float, float, float]
    y: tuple[float, float, float, float]

    def at(self, t: float) -> tuple[float, float]:
        """The point at share ``t`` of the way."""
        parts = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3)
        return (
            sum(part * value for part, value in zip(parts, self.x, strict=True)),
            sum(part * value for part, value in zip(parts, self.y, strict=True)),
        )


_Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def _around(x: float, y: float, width: float, height: float) -> _Box:
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _curve(graph: CellGraph, number: int, x: list[float], y: list[float]) -> _Curve:
    """The way of an edge: parallel edges bend apart, one over several columns goes around what is between."""
    edge = graph.edges[number]
    twins = [n for n, other in enumerate(graph.edges) if (other.source, other.target) == (edge.source, edge.target)]
    x1, y1, x2, y2 = x[edge.source] + RADIUS, y[edge.source], x[edge.target] - RADIUS, y[edge.target]
    jump = max(0.0, (x2 - x1) / COLUMN - 1)
    middle = sum(y) / len(y)
    lift = 30 * (twins.index(number) - (len(twins) - 1) / 2) + (34 if y1 + y2 > 2 * middle else -34) * jump
    near = 0.4 * (x2 - x1)
    return _Curve((x1, x1 + near, x2 - near, x2), (y1, y1 + lift, y2 + lift, y2))


def _ink(edge: GraphEdge) -> str:
    return INK[_kind(edge)] if edge.operation else "#555555"


def _line(edge: GraphEdge, curve: _Curve) -> str:
    points = [f"{a:.0f},{b:.0f}" for a, b in zip(curve.x, curve.y, strict=True)]
    dash = "" if edge.carries else ' stroke-dasharray="4 4"'
    way = f"M{points[0]} C{points[1]} {points[2]} {points[3]}"
    return f'<path d="{way}" fill="none" stroke="{_ink(edge)}" stroke-width="1.6"{dash}/>'


def _label(edge: GraphEdge, curve: _Curve, taken: list[_Box]) -> str:
    """The operation's name at the first place along the edge that no node or label has; adds its box to ``taken``."""
    width = 6.2 * len(edge.operation) + 4

    def box_at(share: float) -> _Box:
        return _around(*curve.at(share), width, 15)

    def overlap(share: float) -> float:
        left, top, right, bottom = box_at(share)
        return sum(
            max(0.0, min(right, r) - max(left, a)) * max(0.0, min(bottom, b) - max(top, t)) for a, t, r, b in taken
        )

    share = min(SHARES, key=overlap)  # the first of equals
    taken.append(box_at(share))
    x, y = curve.at(share)
    return (
        f'<text x="{x:.0f}" y="{y + 4:.0f}" fill="{_ink(edge)}" text-anchor="middle" stroke="#ffffff" '
        f'stroke-width="3" paint-order="stroke" font-size="11">{escape(edge.operation)}</text>'
    )


def _kind(edge: GraphEdge) -> str:
    if not edge.carries:
        return "none"
    return "skip" if "skip" in edge.operation else "pool" if "pool" in edge.operation else "convolution"


def _node(name: str, x: float, y: float) -> str:
    wide = RADIUS + 3.4 * max(0, len(name) - 2)
    return (
        f'<rect x="{x - wide:.0f}" y="{y - RADIUS:.0f}" width="{2 * wide:.0f}" height="{2 * RADIUS}" rx="{RADIUS}" '
        f'fill="#eef3fa" stroke="#41556b"/>'
        f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" fill="#1b2733">{escape(name)}</text>'
    )
