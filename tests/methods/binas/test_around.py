"""BINAS from pretrained weights, with a tiny start and steady clocks: sizes, limits, the floor, kills and bad input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

import archwright as aw
from archwright.costs.clock import MARGIN
from archwright.costs.device_table import DeviceTable
from archwright.costs.limits import met
from archwright.costs.measure import Timing
from archwright.data import Batches
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError, Interrupted, RunError
from archwright.methods import binas
from archwright.methods.binas import Binas, around, start_of
from archwright.methods.binas.around import (
    FLOOR,
    PENALTIES,
    Around,
    Proposal,
    finer,
    fit_head,
    most_promising,
    single_changes,
    sizes_for,
)
from archwright.models import load_classifier, load_member
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer
from archwright.search.budget import Pace
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.engine import reopened
from archwright.search.task import Task
from archwright.search.trained import TrainedNetwork, Trainer, networks_of
from helpers.binas_plans import planned_run, space_of
from helpers.tiny_start import TINY, SizedWatch, tiny_start, write_grey_photos
from helpers.told import Told


@pytest.fixture(scope="module", autouse=True)
def tiny() -> Iterator[None]:
    with tiny_start():
        yield


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_grey_photos(tmp_path_factory.mktemp("photos") / "grey")


LIMITS = [0.75, 2.0]
WHOLE = str(TINY.space(2, 16).heaviest())


def search(folder: Path, data: str, **settings: Any) -> Answer:
    given = {"limits": {"latency_ms": LIMITS}, "verify": False, **settings}
    return aw.search("binas", run=folder, data=data, pretrained="tiny", threads=1, **given)


def strategy_of(found: Answer) -> Around:
    """Of a finished search."""
    searched = reopened(Run.open(found.folder), Stop(), Progress())
    assert isinstance(searched, Binas)
    assert isinstance(searched.strategy, Around)
    return searched.strategy


def whole_ms(found: Answer) -> dict[int, float]:
    """Predicted milliseconds of the whole network, by searched size."""
    strategy = strategy_of(found)
    return {size: strategy.whole_costs(size)["latency_ms"] for size in strategy.table.result.sizes}


@pytest.fixture(scope="module")
def told() -> Told:
    return Told()


@pytest.fixture(scope="module")
def finished(photos: str, told: Told, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    return search(tmp_path_factory.mktemp("runs") / "whole", photos, progress=told)


def test_every_limit_is_kept_and_no_answer_is_below_the_floor(finished: Answer) -> None:
    assert [one.limits for one in finished.models] == [{"latency_ms": limit} for limit in LIMITS]
    trained, whole = networks_of(Run.open(finished.folder)), whole_ms(finished)
    assert {name.split("-")[0] for name in trained} == {"floor", "trunk", "tuned"}
    for one in finished.models:
        assert one.details["network"] != "trunk-16"  # the trunk was not trained at that size
        assert met(one.limits, {"latency_ms": one.latency_ms})
        fitting = [size for size, latency in whole.items() if latency <= one.limits["latency_ms"]]
        floors = [trained[f"floor-{size}"].validation_accuracy for size in fitting]
        assert one.validation_accuracy >= max(floors, default=0.0)
        scale = one.load().scale
        cost = TINY.space(2, scale.image_size).cost(one.load().architecture, scale)
        assert (one.params, one.macs) == (cost.params, cost.macs)
    accuracies = [one.validation_accuracy for one in finished.models]
    assert accuracies[-1] >= max(finished.details["floor"].values())
    assert finished.beside[FLOOR].validation_accuracy == max(finished.details["floor"].values())


def test_the_whole_network_is_tuned_at_the_largest_size_that_keeps_each_limit(finished: Answer) -> None:
    trained, whole = networks_of(Run.open(finished.folder)), whole_ms(finished)
    plan, fitted = finished.details["plan"], set[int]()
    assert set(whole) == {16, 24}
    for limit in LIMITS:
        sizes = [size for size in (16, 24) if whole[size] <= limit]
        fitted |= {max(sizes)} if sizes else set()
    assert plan["trunk_size"] == 24
    own = [one for name, one in trained.items() if name.startswith("tuned-") and one.architecture == WHOLE]
    assert {one.image_size for one in own} == fitted - {24}
    assert (plan["trunk_steps"] > plan["tuned_steps"] + 4) is (
        24 in fitted
    )  # it then has the steps of a candidate, too


def test_the_whole_network_and_the_best_thinner_one_at_a_larger_size_are_tuned() -> None:
    found = [
        Proposal(architecture="a", image_size=size, whole=whole, value=value, share=1.0 if whole else 0.8)
        for size, whole, value in ((48, True, -0.1), (64, True, -0.2), (96, False, -0.5), (128, False, -0.4))
    ]

    def sizes(proposals: list[Proposal]) -> list[int]:
        return [one.image_size for one in most_promising(proposals)]

    assert sizes(found) == [64, 128]
    assert sizes(found[:2]) == [64]
    assert sizes(found[2:]) == [128, 96]
    found[3] = found[3].model_copy(update={"share": 0.5})  # too little is left of it, whatever it promises
    assert sizes(found) == [64, 96]
    assert sizes(found[2:]) == [96]
    assert sizes(found[3:]) == [128]  # nothing else keeps the limit


def test_origin_licence_and_hash_are_in_the_run_and_in_the_model_and_said_once(finished: Answer, told: Told) -> None:
    facts = {"name": "tiny", "sha256": "0" * 64, "origin": "the tests", "licence": "none needed"}
    assert finished.details["pretrained"] == facts
    assert load_member(finished.folder / finished.best.model).measured["pretrained"] == facts
    assert sum("the tests" in line and "none needed" in line for line in told.lines) == 1
    assert any("three equal channels" in line for line in told.lines)
    assert any("enlarged" in line and "24 px" in line for line in told.lines)


def test_the_front_is_undominated_over_all_sizes(finished: Answer) -> None:
    points = json.loads((finished.folder / "artifacts" / "front.json").read_text())["points"]
    latencies, losses = ([point[name] for point in points] for name in ("latency_ms", "loss"))
    assert latencies == sorted(latencies)
    assert losses == sorted(losses, reverse=True)
    assert {point["image_size"] for point in points} <= {16, 24}


def test_predict_and_onnx_show_grey_files_as_training_did(finished: Answer, photos: str) -> None:
    pytest.importorskip("onnxruntime")
    folder = Path(photos.removeprefix("folder:"))
    files = sorted(folder.rglob("*.png"))[::7]
    best = finished.models[-1]
    size = best.load().scale.image_size
    expected = []
    for file in files:
        with Image.open(file) as image:
            grey = np.asarray(image.resize((size, size), Image.Resampling.BILINEAR), dtype=np.float32) / 255
        colour = (np.stack([grey] * 3) - np.array(TINY.mean)[:, None, None]) / np.array(TINY.std)[:, None, None]
        expected.append(colour[:, ::-1, ::-1].astype(np.float32))
    with torch.no_grad():
        wanted = best.load().network(torch.from_numpy(np.stack(expected))).softmax(1)
    for file in (best.model, best.onnx):
        found = load_classifier(finished.folder / file).predict(files, top=2)
        shown = torch.tensor([[dict(one.top)[name] for name in ("above", "below")] for one in found])
        assert torch.allclose(shown, wanted, atol=1e-4)


def test_stopped_anywhere_and_resumed_gives_the_same_answer(
    finished: Answer, photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, keep = tmp_path / "run", Trainer.keep
    left = {"stages": {"plan", "changes", "choose"}, "records": {2, 4, 6}}
    seen = [0]

    def at_stage(event: dict[str, Any]) -> None:
        if event["kind"] == "stage" and event["name"] in left["stages"]:
            left["stages"].remove(event["name"])
            raise Interrupted("here")

    def at_record(self: Trainer, *given: Any, **known: Any) -> Any:
        seen[0] += 1
        if seen[0] in left["records"]:
            left["records"].remove(seen[0])
            raise Interrupted("in training")
        return keep(self, *given, **known)

    monkeypatch.setattr(Trainer, "keep", at_record)
    result = None
    try:
        result = search(folder, photos, callbacks=[at_stage])
    except Interrupted:
        for _ in range(10):
            try:
                result = aw.resume(folder, callbacks=[at_stage])
                break
            except Interrupted:
                continue
    assert not left["stages"]
    assert not left["records"]
    assert result is not None
    assert result.models == finished.models
    assert {name: one.accuracy for name, one in result.beside.items()} == {
        name: one.accuracy for name, one in finished.beside.items()
    }


def test_a_further_limit_tunes_only_for_itself(finished: Answer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    before = ItemLog(folder / "items" / "trained.jsonl").done
    result = aw.resume(folder, latency_ms=[1.2])
    after = ItemLog(folder / "items" / "trained.jsonl").done
    assert {name: after[name] for name in before} == before
    assert [one.limits["latency_ms"] for one in result.models] == [*LIMITS, 1.2]


# --- plans repeated, latencies measured anew --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timed(photos: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """A search that chose its own limits, with networks timed."""
    return search(tmp_path_factory.mktemp("runs") / "timed", photos, limits={}, verify=True)


@pytest.mark.parametrize("verify", [True, False])
def test_a_repeated_plan_gives_the_same_models(
    verify: bool,
    finished: Answer,
    timed: Answer,
    photos: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = timed if verify else finished
    monkeypatch.setattr(Pace, "step_ms", None)  # no step is timed,
    monkeypatch.setattr(DeviceTable, "make", None)  # and no block
    limits = {} if verify else {"latency_ms": LIMITS}
    again = search(tmp_path / "run", photos, limits=limits, verify=verify, plan_from=str(source.folder))
    assert again.models == source.models
    assert {name: one.accuracy for name, one in again.beside.items()} == {
        name: one.accuracy for name, one in source.beside.items()
    }
    for name in ("table", "plan"):
        assert Run.open(again.folder).stage_result(name) == Run.open(source.folder).stage_result(name)
    for one, other in zip(again.models, source.models, strict=True):
        assert (again.folder / one.model).read_bytes() == (source.folder / other.model).read_bytes()


def test_plans_that_do_not_fit_are_refused(finished: Answer, photos: str, tmp_path: Path) -> None:
    planned: dict[str, Any] = {"plan_from": str(finished.folder)}
    with pytest.raises(InputError, match="a plan of the image sizes 20, got one of 16 px"):
        search(tmp_path / "run", photos, image_size=20, **planned)
    other: dict[str, Any] = {"pretrained": "none", "limits": {"latency_ms": 5.0}, **planned}
    with pytest.raises(RunError, match="a plan as this version makes it"):
        aw.search("binas", run=tmp_path / "run", data=photos, **other)
    with pytest.raises(InputError, match=r"limits \(--latency-ms\).* its own"):
        search(tmp_path / "run", photos, limits={}, **planned)
    grown = planned_run(tmp_path / "plan", space_of(16, 2, 3))
    with pytest.raises(InputError, match="different parts of the space"):
        search(tmp_path / "run", photos, plan_from=grown)
    assert not (tmp_path / "run").exists()


def steady_ms(size: int, architecture: Any) -> float:
    """What the steady clock shows of a network at a size, before the machine became slower."""
    space = TINY.space(2, size)
    return float(SizedWatch(space.build(architecture, space.scale), (3, size, size), Timing()).ms)


@pytest.fixture(scope="module")
def largest(photos: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """A search whose one limit the whole network keeps at the largest size."""
    limits = {"latency_ms": 1.1 * steady_ms(24, TINY.space(2, 24).heaviest())}
    return search(tmp_path_factory.mktemp("runs") / "largest", photos, limits=limits, verify=True)


LIGHT, WHOLE_MS = (steady_ms(24, one) for one in (TINY.space(2, 24).lightest(), TINY.space(2, 24).heaviest()))


@pytest.fixture(scope="module")
def two(photos: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """A search with the limits of the whole network at the largest size, and of half of it."""
    limits = {"latency_ms": [WHOLE_MS / 2 / MARGIN, WHOLE_MS / MARGIN]}
    return search(tmp_path_factory.mktemp("runs") / "two", photos, limits=limits, verify=True)


def test_a_search_without_limits_takes_a_quarter_half_and_all_of_the_whole_network(timed: Answer) -> None:
    own = sorted(one.limits["latency_ms"] for one in timed.models if one.limits)
    assert own[1:] == pytest.approx([WHOLE_MS / 2 / MARGIN, WHOLE_MS / MARGIN], rel=0.05)
    assert WHOLE_MS / 4 / MARGIN <= own[0] <= own[1]


@pytest.mark.parametrize(
    ("source", "slower", "before", "after"),
    [
        ("timed", 1.3, [16, 24], [16, 24]),
        ("two", 0.4, [16, 24], [24]),  # the whole network keeps even the tighter limit
        ("two", 1.1 * WHOLE_MS / LIGHT, [16, 24], [16]),  # nothing at 24 px keeps the looser one
        ("largest", 1.3, [24], [16, 24]),  # where nothing was trained at 16 px but the floor
    ],
    ids=["the same sizes", "the smaller no longer", "the larger no longer", "one more"],
)
def test_latencies_measured_anew_leave_trainings_and_limits_and_a_further_limit_goes_by_them(
    source: str,
    slower: float,
    before: list[int],
    after: list[int],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first: Answer = request.getfixturevalue(source)
    folder, items = tmp_path / "run", tmp_path / "run" / "items"
    shutil.copytree(first.folder, folder)
    trained = (items / "trained.jsonl").read_bytes()
    ends = ItemLog(items / "sizes.jsonl").done
    assert strategy_of(first).table.result.sizes == before
    monkeypatch.setattr(SizedWatch, "slower", slower)
    result = aw.resume(folder, remeasure=True)
    strategy = strategy_of(result)
    assert strategy.table.result.sizes == after
    assert (items / "trained.jsonl").read_bytes() == trained
    assert [one.limits for one in result.models] == [one.limits for one in first.models]
    for size, now in ItemLog(items / "sizes.jsonl").done.items():
        assert now == pytest.approx([slower * ms for ms in ends[size]])
    for one in result.models:
        space = strategy.spaces[one.load().scale.image_size]
        network = space.parse(one.architecture)
        assert one.latency_ms == pytest.approx(steady_ms(space.scale.image_size, network))  # slower as it is now
        assert one.predicted_latency_ms == pytest.approx(strategy.table.latency.predict(space, [network])[0])
    further = 1.01 * steady_ms(after[0], TINY.space(2, after[0]).lightest()) / MARGIN
    more = aw.resume(folder, latency_ms=[further])
    assert [one.limits for one in more.models] == [*(one.limits for one in first.models), {"latency_ms": further}]
    assert more.models[-1].latency_ms <= further
    proposals = ItemLog(items / "proposals.jsonl").done[json.dumps({"latency_ms": further})]
    for one in (Proposal.model_validate(one) for one in proposals):
        assert steady_ms(one.image_size, strategy.spaces[one.image_size].parse(one.architecture)) <= further


def test_a_limit_below_the_smallest_network_ends_it_before_training(photos: str, tmp_path: Path) -> None:
    with pytest.raises(InfeasibleError, match="Reachable"):
        search(tmp_path / "run", photos, limits={"latency_ms": 0.01})
    assert not (tmp_path / "run" / "stages" / "trunk.json").exists()
    with pytest.raises(InfeasibleError, match="params"):
        search(tmp_path / "other", photos, limits={"params": 10})
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plan": "paper"}, "--plan"),
        ({"rows": 500}, "--rows"),
        ({"epochs": 3}, "--epochs"),
        ({"space": "compact"}, "mbconv"),
        ({"image_size": 4}, "8 px"),
    ],
)
def test_settings_of_other_plans_are_refused(
    photos: str, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        search(tmp_path / "run", photos, **settings)
    assert not (tmp_path / "run").exists()


# --- which start, which sizes -----------------------------------------------------------------------------------------


def test_photo_folders_start_from_weights_where_they_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (20, 40):
        for number in range(8):
            (tmp_path / f"{size}" / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(np.full((size, size), 30 * number, dtype=np.uint8))
            image.save(tmp_path / f"{size}" / f"class{number % 2}" / f"{number}.png")
    monkeypatch.setattr(binas, "installed", lambda _: True)
    photos: dict[str, Any] = {"method": "binas", "data": f"folder:{tmp_path / '40'}", "options": {}}

    def start(settings: dict[str, Any]) -> dict[str, Any]:
        return start_of(Task(Configuration(**settings)))

    assert start(photos) == {"pretrained": "efficientnet-lite0"}
    for other in (
        {**photos, "data": f"folder:{tmp_path / '20'}"},
        {**photos, "data": "digits"},
        {**photos, "options": {"pretrained": "none"}},
        {**photos, "options": {"plan": "fast"}},
        {**photos, "space": "compact"},
    ):
        assert start(other) == {}
    monkeypatch.setattr(binas, "installed", lambda _: False)
    assert start(photos) == {}


def test_without_the_extra_a_photo_folder_is_told_what_it_would_bring(
    photos: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device.choose("cpu", 1)
    monkeypatch.setattr("archwright.search.limited.LimitedSearch._answer", lambda _: None)

    def is_told(number: int, data: str, **options: Any) -> bool:
        configuration, told = Configuration(method="binas", data=data, space="compact", options=options), Told()
        run = Run.create(tmp_path / f"{number}", configuration.model_dump(), device.describe())
        Binas(Context(configuration, run, device, progress=told))._answer()
        return any("archwright[pretrained]" in line for line in told.lines)

    for path in sorted(Path(photos.removeprefix("folder:")).rglob("*.png")):
        colour = tmp_path / "colour" / path.parent.name / path.name
        colour.parent.mkdir(parents=True, exist_ok=True)
        Image.open(path).convert("RGB").resize((64, 64)).save(colour)
    photographs = f"folder:{tmp_path / 'colour'}"
    monkeypatch.setattr(binas, "installed", lambda _: False)
    assert is_told(1, photographs)
    assert not is_told(2, photographs, pretrained="none")
    assert not is_told(3, "digits")
    assert not is_told(5, photos), "grey and small: no photographs"
    monkeypatch.setattr(binas, "installed", lambda _: True)
    assert not is_told(4, photographs)


def test_sizes_follow_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(around, "SIZES", (48, 64, 96, 128, 160, 192))
    assert sizes_for(32, None) == sizes_for(96, None) == (48, 64, 96, 128)
    assert sizes_for(112, None) == (48, 64, 96, 128, 144)  # 149 px is the bound
    assert sizes_for(224, None) == (48, 64, 96, 128, 160, 192)
    assert sizes_for(96, 80) == (80,)
    assert finer((48, 64, 96)) == (56, 72, 80, 88)
    assert finer((80,)) == ()
    assert finer((20,)) == ()


def test_single_changes_are_all_and_only_those() -> None:
    space = TINY.space(2, 16)
    whole = space.heaviest()
    changed = {place: space.from_choice(choice) for place, choice in single_changes(space).items()}
    assert set(changed) == {(0, 0), (1, 0), (1, 0, 0), (1, 1, 0)}
    assert set(changed.values()) <= set(space.neighbours(whole))
    assert len(changed[0, 0].stages[0]) == len(changed[1, 0].stages[1]) == 1
    assert changed[1, 1, 0].stages[1][1].expansion == 2


def test_frozen_features_are_taken_only_where_nothing_trained_is_as_good(
    finished: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = strategy_of(finished)
    some = next(iter(networks_of(strategy.context.run).values()))
    monkeypatch.setattr(strategy, "_latency_ms", lambda one: {"floor": 2.0, "tuned": 1.0}[one.name])

    def network(name: str, steps: int, accuracy: float) -> TrainedNetwork:
        return some.model_copy(update={"name": name, "steps": steps, "validation_accuracy": accuracy})

    for accuracy, taken in ((89.0, "floor"), (90.0, "tuned"), (91.0, "tuned")):
        assert strategy.preferred([network("floor", 0, 90.0), network("tuned", 9, accuracy)]).name == taken


def test_what_changes_cost_is_the_loss_of_the_changed_networks(finished: Answer) -> None:
    strategy, space = strategy_of(finished), TINY.space(2, 16)
    choices = [space.to_choice(space.heaviest()), *single_changes(space).values()]
    supernet, part = strategy.around(16), strategy.data(16).validation
    (images,) = (x for x, _ in Batches(strategy.data(16), "validation", len(part), shuffle=False, drop_last=False))
    labels = torch.from_numpy(part.labels)
    with torch.no_grad():
        wanted = [float(F.cross_entropy(supernet(images, choice), labels)) for choice in choices]
    assert len(set(wanted)) > 1
    assert np.allclose(strategy.losses(16, choices), wanted, atol=1e-5)


def test_the_floor_is_the_logistic_regression_that_was_fitted() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    for classes in (2, 3):
        labels = np.arange(90) % classes
        features = (rng.normal(size=(90, 32)) + 2 * np.eye(classes, 32)[labels]).astype(np.float32)
        network = TINY.network(classes, 16)
        fit_head(network, features, labels, features, labels)
        mean, std = features.mean(0), features.std(0) + 1e-6
        with torch.no_grad():
            ours = network.end[-1](torch.from_numpy(features)).softmax(1).numpy()
        others = [LogisticRegression(C=c, max_iter=200).fit((features - mean) / std, labels) for c in PENALTIES]
        found = [np.abs(one.predict_proba((features - mean) / std) - ours).max() for one in others]
        assert min(found) < 1e-3
