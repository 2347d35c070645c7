"""BINAS from scratch on tiny images: limits kept, a looser one never worse, steps counted, plans repeated; and its
plans: time shared out, exact proposals within two resources, and growth by hand."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import archwright as aw
from archwright.costs.additive import counted_costs
from archwright.costs.device_table import DeviceTable
from archwright.data import Augmentation
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError, RunError
from archwright.methods.binas import Binas
from archwright.methods.binas.grow import (
    FEWEST_STEPS,
    GROWTH_STEPS,
    STEP,
    TRIED,
    Grow,
    GrownAnswer,
    default_minutes,
    growth,
    wishes,
    worth,
)
from archwright.models import load_classifier, load_model
from archwright.runs.run import ItemLog, Run
from archwright.search.answer import Answer
from archwright.search.beside import PlainNetwork
from archwright.search.budget import Pace
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.trained import TrainedNetwork, networks_of
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.spaces.compact import Compact, CompactScale
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.training import Recipe
from helpers.binas_plans import ALONE, PLAN, planned_run, space_of, table_of
from helpers.latency_tables import watch_by
from helpers.told import Told

GREY = "random:classes=2,size=8,channels=1,count=120"
SPACE = space_of()
TABLE = table_of(SPACE)
REACH = TABLE.predict(SPACE, [SPACE.lightest(), SPACE.heaviest()]).tolist()
LIMITS = [0.9 * REACH[0] + 0.1 * REACH[1], 0.7 * REACH[0] + 0.3 * REACH[1]]


def strategy_of(run: Run, **settings: Any) -> Grow:
    """Of a search in a run; nothing is timed by default."""
    values = {"method": "binas", "space": "compact", "data": GREY, "options": {"verify": False}, **settings}
    found = Binas(Context(Configuration(**values), run, Device.choose("cpu", 1))).strategy
    assert isinstance(found, Grow)
    return found


def answers_of(folder: Path) -> list[GrownAnswer]:
    return [GrownAnswer.model_validate(one) for one in ItemLog(folder / "items" / "answers.jsonl").done.values()]


@pytest.fixture(scope="module")
def plan_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return planned_run(tmp_path_factory.mktemp("plans") / "plan", SPACE)


@pytest.fixture(scope="module")
def finished(plan_run: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = tmp_path_factory.mktemp("runs") / "first"
    return aw.search("binas", run=folder, data=GREY, limits={"latency_ms": LIMITS}, plan_from=plan_run)


def test_every_limit_gets_a_model_within_it_and_a_looser_one_is_never_worse(finished: Answer) -> None:
    models = finished.models
    assert [one.limits for one in models] == [{"latency_ms": limit} for limit in LIMITS]
    for one, limit in zip(models, LIMITS, strict=True):
        architecture = SPACE.parse(one.architecture)
        assert float(TABLE.predict(SPACE, [architecture])[0]) <= limit
        cost = SPACE.cost(architecture, SPACE.scale)
        assert (one.params, one.macs) == (cost.params, cost.macs)
        assert str(one.load().architecture) == one.architecture
    assert models[1].validation_accuracy >= models[0].validation_accuracy
    assert str(load_model(finished.folder).architecture) == finished.best.architecture
    assert Run.open(finished.folder).configuration["threads"] == 1  # of such small networks


def test_trainings_have_the_steps_of_the_plan(finished: Answer) -> None:
    run = Run.open(finished.folder)
    strategy, trained, steady = strategy_of(run), networks_of(run), networks_of(run, "steady")
    short = [one for name, one in trained.items() if name.startswith("candidate")]
    assert 2 <= len(short) <= 4
    for one in short:
        assert one.steps == max(1, round(10 / len(short) / (strategy.step_ms(one.architecture) + 1)))
    first, second = answers_of(finished.folder)
    assert first.source == first.base
    assert first.source in {one.name for one in short}
    for answer, before, milliseconds in ((first, trained, 40), (second, steady, 20)):
        new, still, source = trained[answer.trained], steady[answer.steady], before[answer.source]
        steps = max(1, round(milliseconds / (strategy.step_ms(new.architecture) + 1)))
        last = max(1, round(steps / 4))
        assert new.architecture == still.architecture
        assert still.steps - source.steps == max(1, steps - last)
        assert new.steps - still.steps == last
    assert second.source == first.steady
    assert second.base == first.trained


def test_the_plain_network_of_a_person_is_tried_wherever_it_fits(finished: Answer) -> None:
    by_hand = SPACE.plain(width=2)
    (predicted,) = TABLE.predict(SPACE, [by_hand]).tolist()
    proposals = ItemLog(finished.folder / "items" / "proposals.jsonl").done
    assert list(proposals) == [json.dumps({"latency_ms": LIMITS[0]})]  # looser limits get what grows from the first
    assert predicted <= LIMITS[0]
    assert str(by_hand) in proposals[json.dumps({"latency_ms": LIMITS[0]})]


@dataclass(frozen=True)
class Asked:
    """A training that the strategy asked for."""

    log: str
    architecture: str
    recipe: Recipe
    steps: int


@pytest.fixture
def grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Grow, list[Asked]]:
    """A strategy after the tighter limit's answer, and what it trains from now on; nothing becomes better."""
    run = Run.open(Path(planned_run(tmp_path / "run", SPACE)))
    made = strategy_of(run)
    first = TrainedNetwork(
        name="first",
        architecture=made.propose({"latency_ms": LIMITS[0]})[0],
        image_size=8,
        steps=20,
        epochs=1,
        validation_accuracy=90.0,
        losses=[0.5] * 4,
        weights="first",
    )
    run.items("trained").record("first", first.model_dump())
    run.items("steady").record("still", first.model_copy(update={"name": "still"}).model_dump())
    record = GrownAnswer(trained="first", steady="still", source="c", base="c", how="trained", paid=True)
    run.items("answers").record("the tighter limit", record.model_dump())
    asked: list[Asked] = []

    def train(
        name: str,
        _network: Any,
        architecture: str,
        before: TrainedNetwork,
        recipe: Recipe,
        steps: int,
        log: str = "trained",
    ) -> TrainedNetwork:
        asked.append(Asked(log, architecture, recipe, steps))
        found = before.model_copy(update={"name": name, "architecture": architecture})
        run.items(log).record(name, found.model_dump())
        return found

    monkeypatch.setattr(made, "_trained", train)
    monkeypatch.setattr(made, "_larger", lambda *_: None)
    monkeypatch.setattr(made.trainer, "load", lambda _: None)
    return made, asked


def test_the_best_network_grows_and_where_that_does_not_pay_it_goes_on(grow: tuple[Grow, list[Asked]]) -> None:
    made, asked = grow
    log = made.context.run.items("answers")
    tight = networks_of(made.context.run)["first"]
    hows = []
    for limit in (LIMITS[1], 2 * LIMITS[1], 3 * LIMITS[1]):
        answer = made.train_answer({"latency_ms": limit})
        log.record(str(limit), answer.model_dump())
        hows.append((answer.how, answer.paid))
    assert hows == [("grown", False), ("trained", False), ("kept", True)]
    assert [one.log for one in asked] == ["steady", "trained"] * 2
    grown, annealed, same, _ = asked
    assert grown.architecture == annealed.architecture
    assert made.step_ms(tight.architecture) < made.step_ms(grown.architecture) <= PLAN.longest_grown_ms
    assert made.table.predicted(8, SPACE.parse(grown.architecture))["latency_ms"] <= LIMITS[1]
    assert same.architecture == tight.architecture
    # steady and then to nothing; a network that goes on is warmed up, one that grows or anneals is not
    schedules = [("constant", 0.0), ("linear", 0.0), ("constant", 0.1), ("linear", 0.0)]
    assert [(one.recipe.schedule, one.recipe.warmup_epochs) for one in asked] == schedules


def test_a_short_time_is_not_shared(grow: tuple[Grow, list[Asked]]) -> None:
    made, asked = grow
    made.context.run.finish_stage("plan", ALONE.model_dump())
    second = made.train_answer({"latency_ms": LIMITS[1]})
    made.context.run.items("answers").record("second", second.model_dump())
    assert second.how == "kept"
    assert not asked
    further = made.train_answer({"latency_ms": 2 * LIMITS[1]})  # of a limit that came later: a time of its own
    assert further.how == "grown"
    steps = ALONE.steps(ALONE.growth_seconds, made.step_ms(asked[0].architecture))
    assert sum(one.steps for one in asked) == max(2, steps)


def test_the_trunk_gets_a_short_time_whole(tmp_path: Path) -> None:
    plan = planned_run(tmp_path / "plan", SPACE, ALONE)
    found = aw.search("binas", run=tmp_path / "run", data=GREY, limits={"latency_ms": LIMITS}, plan_from=plan)
    first, second = answers_of(found.folder)
    run = Run.open(found.folder)
    trained = networks_of(run)
    new, base = trained[first.trained], trained[first.base]
    assert new.steps - base.steps == ALONE.steps(0.045, strategy_of(run).step_ms(new.architecture))
    assert (second.how, second.trained) == ("kept", first.trained)
    assert [one.architecture for one in found.models] == [new.architecture] * 2
    assert "kept" in found.insights[1]


def test_the_network_of_a_person_is_the_trunk_unless_another_is_clearly_better(grow: tuple[Grow, list[Asked]]) -> None:
    made, _ = grow
    rng = np.random.default_rng(0)
    losses = rng.normal(1, 0.5, 400)
    others = [str(one) for one in (SPACE.plain(width=0), SPACE.plain(width=1), SPACE.plain(2, 0), SPACE.plain(2, 1))]
    some = networks_of(made.context.run)["first"]

    def network(name: str, architecture: str, own: Any, accuracy: float) -> TrainedNetwork:
        known = {"losses": own.tolist(), "validation_accuracy": accuracy}
        return some.model_copy(update={"name": name, "architecture": architecture, **known})

    by_hand = network("hand", str(SPACE.plain(width=2)), losses, 80.0)
    lucky = network("lucky", others[0], losses + rng.normal(-0.01, 1, 400), 80.0)
    better = network("better", others[1], losses - 0.1, 82.0)
    best = network("best", others[2], losses - 0.1, 83.0)
    worse = network("worse", others[3], losses - 0.1, 79.0)
    assert made._first([by_hand, lucky, worse]).name == "hand"
    assert made._first([by_hand, better, lucky, best]).name == "best"
    assert made._first([worse, better]).name == "better"  # where it does not keep the limit


def test_a_plan_is_made_of_timed_steps_and_the_trunk_goes_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = table_of(SPACE, training=True, ms_per_mega=10.0)
    plains = [SPACE.plain(1, 0), SPACE.plain(1, 2), SPACE.plain(2, 3)]
    sums = dict(zip((SPACE.cost(one, SPACE.scale).params for one in plains), steps.predict(SPACE, plains), strict=True))

    def step_ms(_: Pace, network: torch.nn.Module, shape: tuple[int, int, int]) -> float:
        assert shape == (1, 8, 8)
        return 7.0 if isinstance(network, PlainNetwork) else 3 * sums[sum(p.numel() for p in network.parameters())] + 2

    monkeypatch.setattr(Pace, "step_ms", step_ms)
    monkeypatch.setattr(Grow, "_overhead_ms", lambda *_: 1.0)
    monkeypatch.setattr(DeviceTable, "measured", lambda *_, **__: steps)
    run = Run.open(Path(planned_run(tmp_path / "run", SPACE)))
    run.event("started")
    made = strategy_of(run, minutes=1.0, limits={"latency_ms": LIMITS})
    plan = made.plan()
    assert (plan.step_factor, plan.step_offset_ms) == pytest.approx((3.0, 2.0))
    assert (plan.limits, plan.beside, plan.overhead_ms, plan.plain_step_ms) == (2, True, 1.0, 8.0)
    assert plan.first_step_ms == pytest.approx(3 * steps.predict(SPACE, plains)[1] + 2)
    assert plan.steps_a_pass == len(made.context.task.data.train) / made.recipe.batch_size
    assert 0.3 * 60 * 0.05 < plan.seconds <= 0.94 * 60  # the processor's share of what is left
    run.finish_stage("plan", plan.model_dump(mode="json"))
    (summed,) = steps.predict(SPACE, [SPACE.heaviest()])
    assert made.step_ms(str(SPACE.heaviest())) == pytest.approx(3 * summed + 2)


def test_what_a_step_takes_beyond_the_timed_one_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "step_ms", lambda *_: 5.0)
    made = strategy_of(Run.open(Path(planned_run(tmp_path / "run", SPACE))))
    for real, over in ((7.5, 2.5), (4.0, 0.0)):
        monkeypatch.setattr(Pace, "real_step_ms", lambda *_, real=real: real)
        assert made._overhead_ms(Pace(Device.choose("cpu", 1), 32)) == over


def test_few_photographs_are_shown_in_more_ways(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 8, 8, 3), np.uint8), np.arange(60) % 2
    np.savez(
        tmp_path / "grey.npz", x_train=images[..., 0], y_train=labels, x_test=images[:20, ..., 0], y_test=labels[:20]
    )
    np.savez(tmp_path / "photos.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])

    def augment(**values: Any) -> Any:
        configuration = Configuration(**{"method": "binas", "space": "compact", **values})
        run = Run.create(tmp_path / str(len(list(tmp_path.iterdir()))), {}, {})
        strategy = Binas(Context(configuration, run, Device.choose("cpu", 1))).strategy
        assert isinstance(strategy, Grow)
        return strategy.augment(strategy.context.task.data)

    photographs = f"npz:{tmp_path / 'photos.npz'}"
    assert augment(data=photographs) == Augmentation(flip=True, zoom=0.6, colour=0.4)
    assert augment(data=photographs, augment="flip") == Augmentation(flip=True), "what a user asked for stays"
    assert augment(data=photographs.replace("photos", "grey")) == Augmentation(crop=1, flip=True, cutout=2)
    assert augment(data="digits") == Augmentation(crop=1)


def test_simple_things_are_beside_it_on_the_same_images(finished: Answer) -> None:
    beside = finished.beside
    assert set(beside) == {"chance", "logistic regression", "support vector machine", "plain network"}
    assert beside["plain network"].model_extra["steps"] == PLAN.plain_steps == 3
    on = finished.best.accuracy_on
    assert all(one.accuracy_on == on for one in beside.values())
    assert "Warning" in (finished.verdict or "")  # noise cannot be learnt


def test_the_onnx_files_agree_with_the_models(finished: Answer) -> None:
    pytest.importorskip("onnxruntime")
    images = torch.randn(3, 1, 8, 8)
    one = finished.models[0]
    exported, network = (load_classifier(finished.folder / path) for path in (one.onnx, one.model))
    assert torch.allclose(exported.probabilities(images), network.probabilities(images), atol=1e-5)


def test_a_repeated_plan_gives_the_same_answer(finished: Answer, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": GREY, "limits": {"latency_ms": LIMITS}}
    again = aw.search("binas", run=tmp_path / "run", plan_from=str(finished.folder), **settings)
    assert again.models == finished.models
    assert again.beside == finished.beside


def test_a_further_limit_trains_only_for_itself(finished: Answer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    before = ItemLog(folder / "items" / "answers.jsonl").done
    limit = 0.5 * REACH[0] + 0.5 * REACH[1]
    with pytest.raises(InfeasibleError, match="Reachable"):
        aw.resume(folder, latency_ms=[REACH[0] / 2])
    result = aw.resume(folder, latency_ms=[limit])
    accuracies = [one.validation_accuracy for one in result.models]
    assert accuracies == sorted(accuracies)
    for one, before_it in zip(result.models, finished.models, strict=False):
        assert one.limits == before_it.limits
        assert one.validation_accuracy >= before_it.validation_accuracy  # or the new one is within it, too
    after = ItemLog(folder / "items" / "answers.jsonl").done
    assert {key: after[key] for key in before} == before
    assert len(after) == 3


@pytest.mark.parametrize("verify", [True, False])
def test_nothing_is_timed_where_nobody_asks_though_the_repeated_plan_was(verify: bool, tmp_path: Path) -> None:
    run = Run.open(Path(planned_run(tmp_path / "run", SPACE, reference_ms=1.0)))
    assert (strategy_of(run, options={"verify": verify}).table.clock(8) is not None) == verify


def test_latencies_can_be_measured_again_without_training(
    finished: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    trained = (folder / "items" / "trained.jsonl").read_bytes()
    slower = table_of(SPACE, ms_per_mega=1.1)
    monkeypatch.setattr("archwright.costs.device_table.measure_table", lambda *_, **__: slower)
    monkeypatch.setattr(DeviceTable, "watch", watch_by(slower))
    result = aw.resume(folder, remeasure=True)
    assert (folder / "items" / "trained.jsonl").read_bytes() == trained
    for one in result.models:
        expected = float(slower.predict(SPACE, [SPACE.parse(one.architecture)])[0])
        assert one.predicted_latency_ms == pytest.approx(expected)
        assert one.latency_ms == pytest.approx(expected)


def test_limits_that_the_search_chose_stay_when_latencies_are_measured_again(
    plan_run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = aw.search("binas", run=tmp_path / "run", data=GREY, plan_from=plan_run)
    slower = table_of(SPACE, ms_per_mega=1.1)
    monkeypatch.setattr("archwright.costs.device_table.measure_table", lambda *_, **__: slower)
    monkeypatch.setattr(DeviceTable, "watch", watch_by(slower))
    result = aw.resume(first.folder, remeasure=True)
    assert [one.limits for one in result.models] == [one.limits for one in first.models]
    assert result.reachable_ms == tuple(slower.predict(SPACE, [SPACE.lightest(), SPACE.heaviest()]))
    limit = 3 * max(one.limits["latency_ms"] for one in first.models)
    more = aw.resume(first.folder, latency_ms=[limit])
    assert [one.limits["latency_ms"] for one in more.models][:-1] == [one.limits["latency_ms"] for one in first.models]
    strategy, new = strategy_of(Run.open(first.folder)), answers_of(first.folder)[-1]
    grown = SPACE.parse(networks_of(Run.open(first.folder))[new.trained].architecture)
    assert strategy.table.predicted(8, grown)["latency_ms"] == slower.predict(SPACE, [grown])[0] <= limit


def test_the_quickest_is_taken_with_a_warning_where_nothing_keeps_a_limit_as_timed_now(
    finished: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, said = tmp_path / "run", Told()
    shutil.copytree(finished.folder, folder)
    monkeypatch.setattr("archwright.costs.device_table.measure_table", lambda *_, **__: TABLE)
    by_kind = {str(SPACE.lightest()): 1.0}  # what else the machine does slows all but the lightest network
    monkeypatch.setattr(DeviceTable, "watch", watch_by(TABLE, lambda one: by_kind.get(str(one), 50.0)))
    result = aw.resume(folder, remeasure=True, progress=said)
    assert sum("nothing keeps" in line and "--remeasure" in line for line in said.lines) == len(LIMITS)
    pool = strategy_of(Run.open(folder)).pool()
    quickest = min((SPACE.parse(one.architecture) for one in pool), key=lambda one: TABLE.predict(SPACE, [one])[0])
    assert {one.architecture for one in result.models} == {str(quickest)}
    assert all(one.latency_ms > one.limits["latency_ms"] for one in result.models)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 1000}, "--rows with --plan fast"),
        ({"epochs": 3}, "--minutes"),
        ({"space": "mbconv"}, "the space compact"),
        ({"plan_from": "nowhere"}, "a run folder"),
        ({"limits": {"latency_ms": 1e-6}}, "Reachable"),
        ({"limits": {"latency_ms": float("nan")}}, "finite number"),
        ({"minutes": 0.0}, "minutes"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    TABLE.save(tmp_path / "table.json")
    settings = {"data": GREY, "latency_table": str(tmp_path / "table.json"), **changes}
    with pytest.raises((InputError, InfeasibleError), match=message):
        aw.search("binas", run=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_plan_for_another_number_of_limits_is_refused(plan_run: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is for: 2, got 1"):
        aw.search("binas", run=tmp_path / "run", data=GREY, limits={"latency_ms": LIMITS[:1]}, plan_from=plan_run)
    assert not (tmp_path / "run").exists()


def test_a_plan_of_another_version_is_refused_before_anything_is_lost(finished: Answer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    (folder / "stages" / "plan.json").unlink()
    Run.open(folder).finish_stage("plan", {"seconds": 0.1, "trunk_seconds": 0.03})
    for changes in ({"latency_ms": [3 * LIMITS[1]]}, {"remeasure": True}):
        with pytest.raises(RunError, match="a plan as this version makes it"):
            aw.resume(folder, **changes)
        assert aw.resume(folder).models == finished.models
    with pytest.raises(RunError, match="a plan as this version makes it"):
        aw.search("binas", run=tmp_path / "new", data=GREY, limits={"latency_ms": LIMITS}, plan_from=str(folder))
    assert not (tmp_path / "new").exists()


def test_a_plan_of_other_networks_is_refused(plan_run: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="different parts of the space"):
        aw.search("binas", run=tmp_path / "run", data=GREY.replace("classes=2", "classes=3"), plan_from=plan_run)


# --- who gets how much time, and what is worth trying -----------------------------------------------------------------

FEW = Compact(
    CompactScale(
        image_size=8,
        image_channels=1,
        classes=2,
        channels=8,
        stage_factors=(1, 2),
        stage_strides=(1, 2),
        width_choices=(1.0, 2.0),
        depths=(1, 2),
        configurations=("cn_k3", "bb_k3"),
    )
)
"""576 networks: few enough to go through."""


@pytest.fixture(scope="module")
def problem() -> StagedProblem:
    costs = counted_costs(FEW) | table_of(FEW).costs(FEW)
    return worth(FEW, (costs | table_of(FEW, True, 10.0).costs(FEW, STEP)).problem(FEW))


def every(problem: StagedProblem) -> StagedChoice:
    """All networks of the small space."""
    found = []
    plain, any_kind = [0], [0, 1]
    for widths in itertools.product(range(2), range(2)):
        for first, second in itertools.product(range(1, 3), range(1, 3)):
            kinds = [plain, *[any_kind] * (first - 1), *[any_kind] * second]
            for chosen in itertools.product(*kinds):
                rows = np.full((2, 2), -1)
                rows[0, :first], rows[1, :second] = chosen[:first], chosen[first:]
                found.append(StagedChoice(np.array([first, second]), rows, np.array(widths)))
    return StagedChoice(
        *(np.stack([getattr(one, name) for one in found]) for name in ("depths", "configurations", "widths"))
    )


def test_the_time_is_shared_out_among_candidates_answers_and_the_plain_network() -> None:
    plan = PLAN.model_copy(update={"seconds": 100.0, "steps_a_pass": 100.0, "plain_step_ms": 5.0, "least_step_ms": 2.0})
    assert plan.shared  # the answers' 60 s are 10,000 steps of 5 + 1 ms: a hundred passes
    assert 4 * plan.candidate_seconds(4) == pytest.approx(10.0)
    assert plan.trunk_seconds == 2 * plan.growth_seconds == pytest.approx(40.0)
    assert plan.plain_seconds == pytest.approx(30.0)
    assert plan.plain_steps == 6000
    assert plan.steps(plan.growth_seconds, 19.0) == 1000  # 20 s; of each step a millisecond is for images
    assert plan.steps(1e-9, 10.0) == 1
    assert plan.steps(plan.trunk_seconds, plan.longest_step_ms) == FEWEST_STEPS
    assert plan.steps(plan.growth_seconds, plan.longest_grown_ms) == GROWTH_STEPS
    without = plan.model_copy(update={"beside": False})
    assert without.trunk_seconds + without.growth_seconds == pytest.approx(90.0)
    assert plan.model_dump()["trunk_seconds"] == plan.trunk_seconds  # who gets what is written down


def test_a_time_too_short_to_be_shared_is_the_first_answers() -> None:
    changes = {"seconds": 100.0, "plain_step_ms": 5.0, "least_step_ms": 2.0}
    plan = PLAN.model_copy(update={**changes, "steps_a_pass": 101.0})
    assert not plan.shared
    assert plan.trunk_seconds == plan.plain_seconds == pytest.approx(45.0)
    assert plan.growth_seconds == pytest.approx(20.0)  # of a limit that comes later
    assert plan.model_copy(update={"beside": False, "steps_a_pass": 1000.0}).trunk_seconds == pytest.approx(90.0)
    few = PLAN.model_copy(update={**changes, "seconds": 10.0, "steps_a_pass": 1.0})  # seen 1,000 times in 6 s
    assert few.longest_grown_ms < few.first_step_ms
    assert not few.shared  # as nothing larger would have its thousand steps
    little = PLAN.model_copy(update={"seconds": 1e-3, "limits": 1, "least_step_ms": 7.0})
    assert little.longest_step_ms == little.longest_grown_ms == 7.0  # the quickest network is always looked at
    assert little.plain_seconds == little.trunk_seconds


def test_more_and_larger_images_get_more_minutes() -> None:
    assert default_minutes(1079, 8) == 2
    assert default_minutes(360, 32) == default_minutes(1000, 32) == 4
    assert default_minutes(360, 32) < default_minutes(8000, 32) < default_minutes(8000, 64) <= 60


def test_proposals_are_the_best_of_all_networks_within_the_limit_and_the_step(problem: StagedProblem) -> None:
    networks = every(problem)
    values, costs = problem.evaluate(networks)
    plain = (networks.configurations != 1).all((1, 2))
    limit = float(np.quantile(costs["latency_ms"], 0.4))
    plan = PLAN.model_copy(update={"least_step_ms": float(np.quantile(costs[STEP], 0.5))})
    for (_, only_plain), wish in zip(TRIED, wishes(FEW, problem, plan.longest_step_ms), strict=True):
        found = wish.within({"latency_ms": limit})
        fits = (costs["latency_ms"] <= limit) & (costs[STEP] <= wish.step_ms) & (plain | (not only_plain))
        assert found.value == pytest.approx(values[fits].max())
        assert found.costs["latency_ms"] <= limit
        assert found.costs[STEP] <= wish.step_ms


def test_wider_and_deeper_is_worth_more(problem: StagedProblem) -> None:
    small, wide, deep = (FEW.to_choice(FEW.plain(*shape)) for shape in ((1, 0), (1, 1), (2, 0)))
    value = {name: float(problem.evaluate(one)[0]) for name, one in (("small", small), ("wide", wide), ("deep", deep))}
    assert value["wide"] == pytest.approx(value["small"] + 2)  # two stages, twice the width
    assert value["deep"] > value["small"]


def test_what_grows_contains_what_it_grew_from(problem: StagedProblem) -> None:
    base = StagedChoice(np.array([1, 1]), np.array([[0, -1], [0, -1]]), np.array([1, 0]))
    networks = every(problem)
    values, costs = problem.evaluate(networks)
    contains = (networks.widths >= base.widths).all(1)
    contains &= (networks.configurations[:, :, 0] == 0).all(1)  # the base's blocks
    for share in (0.5, 0.8, 1.0):
        limit = float(np.quantile(costs["latency_ms"][contains], share))
        found = growth(FEW, problem, base, float(costs[STEP].max())).within({"latency_ms": limit})
        assert found.value == pytest.approx(values[contains & (costs["latency_ms"] <= limit)].max())


def test_growing_leaves_the_space_as_it_is() -> None:
    space = MbConv(SCALES["mbconv-8"])
    size, problem = space.size, counted_costs(space).problem(space)
    growth(space, problem, space.to_choice(space.lightest()), 1.0)
    assert space.size == size
