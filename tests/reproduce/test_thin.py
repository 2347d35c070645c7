"""The comparison of ways to thin networks that have learned, tiny."""

from __future__ import annotations

from pathlib import Path

import pytest

from archwright.errors import InputError
from archwright.reproduce import thin
from archwright.reproduce.base import Settings


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thin, "prepared", lambda name, folder: ("digits", "helpers.trained_networks:learned"))
    monkeypatch.setattr(thin, "STEPS", 2)
    monkeypatch.setattr(thin, "has_onnx", lambda: False)
    arms = {name: {**own, "keep_macs": thin.FEWER} for name, own in thin.ARMS.items() if name in ("fisher", "random")}
    monkeypatch.setattr(thin, "ARMS", arms)


@pytest.mark.usefixtures("small")
def test_every_arm_has_a_row_and_a_killed_study_goes_on(tmp_path: Path) -> None:
    settings = Settings(tmp_path, seeds=1, only="cifar")
    outcome = thin.thin(settings)
    rows = {row.label: row.ours for row in outcome.rows}
    assert rows["cifar fisher 65 % MACs"] > rows["cifar random 50 % MACs"]
    assert rows["cifar given network"] > 80
    assert any("fisher with 65 % MACs is" in note for note in outcome.notes)
    assert thin.thin(settings).rows == outcome.rows


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="photos4"):
        thin.thin(Settings(tmp_path, only="photos5"))
