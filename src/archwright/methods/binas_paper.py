"""The paper's plan of BINAS: heaviest network, supernet, estimator, solver, tuning. For large data and reproductions.

1. ``heaviest``: the largest sub-network is trained alone. It starts the supernet and teaches it.
2. ``supernet``: every image of a batch goes through its own random sub-network, distilled from the heaviest.
3. ``measure``: one pool of (image, sub-network, correct?) rows on the validation part gives all terms of the predictor
   at once (eq. 3): accuracy is a constant, a term a depth and a term a block configuration.
4. ``solve``: predictor and latency are additive, so the exact front of all undominated networks is one pass; a limit on
   several resources goes to an integer program.
5. ``verify``: a chosen network is built and timed. While it is over the limit, the choice steps down the front.
6. ``tune``: each network is cut out of the supernet, fine-tuned with distillation, tested and saved.

Letters as in :mod:`archwright.solvers.problem`. Several limits give several models of one supernet.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from archwright.costs.tables import LatencyTable
from archwright.export import has_onnx
from archwright.methods.binas_options import BinasOptions
from archwright.methods.binas_supernet import OnePath, SupernetWork
from archwright.methods.binas_tables import Tables
from archwright.predictors.contributions import Contributions
from archwright.predictors.staged import shrunk
from archwright.runs.files import Json, write_json
from archwright.search.context import Context
from archwright.search.final import keep_answer
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import Stage
from archwright.solvers import milp, pareto
from archwright.solvers.problem import Solution, StagedProblem
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.training import Recipe

SHARES_OF_RANGE = (0.25, 0.5)
"""Where between the fastest and the slowest network the limits are that a search without limits gets."""
FRONT_SHOWN = 50
"""Points of the front in the answer; all of them are in ``artifacts/front.json``."""


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
        return recipe.model_copy(update={"ema_decay": self.options.tune_ema})

    def _result(self, stage: str) -> Json:
        return self.context.run.stage_result(stage)

    # --- measuring and choosing ---

    def _measure(self) -> Json:
        """The pool, and what it says about the design decisions."""
        run, rows = self.context.run, self.work.measure_pool(self.options.rows)
        estimate = self.work.estimate(centred=True)
        found = Contributions.of(estimate, self.space.scale)
        write_json(run.artifact("contributions.json"), found.to_json())
        found.plot(run.artifact("contributions.png"))
        return {"rows": rows, "mean_accuracy": estimate.fixed, "insights": found.sentences()}

    @property
    def problem(self) -> StagedProblem:
        """What is solved: predicted accuracy in percent against all costs."""
        estimate = self.work.estimate(self.options.estimator == "centred")
        if self.options.shrink:
            estimate = shrunk(estimate)
        return self.tables.costs.problem(
            self.space, estimate.block_values, estimate.depth_values, fixed_value=estimate.fixed
        )

    def _solve(self) -> Json:
        """The whole front and the best network of every limit."""
        context = self.context
        problem = self.problem
        begin = time.perf_counter()
        front = pareto.front(problem, "latency_ms")
        seconds = time.perf_counter() - begin
        choices = front.choices()
        points = [
            {"architecture": str(self.space.from_choice(choices[i])), "predicted_accuracy": value, "latency_ms": cost}
            for i, (value, cost) in enumerate(zip(front.values.tolist(), front.costs.tolist(), strict=True))
        ]
        write_json(context.run.artifact("front.json"), points)
        context.progress.say(f"Exact front: {len(front)} networks in {1000 * seconds:.0f} ms.")
        for limits in self.tables.limit_sets:
            solve_within(problem, limits)  # limits that cannot be met together are said now
        shown = np.unique(np.linspace(0, len(points) - 1, FRONT_SHOWN).round().astype(int))
        return {"points": len(points), "front": [points[i] for i in shown]}

    def _verify(self) -> Json:
        """The chosen network of every limit; where it is timed, one that keeps it."""
        context, problem, log, found = self.context, self.problem, self.context.run.items("verify"), []
        with context.progress.task("timing the chosen networks", len(self.tables.limit_sets)) as bar:
            for limits in self.tables.limit_sets:
                key = json.dumps(limits)
                if key not in log.done:
                    log.record(key, self._choose(problem, limits))
                found.append(log.done[key])
                bar.advance()
        return {"chosen": found}

    def _choose(self, problem: StagedProblem, limits: dict[str, float]) -> Json:
        """The best network within the limits; where there is a clock it is timed, and stepped down if too slow."""
        timed, steps, clock = None, 0, self.tables.clock
        if clock is None:
            solution = solve_within(problem, limits)
        else:
            least = problem.cost_range("latency_ms")[0]
            solution, timed, steps = clock.step_down(lambda within: solve_within(problem, within), limits, least)
        return {
            "limits": limits,
            "architecture": str(self.space.from_choice(solution.choice)),
            "predicted_accuracy": solution.value,
            "predicted_latency_ms": solution.costs["latency_ms"],
            "memory_bytes": solution.costs["memory_bytes"],
            "measured_latency_ms": None if timed is None else timed.model_dump(),
            "steps": steps,
            "solver": solution.solver,
        }

    # --- models ---

    def _tune(self) -> Json:
        """Each different network: cut out, fine-tuned, validated, tested, saved; finished ones are not done again."""
        context, log = self.context, self.context.run.items("tune")
        texts = list(dict.fromkeys(one["architecture"] for one in self._result("verify")["chosen"]))
        recipe = self.tuning_recipe()
        waiting = [text for text in texts if text not in log.done]
        with context.progress.task("fine-tuning", len(waiting) * recipe.epochs * len(self.work.batches(recipe))) as bar:
            for text in waiting:
                name = f"model-{len(log.done) + 1}"
                log.record(text, self._tune_one(self.space.parse(text), name, recipe, bar))
                context.run.checkpoints(f"tune/{name}").clear()
        return {"models": {text: log.done[text] for text in texts}}

    def _tune_one(self, architecture: MbConvArchitecture, name: str, recipe: Recipe, bar: Any) -> Json:
        context = self.context
        network = self.work.trained.cut_out(architecture)
        inherited = accuracy_of(network, context.task.data, "validation", context.device.name)
        policy = "cifar10" if self.options.tune_autoaugment else None
        self.work.train_network(network, recipe, f"tune/{name}", bar, policy)
        kept = keep_answer(context, network, architecture, self.space.scale, name, recipe.epochs, onnx=has_onnx())
        return {**kept.model_dump(mode="json"), "inherited_accuracy": inherited.percent}

    def models(self) -> list[Json]:
        """Each limit with its network and what is known of it."""
        tuned = self._result("tune")["models"]
        return [{**one, **tuned[one["architecture"]]} for one in self._result("verify")["chosen"]]

    def answer(self) -> dict[str, Json]:
        """What the answer says beside the models."""
        self.context.run.artifact("start.safetensors").unlink(missing_ok=True)
        solved, measured = self._result("solve"), self._result("measure")
        return {
            "front": solved["front"],
            "front_points": solved["points"],
            "insights": measured["insights"],
            "rank": self._result("rank") if self.options.rank_networks else None,
            "evaluations": measured["rows"],
        }

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
