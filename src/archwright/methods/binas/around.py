"""BINAS from pretrained weights: what is known first, then networks around it at several image sizes, for few images.

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

Every limit gets the slowest network within it that validation does not find clearly worse than another, so that a
looser limit is never clearly worse. Trainings go by what works for pretrained weights: AdamW from a classifier that is
fitted first, norms that keep the statistics they came with (recalibrating them destroys a pretrained network), images
as the weights were trained on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import nn

from archwright.costs.clock import MARGIN
from archwright.costs.device_table import DeviceTable, TableResult
from archwright.costs.limits import met
from archwright.costs.tables import LatencyTable
from archwright.data import ImageData
from archwright.data.augmentation import Augment
from archwright.errors import InfeasibleError, InputError
from archwright.methods.binas.options import BinasOptions
from archwright.methods.binas.thin import LABEL_SMOOTHING as PLAIN_SMOOTHING
from archwright.methods.binas.thin import LEARNING_RATE as PLAIN_RATE
from archwright.pretrained import Weights
from archwright.runs.files import Json, write_json
from archwright.runs.run import Run
from archwright.search.answer import Beside
from archwright.search.beside import PlainNetwork
from archwright.search.budget import Pace, steps_within
from archwright.search.context import Context
from archwright.search.jobs import measure as accuracy_of
from archwright.search.limited import PlainSteps, Summary, front_of, said_limits, tightest_first
from archwright.search.method import BY_LIMITS, Stage
from archwright.search.trained import TrainedNetwork, Trainer, networks_of, order, short_name
from archwright.search.values import StageResult
from archwright.solvers import milp
from archwright.solvers.pareto import front
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.spaces.mbconv_network import MbConvNetwork
from archwright.supernets.around import supernet_around
from archwright.supernets.elastic import ElasticSupernet
from archwright.training import Recipe

FLOOR = "frozen features + logistic regression"
SIZES = (48, 64, 96, 128, 160)
ENLARGED, ALWAYS = 4 / 3, 128
"""Images are enlarged to so many times their own size at most, but to so many pixels in any case: details that
pretrained filters look for have the size they have in photographs of 224 px."""
TIGHTER = 0.5
"""A search without limits gets the latency of the whole network at the largest size, and so many times that."""

TRUNK_EPOCHS, TUNED_EPOCHS = 5.0, 3.0
"""Passes over the training images: of the trunk, and of each candidate after it."""
FEWEST_STEPS = 30
"""Of a training, however few the images are."""
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

LEARNING_RATE = 3e-4
"""Of AdamW, for the classifier, too: it is fitted before, and a higher rate undoes that in a few steps."""
RESTART = 0.5
"""Learning rate of the networks that are cut out of the trunk, as a part of the trunk's."""
BATCH = 32
WEIGHT_DECAY = 0.01
LABEL_SMOOTHING = 0.1
LOOKED_AT = 32
"""Images that a network sees at once: with twice as many at 128 px their activations leave the processor's cache."""

MOST_IMAGES = 5000
"""Training images that the floor's classifier is fitted on; more are thinned out evenly."""
PENALTIES = (0.001, 0.01, 0.1)
"""Values of C of the floor's logistic regression; the one that is best on validation counts."""
UNSEEN = -10.0
"""Logit of a class that was thinned out of the floor's images."""
CALIBRATION = 64
"""Images on which narrower blocks are matched to whole ones."""
COMPARED = 256
"""Validation images, at most, on which single changes of the network are compared."""
LEAST_LOSS = 0.003
"""Cross entropy that a change is thought to cost at least: nothing is left out for the noise of few images."""

CANDIDATES = 2
"""Networks that are tuned for each limit, at most."""
LEAST_SHARE = 2 / 3
"""Part of the whole network's latency at its size that a thinner one must have to be worth tuning: with less left of it
the whole network at a smaller size was better in five of six trials, and the time is better spent on the others."""
CLEARLY, AS_SLOW = 2.0, 0.9
"""Standard errors from which on an accuracy is clearly lower; the part of a latency that is nearly as slow."""

Limits = Mapping[str, float]


class FloorResult(StageResult):
    """What was started from, and the accuracy of frozen features on validation by image size."""

    pretrained: dict[str, Any]
    validation_accuracy: dict[int, float]


class TuningSteps(StageResult):
    """Steps of every training, and what they were counted by.

    Attributes:
        step_ms: of the whole network, by size: those that are searched and the trunk's.
        factor: how much longer or shorter trainings are than usual, by the minutes there are.
        seconds: of all these trainings together, at most.
        trunk_size: that the whole network is fine-tuned at.
        trunk_steps: of the whole network; ``tuned_steps`` of each candidate, ``plain_steps`` of the network beside.
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


class TrunkResult(StageResult):
    """Accuracy of the fine-tuned network on validation, by size."""

    validation_accuracy: dict[int, float]


class ChangesResult(StageResult):
    """What changes of the whole network cost: cross entropy on validation above the whole network's.

    Attributes:
        depths: (S, D), of a stage cut to that depth; 0 where it has no such depth.
        blocks: (S, D, C), of a block with that configuration.
    """

    depths: list[list[float]]
    blocks: list[list[list[float]]]


class Proposal(StageResult):
    """The exact best network of one size within a limit.

    Attributes:
        whole: whether it is the whole network.
        share: of the whole network's predicted latency at its size.
        value: what it promises: minus its cross entropy.
    """

    architecture: str
    image_size: int
    whole: bool
    share: float
    value: float


class TunedResult(StageResult):
    """Names of the networks that were tuned."""

    networks: list[str]


@dataclass
class Around:
    """The strategy; the frame sets ``table``."""

    context: Context
    options: BinasOptions
    weights: Weights
    table: DeviceTable = field(init=False)

    repeated = ("stages/plan.json",)

    # --- what is searched, and on which images ---

    @cached_property
    def spaces(self) -> dict[int, MbConv]:
        """The networks around the start at every size that the images allow."""
        data = self.context.task.data
        sizes = sizes_for(data.image_size, self.context.configuration.image_size)
        return {size: self.weights.start.space(data.classes, size) for size in sizes}

    @property
    def _largest(self) -> int:
        return max(self.spaces)

    @property
    def facts(self) -> Mapping[str, Json]:
        """Where the weights come from."""
        return {"pretrained": self.weights.facts()}

    def data(self, size: int) -> ImageData:
        """At one size, normalised as the weights were trained; grey images get three equal channels."""
        data, start = self.context.task.data_at(size), self.weights.start
        how = replace(data.preprocessing, image_channels=3, mean=start.mean, std=start.std, turned=start.turned)
        return replace(data, preprocessing=how)

    def augment(self, data: ImageData) -> Augment | None:
        """Of the images of all trainings."""
        return self.context.task.augmentation_of(data, cutout=0)

    @cached_property
    def trainer(self) -> Trainer:
        """What fine-tunes, validates and keeps networks: counted steps of AdamW, with frozen norms."""
        c = self.context.configuration
        recipe = Recipe(
            epochs=1,
            batch_size=min(c.batch_size or BATCH, len(self.context.task.data.train)),
            optimizer="adamw",
            lr=c.lr or LEARNING_RATE,
            frozen_norms=True,
            weight_decay=WEIGHT_DECAY,
            label_smoothing=LABEL_SMOOTHING,
            warmup_epochs=0.1,
        )
        return Trainer(self.context, recipe, self.data, self.augment, LOOKED_AT)

    def check(self) -> None:
        """The images must load at every size that is looked at."""
        _ = self.trainer.recipe
        self.data(self._largest)

    def check_source(self, source: Run) -> None:
        """The counted steps that are repeated must be of a search from pretrained weights, with a table that fits."""
        table = LatencyTable.load(source.folder / "artifacts" / "latency.json")
        for size in TableResult.model_validate(source.stage_result("table")).sizes:
            if size not in self.spaces:
                raise InputError(f"a plan of the image sizes {', '.join(map(str, self.spaces))}", f"one of {size} px")
            table.check(self.spaces[size])
        _ = steps_of(source)

    def estimate_seconds(self) -> float:
        """What the user spends; without minutes, by the images there are."""
        minutes, images = self.context.configuration.minutes, len(self.context.task.data.train)
        limits = len(self.context.configuration.limit_sets) if self.context.configuration.limits else 2
        passes = TRUNK_EPOCHS + CANDIDATES * limits * TUNED_EPOCHS
        rough = FIXED_SECONDS + passes * images * IMAGE_MS / 1000
        return 60 * minutes if minutes else min(60 * MOST_MINUTES, rough)

    def limits_without(self) -> list[float]:
        """The latency of the whole network at the largest size, and half of it."""
        _, whole = self.table.ends()
        loosest = whole[self._largest] / MARGIN
        return [round(TIGHTER * loosest, 4), round(loosest, 4)]

    def before_table(self) -> list[Stage]:
        """The one stage ``floor``: frozen features need no latencies."""
        return [Stage("floor", "frozen features", self._floor)]

    def training_stages(self) -> list[Stage]:
        """The stages ``plan``, ``trunk``, ``changes`` and ``train``, as in the module's text."""
        return [
            Stage("plan", "plan", self._plan),
            Stage("trunk", "fine-tune the whole network", self._trunk),
            Stage("changes", "networks around it", self._changes),
            Stage("train", "tune candidates", self._train, redone=BY_LIMITS),
        ]

    # --- the floor ---

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
        with context.progress.task("frozen features", len(self.spaces)) as bar:
            for size in self.spaces:
                context.stop.check()
                found[size] = self.floor(size).validation_accuracy
                bar.advance()
        shown = ", ".join(f"{accuracy:.1f} % at {size} px" for size, accuracy in found.items())
        context.progress.say(f"Frozen features and logistic regression have {shown} on validation.")
        return FloorResult(pretrained=facts, validation_accuracy=found)

    def floor(self, size: int) -> TrainedNetwork:
        """The frozen network at one size, its classifier a logistic regression on its features."""
        name, space = f"floor-{size}", self.spaces[size]
        known = networks_of(self.context.run)
        if name in known:
            return known[name]
        network = self.weights.network(space.scale.classes, size).to(self.context.device.name)
        fit_head(network, *self._features(network, size, "train", MOST_IMAGES), *self._features(network, size))
        return self.trainer.keep(name, network, space.heaviest(), space, 0)

    @torch.no_grad()
    def _features(
        self, network: MbConvNetwork, size: int, part: str = "validation", most: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What the classifier gets, (n, width), and labels (n,)."""
        network.eval()
        features = nn.Sequential(network.start, network.blocks, *list(network.end)[:-1])
        rows, labels = [], []
        for images, own in self.trainer.in_order(size, part, most):
            rows.append(features(images.contiguous(memory_format=torch.channels_last)).cpu().numpy())
            labels.append(own.cpu().numpy())
        return np.concatenate(rows), np.concatenate(labels)

    # --- plan ---

    def _plan(self) -> TuningSteps:
        """Time training steps, and cut the trainings to the minutes there are."""
        context, pace = self.context, Pace(self.context.device, self.trainer.recipe.batch_size)
        with pace.watched():
            times = self.timed_steps(pace)
        minutes = context.configuration.minutes
        left = ((1 - KEPT_BACK) * 60 * (minutes or MOST_MINUTES) - context.run.seconds_spent()) * pace.share
        found = self.counted(times, left, MOST_PATIENCE if minutes else 1.0)
        context.progress.say(
            f"Plan: {found.trunk_steps} steps for the whole network at {found.trunk_size} px, {found.tuned_steps} for "
            f"each candidate; about {found.seconds / pace.share:.3g} s."
        )
        self._say_enlarged()
        return found

    def _say_enlarged(self) -> None:
        own = self.context.task.data.image_size
        larger = [size for size in self.table.result.sizes if size > own]
        if larger:
            self.context.progress.say(
                f"The images have {own} px; at {' and '.join(map(str, larger))} px they are enlarged."
            )

    def timed_steps(self, pace: Pace) -> StepTimes:
        """Of the whole network at every searched size, and of the plain network beside."""
        data = self.context.task.data
        shape = (data.image_channels, data.image_size, data.image_size)
        plain = pace.step_ms(PlainNetwork(data), shape, warm_up=1, repeats=TIMED_STEP)
        whole = {}
        for size in sorted({*self.table.result.sizes, self._largest}):
            network = self.weights.network(data.classes, size)
            whole[size] = pace.step_ms(network, (3, size, size), warm_up=1, repeats=TIMED_STEP)
        return StepTimes(whole, plain)

    def counted(self, times: StepTimes, left: float, patience: float) -> TuningSteps:
        """Steps of every training, within the seconds there are.

        Args:
            times: milliseconds of a training step.
            left: seconds that all trainings may take together.
            patience: how many times the usual steps a training may have at most.
        """
        images, batch = len(self.context.task.data.train), self.trainer.recipe.batch_size
        usual = [max(FEWEST_STEPS, round(own * images / batch)) for own in (TRUNK_EPOCHS, TUNED_EPOCHS)]
        sizes, whole = self.table.result.sizes, self._whole_sizes()
        size, quickest = self._largest, min(times.whole.values())
        thinner = self._thinner(whole)
        tuned_ms = thinner * float(np.mean([times.whole[own] for own in sizes])) + quickest  # the plain network beside
        tuned_ms += sum(times.whole[own] for own in {*whole} - {size, None} if own)
        seconds = (usual[0] * times.whole[size] + usual[1] * tuned_ms) / 1000
        factor = float(np.clip(left / seconds, 0.05, patience))
        trunk, own = (max(1, round(factor * steps)) for steps in usual)
        return TuningSteps(
            step_ms=times.whole,
            factor=factor,
            seconds=factor * seconds,
            trunk_size=size,
            trunk_steps=trunk,
            tuned_steps=own,
            plain_steps=steps_within(own * quickest / 1000, times.plain),
        )

    def _whole_sizes(self) -> list[int | None]:
        """For each limit the largest size at which the whole network keeps it, by the table; None for none."""
        return [max(self._sizes_within(one, 1.0), default=None) for one in self.table.limit_sets]

    def _sizes_within(self, limits: Limits, share: float) -> list[int]:
        """Sizes at which a network that costs this share of the whole one keeps ``limits``, by the table."""
        known = {size: self.whole_costs(size) for size in self.table.result.sizes}
        return [
            size for size, costs in known.items() if met(limits, {name: share * cost for name, cost in costs.items()})
        ]

    def _thinner(self, whole: Sequence[int | None]) -> int:
        """Thinner networks that are tuned for all limits together, where ``whole`` are the sizes of whole ones."""
        count = 0
        for limits, own in zip(self.table.limit_sets, whole, strict=True):
            larger = [size for size in self._sizes_within(limits, LEAST_SHARE) if own is None or size > own]
            most = CANDIDATES if own is None else CANDIDATES - 1
            count += min(most, len(larger)) if larger or own is not None else CANDIDATES
        return count

    def whole_costs(self, size: int) -> dict[str, float]:
        """What the whole network takes of every resource at one size, by the table."""
        return self.table.predicted(size, self.spaces[size].heaviest())

    @property
    def steps(self) -> TuningSteps:
        """The counted steps as the stage ``plan`` keeps them."""
        return steps_of(self.context.run)

    # --- trunk, and what changes of it cost ---

    def _trunk(self) -> TrunkResult:
        """Fine-tune the whole network at the largest size; validate it at every searched one."""
        size, steps, trainer = self.steps.trunk_size, self.steps.trunk_steps, self.trainer
        space = self.spaces[size]
        if not trainer.file("trunk").is_file():
            network = trainer.load(self.floor(size).weights)
            trainer.train("trunk", network, size, steps)
            trainer.save("trunk", network, space.heaviest(), space)
            self.context.run.checkpoints("trained/trunk").clear()
        found = {own: self.trunk_at(own).validation_accuracy for own in self.table.result.sizes}
        shown = ", ".join(f"{accuracy:.1f} % at {own} px" for own, accuracy in found.items())
        self.context.progress.say(
            f"Fine-tuned at {size} px, the whole network has {shown} on validation; others start from it."
        )
        return TrunkResult(validation_accuracy=found)

    def trunk_at(self, size: int) -> TrainedNetwork:
        """The trunk at one size; validated once, also where the size is only searched since latencies were timed anew.

        Args:
            size: of the images.
        """
        name, space, known = f"trunk-{size}", self.spaces[size], networks_of(self.context.run)
        if name in known:
            return known[name]
        network, steps = self.trainer.load("trunk"), self.steps.trunk_steps
        return self.trainer.keep(name, network, space.heaviest(), space, steps, weights="trunk")

    def around(self, space: MbConv) -> ElasticSupernet:
        """The networks of ``space`` with the trunk's weights, narrower blocks matched to whole ones at its size."""
        batches = self.trainer.in_order(space.scale.image_size, "train", CALIBRATION)
        trunk = self.trainer.load("trunk")
        assert isinstance(trunk, MbConvNetwork)
        return supernet_around(trunk, space, torch.cat([x for x, _ in batches])).to(self.context.device.name)

    def _changes(self) -> ChangesResult:
        """Measure what each single change of the whole network costs, at the middle size."""
        sizes = self.table.result.sizes
        space = self.spaces[sizes[len(sizes) // 2]]
        changes = single_changes(space)
        losses = self.losses(space, [space.to_choice(space.heaviest()), *changes.values()])
        depths, blocks = np.zeros(space.shape[:2]), np.zeros(space.shape)
        for place, loss in zip(changes, losses[1:], strict=True):
            (depths if len(place) == 2 else blocks)[place] = max(LEAST_LOSS, loss - losses[0])
        return ChangesResult(depths=depths.tolist(), blocks=blocks.tolist())

    @torch.no_grad()
    def losses(self, space: MbConv, choices: Sequence[StagedChoice]) -> NDArray[np.float64]:
        """Mean cross entropy on validation images of networks that are cut from the trunk, (n,).

        Args:
            space: of the networks, at the image size that they are compared at.
            choices: n networks of it.
        """
        total, count, supernet = np.zeros(len(choices)), 0, self.around(space)
        whole = space.to_choice(space.heaviest())
        for images, labels in self.trainer.in_order(space.scale.image_size, "validation", COMPARED):
            inputs = [supernet.start(images.contiguous(memory_format=torch.channels_last))]
            for stage in range(len(whole.depths) - 1):
                inputs.append(supernet.passed(inputs[-1], whole, stage))
            for number, choice in enumerate(choices):
                first = first_difference(choice, whole)  # before it, every network does what the whole one does
                logits = supernet.onward(inputs[first], choice, first)
                total[number] += float(F.cross_entropy(logits, labels, reduction="sum"))
            count += len(labels)
        return total / count

    # --- candidates ---

    def _train(self) -> TunedResult:
        """Propose for each limit, the tightest first, and tune what is proposed."""
        names = list[str]()
        self._keep_fronts()
        for limits in tightest_first(self.table.limit_sets):
            for one in self.propose(limits):
                space = self.spaces[one.image_size]
                found = self._tuned(space.parse(one.architecture), space)
                if found.name not in names:
                    self.context.progress.say(f"{said_limits(limits)}: {self._sentence(found)}")
                    names.append(found.name)
        return TunedResult(networks=names)

    def _tuned(self, architecture: MbConvArchitecture, space: MbConv) -> TrainedNetwork:
        """A network cut from the trunk, after a training of its own; the whole one at the trunk's size has had it."""
        size, known = space.scale.image_size, networks_of(self.context.run)
        name = short_name(str(architecture), f"tuned-{size}")
        if size == self.steps.trunk_size and architecture == space.heaviest():
            name = f"trunk-{size}"
        if name in known:
            return known[name]
        network, trainer = self.around(space).cut_out(architecture).to(self.context.device.name), self.trainer
        trainer.train(
            name, network, size, self.steps.tuned_steps, trainer.recipe.changed(lr=RESTART * trainer.recipe.lr)
        )
        return trainer.keep(name, network, architecture, space, self.steps.tuned_steps)

    def propose(self, limits: Limits) -> list[Proposal]:
        """What is tuned for ``limits``; kept, as timing does not repeat.

        Sizes that are no longer searched since latencies were timed anew are passed over.
        """
        log, key, sizes = self.context.run.items("proposals"), json.dumps(limits), self.table.result.sizes
        if key not in log.done:
            found = [one for one in (self._fitting(size, limits) for size in sizes) if one is not None]
            if not found:
                raise InfeasibleError(
                    f"no network within {dict(limits)} was found at {', '.join(map(str, sizes))} px. "
                    "Raise the limit, or search on a quieter machine."
                )
            log.record(key, [one.model_dump() for one in most_promising(found)])
        kept = [Proposal.model_validate(one) for one in log.done[key]]
        return [one for one in kept if one.image_size in sizes]

    def _fitting(self, size: int, limits: Limits) -> Proposal | None:
        """The best network of one size that keeps ``limits``; None where there is none."""
        problem, space = self._valued(size), self.spaces[size]
        try:
            solution = self.table.fitting(size, lambda within: milp.solve(problem, within), limits)
        except InfeasibleError:
            return None
        architecture = space.from_choice(solution.choice)
        return Proposal(
            architecture=str(architecture),
            image_size=size,
            whole=architecture == space.heaviest(),
            share=solution.costs["latency_ms"] / self.whole_costs(size)["latency_ms"],
            value=solution.value,
        )

    def _valued(self, size: int) -> StagedProblem:
        """What is maximised at one size: minus what changes of the whole network cost."""
        found = ChangesResult.model_validate(self.context.run.stage_result("changes"))
        values = -np.array(found.blocks), -np.array(found.depths)
        return self.table.costs(size).problem(self.spaces[size], *values, fixed_value=-self.trunk_at(size).loss)

    def _keep_fronts(self) -> None:
        """Write the union of the sizes' exact fronts: no network of any size is quicker and promises more."""
        points: list[dict[str, Any]] = []
        for size in self.table.result.sizes:
            found, space = front(self._valued(size), "latency_ms"), self.spaces[size]
            choices = found.choices()
            for number, (ms, value) in enumerate(zip(found.costs.tolist(), found.values.tolist(), strict=True)):
                text = str(space.from_choice(choices[number]))
                points.append({"image_size": size, "architecture": text, "latency_ms": ms, "loss": -value})
        points.sort(key=lambda one: (one["latency_ms"], one["loss"]))
        best, union = np.inf, []
        for one in points:
            if one["loss"] < best:
                best = one["loss"]
                union.append(one)
        write_json(self.context.run.artifact("front.json"), {"certificate": "exact", "points": union})

    def _sentence(self, one: TrainedNetwork) -> str:
        space = self.spaces[one.image_size]
        whole, own = space.heaviest(), space.parse(one.architecture)
        costs = self.table.known(one.image_size, own)
        blocks = f"{sum(map(len, own.stages))} of {sum(map(len, whole.stages))} blocks"
        shape = "the whole network" if own == whole else f"{blocks}, {costs['params'] / 1e6:.2f} million parameters"
        accuracy = f"{one.validation_accuracy:.1f} % on validation"
        return f"{shape} at {one.image_size} px, {costs['latency_ms']:.3g} ms: {accuracy}."

    # --- choosing and saying ---

    def pool(self) -> list[TrainedNetwork]:
        """The floor, and what was trained at its own size, at the searched sizes."""
        sizes = self.table.result.sizes
        unfit = {f"trunk-{size}" for size in sizes if size != self.steps.trunk_size}
        trained = networks_of(self.context.run).values()
        return [one for one in trained if one.image_size in sizes and one.name not in unfit]

    def preferred(self, within: Sequence[TrainedNetwork]) -> TrainedNetwork:
        """Of what was trained, where it is not below the best of frozen features; else these."""
        floors = [one for one in within if not one.steps]
        bar = max((one.validation_accuracy for one in floors), default=0.0)
        above = [one for one in within if one.steps and one.validation_accuracy >= bar]
        if not above:
            return max(floors, key=order)
        accuracies, latencies = [one.validation_accuracy for one in above], [self._latency_ms(one) for one in above]
        return above[preferred(accuracies, latencies, len(self.context.task.data.validation))]

    def _latency_ms(self, one: TrainedNetwork) -> float:
        return self.table.known(one.image_size, self.spaces[one.image_size].parse(one.architecture))["latency_ms"]

    def plain(self) -> PlainSteps:
        """From scratch, in the time of the quickest candidate."""
        recipe = self.context.task.recipe.changed(
            epochs=1,
            warmup_epochs=0.1,
            lr=PLAIN_RATE,
            batch_size=self.trainer.recipe.batch_size,
            label_smoothing=PLAIN_SMOOTHING,
        )
        return PlainSteps(recipe, self.steps.plain_steps, self.context.task.augmentation())

    def beside(self) -> dict[str, Beside]:
        """The floor at the size where it is best on validation, whatever its latency."""
        best = max((self.floor(size) for size in self.spaces), key=order)
        data = self.data(best.image_size)
        test = accuracy_of(self.trainer.load(best.weights), data, "test", self.context.device.name)
        return {
            FLOOR: Beside(
                accuracy=test.percent,
                accuracy_interval=(test.low, test.high),
                accuracy_on=f"{data.name} test, {test.count} images",
                validation_accuracy=best.validation_accuracy,
                image_size=best.image_size,
            )
        }

    def summary(self) -> Summary:
        """What was trained and is not dominated, and where the weights come from."""
        run, trained = self.context.run, networks_of(self.context.run)
        facts = FloorResult.model_validate(run.stage_result("floor"))
        start, tuned = facts.pretrained, TunedResult.model_validate(run.stage_result("train")).networks
        sizes = self.table.result.sizes
        origin = f"{start['origin']}; licence: {start['licence']}; SHA-256 {start['sha256']}"
        sentences = [
            f"Started from {start['name']} ({origin}).",
            *(self._sentence(trained[name]) for name in tuned if trained[name].image_size in sizes),
        ]
        details = {
            "plan": self.steps.model_dump(),
            "pretrained": start,
            "floor": facts.validation_accuracy,
            "certificate": "exact: the union of the exact fronts of all sizes is artifacts/front.json",
        }
        return Summary(front_of(self.pool(), self._latency_ms), len(trained), sentences, details)


def steps_of(run: Run) -> TuningSteps:
    """The counted steps that the stage ``plan`` of a run keeps."""
    try:
        return TuningSteps.model_validate(run.stage_result("plan"))
    except ValidationError as error:
        raise InputError("a plan of a search from pretrained weights", f"another one in {run.folder}") from error


def sizes_for(own: int, asked: int | None) -> tuple[int, ...]:
    """Sizes to look at for images of ``own`` px; the one that was ``asked`` for, if any."""
    if asked is not None:
        return (asked,)
    return tuple(size for size in SIZES if size <= max(ALWAYS, ENLARGED * own))


def most_promising(found: Sequence[Proposal]) -> list[Proposal]:
    """Of the best network at each size, by size: the last that is whole, then those at larger sizes by their value.

    Networks of which too little is left are not looked at, unless there are no others.
    """
    whole = [one for one in found if one.whole][-1:]
    larger = [one for one in found if not whole or one.image_size > whole[0].image_size]
    solid = [one for one in larger if one.share >= LEAST_SHARE]
    rest = solid if solid or whole else larger
    return [*whole, *sorted(rest, key=lambda one: -one.value)][:CANDIDATES]


def preferred(accuracies: Sequence[float], latencies: Sequence[float], images: int) -> int:
    """The number of the network to take.

    On a hundred images good networks differ by chance more than by merit, and the best of several there is often a thin
    one that was lucky. Larger networks and images are known to be better. So the slowest is taken of those that are
    less than two standard errors below the most accurate; where several are nearly as slow, the most accurate of them.

    Args:
        accuracies: of the networks on validation, in percent.
        latencies: of the same, in milliseconds.
        images: how many the accuracies were measured on.
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


def first_difference(one: StagedChoice, other: StagedChoice) -> int:
    """The number of the first stage in which ``one`` and ``other`` differ; of the last one where they are the same."""
    differs = (one.depths != other.depths) | (one.configurations != other.configurations).any(1)
    return int(differs.argmax()) if differs.any() else len(differs) - 1


def fit_head(
    network: MbConvNetwork,
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    validation: NDArray[np.float32],
    validation_labels: NDArray[np.int64],
) -> None:
    """Make the classifier of ``network`` the logistic regression on ``features`` (n, width) best on validation.

    The features are standardised for the fit, which is then part of the classifier's weights.

    Args:
        network: whose last layer is set in place.
        features: of the training images, (n, width); ``labels`` (n,) their classes.
        labels: (n,).
        validation: features of the validation images, (m, width).
        validation_labels: (m,).
    """
    from sklearn.linear_model import LogisticRegression

    mean, std = features.mean(0), features.std(0) + 1e-6
    best: tuple[float, Any] | None = None
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=200).fit((features - mean) / std, labels)
        score = float(np.mean(model.predict((validation - mean) / std) == validation_labels))
        if best is None or score > best[0]:
            best = score, model
    assert best is not None
    classifier = network.end[-1]
    assert isinstance(classifier, nn.Linear)
    coefficients, intercepts = best[1].coef_, best[1].intercept_
    if len(intercepts) == 1:  # two classes have one row, for the second of them
        coefficients, intercepts = (np.concatenate([-one, one]) / 2 for one in (coefficients, intercepts))
    weight = coefficients / std
    with torch.no_grad():
        classifier.weight[best[1].classes_] = torch.from_numpy(weight).float().to(classifier.weight.device)
        classifier.bias.fill_(UNSEEN)
        bias = torch.from_numpy(intercepts - weight @ mean).float()
        classifier.bias[best[1].classes_] = bias.to(classifier.bias.device)
