"""BINAS by a supernet: tiny searches from images to ONNX, limits kept and refused, ranks on a known accuracy."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from torch import Tensor

import archwright as aw
from archwright.costs.clock import Clock
from archwright.costs.device_table import DeviceTable
from archwright.costs.tables import LatencyTable
from archwright.data import Augmentation
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError
from archwright.methods.binas import Binas, supernet
from archwright.methods.binas.exact import ChosenNetwork, ExactChoice
from archwright.methods.binas.supernet import (
    OnePath,
    Predictor,
    Supernet,
    SupernetWork,
    rank_correlations,
)
from archwright.models import load_classifier, load_member, load_model
from archwright.predictors.staged import StagedEstimate, pool_estimates
from archwright.runs.run import Run
from archwright.search.answer import Answer
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.trained import networks_of
from archwright.solvers.synthetic import synthetic_problem
from archwright.spaces.base import Network
from archwright.spaces.mbconv import MbConv, scale_for
from archwright.supernets.elastic import ElasticSupernet, deal
from archwright.supernets.files import load_supernet, save_supernet
from helpers.latency_tables import SteadyWatch, counted_table, watch_by
from helpers.told import Told

TWO_GREY_CLASSES = "random:classes=2,size=8,channels=1,count=120"
SPACE = MbConv(scale_for(8, 2, 1))
SMALL: dict[str, Any] = {
    "plan": "paper",
    "data": TWO_GREY_CLASSES,
    "epochs": 1,
    "final_epochs": 1,
    "batch_size": 36,
    "rows": 200,
    "verify": False,
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(counted_table(tmp_path_factory.mktemp("tables") / "here.json", classes=2))


def reach(table: str) -> tuple[float, float]:
    """The least and the greatest latency: this table's time grows with what a network computes."""
    lightest, heaviest = LatencyTable.load(Path(table)).predict(SPACE, [SPACE.lightest(), SPACE.heaviest()]).tolist()
    return lightest, heaviest


@pytest.fixture(scope="module")
def finished(table: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    least, most = reach(table)
    limits = {"latency_ms": [0.8 * least + 0.2 * most, 0.5 * least + 0.5 * most]}
    folder = tmp_path_factory.mktemp("runs") / "first"
    return aw.search("binas", run=folder, latency_table=table, limits=limits, rank_networks=3, **SMALL)


@pytest.fixture
def steps_down(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a quicker network had to be taken, of each that is chosen."""
    taken: list[int] = []
    original = Clock.step_down

    def counting(self: Clock[Any], *asked: Any) -> Any:
        found = original(self, *asked)
        taken.append(found[2])
        return found

    monkeypatch.setattr(Clock, "step_down", counting)
    return taken


def again(finished: Answer, folder: Path, **changes: Any) -> Answer:
    """A search that uses the trained supernet again."""
    return aw.search("binas", run=folder, **{**SMALL, "supernet": str(finished.folder), **changes})


def test_every_limit_gets_a_model_within_it(finished: Answer, table: str) -> None:
    models, limits = finished.models, [one.limits["latency_ms"] for one in finished.models]
    assert len(models) == 2
    for one, limit in zip(models, limits, strict=True):
        architecture = SPACE.parse(one.architecture)
        counted = float(LatencyTable.load(Path(table)).predict(SPACE, [architecture])[0])
        assert counted <= limit
        assert one.predicted_latency_ms == pytest.approx(counted)
        cost = SPACE.cost(architecture, SPACE.scale)
        assert (one.params, one.macs) == (cost.params, cost.macs)
        loaded = load_model(finished.folder / one.model)
        assert str(loaded.architecture) == one.architecture
        assert loaded.preprocessing.class_names == ("0", "1")
    assert models[1].validation_accuracy >= models[0].validation_accuracy
    assert finished.best == max(models, key=lambda one: (one.validation_accuracy, -one.latency_ms))
    assert str(finished.best.load().architecture) == finished.best.architecture


def test_the_front_rises_and_its_points_cost_what_they_say(finished: Answer, table: str) -> None:
    points = json.loads((finished.folder / "artifacts" / "front.json").read_text())
    assert len(points) == finished.front_points
    costs, values = (np.array([p[key] for p in points]) for key in ("latency_ms", "predicted_accuracy"))
    assert (np.diff(costs) > 0).all()
    assert (np.diff(values) > 0).all()
    counted = LatencyTable.load(Path(table)).predict(SPACE, [SPACE.parse(p["architecture"]) for p in points])
    assert counted == pytest.approx(costs)
    assert finished.front[0].model_dump(exclude_none=True) == points[0]
    assert finished.front[-1].model_dump(exclude_none=True) == points[-1]


def test_the_onnx_files_agree_with_the_models(finished: Answer) -> None:
    pytest.importorskip("onnxruntime")
    images = torch.randn(3, 1, 8, 8)
    for one in finished.models:
        network = load_model(finished.folder / one.model)
        exported = load_classifier(finished.folder / one.onnx)
        assert torch.allclose(exported.probabilities(images), network.probabilities(images), atol=1e-5)


def test_every_training_has_an_event_an_epoch(finished: Answer) -> None:
    events = [event for event in Run.open(finished.folder).events() if event["kind"] == "epoch"]
    assert {event["stage"] for event in events} == {"heaviest", "supernet", "tune"}
    tuned = {event["model"] for event in events if event["stage"] == "tune"}
    assert tuned >= {one.details["network"] for one in finished.models}


def test_a_third_of_the_measurements_is_spent_in_rounds(finished: Answer) -> None:
    run = Run.open(finished.folder)
    networks = run.stage_result("rounds")["networks"]
    assert len(set(networks)) == len(networks) == 2  # one a limit at least; 67 rows of 24 images would make two, too
    assert list(run.items("rounds").done) == networks


def test_rounds_that_are_killed_end_with_the_same(
    finished: Answer, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"limits": finished_limits(finished), "latency_table": table, "rounds": 3, "rows": 400}
    whole = again(finished, tmp_path / "whole", **given)
    original, calls = SupernetWork._round_outcome, []

    def dying(self: SupernetWork, architecture: str) -> Any:
        calls.append(architecture)
        if len(set(calls)) == 3:
            raise KeyboardInterrupt
        return original(self, architecture)

    monkeypatch.setattr(SupernetWork, "_round_outcome", dying)
    with pytest.raises(BaseException):  # noqa: B017  the engine may wrap it
        again(finished, tmp_path / "killed", **given)
    monkeypatch.undo()
    assert len(Run.open(tmp_path / "killed").items("rounds").done) == 2
    resumed = aw.resume(tmp_path / "killed")
    assert [one.architecture for one in resumed.models] == [one.architecture for one in whole.models]
    both = [Run.open(one.folder).stage_result("rounds") for one in (whole, resumed)]
    assert both[0] == both[1]
    assert len(both[0]["networks"]) > 3


def finished_limits(finished: Answer) -> dict[str, list[float]]:
    return {"latency_ms": [one.limits["latency_ms"] for one in finished.models]}


def test_rounds_go_with_the_predictor_that_is_fitted(finished: Answer, table: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hierarchical"):
        again(finished, tmp_path / "bad", latency_table=table, estimator="eq3", rounds=2)
    published = again(
        finished, tmp_path / "eq3", latency_table=table, estimator="eq3", limits=finished_limits(finished)
    )
    assert Run.open(published.folder).stage_result("rounds") is None


def test_insights_ranks_and_plot_are_there(finished: Answer) -> None:
    assert len(finished.insights) == 6  # two depths, squeeze-excite, kernel, two expansions
    assert finished.details["rank"]["networks"] == 3
    assert (finished.folder / "artifacts" / "contributions.png").stat().st_size > 0


def test_another_device_and_several_resources_use_the_supernet_again(finished: Answer, tmp_path: Path) -> None:
    table = str(counted_table(tmp_path / "other.json", classes=2, device="a telephone"))
    least, most = reach(table)
    params = SPACE.cost(SPACE.lightest(), SPACE.scale).params * 1.2
    limits = {"latency_ms": (least + most) / 2, "params": params, "memory_bytes": 1e6}
    seen = Told()
    result = again(
        finished, tmp_path / "run", latency_table=table, limits=limits, verify=True, progress=seen, rank_networks=0
    )
    assert any("a telephone" in line and "nothing is timed" in line for line in seen.lines)
    assert result.best.measured_latency_ms is None
    assert result.best.params <= params
    assert result.best.latency_ms <= limits["latency_ms"]
    assert result.best.details["solver"] == "highs"


def test_a_table_measured_here_and_a_limit_above_the_maximum(
    finished: Answer, steps_down: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("archwright.costs.tables.Stopwatch", SteadyWatch)
    seen = Told()
    result = again(
        finished, tmp_path / "run", limits={"latency_ms": 1e4}, latency_repeats=1, verify=True, progress=seen
    )
    assert any("above the slowest" in line for line in seen.lines)
    timed = result.best.measured_latency_ms
    assert 0 < timed.low_ms <= timed.median_ms <= timed.high_ms <= 1e4
    assert result.best.latency_ms == timed.median_ms
    assert steps_down == [0]


def test_a_further_limit_costs_only_its_own_model(
    finished: Answer, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    tuned: list[str] = []
    original, exact = Supernet._tune_one, Supernet.exact

    def counting(self: Supernet, one: ChosenNetwork, *rest: Any) -> Any:
        tuned.append(one.architecture)
        return original(self, one, *rest)

    monkeypatch.setattr(Supernet, "_tune_one", counting)
    monkeypatch.setattr(SupernetWork, "predictor", clear_predictor)  # so that a larger limit has a larger network
    monkeypatch.setattr(Supernet, "exact", property(lambda self: replace(exact.fget(self), measured=())))
    least, most = reach(table)
    with pytest.raises(InfeasibleError, match="Reachable"):
        aw.resume(folder, latency_ms=[least / 2])
    assert {**aw.resume(folder).to_json(), "run": ""} == {**finished.to_json(), "run": ""}  # nothing was changed
    limit = 0.1 * least + 0.9 * most
    result = aw.resume(folder, latency_ms=[limit])
    assert result.models[:2] == finished.models
    third = result.models[2]
    assert third.limits == {"latency_ms": limit}
    assert third.latency_ms <= limit
    assert load_model(folder / third.model).architecture == SPACE.parse(third.architecture)
    assert third.validation_accuracy >= max(one.validation_accuracy for one in finished.models)
    assert len(tuned) == 1
    assert tuned[0] not in {one.architecture for one in finished.models}
    assert len(networks_of(Run.open(folder))) == len(networks_of(Run.open(finished.folder))) + 1
    assert aw.resume(folder, latency_ms=[limit]) == result  # known already


def test_a_further_limit_that_no_network_meets_leaves_the_answer(
    finished: Answer, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    least, most = reach(table)

    def fail(*_: Any) -> Any:
        raise InfeasibleError("too slow here")

    monkeypatch.setattr(ExactChoice, "choose", fail)  # as when the machine is slower than its table
    with pytest.raises(InfeasibleError, match="too slow here"):
        aw.resume(folder, latency_ms=[0.3 * least + 0.7 * most])
    again = aw.resume(folder).to_json()
    assert {**again, "seconds": 0, "run": ""} == {**finished.to_json(), "seconds": 0, "run": ""}


def test_only_finished_runs_with_a_latency_limit_take_another(finished: Answer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    (folder / "artifacts" / "result.json").unlink()
    with pytest.raises(InputError, match="finished"):
        aw.resume(folder, latency_ms=[5.0])
    header = json.loads((folder / "run.json").read_text())
    header["configuration"]["limits"] = {"params": 1e6}
    (folder / "run.json").write_text(json.dumps(header))
    with pytest.raises(InputError, match="several latency limits"):
        aw.resume(folder, latency_ms=[5.0])


def test_a_run_with_one_answer_takes_no_further_limit(tmp_path: Path) -> None:
    settings = {"data": TWO_GREY_CLASSES, "epochs": 1, "final_epochs": 1, "evaluations": 1, "channels": 4, "cells": 1}
    result = aw.search("random", run=tmp_path / "run", **settings)
    with pytest.raises(InputError, match="several latency limits"):
        aw.resume(result.folder, latency_ms=[5.0])


def clear_predictor(self: SupernetWork, *_: Any) -> Predictor:
    """Terms without noise, so that the choice takes what the limit allows; a tiny supernet's say nothing."""
    known = synthetic_problem(seed=0)
    zeros = np.zeros_like(known.depth_values), np.zeros_like(known.block_values)
    return Predictor(StagedEstimate(known.fixed_value, known.depth_values, known.block_values, 0.0, *zeros))


def test_a_network_that_is_too_slow_is_replaced_by_a_quicker_one(
    finished: Answer, table: str, steps_down: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = LatencyTable.load(Path(table))  # everything but the lightest network takes longer than it says
    monkeypatch.setattr(DeviceTable, "watch", watch_by(known, lambda one: 1.0 if one == SPACE.lightest() else 1.2))
    monkeypatch.setattr(SupernetWork, "predictor", clear_predictor)
    least, most = reach(table)
    limit = 0.5 * least + 0.5 * most
    asked = {"latency_table": table, "limits": {"latency_ms": limit}, "verify": True}
    best = again(finished, tmp_path / "run", **asked).best
    assert steps_down[0] >= 1
    assert best.measured_latency_ms.median_ms <= limit
    assert 0.75 * limit / 1.2 <= best.predicted_latency_ms <= limit / 1.2  # not much quicker than it must be
    limits = {"latency_ms": 1.01 * least}  # the quickest network keeps it, but not with the margin
    with pytest.raises(InfeasibleError, match="was found"):
        again(finished, tmp_path / "slow", latency_table=table, limits=limits, verify=True)


def test_other_work_on_the_machine_does_not_change_the_choice(
    finished: Answer, table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, times = LatencyTable.load(Path(table)), [1.0]
    monkeypatch.setattr(DeviceTable, "watch", watch_by(known, lambda _: times[0]))

    def becomes_slower(event: dict[str, Any]) -> None:
        if event["kind"] == "stage" and event["name"] == "verify":
            times[0] = 3.0  # everything, since the table was made

    monkeypatch.setattr(SupernetWork, "predictor", clear_predictor)
    least, most = reach(table)
    asked = {"latency_table": table, "limits": {"latency_ms": 0.5 * least + 0.5 * most}, "verify": True}
    best = again(finished, tmp_path / "run", callbacks=[becomes_slower], **asked).best
    timed = best.measured_latency_ms
    assert best.details["slowdown"] == pytest.approx(3.0)
    assert timed.median_ms == pytest.approx(best.predicted_latency_ms)
    assert timed.high_ms == pytest.approx(1.5 * best.predicted_latency_ms)  # the spread stays
    assert best.details["raw_median_ms"] == pytest.approx(3 * best.predicted_latency_ms)
    assert best.predicted_latency_ms >= 0.9 * asked["limits"]["latency_ms"]


def test_limits_that_nothing_meets_are_refused_with_the_range(table: str, tmp_path: Path) -> None:
    least, most = reach(table)
    limits = {"latency_ms": [0.9 * least, most]}
    with pytest.raises(InfeasibleError) as caught:
        aw.search("binas", run=tmp_path / "run", latency_table=table, limits=limits, **SMALL)
    assert f"{least:.6g}" in str(caught.value)
    assert f"{most:.6g}" in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limits": {"latency": 1.0}}, "Did you mean 'latency_ms'"),
        ({"limits": {"latency_ms": float("nan")}}, "finite number"),
        ({"space": "nasbench201"}, "the space mbconv"),
        ({"plan_from": "nowhere"}, "--plan-from with --plan paper"),
        ({"benchmark": "nb201"}, "--benchmark with"),
        ({"channels": 8}, "--channels with spaces whose"),
        ({"latency_table": "nowhere.json"}, "a latency table"),
        ({"supernet": "nowhere"}, "a trained supernet"),
        ({"data": "random:classes=2,size=4,count=60"}, "at least 8 px"),
        ({"recipe": "darts"}, "drop-path"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        aw.search("binas", run=tmp_path / "run", **{**SMALL, **changes})
    assert not (tmp_path / "run").exists()


def test_a_table_of_another_shape_is_refused(tmp_path: Path) -> None:
    table = counted_table(tmp_path / "ten.json", classes=10)
    with pytest.raises(InputError, match="different parts of the space"):
        aw.search("binas", run=tmp_path / "run", latency_table=str(table), **SMALL)


def test_a_supernet_of_another_space_or_of_other_images_is_refused(finished: Answer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="classes=3"):
        again(finished, tmp_path / "run", data="random:classes=3,size=8,channels=1,count=120")
    with pytest.raises(InputError, match="other images or splits"):
        again(finished, tmp_path / "run", seed=1)


def test_several_limits_are_refused_by_methods_with_one_answer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one limit a resource"):
        aw.search("random", run=tmp_path / "run", data="digits", limits={"params": [1e5, 1e6]})


def test_a_saved_supernet_comes_back_and_one_path_is_the_cut_out_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    supernet, images = ElasticSupernet(SPACE).eval(), torch.randn(5, 1, 8, 8)
    save_supernet(supernet, "images", tmp_path / "supernet.safetensors")
    loaded = load_supernet(tmp_path / "supernet.safetensors", ElasticSupernet(SPACE), "images").eval()
    architecture = SPACE.sample(np.random.default_rng(0))
    expected = supernet.cut_out(architecture)(images)
    assert torch.allclose(OnePath(loaded, SPACE.to_choice(architecture))(images), expected, atol=1e-5)


def test_the_predictor_of_a_pool_ranks_known_accuracies_and_promises_no_more(tmp_path: Path) -> None:
    """250 sub-networks on 64 images each, right by a coin of known accuracy; each image is shown several times."""
    values = {"method": "binas", "space": "mbconv", "data": "random:classes=2,size=8,channels=1,count=640"}
    run = Run.create(tmp_path / "run", {}, {})
    configuration = Configuration(**values, options={"plan": "paper"})
    plan = Binas(Context(configuration, run, Device.choose("cpu", 1))).strategy
    assert isinstance(plan, Supernet)
    problem = synthetic_problem(seed=0)
    problem = replace(problem, block_values=3 * problem.block_values, depth_values=3 * problem.depth_values)
    rng, log = np.random.default_rng(0), run.items("measure")
    for number in range(250):
        accuracy = float(problem.evaluate(plan.work._pool_choice(number))[0]) / 100
        log.record(str(number), {"correct": (rng.random(64) < accuracy).astype(int).tolist(), "loss": 0.0})
    tried = deal(300, np.random.default_rng(1), SPACE.scale)
    truth = problem.evaluate(tried)[0]
    tau = {}
    for name in ("hierarchical", "centred", "eq3"):
        found = plan.work.predictor(name, shrink=True)
        predicted = found.percent(found.estimate.predict(tried))
        tau[name] = kendalltau(predicted, truth).statistic
        if name == "hierarchical":
            assert abs(predicted.mean() - truth.mean()) < 2
            assert predicted.max() < truth.max() + 2
    assert tau["hierarchical"] > 0.5
    assert tau["hierarchical"] > max(tau["centred"], tau["eq3"])


def test_the_centred_predictor_ranks_an_additive_accuracy_and_its_parts_rank_worse() -> None:
    scale, problem = scale_for(32), synthetic_problem(seed=0)
    pool = deal(60_000, np.random.default_rng(0), scale)
    accuracy = problem.evaluate(pool)[0]
    estimates = [pool_estimates(pool, accuracy, centred, 12) for centred in (True, False)]
    tried = deal(300, np.random.default_rng(1), scale)
    truth = problem.evaluate(tried)[0]
    found = rank_correlations(estimates[0], estimates[1], estimates[0], tried, np.stack([truth, truth], 1))
    assert found["halves"] == {"kendall": pytest.approx(1.0), "spearman": pytest.approx(1.0)}
    assert found["centred"]["kendall"] > 0.95
    assert found["centred"]["kendall"] > found["eq3"]["kendall"]
    assert found["eq3"]["kendall"] > found["Q = 0"]["kendall"]
    constant = rank_correlations(estimates[0], replace(estimates[1]), estimates[0], tried, np.full((300, 2), 50.0))
    assert constant["centred"] == {"kendall": None, "spearman": None}


# --- options of the fine-tuning: AutoAugment and the moving average of the weights ------------------------------------

COLOUR = "random:classes=2,size=8,channels=3,count=60"
STEPS = 6


def prepared(folder: Path, data: str = COLOUR, **options: Any) -> Supernet:
    """The method on a new run; without distillation no teacher is needed."""
    values = {"method": "binas", "space": "mbconv", "data": data, "epochs": 2, "final_epochs": 2, "batch_size": 12}
    configuration = Configuration(**values, options={"plan": "paper", "distill": 0.0, **options})
    device = Device.choose("cpu", 1)
    run = Run.create(folder, configuration.model_dump(), device.describe())
    method = Binas(Context(configuration, run, device))
    method.check()
    assert isinstance(method.strategy, Supernet)
    return method.strategy


class Recorder:
    """A supernet from which one network is cut out, and a bar that keeps the network's weights after every step."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.states = [self.state()]

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.network.state_dict().items()}

    def cut_out(self, architecture: Any) -> Network:
        return self.network

    def advance(self) -> None:
        self.states.append(self.state())


def tuned(method: Supernet) -> Recorder:
    torch.manual_seed(0)
    lightest = method.space.lightest()
    recorder = Recorder(method.space.build(lightest, method.space.scale))
    method.work.trained = recorder  # type: ignore[assignment]
    one = ChosenNetwork(limits={}, architecture=str(lightest), predicted_accuracy=50.0, solver="none")
    method._tune_one(one, "tuned", method.tuning_recipe(), recorder)
    return recorder


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_the_tuned_model_is_the_average_of_all_steps_if_asked(decay: float, tmp_path: Path) -> None:
    recorder = tuned(prepared(tmp_path / "run", tune_ema=decay))
    start, *states = recorder.states
    assert len(states) == STEPS
    saved = load_member(tmp_path / "run" / "artifacts" / "networks" / "tuned.safetensors").network.state_dict()
    moved = 0
    for name, value in start.items():
        expected = value
        for number, state in enumerate(states, 1):
            d = min(decay, (1 + number) / (10 + number))
            expected = d * expected + (1 - d) * state[name] if value.is_floating_point() else state[name]
        assert torch.allclose(saved[name], expected, atol=1e-6), name
        moved += not torch.allclose(saved[name].float(), states[-1][name].float(), atol=1e-6)
    assert (moved > 0) == (decay > 0)


@pytest.mark.parametrize("asked", [False, True])
def test_autoaugment_is_added_to_the_augmentation_of_the_data(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen = Augmentation(crop=1, flip=True, cutout=2), []
    monkeypatch.setattr(Augmentation, "default_for", lambda data: usual)
    monkeypatch.setattr(supernet, "train", lambda network, batches, *_, **__: seen.append(batches))
    method = prepared(tmp_path / "run", tune_autoaugment=asked)
    tuned(method)
    (batches,) = seen
    assert batches.augment == Augmentation(1, True, 2, "cifar10" if asked else None)
    assert method.work.batches(method._supernet_recipe()).augment == usual


def test_a_real_tuning_with_autoaugment_and_a_moving_average_stays_finite(tmp_path: Path) -> None:
    method = prepared(tmp_path / "run", tune_autoaugment=True, tune_ema=0.9)
    recorder = tuned(method)
    assert all(bool(value.isfinite().all()) for value in recorder.state().values())


def test_a_decay_of_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tune_ema"):
        aw.search("binas", run=tmp_path / "run", data="digits", plan="paper", epochs=1, tune_ema=1.0)
    assert not (tmp_path / "run").exists()
