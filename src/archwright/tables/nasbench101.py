"""NAS-Bench-101: test accuracy on CIFAR-10 after 108 epochs of all 423,624 different cells, from a compact archive.

Cells are found by a hash of the pruned graph that does not depend on the numbering of vertices, so any cell with at
most seven vertices and nine edges can be asked for, and with it every architecture of the NAS-Bench-1Shot1 spaces.

**What a search sees.** The archive holds test accuracy alone, so :attr:`NasBench101Table.search_protocol` is the same
column as the report's: a search on this table optimises what is reported, and its result is an upper estimate. Compare
methods with each other on it, not with numbers of searches that looked at validation accuracy.
"""

from __future__ import annotations

from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from archwright.data.arrays import BAD_ARCHIVE, check_claims
from archwright.errors import InputError, unknown_name
from archwright.spaces.base import Architecture, Scale
from archwright.spaces.nasbench1shot1 import SPACES, NasBench1Shot1
from archwright.spaces.nasbench101 import Cell101, cell_hash, graph_hashes
from archwright.tables.base import Benchmark, Split
from archwright.tables.locate import read_once, require_data

_OPERATION_OF_CODE = np.array([1, 0, 2], dtype=np.uint8)
"""Our operation index of the archive's 0 (conv3x3), 1 (conv1x1), 2 (maxpool3x3)."""
_PAIRS = tuple(combinations(range(7), 2))
"""The pair of vertices of each bit of the archive's ``adj_bits``."""


class NasBench101Table(Benchmark):
    """The compact archive: one row a cell."""

    name = "nb101"
    spaces: ClassVar[tuple[str, ...]] = tuple(SPACES)
    """All spaces whose architectures the table covers; ``space`` is the largest."""
    datasets = ("cifar10",)
    search_protocol: ClassVar[tuple[Split, int]] = ("test", 108)
    report_protocol: ClassVar[tuple[Split, int]] = ("test", 108)

    def __init__(self, path: Path) -> None:
        try:
            check_claims(path)
            with np.load(path) as archive:
                columns = ("vertices", "adj_bits", "ops", "test_acc_108", "params")
                self._archive: dict[str, NDArray[Any]] = {name: archive[name] for name in columns}
        except BAD_ARCHIVE as error:
            raise InputError("the compact NAS-Bench-101 archive", f"{path} ({error})") from error
        rows = {column.shape[:1] for column in self._archive.values()}
        if len(rows) != 1 or self._archive["ops"].shape[1:] != (5,):
            raise InputError("columns of one length and five operations a row", f"lengths {sorted(rows)} in {path}")

    def __len__(self) -> int:
        return len(self._archive["params"])

    @property
    def params(self) -> NDArray[np.int64]:
        """Trainable parameters of each row's network with 10 classes, (rows,)."""
        return self._archive["params"].astype(np.int64)

    @property
    def test_accuracy(self) -> NDArray[np.float64]:
        """Percent correct of each row's network after 108 epochs, (rows,)."""
        return 100 * self._archive["test_acc_108"].astype(np.float64)

    def cell(self, row: int) -> Cell101:
        """The cell of one row, with the archive's numbering of vertices."""
        output, bits = int(self._archive["vertices"][row]) - 1, int(self._archive["adj_bits"][row])
        edges = {pair for bit, pair in enumerate(_PAIRS) if bits >> bit & 1}
        parents = tuple(tuple(a for a in range(b) if (a, b) in edges) for b in range(1, output + 1))
        operations = _OPERATION_OF_CODE[self._archive["ops"][row, : output - 1]]
        return Cell101(tuple(int(o) for o in operations), parents)

    @cached_property
    def _sorted_hashes(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """All hashes ascending and the row of each; computed at the first look-up."""
        hashes = graph_hashes(*self.graphs())
        order = np.argsort(hashes)
        ascending = hashes[order]
        if (ascending[1:] == ascending[:-1]).any():
            raise InputError("different cells in all rows of the NAS-Bench-101 archive", "repeated ones")
        return ascending, order

    def graphs(self) -> tuple[NDArray[np.bool_], NDArray[np.uint8]]:
        """Edges (rows, 7, 7) with every cell's output at vertex 6, and operations (rows, 5)."""
        output, bits = self._archive["vertices"].astype(np.int64) - 1, self._archive["adj_bits"]
        edges = np.zeros((len(self), 7, 7), dtype=bool)
        for bit, (a, b) in enumerate(_PAIRS):
            rows = np.flatnonzero(bits >> np.uint32(bit) & np.uint32(1))
            edges[rows, a, np.where(output[rows] == b, 6, b)] = True
        codes = self._archive["ops"]
        return edges, _OPERATION_OF_CODE[np.where(codes < len(_OPERATION_OF_CODE), codes, 0)]

    def rows(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Row of each hash, (n,); -1 where no cell of the table has it."""
        known, order = self._sorted_hashes
        place = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
        return np.where(known[place] == hashes, order[place], -1)

    def row(self, architecture: Architecture) -> int:
        """Row of a cell; one that is not in the table is an error."""
        if not isinstance(architecture, Cell101):
            raise InputError("a cell of NAS-Bench-101", type(architecture).__name__)
        row = int(self.rows(np.array([cell_hash(architecture)], dtype=np.uint64))[0])
        if row < 0:
            raise InputError("a cell of NAS-Bench-101 (at most 7 vertices and 9 edges)", str(architecture))
        return row

    def accuracy(self, architecture: Architecture, dataset: str, epochs: int, split: Split) -> float:
        """Percent correct after 108 epochs, one look-up; another number of epochs or split is refused."""
        _check_query(dataset, epochs, split)
        return 100 * float(self._archive["test_acc_108"][self.row(architecture)])

    def scale(self, dataset: str) -> Scale:
        """128 channels, three cells a stage."""
        _check_query(dataset, 108, "test")
        return SPACES[self.spaces[0]].scales["paper"]

    def accuracies(self, space: NasBench1Shot1, dataset: str, epochs: int, split: Split) -> NDArray[np.float64]:
        """Accuracy of every architecture of a space in percent, (size,), in the order of ``space.at``.

        Args:
            space: one of the NAS-Bench-1Shot1 spaces.
            dataset: cifar10.
            epochs: of training; 108.
            split: test.
        """
        _check_query(dataset, epochs, split)
        return 100 * self._archive["test_acc_108"][self.rows(space.hashes)].astype(np.float64)


def _check_query(dataset: str, epochs: int, split: Split) -> None:
    if dataset != "cifar10":
        raise unknown_name("data set of NAS-Bench-101", dataset, ("cifar10",))
    if (split, epochs) != ("test", 108):
        raise InputError("test after 108 epochs", f"{split} after {epochs} epochs")


def load_compact(path: str = "") -> NasBench101Table:
    """The compact archive at ``path``, or nb101.npz in the data folder."""
    if path and not Path(path).is_file():
        raise InputError("the compact NAS-Bench-101 archive", f"no file at {path}")
    return _read(Path(path) if path else require_data("nb101.npz", "the NAS-Bench-101 table"))


_read = read_once(NasBench101Table)  # many small searches look something up, and hashing takes long
