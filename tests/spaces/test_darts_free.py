from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from archwright.spaces.darts_free import DARTS_FREE
from archwright.supernets.cell import CellSupernet
from archwright.tables.locate import shared_data


def cell(*nodes: list[list[object]]) -> str:
    one = {"nodes": list(nodes), "concat": [2, 3, 4, 5]}
    return json.dumps({"normal": one, "reduce": one})


SEVERAL = [["sep_conv_3x3", 0], ["skip_connect", 0], ["max_pool_3x3", 1]]


def test_any_number_of_inputs_a_node() -> None:
    text = cell(SEVERAL, [], [["none", 0]], [["dil_conv_5x5", 3], ["skip_connect", 2]])
    pair = DARTS_FREE.parse(text)
    assert DARTS_FREE.parse(str(pair)) == pair
    assert DARTS_FREE.is_connected(pair)
    # node 3 gets nothing, so that what it sends is nothing, and `none` is left out
    pruned = DARTS_FREE.canonical(pair)
    assert sorted(len(node) for node in pruned.normal.nodes) == [0, 0, 1, 3]
    with pytest.raises(InputError, match="2 inputs"):
        DARTS.parse(text)


def test_every_cell_of_darts_is_a_free_cell() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        pair = DARTS.sample(rng)
        assert DARTS_FREE.parse(str(pair)) == pair
        assert DARTS_FREE.cost(pair, Scale(8, 3)) == DARTS.cost(pair, Scale(8, 3))


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ([["skip_connect", 0], ["skip_connect", 0]], "twice"),
        ([["conv_7x1_1x7", 0]], "conv_7x1_1x7"),
    ],
)
def test_other_cells_are_refused(node: list[list[object]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        DARTS_FREE.parse(cell(node, [], [], []))


def test_a_free_cell_inherits_its_weights_in_the_right_order() -> None:
    pair = DARTS_FREE.parse(cell(SEVERAL, [["dil_conv_3x3", 2], ["avg_pool_3x3", 2]], [], [["sep_conv_5x5", 4]]))
    torch.manual_seed(0)
    supernet = CellSupernet(DARTS_FREE, Scale(4, 3, image_size=8), affine=True).train()
    network = supernet.inherit(pair).train()
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(network(x), supernet(x, supernet.one_hot(pair)), atol=1e-4, rtol=1e-4)


def test_published_cells_with_none_are_of_the_space() -> None:
    path = shared_data("darts_cells_500.json")
    if path is None:
        pytest.skip("needs darts_cells_500.json in the data folder")
    inside = 0
    for one in json.loads(path.read_text())[:100]:
        nodes = [[list(edge) for edge in one["normal"][2 * k : 2 * k + 2]] for k in range(4)]
        twice = any(node[0] == node[1] for node in nodes)
        if not twice:
            pair = DARTS_FREE.parse(cell(*nodes))
            assert DARTS_FREE.decode(DARTS_FREE.encode(pair)) == pair
            inside += 1
    assert inside > 80
