"""Arms inside an own network: equal seconds, networks within their limits, what is finished is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from archwright.errors import InputError
from archwright.reproduce import own_network
from archwright.reproduce.base import Settings
from archwright.reproduce.own_network import ARMS, Bench, Plan, strategy_of
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from helpers.latency_tables import steady_clock

GREY = Bench("grey", "random:classes=2,size=8,channels=1,count=120", 8, 0.2)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A tiny comparison on noise, timed by a steady clock."""
    monkeypatch.setattr(own_network, "benches", lambda: {"grey": GREY})
    monkeypatch.setattr(own_network, "TRIED_A_LIMIT", 6)
    monkeypatch.setattr(own_network, "FIRST", 3)
    monkeypatch.setattr("archwright.methods.binas.own.MEASURED", 12)
    monkeypatch.setenv("ARCHWRIGHT_RUNS", str(tmp_path / "runs"))
    return Settings(tmp_path / "own-network", seeds=1, only="grey")


def test_every_arm_answers_every_limit_within_it_and_once(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with steady_clock():
        outcome = own_network.own_network(settings)
    folder = settings.folder / "grey"
    plan = Plan.read(folder / "plan")
    assert len(outcome.rows) == len(ARMS) * 4
    assert plan.limits == sorted(plan.limits)
    assert plan.widths == sorted(plan.widths)
    run = Run.open(folder / "exact-0")
    strategy = strategy_of(reopened(run, Stop(), Progress()))
    done = ItemLog(folder / "finished.jsonl").done
    for arm in ("exact", "evolution", "random"):
        for text, limit in zip(done[f"{arm} seed 0"]["networks"], plan.limits, strict=True):
            assert strategy.table.predicted(8, strategy.space.parse(text))["latency_ms"] <= limit, arm

    def not_again(*_: Any, **__: Any) -> Any:
        raise AssertionError("done before")

    monkeypatch.setattr(own_network, "run_arm", not_again)
    monkeypatch.setattr(own_network, "planned", not_again)
    assert own_network.own_network(settings).rows == outcome.rows


def test_unknown_data_are_refused(settings: Settings) -> None:
    with pytest.raises(InputError, match="Did you mean 'grey'"):
        own_network.own_network(Settings(settings.folder, only="gray"))
