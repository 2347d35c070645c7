"""BINAS beside what one would do otherwise, at three latency limits.

All but the last share the supernet of the search behind table 2, and their networks are tuned alike:

- BINAS: the exact front of the predictor;
- random sub-networks: the best on validation of so many within the limit that all limits together cost as many
  validation epochs as BINAS' pool, which serves every limit;
- evolution on the supernet: the same number of validations, spent on mutations;
- uniform networks: one depth and one block everywhere, as wide as the limit allows, trained from scratch, each for a
  third of the time that the search's trainings and its pool took.

What is finished is kept beside the search, so that a killed comparison goes on.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import sqrt
from pathlib import Path

import numpy as np

from archwright.costs.tables import LatencyTable
from archwright.errors import InfeasibleError
from archwright.execution.base import Item, run_items
from archwright.methods.binas import Binas, PoolResult
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.binas import finished_search, search_scale
from archwright.runs.files import Json, read_json, write_json
from archwright.runs.progress import Bar, Progress
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.search.jobs import TrainingJob, train_and_measure, train_network
from archwright.search.jobs import measure as accuracy_of
from archwright.solvers import StagedProblem, pareto
from archwright.spaces.mbconv import MbConv, MbConvArchitecture, MbConvBlock

SHARES = (0.2, 0.4, 0.6)
"""Where between the fastest and the slowest network the limits are."""
TUNE_EPOCHS = 10
TUNE_LR = 0.5
"""Longer and, as a part of the recipe's learning rate, stronger than the search's own: three models have the time."""
POPULATION = 12
TOURNAMENT = 4
EMPTY_DRAWS = 100
"""Draws of 100,000 random networks after which a limit counts as one that none meets."""
UNIFORM_BLOCK = (6, 3, False)
"""Expansion, kernel and squeeze-excite of the uniform networks: the block of MobileNetV2."""
UNIFORM_WIDTHS = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
TRAINING_STAGES = ("heaviest", "supernet", "measure")
TUNED_ARMS = ("BINAS", "random sub-networks", "evolution on the supernet")
UNIFORM = "uniform network"


@needs()
def binas_compare(settings: Settings) -> Outcome:
    """Test accuracy after tuning at three limits, and the latency measured here."""
    result = finished_search(settings)
    choosing = Choosing(result.folder, settings.progress)
    method, run = choosing.method, choosing.method.context.run
    chosen = choosing.all()
    items = [
        Item(one["architecture"], {"run": str(result.folder), "architecture": one["architecture"]})
        for (_, arm), one in chosen.items()
        if arm in TUNED_ARMS
    ]
    items = list({item.key: item for item in items}.values())
    trained, executor = run.items("compare-trained"), settings.executor
    with settings.progress.task("tuning", len(items), sum(item.key in trained.done for item in items)) as bar:
        found = run_items(executor, tune_item, items, trained, Stop(), bar)
    seconds = stage_seconds(run) / len(choosing.limits)
    shapes = [chosen[limit, UNIFORM] for limit in choosing.limits]
    items = [
        Item(f"depth {one['depth']} width {one['width']}", {"run": str(result.folder), "seconds": seconds, **one})
        for one in shapes
    ]
    with settings.progress.task("uniform networks", len(items), sum(i.key in trained.done for i in items)) as bar:
        found |= run_items(executor, train_uniform_item, items, trained, Stop(), bar)
    rows, notes = [], []
    for limit, arm in product(choosing.limits, (*TUNED_ARMS, UNIFORM)):
        one = chosen[limit, arm]
        key = one.get("architecture", f"depth {one.get('depth')} width {one.get('width')}")
        rows.append(Row(f"{limit} ms, {arm}", "% on test", None, found[key]["accuracy"]))
        rows.append(Row(f"{limit} ms, {arm}: measured", "ms", None, one["ms"]))
        if arm == UNIFORM:
            notes.append(f"{limit} ms, {arm}: {key}, {found[key]['epochs']} epochs")
    count, mean = len(method.context.task.data.test), np.mean([row.ours or 0 for row in rows[::2]]) / 100
    chance = 196 * sqrt(2 * mean * (1 - mean) / count)
    notes += [
        f"heaviest network, supernet and pool: {stage_seconds(run) / 60:.0f} min; tuning: {TUNE_EPOCHS} epochs each",
        f"each uniform network: {seconds / 60:.0f} min; it shared the machine with {settings.workers - 1} others",
        f"random and evolution: {choosing.evaluations} validations of whole sub-networks for every limit",
        f"{count} test images, one seed: differences below {chance:.1f} points are within the 95 % interval of chance",
    ]
    return Outcome(search_scale(settings, result), rows, notes)


def opened(folder: Path, progress: Progress | None = None) -> Binas:
    """The search in ``folder``, for its data, supernet, predictor and table."""
    method = reopened(Run.open(folder), Stop(), progress or Progress())
    assert isinstance(method, Binas)
    return method


def stage_seconds(run: Run) -> float:
    """What the search spent on training and on the pool; judging the predictor is not part of it.

    A session that was killed left no time of death: what it did after its last stage began is not counted.
    """
    kinds = [event for event in run.events() if event["kind"] in ("stage", "finished", "started", "interrupted")]
    sessions = [(one, after) for one, after in pairwise(kinds) if after["kind"] != "started"]
    return float(sum(after["time"] - one["time"] for one, after in sessions if one.get("name") in TRAINING_STAGES))


# --- choosing ---------------------------------------------------------------------------------------------------------


@dataclass
class Choosing:
    """Each arm's network at each limit."""

    folder: Path
    progress: Progress

    @cached_property
    def method(self) -> Binas:
        """The search."""
        return opened(self.folder, self.progress)

    @cached_property
    def problem(self) -> StagedProblem:
        """Predicted accuracy and costs."""
        return self.method.problem

    @cached_property
    def table(self) -> LatencyTable:
        """The search's own."""
        return LatencyTable.load(self.folder / "artifacts" / "latency.json")

    @cached_property
    def limits(self) -> list[float]:
        """In milliseconds."""
        least, most = self.problem.cost_range("latency_ms")
        return [round(least + share * (most - least), 3) for share in SHARES]

    @cached_property
    def evaluations(self) -> int:
        """Validations of whole networks for one limit; those of all limits cost as much as the pool."""
        rows = self.method.result("measure", PoolResult).rows
        return int(max(1, rows // (len(self.limits) * len(self.method.context.task.data.validation))))

    def all(self) -> dict[tuple[float, str], Json]:
        """By limit and arm: ``architecture``, or ``depth`` and ``width``, and the median latency ``ms`` here."""
        log = self.method.context.run.items("compare-chosen")
        total = 2 * self.evaluations * len(self.limits)
        found = {}
        with self.progress.task("choosing sub-networks", total) as bar:
            for limit, arm in product(self.limits, (*TUNED_ARMS, UNIFORM)):
                key = f"{limit} ms, {arm}"
                if key not in log.done:
                    log.record(key, self.choose(limit, arm, bar))
                found[limit, arm] = log.done[key]
        return found

    def choose(self, limit: float, arm: str, bar: Bar) -> Json:
        """One arm's network at one limit."""
        method, number = self.method, self.limits.index(limit)
        if arm == UNIFORM:
            depth, width, ms = self.uniform(limit)
            return {"depth": depth, "width": width, "ms": ms}

        def accuracy(architecture: MbConvArchitecture) -> float:
            bar.advance()
            return float(method.work.outcomes(method.space.to_choice(architecture)).mean())

        rng = np.random.default_rng([number, TUNED_ARMS.index(arm)])
        if arm == TUNED_ARMS[0]:
            chosen = method.space.from_choice(pareto.solve(self.problem, "latency_ms", limit).choice)
        elif arm == TUNED_ARMS[1]:
            drawn = self.within(limit, rng)
            chosen = max((next(drawn) for _ in range(self.evaluations)), key=accuracy)
        else:
            chosen = self.evolved(limit, accuracy, rng)
        return {"architecture": str(chosen), "ms": method.latency_of(chosen, self.table).median_ms}

    def within(self, limit: float, rng: np.random.Generator) -> Iterator[MbConvArchitecture]:
        """Random sub-networks that the table predicts within the limit."""
        empty = 0
        while empty < EMPTY_DRAWS:
            choices = self.problem.sample(100_000, rng)
            places = np.flatnonzero(self.problem.evaluate(choices)[1]["latency_ms"] <= limit)
            empty = 0 if len(places) else empty + 1
            for place in places:
                yield self.method.space.from_choice(choices[int(place)])
        raise InfeasibleError(f"no random sub-network within {limit} ms was found; draw the limits higher.")

    def evolved(
        self, limit: float, accuracy: Callable[[MbConvArchitecture], float], rng: np.random.Generator
    ) -> MbConvArchitecture:
        """Regularised evolution with real validations: mutate the best of a few of the youngest, within the limit."""
        space, drawn = self.method.space, self.within(limit, rng)
        history: list[tuple[float, MbConvArchitecture]] = []
        for number in range(self.evaluations):
            child = next(drawn)
            if number >= POPULATION:
                youngest = history[-POPULATION:]
                candidates = [youngest[int(i)] for i in rng.choice(POPULATION, TOURNAMENT, replace=False)]
                parent = max(candidates, key=lambda one: one[0])[1]
                mutants = (space.mutate(parent, rng) for _ in range(1000))
                child = next((one for one in mutants if self.predicted_ms(one) <= limit), child)
            history.append((accuracy(child), child))
        return max(history, key=lambda one: one[0])[1]

    def predicted_ms(self, architecture: MbConvArchitecture) -> float:
        """By the table."""
        return float(self.problem.evaluate(self.method.space.to_choice(architecture))[1]["latency_ms"])

    def uniform(self, limit: float) -> tuple[int, float, float]:
        """Depth and width of the uniform network that computes most within the limit here, and its median ms."""
        found, scale = [], self.method.space.scale
        for depth, width in product(scale.depths, UNIFORM_WIDTHS):
            space = MbConv(scale.changed(width=width))
            architecture = uniform_architecture(space, depth)
            ms = self.method.latency_of(architecture, self.table, space).median_ms
            found.append((space.cost(architecture, space.scale).macs, depth, width, ms))
        fitting = [one for one in found if one[-1] <= limit] or [min(found, key=lambda one: one[-1])]
        return max(fitting)[1:]


def uniform_architecture(space: MbConv, depth: int) -> MbConvArchitecture:
    """The same block everywhere, ``depth`` times in every stage."""
    return MbConvArchitecture(
        tuple(
            tuple(MbConvBlock(*UNIFORM_BLOCK, block.stride, block.channels) for block in blocks[:depth])
            for blocks in space.heaviest().stages
        )
    )


# --- training ---------------------------------------------------------------------------------------------------------


def tune_item(payload: Json, stop: Stop) -> Json:
    """Work item: a sub-network of the supernet, tuned with distillation from the heaviest."""
    method = opened(Path(payload["run"]))
    context, name = method.context, f"compare/{_digest(payload['architecture'])}"
    context.stop = stop
    recipe = method.work.recipe(TUNE_EPOCHS, TUNE_LR, method.options.distill)
    network = method.work.trained.cut_out(method.space.parse(payload["architecture"]))
    method.work.train_network(network, recipe, name, Bar())
    context.run.checkpoints(name).clear()
    accuracy = accuracy_of(network, context.task.data, "test", context.device.name)
    return {"accuracy": accuracy.percent, "epochs": TUNE_EPOCHS}


def train_uniform_item(payload: Json, stop: Stop) -> Json:
    """Work item: a uniform network, trained from scratch for ``payload["seconds"]``; a second epoch tells how long."""
    method = opened(Path(payload["run"]))
    context, space = method.context, MbConv(method.space.scale.changed(width=payload["width"]))
    folder = context.run.folder / "checkpoints" / "compare" / f"uniform-{payload['depth']}-{payload['width']}"
    job = TrainingJob(
        data=context.task.data_request,
        space=space.name,
        scale=space.scale.to_dict(),
        architecture=str(uniform_architecture(space, payload["depth"])),
        augment=context.configuration.augment,
        recipe=method.work.recipe(1, 1.0).model_dump(),
        seed=context.configuration.seed,
        device=context.device.name,
        split="test",
    )
    kept = folder / "epochs.json"  # a killed training goes on with as many
    if not kept.exists():
        for _ in range(2):  # the first one also loads the images and warms up
            begin = time.perf_counter()
            train_network(job.network(), job, stop)
        write_json(kept, max(2, round(payload["seconds"] / (time.perf_counter() - begin))))
    epochs = read_json(kept)
    recipe = method.work.recipe(epochs, 1.0).model_dump()
    result = train_and_measure({**job.to_json(), "recipe": recipe, "checkpoints": str(folder / "states")}, stop)
    return {**result, "epochs": epochs}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
