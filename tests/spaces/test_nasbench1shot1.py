"""The three NAS-Bench-1Shot1 spaces: sizes, order, encodings, representatives and the contract of every space."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.nasbench1shot1 import (
    NASBENCH1SHOT1_1,
    NASBENCH1SHOT1_2,
    NASBENCH1SHOT1_3,
    SPACES,
    NasBench1Shot1,
)
from archwright.spaces.nasbench101 import Cell101, cell_hash
from archwright.tables.locate import shared_data
from archwright.testing import check_space
from helpers.cell101_oracle import smallest_form

each = pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))


@each
def test_keeps_the_contract(space: NasBench1Shot1) -> None:
    check_space(space, samples=8)


def _parent_sets(space: NasBench1Shot1) -> list[tuple[tuple[int, ...], ...]]:
    """Every choice of parents, enumerated from the published table of parents per vertex."""
    choices = [itertools.combinations(range(v), count) for v, count in enumerate(space.parents, 1)]
    return list(itertools.product(*choices))


@each
def test_size_counts_every_choice_and_edges_are_nine(space: NasBench1Shot1) -> None:
    graphs = _parent_sets(space)
    assert space.size == len(graphs) * 3**space.vertices
    assert space.size == {1: 14_580, 2: 29_160, 3: 1_312_200}[int(space.name[-1])]
    assert sum(space.parents) == 9


def test_published_sizes_follow_from_their_counting() -> None:
    """6,240 and 363,648 count operations of vertices with a child only; 29,160 counts all."""

    def with_children(space: NasBench1Shot1) -> int:
        return sum(3 ** len(set(itertools.chain(*parents)) - {0}) for parents in _parent_sets(space))

    assert with_children(NASBENCH1SHOT1_1) == 6_240
    assert with_children(NASBENCH1SHOT1_2) == 16_632
    assert NASBENCH1SHOT1_2.size == 29_160
    assert with_children(NASBENCH1SHOT1_3) == 363_648


def test_decisions_leave_out_what_is_no_choice() -> None:
    assert NASBENCH1SHOT1_1.decisions == {"operation": (4, 3), "inputs_3": (1, 3), "inputs_4": (1, 4), "output": (1, 5)}
    assert NASBENCH1SHOT1_2.picks == {"operation": 1, "inputs_2": 1, "inputs_3": 2, "inputs_4": 2, "output": 3}
    assert list(NASBENCH1SHOT1_3.links.values()) == [2, 3, 4, 5, 6]


@each
def test_order_is_lexicographic_and_hashes_follow_it(space: NasBench1Shot1) -> None:
    assert space.at(0).parents == tuple(tuple(range(count)) for count in space.parents)
    rng = np.random.default_rng(0)
    for index in [0, 1, space.size - 1, *rng.integers(space.size, size=30).tolist()]:
        cell = space.at(index)
        assert space.index(cell) == index
        assert space.hashes[index] == cell_hash(cell)
    few = [space.at(index) for index in range(300)]
    assert [(cell.parents, cell.operations) for cell in few] == sorted((cell.parents, cell.operations) for cell in few)


def test_number_of_different_networks() -> None:
    """Space 1 against brute force over all renumberings of the pruned graphs."""
    pruned = {NASBENCH1SHOT1_1.at(index).pruned() for index in range(NASBENCH1SHOT1_1.size)}
    assert len({smallest_form(cell) for cell in pruned}) == len(np.unique(NASBENCH1SHOT1_1.hashes)) == 2_685


def test_canonical_is_the_first_of_its_class() -> None:
    space = NASBENCH1SHOT1_2
    rng = np.random.default_rng(1)
    for _ in range(20):
        cell = space.sample(rng)
        canonical = space.canonical(cell)
        assert cell_hash(canonical) == cell_hash(cell)
        assert space.index(canonical) == int(np.flatnonzero(space.hashes == cell_hash(cell))[0])


def test_strongest_takes_the_largest_weights() -> None:
    weights = {
        "operation": np.array([[0.1, 0.2, 0.7], [0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.2, 0.6]]),
        "inputs_3": np.array([[0.5, 0.1, 0.4]]),
        "inputs_4": np.array([[0.1, 0.2, 0.3, 0.4]]),
        "output": np.array([[0.2, 0.2, 0.2, 0.2, 0.2]]),
    }
    expected = Cell101((2, 0, 1, 2), ((0,), (0, 1), (0, 2), (2, 3), (0, 1)))
    assert NASBENCH1SHOT1_1.derive(weights) == expected


@each
def test_neighbours_are_one_change_away(space: NasBench1Shot1) -> None:
    cell = space.sample(np.random.default_rng(2))
    changes = sum(p * (v - p) for v, p in enumerate(space.parents, 1)) + 2 * space.vertices
    neighbours = space.neighbours(cell)
    assert len(neighbours) == changes
    for other in neighbours:
        flipped = sum(int((space.encode(other)[n] != row).sum()) for n, row in space.encode(cell).items())
        assert flipped == 2


def test_refuses_other_cells_and_scales() -> None:
    text = str(NASBENCH1SHOT1_1.at(0))
    with pytest.raises(InputError, match="parents"):
        NASBENCH1SHOT1_2.parse(text)
    with pytest.raises(InputError, match="plain stem"):
        NASBENCH1SHOT1_1.check_scale(Scale(channels=8, cells=1, stem="imagenet", image_size=64))


@each
def test_parameters_equal_the_table_to_the_digit(space: NasBench1Shot1) -> None:
    path = shared_data("nb101.npz")
    if path is None:
        pytest.skip("nb101.npz is not in the data folder")
    from archwright.tables.nasbench101 import NasBench101Table

    table = NasBench101Table(path)
    scale = space.scales["paper"]
    rng = np.random.default_rng(3)
    for index in rng.integers(space.size, size=200).tolist():
        cell = space.at(index)
        row = table.row(cell)
        # 128 is not divisible by 3, so with three vertices at the output the numbering moves a channel
        numbered = table.cell(row) if len(set(cell.parents[-1]) - {0}) == 3 else cell
        assert space.cost(numbered, scale).params == table.params[row]
