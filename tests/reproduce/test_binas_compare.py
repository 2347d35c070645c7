"""BINAS beside other ways: equal seconds, networks within their limits, finished work kept, and a small run of all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from archwright.costs.clock import MARGIN
from archwright.data.request import DataRequest, load_data
from archwright.errors import InputError
from archwright.methods.binas.thin import Thin
from archwright.reproduce import binas_compare
from archwright.reproduce.arms import arm_rows, below, run_arms
from archwright.reproduce.base import Settings
from archwright.reproduce.binas_compare import ARMS, ROOM, Bench, bench_notes, equal_time, within_reach
from archwright.runs.files import Json
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from helpers.binas_plans import PLAN, planned_run, space_of, table_of

GREY = "random:classes=2,size=8,channels=1,count=120"
SPACE = space_of()
(NARROW,) = table_of(SPACE).predict(SPACE, [SPACE.plain(width=1)]).tolist()
LIMITS = [times * NARROW for times in (1.05, 1.8, 3.5)]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A tiny comparison on noise, with a counted plan in place of a measured one."""
    monkeypatch.setattr(binas_compare, "benches", lambda: {"grey": Bench("grey", GREY, 8, 0.1)})
    monkeypatch.setattr(binas_compare, "prepared", prepared)
    return Settings(tmp_path / "binas-compare", seeds=1, only="grey")


def prepared(folder: Path, bench: Bench) -> Path:
    if not folder.exists():
        planned_run(folder, SPACE, equal_time(PLAN, bench.seconds, 3))
        log = Run.open(folder).items("milliseconds")
        log.record("limits", LIMITS)
        for name in binas_compare.PLAINS:
            log.record(name, 1.1 * LIMITS[0])
    return folder


def test_every_arm_answers_every_limit_within_it_and_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = binas_compare.binas_compare(settings)
    limits = [f"limit {number}" for number in (1, 2, 3)]
    assert [row.label for row in outcome.rows] == [f"{arm} grey {what}" for arm in ARMS for what in (*limits, "mean")]
    slow = {f"{arm} grey {what}" for arm in binas_compare.PLAINS for what in ("limit 1", "mean")}  # not kept by these
    assert {row.label for row in outcome.rows if row.ours is None} == slow
    assert all(row.ours is None or 0 <= row.ours <= 100 for row in outcome.rows)
    found = ItemLog(settings.folder / "grey" / "finished.jsonl").done
    for arm in ("BINAS", "uniform", "random", "evolution"):
        networks = [SPACE.parse(text) for text in found[f"{arm} seed 0"]["networks"]]
        assert (table_of(SPACE).predict(SPACE, networks) <= LIMITS).all(), arm
    assert len(set(found["control seed 0"]["networks"])) == 1
    assert found["control seed 0"]["networks"][0] == found["BINAS seed 0"]["networks"][0]
    counts = [
        len(ItemLog(settings.folder / "grey" / "networks" / f"{arm}-0.jsonl").done) for arm in ("control", "plain")
    ]
    assert counts == [1, 1]

    def not_again(*_: Any, **__: Any) -> Any:
        raise AssertionError("done before")

    folder = settings.folder / "grey"
    shared = {"seconds": 0.1, "limits": LIMITS, "plain_ms": {}, "folder": str(folder), "seed": 0}
    (folder / "networks" / "evolution-0.jsonl").unlink()
    first = next(iter(ItemLog(folder / "networks" / "random-0.jsonl").done))
    with monkeypatch.context() as patch:
        patch.setattr(binas_compare, "train", not_again)  # evolution begins with the random arm's networks
        with pytest.raises(AssertionError, match="done before"):
            binas_compare.run_arm({"arm": "evolution", **shared}, Stop())
    assert next(iter(ItemLog(folder / "networks" / "evolution-0.jsonl").done)) == first
    monkeypatch.setattr(binas_compare, "run_arm", not_again)
    assert binas_compare.binas_compare(settings).rows == outcome.rows


def test_all_arms_have_the_same_seconds(settings: Settings) -> None:
    plan = equal_time(PLAN, 120.0, 3)
    assert (plan.seconds, plan.limits, plan.beside_seconds, plan.shifted) == (120.0, 3, 0.0, True)
    binas_compare.binas_compare(settings)
    allotted = ItemLog(settings.folder / "grey" / "binas-0" / "items" / "allotted.jsonl").done
    assert sum(allotted.values()) == pytest.approx(0.1)
    for arm in ("uniform", "random", "control"):
        keys = list(ItemLog(settings.folder / "grey" / "networks" / f"{arm}-0.jsonl").done)
        assert sum(float(key.rsplit(" ", 1)[1]) for key in keys) == pytest.approx(0.1, rel=0.05), arm


@pytest.mark.parametrize(("seconds", "fits"), [(6.0, True), (2.9, False)])
def test_many_candidates_need_the_usual_steps_and_not_those_of_an_answer(
    seconds: float, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer whose images are shifted should have 10,000 steps; nine candidates share the time of one."""
    spending = PLAN.model_copy(update={"step_fixed_ms": 1.0, "step_mega_ms": 1.0, "fewest_steps": 10_000})
    monkeypatch.setattr(binas_compare.Others, "thin", SimpleNamespace(spending=spending))
    monkeypatch.setattr(binas_compare.Others, "costs", lambda *_: {"latency_ms": 1.0, "macs": 1e6})
    others = binas_compare.Others(tmp_path, [2.0] * 3, ItemLog(tmp_path / "log.jsonl"), 9 * seconds, Stop())
    assert others.fits(SPACE.plain(), 2.0) == fits


def test_the_four_convolutions_are_those_of_the_table() -> None:
    data = load_data(DataRequest("random:classes=10,size=28,channels=1,count=60", 0))
    network = binas_compare.FourConvolutions(data)
    assert sum(parameter.numel() for parameter in network.parameters()) == 61_050
    assert network.eval()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_rows_and_notes_say_how_binas_stands() -> None:
    accuracies = {"BINAS": np.array([[90.0, 92.0], [94.0, 96.0]]), "plain": np.array([[88.0, 88.0], [91.0, 91.0]])}
    rows = {row.label: row for row in arm_rows("grey", accuracies)}
    assert rows["BINAS grey limit 2"].ours == 94.0
    assert rows["plain grey mean"].ours == 89.5
    notes = bench_notes(Bench("grey", GREY, 8, 5.0), [0.1, 0.2], accuracies)
    assert "limits 0.1 ms, 0.2 ms" in notes[0]
    assert "+3.50 ± 0.50 points beside plain, mean over the limits" in notes[1]  # 3 and 4: their error is .5
    slower = {**accuracies, "plain": np.array([[np.nan, 88.0], [np.nan, 91.0]]), "slow": np.full((2, 2), np.nan)}
    rows = {row.label: row.ours for row in arm_rows("grey", slower)}
    assert (rows["plain grey limit 1"], rows["plain grey limit 2"], rows["plain grey mean"]) == (None, 89.5, None)
    notes = bench_notes(Bench("grey", GREY, 8, 5.0), [0.1, 0.2], slower)
    assert len(notes) == 2
    assert "+4.50 ± 0.50 points beside plain, mean over those of the limits that it keeps" in notes[1]


def test_limits_that_a_machine_is_too_slow_for_are_raised_together_and_said() -> None:
    strategy = SimpleNamespace(space=SPACE, table=SimpleNamespace(latency=table_of(SPACE)))
    (lightest,) = table_of(SPACE).predict(SPACE, [SPACE.lightest()]).tolist()
    reached = [1.2 * lightest / MARGIN, 2 * lightest / MARGIN]
    assert within_reach(reached, cast(Thin, strategy)) == pytest.approx(reached, abs=1e-4)
    raised = within_reach([lightest / 10, lightest / 4], cast(Thin, strategy))
    assert raised == pytest.approx([ROOM * lightest / MARGIN, 2.5 * ROOM * lightest / MARGIN], abs=2e-4)
    assert within_reach([], cast(Thin, strategy)) == []
    asked = Bench("grey", GREY, 8, 5.0, (0.01, 0.02))
    assert "limits 0.1 ms, 0.2 ms, raised from 0.01, 0.02 ms" in bench_notes(asked, [0.1, 0.2], {})[0]
    assert "raised" not in bench_notes(asked, [0.01, 0.02], {})[0]


def test_an_arm_that_is_better_at_a_limit_is_said() -> None:
    gains = np.array([[-1.0, -3.0, np.nan], [1.0, -2.0, np.nan], [0.0, -2.5, np.nan]])
    (said,) = below("grey", "BINAS", "control", [0.1, 0.2, 0.3], gains)
    assert said == "grey: BINAS is BELOW control within 0.2 ms: -2.50 ± 0.29 points"


def by_gap(payload: Json, _: Stop) -> Json:
    """Work item: BINAS has 90 and 95 %, every other arm so many points less as its name says, or nothing."""
    if payload["arm"] == "BINAS":
        return {"accuracies": [90.0 + payload["seed"], 95.0]}
    near, far = payload["arm"].split()
    return {"accuracies": [None if gap == "-" else float(gap) for gap in (near, far)]}


def test_arms_that_the_first_seed_leaves_far_behind_get_no_further_seeds(tmp_path: Path) -> None:
    arms = ("BINAS", "84.9 89.9", "84.9 90.1", "- 89.9", "- 90.1", "- -")
    found = run_arms(Settings(tmp_path), tmp_path / "grey", arms, 3, {}, by_gap, behind=5.0)
    seeds = {arm: len(values) for arm, values in found.items()}
    assert seeds == {"BINAS": 3, "84.9 89.9": 1, "84.9 90.1": 3, "- 89.9": 1, "- 90.1": 3, "- -": 1}
    notes = bench_notes(Bench("grey", GREY, 8, 5.0), [0.1, 0.2], found)
    assert "+5.10 points beside 84.9 89.9, mean over the limits, first seed" in notes[1]
    assert "+5.50 ± 0.29 points beside 84.9 90.1, mean over the limits" in notes[2]  # 5, 5.5 and 6
    rows = {row.label: row.ours_std for row in arm_rows("grey", found)}
    assert rows["84.9 89.9 grey mean"] is None
    everyone = run_arms(Settings(tmp_path), tmp_path / "grey", arms, 3, {}, by_gap)
    assert {len(values) for values in everyone.values()} == {3}


def test_unknown_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'digits'"):
        binas_compare.binas_compare(Settings(tmp_path, only="digit"))
