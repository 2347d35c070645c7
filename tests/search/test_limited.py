"""Methods that answer limits, also somebody else's: further limits, latencies measured anew, plans repeated, and
networks of a finished search timed again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import archwright as aw
from archwright.cli.main import cli
from archwright.costs.clock import MARGIN
from archwright.costs.measure import Latency, Stopwatch, Timing
from archwright.costs.tables import LatencyTable
from archwright.errors import InfeasibleError, InputError
from archwright.models import load_model
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search import limited
from archwright.search.answer import Answer, Spread
from archwright.search.engine import reopened
from archwright.search.limited import front_of, time_again
from archwright.search.registry import methods
from archwright.search.trained import TrainedNetwork, networks_of
from helpers.binas_plans import planned_run, space_of
from helpers.latency_tables import SteadyWatch, steady_clock
from helpers.own_limits import STEPS, Two, TwoSearch
from helpers.told import Told

GREY = "random:classes=2,size=8,channels=1,count=120"


@pytest.fixture(scope="module", autouse=True)
def registered() -> Iterator[None]:
    """The method of somebody else, known for the time of these tests; on a steady clock."""
    with pytest.MonkeyPatch.context() as patch, steady_clock():
        patch.setattr(methods, "entries", dict(methods.entries))
        patch.setattr(methods, "_added", set(methods._added))
        methods.register("two", TwoSearch)
        yield


def strategy_of(folder: Path) -> Two:
    method = reopened(Run.open(folder), Stop(), Told())
    assert isinstance(method, TwoSearch)
    assert isinstance(method.strategy, Two)
    return method.strategy


def steady_ms(strategy: Two, text: str) -> float:
    """What the clock shows of a network."""
    scale = strategy.space.scale
    network = strategy.space.build(strategy.space.parse(text), scale)
    return float(SteadyWatch(network, (1, scale.image_size, scale.image_size), Timing()).ms)


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """A search that was given no limits."""
    return aw.search("two", run=tmp_path_factory.mktemp("runs") / "chosen", data=GREY)


@pytest.fixture(scope="module")
def limits(chosen: Answer) -> list[float]:
    """A tight one and a loose one."""
    least, most = chosen.reachable_ms
    return [1.2 * least, 0.4 * least + 0.6 * most]


@pytest.fixture(scope="module")
def finished(limits: list[float], tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = tmp_path_factory.mktemp("runs") / "given"
    return aw.search("two", run=folder, data=GREY, limits={"latency_ms": limits})


def copied(found: Answer, folder: Path) -> Path:
    shutil.copytree(found.folder, folder)
    return folder


# --- a method of somebody else ----------------------------------------------------------------------------------------


def test_every_limit_gets_a_model_within_it_and_a_looser_one_is_never_worse(
    finished: Answer, limits: list[float]
) -> None:
    assert [one.limits for one in finished.models] == [{"latency_ms": limit} for limit in limits]
    strategy = strategy_of(finished.folder)
    for one, limit in zip(finished.models, limits, strict=True):
        assert one.latency_ms == pytest.approx(steady_ms(strategy, one.architecture))
        assert one.latency_ms <= limit
        assert one.details["from"] == "somebody else"
        assert str(one.load().architecture) == one.architecture
    accuracies = [one.validation_accuracy for one in finished.models]
    assert accuracies == sorted(accuracies)
    assert str(load_model(finished.folder).architecture) == finished.best.architecture
    assert finished.beside["plain network"].model_extra["steps"] == STEPS
    assert finished.insights == ["Two networks a limit."]
    assert {one.architecture for one in finished.front} <= {one.architecture for one in strategy.pool()}


def test_a_search_without_limits_takes_what_the_strategy_says(chosen: Answer) -> None:
    least, most = chosen.reachable_ms
    (one,) = chosen.models
    assert one.limits == {"latency_ms": pytest.approx((least + most) / 2, abs=1e-4)}
    assert Run.open(chosen.folder).configuration["limits"] == {}


def test_a_search_that_names_no_folder_works_in_one_of_its_own(runs_folder: Path) -> None:
    found = aw.search("two", data=GREY)
    assert [path.name for path in runs_folder.iterdir() if path.name != ".latencies"] == [found.folder.name]
    assert (found.folder / "artifacts" / "latency.json").is_file()
    said = [event["text"] for event in Run.open(found.folder).events() if event["kind"] == "said"]
    assert any("Networks of this space take" in text for text in said)


def test_a_further_limit_trains_only_for_itself(finished: Answer, limits: list[float], tmp_path: Path) -> None:
    folder = copied(finished, tmp_path / "run")
    before = networks_of(Run.open(folder))
    least, most = finished.reachable_ms
    with pytest.raises(InfeasibleError, match="Reachable"):
        aw.resume(folder, latency_ms=[least / 2])
    assert aw.resume(folder).models == finished.models  # nothing was changed
    result = aw.resume(folder, latency_ms=[1.1 * most])
    after = networks_of(Run.open(folder))
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert [one.limits["latency_ms"] for one in result.models] == [*limits, 1.1 * most]
    assert result.models[-1].validation_accuracy == max(one.validation_accuracy for one in after.values())
    assert aw.resume(folder, latency_ms=[limits[0]]) == result  # known already


def test_a_further_limit_by_the_command_line(finished: Answer, limits: list[float], tmp_path: Path) -> None:
    folder = copied(finished, tmp_path / "run")
    limit = 0.5 * sum(limits)
    done = CliRunner().invoke(cli, ["runs", "resume", str(folder), "--latency-ms", str(limit), "--json"])
    assert done.exit_code == 0, done.output
    models = json.loads(done.stdout.strip().splitlines()[-1])["models"]
    assert [one["limits"]["latency_ms"] for one in models] == [*limits, limit]


@pytest.mark.parametrize("source", ["chosen", "finished"])
def test_latencies_measured_anew_leave_trainings_and_limits_and_a_further_limit_goes_by_them(
    source: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first: Answer = request.getfixturevalue(source)
    folder = copied(first, tmp_path / "run")
    items, trained = folder / "items", networks_of(Run.open(folder))
    least, most = first.reachable_ms
    monkeypatch.setattr(SteadyWatch, "slower", 1.15)
    result = aw.resume(folder, remeasure=True)
    assert networks_of(Run.open(folder)) == trained
    assert [one.limits for one in result.models] == [one.limits for one in first.models]
    assert result.reachable_ms == pytest.approx((1.15 * least, 1.15 * most), rel=1e-3)
    assert (items / "table.jsonl").is_file(), "measured, though there is a kept table"
    strategy = strategy_of(folder)
    timed = ItemLog(items / "timed.jsonl").done
    assert {key.split()[1] for key in timed} == {one.architecture for one in trained.values()}
    for key, one in timed.items():
        assert one["median_ms"] == pytest.approx(steady_ms(strategy, key.split()[1]))
        assert one["slowdown"] == pytest.approx(1.0)  # since the new table
    further = 1.1 * most  # above the slowest network of the old table, not of the new one
    more = aw.resume(folder, latency_ms=[further])
    new = [one.architecture for name, one in networks_of(Run.open(folder)).items() if name not in trained]
    assert 0.8 * further < max(steady_ms(strategy, one) for one in new) <= MARGIN * further
    assert more.models[-1].limits == {"latency_ms": further}
    assert more.models[-1].latency_ms <= further


def test_the_networks_are_timed_again(finished: Answer, limits: list[float]) -> None:
    found, strategy = time_again(finished.folder, 2), strategy_of(finished.folder)
    assert [(one.architecture, one.limit_ms) for one in found] == [
        (one.architecture, limit) for one, limit in zip(finished.models, limits, strict=True)
    ]
    for one in found:
        assert one.medians_ms == pytest.approx([steady_ms(strategy, one.architecture)] * 2)
        assert one.within


def test_the_networks_are_timed_again_on_another_back_end(finished: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[Timing]()

    def watch(network: Any, scale: Any, timing: Timing) -> Any:
        del network, scale
        seen.append(timing)
        return "watch"

    monkeypatch.setattr(limited, "stopwatch", watch)
    monkeypatch.setattr(limited, "middle_round", lambda _: Spread(median_ms=0.01, low_ms=0.01, high_ms=0.01))
    found = time_again(finished.folder, 1, backend="onnxruntime")
    assert {one.backend for one in seen} == {"onnxruntime"}
    assert [one.medians_ms for one in found] == [[0.01]] * len(finished.models)


def test_a_plan_is_repeated(
    finished: Answer, limits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = {"run": tmp_path / "run", "data": GREY, "plan_from": str(finished.folder)}
    with pytest.raises(InputError, match="was given its own"):
        aw.search("two", **again)
    planned = Run.create(tmp_path / "plan", {"method": "two", "space": "compact", "seed": 0}, {})
    with pytest.raises(InputError, match=r"without stages.table\.json"):
        aw.search("two", **{**again, "plan_from": str(planned.folder)})
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr("archwright.costs.tables.Stopwatch", None)  # no block is timed
    found = aw.search("two", **again, limits={"latency_ms": limits})
    assert [one.architecture for one in found.models] == [one.architecture for one in finished.models]
    assert Run.open(found.folder).stage_result("table") == Run.open(finished.folder).stage_result("table")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmark": "nb201"}, "--benchmark with the method"),
        ({"limits": {"params": 1.0}}, "Reachable"),
        ({"limits": {"colour": 1.0}}, "colour"),
        ({"latency_table": "nowhere.json"}, "a latency table"),
        ({"plan_from": "nowhere"}, "a run folder"),
        ({"evaluate": "helpers.own_limits:TwoSearch", "data": None}, "evaluate architectures"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises((InputError, InfeasibleError), match=message):
        aw.search("two", run=tmp_path / "run", **{"data": GREY, **changes})
    assert not (tmp_path / "run").exists()


def test_a_given_table_is_taken_and_nothing_is_timed_where_nobody_asks(
    finished: Answer, limits: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = finished.folder / "artifacts" / "latency.json"
    monkeypatch.setattr("archwright.costs.clock.Stopwatch", None)
    asked = {"data": GREY, "limits": {"latency_ms": limits}, "latency_table": str(table), "verify": False}
    found = aw.search("two", run=tmp_path / "run", **asked)
    known, space = LatencyTable.load(table), strategy_of(found.folder).space
    for one in found.models:
        assert one.measured_latency_ms is None
        assert one.latency_ms == known.predict(space, [space.parse(one.architecture)])[0]


# --- runs of other methods --------------------------------------------------------------------------------------------


def test_a_run_of_another_method_has_no_latencies_to_measure(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"method": "random", "data": GREY}, {})
    with pytest.raises(InputError, match="measures latencies"):
        aw.resume(run.folder, remeasure=True)


def test_a_run_with_one_answer_takes_no_further_limit(tmp_path: Path) -> None:
    settings = {"data": GREY, "epochs": 1, "final_epochs": 1, "evaluations": 1, "channels": 4, "cells": 1}
    result = aw.search("random", run=tmp_path / "run", **settings)
    with pytest.raises(InputError, match="several latency limits"):
        aw.resume(result.folder, latency_ms=[5.0])


# --- the front --------------------------------------------------------------------------------------------------------


def test_the_front_has_what_none_is_quicker_and_more_accurate_than() -> None:
    latencies = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 3.0, "e": 4.0}
    accuracies = {"a": 80.0, "b": 79.0, "c": 85.0, "d": 85.0, "e": 90.0}
    networks = [
        TrainedNetwork(
            name=name,
            architecture=name,
            image_size=8,
            steps=1,
            epochs=1,
            validation_accuracy=accuracy,
            losses=[1.0],
            weights=name,
        )
        for name, accuracy in accuracies.items()
    ]
    found = front_of(networks, lambda one: latencies[one.name])
    assert [one.architecture for one in found] == ["a", "c", "e"]
    assert [one.latency_ms for one in found] == [1.0, 2.0, 4.0]


# --- networks of a finished search, timed again -----------------------------------------------------------------------


def test_every_network_is_really_timed(finished: Answer, limits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("archwright.costs.clock.Stopwatch", Stopwatch)
    found = time_again(finished.folder, 2)
    assert [one.limit_ms for one in found] == limits
    assert [one.architecture for one in found] == [one.architecture for one in finished.models]
    assert all(len(one.medians_ms) == 2 and min(one.medians_ms) > 0 for one in found)


def test_a_network_must_keep_its_limit_each_time(
    finished: Answer, limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    files, between = len({one.model for one in finished.models}), sum(limits) / 2
    clock = iter([0.5 * limits[0]] * files + [between] * files)  # every network once, then every one again
    monkeypatch.setattr(limited, "middle_round", lambda _: Latency(next(clock), 0.0, 0.0))
    done = CliRunner().invoke(cli, ["runs", "time", str(finished.folder), "--times", "2", "--json"])
    assert done.exit_code == 0, done.output
    models = json.loads(done.stdout.strip().splitlines()[-1])["models"]
    assert [one["within"] for one in models] == [False, True]
    assert models[1]["medians_ms"] == [0.5 * limits[0], between]


def test_the_table_says_what_to_do_where_a_limit_is_not_kept(
    finished: Answer, limits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limited, "middle_round", lambda _: Latency(2 * limits[1], 0.0, 0.0))
    shown = CliRunner().invoke(cli, ["runs", "time", str(finished.folder), "--times", "1"]).output
    assert "no" in shown.split()
    assert "--remeasure" in shown


def test_what_cannot_be_timed_is_refused(finished: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="at least one time"):
        time_again(finished.folder, 0)
    plan = planned_run(tmp_path / "plan", space_of())
    with pytest.raises(InputError, match="a finished run, got one that is stopped"):
        time_again(plan)
    monkeypatch.setattr(limited, "measured_here", lambda _: False)
    with pytest.raises(InputError, match="a table of this device"):
        time_again(finished.folder)
