"""The NAS-Bench-101 table: every cell has its own hash, its parameters are ours, and 1Shot1 spaces lie inside it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.nasbench1shot1 import NASBENCH1SHOT1_1, NASBENCH1SHOT1_3, SPACES, NasBench1Shot1
from archwright.spaces.nasbench101 import Cell101, cell_hash, network_cost
from archwright.tables.base import load_benchmark
from archwright.tables.locate import shared_data
from archwright.tables.nasbench101 import NasBench101Table

QUERY = ("cifar10", 108, "test")


@pytest.fixture(scope="module")
def table() -> NasBench101Table:
    if shared_data("nb101.npz") is None:
        pytest.skip("nb101.npz is not in the data folder")
    loaded = load_benchmark("nb101")
    assert isinstance(loaded, NasBench101Table)
    return loaded


def test_every_cell_of_the_table_is_found_where_it_is(table: NasBench101Table) -> None:
    assert len(table) == 423_624
    hashes, rows = table._sorted_hashes
    assert (hashes[1:] > hashes[:-1]).all()  # as many hashes as cells
    assert sorted(rows.tolist()) == list(range(423_624))
    for row in np.random.default_rng(0).integers(len(table), size=100).tolist():
        assert table.row(table.cell(row)) == row


def test_parameters_of_rows_are_ours_to_the_digit(table: NasBench101Table) -> None:
    scale = Scale(channels=128, cells=3)
    rows = np.random.default_rng(1).integers(len(table), size=2_000).tolist()
    assert [network_cost(table.cell(row), scale).params for row in rows] == table.params[rows].tolist()


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_every_architecture_of_the_spaces_is_in_the_table(table: NasBench101Table, space: NasBench1Shot1) -> None:
    rows = table.rows(space.hashes)
    assert rows.shape == (space.size,)
    assert (rows >= 0).all()
    assert len(np.unique(rows)) == {1: 2_685, 2: 7_773, 3: 55_854}[int(space.name[-1])]
    accuracies = table.accuracies(space, *QUERY)
    for index in np.random.default_rng(2).integers(space.size, size=20).tolist():
        assert table.accuracy(space.at(index), *QUERY) == accuracies[index]


def test_known_optimum_and_look_up_up_to_numbering(table: NasBench101Table) -> None:
    """The best mean test accuracy of NAS-Bench-101 is published as 94.32 %."""
    best = int(np.argmax(table._archive["test_acc_108"]))
    assert table.accuracy(table.cell(best), *QUERY) == pytest.approx(94.32, abs=0.005)
    cell = Cell101((0, 1, 2), ((0,), (0,), (1, 2), (3,)))
    twin = Cell101((1, 0, 2), ((0,), (0,), (1, 2), (3,)))
    assert table.row(cell) == table.row(twin)


def test_scale_is_that_of_the_measured_networks(table: NasBench101Table) -> None:
    cell = NASBENCH1SHOT1_1.at(5)
    assert NASBENCH1SHOT1_1.cost(cell, table.scale("cifar10")).params == table.params[table.row(cell)]


def test_questions_it_cannot_answer(table: NasBench101Table) -> None:
    cell = NASBENCH1SHOT1_3.at(0)
    with pytest.raises(InputError, match="cifar10"):
        table.accuracy(cell, "cifar100", 108, "test")
    with pytest.raises(InputError, match="108"):
        table.accuracy(cell, "cifar10", 12, "test")
    with pytest.raises(InputError, match="108"):
        table.accuracy(cell, "cifar10", 108, "validation")
    complete = Cell101((0,) * 5, tuple(tuple(range(v)) for v in range(1, 7)))  # 21 edges
    with pytest.raises(InputError, match="9 edges"):
        table.accuracy(complete, *QUERY)


def test_small_archive_by_hand(tmp_path: Path) -> None:
    """Two cells: input-conv3x3-output, and input-output; bits 0 = (0, 1), 6 = (1, 2)."""
    path = tmp_path / "two.npz"
    columns = {
        "vertices": np.array([3, 2], dtype=np.uint8),
        "adj_bits": np.array([1 | 1 << 6, 1], dtype=np.uint32),
        "ops": np.array([[0, 255, 255, 255, 255], [255] * 5], dtype=np.uint8),
        "test_acc_108": np.array([0.5, 0.25], dtype=np.float32),
        "params": np.array([7, 5], dtype=np.int32),
    }
    np.savez(path, **columns)
    table = load_benchmark(f"nb101:{path}")
    assert isinstance(table, NasBench101Table)
    assert table.accuracy(Cell101((1,), ((0,), (1,))), *QUERY) == 50.0
    assert table.accuracy(Cell101((), ((0,),)), *QUERY) == 25.0
    assert table.rows(np.array([cell_hash(Cell101((0,), ((0,), (1,))))], dtype=np.uint64)).tolist() == [-1]
    twice = {name: column[[0, 0]] for name, column in columns.items()}
    np.savez(path, **twice)
    with pytest.raises(InputError, match="repeated"):
        load_benchmark(f"nb101:{path}").accuracy(Cell101((1,), ((0,), (1,))), *QUERY)
    np.savez(path, vertices=columns["vertices"])
    with pytest.raises(InputError, match="archive"):
        load_benchmark(f"nb101:{path}")
    with pytest.raises(InputError, match="no file"):
        load_benchmark(f"nb101:{tmp_path / 'absent.npz'}")
