"""BINAS: the most accurate mobile network under hard latency limits, from one supernet, exactly and for every limit.

1. ``table``: every block of the space is timed on this device, so that the reachable range is known first (eq. 5).
2. ``heaviest``: the largest sub-network is trained alone. It starts the supernet and teaches it.
3. ``supernet``: every image of a batch goes through its own random sub-network, distilled from the heaviest.
4. ``measure``: one pool of (image, sub-network, correct?) rows on the validation part gives all terms of the predictor
   at once (eq. 3): accuracy is a constant, a term a depth and a term a block configuration.
5. ``solve``: predictor and latency are additive, so the exact front of all undominated networks is one pass; a limit on
   several resources goes to an integer program.
6. ``verify``: a chosen network is built and timed. While its ninetieth percentile is over the limit, the choice steps
   down the front.
7. ``tune``: each network is cut out of the supernet, fine-tuned with distillation, tested and saved.

Letters as in :mod:`archwright.solvers.problem`. Several limits give several models of one supernet.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from archwright.costs.additive import StagedCosts, counted_costs
from archwright.costs.limits import Reachable
from archwright.costs.measure import Latency, Timing, device_name, measure
from archwright.costs.tables import LatencyTable, measure_table
from archwright.data.augmentation import OwnAugmentation
from archwright.errors import InfeasibleError, InputError
from archwright.export import has_onnx
from archwright.methods.binas_supernet import OnePath, Ranks, SupernetWork
from archwright.predictors.contributions import Contributions
from archwright.predictors.staged import StagedEstimate, shrunk
from archwright.runs.files import Json, inside, write_atomic, write_json
from archwright.runs.progress import Progress
from archwright.search.answer import Candidate, Found, Spread
from archwright.search.configuration import AbsolutePath
from archwright.search.final import keep_answer
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import Method, Options, Stage
from archwright.search.values import StageResult, Trained
from archwright.solvers import milp, pareto
from archwright.solvers.problem import Solution, StagedProblem
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.spaces.mbconv_scale import MbConvScale
from archwright.training import Recipe

SHARES_OF_RANGE = (0.25, 0.5)
"""Where between the fastest and the slowest network the limits are that a search without limits gets."""
FRONT_SHOWN = 50
"""Points of the front in the answer; all of them are in ``artifacts/front.json``."""
MOST_STEPS = 30
WORTH_SAYING = 1.25
"""A slowdown of the machine by more than this is said."""
ROUNDS = 3
"""A chosen network is timed so often and its middle round counts: what is promised must hold when it is timed again."""


class BinasOptions(Options):
    """Options of BINAS."""

    supernet_epochs: int | None = Field(None, ge=1, description="epochs of the supernet; as --epochs if not given")
    supernet_lr: float = Field(0.5, gt=0, description="its learning rate, as a part of the heaviest network's")
    tune_lr: float = Field(0.1, gt=0, description="learning rate of the fine-tuning, as a part of it")
    tune_autoaugment: bool = Field(False, description="AutoAugment (CIFAR-10 policy) in the fine-tuning")
    tune_ema: float = Field(
        0.0, ge=0, lt=1, description="decay of the moving average of the weights in the fine-tuning; 0 = off"
    )
    paths: Literal["multi", "single"] = Field("multi", description="a sub-network for every image, or for the batch")
    distill: float = Field(0.5, ge=0, le=1, description="weight of the heaviest network's answer against the label's")
    rows: int = Field(40_000, ge=100, description="(image, sub-network, correct?) rows behind the predictor")
    estimator: Literal["centred", "eq3"] = Field("centred", description="block terms centred, or as published")
    shrink: bool = Field(True, description="shrink the terms by their noise before solving")
    rank_networks: int = Field(0, ge=0, description="measure this many random sub-networks to judge the predictor")
    width: float | None = Field(None, gt=0, description="multiplies all widths, instead of the preset's")
    backend: Literal["eager", "onnxruntime"] = Field("eager", description="what the latencies are of")
    latency_threads: int = Field(1, ge=1, description="its threads")
    latency_repeats: int = Field(50, ge=1, description="calls behind a latency")
    latency_table: AbsolutePath | None = Field(None, description="a table measured before, here or on another device")
    verify: bool = Field(True, description="time the chosen networks here and step down where they are too slow")
    supernet: AbsolutePath | None = Field(
        None, description="run folder of an earlier search whose supernet is used again"
    )


# --- what the stages hand on ------------------------------------------------------------------------------------------


class TableResult(StageResult):
    """The reachable latencies, the device's name, and the lightest network's latency where it was timed here."""

    least_ms: float
    most_ms: float
    device: str
    reference: Spread | None


class PoolResult(StageResult):
    """The pool of measurements and what it says of the design decisions."""

    rows: int
    mean_accuracy: float
    insights: list[str]


class FrontResult(StageResult):
    """How many networks the exact front has, and some of them from end to end."""

    points: int
    front: list[Candidate]


class ChosenNetwork(StageResult):
    """The best network of one set of limits, timed where it could be."""

    limits: dict[str, float]
    architecture: str
    predicted_accuracy: float
    predicted_latency_ms: float
    memory_bytes: int
    measured_latency_ms: Spread | None
    slowdown: float | None
    steps: int
    solver: str


class VerifyResult(StageResult):
    """One network for every set of limits."""

    chosen: list[ChosenNetwork]


class TunedNetwork(Trained):
    """A fine-tuned network, and its validation accuracy with the supernet's weights."""

    inherited_accuracy: float


class TuneResult(StageResult):
    """By architecture."""

    models: dict[str, TunedNetwork]


class Binas(Method):
    """The method; a search without limits gets two inside the reachable range."""

    name = "binas"
    default_space = "mbconv"
    redone_for_limits = ("verify", "tune", "answer")
    Options: ClassVar[type[Options]] = BinasOptions
    options: BinasOptions

    # --- what is searched ---

    @cached_property
    def space(self) -> MbConv:
        """The space at the data's image size and classes."""
        scale = self.context.task.scale
        if not isinstance(scale, MbConvScale):
            raise InputError("the space mbconv with the method 'binas'", repr(self.context.configuration.space))
        return MbConv(scale.changed(width=self.options.width))

    @cached_property
    def work(self) -> SupernetWork:
        """Training and measuring."""
        o = self.options
        source = Path(o.supernet) if o.supernet is not None else None
        return SupernetWork(self.context, self.space, source, o.paths)

    @property
    def timing(self) -> Timing:
        """How latencies are measured."""
        o = self.options
        processor = self.context.device.name if o.backend == "eager" else "cpu"
        return Timing(o.backend, o.latency_threads, repeats=o.latency_repeats, processor=processor)

    def check(self) -> None:
        """Everything that can be known before the first measurement."""
        c, recipe = self.context.configuration, self.context.task.recipe
        if c.benchmark is not None:
            raise InputError("a search on images (--data) with the method 'binas'", f"--benchmark {c.benchmark}")
        if c.channels is not None or c.cells is not None:
            raise InputError("--width with the method 'binas'", "--channels or --cells")
        if recipe.drop_path or recipe.auxiliary_weight:
            raise InputError("a recipe without drop-path and auxiliary classifier", repr(c.recipe))
        self.check_own()
        if self.options.tune_autoaugment and isinstance(self.context.task.augmentation(), OwnAugmentation):
            raise InputError("no AutoAugment (--tune-autoaugment) beside an augmentation of your own", c.augment)
        _ = self.space, self.timing
        if self.options.supernet is not None:
            _ = self.work.trained
        costs = counted_costs(self.space)
        if self.context.run.header and self.context.run.stage_result("table") is not None:
            costs |= self._kept_table.costs(self.space)
        elif self.options.latency_table is not None:
            costs |= self._given_table().costs(self.space)
        self._check_limits(costs)

    def _given_table(self) -> LatencyTable:
        table = LatencyTable.load(Path(self.options.latency_table or ""))
        table.check(self.space)
        return table

    @property
    def _kept_table(self) -> LatencyTable:
        """The run's own copy, which everything after the stage ``table`` goes by."""
        return LatencyTable.load(self.context.run.artifact("latency.json"))

    def _check_limits(self, costs: StagedCosts) -> None:
        """Refuse limits that no network meets, among those whose costs are known already."""
        problem = self._problem(costs, None)
        ranges = {name: problem.cost_range(name) for name in problem.resources}
        Reachable(ranges, "exact").check(self.context.configuration.limit_sets)

    def estimate_seconds(self) -> float:
        """From three timed steps of the heaviest network; the table and the measuring are added as a guess."""
        context, recipe = self.context, self.context.task.recipe
        size, scale = min(recipe.batch_size, len(context.task.data.train)), self.space.scale
        network = OnePath(self.work.new_supernet(), self.space.to_choice(self.space.heaviest())).train()
        x = torch.zeros(size, scale.image_channels, scale.image_size, scale.image_size, device=context.device.torch)
        times = []
        for _ in range(3):
            begin = time.perf_counter()
            network(x).sum().backward()
            times.append(time.perf_counter() - begin)
        models = max(2, len(context.configuration.limit_sets))
        epochs = 1.3 * models * self.tuning_recipe().epochs
        epochs += 0 if self.options.supernet else recipe.epochs + 1.3 * self._supernet_recipe().epochs
        steps = max(1, len(context.task.data.train) // size)
        return float(np.median(times)) * (steps * epochs + self.options.rows / (3 * size)) + 20

    def stages(self) -> list[Stage]:
        """In order; a supernet that is given is not trained again."""
        training = [
            Stage("heaviest", "train the heaviest network", self.work.train_heaviest),
            Stage("supernet", "train the supernet", lambda: self.work.train_supernet(self._supernet_recipe())),
        ]
        ranks = [Stage("rank", "judge the predictor", lambda: self.work.measure_ranks(self.options.rank_networks))]
        return [
            Stage("table", "latency table", self._table),
            *([] if self.options.supernet else training),
            Stage("measure", "measure sub-networks", self._measure),
            *(ranks if self.options.rank_networks else []),
            Stage("solve", "exact front", self._solve),
            Stage("verify", "latencies of the chosen networks", self._verify),
            Stage("tune", "fine-tune", self._tune),
            Stage("answer", "answer", self._answer),
        ]

    def _supernet_recipe(self) -> Recipe:
        epochs = self.options.supernet_epochs or self.context.task.recipe.epochs
        return self.work.recipe(epochs, self.options.supernet_lr, self.options.distill)

    def tuning_recipe(self) -> Recipe:
        """Of the chosen networks."""
        epochs = self.context.configuration.final_epochs or max(1, self.context.task.recipe.epochs // 2)
        recipe = self.work.recipe(epochs, self.options.tune_lr, self.options.distill)
        return recipe.changed(ema_decay=self.options.tune_ema)

    # --- table and limits ---

    def _table(self) -> TableResult:
        """The latency table, and the limits with the reachable range said aloud."""
        context, run = self.context, self.context.run
        if self.options.latency_table is not None:
            table = self._given_table()
        else:
            log = run.folder / "items" / "table.jsonl"
            with context.progress.task("latency table", 0) as bar:
                table = measure_table(
                    self.space,
                    self.timing,
                    log=log,
                    seed=context.configuration.seed,
                    progress=self._table_progress(bar),
                )
        table.save(run.artifact("latency.json"))
        costs = table.costs(self.space)
        self._check_limits(costs)
        least, most = self._problem(costs, None).cost_range("latency_ms")
        where = f"{table.provenance.device} ({table.provenance.backend}, {table.provenance.threads} thread(s))"
        context.progress.say(f"Networks of this space take {least:.3g} to {most:.3g} ms on {where}.")
        if not context.configuration.limits:
            chosen = " and ".join(f"{one['latency_ms']:.3g} ms" for one in _limits_within(least, most))
            context.progress.say(f"No limit was given (--latency-ms): {chosen} are taken.")
        for limits in context.configuration.limit_sets:
            _say_if_loose(limits, most, context.progress)
        timed = self.options.verify and self._measured_here(table)
        reference = self._spread(self.latency_of(self.space.lightest(), table)) if timed else None
        return TableResult(least_ms=least, most_ms=most, device=where, reference=reference)

    @property
    def _limit_sets(self) -> list[dict[str, float]]:
        """What is asked for, one model each."""
        given = self.context.configuration
        if given.limits:
            return given.limit_sets
        table = self.result("table", TableResult)
        return _limits_within(table.least_ms, table.most_ms)

    @property
    def limits(self) -> dict[str, float | list[float]]:
        """As given, else those that the finished table brought."""
        given = self.context.configuration.limits
        if given or self.context.run.stage_result("table") is None:
            return given
        return {"latency_ms": [one["latency_ms"] for one in self._limit_sets]}

    def _table_progress(self, bar: Any) -> Any:
        def progress(done: int, total: int) -> None:
            self.context.stop.check()  # every finished measurement is in the log
            bar.advance()
            bar.note(f"{done} of {total} measurements")

        return progress

    @property
    def _costs(self) -> StagedCosts:
        return counted_costs(self.space) | self._kept_table.costs(self.space)

    def _problem(self, costs: StagedCosts, estimate: StagedEstimate | None) -> StagedProblem:
        """Values in percent; without an estimate all are zero, which is enough for ranges."""
        shape = (self.space.stages, self.space.most_blocks, len(self.space.configurations))
        return StagedProblem(
            np.zeros(shape) if estimate is None else estimate.block_values,
            costs.block_costs,
            np.zeros(shape[:2]) if estimate is None else estimate.depth_values,
            {},
            (self.space.scale.depths,) * self.space.stages,
            0.0 if estimate is None else estimate.fixed,
            costs.fixed_costs,
        )

    # --- measuring and choosing ---

    def _measure(self) -> PoolResult:
        """The pool, and what it says about the design decisions."""
        run, rows = self.context.run, self.work.measure_pool(self.options.rows)
        estimate = self.work.estimate(centred=True)
        found = Contributions.of(estimate, self.space.scale)
        write_json(run.artifact("contributions.json"), found.to_json())
        found.plot(run.artifact("contributions.png"))
        return PoolResult(rows=rows, mean_accuracy=estimate.fixed, insights=found.sentences())

    @property
    def problem(self) -> StagedProblem:
        """What is solved: predicted accuracy in percent against all costs."""
        estimate = self.work.estimate(self.options.estimator == "centred")
        return self._problem(self._costs, shrunk(estimate) if self.options.shrink else estimate)

    def _solve(self) -> FrontResult:
        """The whole front and the best network of every limit."""
        context = self.context
        problem = self.problem
        begin = time.perf_counter()
        front = pareto.front(problem, "latency_ms")
        seconds = time.perf_counter() - begin
        choices = front.choices()
        points: list[dict[str, Any]] = [
            {"architecture": str(self.space.from_choice(choices[i])), "predicted_accuracy": value, "latency_ms": cost}
            for i, (value, cost) in enumerate(zip(front.values.tolist(), front.costs.tolist(), strict=True))
        ]
        write_json(context.run.artifact("front.json"), points)
        context.progress.say(f"Exact front: {len(front)} networks in {1000 * seconds:.0f} ms.")
        for limits in self._limit_sets:
            solve_within(problem, limits)  # limits that cannot be met together are said now
        shown = np.unique(np.linspace(0, len(points) - 1, FRONT_SHOWN).round().astype(int))
        return FrontResult(points=len(points), front=[Candidate(**points[i]) for i in shown])

    def _verify(self) -> VerifyResult:
        """The chosen network of every limit; where it is timed, one whose ninetieth percentile meets the limit."""
        context, table, problem = self.context, self._kept_table, self.problem
        timed = self.result("table", TableResult).reference is not None and self._measured_here(table)
        if self.options.verify and not timed:
            context.progress.say(f"The table is of {table.provenance.device!r}: nothing is timed here.")
        log, found = context.run.items("verify"), []
        with context.progress.task("timing the chosen networks", len(self._limit_sets)) as bar:
            for limits in self._limit_sets:
                key = json.dumps(limits)
                if key not in log.done:
                    log.record(key, self._choose(problem, limits, table if timed else None).model_dump(mode="json"))
                found.append(ChosenNetwork.model_validate(log.done[key]))
                bar.advance()
        return VerifyResult(chosen=found)

    def _choose(self, problem: StagedProblem, limits: dict[str, float], table: LatencyTable | None) -> ChosenNetwork:
        """The best network within the limits; with a table it is timed here and stepped down where it is too slow."""
        latency: Latency | None = None
        slowdown: float | None = None
        if table is not None:
            solution, latency, slowdown, steps = self._step_down(problem, limits, table)
        else:
            solution, steps = solve_within(problem, limits), 0
        return ChosenNetwork(
            limits=limits,
            architecture=str(self.space.from_choice(solution.choice)),
            predicted_accuracy=solution.value,
            predicted_latency_ms=solution.costs["latency_ms"],
            memory_bytes=round(solution.costs["memory_bytes"]),
            measured_latency_ms=None if latency is None else self._spread(latency),
            slowdown=slowdown,
            steps=steps,
            solver=solution.solver,
        )

    @staticmethod
    def _spread(latency: Latency) -> Spread:
        return Spread(**asdict(latency))

    def _step_down(
        self, problem: StagedProblem, limits: dict[str, float], table: LatencyTable
    ) -> tuple[Solution, Latency, float, int]:
        """Time the best network; while it is too slow take the best one that is predicted quicker by as much.

        Returns the network, its latency, the slowdown it was corrected for, and the number of steps.
        """
        limit, least = limits.get("latency_ms", np.inf), problem.cost_range("latency_ms")[0]
        tightened = dict(limits)
        for steps in range(MOST_STEPS):
            self.context.stop.check()
            solution = solve_within(problem, tightened)
            latency, slowdown = self._time_now(self.space.from_choice(solution.choice), table)
            predicted = solution.costs["latency_ms"]
            if latency.high_ms <= limit:
                return solution, latency, slowdown, steps
            if predicted <= least:
                break
            target = min(predicted * limit / latency.high_ms, float(np.nextafter(predicted, 0.0)))
            tightened["latency_ms"] = max(target, least)
        raise InfeasibleError(
            f"no network with latency_ms <= {limit:g} was found: the last one tried was predicted to take "
            f"{predicted:.3g} ms and took {latency.median_ms:.3g} ms (ninetieth percentile {latency.high_ms:.3g} ms). "
            f"The table reaches from {least:.3g} to {problem.cost_range('latency_ms')[1]:.3g} ms. Raise the limit, or "
            "resume on a quieter machine."
        )

    def _time_now(self, architecture: MbConvArchitecture, table: LatencyTable) -> tuple[Latency, float]:
        """Its latency, less the slowdown of the machine since the table was made, and that slowdown (1 for none).

        Other work that has begun meanwhile slows every network: the lightest one is timed again beside this one, and
        each quantile is divided by what became of the lightest one's, where that grew.
        """
        reference = self.result("table", TableResult).reference
        assert reference is not None
        before, now = reference.model_dump(), asdict(self.latency_of(self.space.lightest(), table))
        slowdown = {name: max(1.0, now[name] / before[name]) for name in now}
        if slowdown["median_ms"] > WORTH_SAYING:
            self.context.progress.say(
                f"The machine is {slowdown['median_ms']:.1f} times slower than when the table was made; "
                "times are divided by that."
            )
        timed = asdict(self.latency_of(architecture, table))
        low, median, high = (timed[name] / slowdown[name] for name in ("low_ms", "median_ms", "high_ms"))
        return Latency(median, min(low, median), max(median, high)), slowdown["median_ms"]

    @staticmethod
    def _measured_here(table: LatencyTable) -> bool:
        """Whether this machine has the device of ``table``."""
        return table.provenance.device == device_name(table.provenance.processor)

    def latency_of(self, architecture: MbConvArchitecture, table: LatencyTable, space: MbConv | None = None) -> Latency:
        """On this device, in the way the table was measured; of the search's space unless another one is given."""
        kept = table.provenance.model_dump(exclude={"device", "versions"})
        space = space or self.space
        scale = space.scale
        shape = (scale.image_channels, scale.image_size, scale.image_size)
        network = space.build(architecture, scale)
        rounds = (measure(network, shape, Timing(**kept)) for _ in range(ROUNDS))
        return sorted(rounds, key=lambda one: one.high_ms)[ROUNDS // 2]

    # --- models ---

    def _tune(self) -> TuneResult:
        """Each different network: cut out, fine-tuned, validated, tested, saved; finished ones are not done again."""
        context, log = self.context, self.context.run.items("tune")
        texts = list(dict.fromkeys(one.architecture for one in self.result("verify", VerifyResult).chosen))
        recipe = self.tuning_recipe()
        waiting = [text for text in texts if text not in log.done]
        with context.progress.task("fine-tuning", len(waiting) * recipe.epochs * len(self.work.batches(recipe))) as bar:
            for text in waiting:
                name = f"model-{len(log.done) + 1}"
                tuned = self._tune_one(self.space.parse(text), name, recipe, bar)
                log.record(text, tuned.model_dump(mode="json"))
                context.run.checkpoints(f"tune/{name}").clear()
        if not has_onnx():
            context.progress.say("No ONNX files: install them with: pip install 'archwright[onnx]'")
        return TuneResult(models={text: log.done[text] for text in texts})

    def _tune_one(self, architecture: MbConvArchitecture, name: str, recipe: Recipe, bar: Any) -> TunedNetwork:
        context = self.context
        network = self.work.trained.cut_out(architecture)
        inherited = accuracy_of(network, context.task.data, "validation", context.device.name)
        policy = "cifar10" if self.options.tune_autoaugment else None
        on_epoch = context.run.on_epoch("tune", model=name)
        self.work.train_network(network, recipe, f"tune/{name}", bar, policy, on_epoch)
        scale = self.space.scale
        kept = keep_answer(context, network, architecture, scale, name, recipe.epochs, onnx=has_onnx())
        return TunedNetwork(**kept.model_dump(), inherited_accuracy=inherited.percent)

    def _model(self, chosen: ChosenNetwork, tuned: TunedNetwork) -> Candidate:
        """All that is known of a network."""
        cost = self.space.cost(self.space.parse(chosen.architecture), self.space.scale)
        timed = chosen.measured_latency_ms
        details = {"slowdown": chosen.slowdown, "steps": chosen.steps, "solver": chosen.solver}
        return Candidate(
            **chosen.model_dump(exclude={"slowdown", "steps", "solver"}),
            **tuned.model_dump(exclude={"inherited_accuracy"}),
            params=cost.params,
            macs=cost.macs,
            latency_ms=chosen.predicted_latency_ms if timed is None else timed.median_ms,
            scale=self.space.scale.to_dict(),
            details={**details, "inherited_accuracy": tuned.inherited_accuracy},
        )

    def _answer(self) -> Found:
        """One model a limit; ``best`` is the one of highest validation accuracy, the quicker of equals."""
        run, tuned = self.context.run, self.result("tune", TuneResult).models
        chosen = self.result("verify", VerifyResult).chosen
        models = [self._model(one, tuned[one.architecture]) for one in chosen]
        best = max(models, key=lambda one: (one.validation_accuracy or 0.0, -(one.latency_ms or 0.0)))
        for suffix in (".safetensors", ".json", ".onnx"):
            source = inside(run.folder, best.model or "").with_suffix(suffix)
            if source.exists():
                write_atomic(run.artifact(f"best{suffix}"), source.read_bytes())
            else:
                run.artifact(f"best{suffix}").unlink(missing_ok=True)  # of an answer before
        run.artifact("start.safetensors").unlink(missing_ok=True)
        solved, pool, table = self._results()
        details: dict[str, Json] = {
            "front_points": solved.points,
            "insights": pool.insights,
            "reachable_ms": [table.least_ms, table.most_ms],
            "latency_on": table.device,
        }
        if self.options.rank_networks:
            details["rank"] = self.result("rank", Ranks).ranks
        return Found(best=best, models=models, front=solved.front, evaluations=pool.rows, details=details)

    def _results(self) -> tuple[FrontResult, PoolResult, TableResult]:
        return (
            self.result("solve", FrontResult),
            self.result("measure", PoolResult),
            self.result("table", TableResult),
        )


def _say_if_loose(limits: dict[str, float], most_ms: float, progress: Progress) -> None:
    """A latency limit above the slowest network is no error, and said."""
    limit = limits.get("latency_ms", 0.0)
    if limit > most_ms:
        progress.say(f"The limit {limit:g} ms is above the slowest network's {most_ms:.3g} ms: it binds nothing.")


def _limits_within(least_ms: float, most_ms: float) -> list[dict[str, float]]:
    """The limits of a search that was given none."""
    return [{"latency_ms": round(least_ms + share * (most_ms - least_ms), 4)} for share in SHARES_OF_RANGE]


def solve_within(problem: StagedProblem, limits: dict[str, float]) -> Solution:
    """The best choice within all limits: from the exact front for one resource, else by the integer program."""
    if len(limits) == 1:
        ((name, limit),) = limits.items()
        return pareto.solve(problem, name, limit)
    return milp.solve(problem, limits)
