"""The paper's plan of BINAS: heaviest network, supernet, estimator, solver, tuning. For large data and reproductions.

1. ``heaviest``: the largest sub-network is trained alone. It starts the supernet and teaches it.
2. ``supernet``: every image of a batch goes through its own random sub-network, distilled from the heaviest.
3. ``measure``: one pool of random sub-networks, each on some validation images and with batch-norm statistics of its
   own, gives all terms of the predictor at once: a constant, a term a depth and a term a block configuration.
4. ``solve``: predictor and latency are additive, so the exact front of all undominated networks is one pass; a limit on
   several resources goes to an integer program.
5. ``verify``: the front's networks just within a limit are measured on all validation images, and the best of them is
   built and timed. While it is over the limit, the choice steps down the front.
6. ``tune``: each network is cut out of the supernet, fine-tuned with distillation, tested and saved. Every limit gets
   the best on validation of those within it, so that a looser one is never worse.

Letters as in :mod:`archwright.solvers.problem`. Several limits give several models of one supernet.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from archwright.costs.limits import met
from archwright.costs.tables import LatencyTable
from archwright.data.augmentation import Augment
from archwright.export import has_onnx
from archwright.methods.binas.latency import Timed
from archwright.methods.binas.options import BinasOptions, Summary
from archwright.methods.binas.supernet import OnePath, Predictor, Ranks, SupernetWork
from archwright.methods.binas.tables import Tables
from archwright.predictors.contributions import Contributions
from archwright.runs import disk
from archwright.runs.files import write_json
from archwright.search.answer import Candidate
from archwright.search.context import Context
from archwright.search.final import keep_answer
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import Stage
from archwright.search.values import StageResult, Trained
from archwright.solvers import milp, pareto
from archwright.solvers.problem import Solution, StagedProblem
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.training import Recipe

SHARES_OF_RANGE = (0.25, 0.5)
"""Where between the fastest and the slowest network the limits are that a search without limits gets."""
R = TypeVar("R", bound=StageResult)

AROUND = 4
"""Networks of the front just within a limit that are measured before one is chosen."""
FRONT_SHOWN = 50
"""Points of the front in the answer; all of them are in ``artifacts/front.json``."""


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
    measured_latency_ms: Timed | None
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


@dataclass
class PaperPlan:
    """The stages between the table and the answer."""

    context: Context
    options: BinasOptions
    space: MbConv
    tables: Tables

    @cached_property
    def work(self) -> SupernetWork:
        """Training and measuring."""
        source = Path(self.options.supernet) if self.options.supernet is not None else None
        return SupernetWork(self.context, self.space, source, self.options.paths)

    @property
    def plain_recipe(self) -> Recipe:
        """Of the plain network beside, whose steps are one pass."""
        return self.work.recipe(1, 0.5)

    @property
    def augment(self) -> Augment | None:
        """Of the plain network beside."""
        return self.context.task.augmentation()

    def limits_without(self, table: LatencyTable) -> list[float]:
        """Two inside the reachable range."""
        least, most = table.costs(self.space).problem(self.space).cost_range("latency_ms")
        return [round(least + share * (most - least), 4) for share in SHARES_OF_RANGE]

    def check(self) -> None:
        """A supernet that is given must fit."""
        if self.options.supernet is not None:
            _ = self.work.trained

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
            Stage("table", "latency table", self.tables.make),
            *([] if self.options.supernet else training),
            Stage("measure", "measure sub-networks", self._measure),
            *(ranks if self.options.rank_networks else []),
            Stage("solve", "exact front", self._solve),
            Stage("verify", "latencies of the chosen networks", self._verify),
            Stage("tune", "fine-tune", self._tune),
        ]

    def _supernet_recipe(self) -> Recipe:
        epochs = self.options.supernet_epochs or self.context.task.recipe.epochs
        return self.work.recipe(epochs, self.options.supernet_lr, self.options.distill)

    def tuning_recipe(self) -> Recipe:
        """Of the chosen networks."""
        epochs = self.context.configuration.final_epochs or max(1, self.context.task.recipe.epochs // 2)
        recipe = self.work.recipe(epochs, self.options.tune_lr, self.options.distill)
        return recipe.changed(ema_decay=self.options.tune_ema)

    def _result(self, stage: str, kind: type[R]) -> R:
        return kind.model_validate(self.context.run.stage_result(stage))

    # --- measuring and choosing ---

    def _measure(self) -> PoolResult:
        """The pool, and what it says about the design decisions."""
        run, rows = self.context.run, self.work.measure_pool(self.options.rows)
        estimate = self.work.estimate(centred=True)
        found = Contributions.of(estimate, self.space.scale)
        write_json(run.artifact("contributions.json"), found.to_json())
        found.plot(run.artifact("contributions.png"))
        return PoolResult(rows=rows, mean_accuracy=estimate.fixed, insights=found.sentences())

    @cached_property
    def predictor(self) -> Predictor:
        """From the pool."""
        return self.work.predictor(self.options.estimator, self.options.shrink)

    @property
    def problem(self) -> StagedProblem:
        """What is solved: the predictor's terms against all costs."""
        estimate = self.predictor.estimate
        return self.tables.costs.problem(
            self.space, estimate.block_values, estimate.depth_values, fixed_value=estimate.fixed
        )

    def _solve(self) -> FrontResult:
        """The whole front and the best network of every limit."""
        context = self.context
        problem = self.problem
        begin = time.perf_counter()
        front = pareto.front(problem, "latency_ms")
        seconds = time.perf_counter() - begin
        choices, percent = front.choices(), self.predictor.percent(front.values)
        points: list[dict[str, Any]] = [
            {"architecture": str(self.space.from_choice(choices[i])), "predicted_accuracy": value, "latency_ms": cost}
            for i, (value, cost) in enumerate(zip(percent.tolist(), front.costs.tolist(), strict=True))
        ]
        write_json(context.run.artifact("front.json"), points)
        context.progress.say(f"Exact front: {len(front)} networks in {1000 * seconds:.0f} ms.")
        for limits in self.tables.limit_sets:
            solve_within(problem, limits)  # limits that cannot be met together are said now
        shown = np.unique(np.linspace(0, len(points) - 1, FRONT_SHOWN).round().astype(int))
        return FrontResult(points=len(points), front=[Candidate(**points[i]) for i in shown])

    def _verify(self) -> VerifyResult:
        """The chosen network of every limit; where it is timed, one that keeps it."""
        context, problem, log, found = self.context, self.problem, self.context.run.items("verify"), []
        with context.progress.task("timing the chosen networks", len(self.tables.limit_sets)) as bar:
            for limits in self.tables.limit_sets:
                key = json.dumps(limits)
                if key not in log.done:
                    log.record(key, self._choose(problem, limits).model_dump(mode="json"))
                found.append(ChosenNetwork.model_validate(log.done[key]))
                bar.advance()
        return VerifyResult(chosen=found)

    def _choose(self, problem: StagedProblem, limits: dict[str, float]) -> ChosenNetwork:
        """The best network within the limits; where there is a clock it is timed, and stepped down if too slow."""
        timed, steps, clock = None, 0, self.tables.clock
        if clock is None:
            solution = self._best_measured(problem, limits)
        else:
            least = problem.cost_range("latency_ms")[0]
            solution, timed, steps = clock.step_down(lambda own: self._best_measured(problem, own), limits, least)
        return ChosenNetwork(
            limits=limits,
            architecture=str(self.space.from_choice(solution.choice)),
            predicted_accuracy=float(self.predictor.percent(np.array(solution.value))),
            predicted_latency_ms=solution.costs["latency_ms"],
            memory_bytes=round(solution.costs["memory_bytes"]),
            measured_latency_ms=timed,
            steps=steps,
            solver=solution.solver,
        )

    def _best_measured(self, problem: StagedProblem, limits: dict[str, float]) -> Solution:
        """Of the networks that are predicted best within the limits the one of least measured cross entropy."""
        best = solve_within(problem, limits)
        if len(limits) > 1:  # there is no front of several resources
            return best
        ((name, limit),) = limits.items()
        front = pareto.front(problem, name)
        within = np.flatnonzero(front.costs <= limit)[-AROUND:]
        others = [front.choices(within)[number] for number in range(len(within))]
        found = {str(self.space.from_choice(best.choice)): best}
        for choice in others:
            one = problem.solution(choice, float(problem.evaluate(choice)[0]), best.seconds, best.solver)
            if one.costs[name] <= limit:
                found.setdefault(str(self.space.from_choice(choice)), one)
        return min(found.items(), key=lambda item: self._measured_loss(item[0]))[1]

    def _measured_loss(self, architecture: str) -> float:
        """Cross entropy of a sub-network on the validation images; kept."""
        log = self.context.run.items("around")
        if architecture not in log.done:
            self.context.stop.check()
            found = self.work.outcome(self.space.to_choice(self.space.parse(architecture)))
            log.record(architecture, {"loss": found.loss, "accuracy": found.accuracy})
        return float(log.done[architecture]["loss"])

    # --- models ---

    def _tune(self) -> TuneResult:
        """Each different network: cut out, fine-tuned, validated, tested, saved; finished ones are not done again."""
        context, log = self.context, self.context.run.items("tune")
        texts = list(dict.fromkeys(one.architecture for one in self._result("verify", VerifyResult).chosen))
        recipe = self.tuning_recipe()
        waiting = [text for text in texts if text not in log.done]
        with context.progress.task("fine-tuning", len(waiting) * recipe.epochs * len(self.work.batches(recipe))) as bar:
            for text in waiting:
                name = f"model-{len(log.done) + 1}"
                tuned = self._tune_one(self.space.parse(text), name, recipe, bar)
                log.record(text, tuned.model_dump(mode="json"))
                context.run.checkpoints(f"tune/{name}").clear()
        return TuneResult(models={text: log.done[text] for text in texts})

    def _tune_one(self, architecture: MbConvArchitecture, name: str, recipe: Recipe, bar: Any) -> TunedNetwork:
        context = self.context
        network = self.work.trained.cut_out(architecture)
        inherited = accuracy_of(network, context.task.data, "validation", context.device.name)
        policy = "cifar10" if self.options.tune_autoaugment else None
        on_epoch = context.run.on_epoch("tune", model=name)
        self.work.train_network(network, recipe, f"tune/{name}", bar, policy, on_epoch)
        kept = keep_answer(context, network, architecture, self.space.scale, name, recipe.epochs, onnx=has_onnx())
        return TunedNetwork(**kept.model_dump(), inherited_accuracy=inherited.percent)

    def models(self) -> list[dict[str, Any]]:
        """Each limit with its network: fields of a candidate, but for what can be counted."""
        tuned, found = self._result("tune", TuneResult).models, []
        chosen = self._result("verify", VerifyResult).chosen
        for own in chosen:
            within = [one for one in chosen if one is own or met(own.limits, self._costs(one))]
            one = max(within, key=lambda other: tuned[other.architecture].validation_accuracy)
            extra = {"steps": one.steps, "solver": one.solver}
            network = tuned[one.architecture]
            details = {**extra, "inherited_accuracy": network.inherited_accuracy}
            fields = one.model_dump(exclude=set(extra)) | network.model_dump(exclude={"inherited_accuracy"})
            found.append({**fields, "limits": own.limits, "details": details})
        return found

    def _costs(self, one: ChosenNetwork) -> dict[str, float]:
        """What a network takes of every resource, its latency as measured where it was."""
        choice = self.space.to_choice(self.space.parse(one.architecture))
        costs = {name: float(cost) for name, cost in self.problem.evaluate(choice)[1].items()}
        timed = one.measured_latency_ms
        return costs if timed is None else {**costs, "latency_ms": timed.median_ms}

    def summary(self) -> Summary:
        """What the answer says beside the models."""
        disk.remove(self.context.run.artifact("start.safetensors"))
        solved, pool = self._result("solve", FrontResult), self._result("measure", PoolResult)
        details = {"rank": self._result("rank", Ranks).ranks} if self.options.rank_networks else {}
        return Summary(solved.front, pool.rows, pool.insights, details, solved.points)

    @property
    def plain_steps(self) -> int:
        """Steps of the plain network beside: as many as an answer's weights have seen."""
        recipes = [self.tuning_recipe()]
        if not self.options.supernet:
            recipes += [self.work.recipe(self.context.task.recipe.epochs, 1.0), self._supernet_recipe()]
        return sum(recipe.epochs for recipe in recipes) * len(self.work.batches(recipes[0]))


def solve_within(problem: StagedProblem, limits: dict[str, float]) -> Solution:
    """The best choice within all limits: from the exact front for one resource, else by the integer program."""
    if len(limits) == 1:
        ((name, limit),) = limits.items()
        return pareto.solve(problem, name, limit)
    return milp.solve(problem, limits)
