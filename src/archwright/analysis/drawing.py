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
from archwright.spaces.nasbench201 import EDGES, NAMES, Cell201

COLUMN, ROW, RADIUS, MARGIN = 170, 78, 17, 46
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
    parts = [_edge(graph, edge, number, x, y) for number, edge in enumerate(graph.edges)]
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


def _edge(graph: CellGraph, edge: GraphEdge, number: int, x: list[float], y: list[float]) -> str:
    """A curve with its operation's name; parallel edges bend apart."""
    twins = [n for n, other in enumerate(graph.edges) if (other.source, other.target) == (edge.source, edge.target)]
    bend = 26 * (twins.index(number) - (len(twins) - 1) / 2)
    x1, y1, x2, y2 = x[edge.source] + RADIUS, y[edge.source], x[edge.target] - RADIUS, y[edge.target]
    jump = max(0.0, (x2 - x1) / COLUMN - 1)  # an edge over several columns goes around what is between
    lift = bend - (16 * jump if y1 <= y2 else -16 * jump)
    c1, c2 = x1 + 0.4 * (x2 - x1), x1 + 0.6 * (x2 - x1)
    ink = INK[_kind(edge)] if edge.operation else "#555555"
    dash = "" if edge.carries else ' stroke-dasharray="4 4"'
    curve = f"M{x1:.0f},{y1:.0f} C{c1:.0f},{y1 + lift:.0f} {c2:.0f},{y2 + lift:.0f} {x2:.0f},{y2:.0f}"
    drawn = f'<path d="{curve}" fill="none" stroke="{ink}" stroke-width="1.6"{dash}/>'
    if not edge.operation:
        return drawn
    # labels sit at different shares of the way, so that those of neighbouring edges do not cover each other
    share = 0.42 + 0.08 * (edge.source % 3)
    middle_x = _bezier(share, x1, c1, c2, x2)
    middle_y = _bezier(share, y1, y1 + lift, y2 + lift, y2) - 4
    return (
        f'{drawn}<text x="{middle_x:.0f}" y="{middle_y:.0f}" fill="{ink}" text-anchor="middle" stroke="#ffffff" '
        f'stroke-width="3" paint-order="stroke" font-size="11">{escape(edge.operation)}</text>'
    )


def _bezier(t: float, a: float, b: float, c: float, d: float) -> float:
    return (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * b + 3 * (1 - t) * t**2 * c + t**3 * d


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
