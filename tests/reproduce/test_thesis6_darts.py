"""Tables 6.2 and 7.7 with searches that are made up: what is asked for, and what the rows and notes say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archwright.reproduce import thesis6_darts as darts
from archwright.reproduce.base import Outcome, Settings
from archwright.reproduce.searches import name_of
from archwright.search.answer import Answer, Candidate

ERRORS = {"nasi": (40.0, 42.0), "hnas": (39.0, 41.0), "random": (44.0, 50.0)}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was searched for, by its settings; every search ends with the error of its method and seed."""
    seen: list[dict[str, Any]] = []

    def found(folder: Path, method: str, **settings: Any) -> Answer:
        assert folder.parent.name == "darts-searches"
        seen.append({"folder": folder.name, "method": method, **settings})
        normal = {"width": 3.0, "depth": 2 + settings["seed"], "skips": 2, "edges": 8, "skip_share": 0.25}
        best = Candidate(
            architecture="x",
            accuracy=100 - ERRORS[method][settings["seed"]],
            params=50_000,
            topology={"normal": normal, "reduce": normal},
        )
        return Answer(
            method=method,
            space="darts",
            data=settings["data"],
            seed=settings["seed"],
            best=best,
            evaluations=1,
            seconds=1.0,
            run=str(folder),
        )

    monkeypatch.setattr(darts, "finished", found)
    return seen


def rows(outcome: Outcome) -> dict[str, tuple[float | None, float | None]]:
    """Paper and ours by label."""
    found = {row.label: (row.paper, row.ours) for row in outcome.rows}
    assert len(found) == len(outcome.rows)
    return found


def test_table_6_2(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    outcome = darts.table_6_2(Settings(tmp_path / "table", seeds=2, data="random:count=64"))
    found = rows(outcome)
    assert found["NASI-FIX C10 test error"] == (2.79, 41.0)
    assert found["random C10 test error"] == (None, 47.0)
    assert found["NASI-ADA parameters"] == (3.7, 0.05)
    assert found["NASI-ADA depth"] == (None, 2.5)
    assert found["NASI-FIX C100 test error"] == (16.12, None)
    # standard error: sqrt(2 / 2 + 18 / 2)
    assert "NASI-FIX less random cells: -6.00 points of error, standard error 3.16" in outcome.notes
    assert sorted(one["seed"] for one in asked if one["method"] == "random") == [0, 1]
    assert {one["nu"] for one in asked if one["method"] == "nasi"} == {"fixed", "adaptive"}


def test_table_7_7_shares_its_arms_with_table_6_2(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    settings = Settings(tmp_path / "table", seeds=2, data="random:count=64")
    darts.table_6_2(settings)
    before = {one["folder"] for one in asked}
    found = rows(darts.table_7_7(settings))
    assert found["HNAS C10 test error"] == (2.62, 40.0)
    new = [(one["method"], one["seed"]) for one in asked if one["folder"] not in before]
    assert new == [("hnas", 0), ("hnas", 1)]


def test_a_name_belongs_to_the_settings_in_any_order() -> None:
    assert name_of({"a": 1, "b": 2}) == name_of({"b": 2, "a": 1})
    assert name_of({"a": 1, "b": 2}) != name_of({"a": 2, "b": 1})
