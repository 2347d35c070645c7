"""The fast plan of BINAS: small networks tried for the tightest limit, the best trained on, and grown where it pays.

1. ``plan``: from timed training steps, how the given minutes are shared out. The networks to try are exact answers of
   one problem with two resources: the tightest limit, and the time of a training step.
2. ``candidates``: each is trained for the same short time.
3. ``train``: the network that a person would try, or a candidate clearly better than it, is the trunk and is trained
   on. For each looser limit the best network so far grows to the largest that the limit and the time allow, without
   changing its function, and is trained on; a growth that does not pay on validation is dropped, and the next limit's
   time goes on with what it came from. Every training is steady first and anneals at its end; larger networks grow
   from the steady state. Where the time is too short for that the trunk gets all of it, and answers every limit.
4. ``choose``: what was trained is timed again. Every answer is the best on validation within its limit, so that a
   looser limit is never worse.

The plan is made once and kept, and counts steps: a resumed run, or one with ``plan_from``, trains the same networks.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import ValidationError

from archwright.costs.additive import StagedCosts
from archwright.costs.limits import met
from archwright.costs.measure import Timing, measure
from archwright.costs.tables import LatencyTable
from archwright.data import Augmentation, Batches, Steps
from archwright.data.augmentation import Augment
from archwright.errors import InputError, RunError
from archwright.export import has_onnx
from archwright.methods.binas.latency import MARGIN, limit_above
from archwright.methods.binas.options import BinasOptions, Summary
from archwright.methods.binas.plan import PLAIN_WIDTH, STEP, Plan, default_minutes, step_fit
from archwright.methods.binas.repeat import RepeatResult, source_of, take_over
from archwright.methods.binas.tables import Tables
from archwright.methods.binas.trunk import Trained, Trunk, order
from archwright.models import load_member
from archwright.runs.files import Json
from archwright.runs.run import Run
from archwright.search.answer import Candidate
from archwright.search.beside import PlainNetwork
from archwright.search.context import Context
from archwright.search.final import keep_answer
from archwright.search.method import Stage
from archwright.search.values import StageResult
from archwright.spaces.compact import Compact, CompactArchitecture
from archwright.training import Recipe, train

LEARNING_RATE = 0.05
LABEL_SMOOTHING = 0.1
FEW_IMAGES = 1000
"""Up to so many training images the batches are half as large, which is more steps in the same time."""
STEP_BATCH = 16
"""Images of a timed training step of a block; whole networks tell what the real batch takes."""
STEP_TIMING = Timing(batch=STEP_BATCH, warm_up=1, repeats=3, training=True)
OVERHEAD_STEPS = 25
"""Steps of a real training that are timed to know what each takes beyond its forward and backward pass."""
LOOSER = 1.8
"""A search without limits gets the latency of a plain network, and so many times it."""
FEW_PHOTOGRAPHS, SHOWN = 2000, {"crop": 0, "cutout": 0, "zoom": 0.6, "colour": 0.4}
"""Up to so many training images the default augmentation of photographs becomes this stronger one."""
KEPT_BACK = 0.06
"""Part of the minutes that is kept for timing, testing and saving."""
LEAST_TRAINING = 0.3
"""Part of the minutes that is spent on training even where the tables took too long."""
STEPS_FILE = "artifacts/steps.json"
"""The table of training steps, which a repeated plan takes over, too."""


class CandidatesResult(StageResult):
    """Names of the networks that were tried."""

    networks: list[str]


class TrainResult(StageResult):
    """One record a limit, the tightest first: which network, what it came from, how, and whether it paid."""

    answers: list[dict[str, Any]]


class ChooseResult(StageResult):
    """Fields of a candidate for every limit, but for what can be counted."""

    models: list[dict[str, Any]]


@dataclass
class FastPlan:
    """The stages between the table and the answer."""

    context: Context
    options: BinasOptions
    space: Compact
    tables: Tables

    # --- settings ---

    @cached_property
    def recipe(self) -> Recipe:
        """Of a training of counted steps, which are one pass."""
        c, data = self.context.configuration, self.context.task.data
        usual = 32 if len(data.train) <= FEW_IMAGES else 64
        return self.context.task.recipe.changed(
            epochs=1,
            warmup_epochs=0.1,
            lr=c.lr or LEARNING_RATE,
            batch_size=min(c.batch_size or usual, len(data.train)),
            label_smoothing=LABEL_SMOOTHING,
        )

    @cached_property
    def augment(self) -> Augment | None:
        """Of all trainings: few photographs in colour are seen often, and are shown in more ways."""
        task = self.context.task
        usual = task.augmentation()
        photographs = isinstance(usual, Augmentation) and usual.flip and task.data.image_channels == 3
        return task.augmentation(**SHOWN) if photographs and len(task.data.train) <= FEW_PHOTOGRAPHS else usual

    @property
    def plain_recipe(self) -> Recipe:
        """Of the plain network beside: the same."""
        return self.recipe

    @property
    def seconds(self) -> float:
        """What the user spends."""
        minutes, data = self.context.configuration.minutes, self.context.task.data
        return 60 * (minutes or default_minutes(len(data.train), data.image_size))

    def estimate_seconds(self) -> float:
        """What the user spends."""
        return self.seconds

    def check(self) -> None:
        """A plan to repeat must be there, and of the same space."""
        _ = self.recipe
        if self.context.run.stage_result("plan") is not None:
            _ = self.plan
        if self.options.plan_from is None:
            return
        source = source_of(self.options.plan_from, (STEPS_FILE,))
        c, own = self.context.configuration, _plan_of(source)
        if c.limits and self.context.run.stage_result("train") is None and len(c.limit_sets) != own.limits:
            raise InputError(
                f"as many limits as the plan of {source.folder} is for: {own.limits}", str(len(c.limit_sets))
            )
        for name in ("latency.json", "steps.json"):
            LatencyTable.load(source.folder / "artifacts" / name).check(self.space)

    def limits_without(self, table: LatencyTable) -> list[float]:
        """The latency of a plain network and nearly twice that."""
        (plain,) = table.predict(self.space, [self.space.plain(width=PLAIN_WIDTH)]).tolist()
        return [round(plain / MARGIN, 4), round(LOOSER * plain, 4)]

    def stages(self) -> list[Stage]:
        """In order."""
        return [
            *([Stage("repeat", "take over a plan", self._repeat)] if self.options.plan_from else []),
            Stage("table", "latency table", self.tables.make),
            Stage("plan", "plan", self.make),
            Stage("candidates", "try networks", self._candidates),
            Stage("train", "train and grow", self._train),
            Stage("choose", "choose", self._choose),
        ]

    def _repeat(self) -> RepeatResult:
        assert self.options.plan_from is not None
        return take_over(self.context.run, self.options.plan_from, (STEPS_FILE,))

    # --- plan ---

    def make(self) -> Plan:
        """The stage ``plan``: time training steps, and say how the time is shared out.

        Steps are timed in the processor's time; on a busy machine only a share of the seconds on the wall is that.
        """
        context = self.context
        begin, worked = time.perf_counter(), self._clock()
        timing = replace(STEP_TIMING, processor=context.device.name)
        steps = self.tables.measured(timing, "training steps", "steps", networks=0)
        steps.save(context.run.artifact("steps.json"))
        least = steps.costs(self.space).problem(self.space).cost_range("latency_ms")[0]
        factor, offset = self._step_fit(steps, least)
        (first,) = steps.predict(self.space, [self.space.plain(width=PLAIN_WIDTH)]).tolist()
        overhead = self._overhead_ms()
        plain = self._plain_step_ms() + overhead
        share = (self._clock() - worked) / (time.perf_counter() - begin)
        left = (1 - KEPT_BACK) * self.seconds - context.run.seconds_spent()
        plan = Plan(
            seconds=max(left, LEAST_TRAINING * self.seconds) * min(1.0, share),
            limits=len(self.tables.limit_sets),
            first_step_ms=factor * first + offset,
            steps_a_pass=len(context.task.data.train) / self.recipe.batch_size,
            least_step_ms=factor * least + offset,
            overhead_ms=overhead,
            plain_step_ms=plain,
            step_factor=factor,
            step_offset_ms=offset,
        )
        further = f", {plan.growth_seconds:.3g} s for each further one" if plan.limits > 1 and plan.shared else ""
        context.progress.say(
            f"Plan: {plan.candidate_seconds(1):.3g} s for networks to try, {plan.trunk_seconds:.3g} s for the first "
            f"answer{further}, {plan.plain_seconds:.3g} s for a plain network beside."
        )
        return plan

    def _step_fit(self, steps: LatencyTable, least: float) -> tuple[float, float]:
        """Factor and offset from the table's sum of blocks to a step of the real batch, of a range of plain networks.

        What a block costs beside its arithmetic counts less in a larger batch: small networks are quicker than their
        sums say, large ones slower.
        """
        shapes = [(1, 0), (1, PLAIN_WIDTH), (2, self.space.most_widths - 1)]
        networks = [self.space.plain(min(depth, max(self.space.depths)), width) for depth, width in shapes]
        timed = [self._step_ms(self.space.build(one, self.space.scale)) for one in networks]
        return step_fit(steps.predict(self.space, networks), np.array(timed), least)

    def _plain_step_ms(self) -> float:
        return self._step_ms(PlainNetwork(self.context.task.data))

    def _step_ms(self, network: Any) -> float:
        """Of a real batch."""
        scale = self.space.scale
        shape = (scale.image_channels, scale.image_size, scale.image_size)
        timing = Timing(
            threads=self.context.device.threads,
            batch=self.recipe.batch_size,
            warm_up=2,
            repeats=9,
            training=True,
            processor=self.context.device.name,
        )
        return measure(network, shape, timing).median_ms

    def _clock(self) -> float:
        """Seconds of this process; on the wall where several threads or another device share the work."""
        device = self.context.device
        return time.process_time() if device.threads == 1 and device.name == "cpu" else time.perf_counter()

    def _overhead_ms(self) -> float:
        """What a step of a real training takes beyond the timed one: its images, their augmentation, bookkeeping."""
        recipe, device = self.recipe, self.context.device.name
        network = self.space.build(self.space.plain(width=PLAIN_WIDTH), self.space.scale)
        batches = Batches(self.context.task.data, "train", recipe.batch_size, augment=self.augment, device=device)
        ends: list[float] = []
        steps = Steps(batches, OVERHEAD_STEPS)
        train(network, steps, recipe, seed=0, device=device, on_step=lambda _: ends.append(self._clock()))
        return max(0.0, 1000 * float(np.median(np.diff(ends))) - self._step_ms(network))

    @property
    def plan(self) -> Plan:
        """As it was made and kept."""
        return _plan_of(self.context.run)

    @property
    def plain_steps(self) -> int:
        """Steps of the plain network beside: what fits into the mean time of an answer."""
        return self.plan.plain_steps

    def trunk(self, plan: Plan) -> Trunk:
        """What proposes and trains, by a plan."""
        steps = LatencyTable.load(self.context.run.artifact("steps.json")).costs(self.space, STEP)
        problem = (self.tables.costs | _fitted(steps, plan)).problem(self.space)
        return Trunk(self.context, self.space, problem, self.recipe, self.augment, self.tables.clock)

    # --- training ---

    @property
    def _ordered_limits(self) -> list[dict[str, float]]:
        """The tightest first."""
        return sorted(self.tables.limit_sets, key=lambda limits: list(limits.values()))

    def _candidates(self) -> CandidatesResult:
        """A short training of everything proposed for the tightest limit."""
        found = self.trunk(self.plan).candidates(self._ordered_limits[0], self.plan)
        best = max(one.validation_accuracy for one in found)
        self.context.progress.say(f"Tried {len(found)} networks: up to {best:.1f} % on validation.")
        return CandidatesResult(networks=[one.name for one in found])

    def _train(self) -> TrainResult:
        """One training a limit, the tightest first."""
        plan, log = self.plan, self.context.run.items("answers")
        trunk = self.trunk(plan)
        for limits in self._ordered_limits:
            key = json.dumps(limits)
            if key not in log.done:
                log.record(key, trunk.train_answer(limits, plan))
                self.context.progress.say(self._sentence(limits, log.done[key], trunk.trained(), trunk.steady()))
        return TrainResult(answers=[log.done[json.dumps(limits)] for limits in self._ordered_limits])

    @staticmethod
    def _sentence(limits: dict[str, float], one: Json, trained: dict[str, Trained], steady: dict[str, Trained]) -> str:
        """What became of a limit's training, for people."""
        new, base = trained[one["trained"]], trained[one["base"]]
        where = ", ".join(f"{name} {limit:.3g}" for name, limit in limits.items())
        if one["how"] == "kept":
            return f"{where}: the network before it is kept: {one['why']}."
        before = {**trained, **steady}[one["from"]]
        change = f"{base.validation_accuracy:.1f} -> {new.validation_accuracy:.1f} % on validation"
        return f"{where}: {one['how']} for {new.steps - before.steps} steps, {change}" + (
            "." if one["paid"] else ": it does not pay, and is left out."
        )

    # --- choosing ---

    def _choose(self) -> ChooseResult:
        """Time what was trained, give every limit the best within it, test and save these."""
        context, trunk = self.context, self.trunk(self.plan)
        pool = trunk.pool()
        with context.progress.task("timing and testing", len(self.tables.limit_sets)) as bar:
            known = {one.name: self._timed(one) for one in pool}
            chosen = []
            for limits in self.tables.limit_sets:
                within = [one for one in pool if met(limits, known[one.name]["costs"])]
                if not within:
                    context.progress.say(
                        f"Warning: nothing keeps {limits} as timed now; the answer did when it was chosen. "
                        "Measure again on a quiet machine: archwright runs resume RUN --remeasure"
                    )
                    within = [one for one in pool if one.within(limits)] or [min(pool, key=lambda p: p.latency_ms)]
                best = max(within, key=order)
                fields = {key: value for key, value in known[best.name].items() if key != "costs"}
                chosen.append({"limits": limits, **fields, **self._kept(best, trunk)})
                bar.advance()
        return ChooseResult(models=chosen)

    def _timed(self, one: Trained) -> dict[str, Json]:
        """What a network costs by the table, and its latency here; an architecture is timed once."""
        log, clock = self.context.run.items("timed"), self.tables.clock
        architecture = self.space.parse(one.architecture)
        predicted = self._costs(architecture)
        if one.architecture not in log.done:
            limit = limit_above(self.tables.limit_sets, one.latency_ms)
            log.record(one.architecture, None if clock is None else clock.time_within(architecture, limit).model_dump())
        timed = log.done[one.architecture]
        latency = predicted["latency_ms"] if timed is None else timed["median_ms"]
        return {
            "architecture": one.architecture,
            "costs": {**predicted, "latency_ms": latency},
            "predicted_latency_ms": predicted["latency_ms"],
            "measured_latency_ms": timed,
            "memory_bytes": round(predicted["memory_bytes"]),
            "details": {"steps": one.steps, "network": one.name},
        }

    def _costs(self, architecture: CompactArchitecture) -> dict[str, float]:
        problem = self.tables.costs.problem(self.space)
        return {name: float(cost) for name, cost in problem.evaluate(self.space.to_choice(architecture))[1].items()}

    def _kept(self, one: Trained, trunk: Trunk) -> dict[str, Json]:
        """Tested and saved once."""
        log, recipe, data = self.context.run.items("kept"), self.recipe, self.context.task.data
        if one.name not in log.done:
            model = load_member(trunk.file(one.name))
            epochs = max(1, round(one.steps * recipe.batch_size / len(data.train)))
            kept = keep_answer(
                self.context,
                model.network,
                model.architecture,
                self.space.scale,
                f"model-{len(log.done) + 1}",
                epochs,
                onnx=has_onnx(),
            )
            log.record(one.name, kept.model_dump(mode="json"))
        kept_before: dict[str, Json] = log.done[one.name]
        return kept_before

    def models(self) -> list[dict[str, Any]]:
        """Each limit with its network: fields of a candidate, but for what can be counted."""
        return ChooseResult.model_validate(self.context.run.stage_result("choose")).models

    def summary(self) -> Summary:
        """What the answer says beside the models: all that was trained and is not dominated, and what was tried."""
        trunk = self.trunk(self.plan)
        trained, steady, front, best = trunk.trained(), trunk.steady(), list[Candidate](), -np.inf
        for one in sorted(trained.values(), key=lambda t: (t.latency_ms, -t.validation_accuracy)):
            if one.validation_accuracy > best:
                best = one.validation_accuracy
                known = {"validation_accuracy": best, "latency_ms": one.latency_ms}
                front.append(Candidate(architecture=one.architecture, **known))
        answers = self.context.run.items("answers").done
        sentences = [self._sentence(json.loads(key), one, trained, steady) for key, one in answers.items()]
        return Summary(front, len(trained), sentences, {"plan": self.plan.model_dump()})


def _plan_of(run: Run) -> Plan:
    """The plan that a run goes by."""
    try:
        return Plan.model_validate(run.stage_result("plan"))
    except ValidationError as error:
        raise RunError(
            f"expected a plan as this version makes it, got another one in {run.folder}. Start a new search."
        ) from error


def _fitted(costs: StagedCosts, plan: Plan) -> StagedCosts:
    """Steps as the plan's fit to whole networks has them."""
    factor, offset = plan.step_factor, plan.step_offset_ms
    return StagedCosts(
        {name: factor * table for name, table in costs.block_costs.items()},
        {name: factor * fixed + offset for name, fixed in costs.fixed_costs.items()},
        {name: factor * table for name, table in costs.depth_costs.items()},
    )
