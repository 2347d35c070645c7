"""The comparison of ways to thin networks that have learned, tiny."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archwright.errors import InfeasibleError, InputError
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
    assert any("fisher 65 % MACs is" in note for note in outcome.notes)
    assert thin.thin(settings).rows == outcome.rows


@pytest.mark.usefixtures("small")
def test_a_limit_that_nothing_keeps_is_said_and_the_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that became slower than when the given network was timed."""
    real = thin.finished

    def slow(folder: Path, method: str, **settings: Any) -> Any:
        if "limits" in settings:
            raise InfeasibleError("no network that quick")
        return real(folder, method, **settings)

    monkeypatch.setattr(thin, "finished", slow)
    monkeypatch.setattr(thin, "has_onnx", lambda: True)
    monkeypatch.setattr(thin.Study, "limits", [1.0, 2.0])
    monkeypatch.setattr(thin.Study, "ratios", lambda self, tested: {one.label: 100.0 for one in tested[:1]})
    outcome = thin.thin(Settings(tmp_path, seeds=1, only="photos4"))
    assert [note for note in outcome.notes if "no network that quick" in note and "BINAS" in note]
    assert any("not quicker than given: fisher 50 % MACs (100 %)" in note for note in outcome.notes)
    assert not any("within" in row.label for row in outcome.rows)


def test_rows_of_an_arm_are_compared_by_the_seeds_that_it_has() -> None:
    rows = {"fisher x": [80.0, 82.0], "taylor x": [78.0, 81.0], "L1 x": [50.0]}
    found = thin.Found(given=[84.0, 84.0], rows=rows)
    (said,) = thin.standing_of("photos4", found, "x", ["fisher", "taylor", "L1", "random"])
    assert "-3.00 ± 1.00 points beside the given network" in said
    assert "+1.50 ± 0.50 beside taylor" in said
    assert "+30.00 beside L1 (first seed)" in said
    assert "random" not in said


def test_what_the_first_seed_leaves_far_behind_is_not_run_again(tmp_path: Path) -> None:
    rows = {
        "fisher 65 % MACs": [80.0],
        "fisher 50 % MACs": [70.0],
        "L1 65 % MACs": [69.0],
        "L1 50 % MACs": [59.0],
        "taylor 65 % MACs": [69.0],
        "taylor 50 % MACs": [61.0],
    }
    study = thin.Study(Settings(tmp_path), "photos4", "", "", thin.Found(rows=rows))
    assert study.far_behind("L1")
    assert not any(map(study.far_behind, ("fisher", "taylor", "random")))
    assert not thin.Study(Settings(tmp_path), "photos4", "", "", thin.Found()).far_behind("L1"), "no seed yet"


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="photos4"):
        thin.thin(Settings(tmp_path, only="photos5"))
