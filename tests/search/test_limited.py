"""Networks of a finished search timed again: each of them every time, in turn, and said whether within its limit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import archwright as aw
from archwright.cli.main import cli
from archwright.costs.measure import Latency
from archwright.errors import InputError
from archwright.methods.binas import again
from archwright.methods.binas.again import time_again
from archwright.search.answer import Answer
from helpers.binas_plans import planned_run, space_of, table_of

GREY = "random:classes=2,size=8,channels=1,count=120"
SPACE = space_of()
LIGHTEST, HEAVIEST = table_of(SPACE).predict(SPACE, [SPACE.lightest(), SPACE.heaviest()]).tolist()
LIMITS = [0.9 * LIGHTEST + 0.1 * HEAVIEST, 0.7 * LIGHTEST + 0.3 * HEAVIEST]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = tmp_path_factory.mktemp("again")
    plan = planned_run(folder / "plan", SPACE)
    return aw.search("binas", run=folder / "run", data=GREY, limits={"latency_ms": LIMITS}, plan_from=plan)


def test_every_network_is_really_timed(finished: Answer) -> None:
    found = time_again(finished.folder, 2)
    assert [one.limit_ms for one in found] == LIMITS
    assert [one.architecture for one in found] == [one.architecture for one in finished.models]
    assert all(len(one.medians_ms) == 2 and min(one.medians_ms) > 0 for one in found)


def test_a_network_must_keep_its_limit_each_time(finished: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    files, between = len({one.model for one in finished.models}), (LIMITS[0] + LIMITS[1]) / 2
    clock = iter([0.5 * LIMITS[0]] * files + [between] * files)  # every network once, then every one again
    monkeypatch.setattr(again, "middle_round", lambda _: Latency(next(clock), 0.0, 0.0))
    done = CliRunner().invoke(cli, ["runs", "time", str(finished.folder), "--times", "2", "--json"])
    assert done.exit_code == 0, done.output
    models = json.loads(done.stdout.strip().splitlines()[-1])["models"]
    assert [one["within"] for one in models] == [False, True]
    assert models[1]["medians_ms"] == [0.5 * LIMITS[0], between]


def test_the_table_says_what_to_do_where_a_limit_is_not_kept(finished: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "middle_round", lambda _: Latency(2 * LIMITS[1], 0.0, 0.0))
    shown = CliRunner().invoke(cli, ["runs", "time", str(finished.folder), "--times", "1"]).output
    assert "no" in shown.split()
    assert "--remeasure" in shown


def test_what_cannot_be_timed_is_refused(finished: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="at least one time"):
        time_again(finished.folder, 0)
    plan = planned_run(tmp_path / "plan", SPACE)
    with pytest.raises(InputError, match="a finished run with a latency table"):
        time_again(plan)
    monkeypatch.setattr(again, "measured_here", lambda _: False)
    with pytest.raises(InputError, match="a table of this device"):
        time_again(finished.folder)
