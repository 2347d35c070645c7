from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.reproduce import conas
from archwright.reproduce.base import Outcome, Settings
from archwright.runs.run import Run
from archwright.solvers.polynomial import Polynomial
from archwright.tables.locate import shared_data

DATA = "random:classes=10,size=8,channels=3,count=120"
TINY = {"supernet_epochs": 1, "images": 16, "measure_batch": 16}


def rows(outcome: Outcome) -> dict[str, Any]:
    return {row.label: row for row in outcome.rows}


def test_table_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shared_data("nb201.npz") is None:
        pytest.skip("needs nb201.npz in the data folder")
    monkeypatch.setattr(conas, "TABLE_2_SETTINGS", {**conas.TABLE_2_SETTINGS, **TINY, "channels": 4})
    monkeypatch.setattr(conas, "TABLE_2_MEASUREMENTS", 8)
    monkeypatch.setattr(conas, "TABLE_2_RECOVERY", {"rounds": 2, "threshold": 9.0})
    found = rows(conas.conas_2(Settings(tmp_path, seeds=1, data=DATA)))
    for label, papers in conas.TABLE_2.items():
        for dataset, paper in zip(("cifar10", "cifar100", "imagenet16-120"), papers, strict=True):
            row = found[f"{label} {dataset} test accuracy"]
            assert row.paper == paper
            assert 0 < row.ours <= 94.38
    gain = found["CoNAS less RSPS, cifar10"].ours
    difference = found["CoNAS cifar10 test accuracy"].ours - found["RSPS cifar10 test accuracy"].ours
    assert gain == pytest.approx(difference)
    assert -1 <= found["tau of supernet loss and table accuracy"].ours <= 1
    # both choices come from the same measurements
    first, second = (Run.open(tmp_path / name).items("measure").done for name in ("conas-0", "strongest-0"))
    assert first == second


def test_table_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conas, "TABLE_1_SETTINGS", {**conas.TABLE_1_SETTINGS, "final_epochs": 1})
    monkeypatch.setattr(conas, "TABLE_1_SEARCH", {**TINY, "measurements": 6})
    monkeypatch.setattr(conas, "TABLE_1_RECOVERY", {"rounds": 1, "threshold": 9.0})
    found = rows(conas.conas_1(Settings(tmp_path, seeds=1, data=DATA)))
    assert found["CoNAS (1) free cell test error"].paper == 2.67
    for label in conas.TABLE_1:
        assert 0 <= found[f"{label} test error"].ours <= 100
        assert found[f"{label} parameters"].ours > 0


def test_table_6_from_planted_measurements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.choice([-1, 1], size=(400, 196)).astype(np.int8)
    # twelve bits that lower the loss when on: every lambda that finds them has the same solution
    truth = Polynomial(196, {(): 1.0, **{(16 * k,): -0.05 for k in range(12)}})
    monkeypatch.setattr(conas, "TABLE_1_SETTINGS", {**conas.TABLE_1_SETTINGS, "final_epochs": 1})
    monkeypatch.setattr(conas, "TABLE_1_SEARCH", {**TINY, "measurements": 6})
    monkeypatch.setattr(conas, "TABLE_1_RECOVERY", {"rounds": 1, "threshold": 9.0})
    monkeypatch.setattr(conas, "TABLE_6_EPOCHS", 1)
    monkeypatch.setattr(conas, "TABLE_6_RANDOM", 2)
    conas.conas_1(Settings(tmp_path / "conas-1", seeds=1, data=DATA))
    monkeypatch.setattr(conas, "measured", lambda _folder: (x, truth(x)))
    settings = Settings(tmp_path / "conas-6", seeds=1, data=DATA)
    outcome = conas.conas_6(settings)
    found = rows(outcome)
    assert [found[f"Hamming distance, lambda {lam:g}"].ours for lam in conas.TABLE_6] == [0, 0, 0, 0]
    assert found["bits on, lambda 1"].ours == 12
    assert found["Hamming distance, random"].ours == pytest.approx(2 * 12 * (1 - 12 / 196))
    errors = {label: row.ours for label, row in found.items() if label.startswith("test error")}
    assert len(errors) == 6
    assert all(0 <= one <= 100 for one in errors.values())
    assert (
        len({errors[f"test error, lambda {lam:g}"] for lam in (1, *conas.TABLE_6)}) == 1
    )  # one solution, trained once
    monkeypatch.setattr(conas, "train_answer", lambda *_, **__: pytest.fail("trained again"))
    assert conas.conas_6(settings).rows == outcome.rows
