"""NAS-Bench-201 (NATS-Bench topology): accuracies of all 15,625 cells on three data sets, latencies on 27 devices.

Two sources behind one interface: a compact NumPy archive, and NATS-Bench's own files through its library. The second
are pickles: reading them runs code, so only files from their authors should be used.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from archwright.data.arrays import BAD_ARCHIVE, check_claims
from archwright.errors import InputError, missing_extra, unknown_name
from archwright.spaces.base import Architecture, Scale
from archwright.spaces.nasbench201 import NAMES, NASBENCH201, Cell201
from archwright.tables.base import Benchmark, Split
from archwright.tables.locate import read_once, require_data

_PREFIX = {"cifar10": "c10", "cifar100": "c100", "imagenet16-120": "in16"}
_COLUMNS: tuple[tuple[Split, int], ...] = (("validation", 12), ("test", 12), ("test", 200))


class NasBench201Table(Benchmark):
    """What both sources share: data sets, and the protocol (search on 12-epoch validation, report 200-epoch test)."""

    spaces = ("nasbench201",)
    datasets = tuple(_PREFIX)
    search_protocol: ClassVar[tuple[Split, int]] = ("validation", 12)
    report_protocol: ClassVar[tuple[Split, int]] = ("test", 200)

    def scale(self, dataset: str) -> Scale:
        """16 channels, 5 cells a stage; 32 px, and 16 px for ImageNet16-120."""
        classes, size = {"cifar10": (10, 32), "cifar100": (100, 32), "imagenet16-120": (120, 16)}[dataset]
        return NASBENCH201.scales["paper"].changed(classes=classes, image_size=size)


def _check_query(dataset: str, epochs: int, split: Split) -> None:
    if dataset not in _PREFIX:
        raise unknown_name("data set of NAS-Bench-201", dataset, _PREFIX)
    if (split, epochs) not in _COLUMNS:
        known = ", ".join(f"{s} after {e} epochs" for s, e in _COLUMNS)
        raise InputError(f"one of: {known}", f"{split} after {epochs} epochs")


class CompactTable(NasBench201Table):
    """The compact archive: one row an architecture."""

    name = "nb201"

    def __init__(self, path: Path) -> None:
        try:
            check_claims(path)
            self._archive = np.load(path)
            operations, names = self._archive["ops"].astype(np.int64), tuple(self._archive["op_names"].tolist())
        except BAD_ARCHIVE as error:
            raise InputError("the compact NAS-Bench-201 archive", f"{path} ({error})") from error
        if operations.shape != (15_625, 6) or names != NAMES or operations.min() < 0 or operations.max() >= len(NAMES):
            raise InputError("15,625 rows of six operations", f"{operations.shape} in {path}")
        self.row_of = np.empty(15_625, dtype=np.int64)
        """Row of the archive (the benchmark's official index) of each cell in lexicographic order."""
        self.row_of[np.ravel_multi_index(tuple(operations.T), (5,) * 6)] = np.arange(15_625)
        self._columns: dict[str, NDArray[Any]] = {}

    def column(self, name: str) -> NDArray[Any]:
        """A column of the archive in the lexicographic order of ``spaces.nasbench201.all_operations``."""
        if name not in self._columns:
            if name not in self._archive.files:
                raise unknown_name("column of the archive", name, self._archive.files)
            try:
                values = self._archive[name]
            except BAD_ARCHIVE as error:
                raise InputError(f"a readable column {name!r}", str(error)) from error
            if values.shape[:1] != self.row_of.shape:
                raise InputError(f"15,625 rows in the column {name!r}", f"the shape {values.shape}")
            self._columns[name] = values[self.row_of]
        return self._columns[name]

    def accuracies(self, dataset: str, epochs: int, split: Split) -> NDArray[np.float64]:
        """Accuracy of all 15,625 cells in percent, (15625,), in lexicographic order.

        Args:
            dataset: cifar10, cifar100 or imagenet16-120.
            epochs: of training; 12 or 200.
            split: validation or test.
        """
        _check_query(dataset, epochs, split)
        short = "val" if split == "validation" else "test"
        return self.column(f"{_PREFIX[dataset]}_{short}_{epochs}").astype(np.float64)

    def accuracy(self, architecture: Architecture, dataset: str, epochs: int, split: Split) -> float:
        """Percent correct, one look-up by the cell's index."""
        assert isinstance(architecture, Cell201)
        _check_query(dataset, epochs, split)
        short = "val" if split == "validation" else "test"
        return float(self.column(f"{_PREFIX[dataset]}_{short}_{epochs}")[architecture.index])

    @cached_property
    def devices(self) -> tuple[str, ...]:
        """27 devices; the number behind the name is the batch size."""
        return tuple(str(name) for name in self._archive["latency_devices"])

    def latencies_ms(self, device: str) -> NDArray[np.floating[Any]]:
        """Latency of all cells on ``device``, (15625,), in lexicographic order."""
        if device not in self.devices:
            raise unknown_name("device", device, self.devices)
        return self.column("latency_ms")[:, self.devices.index(device)]

    def latency_ms(self, architecture: Architecture, device: str) -> float:
        """Milliseconds, one look-up by the cell's index."""
        assert isinstance(architecture, Cell201)
        return float(self.latencies_ms(device)[architecture.index])


class NatsTable(NasBench201Table):
    """NATS-Bench's own files through its library (``nats_bench.create``)."""

    name = "nats"

    def __init__(self, api: Any) -> None:
        self._api = api

    def accuracy(self, architecture: Architecture, dataset: str, epochs: int, split: Split) -> float:
        """One look-up by the architecture's text."""
        _check_query(dataset, epochs, split)
        names = {"cifar10": "cifar10", "cifar100": "cifar100", "imagenet16-120": "ImageNet16-120"}
        name = "cifar10-valid" if (dataset, split) == ("cifar10", "validation") else names[dataset]
        index = self._api.query_index_by_arch(str(architecture))
        if index < 0:
            raise InputError("an architecture of NATS-Bench", str(architecture))
        info = self._api.get_more_info(index, name, hp=str(epochs), is_random=False)
        return float(info["valid-accuracy" if split == "validation" else "test-accuracy"])


def load_compact(path: str = "") -> CompactTable:
    """The compact archive at ``path``, or nb201.npz in the data folder."""
    if path and not Path(path).is_file():
        raise InputError("the compact NAS-Bench-201 archive", f"no file at {path}")
    return _read(Path(path) if path else require_data("nb201.npz", "the NAS-Bench-201 table"))


def load_nats(path: str) -> NatsTable:
    """NATS-Bench's folder (``NATS-tss-v1_0-3ffb9-simple``) or file at ``path``; needs the extra ``nats``."""
    if not path or not Path(path).exists():
        raise InputError("nats:PATH with the folder or file of NATS-Bench's topology space", f"{path!r}")
    return _read_nats(Path(path))


_read = read_once(CompactTable)


@read_once
def _read_nats(path: Path) -> NatsTable:
    try:
        from nats_bench import create
    except ImportError as error:
        raise missing_extra("nats-bench", "nats", "reading NATS-Bench's own files") from error
    return NatsTable(create(str(path), "tss", fast_mode=path.is_dir(), verbose=False))
