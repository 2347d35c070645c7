from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.spaces.nasbench201 import NASBENCH201, all_operations
from archwright.tables.base import load_benchmark
from archwright.tables.locate import require_data, shared_data
from archwright.tables.nasbench201 import CompactTable, NatsTable

# The benchmark's architecture with the official index 0.
FIRST = "|avg_pool_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|nor_conv_1x1~0|skip_connect~1|skip_connect~2|"


@pytest.mark.parametrize(("dataset", "best"), [("cifar10", 94.373), ("cifar100", 73.513), ("imagenet16-120", 47.311)])
def test_the_best_architectures_have_the_published_accuracy(nb201: CompactTable, dataset: str, best: float) -> None:
    accuracies = nb201.accuracies(dataset, 200, "test")
    assert accuracies.shape == (15_625,)
    assert accuracies.max() == pytest.approx(best, abs=2e-3)


def test_rows_are_the_official_index(nb201: CompactTable) -> None:
    first = NASBENCH201.parse(FIRST)
    assert nb201.row_of[first.index] == 0
    assert sorted(nb201.row_of.tolist()) == list(range(15_625))
    path = shared_data("nb201.npz")
    assert path is not None
    with np.load(path) as archive:
        for row in (0, 1, 777, 15_624):
            cell = NASBENCH201.parse(_text(archive["ops"][row]))
            assert nb201.row_of[cell.index] == row
            for dataset, prefix in (("cifar10", "c10"), ("cifar100", "c100"), ("imagenet16-120", "in16")):
                expected = float(archive[f"{prefix}_val_12"][row])
                assert nb201.accuracy(cell, dataset, 12, "validation") == expected
                assert nb201.accuracies(dataset, 12, "validation")[cell.index] == expected


def _text(operations: Any) -> str:
    names = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
    a, b, c, d, e, f = (names[int(o)] for o in operations)
    return f"|{a}~0|+|{b}~0|{c}~1|+|{d}~0|{e}~1|{f}~2|"


@pytest.mark.parametrize(("dataset", "prefix"), [("cifar10", "c10"), ("cifar100", "c100"), ("imagenet16-120", "in16")])
def test_the_measured_networks_have_the_scale_it_says(nb201: CompactTable, dataset: str, prefix: str) -> None:
    params, macs = nb201.column(f"{prefix}_params"), nb201.column(f"{prefix}_flops")
    scale = nb201.scale(dataset)
    for row in range(0, 15_625, 1301):
        cell = NASBENCH201.parse(_text(all_operations()[row]))
        cost = NASBENCH201.cost(cell, scale)
        assert cost.params == pytest.approx(_units(params[row]), rel=1e-4)
        assert cost.macs == pytest.approx(_units(macs[row]), rel=0.02)


def _units(value: float) -> float:
    """Counts, whether the archive keeps them plain or in millions."""
    return float(value) if value > 1e4 else 1e6 * float(value)


def test_there_are_27_devices_with_latencies(nb201: CompactTable) -> None:
    assert len(nb201.devices) == 27
    cell = NASBENCH201.parse(FIRST)
    for device in nb201.devices:
        latencies = nb201.latencies_ms(device)
        assert latencies.shape == (15_625,)
        assert nb201.latency_ms(cell, device) == latencies[cell.index]


def test_unknown_queries_say_what_is_known(nb201: CompactTable) -> None:
    cell = NASBENCH201.parse(FIRST)
    with pytest.raises(InputError, match="Did you mean 'cifar10'"):
        nb201.accuracy(cell, "cifr10", 200, "test")
    with pytest.raises(InputError, match="validation after 12 epochs, test after 12 epochs, test after 200 epochs"):
        nb201.accuracy(cell, "cifar10", 90, "test")
    with pytest.raises(InputError, match="got validation after 200 epochs"):
        nb201.accuracies("cifar10", 200, "validation")
    with pytest.raises(InputError, match="Did you mean 'pixel3'"):
        nb201.latency_ms(cell, "pixel33")
    with pytest.raises(InputError, match="column"):
        nb201.column("c10_val_13")


def test_the_archive_is_found_by_name_and_path(nb201: CompactTable) -> None:
    path = shared_data("nb201.npz")
    cell = NASBENCH201.parse(FIRST)
    for spec in ("nb201", f"nb201:{path}"):
        assert load_benchmark(spec).accuracy(cell, "cifar10", 200, "test") == nb201.accuracy(
            cell, "cifar10", 200, "test"
        )


def test_a_missing_or_foreign_archive_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="no file at"):
        load_benchmark(f"nb201:{tmp_path / 'none.npz'}")
    (tmp_path / "text.npz").write_text("not an archive")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.savez(tmp_path / "short.npz", ops=np.zeros((10, 6), np.uint8), op_names=np.array(["none"]))
    for name in ("text.npz", "other.npz", "short.npz"):
        with pytest.raises(InputError, match=name):
            load_benchmark(f"nb201:{tmp_path / name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARCHWRIGHT_DATA", raising=False)
    assert shared_data("surely-absent.npz") is None
    with pytest.raises(InputError, match="set ARCHWRIGHT_DATA"):
        require_data("surely-absent.npz", "a table")
    monkeypatch.setenv("ARCHWRIGHT_DATA", str(tmp_path))
    assert require_data("other.npz", "a table") == tmp_path / "other.npz"


# --- NATS-Bench's own files ------------------------------------------------------------------------------------------


class FakeApi:
    """The two methods of NATS-Bench's topology interface that are used, with its call signatures and answers.

    As in the library, CIFAR-10's validation accuracy is under ``cifar10-valid`` and its test accuracy after training on
    all images under ``cifar10``; an unknown architecture has the index -1.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def query_index_by_arch(self, arch: Any) -> int:
        return 0 if arch == FIRST else -1

    def get_more_info(
        self, index: int, dataset: str, iepoch: int | None = None, hp: str = "12", is_random: bool = True
    ) -> dict[str, float]:
        assert index == 0
        assert isinstance(hp, str)
        assert is_random is False  # the mean over seeds, not one drawn at random
        self.asked.append((dataset, iepoch, hp))
        values = {
            "cifar10-valid": (1.0, 2.0),
            "cifar10": (None, 3.0),
            "cifar100": (4.0, 5.0),
            "ImageNet16-120": (6.0, 7.0),
        }
        valid, test = values[dataset]
        found = {"train-accuracy": 99.0, "test-accuracy": test + (10 if hp == "200" else 0)}
        return found if valid is None else {**found, "valid-accuracy": valid, "valtest-accuracy": 50.0}


@pytest.mark.parametrize(
    ("dataset", "epochs", "split", "expected", "asked"),
    [
        ("cifar10", 12, "validation", 1.0, ("cifar10-valid", None, "12")),
        ("cifar10", 12, "test", 3.0, ("cifar10", None, "12")),
        ("cifar10", 200, "test", 13.0, ("cifar10", None, "200")),
        ("cifar100", 12, "validation", 4.0, ("cifar100", None, "12")),
        ("imagenet16-120", 200, "test", 17.0, ("ImageNet16-120", None, "200")),
    ],
)
def test_nats_is_asked_in_its_own_terms(
    dataset: str, epochs: int, split: Any, expected: float, asked: tuple[Any, ...]
) -> None:
    api = FakeApi()
    assert NatsTable(api).accuracy(NASBENCH201.parse(FIRST), dataset, epochs, split) == expected
    assert api.asked == [asked]


def test_nats_refuses_what_it_does_not_have() -> None:
    table = NatsTable(FakeApi())
    with pytest.raises(InputError, match="an architecture of NATS-Bench"):
        table.accuracy(NASBENCH201.parse(FIRST.replace("avg_pool", "nor_conv")), "cifar10", 12, "test")
    with pytest.raises(InputError, match="data set"):
        table.accuracy(NASBENCH201.parse(FIRST), "svhn", 12, "test")
    with pytest.raises(InputError, match="after 90 epochs"):
        table.accuracy(NASBENCH201.parse(FIRST), "cifar10", 90, "test")
    with pytest.raises(InputError, match="device"):
        table.latency_ms(NASBENCH201.parse(FIRST), "pixel3")


def test_the_fake_has_the_signatures_of_the_library() -> None:
    nats = pytest.importorskip("nats_bench", reason="needs the extra 'nats'")
    for name in ("query_index_by_arch", "get_more_info"):
        real = inspect.signature(getattr(nats.api_topology.NATStopology, name)).parameters
        assert list(inspect.signature(getattr(FakeApi, name)).parameters) == list(real)


def test_nats_without_its_files_says_what_to_give(tmp_path: Path) -> None:
    for spec in ("nats", f"nats:{tmp_path / 'none'}"):
        with pytest.raises(InputError, match="nats:PATH"):
            load_benchmark(spec)


def test_nats_without_its_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nats_bench", None)
    with pytest.raises(InputError, match=r"archwright\[nats\]"):
        load_benchmark(f"nats:{tmp_path}")
