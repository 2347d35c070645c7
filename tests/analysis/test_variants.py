from __future__ import annotations

import numpy as np
import pytest

from archwright.analysis import variants
from archwright.analysis.placement import placements
from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.cells import Cell, build_cells, cost_cells
from archwright.spaces.gallery import GALLERY
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.topology import cell_topology


def test_other_connections_keep_nodes_and_operations() -> None:
    cell, rng = GALLERY["darts-v2"].normal, np.random.default_rng(0)
    for _ in range(20):
        variant = variants.random_connections(cell, rng)
        assert variant.concat == cell.concat
        for number, (before, after) in enumerate(zip(cell.nodes, variant.nodes, strict=True), 2):
            assert sorted(name for name, _ in before) == sorted(name for name, _ in after)
            assert all(0 <= source < number for _, source in after)


def test_sources_are_uniform() -> None:
    cell, rng = (
        Cell(((("skip_connect", 0),), (("skip_connect", 0),), (("skip_connect", 0),)), (4,)),
        np.random.default_rng(0),
    )
    drawn = [variants.random_connections(cell, rng).nodes[2][0][1] for _ in range(4000)]
    counts = np.bincount(drawn, minlength=4)
    assert np.all(np.abs(counts - 1000) < 5 * np.sqrt(750))  # five standard deviations of a binomial


def test_other_operations_keep_the_connections() -> None:
    cell, rng = GALLERY["enas"].normal, np.random.default_rng(0)
    variant = variants.random_operations(cell, rng, ("sep_conv_3x3", "max_pool_3x3"))
    assert [sorted(s for _, s in node) for node in variant.nodes] == [sorted(s for _, s in node) for node in cell.nodes]
    assert {name for node in variant.nodes for name, _ in node} <= {"sep_conv_3x3", "max_pool_3x3"}
    with pytest.raises(InputError, match="conv_9x9"):
        variants.random_operations(cell, rng, ("conv_9x9",))


@pytest.mark.parametrize(
    ("name", "width", "paper_params"),
    [("nasnet-a", 5, 4.32), ("amoebanet-a", 3, 3.60), ("enas", 5, 4.32), ("darts-v2", 4, 3.90), ("snas", 4, 3.19)],
)
def test_adapted_cells_have_the_width_of_figure_4_26_and_the_parameters_of_table_4_1(
    name: str, width: float, paper_params: float
) -> None:
    pair = variants.adapted(GALLERY[name])
    topology = cell_topology(pair.normal)
    assert (topology.width, topology.depth) == (width, 2)
    network = build_cells(pair, Scale(channels=36, cells=20, auxiliary=True))  # the table counts the auxiliary head
    assert sum(p.numel() for p in network.parameters()) / 1e6 == pytest.approx(paper_params, abs=0.02)
    assert cost_cells(pair, Scale(channels=36, cells=20)).params > 0


def test_variants_are_distinct_and_sorted_from_deep_and_narrow() -> None:
    cell = GALLERY["darts-v2"].normal
    found = variants.distinct_variants(cell, variants.random_connections, 13, np.random.default_rng(1))
    assert len(set(found)) == 13
    assert cell not in found
    widths = [cell_topology(one).width for one in found]
    assert widths == sorted(widths)
    lonely = Cell(((("skip_connect", 0), ("skip_connect", 1)),), (2,))
    with pytest.raises(InputError, match="variants"):
        variants.distinct_variants(lonely, variants.random_connections, 50, np.random.default_rng(0))


@pytest.mark.parametrize(("nodes", "count"), [(7, 120), (8, 720)])
def test_number_of_connections_by_enumeration(nodes: int, count: int) -> None:
    found = list(variants.connections(nodes))
    assert len(found) == len(set(found)) == count == variants.number_of_connections(nodes)
    assert variants.number_of_connections(nodes, sources=2) == count**2


@pytest.mark.parametrize(("nodes", "largest"), [(4, 4), (5, 5)])
def test_largest_width_and_least_depth(nodes: int, largest: int) -> None:
    """N = 7 and 8 in the thesis: two inputs, one output, 4 or 5 nodes between."""
    cells = [
        Cell(tuple((("skip_connect", s), ("skip_connect", s)) for s in sources), tuple(range(2, 2 + nodes)))
        for sources in variants.connections(nodes + 3)
    ]
    found = [cell_topology(cell) for cell in cells]
    assert max(one.width for one in found) == largest
    assert min(one.depth for one in found) == 2


def test_the_place_of_a_cell() -> None:
    found = placements(GALLERY["enas"], sample=500)["normal"]
    assert found.wider_than > 0.99  # the widest there is
    assert found.topology.depth == 2 <= found.to_json()["least_depth"]
    assert len(found.widths) == 500
    best = NASBENCH201.parse(
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
    )
    whole = placements(best)["cell"]
    assert whole.whole
    assert len(whole.widths) == 15_625
    assert (whole.depths.max(), whole.widths.max()) == (3, 2)
