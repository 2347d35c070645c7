"""BINAS beside what one would do otherwise: the same images, limits and seconds of training, at two or three limits.

All arms share one latency table, one recipe and one number of seconds for each data set. Seconds are turned into steps
by timed ones, so that other work on the machine costs no arm anything: a step takes a fixed time and one for each
million multiply-accumulates. What an arm chooses by is the validation part; rows are on the test part, means over
seeds.

- BINAS: the fast strategy, all limits together;
- uniform: plain networks of one depth and one width number in all stages, all of the grid that keep the loosest limit;
- random: three random networks for each limit;
- evolution: as many, from the second on each a mutation of the best so far within its limit;
- control: the network that BINAS takes for the tightest limit, trained for all of the time, answering every limit;
- plain: the plain network of three convolutions, trained for all of the time, at the limits that it keeps;
- plain4: the same with four convolutions (16, 32, 64, 64 channels, the first and the third with stride 2).

``fashion2`` and ``fashion20`` are a third and more than three times of the time on Fashion-MNIST, for fewer arms.

Every arm of every seed is kept when it is finished, with each of its networks, and the command goes on from there. Arms
that the first seed leaves far behind get no further seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.costs.clock import MARGIN, quickest_round, stopwatch
from archwright.data import ImageData, Steps
from archwright.data.sources import DEBIAN_FASHION
from archwright.device import Device
from archwright.errors import InfeasibleError, unknown_name
from archwright.methods.binas import Binas
from archwright.methods.binas.thin import FEWEST_STEPS, Spending, Thin
from archwright.proxies.modules import count_macs
from archwright.reproduce.arms import Accuracies, arm_rows, run_arms, standing
from archwright.reproduce.base import Outcome, Settings, needs
from archwright.reproduce.searches import finished
from archwright.runs.files import Json
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer
from archwright.search.beside import PlainNetwork
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.engine import reopened, resume
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import Method
from archwright.spaces.compact import CompactArchitecture
from archwright.tables.locate import shared_data
from archwright.training import train

ARMS = ("BINAS", "plain4", "control", "plain", "uniform", "random", "evolution")
TIMES_PLAIN = (1.0, 1.8, 3.5)
"""The limits, as multiples of the latency of a narrow plain network of three convolutions, where a bench names none."""
ROOM = 1.1
"""Where a machine is too slow for the tightest limit, it is raised to so many times the quickest network's latency."""
DEFAULT_SEEDS = 3
FAR_BEHIND = 5.0
"""Points that an arm is behind BINAS at every limit with the first seed, so that it gets no further seeds."""
TRIED_A_LIMIT = 3
"""Networks that random search and evolution train for each limit, in equal parts of the time."""
TRIES = 10_000
"""Random networks that are drawn for one within a limit."""
FOUR = ((16, 2), (32, 1), (64, 2), (64, 1))
"""Channels and strides of the four convolutions."""


@dataclass(frozen=True)
class Bench:
    """Images to compare on, and what all arms have.

    Attributes:
        name: of the comparison.
        data: images.
        image_size: of them, in pixels a side.
        seconds: of training that every arm has.
        limits: in milliseconds, if not chosen.
        arms: that are compared.
        usual: whether it is among those that are run without ``--only``.
    """

    name: str
    data: str
    image_size: int
    seconds: float
    limits: tuple[float, ...] = ()
    arms: tuple[str, ...] = ARMS
    usual: bool = True


def benches() -> dict[str, Bench]:
    """By name; Fashion-MNIST and CIFAR-10 where their files are here."""
    found = [Bench("digits", "digits", 8, 60.0)]
    if DEBIAN_FASHION.is_dir():
        found.append(Bench("fashion", "fashion-mnist", 28, 290.0, (0.2, 0.35)))
        found += [
            Bench(f"fashion{n}", "fashion-mnist", 28, 290.0 * n / 6, (0.2, 0.35), ("BINAS", "control", "plain4"), False)
            for n in (2, 20)
        ]
    path = shared_data("cifar10_10k2k.npz")
    if path is not None:
        found += [Bench("cifar16", f"npz:{path}", 16, 100.0), Bench("cifar32", f"npz:{path}", 32, 600.0)]
    return {bench.name: bench for bench in found}


class FourConvolutions(nn.Module):
    """What a person with some experience would try: four 3x3 convolutions with batch norm, a mean, a linear layer."""

    def __init__(self, data: ImageData) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = data.image_channels
        for width, stride in FOUR:
            layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        self.features, self.classifier = nn.Sequential(*layers), nn.Linear(channels, data.classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to logits (B, classes)."""
        maps = self.features(x)
        logits: Tensor = self.classifier(F.avg_pool2d(maps, maps.shape[-1]).flatten(1))
        return logits


PLAINS: dict[str, Callable[[ImageData], nn.Module]] = {"plain": PlainNetwork, "plain4": FourConvolutions}


@needs(images=False)
def binas_compare(settings: Settings) -> Outcome:
    """Test accuracy of every arm at every limit."""
    known = benches()
    if settings.only is not None and settings.only not in known:
        raise unknown_name("data", settings.only, known)
    seeds = settings.seeds or DEFAULT_SEEDS
    rows, notes = [], []
    usual = [bench for bench in known.values() if bench.usual]
    for bench in usual if settings.only is None else [known[settings.only]]:
        folder = settings.folder / bench.name
        plan_run = prepared(folder / "plan", bench)
        known_ms = Run.open(plan_run).items("milliseconds").done
        limits = known_ms["limits"]
        shared = {**asdict(bench), "limits": limits, "plain_ms": known_ms}
        accuracies = run_arms(settings, folder, bench.arms, seeds, shared, run_arm, behind=FAR_BEHIND)
        rows += arm_rows(bench.name, accuracies)
        notes += bench_notes(bench, limits, accuracies)
    return Outcome(f"{seeds} seeds, one thread", rows, notes)


def bench_notes(bench: Bench, limits: list[float], accuracies: Accuracies) -> list[str]:
    """The limits in milliseconds, and how BINAS stands beside each arm: the mean difference and its standard error.

    Args:
        bench: images and seconds of training.
        limits: in milliseconds.
        accuracies: by arm, (seeds, limits), in percent; NaN where nothing of the arm keeps the limit.
    """
    shown = ", ".join(f"{limit:.3g} ms" for limit in limits)
    asked = ", ".join(f"{limit:g}" for limit in bench.limits)
    raised = f", raised from {asked} ms, for which this machine is too slow" * (
        max(limits) > max(bench.limits, default=max(limits))
    )
    said = f"{bench.name}: {bench.seconds:g} s of training an arm and seed; limits {shown}{raised}"
    return [said, *standing(bench.name, "BINAS", limits, accuracies)]


# --- what all arms share ----------------------------------------------------------------------------------------------


def prepared(folder: Path, bench: Bench) -> Path:
    """The ``folder`` of a run with the tables of ``bench``, of PyTorch as it is, and the shares of its seconds."""
    values = {"method": "binas", "space": "compact", "data": bench.data, "image_size": bench.image_size, "threads": 1}
    configuration = Configuration(**values, minutes=bench.seconds / 50, options={"verify": False, "backend": "eager"})
    exists = (folder / "run.json").exists()
    device = Device.choose("cpu", 1)
    run = Run.open(folder) if exists else Run.create(folder, configuration.model_dump(), device.describe())
    method = Binas(Context(configuration, run, device))
    strategy = thinning(method)
    run.event("started", threads=1)
    if run.stage_result("table") is None:
        run.finish_stage("table", strategy.table.make(strategy.limits_without).model_dump(mode="json"))
    if run.stage_result("plan") is None:
        limits = len(bench.limits or TIMES_PLAIN)
        plan = equal_time(strategy.plan(), bench.seconds, limits)
        run.finish_stage("plan", plan.model_dump(mode="json"))
    data, log = method.context.task.data, run.items("milliseconds")
    if "limits" not in log.done:
        log.record("limits", within_reach(bench.limits, strategy) or limits_of(strategy))
    for name, make in PLAINS.items():
        if name not in log.done:
            watch = stopwatch(make(data), strategy.space.scale, strategy.table.timing)
            log.record(name, quickest_round(watch).median_ms)  # as in tables
    return folder


def thinning(method: Method) -> Thin:
    """The strategy of a search by the fast plan."""
    assert isinstance(method, Binas)
    assert isinstance(method.strategy, Thin)
    return method.strategy


def equal_time(plan: Spending, seconds: float, limits: int) -> Spending:
    """The plan of a search with so many seconds of training, all for its answers; simple things are arms of their own.

    Args:
        plan: as it was measured.
        seconds: of training, all in all.
        limits: answers that they are for.
    """
    return plan.model_copy(update={"seconds": seconds, "limits": limits, "beside_seconds": 0.0, "share": 1.0})


def within_reach(limits: Sequence[float], strategy: Thin) -> list[float]:
    """``limits`` in milliseconds; raised together by one factor where this machine is too slow for the tightest.

    Args:
        limits: as a bench names them; none where it names none.
        strategy: with the table of this machine.
    """
    lightest = float(strategy.table.latency.predict(strategy.space, [strategy.space.lightest()])[0])
    factor = max(1.0, ROOM * lightest / (MARGIN * min(limits, default=1.0)))
    return [round(factor * limit, 4) for limit in limits]


def limits_of(strategy: Thin) -> list[float]:
    """In milliseconds, from the latency of a narrow plain network."""
    plain = float(strategy.table.latency.predict(strategy.space, [strategy.plain_of(width=1)])[0])
    return [round(times * plain / MARGIN, 4) for times in TIMES_PLAIN]


# --- arms -------------------------------------------------------------------------------------------------------------


def run_arm(payload: Json, stop: Stop) -> Json:
    """Work item: the test accuracy in percent of one arm at every limit, and what it trained.

    Args:
        payload: ``folder``, ``seed``, ``arm``, a :class:`Bench`, ``limits`` and ``plain_ms`` in milliseconds.
        stop: asked at every step of the other arms' trainings.
    """
    folder, seed, arm = Path(payload["folder"]), payload["seed"], payload["arm"]
    search_folder = folder / f"binas-{seed}"
    if arm == "BINAS":
        models = _search(search_folder, payload).models
        return {
            "accuracies": [one.accuracy for one in models],
            "networks": [one.architecture for one in models],
        }
    logs = folder / "networks"
    log = ItemLog(logs / f"{arm}-{seed}.jsonl")
    others = Others(search_folder, payload["limits"], log, payload["seconds"], stop)
    if arm in PLAINS:
        accuracy = others.plain(arm)
        kept = [accuracy if payload["plain_ms"][arm] <= limit else None for limit in payload["limits"]]
        return {"accuracies": kept, "networks": [arm]}
    if arm == "evolution":
        others.earlier = ItemLog(logs / f"random-{seed}.jsonl").done
    return others.run(arm)


def _search(folder: Path, payload: Json) -> Answer:
    return finished(
        folder,
        "binas",
        data=payload["data"],
        image_size=payload["image_size"],
        seed=payload["seed"],
        threads=1,
        limits={"latency_ms": payload["limits"]},
        options={
            "plan_from": str(Path(payload["folder"]) / "plan"),
            "minutes_of": "processor",
            "verify": False,
        },
        beside=False,
    )


@dataclass(frozen=True)
class Tried:
    """A network that an arm trained: what it chooses by, and what it is judged by."""

    architecture: str
    latency_ms: float
    loss: float
    validation: float
    test: float


@dataclass
class Others:
    """The other arms of one seed, on the tables and the data of its search.

    Attributes:
        folder: of the search.
        limits: in milliseconds.
        log: networks that are finished.
        seconds: of training, for the arm.
        stop: asked at every step.
        earlier: what another arm trained: the same network, time and seed give the same result and are not trained
            again, though they count (evolution begins with the random arm's first networks).
    """

    folder: Path
    limits: list[float]
    log: ItemLog
    seconds: float
    stop: Stop
    earlier: Mapping[str, Json] = field(default_factory=dict)

    @cached_property
    def thin(self) -> Thin:
        """The search: its plan, its problem, and what it trained."""
        return thinning(reopened(Run.open(self.folder), self.stop, Progress()))

    @property
    def context(self) -> Context:
        """The context of the search whose tables they share."""
        return self.thin.context

    @property
    def count(self) -> int:
        """Networks of random search and evolution."""
        return TRIED_A_LIMIT * len(self.limits)

    def run(self, arm: str) -> Json:
        """The arm's test accuracy at every limit: of the best on validation within it."""
        tried = {"uniform": self.uniform, "random": self.random, "evolution": self.evolution, "control": self.control}
        found = tried[arm]()
        chosen = [max((one for one in found if one.latency_ms <= limit), key=_better) for limit in self.limits]
        return {"accuracies": [one.test for one in chosen], "networks": [one.architecture for one in chosen]}

    def uniform(self) -> list[Tried]:
        """The grid of plain networks that keep the loosest limit; all have the same time."""
        space = self.thin.space
        grid = [space.plain(depth, width) for depth, width in product(space.depths, range(space.most_widths))]
        fitting = [one for one in grid if self.costs(one)["latency_ms"] <= self.limits[-1]]
        return [self.tried(one, self.seconds / len(fitting)) for one in fitting]

    def random(self) -> list[Tried]:
        """Random networks within each limit in turn."""
        drawn = [self.drawn(self.limits[number % len(self.limits)], number) for number in range(self.count)]
        return [self.tried(one, self.seconds / self.count) for one in drawn]

    def evolution(self) -> list[Tried]:
        """As many: the first for each limit is random, the next ones are mutations of the best within it."""
        space, found = self.thin.space, list[Tried]()
        for number in range(self.count):
            limit = self.limits[number % len(self.limits)]
            within = [one for one in found if one.latency_ms <= limit]
            child = self.drawn(limit, number)
            if number >= len(self.limits) and within:
                rng = self.context.rng("evolution", number)
                parent = space.parse(max(within, key=_better).architecture)
                mutants = (space.mutate(parent, rng) for _ in range(TRIES))
                child = next((one for one in mutants if self.fits(one, limit)), child)
            found.append(self.tried(child, self.seconds / self.count))
        return found

    def control(self) -> list[Tried]:
        """The answer of the tightest limit, from scratch for all of the time."""
        tightest = resume(self.folder).models[0]
        return [self.tried(self.thin.space.parse(tightest.architecture), self.seconds)]

    def plain(self, name: str) -> float:
        """Test accuracy of a plain network."""
        if name not in self.log.done:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.context.configuration.seed)
                network = PLAINS[name](self.context.task.data)
            data, device, size = self.context.task.data, self.context.device.name, self.context.task.data.image_size
            macs = count_macs(network, torch.zeros(2, data.image_channels, size, size))
            self._train(name, network, self.seconds, macs)
            self.log.record(name, accuracy_of(network, data, "test", device).percent)
        return float(self.log.done[name])

    def _train(self, key: str, network: nn.Module, seconds: float, macs: float) -> None:
        """Train a network of so many multiply-accumulates for as many seconds, by the recipe of the search."""
        thin, size = self.thin, self.thin.space.scale.image_size
        train(
            network,
            Steps(thin.trainer.batches(key, size), thin.spending.steps(seconds, macs)),
            thin.recipe.changed(precision=thin.spending.precision),
            seed=self.context.configuration.seed,
            stop=self.stop,
        )

    # --- networks ---

    def costs(self, architecture: CompactArchitecture) -> dict[str, float]:
        """What a network is predicted to take, by resource."""
        found = self.thin.valued.evaluate(self.thin.space.to_choice(architecture))[1]
        return {name: float(cost) for name, cost in found.items()}

    def fits(self, architecture: CompactArchitecture, limit: float) -> bool:
        """Whether ``architecture`` is predicted to keep ``limit`` milliseconds and can be trained in the time."""
        costs, spending = self.costs(architecture), self.thin.spending
        own = spending.model_copy(update={"fewest_steps": min(FEWEST_STEPS, spending.fewest_steps)})  # of a short time
        return costs["latency_ms"] <= limit and costs["macs"] <= own.most_macs(self.seconds / self.count)

    def drawn(self, limit: float, number: int) -> CompactArchitecture:
        """A random network that fits ``limit`` milliseconds, another one for each ``number``."""
        rng, space = self.context.rng("drawn", number), self.thin.space
        found = next((one for one in (space.sample(rng) for _ in range(TRIES)) if self.fits(one, limit)), None)
        if found is None:
            raise InfeasibleError(f"no random network within {limit} ms was found in {TRIES} draws.")
        return found

    def tried(self, architecture: CompactArchitecture, seconds: float) -> Tried:
        """The network of ``architecture`` after ``seconds`` of training, in steps by the table; kept."""
        key, costs = f"{architecture} {seconds:.3f}", self.costs(architecture)
        if key not in self.log.done and key in self.earlier:
            self.log.record(key, self.earlier[key])
        if key not in self.log.done:
            thin, size = self.thin, self.thin.space.scale.image_size
            network = thin.new_network(str(architecture))
            self._train(key, network, seconds, costs["macs"])
            losses, right = thin.trainer.outcomes(network, size)
            test = accuracy_of(network, self.context.task.data, "test", self.context.device.name)
            one = Tried(
                str(architecture), costs["latency_ms"], float(losses.mean()), 100 * float(right.mean()), test.percent
            )
            self.log.record(key, asdict(one))
        return Tried(**self.log.done[key])


def _better(one: Tried) -> tuple[float, float]:
    """What an arm chooses by."""
    return one.validation, -one.loss
