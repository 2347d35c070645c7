"""Exact limits inside a user's own network beside what one would do otherwise, in equal time.

The network is a residual one with two stages of one to three blocks, four bodies a block. For each data set the three
limits, the latency table and the epochs are found once, from timed steps, and are the same for all seeds and arms:

- exact: ``binas`` in the network: a supernet in half of the seconds, measured sub-networks and what their options add,
  the exact solution for each limit, each answer trained on for a sixth of the seconds;
- evolution: the same supernet and as many measured sub-networks, found by mutation; its best for each limit are trained
  on as long;
- random: the same with random sub-networks that keep their limit;
- written: no search: the network as written, as wide as its limit allows, each from scratch for a third of the seconds;
- plain: the plain network of three convolutions for all seconds, at the limits that it keeps.

What an arm chooses by is the validation part; rows are on the test part, means over seeds. Every arm of every seed is
kept when it is finished, with each of its networks, and the command goes on from there.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from archwright import nn as choices
from archwright.costs.clock import middle_round, stopwatch
from archwright.data import Steps
from archwright.device import Device
from archwright.errors import InfeasibleError, unknown_name
from archwright.methods.binas import Binas
from archwright.methods.binas.exact import AROUND
from archwright.methods.binas.own import MEASURED, OwnNetworkLimits, one_pass
from archwright.reproduce.arms import Accuracies, arm_rows, run_arms, standing
from archwright.reproduce.base import Outcome, Settings, needs
from archwright.reproduce.searches import finished
from archwright.runs.files import Json
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.beside import PlainNetwork
from archwright.search.budget import Pace, steps_within
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.engine import reopened
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import Method
from archwright.search.trained import short_name
from archwright.spaces.choice_space import Combination
from archwright.tables.locate import shared_data
from archwright.training import Position, Recipe, train

ARMS = ("exact", "evolution", "random", "written", "plain")
DEFAULT_SEEDS = 3
SHARES = (0.2, 0.45, 0.8)
"""The limits, as parts of the way from the quickest network to the slowest."""
SUPERNET, TUNED = 1 / 2, 1 / 6
"""Parts of the seconds that the supernet has, with the measurements in it, and each answer."""
LIMITS = len(SHARES)
TRIED_A_LIMIT = -(-(MEASURED + LIMITS * (AROUND + 1)) // LIMITS)
"""Sub-networks that random search and evolution measure for each limit: as many as the exact search does."""
FIRST, TOURNAMENT = 15, 5
"""Of them, those that are random in evolution too, and how many a parent is the best of."""
TRIES = 10_000
"""Networks that are drawn for one within a limit."""
WIDEST = 96
"""Channels of the network as written, at most."""
TIMED_STEPS = 20


class Residual(nn.Module):
    """x + body(x), whose body is chosen; the first one is as written."""

    def __init__(self, width: int) -> None:
        super().__init__()
        kinds = {"conv3": (3, 1), "conv5": (5, 1), "sep3": (3, width), "sep5": (5, width)}
        self.body = choices.Choice({name: self.layers(width, *kind) for name, kind in kinds.items()})

    @staticmethod
    def layers(width: int, kernel: int, groups: int) -> nn.Module:
        """A convolution; where it is of each channel alone, one of all channels follows.

        Args:
            width: channels before and after.
            kernel: its side in pixels.
            groups: 1, or ``width`` for each channel alone.
        """
        first = nn.Conv2d(width, width, kernel, 1, kernel // 2, groups=groups, bias=False)
        mixed = [] if groups == 1 else [nn.Conv2d(width, width, 1, bias=False)]
        return nn.Sequential(first, *mixed, nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to the same shape."""
        out: Tensor = x + self.body(x)
        return out


class ResidualNet(nn.Module):
    """Two stages of one to three residual blocks; the second has twice the channels at half the size."""

    def __init__(self, classes: int, image_channels: int = 3, image_size: int = 32, channels: int = 16) -> None:
        super().__init__()
        self.stem = self.entry(image_channels, channels, 2 if image_size > 16 else 1)
        self.first = choices.Depth([Residual(channels) for _ in range(3)], least=1)
        self.down = self.entry(channels, 2 * channels, 2)
        self.second = choices.Depth([Residual(2 * channels) for _ in range(3)], least=1)
        self.head = nn.Linear(2 * channels, classes)

    @staticmethod
    def entry(before: int, width: int, stride: int) -> nn.Module:
        """A convolution that is not searched.

        Args:
            before: channels of its input.
            width: channels of its output.
            stride: 1, or 2 to halve the image.
        """
        convolution = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        logits: Tensor = self.head(self.second(self.down(self.first(self.stem(x)))).mean((2, 3)))
        return logits


SPACE = f"model:{__name__}:{ResidualNet.__name__}"


@dataclass(frozen=True)
class Bench:
    """Images to compare on, and the seconds of training that every arm has."""

    name: str
    data: str
    image_size: int
    seconds: float


def benches() -> dict[str, Bench]:
    """By name; CIFAR-10 where its file is here."""
    found = [Bench("digits", "digits", 8, 24.0)]
    path = shared_data("cifar10_10k2k.npz")
    if path is not None:
        found.append(Bench("cifar32", f"npz:{path}", 32, 60.0))
    return {bench.name: bench for bench in found}


@needs(images=False)
def own_network(settings: Settings) -> Outcome:
    """Test accuracy of every arm at every limit."""
    known = benches()
    if settings.only is not None and settings.only not in known:
        raise unknown_name("data", settings.only, known)
    seeds = settings.seeds or DEFAULT_SEEDS
    rows, notes = [], []
    for bench in known.values() if settings.only is None else [known[settings.only]]:
        folder = settings.folder / bench.name
        plan = Plan.read(prepared(folder / "plan", bench))
        accuracies = run_arms(settings, folder, ARMS, seeds, {**asdict(bench), **asdict(plan)}, run_arm)
        rows += arm_rows(bench.name, accuracies)
        notes += bench_notes(bench, plan, accuracies)
    return Outcome(f"{seeds} seeds, one thread", rows, notes)


def bench_notes(bench: Bench, plan: Plan, accuracies: Accuracies) -> list[str]:
    """What all arms had, and how the exact search stands beside each.

    Args:
        bench: the images.
        plan: limits and seconds.
        accuracies: by arm, (seeds, limits), in percent.
    """
    limits = ", ".join(f"{limit:.3g} ms" for limit in plan.limits)
    widths = ", ".join(map(str, plan.widths))
    said = f"{bench.name}: {plan.spent:.0f} s of training and measuring an arm and seed; limits {limits}"
    return [f"{said}; as written {widths} channels wide", *standing(bench.name, "exact", plan.limits, accuracies)]


# --- what all arms share ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is measured once for a data set.

    Attributes:
        limits: in milliseconds, tightest first.
        epochs: of the supernet, and ``final_epochs`` of each answer.
        spent: seconds of the exact search by timed steps: of every other arm, too.
        widths: channels of the network as written that keep each limit.
        written_step_ms: of a training step of each of these.
        plain_ms: latency of the plain network, and ``plain_step_ms`` of its training step.
    """

    limits: list[float]
    epochs: int
    final_epochs: int
    spent: float
    widths: list[int]
    written_step_ms: list[float]
    plain_ms: float
    plain_step_ms: float

    @classmethod
    def read(cls, folder: Path) -> Plan:
        """Of the run in ``folder``."""
        return cls(**Run.open(folder).items("plan").done["plan"])


def configured(bench: Bench, **more: Any) -> dict[str, Any]:
    """Settings of a search on ``bench`` beside ``more``."""
    return {"space": SPACE, "data": bench.data, "image_size": bench.image_size, "threads": 1, **more}


def strategy_of(method: Method) -> OwnNetworkLimits:
    """The strategy of a search in an own network."""
    assert isinstance(method, Binas)
    assert isinstance(method.strategy, OwnNetworkLimits)
    return method.strategy


def prepared(folder: Path, bench: Bench) -> Path:
    """The ``folder`` of a run with the table and the :class:`Plan` of ``bench``; measured once."""
    configuration = Configuration(method="binas", **configured(bench), options={"verify": False})
    device = Device.choose("cpu", 1)
    exists = (folder / "run.json").exists()
    run = Run.open(folder) if exists else Run.create(folder, configuration.model_dump(), device.describe())
    strategy = strategy_of(Binas(Context(configuration, run, device)))
    run.event("started", threads=1)
    if run.stage_result("table") is None:
        run.finish_stage("table", strategy.table.make(strategy.limits_without).model_dump(mode="json"))
    log = run.items("plan")
    if "plan" not in log.done:
        log.record("plan", asdict(planned(strategy, bench)))
    return folder


def planned(strategy: OwnNetworkLimits, bench: Bench) -> Plan:
    """Limits, epochs and widths by what is timed here.

    Args:
        strategy: of a run with a table.
        bench: the images and seconds.
    """
    least, most = strategy.table.problem(bench.image_size).cost_range("latency_ms")
    limits = [round(least + share * (most - least), 5) for share in SHARES]
    pace, timed = Paces(strategy), Widths(strategy)
    widths = [timed.widest(limit) for limit in limits]
    steps = max(1, len(strategy.context.task.data.train) // strategy.recipe.batch_size)
    each, tuned = pace.supernet_ms() * steps / 1000, pace.answer_ms() * steps / 1000
    measured = LIMITS * TRIED_A_LIMIT * pace.measured_ms() / 1000
    epochs = max(1, round((SUPERNET * bench.seconds - measured) / each))
    final_epochs = max(1, round(TUNED * bench.seconds / tuned))
    plain = PlainNetwork(strategy.context.task.data)
    return Plan(
        limits=limits,
        epochs=epochs,
        final_epochs=final_epochs,
        spent=epochs * each + measured + LIMITS * final_epochs * tuned,
        widths=widths,
        written_step_ms=[pace.step_ms(written(strategy, width)) for width in widths],
        plain_ms=timed.latency_ms(plain),
        plain_step_ms=pace.step_ms(plain),
    )


def written(strategy: OwnNetworkLimits, width: int) -> nn.Module:
    """The network as written, so many channels wide, with initial weights of the search's seed.

    Args:
        strategy: whose space and scale it is of.
        width: its channels.
    """
    space, scale = strategy.space, strategy.stages.scale
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(strategy.context.configuration.seed)
        return space.build(space.as_written(), scale.changed(channels=width))


@dataclass
class Widths:
    """Latencies of networks that are not in the table, on its scale: beside the network as written, which is."""

    strategy: OwnNetworkLimits

    @cached_property
    def _reference(self) -> tuple[Any, float]:
        strategy = self.strategy
        predicted = strategy.table.predicted(strategy.stages.scale.image_size, strategy.space.as_written())
        network = written(strategy, strategy.stages.scale.channels)
        return self._watch(network), predicted["latency_ms"]

    def _watch(self, network: nn.Module) -> Any:
        return stopwatch(network, self.strategy.stages.scale, self.strategy.table.timing)

    def latency_ms(self, network: nn.Module) -> float:
        """Of ``network``: a slow moment of the machine is one of the reference, too."""
        reference, predicted = self._reference
        watch = self._watch(network)
        ratios = [middle_round(watch).median_ms / middle_round(reference).median_ms for _ in range(3)]
        return predicted * sorted(ratios)[1]

    def widest(self, limit: float) -> int:
        """Most channels of the network as written within ``limit`` milliseconds, by bisection."""
        low, high = 1, WIDEST
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.latency_ms(written(self.strategy, middle)) <= limit
            low, high = (middle, high) if fits else (low, middle - 1)
        return low


@dataclass
class Paces:
    """Processor milliseconds of what arms do."""

    strategy: OwnNetworkLimits

    @cached_property
    def _pace(self) -> Pace:
        return Pace(self.strategy.context.device, self.strategy.recipe.batch_size)

    def step_ms(self, network: nn.Module) -> float:
        """Of a step of its training."""
        strategy = self.strategy
        batches = strategy.trainer.batches("timed", strategy.stages.scale.image_size)
        return self._pace.real_step_ms(network, batches, one_pass(strategy.recipe), TIMED_STEPS)

    def answer_ms(self) -> float:
        """Of a training step of what is chosen: the mean of some random networks."""
        strategy, rng = self.strategy, np.random.default_rng(0)
        space, scale = strategy.space, strategy.stages.scale
        return float(np.mean([self.step_ms(space.build(space.sample(rng), scale)) for _ in range(6)]))

    def supernet_ms(self) -> float:
        """Of a step of the supernet: the mean over random paths."""
        training = self.strategy.training(self.strategy.fresh())
        ends = []
        for index in range(3 * TIMED_STEPS):
            training.step(Position.at(index % len(training.batches), 1, len(training.batches)))
            ends.append(self._pace.clock())
        return 1000 * float(np.mean(np.diff(ends[3:])))

    def measured_ms(self) -> float:
        """Of measuring one sub-network."""
        rng, supernet = np.random.default_rng(0), self.strategy.fresh()
        times = []
        for _ in range(6):
            begin = time.process_time()
            self.strategy.outcome(self.strategy.space.sample(rng), supernet)
            times.append(time.process_time() - begin)
        return 1000 * float(np.mean(times))


# --- arms -------------------------------------------------------------------------------------------------------------


def run_arm(payload: Json, stop: Stop) -> Json:
    """Work item: the test accuracy in percent of one arm at every limit, and what it trained.

    Args:
        payload: ``folder``, ``seed``, ``arm``, a :class:`Bench` and a :class:`Plan`.
        stop: asked at every step of the other arms' trainings.
    """
    bench = Bench(*(payload[name] for name in Bench.__dataclass_fields__))
    plan = Plan(**{name: payload[name] for name in Plan.__dataclass_fields__})
    folder, seed, arm = Path(payload["folder"]), int(payload["seed"]), str(payload["arm"])
    if arm == "exact":
        models = finished(folder / f"exact-{seed}", "binas", **_settings(folder, seed, bench, plan)).models
        return {"accuracies": [one.accuracy for one in models], "networks": [one.architecture for one in models]}
    log = ItemLog(folder / "networks" / f"{seed}.jsonl")
    return Others(strategy_of(_opened(folder / f"exact-{seed}", stop)), plan, log, stop).run(arm)


def _settings(folder: Path, seed: int, bench: Bench, plan: Plan) -> dict[str, Any]:
    options = {"verify": False, "latency_table": str(folder / "plan" / "artifacts" / "latency.json")}
    training = {"epochs": plan.epochs, "final_epochs": plan.final_epochs, "beside": False}
    return configured(bench, seed=seed, limits={"latency_ms": plan.limits}, options=options, **training)


def _opened(folder: Path, stop: Stop) -> Method:
    return reopened(Run.open(folder), stop, Progress())


@dataclass
class Others:
    """The other arms of one seed, on the supernet, the table and the images of its exact search.

    Attributes:
        strategy: of the exact search.
        plan: of all arms.
        log: measured sub-networks and trained networks, of all arms: the same one is not measured or trained again,
            though it counts.
        stop: asked at every step.
    """

    strategy: OwnNetworkLimits
    plan: Plan
    log: ItemLog
    stop: Stop

    def run(self, arm: str) -> Json:
        """The arm's test accuracy at every limit, and its networks."""
        if arm == "plain":
            tested = self.trained("plain", lambda: PlainNetwork(self._data), self.plan.spent, self.plan.plain_step_ms)
            kept = [tested if self.plan.plain_ms <= limit else None for limit in self.plan.limits]
            return {"accuracies": kept, "networks": ["plain"]}
        if arm == "written":
            return self.written()
        found = self.random() if arm == "random" else self.evolution()
        return {"accuracies": [self.tuned(one) for one in found], "networks": list(map(str, found))}

    @property
    def _data(self) -> Any:
        return self.strategy.context.task.data

    # --- the network as written ---

    def written(self) -> Json:
        """At each limit as wide as it allows, each for an equal part of the seconds."""
        accuracies, each = [], self.plan.spent / len(self.plan.limits)
        for width, step_ms in zip(self.plan.widths, self.plan.written_step_ms, strict=True):
            name = f"written {width}"
            accuracies.append(self.trained(name, lambda width=width: written(self.strategy, width), each, step_ms))
        return {"accuracies": accuracies, "networks": [f"{width} channels" for width in self.plan.widths]}

    # --- on the same supernet ---

    def random(self) -> list[Combination]:
        """For each limit the best measured of random ones within it, and of those within tighter limits."""
        found: list[Combination] = []
        for number in range(len(self.plan.limits)):
            found += [self.drawn(number, index) for index in range(TRIED_A_LIMIT)]
            self._measure(found)
        return [self.best(found, limit) for limit in self.plan.limits]

    def evolution(self) -> list[Combination]:
        """The same with mutations of the best of some, after a few random ones."""
        found: list[Combination] = []
        for number, limit in enumerate(self.plan.limits):
            own = [self.drawn(number, index) for index in range(FIRST)]
            for index in range(FIRST, TRIED_A_LIMIT):
                rng = self.strategy.context.rng("evolution", number, index)
                some = [own[int(i)] for i in rng.choice(len(own), min(TOURNAMENT, len(own)), replace=False)]
                parent = max(some, key=self.measured)
                mutants = (self.strategy.space.mutate(parent, rng) for _ in range(TRIES))
                own.append(next((one for one in mutants if self.latency_ms(one) <= limit), parent))
            found += own
            self._measure(found)
        return [self.best(found, limit) for limit in self.plan.limits]

    def best(self, found: list[Combination], limit: float) -> Combination:
        """The best measured of ``found`` within ``limit`` milliseconds."""
        return max((one for one in found if self.latency_ms(one) <= limit), key=self.measured)

    def drawn(self, number: int, index: int) -> Combination:
        """A random network within a limit.

        Args:
            number: of the limit.
            index: another network for each.
        """
        rng, limit = self.strategy.context.rng("drawn", number, index), self.plan.limits[number]
        found = (self.strategy.space.sample(rng) for _ in range(TRIES))
        one = next((one for one in found if self.latency_ms(one) <= limit), None)
        if one is None:
            raise InfeasibleError(f"no random network within {limit} ms was found in {TRIES} draws.")
        return one

    def latency_ms(self, architecture: Combination) -> float:
        """Of ``architecture`` by the table of the exact search."""
        size = self.strategy.stages.scale.image_size
        return self.strategy.table.predicted(size, architecture)["latency_ms"]

    def _measure(self, found: list[Combination]) -> None:
        for one in found:
            self.measured(one)

    def measured(self, architecture: Combination) -> tuple[float, float]:
        """Accuracy with shared weights on validation images, and less their cross entropy: the greater is better."""
        key = f"measured {architecture}"
        if key not in self.log.done:
            self.stop.check()
            outcome = self.strategy.outcome(architecture)
            self.log.record(key, [outcome.accuracy, -outcome.loss])
        accuracy, loss = self.log.done[key]
        return float(accuracy), float(loss)

    # --- trainings ---

    def tuned(self, architecture: Combination) -> float:
        """Test accuracy of a network cut out of the supernet and trained on as the answers of the exact search are."""
        strategy, key = self.strategy, short_name(str(architecture), "tuned")  # its name in the exact search, too
        if key not in self.log.done:
            batches = strategy.trainer.batches(key, strategy.stages.scale.image_size)
            network = strategy.cut_out(architecture, batches)
            self._train(key, network, strategy.tuning.epochs * len(batches), one_pass(strategy.tuning))
        return float(self.log.done[key])

    def trained(self, key: str, make: Any, seconds: float, step_ms: float) -> float:
        """Test accuracy of a network from scratch.

        Args:
            key: of the log.
            make: the network.
            seconds: that it has.
            step_ms: of one of its steps.
        """
        if key not in self.log.done:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.strategy.context.configuration.seed)
                network = make()
            self._train(key, network, steps_within(seconds, step_ms), one_pass(self.strategy.recipe))
        return float(self.log.done[key])

    def _train(self, key: str, network: nn.Module, steps: int, recipe: Recipe) -> None:
        context, size = self.strategy.context, self.strategy.stages.scale.image_size
        batches = Steps(self.strategy.trainer.batches(key, size), steps)
        train(network, batches, recipe, seed=context.configuration.seed, stop=self.stop)
        self.log.record(key, accuracy_of(network, self._data, "test", context.device.name).percent)
