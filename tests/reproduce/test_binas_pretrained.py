"""BINAS from pretrained weights beside other ways to use them: limits, shares of the time, finished arms kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.reproduce import binas_pretrained
from archwright.reproduce.arms import limit_rows
from archwright.reproduce.base import Settings
from archwright.reproduce.binas_pretrained import ARMS, Others, arm_notes
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from helpers.tiny_start import tiny_start, write_grey_photos


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """A tiny comparison; what starts from scratch is another study's business."""
    data = write_grey_photos(tmp_path / "photos")
    monkeypatch.setattr(binas_pretrained, "written", lambda *_: data)
    monkeypatch.setattr(binas_pretrained, "BETWEEN", (16, 24))
    monkeypatch.setattr(binas_pretrained, "scratch", lambda *_: [50.0, 50.0, 50.0])
    with tiny_start():
        yield Settings(tmp_path / "binas-pretrained", seeds=1, only="photos")


def test_every_arm_answers_every_limit_and_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = binas_pretrained.binas_pretrained(settings)
    labels = [f"{arm} photos limit {number}" for arm in ARMS for number in (1, 2, 3)]
    assert [row.label for row in outcome.rows] == labels
    assert all(0 <= row.ours <= 100 for row in outcome.rows if row.ours is not None)
    folder = settings.folder / "photos"
    limits = binas_pretrained.prepared(folder / "plan", "not read again", 0.0)
    assert limits == sorted(limits)
    others = Others(folder / "ours-0", limits, ItemLog(folder / "networks" / "resolution-0.jsonl"), Stop())
    plan = others.ours.steps
    steps = {key.split()[1]: int(key.split()[-1]) for key in others.log.done}
    trained = sum(count * plan.step_ms[int(size)] for size, count in steps.items()) / 1000
    assert trained == pytest.approx(others.seconds(), rel=0.2)

    def not_again(*_: Any) -> Any:
        raise AssertionError("done before")

    monkeypatch.setattr(binas_pretrained, "run_arm", not_again)
    assert binas_pretrained.binas_pretrained(settings).rows == outcome.rows


def test_rows_and_notes_say_how_ours_stands() -> None:
    accuracies = {"ours": np.array([[90.0, 92.0], [94.0, 96.0]]), "frozen": np.array([[88.0, np.nan], [91.0, np.nan]])}
    rows = {row.label: row for arm, own in accuracies.items() for row in limit_rows("photos", arm, own)}
    assert rows["ours photos limit 1"].ours == 92.0
    assert rows["frozen photos limit 2"].ours is None
    notes = arm_notes("photos", [1.0, 2.0], accuracies)
    assert "limits 1 ms, 2 ms" in notes[0]
    assert "+2.50 ± 0.50, nothing keeps it points beside frozen" in notes[1]


def test_unknown_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="photos"):
        binas_pretrained.binas_pretrained(Settings(tmp_path, only="photo"))
