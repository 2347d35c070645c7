"""The plan of BINAS from pretrained weights: what is known first, then networks around it, for few images.

1. ``floor``: a logistic regression on the frozen network's features at every image size, seen after seconds. No answer
   is below it on validation where the whole network keeps the limit.
2. ``table``: which image sizes the limits allow, and one latency table for them.
3. ``plan``: training steps are timed, and the passes over the images are counted, cut to the minutes there are.
4. ``trunk``: the whole network is fine-tuned at the largest size, even where it keeps no limit there. All others start
   from it, so that one training serves every limit.
5. ``changes``: what each single change of it costs: fewer blocks, smaller expansions in the last stages.
6. ``train``: for each limit the whole network at the largest size at which it keeps it, which is what one would take
   without a search, and the most promising of the exact best networks at larger sizes that are not much thinner; each
   is tuned by itself, as what promises most is not always best.
7. ``choose``: what was trained is timed, and every limit gets the slowest network within it that validation does not
   find clearly worse than another, so that a looser limit is never clearly worse.

Steps are counted in the plan, so a killed run goes on to the same answer.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from archwright.costs.limits import met
from archwright.costs.measure import Timing, measure
from archwright.costs.tables import LatencyTable
from archwright.data.augmentation import Augment
from archwright.errors import InfeasibleError, InputError
from archwright.export import has_onnx
from archwright.methods.binas.fast import LABEL_SMOOTHING as PLAIN_SMOOTHING
from archwright.methods.binas.fast import LEARNING_RATE as PLAIN_RATE
from archwright.methods.binas.fast import ChooseResult
from archwright.methods.binas.latency import limit_above
from archwright.methods.binas.options import BinasOptions, Summary
from archwright.methods.binas.repeat import RepeatResult, source_of, take_over
from archwright.methods.binas.sizes import SizedResult, SizedTables
from archwright.methods.binas.trunk import order
from archwright.methods.binas.tuning import Sized, Tuner
from archwright.pretrained import Weights
from archwright.runs.files import Json, write_json
from archwright.runs.run import Run
from archwright.search.answer import Beside, Candidate
from archwright.search.beside import PlainNetwork
from archwright.search.context import Context
from archwright.search.final import keep_answer
from archwright.search.jobs import measure as accuracy_of
from archwright.search.method import Stage
from archwright.search.values import StageResult
from archwright.solvers import milp
from archwright.solvers.pareto import front
from archwright.solvers.problem import Solution, StagedChoice
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.training import Recipe

FLOOR = "frozen features + logistic regression"
TRUNK_EPOCHS, TUNED_EPOCHS = 5.0, 3.0
"""Passes over the training images: of the trunk, and of each candidate after it."""
FEWEST_STEPS = 30
"""Of a training, however few the images are."""
LEAST_LOSS = 0.003
"""Cross entropy that a change is thought to cost at least: nothing is left out for the noise of few images."""
CLEARLY, AS_SLOW = 2.0, 0.9
"""Standard errors from which on an accuracy is clearly lower; the part of a latency that is nearly as slow."""
CANDIDATES = 2
"""Networks that are tuned for each limit, at most."""
LEAST_SHARE = 2 / 3
"""Part of the whole network's latency at its size that a thinner one must have to be worth tuning: with less left of it
the whole network at a smaller size was better in five of six trials, and the time is better spent on the others."""
MOST_MINUTES = 60.0
"""Of a search that was given none."""
MOST_PATIENCE = 3.0
"""With minutes to spare trainings are longer, by so many times at most."""
FIXED_SECONDS, IMAGE_MS = 60.0, 16.0
"""What a search takes beside training, and an image of a training step, on one core: an estimate before timing."""
KEPT_BACK = 0.08
"""Part of the minutes that is kept for timing, testing and saving."""
TIMED_STEP = 2
"""Repeats of a timed training step."""


class FloorResult(StageResult):
    """What was started from, and the accuracy of frozen features on validation by image size."""

    pretrained: dict[str, Any]
    validation_accuracy: dict[int, float]


class TuningPlan(StageResult):
    """Steps of every training, and what they were counted by.

    Attributes:
        step_ms: of the whole network, by size: those that are searched and the trunk's.
        factor: how much longer or shorter trainings are than usual, by the minutes there are.
        seconds: of all these trainings together, at most.
        trunk_size: that the whole network is fine-tuned at.
    """

    step_ms: dict[int, float]
    factor: float
    seconds: float
    trunk_size: int
    trunk_steps: int
    tuned_steps: int
    plain_steps: int


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds of training steps: of the whole network by size, and of the plain network beside."""

    whole: dict[int, float]
    plain: float


class ChangesResult(StageResult):
    """What changes of the whole network cost: cross entropy on validation above the whole network's.

    Attributes:
        base: cross entropy of the whole network, by size.
        depths: (S, D), of a stage cut to that depth; 0 where it has no such depth.
        blocks: (S, D, C), of a block with that configuration.
    """

    base: dict[int, float]
    depths: list[list[float]]
    blocks: list[list[list[float]]]


class TrunkResult(StageResult):
    """Accuracy of the fine-tuned network on validation, by size."""

    validation_accuracy: dict[int, float]


class TunedResult(StageResult):
    """Names of the networks that were tuned."""

    networks: list[str]


@dataclass
class PretrainedPlan:
    """The stages between the check and the answer."""

    context: Context
    options: BinasOptions
    weights: Weights
    tables: SizedTables

    @cached_property
    def tuner(self) -> Tuner:
        """What trains."""
        return Tuner(self.context, self.weights)

    @property
    def plain_recipe(self) -> Recipe:
        """Of the plain network beside, which starts from scratch."""
        return self.context.task.recipe.changed(
            epochs=1,
            warmup_epochs=0.1,
            lr=PLAIN_RATE,
            batch_size=self.tuner.recipe.batch_size,
            label_smoothing=PLAIN_SMOOTHING,
        )

    @property
    def augment(self) -> Augment | None:
        """Of the plain network beside."""
        return self.context.task.augmentation()

    def check(self) -> None:
        """The images must load at every size that is looked at."""
        _ = self.tuner.recipe
        self.tuner.data(self.tables.allowed[-1])
        if self.options.plan_from is not None:
            source = source_of(self.options.plan_from)
            table = LatencyTable.load(source.folder / "artifacts" / "latency.json")
            for size in SizedResult.model_validate(source.stage_result("table")).sizes:
                table.check(self.tables.space(size))
            _ = plan_of(source)

    def estimate_seconds(self) -> float:
        """What the user spends; without minutes, by the images there are."""
        minutes, images = self.context.configuration.minutes, len(self.context.task.data.train)
        limits = len(self.context.configuration.limit_sets) if self.context.configuration.limits else 2
        passes = TRUNK_EPOCHS + CANDIDATES * limits * TUNED_EPOCHS
        rough = FIXED_SECONDS + passes * images * IMAGE_MS / 1000
        return 60 * minutes if minutes else min(60 * MOST_MINUTES, rough)

    def stages(self) -> list[Stage]:
        """In order."""
        return [
            *([Stage("repeat", "take over a plan", self._repeat)] if self.options.plan_from else []),
            Stage("floor", "frozen features", self._floor),
            Stage("table", "latency table", self.tables.make),
            Stage("plan", "plan", self._plan),
            Stage("trunk", "fine-tune the whole network", self._trunk),
            Stage("changes", "networks around it", self._changes),
            Stage("train", "tune candidates", self._train),
            Stage("choose", "choose", self._choose),
        ]

    def _repeat(self) -> RepeatResult:
        assert self.options.plan_from is not None
        return take_over(self.context.run, self.options.plan_from)

    # --- before training ---

    def _floor(self) -> FloorResult:
        """Logistic regression on frozen features, size by size."""
        context, facts = self.context, self.weights.facts()
        context.progress.say(
            f"Starting from {facts['name']}, trained on ImageNet: {facts['origin']}; licence: {facts['licence']}; "
            f"SHA-256 {facts['sha256'][:16]}... (--pretrained none starts from scratch)."
        )
        if context.task.data.image_channels == 1:
            context.progress.say("The images are grey and the weights are for colour: they get three equal channels.")
        found = {}
        with context.progress.task("frozen features", len(self.tables.allowed)) as bar:
            for size in self.tables.allowed:
                context.stop.check()
                nothing = {"costs": {}, "latency_ms": 0.0}  # not measured yet
                found[size] = self.tuner.floor(self.tables.space(size), **nothing).validation_accuracy
                bar.advance()
        shown = ", ".join(f"{accuracy:.1f} % at {size} px" for size, accuracy in found.items())
        context.progress.say(f"Frozen features and logistic regression have {shown} on validation.")
        return FloorResult(pretrained=facts, validation_accuracy=found)

    def _plan(self) -> TuningPlan:
        """Time training steps, and cut the trainings to the minutes there are."""
        context = self.context
        begin, worked = time.perf_counter(), self._clock()
        steps = self.timed_steps()
        share = min(1.0, (self._clock() - worked) / (time.perf_counter() - begin))
        spent = context.run.seconds_spent()
        left = ((1 - KEPT_BACK) * 60 * (context.configuration.minutes or MOST_MINUTES) - spent) * share
        plan = self.counted(steps, left, MOST_PATIENCE if context.configuration.minutes else 1.0)
        context.progress.say(
            f"Plan: {plan.trunk_steps} steps for the whole network at {plan.trunk_size} px, {plan.tuned_steps} for "
            f"each candidate; about {plan.seconds / share:.3g} s."
        )
        return plan

    def timed_steps(self) -> StepTimes:
        """Of the whole network at every searched size, and of the plain network beside."""
        data = self.context.task.data
        shape = (data.image_channels, data.image_size, data.image_size)
        plain = measure(PlainNetwork(data), shape, self._timing()).median_ms
        sizes = sorted({*self.tables.result.sizes, self._trunk_size})
        return StepTimes({size: self._step_ms(size) for size in sizes}, plain)

    @property
    def _trunk_size(self) -> int:
        """The largest that the images allow."""
        return self.tables.allowed[-1]

    def counted(self, times: StepTimes, left: float, patience: float) -> TuningPlan:
        """Steps of every training: what fits into ``left`` seconds, at most ``patience`` times the usual ones."""
        images, batch = len(self.context.task.data.train), self.tuner.recipe.batch_size
        usual = [max(FEWEST_STEPS, round(own * images / batch)) for own in (TRUNK_EPOCHS, TUNED_EPOCHS)]
        sizes, whole = self.tables.result.sizes, self._whole_sizes()
        size, quickest = self._trunk_size, min(times.whole.values())
        thinner = self._thinner(whole)
        tuned_ms = thinner * float(np.mean([times.whole[own] for own in sizes])) + quickest  # the plain network beside
        tuned_ms += sum(times.whole[own] for own in {*whole} - {size, None} if own)
        seconds = (usual[0] * times.whole[size] + usual[1] * tuned_ms) / 1000
        factor = float(np.clip(left / seconds, 0.05, patience))
        trunk, own = (max(1, round(factor * steps)) for steps in usual)
        return TuningPlan(
            step_ms=times.whole,
            factor=factor,
            seconds=factor * seconds,
            trunk_size=size,
            trunk_steps=trunk,
            tuned_steps=own,
            plain_steps=max(1, round(own * quickest / times.plain)),
        )

    def _whole_sizes(self) -> list[int | None]:
        """For each limit the largest size at which the whole network keeps it, by the table; None for none."""
        return [max(self._sizes_within(one, 1.0), default=None) for one in self.tables.limit_sets]

    def _sizes_within(self, limits: dict[str, float], share: float) -> list[int]:
        """Sizes at which a network that costs this share of the whole one keeps ``limits``, by the table."""
        known = {space.scale.image_size: self._whole(space)["costs"] for space in self.spaces}
        return [
            size for size, costs in known.items() if met(limits, {name: share * cost for name, cost in costs.items()})
        ]

    def _thinner(self, whole: Sequence[int | None]) -> int:
        """Thinner networks that are tuned for all limits together, where ``whole`` are the sizes of whole ones."""
        count = 0
        for limits, own in zip(self.tables.limit_sets, whole, strict=True):
            larger = [size for size in self._sizes_within(limits, LEAST_SHARE) if own is None or size > own]
            most = CANDIDATES if own is None else CANDIDATES - 1
            count += min(most, len(larger)) if larger or own is not None else CANDIDATES
        return count

    def _step_ms(self, size: int) -> float:
        network = self.weights.network(self.context.task.data.classes, size)
        return measure(network, (3, size, size), self._timing()).median_ms

    def _timing(self) -> Timing:
        device, batch = self.context.device, self.tuner.recipe.batch_size
        return Timing(
            threads=device.threads, batch=batch, warm_up=1, repeats=TIMED_STEP, training=True, processor=device.name
        )

    def _clock(self) -> float:
        """Seconds of this process; on the wall where several threads or another device share the work."""
        device = self.context.device
        return time.process_time() if device.threads == 1 and device.name == "cpu" else time.perf_counter()

    @property
    def plan(self) -> TuningPlan:
        """As it was made and kept."""
        return plan_of(self.context.run)

    @property
    def plain_steps(self) -> int:
        """Steps of the plain network beside: what fits into the time of the quickest candidate."""
        return self.plan.plain_steps

    # --- training ---

    @property
    def spaces(self) -> list[MbConv]:
        """The networks at each searched size, the smallest first."""
        return [self.tables.space(size) for size in self.tables.result.sizes]

    def _known(self, space: MbConv, choice: StagedChoice) -> dict[str, Any]:
        """Costs by the table."""
        costs = self.tables.costs(space.scale.image_size).evaluate(choice)[1]
        return {"costs": {name: float(cost) for name, cost in costs.items()}, "latency_ms": float(costs["latency_ms"])}

    def _whole(self, space: MbConv) -> dict[str, Any]:
        """Costs of the whole network by the table."""
        return self._known(space, space.to_choice(space.heaviest()))

    def _trunk(self) -> TrunkResult:
        plan = self.plan
        known = {space: self._whole(space) for space in self.spaces}
        trained = self.tuner.trunk(self.tables.space(plan.trunk_size), plan.trunk_steps, known)
        found = {one.image_size: one.validation_accuracy for one in trained}
        shown = ", ".join(f"{accuracy:.1f} % at {size} px" for size, accuracy in found.items())
        self.context.progress.say(
            f"Fine-tuned at {plan.trunk_size} px, the whole network has {shown} on validation; others start from it."
        )
        return TrunkResult(validation_accuracy=found)

    def _changes(self) -> ChangesResult:
        """Measure what each single change of the whole network costs, at the middle size."""
        space, tuner = self.spaces[len(self.spaces) // 2], self.tuner
        whole = space.to_choice(space.heaviest())
        changes = single_changes(space)
        losses = tuner.losses(space, [whole, *changes.values()])
        depths, blocks = np.zeros(space.shape[:2]), np.zeros(space.shape)
        for place, loss in zip(changes, losses[1:], strict=True):
            (depths if len(place) == 2 else blocks)[place] = max(LEAST_LOSS, loss - losses[0])
        sizes, trained = self.tables.result.sizes, tuner.trained()
        base = {size: trained[f"trunk-{size}"].loss for size in sizes}
        return ChangesResult(base=base, depths=depths.tolist(), blocks=blocks.tolist())

    def _train(self) -> TunedResult:
        """Propose for each limit, the tightest first, and tune what is proposed."""
        names = list[str]()
        self._keep_fronts()
        for limits in sorted(self.tables.limit_sets, key=lambda one: list(one.values())):
            for one in self._propose(limits):
                space = self.tables.space(one["image_size"])
                known = {"costs": one["costs"], "latency_ms": one["latency_ms"]}
                found = self._tuned(space.parse(one["architecture"]), space, known)
                where = ", ".join(f"{name} {limit:.3g}" for name, limit in limits.items())
                if found.name not in names:
                    self.context.progress.say(f"{where}: {self._sentence(found)}")
                    names.append(found.name)
        return TunedResult(networks=names)

    def _tuned(self, architecture: MbConvArchitecture, space: MbConv, known: dict[str, Any]) -> Sized:
        """After a training of its own; the whole network at the trunk's size has had it."""
        plan, size = self.plan, space.scale.image_size
        if size == plan.trunk_size and architecture == space.heaviest():
            return self.tuner.trained()[f"trunk-{size}"]
        return self.tuner.tuned(architecture, space, plan.tuned_steps, **known)

    def _sentence(self, one: Sized) -> str:
        space = self.tables.space(one.image_size)
        whole, own = space.heaviest(), space.parse(one.architecture)
        blocks = f"{sum(map(len, own.stages))} of {sum(map(len, whole.stages))} blocks"
        shape = "the whole network" if own == whole else f"{blocks}, {one.costs['params'] / 1e6:.2f} million parameters"
        return (
            f"{shape} at {one.image_size} px, {one.latency_ms:.3g} ms: {one.validation_accuracy:.1f} % on validation."
        )

    def _values(self, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64], None, float]:
        """Of blocks and depths, none of widths, and of the whole network: minus what they cost."""
        found = ChangesResult.model_validate(self.context.run.stage_result("changes"))
        return -np.array(found.blocks), -np.array(found.depths), None, -found.base[size]

    def _keep_fronts(self) -> None:
        """Write the union of the sizes' exact fronts: no network of any size is quicker and promises more."""
        points: list[dict[str, Any]] = []
        for space in self.spaces:
            size = space.scale.image_size
            found = front(self.tables.costs(size, *self._values(size)), "latency_ms")
            choices = found.choices()
            points += [
                {
                    "image_size": size,
                    "architecture": str(space.from_choice(choices[n])),
                    "latency_ms": ms,
                    "loss": -value,
                }
                for n, (ms, value) in enumerate(zip(found.costs.tolist(), found.values.tolist(), strict=True))
            ]
        points.sort(key=lambda one: (one["latency_ms"], one["loss"]))
        best, union = np.inf, []
        for one in points:
            if one["loss"] < best:
                best = one["loss"]
                union.append(one)
        write_json(self.context.run.artifact("front.json"), {"certificate": "exact", "points": union})

    def _propose(self, limits: dict[str, float]) -> list[Json]:
        """What is tuned for ``limits``; kept, as timing does not repeat."""
        log, key = self.context.run.items("proposals"), json.dumps(limits)
        if key not in log.done:
            found = [one for one in (self._fitting(space, limits) for space in self.spaces) if one is not None]
            if not found:
                raise InfeasibleError(
                    f"no network within {limits} was found at {', '.join(map(str, self.tables.result.sizes))} px. "
                    "Raise the limit, or search on a quieter machine."
                )
            log.record(key, most_promising(found))
        proposals: list[Json] = log.done[key]
        return proposals

    def _fitting(self, space: MbConv, limits: dict[str, float]) -> Json | None:
        """The best network of one size, timed and stepped down where there is a clock; None where there is none."""
        size = space.scale.image_size
        problem, clock = self.tables.costs(size, *self._values(size)), self.tables.clock_at(size)

        def solve(within: dict[str, float]) -> Solution:
            return milp.solve(problem, within)

        timed = None
        try:
            if clock is None:
                solution = solve(limits)
            else:
                solution, timed, _ = clock.step_down(solve, limits, problem.cost_range("latency_ms")[0])
        except InfeasibleError:
            return None
        architecture = space.from_choice(solution.choice)
        return {
            "architecture": str(architecture),
            "whole": architecture == space.heaviest(),
            "image_size": size,
            "costs": dict(solution.costs),
            "latency_ms": solution.costs["latency_ms"] if timed is None else timed.median_ms,
            "share": solution.costs["latency_ms"] / self._whole(space)["latency_ms"],
            "value": solution.value,
        }

    # --- choosing ---

    def _pool(self) -> list[Sized]:
        """All networks an answer may be, at the searched sizes: the floor, and what was trained at its size."""
        known, elsewhere = self.tables.result.sizes, {*self.tables.result.sizes} - {self.plan.trunk_size}
        unfit = {f"trunk-{size}" for size in elsewhere}
        return [one for one in self.tuner.trained().values() if one.image_size in known and one.name not in unfit]

    def _choose(self) -> ChooseResult:
        """Time what was trained, give every limit what is preferred of what keeps it, test and save these."""
        context, pool = self.context, self._pool()
        with context.progress.task("timing and testing", len(pool)) as bar:
            known = {}
            for one in pool:
                known[one.name] = self._timed(one)
                bar.advance()
        chosen = []
        for limits in self.tables.limit_sets:
            within = [one for one in pool if met(limits, known[one.name]["costs"])]
            if not within:
                context.progress.say(
                    f"Warning: nothing keeps {limits} as timed now; the quickest network is taken. "
                    "Measure again on a quiet machine: archwright runs resume RUN --remeasure"
                )
                within = [min(pool, key=lambda one: known[one.name]["costs"]["latency_ms"])]
            best = self._preferred(within, [known[one.name]["costs"]["latency_ms"] for one in within])
            fields = {name: value for name, value in known[best.name].items() if name != "costs"}
            chosen.append({"limits": limits, **fields, **self._kept(best)})
        return ChooseResult(models=chosen)

    def _preferred(self, within: list[Sized], latencies: list[float]) -> Sized:
        """What to take of them: of what was trained, where it is not below the best of frozen features; else these."""
        floors = [one for one in within if not one.steps]
        bar = max((one.validation_accuracy for one in floors), default=0.0)
        above = [number for number, one in enumerate(within) if one.steps and one.validation_accuracy >= bar]
        if not above:
            return max(floors, key=order)
        accuracies = [within[number].validation_accuracy for number in above]
        count = len(self.context.task.data.validation)
        return within[above[preferred(accuracies, [latencies[number] for number in above], count)]]

    def _timed(self, one: Sized) -> dict[str, Json]:
        """What a network costs by the table, and its latency here; timed once for all networks of one shape."""
        space, clock, log = (
            self.tables.space(one.image_size),
            self.tables.clock_at(one.image_size),
            self.context.run.items("timed"),
        )
        architecture, key = space.parse(one.architecture), f"{one.image_size} {one.architecture}"
        predicted = self._known(space, space.to_choice(architecture))["costs"]
        if key not in log.done:
            self.context.stop.check()
            limit = limit_above(self.tables.limit_sets, predicted["latency_ms"])
            log.record(key, None if clock is None else clock.time_within(architecture, limit).model_dump())
        timed = log.done[key]
        latency = predicted["latency_ms"] if timed is None else timed["median_ms"]
        return {
            "architecture": one.architecture,
            "image_size": one.image_size,
            "costs": {**predicted, "latency_ms": latency},
            "predicted_latency_ms": predicted["latency_ms"],
            "measured_latency_ms": timed,
            "memory_bytes": round(predicted["memory_bytes"]),
            "details": {"steps": one.steps, "network": one.name, "image_size": one.image_size},
        }

    def _kept(self, one: Sized) -> dict[str, Json]:
        """Tested and saved once."""
        log, tuner = self.context.run.items("kept"), self.tuner
        if one.name not in log.done:
            space = self.tables.space(one.image_size)
            epochs = round(one.steps * tuner.recipe.batch_size / len(self.context.task.data.train))
            kept = keep_answer(
                self.context,
                tuner.load(one.weights),
                space.parse(one.architecture),
                space.scale,
                f"model-{len(log.done) + 1}",
                epochs,
                onnx=has_onnx(),
                data=tuner.data(one.image_size),
                known={"pretrained": self.weights.facts()},
            )
            log.record(one.name, kept.model_dump(mode="json"))
        found: dict[str, Json] = log.done[one.name]
        return found

    def beside(self) -> dict[str, Beside]:
        """The floor at the size where it is best on validation, whatever its latency."""
        floors = [one for name, one in self.tuner.trained().items() if name.startswith("floor-")]
        best = max(floors, key=order)
        data = self.tuner.data(best.image_size)
        test = accuracy_of(self.tuner.load(best.weights), data, "test", self.context.device.name)
        return {
            FLOOR: Beside(
                accuracy=test.percent,
                accuracy_interval=(test.low, test.high),
                accuracy_on=f"{data.name} test, {test.count} images",
                validation_accuracy=best.validation_accuracy,
                image_size=best.image_size,
            )
        }

    def models(self) -> list[dict[str, Any]]:
        """Each limit with its network: fields of a candidate, but for what can be counted."""
        return ChooseResult.model_validate(self.context.run.stage_result("choose")).models

    def summary(self) -> Summary:
        """What the answer says beside the models."""
        run, trained = self.context.run, self.tuner.trained()
        shown, best = list[Candidate](), -np.inf
        pool = [(one, self._timed(one)) for one in self._pool()]
        for one, known in sorted(pool, key=lambda pair: (pair[1]["costs"]["latency_ms"], -pair[0].validation_accuracy)):
            if one.validation_accuracy > best:
                best = one.validation_accuracy
                cost = {"latency_ms": known["costs"]["latency_ms"], "image_size": one.image_size}
                shown.append(Candidate(architecture=one.architecture, validation_accuracy=best, **cost))
        facts = FloorResult.model_validate(run.stage_result("floor"))
        start = facts.pretrained
        tuned = TunedResult.model_validate(run.stage_result("train")).networks
        origin = f"{start['origin']}; licence: {start['licence']}; SHA-256 {start['sha256']}"
        sentences = [f"Started from {start['name']} ({origin}).", *(self._sentence(trained[name]) for name in tuned)]
        details = {
            "plan": self.plan.model_dump(),
            "pretrained": start,
            "floor": facts.validation_accuracy,
            "certificate": "exact: the union of the exact fronts of all sizes is artifacts/front.json",
        }
        return Summary(shown, len(trained), sentences, details)


def plan_of(run: Run) -> TuningPlan:
    """The plan that a run goes by."""
    try:
        return TuningPlan.model_validate(run.stage_result("plan"))
    except ValidationError as error:
        raise InputError("a plan of a search from pretrained weights", f"another one in {run.folder}") from error


def most_promising(found: list[Json]) -> list[Json]:
    """Of the best network at each size, by size: the last that is whole, then those at larger sizes by their value.

    Networks of which too little is left are not looked at, unless there are no others.
    """
    whole = [one for one in found if one["whole"]][-1:]
    larger = [one for one in found if not whole or one["image_size"] > whole[0]["image_size"]]
    solid = [one for one in larger if one["share"] >= LEAST_SHARE]
    rest = solid if solid or whole else larger
    return [*whole, *sorted(rest, key=lambda one: -one["value"])][:CANDIDATES]


def preferred(accuracies: Sequence[float], latencies: Sequence[float], images: int) -> int:
    """Which network to take, by percentages on so many validation images and by milliseconds.

    On a hundred images good networks differ by chance more than by merit, and the best of several there is often a thin
    one that was lucky. Larger networks and images are known to be better. So the slowest is taken of those that are
    less than two standard errors below the most accurate; where several are nearly as slow, the most accurate of them.
    """
    share = (images * max(accuracies) / 100 + 1) / (images + 2)
    least = max(accuracies) - 100 * CLEARLY * np.sqrt(share * (1 - share) / images)
    good = [number for number, accuracy in enumerate(accuracies) if accuracy >= least]
    slowest = max(latencies[number] for number in good)
    slow = [number for number in good if latencies[number] >= AS_SLOW * slowest]
    return max(slow, key=lambda number: (accuracies[number], latencies[number]))


def single_changes(space: MbConv) -> dict[tuple[int, ...], StagedChoice]:
    """The whole network with one change each: (stage, depth - 1) for a depth, (stage, block, configuration) else."""
    whole, found = space.to_choice(space.heaviest()), dict[tuple[int, ...], StagedChoice]()
    for stage, depths in enumerate(space.stage_depths):
        for depth in depths[:-1]:
            changed = whole.depths.copy()
            changed[stage] = depth
            found[stage, depth - 1] = StagedChoice.masked(changed, whole.configurations)
    for stage, block, configuration in np.argwhere(space.allowed).tolist():
        if configuration != whole.configurations[stage, block]:
            chosen = whole.configurations.copy()
            chosen[stage, block] = configuration
            found[stage, block, configuration] = StagedChoice(whole.depths, chosen)
    return found
