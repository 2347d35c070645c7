"""A search over precision beside whole networks in float and int8: rows, steps, finished arms kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from archwright.errors import InputError
from archwright.reproduce import binas_precision
from archwright.reproduce.base import Settings
from archwright.reproduce.binas_precision import ARMS, Whole, arm_notes, half_note
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.search.jobs import measure as accuracy_of
from helpers.tiny_start import tiny_start, write_grey_photos

LIMITS = [0.75, 2.0]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    data = write_grey_photos(tmp_path / "photos")
    monkeypatch.setattr(binas_precision, "written", lambda *_: data)
    monkeypatch.setattr(binas_precision, "LIMITS", LIMITS)
    with tiny_start():
        yield Settings(tmp_path / "binas-precision", seeds=1, only="photos")


def test_every_arm_answers_every_limit_and_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = binas_precision.binas_precision(settings)
    assert [row.label for row in outcome.rows] == [f"{arm} photos {limit:g} ms" for arm in ARMS for limit in LIMITS]
    assert all(0 <= row.ours <= 100 for row in outcome.rows if row.ours is not None)
    folder = settings.folder / "photos"
    whole = Whole(folder / "ours-0", ItemLog(folder / "networks" / "whole-0.jsonl"), Stop())
    tuned = {key for key in whole.log.done if not key.endswith(" for 0")}
    sizes = {whole.largest(limit, precision) for limit in LIMITS for precision in ("fp32", "int8")} - {None}
    assert tuned == {f"{size} for {whole.steps}" for size in sizes}
    assert whole.steps == whole.ours.steps.trunk_steps
    trunk = whole.ours.steps.trunk_size
    same = accuracy_of(whole.ours.trainer.load("trunk"), whole.ours.data(trunk), "test", "cpu").percent
    assert whole.tested(trunk, whole.steps, "fp32") == same, "the control at the trunk's size is the trunk"

    def not_again(*_: Any) -> Any:
        raise AssertionError("done before")

    monkeypatch.setattr(binas_precision, "run_arm", not_again)
    assert binas_precision.binas_precision(settings).rows == outcome.rows


def test_notes_say_how_ours_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binas_precision, "LIMITS", LIMITS)
    ours, less = np.array([[90.0, 96.0], [94.0, 98.0]]), np.array([[80.0, 90.0], [84.0, 92.0]])
    accuracies = {arm: ours if arm == "ours" else less for arm in ARMS}
    accuracies["frozen"] = np.array([[np.nan, 90.0], [np.nan, 90.0]])
    latencies = {arm: np.array([[0.5, 1.0], [0.5, 1.0]]) for arm in ARMS}
    notes = arm_notes("photos", [0.75], accuracies, latencies)
    assert "break" in notes[0]
    assert "0.75 ms" in notes[0]
    assert "+10.00 ± 0.00, +6.00 ± 0.00 points beside ours-fp32" in notes[1]
    assert "in the mean over limits +8.00 ± 0.00, over those that bind +10.00" in notes[1]
    assert "(nothing keeps it), +7.00" in notes[4]
    assert "91.00 % in 1 ms; ours has 92.00 % in 0.5 ms, 0.50 times that" in notes[5]
    accuracies["ours"] = less - 20
    assert "nowhere as accurate" in half_note("photos", accuracies, latencies)[0]


def test_unknown_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="photos"):
        binas_precision.binas_precision(Settings(tmp_path, only="photo"))
