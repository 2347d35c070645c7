"""BINAS beside other ways: equal seconds, networks within their limits, finished work kept, and a small run of all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.reproduce import binas_compare
from archwright.reproduce.base import Settings
from archwright.reproduce.binas_compare import ARMS, Bench, bench_notes, bench_rows, equal_time, limits_of
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from helpers.binas_plans import ALONE, PLAN, planned_run, space_of, table_of

GREY = "random:classes=2,size=8,channels=1,count=120"
SPACE = space_of()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A tiny comparison on noise, with a counted plan in place of a measured one."""
    monkeypatch.setattr(binas_compare, "benches", lambda: {"grey": Bench("grey", GREY, 8, 0.1)})
    monkeypatch.setattr(binas_compare, "prepared", prepared)
    return Settings(tmp_path / "binas-compare", seeds=1, only="grey")


def prepared(folder: Path, bench: Bench) -> Path:
    if not folder.exists():
        planned_run(folder, SPACE, equal_time(PLAN, bench.seconds, 3))
        Run.open(folder).items("plain").record("latency_ms", 1.1 * limits_of(folder)[0])
    return folder


def test_every_arm_answers_every_limit_within_it_and_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = binas_compare.binas_compare(settings)
    limits = [f"limit {number}" for number in (1, 2, 3)]
    assert [row.label for row in outcome.rows] == [f"{arm} grey {what}" for arm in ARMS for what in (*limits, "mean")]
    slow = {"plain grey limit 1", "plain grey mean"}  # the plain network does not keep the first limit
    assert {row.label for row in outcome.rows if row.ours is None} == slow
    assert all(row.ours is None or 0 <= row.ours <= 100 for row in outcome.rows)
    found = ItemLog(settings.folder / "grey" / "finished.jsonl").done
    milliseconds = binas_compare.limits_of(settings.folder / "grey" / "plan")
    for arm in ("BINAS", "uniform", "random", "evolution"):
        networks = [SPACE.parse(text) for text in found[f"{arm} seed 0"]["networks"]]
        assert (table_of(SPACE).predict(SPACE, networks) <= milliseconds).all(), arm
    assert len(set(found["control seed 0"]["networks"])) == 1
    assert found["control seed 0"]["networks"][0] == found["BINAS seed 0"]["networks"][0]
    counts = [
        len(ItemLog(settings.folder / "grey" / "networks" / f"{arm}-0.jsonl").done) for arm in ("control", "plain")
    ]
    assert counts == [1, 1]

    def not_again(*_: Any, **__: Any) -> Any:
        raise AssertionError("done before")

    folder = settings.folder / "grey"
    shared = {"seconds": 0.1, "limits": milliseconds, "plain_ms": 1.0, "folder": str(folder), "seed": 0}
    (folder / "networks" / "evolution-0.jsonl").unlink()
    first = next(iter(ItemLog(folder / "networks" / "random-0.jsonl").done))
    with monkeypatch.context() as patch:
        patch.setattr(binas_compare, "train", not_again)  # evolution begins with the random arm's networks
        with pytest.raises(AssertionError, match="done before"):
            binas_compare.run_arm({"arm": "evolution", **shared}, Stop())
    assert next(iter(ItemLog(folder / "networks" / "evolution-0.jsonl").done)) == first
    monkeypatch.setattr(binas_compare, "run_arm", not_again)
    assert binas_compare.binas_compare(settings).rows == outcome.rows


def test_all_arms_have_the_same_seconds() -> None:
    plan = equal_time(PLAN, 120.0, 3)
    assert plan.shared
    assert plan.trunk_seconds + 2 * plan.growth_seconds + 4 * plan.candidate_seconds(4) == pytest.approx(120.0)
    alone = equal_time(ALONE, 120.0, 3)
    assert not alone.shared
    assert alone.trunk_seconds + 4 * alone.candidate_seconds(4) == pytest.approx(120.0)
    assert plan.step_factor == PLAN.step_factor


def test_rows_and_notes_say_how_binas_stands() -> None:
    accuracies = {"BINAS": np.array([[90.0, 92.0], [94.0, 96.0]]), "plain": np.array([[88.0, 88.0], [91.0, 91.0]])}
    rows = {row.label: row for row in bench_rows("grey", accuracies)}
    assert rows["BINAS grey limit 2"].ours == 94.0
    assert rows["plain grey mean"].ours == 89.5
    notes = bench_notes(Bench("grey", GREY, 8, 5.0), [0.1, 0.2], accuracies)
    assert "limits 0.1 ms, 0.2 ms" in notes[0]
    assert "+3.50 ± 0.50 points beside plain, mean over the limits" in notes[1]  # 3 and 4: their error is .5
    slower = {**accuracies, "plain": np.array([[np.nan, 88.0], [np.nan, 91.0]]), "slow": np.full((2, 2), np.nan)}
    rows = {row.label: row.ours for row in bench_rows("grey", slower)}
    assert (rows["plain grey limit 1"], rows["plain grey limit 2"], rows["plain grey mean"]) == (None, 89.5, None)
    notes = bench_notes(Bench("grey", GREY, 8, 5.0), [0.1, 0.2], slower)
    assert len(notes) == 2
    assert "+4.50 ± 0.50 points beside plain, mean over those of the limits that it keeps" in notes[1]


def test_unknown_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'digits'"):
        binas_compare.binas_compare(Settings(tmp_path, only="digit"))
