from __future__ import annotations

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.spaces.darts_free import DARTS_FREE
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.registry import spaces
from archwright.spaces.subgraphs import Subgraphs, read_bits, write_bits


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("darts", 14 * 7 * 2),
        ("darts-free", 14 * 7 * 2),
        ("nasbench201", 6 * 4),
        # 3 operations a vertex, and the possible parents of vertices (and the output) that do not take all of them
        ("nasbench1shot1-1", 4 * 3 + 3 + 4 + 5),
        ("nasbench1shot1-2", 4 * 3 + 2 + 3 + 4 + 5),
        ("nasbench1shot1-3", 5 * 3 + 2 + 3 + 4 + 5 + 6),
    ],
)
def test_number_of_bits(name: str, n: int) -> None:
    bits = Subgraphs(spaces.get(name))
    assert bits.n == n
    assert len(set(bits.names)) == n
    assert not any("none" in one for one in bits.names)


def test_spaces_without_a_cell_supernet_are_refused() -> None:
    with pytest.raises(InputError, match="space with a supernet"):
        Subgraphs(spaces.get("mbconv"))


@pytest.mark.parametrize("name", ["darts", "darts-free", "nasbench201", "nasbench1shot1-2"])
def test_an_architecture_comes_back_from_its_bits(name: str) -> None:
    space, rng = spaces.get(name), np.random.default_rng(0)
    bits = Subgraphs(space)
    for _ in range(5):
        architecture = space.sample(rng)
        x = bits.of(architecture)
        found = bits.architecture(x, np.zeros(bits.n), rng)
        # `none` has no bit: what is left is the same up to where it stood
        assert space.canonical(found) == space.canonical(architecture)
        np.testing.assert_array_equal(read_bits(write_bits(x)), x)


def test_uniform_choice_where_an_edge_has_several_operations() -> None:
    bits, rng = Subgraphs(NASBENCH201), np.random.default_rng(1)
    x = -np.ones(24, dtype=np.int8)
    x[:2] = 1  # edge 0>1: skip and 1x1
    x[4] = 1  # edge 0>2: skip
    x[12 + 0] = 1  # edge 0>3: skip
    chosen = [bits.architecture(x, np.zeros(24), rng).operations for _ in range(200)]  # type: ignore[attr-defined]
    first = np.array([one[0] for one in chosen])
    assert set(first) == {1, 2}
    assert 70 < (first == 1).sum() < 130
    assert {one[1:] for one in chosen} == {(1, 0, 1, 0, 0)}
    scores = np.zeros(24)
    scores[[1, 2]] = 1.0, 2.0  # 3x3 is worth most, but off
    assert bits.architecture(x, scores, None).operations == (2, 1, 0, 1, 0, 0)  # type: ignore[attr-defined]


def test_an_unconnected_sub_graph_takes_the_best_scores_on_empty_edges() -> None:
    bits, rng = Subgraphs(NASBENCH201), np.random.default_rng(1)
    x = -np.ones(24, dtype=np.int8)
    x[1] = 1  # 0>1 alone leads nowhere
    scores = np.zeros(24)
    scores[14] = 1.0  # 0>3 3x3
    found = bits.architecture(x, scores, rng)
    assert NASBENCH201.is_connected(found)
    assert str(found).startswith("|nor_conv_1x1~0|")
    assert "|+|nor_conv_3x3~0|" in str(found)


def test_an_unconnected_free_cell_takes_its_best_operation_at_an_input() -> None:
    bits = Subgraphs(DARTS_FREE)
    x = -np.ones(bits.n, dtype=np.int8)
    x[bits.names.index("normal 2>3 skip_connect")] = 1  # node 2 has nothing to send
    x[bits.names.index("reduce 0>2 max_pool_3x3")] = 1
    scores = np.zeros(bits.n)
    scores[bits.names.index("normal 1>4 sep_conv_3x3")] = 1.0
    scores[bits.names.index("normal 2>4 sep_conv_5x5")] = 2.0  # leaves no input
    found = bits.architecture(x, scores, None)
    assert DARTS_FREE.is_connected(found)
    expected = x.copy()
    expected[bits.names.index("normal 1>4 sep_conv_3x3")] = 1
    np.testing.assert_array_equal(bits.of(found), expected)


def test_a_space_of_two_inputs_keeps_what_is_worth_most() -> None:
    space = spaces.get("darts")
    bits, rng = Subgraphs(space), np.random.default_rng(0)
    free = bits.draw(rng, 1, 0.5)[0]
    worth = rng.normal(size=bits.n)
    found = bits.architecture(free, worth, rng)
    kept = bits.of(found)
    assert ((kept > 0) <= (free > 0)).all()  # a sub-graph of the free cell
    assert DARTS_FREE.parse(str(found)) == found
    best = max((bit for bit in range(bits.n) if free[bit] > 0), key=lambda bit: worth[bit])
    assert kept[best] == 1


def test_fixed_bits_stay() -> None:
    x = Subgraphs(NASBENCH201).draw(np.random.default_rng(0), 50, 0.5, {3: 1, 7: -1})
    assert (x[:, 3] == 1).all()
    assert (x[:, 7] == -1).all()
    assert 0.4 < (x > 0).mean() < 0.6
