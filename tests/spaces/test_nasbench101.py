"""NAS-Bench-101 cells: pruning, identity up to numbering, channel division, cost and network."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.nasbench101 import (
    NAMES,
    Cell101,
    build_network,
    cell_hash,
    graph_hashes,
    network_cost,
    parse_cell101,
    vertex_channels,
)
from helpers.cell101_oracle import smallest_form

C1, C3, MP = range(3)
INCEPTION = Cell101((C1, C3, C3, C3, MP), ((0,), (0,), (0,), (3,), (0,), (1, 2, 4, 5)))
"""The worked example of the benchmark's documentation, which gives its number of parameters: 2,694,282."""


def test_text_is_json_that_parses_back() -> None:
    text = '{"operations":["conv1x1","maxpool3x3"],"parents":[[0],[0,1],[2]]}'
    cell = parse_cell101(text)
    assert cell == Cell101((C1, MP), ((0,), (0, 1), (2,)))
    assert str(cell) == text


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"operations":["conv9x9"],"parents":[[0],[1]]}',
        '{"operations":[],"parents":[[0],[1]]}',
        '{"operations":["conv1x1"],"parents":[[0],[2]]}',
        '{"operations":["conv1x1"],"parents":[[0],[1,1]]}',
        '{"operations":["conv1x1"],"parents":[[0],[true]]}',
        '{"operations":["conv1x1"],"parents":[[0],1]}',
        '{"operations":"conv1x1","parents":[[0],[1]]}',
    ],
)
def test_malformed_text_is_an_input_error(text: str) -> None:
    with pytest.raises(InputError):
        parse_cell101(text)


def test_pruning_keeps_what_lies_between_input_and_output() -> None:
    # vertex 2 leads nowhere, vertex 3 comes from nowhere, vertex 4 hangs on it
    cell = Cell101((C1, C3, MP, C3), ((0,), (1,), (), (1, 3), (1, 4)))
    assert cell.pruned() == Cell101((C1, C3), ((0,), (1,), (1, 2)))
    assert cell.pruned().pruned() == cell.pruned()
    with pytest.raises(InputError, match="depends on its input"):
        Cell101((C1,), ((), (1,))).pruned()


def _all_cells(vertices: int) -> list[Cell101]:
    """Every labelled cell with ``vertices`` operations whose vertices all lie between input and output."""
    subsets = [
        [c for k in range(1, v + 1) for c in itertools.combinations(range(v), k)] for v in range(1, vertices + 2)
    ]
    cells = [
        Cell101(operations, parents)
        for parents in itertools.product(*subsets)
        for operations in itertools.product(range(3), repeat=vertices)
    ]
    return [cell for cell in cells if cell.pruned() == cell]


def test_hash_agrees_exactly_with_isomorphism_by_brute_force() -> None:
    """Including the benchmark's own numbers of cells with two, three and four vertices: 1, 6 and 84."""
    for operations, different in ((0, 1), (1, 6), (2, 84), (3, None)):
        cells = _all_cells(operations)
        pairs = {(cell_hash(cell), smallest_form(cell)) for cell in cells}
        assert len(pairs) == len({code for code, _ in pairs}) == len({form for _, form in pairs})
        assert different in (None, len(pairs))


def test_hash_ignores_dead_vertices_and_batching() -> None:
    cell = Cell101((C1, C3, MP, C3), ((0,), (1,), (), (1, 3), (1, 4)))
    assert cell_hash(cell) == cell_hash(cell.pruned())
    assert cell_hash(cell) == cell_hash(Cell101((C1, MP, C1, C3), cell.parents))
    edges = np.stack([cell.edges()] * 3)
    operations = np.array([cell.operations, (C3, C3, MP, C3), cell.operations])
    hashes = graph_hashes(edges, operations)
    assert hashes[0] == hashes[2] == cell_hash(cell) != hashes[1]
    assert graph_hashes(edges[:0], operations[:0]).shape == (0,)


def test_channels_are_divided_among_the_vertices_that_feed_the_output() -> None:
    cell = Cell101((C1, C1, C1, C1), ((0,), (1,), (1,), (1,), (2, 3, 4)))
    assert vertex_channels(cell, 128) == [43, 43, 43, 42]
    assert vertex_channels(Cell101((C1,), ((0,), (0, 1))), 128) == [128]
    with pytest.raises(InputError, match="at least 3 channels"):
        vertex_channels(cell, 2)


def test_parameters_of_the_documented_example() -> None:
    scale = Scale(channels=128, cells=3)
    assert network_cost(INCEPTION, scale).params == 2_694_282
    with torch.device("meta"):
        network = build_network(INCEPTION, scale)
    assert sum(p.numel() for p in network.parameters()) == 2_694_282


def test_forward_is_the_hand_written_cell() -> None:
    """Two parents at the output, one inner edge that loses a channel, the input added at the output."""
    torch.manual_seed(0)
    cell = Cell101((C3, MP, C1), ((0,), (0, 1), (1,), (0, 1, 2, 3)))
    module = build_network(cell, Scale(channels=8, cells=1)).cells()[0].eval()
    assert module.widths == [3, 3, 2, 8]
    x = torch.randn(2, 8, 5, 5)
    project = module.projections
    first = module.operations[0](project["1"](x))
    second = torch.nn.functional.max_pool2d(project["2"](x) + first, 3, 1, 1)
    third = module.operations[2](first[:, :2])
    expected = torch.cat([first, second, third], 1) + project["4"](x)
    torch.testing.assert_close(module(x), expected)


def test_cell_without_operations_is_a_projection() -> None:
    cell = Cell101((), ((0,),))
    scale = Scale(channels=4, cells=1, classes=2, image_size=8)
    network = build_network(cell, scale)
    assert network(torch.randn(3, 3, 8, 8)).shape == (3, 2)
    assert sum(p.numel() for p in network.parameters()) == network_cost(cell, scale).params
    assert NAMES[network.cells()[0].cell.output - 1] == "conv1x1"


def test_odd_images_shrink_rounding_up() -> None:
    network = build_network(Cell101((MP,), ((0,), (1,))), Scale(channels=2, cells=1, image_size=7))
    seen: list[tuple[int, ...]] = []
    for cell in network.cells():
        cell.register_forward_hook(lambda _m, _i, out: seen.append(tuple(out.shape)))
    network(torch.randn(1, 3, 7, 7))
    assert seen == [(1, 2, 7, 7), (1, 4, 4, 4), (1, 8, 2, 2)]
