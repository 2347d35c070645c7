"""What every test shares: one thread, runs in a temporary folder, and the NAS-Bench-201 table where it is at hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from archwright.tables.locate import shared_data
from archwright.tables.nasbench201 import CompactTable

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def import_path() -> Iterator[None]:
    """Where modules are found is as before after each test: own modules add the present folder, here one a test."""
    before = [*sys.path]
    yield
    sys.path[:] = before


@pytest.fixture(autouse=True)
def runs_folder(import_path: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of a test, and of the processes it starts, stay in its own folder."""
    monkeypatch.setenv("ARCHWRIGHT_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many faults were put in the way of a search (tests/runs/test_faults.py)."""
    passed = terminalreporter.stats.get("passed", [])
    points = sum(value for report in passed for name, value in report.user_properties if name == "fault points")
    if points:
        terminalreporter.write_line(f"{points:,} faults, after each of which the end was the same")


@pytest.fixture(scope="session")
def nb201() -> CompactTable:
    path = shared_data("nb201.npz")
    if path is None:
        pytest.skip("needs nb201.npz in $ARCHWRIGHT_DATA or ../shared/data")
    return CompactTable(path)
