"""BINAS from scratch on tiny images: limits kept, a looser one never worse, minutes kept, plans repeated; and its
proposals: exact within two resources, and inside a larger network."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import archwright as aw
from archwright.costs.device_table import DeviceTable
from archwright.data import Augmentation
from archwright.device import Device
from archwright.errors import InfeasibleError, InputError, RunError
from archwright.methods.binas import Binas
from archwright.methods.binas.thin import (
    CLEARLY_OF_FEW,
    FEWEST_SHIFTED,
    FEWEST_STEPS,
    LATE,
    LOOSEST,
    MIRRORED_FROM,
    SHARED_FROM,
    SHIFTED_FROM,
    Proposal,
    Thin,
    default_minutes,
)
from archwright.methods.binas.worth import best_within
from archwright.models import load_classifier, load_model
from archwright.runs.run import ItemLog, Run
from archwright.search.answer import Answer
from archwright.search.budget import Pace
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.limited import tightest_first
from archwright.search.trained import networks_of
from archwright.supernets.shrink import contains
from archwright.training import Recipe
from helpers.binas_plans import PLAN, planned_run, space_of, table_of
from helpers.latency_tables import watch_by
from helpers.told import Told

GREY = "random:classes=2,size=8,channels=1,count=120"
SPACE = space_of()
TABLE = table_of(SPACE)
REACH = TABLE.predict(SPACE, [SPACE.lightest(), SPACE.heaviest()]).tolist()
LIMITS = [0.9 * REACH[0] + 0.1 * REACH[1], 0.7 * REACH[0] + 0.3 * REACH[1]]


def strategy_of(run: Run, **settings: Any) -> Thin:
    """Of a search in a run; nothing is timed by default."""
    values = {"method": "binas", "space": "compact", "data": GREY, "options": {"verify": False}, **settings}
    found = Binas(Context(Configuration(**values), run, Device.choose("cpu", 1))).strategy
    assert isinstance(found, Thin)
    return found


def answers_of(folder: Path) -> list[Proposal]:
    """What was trained for each limit, the loosest first."""
    return [Proposal.model_validate(one) for one in ItemLog(folder / "items" / "answers.jsonl").done.values()]


@pytest.fixture(scope="module")
def plan_run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return planned_run(tmp_path_factory.mktemp("plans") / "plan", SPACE)


@pytest.fixture(scope="module")
def finished(plan_run: str, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    folder = tmp_path_factory.mktemp("runs") / "first"
    return aw.search(
        "binas", run=folder, data=GREY, limits={"latency_ms": LIMITS}, plan_from=plan_run, minutes_of="processor"
    )


def test_every_limit_gets_a_model_within_it_and_a_looser_one_is_never_clearly_worse(finished: Answer) -> None:
    models = finished.models
    assert [one.limits for one in models] == [{"latency_ms": limit} for limit in LIMITS]
    for one, limit in zip(models, LIMITS, strict=True):
        architecture = SPACE.parse(one.architecture)
        assert float(TABLE.predict(SPACE, [architecture])[0]) <= limit
        cost = SPACE.cost(architecture, SPACE.scale)
        assert (one.params, one.macs) == (cost.params, cost.macs)
        assert str(one.load().architecture) == one.architecture
    tight, loose = (one.validation_accuracy or 0.0 for one in models)
    share, images = max(tight, loose) / 100, 24  # a fifth of the images validate
    error = 100 * np.sqrt(share * (1 - share) / images)
    assert loose > tight - 1.05 * CLEARLY_OF_FEW * error  # its share is a little nearer to a half in the program
    assert str(load_model(finished.folder).architecture) == finished.best.architecture
    assert Run.open(finished.folder).configuration["threads"] == 1  # of such small networks


def test_the_loosest_limit_gets_most_of_the_time_and_the_tighter_one_is_cut_from_it(finished: Answer) -> None:
    loose, tight = answers_of(finished.folder)
    assert (loose.source, tight.source) == ("", loose.architecture)
    assert contains(SPACE.parse(loose.architecture), SPACE.parse(tight.architecture))
    allotted = ItemLog(finished.folder / "items" / "allotted.jsonl").done
    assert allotted == {loose.name: pytest.approx(LOOSEST * 0.1), tight.name: pytest.approx((1 - LOOSEST) * 0.1)}
    steps = {name: one.steps for name, one in networks_of(Run.open(finished.folder)).items()}
    assert steps == {loose.name: 12, tight.name: 8}, "5 ms each"
    assert finished.models[0].architecture == tight.architecture


def test_trainings_by_the_clock_keep_their_steps(plan_run: str, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": GREY, "limits": {"latency_ms": LIMITS}}
    found = aw.search("binas", run=tmp_path / "run", plan_from=plan_run, **settings)
    trained = networks_of(Run.open(found.folder))
    lengths = ItemLog(found.folder / "items" / "lengths.jsonl").done
    assert {name: one.steps for name, one in trained.items()} == {name: lengths[name][-1]["total"] for name in trained}
    again = aw.search("binas", run=tmp_path / "again", plan_from=str(found.folder), **settings)
    assert again.models == found.models


def test_trainings_end_sooner_where_the_processor_works_for_others_too(plan_run: str, tmp_path: Path) -> None:
    left = {}
    for share in (1.0, 0.5):
        run = Run.open(Path(shutil.copytree(plan_run, tmp_path / f"{share}")))
        strategy = strategy_of(run, minutes=60.0)
        strategy._pace._share = share
        left[share] = strategy._allotted(Proposal(architecture=str(SPACE.lightest())), 1.0)
    kept = strategy._kept_back(strategy.spending.limits)
    until = strategy.spending.until
    assert left[1.0] == pytest.approx(until, abs=2)
    assert left[0.5] == pytest.approx(max(until - kept, LATE * strategy.spending.seconds), abs=2)


def test_networks_are_smaller_where_the_processor_works_for_others_too(tmp_path: Path) -> None:
    plan = PLAN.model_copy(update={"seconds": 60.0, "step_mega_ms": 20.0, "fewest_steps": FEWEST_STEPS})
    shares = {
        share: strategy_of(
            Run.open(Path(planned_run(tmp_path / f"{share}", SPACE, plan.model_copy(update={"share": share})))),
            minutes=60.0,
        )._most_macs
        for share in (1.0, 0.25)
    }
    assert shares[1.0] == plan.most_macs(LOOSEST * 60)
    assert shares[0.25] == plan.most_macs(LOOSEST * 15) < shares[1.0]


def test_limits_share_the_time_equally_where_that_is_asked_for(plan_run: str, tmp_path: Path) -> None:
    found = aw.search(
        "binas",
        run=tmp_path / "run",
        data=GREY,
        limits={"latency_ms": LIMITS},
        plan_from=plan_run,
        minutes_of="processor",
        limits_equally=True,
        beside=False,
    )
    assert set(ItemLog(found.folder / "items" / "allotted.jsonl").done.values()) == {0.05}
    assert set(found.beside) == {"chance"}


@pytest.mark.parametrize("equally", [False, True])
def test_few_passes_go_to_one_network_for_all_limits(equally: bool, tmp_path: Path) -> None:
    """Unless they are to be shared; the tightest limit's network has all of the time then."""
    plan = PLAN.model_copy(update={"shared_from": SHARED_FROM})
    found = aw.search(
        "binas",
        run=tmp_path / "run",
        data=GREY,
        limits={"latency_ms": LIMITS},
        plan_from=planned_run(tmp_path / "plan", SPACE, plan),
        minutes_of="processor",
        limits_equally=equally,
        beside=False,
    )
    allotted = list(ItemLog(found.folder / "items" / "allotted.jsonl").done.values())
    assert allotted == ([0.05, 0.05] if equally else [0.1])
    assert (len({one.architecture for one in answers_of(found.folder)}) == 1) != equally
    said = [line for line in found.insights if "passes over the images are too few" in line]
    assert len(said) == (0 if equally else 1), "of the looser limit alone"
    (kept,) = TABLE.predict(SPACE, [SPACE.parse(answers_of(found.folder)[0].architecture)]).tolist()
    assert equally or kept <= LIMITS[0]


def test_a_network_that_keeps_several_limits_is_trained_once_for_the_time_of_all(plan_run: str, tmp_path: Path) -> None:
    most = 1.5 * REACH[1]
    found = aw.search(
        "binas",
        run=tmp_path / "run",
        data=GREY,
        limits={"latency_ms": [most, 2 * most]},
        plan_from=plan_run,
        minutes_of="processor",
    )
    first, second = answers_of(found.folder)
    assert first == second
    assert first.architecture == str(
        SPACE.from_choice(best_within(strategy_of(Run.open(found.folder)).valued, 1e12, {}).choice)
    )
    assert ItemLog(found.folder / "items" / "allotted.jsonl").done == {first.name: 0.1}
    assert "of the limit: no larger one that fits" in found.insights[0]


def test_a_later_limit_gets_what_is_inside_the_next_larger_network(finished: Answer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    made = strategy_of(Run.open(folder), limits={"latency_ms": LIMITS})
    tight = answers_of(folder)[-1]
    between, tighter = {"latency_ms": sum(LIMITS) / 2}, {"latency_ms": (2 * REACH[0] + LIMITS[0]) / 3}
    looser = {"latency_ms": 2 * LIMITS[1]}
    assert made._further(between) == tight, "the tighter limit's network serves"
    inner = made._further(tighter)
    assert inner.source == tight.architecture
    assert contains(SPACE.parse(tight.architecture), SPACE.parse(inner.architecture))
    assert made._further(looser).source == ""


def four_limits(folder: Path, **others: list[float]) -> Thin:
    """A strategy with time for everything and four limits, of which the tightest is near the quickest network.

    With ``others`` there are two latencies instead, each together with each of these limits.
    """
    shares = (0.05, 0.5) if others else (0.001, 0.004, 0.01, 0.03)
    limits = {"latency_ms": [(1 - share) * REACH[0] + share * REACH[1] for share in shares], **others}
    plan = PLAN.model_copy(update={"seconds": 1e4, "until": 1e4, "limits": 4})
    return strategy_of(Run.open(Path(planned_run(folder, SPACE, plan))), minutes=1e4, limits=limits)


def test_every_one_of_combined_limits_is_kept(tmp_path: Path) -> None:
    """A looser latency with fewer parameters cannot contain what a tighter one with more of them got."""
    made = four_limits(tmp_path / "run", params=[4000.0, 40_000.0])
    limits = tightest_first(made.table.limit_sets)
    assert len(limits) == 4
    for own, limit in zip(made._chain(limits, 4, made._within), limits, strict=True):
        costs = made.valued.evaluate(made._choice(own))[1]
        assert all(float(costs[name]) <= most for name, most in limit.items())


def test_tighter_limits_networks_grow_where_the_looser_ones_leave_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = four_limits(tmp_path / "run")
    limits = sorted(made.table.limit_sets, key=lambda one: one["latency_ms"])
    grown = [made._chain(limits, width, made._within) for width in range(SPACE.most_widths)]
    monkeypatch.setattr(Thin, "_between", lambda _self, chain, place, *_: chain[place])
    first = [made._chain(limits, width, made._within) for width in range(SPACE.most_widths)]
    assert grown != first
    for before, after in zip(first, grown, strict=True):
        assert all(made._value(new) >= made._value(old) for old, new in zip(before, after, strict=True))
        for smaller, larger in itertools.pairwise(after):
            assert contains(SPACE.parse(larger), SPACE.parse(smaller))
        for own, limit in zip(TABLE.predict(SPACE, list(map(SPACE.parse, after))), limits, strict=True):
            assert own <= limit["latency_ms"]


def test_a_moment_in_which_nothing_else_keeps_a_limit_leaves_the_chain_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = four_limits(tmp_path / "run")
    asked: list[float] = []

    def best(limits: Any, problem: Any) -> str:
        asked.append(limits["latency_ms"])
        if len(asked) > 4:
            raise InfeasibleError("too slow now")
        return made._within(limits, problem)

    limits = sorted(made.table.limit_sets, key=lambda one: one["latency_ms"])
    found = made._chain(limits, 0, best)
    assert len(asked) > 4
    monkeypatch.setattr(Thin, "_between", lambda _self, chain, place, *_: chain[place])
    assert found == made._chain(limits, 0, made._within)


def test_default_limits_are_parts_of_a_plain_network_s_latency(tmp_path: Path) -> None:
    made = strategy_of(Run.open(Path(planned_run(tmp_path / "run", SPACE))))
    by_hand = SPACE.parse("cn_r1_k3_s2_c24|cn_r1_k3_s1_c24/cn_r1_k3_s2_c96|cn_r1_k3_s1_c96")
    plain = float(TABLE.predict(SPACE, [by_hand])[0])
    assert made.limits_without() == pytest.approx([share * plain / 0.97 for share in (1 / 3, 0.5, 0.7, 1)], abs=1e-4)
    larger = space_of(28)
    run = Run.open(Path(planned_run(tmp_path / "larger", larger)))
    grey = "random:classes=2,size=28,channels=1,count=120"
    assert strategy_of(run, data=grey)._by_hand == larger.plain(width=3), "a convolution a stage"


@pytest.mark.parametrize("size", [8, 16, 28])
def test_some_random_networks_are_quicker_than_a_narrow_plain_one(size: int, tmp_path: Path) -> None:
    """What ``reproduce binas-compare`` takes its limits from, so that random search has something within them."""
    space = space_of(size)
    run = Run.open(Path(planned_run(tmp_path / "run", space)))
    made = strategy_of(run, data=f"random:classes=2,size={size},channels=1,count=120")
    plain = made.plain_of(1)
    assert sum(map(len, plain.stages)) >= 3
    assert {block.configuration.kind for stage in plain.stages for block in stage} == {"cn"}
    rng = np.random.default_rng(0)
    drawn = table_of(space).predict(space, [plain, *(space.sample(rng) for _ in range(3000))])
    assert (drawn[1:] <= drawn[0]).any()


def timed_steps(monkeypatch: pytest.MonkeyPatch, fixed: float, mega: float, half: float) -> None:
    """Steps of a training take ``fixed`` and ``mega`` a million multiply-accumulates, in bfloat16 ``half`` of that."""

    def real(_pace: Pace, network: torch.nn.Module, _batches: Any, recipe: Recipe, _steps: int) -> float:
        by_params = {SPACE.cost(one, SPACE.scale).params: SPACE.cost(one, SPACE.scale).macs for one in PLAINS}
        macs = by_params[sum(parameter.numel() for parameter in network.parameters())]
        return (fixed + mega * macs / 1e6) * (half if recipe.precision == "bfloat16" else 1.0)

    monkeypatch.setattr(Pace, "real_step_ms", real)


PLAINS = [SPACE.plain(depth, width) for depth in (1, 2) for width in range(SPACE.most_widths)]


@pytest.mark.parametrize(("half", "precision"), [(0.5, "bfloat16"), (0.95, "float32")])
def test_a_plan_is_made_of_timed_steps(
    half: float, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_steps(monkeypatch, 3.0, 2.0, half)
    run = Run.open(Path(planned_run(tmp_path / "run", SPACE)))
    run.event("started")
    plan = strategy_of(run, minutes=1.0, limits={"latency_ms": LIMITS}).plan()
    times = half if precision == "bfloat16" else 1.0
    assert plan.precision == precision
    assert (plan.step_fixed_ms, plan.step_mega_ms) == pytest.approx((3 * times, 2 * times))
    assert plan.until == pytest.approx(60 - 6 - 0.03 * 60 - 2 * 2.0)
    assert 0.95 * plan.until < plan.seconds < plan.until
    assert plan.beside_seconds == 6
    assert plan.shifted, "a hundred images in a minute"
    narrow = plan.steps(plan.share * 0.6 * plan.seconds, SPACE.cost(SPACE.plain(width=1), SPACE.scale).macs)
    fewest = min(FEWEST_SHIFTED, round(0.75 * narrow))
    assert plan.fewest_steps == max(FEWEST_STEPS, fewest), "shifted images are learnt more slowly"
    assert plan.steps(plan.seconds, plan.most_macs(plan.seconds)) == pytest.approx(plan.fewest_steps, abs=1)


def test_a_time_in_which_nothing_can_be_trained_is_refused_with_the_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed_steps(monkeypatch, 3.0, 2.0, 1.0)
    run = Run.open(Path(planned_run(tmp_path / "run", SPACE)))
    run.event("started")
    with pytest.raises(InfeasibleError, match=r"Give at least --minutes 0\.\d+") as refused:
        strategy_of(run, minutes=0.05, limits={"latency_ms": LIMITS}).plan()
    least = float(str(refused.value).split("--minutes ")[1].rstrip("."))
    assert strategy_of(run, minutes=1.3 * least, limits={"latency_ms": LIMITS}).plan().seconds > 0


def test_trainings_end_when_the_minutes_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is late takes from the next training's time, and a limit that comes later has a time of its own."""
    run = Run.open(Path(planned_run(tmp_path / "run", SPACE, PLAN.model_copy(update={"until": 100.0}))))
    made = strategy_of(run)
    run.event("started")
    first, second = Proposal(architecture="a"), Proposal(architecture="b")
    assert made._allotted(first, 0.6) == pytest.approx(60.0, abs=0.5)
    assert made._allotted(first, 0.1) == made._allotted(first, 0.9), "what was decided stays"
    monkeypatch.setattr(Run, "seconds_spent", lambda _: 70.0)
    assert made._allotted(second, 0.6) == pytest.approx(18.0)
    monkeypatch.setattr(Run, "seconds_spent", lambda _: 101.0)
    assert made._allotted(Proposal(architecture="c"), 0.6) == pytest.approx(0.1 * LATE)


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
        assert isinstance(strategy, Thin)
        return strategy.augment(strategy.context.task.data)

    photographs = f"npz:{tmp_path / 'photos.npz'}"
    assert augment(data=photographs) == Augmentation(flip=True, zoom=0.6, colour=0.4)
    assert augment(data=photographs, augment="flip") == Augmentation(flip=True), "what a user asked for stays"
    assert augment(data=photographs.replace("photos", "grey")) == Augmentation(crop=1, flip=True)
    assert augment(data="digits") == Augmentation(crop=1)


def test_images_that_are_seen_a_few_times_are_shown_as_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (2600, 8, 8, 3), np.uint8), np.arange(2600) % 2
    np.savez(
        tmp_path / "grey.npz", x_train=images[..., 0], y_train=labels, x_test=images[:20, ..., 0], y_test=labels[:20]
    )
    np.savez(tmp_path / "colour.npz", x_train=images, y_train=labels, x_test=images[:20], y_test=labels[:20])
    for name, shifted, mirrored, expected in (
        ("grey", False, False, Augmentation()),
        ("grey", False, True, Augmentation(flip=True)),
        ("grey", True, True, Augmentation(crop=1, flip=True)),
        ("colour", False, False, Augmentation(flip=True)),
        ("colour", True, True, Augmentation(crop=1, flip=True)),
    ):
        folder = tmp_path / f"{name}-{shifted}-{mirrored}"
        planned_run(folder, SPACE, PLAN.model_copy(update={"shifted": shifted, "mirrored": mirrored}))
        made = strategy_of(Run.open(folder), data=f"npz:{tmp_path / name}.npz")
        assert made.augment(made.context.task.data) == expected


@pytest.mark.parametrize(
    ("seen", "shifted", "mirrored"), [(0.9 * MIRRORED_FROM, False, False), (1.1 * MIRRORED_FROM, False, True),
                                      (0.9 * SHIFTED_FROM, False, True), (1.1 * SHIFTED_FROM, True, True)]
)  # fmt: skip
def test_what_could_be_learnt_by_heart_is_shown_in_other_ways(
    seen: float, shifted: bool, mirrored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``seen``: passes over the images times the parameters for each of them; a step takes 5 ms here."""
    made = strategy_of(Run.open(Path(planned_run(tmp_path / "run", SPACE))), limits={"latency_ms": LIMITS})
    images, batch = len(made.context.task.data.train), made.recipe.batch_size
    monkeypatch.setattr(Thin, "_counted", lambda *_: {"params": 0.5 * images, "macs": 0.0})
    seconds = 0.005 * (seen / 0.5) * images / batch
    found = made._showing(PLAN.model_copy(update={"shifted": False}), seconds, -1)
    assert (found.shifted, found.mirrored) == (shifted, mirrored)
    assert (found.fewest_steps > PLAN.fewest_steps) == shifted


def test_simple_things_are_beside_it_on_the_same_images(finished: Answer) -> None:
    beside = finished.beside
    assert {"chance", "logistic regression"} <= set(beside)
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
    settings: dict[str, Any] = {"data": GREY, "limits": {"latency_ms": LIMITS}, "minutes_of": "processor"}
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
    error = 100 * (0.25 / 24) ** 0.5  # of 24 validation images
    assert all(looser >= tighter - CLEARLY_OF_FEW * error for tighter, looser in itertools.pairwise(accuracies))
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
    strategy, new = strategy_of(Run.open(first.folder)), SPACE.parse(answers_of(first.folder)[-1].architecture)
    assert strategy.table.predicted(8, new)["latency_ms"] == slower.predict(SPACE, [new])[0] <= limit


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


def test_an_altered_plan_does_not_make_a_search_endless(finished: Answer, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished.folder, folder)
    (folder / "stages" / "plan.json").unlink()
    Run.open(folder).finish_stage("plan", PLAN.model_copy(update={"seconds": 1e9}).model_dump())
    with pytest.raises(RunError, match="a plan of at most 120 s"):
        aw.resume(folder, latency_ms=[3 * LIMITS[1]])
    assert PLAN.model_copy(update={"step_fixed_ms": 0.0}).steps(1.0, 0.0) == 10_000


def test_a_plan_of_other_networks_is_refused(plan_run: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="different parts of the space"):
        aw.search("binas", run=tmp_path / "run", data=GREY.replace("classes=2", "classes=3"), plan_from=plan_run)


def test_more_and_larger_images_get_more_minutes() -> None:
    assert default_minutes(1079, 8) == 2
    assert default_minutes(360, 32) == default_minutes(1000, 32) == 4
    assert default_minutes(360, 32) < default_minutes(8000, 32) < default_minutes(8000, 64) <= 60
