from __future__ import annotations

import numpy as np
import pytest

from archwright.spaces.cells import Cell
from archwright.spaces.darts import DARTS
from archwright.spaces.gallery import GALLERY
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.topology import CellTopology, cell201_topology, cell_topology, topology_json


def conv_cell(sources: list[tuple[int, int]], concat: tuple[int, ...] | None = None) -> Cell:
    """A cell of separable convolutions from these two sources a node."""
    nodes = tuple(tuple(("sep_conv_3x3", source) for source in pair) for pair in sources)
    return Cell(nodes, concat or tuple(range(2, 2 + len(nodes))))


@pytest.mark.parametrize(
    ("name", "width", "depth", "skips"),
    [
        ("nasnet-a", 5, 2, 2),
        ("amoebanet-a", 4, 4, 2),
        ("enas", 5, 2, 2),
        ("darts-v2", 3.5, 3, 2),
        ("snas", 4, 2, 4),
    ],
)
def test_published_normal_cells(name: str, width: float, depth: int, skips: int) -> None:
    """Width and depth of Figure 4.1 and Table 7.2 of the thesis; skips counted in the genotypes."""
    found = cell_topology(GALLERY[name].normal)
    assert (found.width, found.depth, found.skips) == (width, depth, skips)


def test_widest_and_deepest_cell() -> None:
    """WIDE and DEEP of Table 7.2."""
    assert cell_topology(conv_cell([(0, 1)] * 4)) == CellTopology(4, 2, 0, 8)
    assert cell_topology(conv_cell([(0, 1), (1, 2), (2, 3), (3, 4)])) == CellTopology(1.5, 5, 0, 8)


def test_a_node_that_is_not_joined_counts_only_on_the_way_to_the_output() -> None:
    """AmoebaNet joins three of five nodes: with inputs as all sources two lead nowhere (Figure 4.26: 3c and 2)."""
    assert cell_topology(conv_cell([(0, 1)] * 5, GALLERY["amoebanet-a"].normal.concat)) == CellTopology(3, 2, 0, 6)


def test_what_carries_nothing_does_not_count() -> None:
    dead = (("none", 0), ("none", 1))
    after = (("skip_connect", 0), ("sep_conv_3x3", 2))  # its second edge carries nothing
    assert cell_topology(Cell((dead, after), (2, 3))) == CellTopology(1, 2, 1, 1)
    assert cell_topology(Cell((dead,), (2,))) == CellTopology(0, 0, 0, 0)


def all_paths(cell: Cell, node: int) -> list[int]:
    """Lengths of all paths from an input to ``node``."""
    if node < 2:
        return [0]
    return [1 + length for _, source in cell.nodes[node - 2] for length in all_paths(cell, source)]


def test_depth_of_random_cells_is_that_of_all_paths() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        pair = DARTS.sample(rng)
        found = topology_json(pair)
        for name, cell in (("normal", pair.normal), ("reduce", pair.reduce)):
            lengths = [1 + length for node in cell.concat for length in all_paths(cell, node)]
            assert found[name]["depth"] == max(lengths)
            sources = [source for node in cell.nodes for _, source in node]
            assert found[name]["width"] == sum(source < 2 for source in sources) / 2  # two edges a node here
            assert found[name]["skips"] == str(cell.to_json()).count("skip_connect")


@pytest.mark.parametrize(
    ("text", "width", "depth", "skips"),
    [
        ("|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|", 1.5, 3, 1),
        ("|nor_conv_3x3~0|+|nor_conv_3x3~0|none~1|+|none~0|nor_conv_3x3~1|nor_conv_3x3~2|", 2, 2, 0),
        ("|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|", 0, 1, 1),
        ("|none~0|+|nor_conv_1x1~0|skip_connect~1|+|none~0|skip_connect~1|nor_conv_1x1~2|", 1, 2, 0),
        ("|none~0|+|none~0|nor_conv_1x1~1|+|none~0|nor_conv_1x1~1|nor_conv_1x1~2|", 0, 0, 0),
    ],
)
def test_cells_of_nasbench201_by_hand(text: str, width: float, depth: int, skips: int) -> None:
    found = cell201_topology(NASBENCH201.parse(text))
    assert (found.width, found.depth, found.skips) == (width, depth, skips)
