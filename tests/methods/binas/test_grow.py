"""The fast plan of BINAS on tiny images: limits kept, a looser one never worse, steps counted, plans repeated."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import archwright as aw
from archwright.costs.measure import Latency
from archwright.data import Augmentation
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError, RunError
from archwright.methods.binas.fast import FastPlan
from archwright.methods.binas.latency import Clock, Timed
from archwright.methods.binas.method import Binas
from archwright.methods.binas.trunk import Trained, Trunk, pays
from archwright.models import load_classifier, load_model
from archwright.runs.run import ItemLog, Run
from archwright.search.answer import Answer
from archwright.search.beside import PlainNetwork
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.training import Recipe
from helpers.binas_plans import ALONE, PLAN, planned_run, space_of, table_of

GREY = "random:classes=2,size=8,channels=1,count=120"
SPACE = space_of()
TABLE = table_of(SPACE)
REACH = TABLE.predict(SPACE, [SPACE.lightest(), SPACE.heaviest()]).tolist()
LIMITS = [0.9 * REACH[0] + 0.1 * REACH[1], 0.7 * REACH[0] + 0.3 * REACH[1]]


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
    items = finished.folder / "items"
    trained, steady = ItemLog(items / "trained.jsonl").done, ItemLog(items / "steady.jsonl").done
    short = [one for name, one in trained.items() if name.startswith("candidate")]
    assert 2 <= len(short) <= 4
    for one in short:
        assert one["steps"] == max(1, round(10 / len(short) / (one["costs"]["step_ms"] + 1)))
    first, second = ItemLog(items / "answers.jsonl").done.values()
    assert first["from"] == first["base"]
    assert first["from"] in {one["name"] for one in short}
    for answer, before, milliseconds in ((first, trained, 40), (second, steady, 20)):
        new, still, source = trained[answer["trained"]], steady[answer["steady"]], before[answer["from"]]
        steps = max(1, round(milliseconds / (new["costs"]["step_ms"] + 1)))
        last = max(1, round(steps / 4))
        assert new["architecture"] == still["architecture"]
        assert still["steps"] - source["steps"] == max(1, steps - last)
        assert new["steps"] - still["steps"] == last
    assert second["from"] == first["steady"]
    assert second["base"] == first["trained"]


def test_the_plain_network_of_a_person_is_tried_wherever_it_fits(finished: Answer) -> None:
    by_hand = SPACE.plain(width=2)
    (predicted,) = TABLE.predict(SPACE, [by_hand]).tolist()
    proposals = ItemLog(finished.folder / "items" / "proposals.jsonl").done
    assert list(proposals) == [json.dumps({"latency_ms": LIMITS[0]})]  # looser limits get what grows from the first
    assert predicted <= LIMITS[0]
    assert str(by_hand) in {one["architecture"] for one in proposals[json.dumps({"latency_ms": LIMITS[0]})]}


@dataclass(frozen=True)
class Asked:
    """A training that the trunk asked for."""

    log: str
    what: dict[str, Any]
    recipe: Recipe
    steps: int


@pytest.fixture
def trunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Trunk, list[Asked]]:
    """A trunk after the tighter limit's answer, and what it is asked to train from now on; nothing becomes better."""
    folder = planned_run(tmp_path / "run", SPACE)
    values = {"method": "binas", "space": "compact", "data": GREY, "options": {"verify": False}}
    plan = Binas(Context(Configuration(**values), Run.open(Path(folder)), Device.choose("cpu", 1))).plan
    assert isinstance(plan, FastPlan)
    made, run = plan.trunk(PLAN), plan.context.run
    one = made.propose({"latency_ms": LIMITS[0]}, PLAN)[0]
    first = Trained("first", one["architecture"], 20, 90.0, np.full(4, 0.5), one["costs"], one["latency_ms"])
    run.items("trained").record("first", first.to_json())
    run.items("steady").record("still", replace(first, name="still").to_json())
    record = {"trained": "first", "steady": "still", "from": "c", "base": "c", "how": "trained", "paid": True}
    run.items("answers").record("the tighter limit", record)
    asked: list[Asked] = []

    def train(
        name: str,
        _network: Any,
        what: dict[str, Any],
        before: Trained,
        recipe: Recipe,
        steps: int,
        log: str = "trained",
    ) -> Trained:
        asked.append(Asked(log, what, recipe, steps))
        found = replace(before, name=name, architecture=what["architecture"], costs=what["costs"])
        run.items(log).record(name, found.to_json())
        return found

    monkeypatch.setattr(made, "_train", train)
    monkeypatch.setattr(made, "_larger", lambda *_: None)
    monkeypatch.setattr("archwright.methods.binas.trunk.load_member", lambda _: SimpleNamespace(network=None))
    return made, asked


def test_the_best_network_grows_and_where_that_does_not_pay_it_goes_on(
    trunk: tuple[Trunk, list[Asked]],
) -> None:
    made, asked = trunk
    log = made.context.run.items("answers")
    tight = made.trained()["first"]
    hows = []
    for limit in (LIMITS[1], 2 * LIMITS[1], 3 * LIMITS[1]):
        log.record(str(limit), made.train_answer({"latency_ms": limit}, PLAN))
        hows.append((log.done[str(limit)]["how"], log.done[str(limit)]["paid"]))
    assert hows == [("grown", False), ("trained", False), ("kept", True)]
    assert [one.log for one in asked] == ["steady", "trained"] * 2
    grown, annealed, same, _ = asked
    assert grown.what == annealed.what
    assert tight.costs["step_ms"] < grown.what["costs"]["step_ms"] <= PLAN.longest_grown_ms
    assert grown.what["costs"]["latency_ms"] <= LIMITS[1]
    assert same.what["architecture"] == tight.architecture
    # steady and then to nothing; a network that goes on is warmed up, one that grows or anneals is not
    schedules = [("constant", 0.0), ("linear", 0.0), ("constant", 0.1), ("linear", 0.0)]
    assert [(one.recipe.schedule, one.recipe.warmup_epochs) for one in asked] == schedules


def test_a_short_time_is_not_shared(trunk: tuple[Trunk, list[Asked]]) -> None:
    made, asked = trunk
    log = made.context.run.items("answers")
    log.record("second", made.train_answer({"latency_ms": LIMITS[1]}, ALONE))
    assert log.done["second"]["how"] == "kept"
    assert not asked
    further = made.train_answer({"latency_ms": 2 * LIMITS[1]}, ALONE)  # of a limit that came later: a time of its own
    assert further["how"] == "grown"
    steps = ALONE.steps(ALONE.growth_seconds, asked[0].what["costs"]["step_ms"])
    assert sum(one.steps for one in asked) == max(2, steps)


def test_the_trunk_gets_a_short_time_whole(tmp_path: Path) -> None:
    plan = planned_run(tmp_path / "plan", SPACE, ALONE)
    found = aw.search("binas", run=tmp_path / "run", data=GREY, limits={"latency_ms": LIMITS}, plan_from=plan)
    first, second = ItemLog(found.folder / "items" / "answers.jsonl").done.values()
    trained = ItemLog(found.folder / "items" / "trained.jsonl").done
    new, base = trained[first["trained"]], trained[first["base"]]
    assert new["steps"] - base["steps"] == ALONE.steps(0.045, new["costs"]["step_ms"])
    assert (second["how"], second["trained"]) == ("kept", first["trained"])
    assert [one.architecture for one in found.models] == [new["architecture"]] * 2
    assert "kept" in found.insights[1]


def test_the_network_of_a_person_is_the_trunk_unless_another_is_clearly_better(
    trunk: tuple[Trunk, list[Asked]],
) -> None:
    made, _ = trunk
    rng = np.random.default_rng(0)
    losses = rng.normal(1, 0.5, 400)
    by_hand = Trained("hand", str(SPACE.plain(width=2)), 9, 80.0, losses, {}, 1.0)
    lucky = replace(by_hand, name="lucky", architecture="a", losses=losses + rng.normal(-0.01, 1, 400))
    better = replace(by_hand, name="better", architecture="b", losses=losses - 0.1, validation_accuracy=82.0)
    best = replace(better, name="best", architecture="c", validation_accuracy=83.0)
    worse = replace(better, name="worse", architecture="d", validation_accuracy=79.0)
    assert made._first([by_hand, lucky, worse]).name == "hand"
    assert made._first([by_hand, better, lucky, best]).name == "best"
    assert made._first([worse, better]).name == "better"  # where it does not keep the limit


def test_a_plan_is_made_of_timed_steps_and_the_trunk_goes_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = table_of(SPACE, training=True, ms_per_mega=10.0)
    plains = [SPACE.plain(1, 0), SPACE.plain(1, 2), SPACE.plain(2, 3)]
    sums = dict(zip((SPACE.cost(one, SPACE.scale).params for one in plains), steps.predict(SPACE, plains), strict=True))

    def step_ms(_: FastPlan, network: torch.nn.Module) -> float:
        return 7.0 if isinstance(network, PlainNetwork) else 3 * sums[sum(p.numel() for p in network.parameters())] + 2

    monkeypatch.setattr(FastPlan, "_step_ms", step_ms)
    monkeypatch.setattr(FastPlan, "_overhead_ms", lambda _: 1.0)
    monkeypatch.setattr("archwright.methods.binas.tables.Tables.measured", lambda *_, **__: steps)
    run = Run.open(Path(planned_run(tmp_path / "run", SPACE)))
    run.event("started")
    values = {"method": "binas", "space": "compact", "data": GREY, "minutes": 1.0, "limits": {"latency_ms": LIMITS}}
    made = Binas(Context(Configuration(**values, options={"verify": False}), run, Device.choose("cpu", 1))).plan
    assert isinstance(made, FastPlan)
    plan = made.make()
    assert (plan.step_factor, plan.step_offset_ms) == pytest.approx((3.0, 2.0))
    assert (plan.limits, plan.beside, plan.overhead_ms, plan.plain_step_ms) == (2, True, 1.0, 8.0)
    assert plan.first_step_ms == pytest.approx(3 * steps.predict(SPACE, plains)[1] + 2)
    assert plan.steps_a_pass == len(made.context.task.data.train) / made.recipe.batch_size
    assert 0.3 * 60 * 0.05 < plan.seconds <= 0.94 * 60  # the processor's share of what is left
    one = SPACE.heaviest()
    (summed,) = steps.predict(SPACE, [one])
    costs = made.trunk(plan).problem.evaluate(SPACE.to_choice(one))[1]
    assert float(costs["step_ms"]) == pytest.approx(3 * summed + 2)


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
        plan = Binas(Context(configuration, run, Device.choose("cpu", 1))).plan
        return plan.augment

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
    values = {"method": "binas", "space": "compact", "data": GREY, "options": {"verify": verify}}
    method = Binas(Context(Configuration(**values), run, Device.choose("cpu", 1)))
    assert (method.tables.clock is not None) == verify


def test_latencies_can_be_measured_again_without_training(
    finished: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    trained = (folder / "items" / "trained.jsonl").read_bytes()
    slower = table_of(SPACE, ms_per_mega=1.1)
    monkeypatch.setattr("archwright.methods.binas.tables.measure_table", lambda *_, **__: slower)
    monkeypatch.setattr("archwright.methods.binas.tables.say_if_busy", lambda *_: False)
    monkeypatch.setattr("archwright.methods.binas.tables.latency_of", lambda *_: Latency(1.0, 1.0, 1.0))
    monkeypatch.setattr(Clock, "latency_of", lambda self, one: Latency(*[float(slower.predict(SPACE, [one])[0])] * 3))
    monkeypatch.setattr(Clock, "time", by_table)
    result = aw.resume(folder, remeasure=True)
    assert (folder / "items" / "trained.jsonl").read_bytes() == trained
    for one in result.models:
        expected = float(slower.predict(SPACE, [SPACE.parse(one.architecture)])[0])
        assert one.predicted_latency_ms == pytest.approx(expected)
        assert one.latency_ms == pytest.approx(expected)


def by_table(self: Clock, architecture: Any) -> Timed:
    ms = self.latency_of(architecture).median_ms
    return Timed(median_ms=ms, low_ms=ms, high_ms=ms, slowdown=1.0, raw_median_ms=ms)


def test_a_run_of_another_method_has_no_latencies_to_measure(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"method": "random", "data": GREY}, {})
    with pytest.raises(InputError, match="measures latencies"):
        aw.resume(run.folder, remeasure=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rows": 1000}, "--rows of the plan 'paper'"),
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


def network(losses: list[float], accuracy: float) -> Trained:
    return Trained("n", "a", 1, accuracy, np.array(losses), {"latency_ms": 1.0}, 1.0)


def test_a_larger_network_pays_only_beyond_the_noise() -> None:
    rng = np.random.default_rng(0)
    old = rng.normal(1, 0.5, 400)
    better, noise = old - 0.1, old + rng.normal(0, 1, 400)
    assert pays(network(better.tolist(), 90.0), network(old.tolist(), 90.0))
    assert not pays(network(better.tolist(), 89.0), network(old.tolist(), 90.0))
    shifted = noise - noise.mean() + old.mean() - 0.01  # a gain of .01 with a noise of .05
    assert not pays(network(shifted.tolist(), 91.0), network(old.tolist(), 90.0))
    kept = json.loads(json.dumps(network(old.tolist(), 90.0).to_json()))
    assert Trained.from_json(kept).loss == pytest.approx(old.mean(), abs=1e-5)
