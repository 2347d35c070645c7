"""BINAS beside what one would do otherwise: the same images, limits and seconds of training, at three latency limits.

All arms share one latency table, one table of training steps and one number of seconds for each data set; seconds are
turned into steps by the table, so that a busy machine costs no arm anything. What an arm chooses by is the validation
part; rows are on the test part, means over seeds.

- BINAS: the fast strategy, all limits together;
- uniform: plain networks of one depth and one width number in all stages, all of the grid that keep the loosest limit;
- random: as many random networks as BINAS trained, evenly over the limits;
- evolution: as many, each a mutation of the best so far within its limit;
- control: the network that BINAS takes for the tightest limit, trained for all of the time, answering every limit;
- plain: the plain network of three convolutions, trained for all of the time, at the limits that it keeps.

Every arm of every seed is kept when it is finished, with each of its networks, and the command goes on from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np

from archwright.costs.clock import middle_round
from archwright.costs.device_table import TableResult
from archwright.costs.measure import Stopwatch
from archwright.data import Steps
from archwright.device import Device
from archwright.errors import InfeasibleError, unknown_name
from archwright.methods.binas import Binas
from archwright.methods.binas.grow import STEP, Grow, Shares
from archwright.reproduce.arms import Accuracies, limit_rows, mean_gain, row_of, run_arms
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.runs.files import Json
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.answer import Answer
from archwright.search.beside import PlainNetwork, PlainTraining, train_plain
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.engine import reopened, resume
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import Method
from archwright.search.trained import networks_of
from archwright.spaces.compact import CompactArchitecture
from archwright.tables.locate import shared_data
from archwright.training import train

ARMS = ("BINAS", "uniform", "random", "evolution", "control", "plain")
TIMES_PLAIN = (1.0, 1.8, 3.5)
"""The limits, as multiples of the latency of the space's plain network."""
DEFAULT_SEEDS = 3
TRIES = 10_000
"""Random networks that are drawn for one within a limit."""


@dataclass(frozen=True)
class Bench:
    """Images to compare on, and the seconds of training that every arm has."""

    name: str
    data: str
    image_size: int
    seconds: float


def benches() -> dict[str, Bench]:
    """By name; those on CIFAR-10 where its file is here."""
    found = [Bench("digits", "digits", 8, 60.0)]
    path = shared_data("cifar10_10k2k.npz")
    if path is not None:
        found += [Bench("cifar16", f"npz:{path}", 16, 100.0), Bench("cifar32", f"npz:{path}", 32, 600.0)]
    return {bench.name: bench for bench in found}


@needs(images=False)
def binas_compare(settings: Settings) -> Outcome:
    """Test accuracy of every arm at every limit."""
    known = benches()
    if settings.only is not None and settings.only not in known:
        raise unknown_name("data", settings.only, known)
    seeds = settings.seeds or DEFAULT_SEEDS
    rows, notes = [], []
    for bench in known.values() if settings.only is None else [known[settings.only]]:
        folder = settings.folder / bench.name
        plan_run = prepared(folder / "plan", bench)
        limits, plain_ms = limits_of(plan_run), Run.open(plan_run).items("plain").done["latency_ms"]
        shared = {"limits": limits, "plain_ms": plain_ms, **asdict(bench)}
        accuracies = run_arms(settings, folder, ARMS, seeds, shared, run_arm)
        rows += bench_rows(bench.name, accuracies)
        notes += bench_notes(bench, limits, accuracies)
    return Outcome(f"{seeds} seeds, one thread", rows, notes)


def bench_rows(name: str, accuracies: Accuracies) -> list[Row]:
    """A row an arm and limit, and one of the mean over the limits.

    Args:
        name: of the data set.
        accuracies: by arm, (seeds, limits), in percent.
    """
    rows = []
    for arm, values in accuracies.items():
        rows += [*limit_rows(name, arm, values), row_of(f"{arm} {name} mean", values.mean(1))]
    return rows


def bench_notes(bench: Bench, limits: list[float], accuracies: Accuracies) -> list[str]:
    """The limits in milliseconds, and how BINAS stands beside each arm: the mean difference and its standard error.

    Args:
        bench: images and seconds of training.
        limits: in milliseconds.
        accuracies: by arm, (seeds, limits), in percent; NaN where nothing of the arm keeps the limit.
    """
    shown = ", ".join(f"{limit:.3g} ms" for limit in limits)
    notes = [f"{bench.name}: {bench.seconds:g} s of training an arm and seed; limits {shown}"]
    for arm, values in accuracies.items():
        kept = ~np.isnan(values).any(0)
        if arm == "BINAS" or not kept.any():
            continue
        gain = mean_gain((accuracies["BINAS"] - values)[:, kept].mean(1))
        where = "the limits" if kept.all() else "those of the limits that it keeps"
        notes.append(f"{bench.name}: BINAS is {gain} points beside {arm}, mean over {where}")
    return notes


# --- what all arms share ----------------------------------------------------------------------------------------------


def prepared(folder: Path, bench: Bench) -> Path:
    """The ``folder`` of a run with the tables of ``bench`` and the shares of its seconds; measured once."""
    values = {"method": "binas", "space": "compact", "data": bench.data, "image_size": bench.image_size, "threads": 1}
    configuration = Configuration(**values, options={"verify": False})
    exists = (folder / "run.json").exists()
    device = Device.choose("cpu", 1)
    run = Run.open(folder) if exists else Run.create(folder, configuration.model_dump(), device.describe())
    method = Binas(Context(configuration, run, device))
    strategy = growing(method)
    run.event("started", threads=1)
    if run.stage_result("table") is None:
        run.finish_stage("table", strategy.table.make(strategy.limits_without).model_dump(mode="json"))
    if run.stage_result("plan") is None:
        shared = equal_time(strategy.plan(), bench.seconds, len(TIMES_PLAIN))
        run.finish_stage("plan", shared.model_dump(mode="json"))
    if not run.items("plain").done:
        data = method.context.task.data
        shape = (data.image_channels, data.image_size, data.image_size)
        watch = Stopwatch(PlainNetwork(data), shape, strategy.table.timing)
        run.items("plain").record("latency_ms", middle_round(watch).median_ms)
    return folder


def growing(method: Method) -> Grow:
    """The strategy of a search by the fast plan."""
    assert isinstance(method, Binas)
    assert isinstance(method.strategy, Grow)
    return method.strategy


def equal_time(plan: Shares, seconds: float, limits: int) -> Shares:
    """Shares of these seconds for candidates and answers together; the plain network beside is another arm.

    Args:
        plan: shares as they were measured.
        seconds: of training, all in all.
        limits: answers that they are for.
    """
    return plan.model_copy(update={"seconds": seconds, "limits": limits, "beside": False})


def limits_of(plan_run: Path) -> list[float]:
    """In milliseconds, from the table's first limit, which is the plain network's latency."""
    table = TableResult.model_validate(Run.open(plan_run).stage_result("table"))
    plain = table.chosen_limits_ms[0]
    return [round(times * plain, 4) for times in TIMES_PLAIN]


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
    others = Others(search_folder, payload["limits"], ItemLog(logs / f"{arm}-{seed}.jsonl"), payload["seconds"], stop)
    if arm == "plain":
        accuracy = others.plain()
        kept = [accuracy if payload["plain_ms"] <= limit else None for limit in payload["limits"]]
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
        options={"plan_from": str(Path(payload["folder"]) / "plan"), "verify": False},
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
    def grow(self) -> Grow:
        """The search: its plan, its problem, and what it trained."""
        return growing(reopened(Run.open(self.folder), self.stop, Progress()))

    @property
    def context(self) -> Context:
        """The context of the search whose tables they share."""
        return self.grow.context

    @property
    def count(self) -> int:
        """Networks that the search trained."""
        return len(networks_of(self.context.run))

    def run(self, arm: str) -> Json:
        """The arm's test accuracy at every limit: of the best on validation within it."""
        tried = {"uniform": self.uniform, "random": self.random, "evolution": self.evolution, "control": self.control}
        found = tried[arm]()
        chosen = [max((one for one in found if one.latency_ms <= limit), key=_better) for limit in self.limits]
        return {"accuracies": [one.test for one in chosen], "networks": [one.architecture for one in chosen]}

    def uniform(self) -> list[Tried]:
        """The grid of plain networks that keep the loosest limit; all have the same time."""
        space = self.grow.space
        grid = [space.plain(depth, width) for depth, width in product(space.depths, range(space.most_widths))]
        fitting = [one for one in grid if self.costs(one)["latency_ms"] <= self.limits[-1]]
        return [self.tried(one, self.seconds / len(fitting)) for one in fitting]

    def random(self) -> list[Tried]:
        """Random networks within each limit in turn."""
        drawn = [self.drawn(self.limits[number % len(self.limits)], number) for number in range(self.count)]
        return [self.tried(one, self.seconds / self.count) for one in drawn]

    def evolution(self) -> list[Tried]:
        """As many: the first for each limit is random, the next ones are mutations of the best within it."""
        space, found = self.grow.space, list[Tried]()
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
        return [self.tried(self.grow.space.parse(tightest.architecture), self.seconds)]

    def plain(self) -> float:
        """Test accuracy of the plain network."""
        if "plain" not in self.log.done:
            context, data = self.context, self.context.task.data
            steps = max(1, round(1000 * self.seconds / self.grow.shares.plain_step_ms))
            seed = context.configuration.seed
            plain = PlainTraining(
                self.grow.recipe, steps, self.grow.augment(data), seed, context.device.name, stop=self.stop
            )
            self.log.record("plain", train_plain(data, plain)["accuracy"])
        return float(self.log.done["plain"])

    # --- networks ---

    def costs(self, architecture: CompactArchitecture) -> dict[str, float]:
        """What a network is predicted to take, by resource."""
        found = self.grow.problem.evaluate(self.grow.space.to_choice(architecture))[1]
        return {name: float(cost) for name, cost in found.items()}

    def fits(self, architecture: CompactArchitecture, limit: float) -> bool:
        """Whether ``architecture`` is predicted to keep ``limit`` milliseconds and can be trained in the time."""
        costs = self.costs(architecture)
        return costs["latency_ms"] <= limit and costs[STEP] <= self.grow.shares.longest_step_ms

    def drawn(self, limit: float, number: int) -> CompactArchitecture:
        """A random network that fits ``limit`` milliseconds, another one for each ``number``."""
        rng, space = self.context.rng("drawn", number), self.grow.space
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
            context, grow = self.context, self.grow
            network, size = grow.new_network(str(architecture)), grow.space.scale.image_size
            steps = Steps(grow.trainer.batches(key, size), grow.shares.steps(seconds, costs[STEP]))
            train(network, steps, grow.recipe, seed=context.configuration.seed, stop=self.stop)
            losses, right = grow.trainer.outcomes(network, size)
            test = accuracy_of(network, context.task.data, "test", context.device.name)
            one = Tried(
                str(architecture), costs["latency_ms"], float(losses.mean()), 100 * float(right.mean()), test.percent
            )
            self.log.record(key, asdict(one))
        return Tried(**self.log.done[key])


def _better(one: Tried) -> tuple[float, float]:
    """What an arm chooses by."""
    return one.validation, -one.loss
