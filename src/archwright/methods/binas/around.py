"""BINAS from pretrained weights: what is known first, then networks around it at several image sizes, for few images.

1. ``floor``: a logistic regression on the frozen network's features at some image sizes, seen after seconds. No answer
   is below it on validation where the whole network keeps the limit.
2. ``table``: which image sizes the limits allow, and latency tables for them, one a precision.
3. ``plan``: training steps are timed, and the passes over the images are counted, cut to the minutes there are.
4. ``trunk``: the whole network is fine-tuned at a large size, even where it keeps no limit there. All others start
   from it, so that one training serves every limit.
5. ``changes``: what each single change of it costs: fewer blocks, smaller expansions in the last stages.
6. ``train``: for each limit the whole network at the largest size at which it keeps it, in float and in int8, which is
   what one would take without a search, and the most promising of the exact best networks at larger sizes that are not
   much thinner; each is tuned by itself, as what promises most is not always best.

Of several starts (``--pretrained any``) each has its floor, trunk and changes; all are in one table and one front, and
answers are chosen among the networks of all of them.

Every limit gets the network within it that computes most and that validation does not find clearly worse than another,
so that a looser limit is never clearly worse. Trainings go by what works for pretrained weights: AdamW from a
classifier that is fitted first, norms that keep the statistics they came with (recalibrating them destroys a pretrained
network), images as the weights were trained on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import nn

from archwright.costs.clock import MARGIN
from archwright.costs.device_table import FLOAT, STEP, DeviceTable, TableResult
from archwright.costs.limits import met, said_limits
from archwright.costs.places import ByPlace, Place, pixels, place_of, said, start_of
from archwright.costs.tables import LatencyTable
from archwright.data import ImageData
from archwright.data.augmentation import Augment
from archwright.errors import InfeasibleError, InputError
from archwright.methods.binas.options import BinasOptions
from archwright.methods.binas.thin import LABEL_SMOOTHING as PLAIN_SMOOTHING
from archwright.methods.binas.thin import LEARNING_RATE as PLAIN_RATE
from archwright.numerics import autocast
from archwright.pretrained import Weights
from archwright.quantise import Precision
from archwright.runs.files import Json, write_json
from archwright.runs.progress import said_seconds
from archwright.runs.run import Run
from archwright.search.answer import Beside
from archwright.search.beside import PlainNetwork
from archwright.search.budget import Pace, steps_within
from archwright.search.context import Context
from archwright.search.jobs import measure as accuracy_of
from archwright.search.limited import PlainSteps, Summary, front_of, tightest_first
from archwright.search.method import BY_LIMITS, Stage
from archwright.search.trained import (
    TrainedNetwork,
    Trainer,
    networks_of,
    order,
    short_name,
    slowest_as_good,
    with_int8,
)
from archwright.search.values import StageResult
from archwright.solvers import milp
from archwright.solvers.pareto import front
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.spaces.mbconv import MbConv
from archwright.spaces.mbconv_network import MbConvNetwork
from archwright.supernets.around import supernet_around
from archwright.supernets.elastic import ElasticSupernet
from archwright.training import Recipe

FLOOR = "frozen features + logistic regression"
SIZES = (48, 64, *range(96, 289, 32))
"""Image sizes whose blocks are timed, where the limits allow them; between them steps are finer."""
FINER = 8
"""Pixels between the sizes that may be looked at."""
LOOKED_INTO = 160
"""The largest size that frozen features are taken at, and that the whole network is tuned at in any case."""
ENLARGED, ALWAYS = 4 / 3, 128
"""Images are enlarged to so many times their own size at most, but to so many pixels in any case: details that
pretrained filters look for have the size they have in photographs of 224 px."""
SHARES_OF_WHOLE = (0.25, 0.5, 1.0)
"""The limits of a search that was given none, as parts of the latency of the whole network at the largest size: the
first is about what it takes at half of that size."""

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
CLEARLY = 2.0
"""Standard errors from which on an accuracy is clearly lower."""

Limits = Mapping[str, float]


class FloorResult(StageResult):
    """What was started from, by name, and the accuracy of frozen features on validation by place."""

    pretrained: dict[str, dict[str, Any]]
    validation_accuracy: ByPlace


class TuningSteps(StageResult):
    """Steps of every training, and what they were counted by.

    Attributes:
        step_ms: of the whole network, by place: those that are searched and the trunk's.
        factor: how much longer or shorter trainings are than usual, by the minutes there are.
        seconds: of all these trainings together, at most.
        trunk_size: that whole networks are fine-tuned at before others are cut from them.
        trunk_steps: of the whole network; ``tuned_steps`` of each candidate, ``plain_steps`` of the network beside.
    """

    step_ms: ByPlace
    factor: float
    seconds: float
    trunk_size: int
    trunk_steps: int
    tuned_steps: int
    plain_steps: int


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds of training steps: of the whole network by place, and of the plain network beside."""

    whole: dict[Place, float]
    plain: float


class TrunkResult(StageResult):
    """Accuracy of the fine-tuned networks on validation, by place."""

    validation_accuracy: ByPlace


class Changes(StageResult):
    """What changes of a whole network cost: cross entropy on validation above the whole network's.

    Attributes:
        depths: (S, D), of a stage cut to that depth; 0 where it has no such depth.
        blocks: (S, D, C), of a block with that configuration.
    """

    depths: list[list[float]]
    blocks: list[list[list[float]]]


class ChangesResult(StageResult):
    """What changes of the whole network cost, by start."""

    of: dict[str, Changes]


class Proposal(StageResult):
    """The exact best network of one place within a limit.

    Attributes:
        whole: whether it is the whole network.
        precision: in which it keeps the limit.
        share: of the whole network's predicted latency at its size, in that precision.
        value: what it promises: minus its cross entropy.
        start: name of its weights, where there are several.
    """

    architecture: str
    image_size: int
    start: str = ""
    precision: Precision = FLOAT
    whole: bool
    share: float
    value: float

    @property
    def place(self) -> Place:
        """Where it lives in the table."""
        return place_of(self.image_size, self.start)


class TunedResult(StageResult):
    """Names of the networks that were tuned."""

    networks: list[str]


@dataclass
class Around:
    """The strategy; the frame sets ``table``."""

    context: Context
    options: BinasOptions
    starts: tuple[Weights, ...]
    table: DeviceTable = field(init=False)

    repeated = ("stages/plan.json",)

    # --- what is searched, and on which images ---

    @cached_property
    def weights(self) -> dict[str, Weights]:
        """The starts by name; a single one has the empty name."""
        if len(self.starts) == 1:
            return {"": self.starts[0]}
        return {one.start.name: one for one in self.starts}

    @cached_property
    def spaces(self) -> dict[Place, MbConv]:
        """The networks around each start at every size that the images allow, the smallest first."""
        data = self.context.task.data
        sizes = sizes_for(data.image_size, self.context.configuration.image_size)
        return {
            place_of(size, name): weights.start.space(data.classes, size)
            for size in sorted({*sizes, *finer(sizes)})
            for name, weights in self.weights.items()
        }

    @cached_property
    def between(self) -> frozenset[Place]:
        """Places whose latencies are interpolated."""
        sizes = sizes_for(self.context.task.data.image_size, self.context.configuration.image_size)
        return frozenset(place for place in self.spaces if pixels(place) not in sizes)

    @property
    def _largest(self) -> int:
        """The largest size that is looked into in any case."""
        timed = [pixels(place) for place in self.spaces if place not in self.between]
        return max((size for size in timed if size <= LOOKED_INTO), default=min(timed))

    @property
    def _floors(self) -> list[Place]:
        """Where frozen features are taken."""
        return [place for place in self.spaces if place not in self.between and pixels(place) <= self._largest]

    @property
    def facts(self) -> Mapping[str, Json]:
        """Where the weights come from; of several starts every network says its own."""
        return {} if len(self.starts) > 1 else {"pretrained": self.starts[0].facts()}

    def _known(self, start: str) -> dict[str, Any]:
        """What a trained network says of its start, where there are several."""
        return {"facts": {"pretrained": self.weights[start].facts()}} if start else {}

    def data(self, place: Place) -> ImageData:
        """At one size, normalised as the weights were trained; grey images get three equal channels."""
        data, start = self.context.task.data_at(pixels(place)), self.weights[start_of(place)].start
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
        """The images must load at every size that is looked at, and may not be enlarged beyond use."""
        _ = self.trainer.recipe
        asked, task = self.context.configuration.image_size, self.context.task
        if asked is not None and asked > ALWAYS:
            own = task.own_image_size
            if asked > most_size(own):
                raise InputError(
                    f"an image size of at most {most_size(own)} px for images of {own} px",
                    f"--image-size {asked}",
                    "Pictures that are enlarged more show nothing new: leave --image-size out.",
                )
        self.data(next(iter(self.spaces)))

    def check_source(self, source: Run) -> None:
        """The counted steps that are repeated must be of a search from pretrained weights, with a table that fits."""
        table = LatencyTable.load(source.folder / "artifacts" / "latency.json")
        for size in TableResult.model_validate(source.stage_result("table")).sizes:
            if size not in self.spaces:
                raise InputError(
                    f"a plan of the image sizes {', '.join(map(str, self.spaces))}", f"one of {said(size)}"
                )
            table.check(self.spaces[size])
        _ = steps_of(source)

    def estimate_seconds(self) -> float:
        """What the user spends; without minutes, by the images there are."""
        minutes, images = self.context.configuration.minutes, len(self.context.task.data.train)
        limits = (
            len(self.context.configuration.limit_sets) if self.context.configuration.limits else len(SHARES_OF_WHOLE)
        )
        passes = len(self.starts) * (TRUNK_EPOCHS + CANDIDATES * limits * TUNED_EPOCHS)
        rough = FIXED_SECONDS + passes * images * IMAGE_MS / 1000
        return 60 * minutes if minutes else min(60 * MOST_MINUTES, rough)

    def limits_without(self) -> list[float]:
        """Parts of the latency of the first start's whole network at the largest size, up to all of it."""
        _, whole = self.table.ends()
        loosest = whole[place_of(self._largest, next(iter(self.weights)))] / MARGIN
        return [round(share * loosest, 4) for share in SHARES_OF_WHOLE]

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
        """Logistic regression on frozen features, place by place."""
        context = self.context
        for facts in (one.facts() for one in self.starts):
            context.progress.say(
                f"Starting from {facts['name']}, trained on ImageNet: {facts['origin']}; licence: {facts['licence']}; "
                f"SHA-256 {str(facts['sha256'])[:16]}... (--pretrained none starts from scratch)."
            )
        if context.task.data.image_channels == 1:
            context.progress.say("The images are grey and the weights are for colour: they get three equal channels.")
        found = {}
        with context.progress.task("frozen features", len(self._floors)) as bar:
            for place in self._floors:
                context.stop.check()
                found[place] = self.floor(place).validation_accuracy
                bar.advance()
        shown = ", ".join(f"{accuracy:.1f} % at {said(place)}" for place, accuracy in found.items())
        context.progress.say(f"Frozen features and logistic regression have {shown} on validation.")
        return FloorResult(pretrained={one.start.name: one.facts() for one in self.starts}, validation_accuracy=found)

    def floor(self, place: Place) -> TrainedNetwork:
        """The frozen network at one place, its classifier a logistic regression on its features."""
        name, space, start = f"floor-{place}", self.spaces[place], start_of(place)
        known = networks_of(self.context.run)
        if name in known:
            return known[name]
        network = self.weights[start].network(space.scale.classes, pixels(place)).to(self.context.device.name)
        fit_head(network, *self._features(network, place, "train", MOST_IMAGES), *self._features(network, place))
        return self.trainer.keep(name, network, space.heaviest(), space, 0, start=start, known=self._known(start))

    @torch.no_grad()
    def _features(
        self, network: MbConvNetwork, place: Place, part: str = "validation", most: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What the classifier gets, (n, width), and labels (n,)."""
        network.eval()
        features = nn.Sequential(network.start, network.blocks, *list(network.end)[:-1])
        rows, labels = [], []
        for images, own in self.trainer.in_order(place, part, most):
            rows.append(features(images.contiguous(memory_format=torch.channels_last)).cpu().numpy())
            labels.append(own.cpu().numpy())
        return np.concatenate(rows), np.concatenate(labels)

    # --- plan ---

    def _plan(self) -> TuningSteps:
        """Time training steps, and cut the trainings to the minutes there are."""
        context = self.context
        streamed = not context.task.data.train.in_memory
        pace = Pace(context.device, self.trainer.recipe.batch_size, context.team, streamed)
        with pace.watched():
            times = self.timed_steps(pace)
        minutes = context.configuration.minutes
        left = ((1 - KEPT_BACK) * 60 * (minutes or MOST_MINUTES) - context.run.seconds_spent()) * pace.share
        found = self.counted(times, left, MOST_PATIENCE if minutes else 1.0)
        context.progress.say(
            f"Plan: {found.trunk_steps} steps for the whole network at {found.trunk_size} px, {found.tuned_steps} for "
            f"each candidate; about {said_seconds(found.seconds / pace.share)}."
        )
        self._say_enlarged()
        return found

    def _say_enlarged(self) -> None:
        own = self.context.task.data.image_size
        larger = sorted({pixels(place) for place in self.table.result.sizes if pixels(place) > own})
        if larger:
            self.context.progress.say(
                f"The images have {own} px; at {' and '.join(map(str, larger))} px they are enlarged."
            )

    def timed_steps(self, pace: Pace) -> StepTimes:
        """Of the whole network at every searched place, and of the plain network beside."""
        data = self.context.task.data
        shape = (data.image_channels, data.image_size, data.image_size)
        plain = pace.step_ms(PlainNetwork(data), shape, warm_up=1, repeats=TIMED_STEP)
        whole = dict[Place, float]()
        trunks = {place_of(self._trunk_size(), start) for start in self.weights}
        for place in {place: None for place in self.spaces if place in {*self.table.result.measured, *trunks}}:
            size, weights = pixels(place), self.weights[start_of(place)]
            whole[place] = pace.step_ms(
                weights.network(data.classes, size), (3, size, size), warm_up=1, repeats=TIMED_STEP
            )
        for place in set(self.table.result.sizes) - set(whole):  # a step's time is that of its pixels
            near = min(
                (one for one in whole if start_of(one) == start_of(place)),
                key=lambda one: abs(pixels(one) - pixels(place)),
            )
            whole[place] = whole[near] * (pixels(place) / pixels(near)) ** 2
        return StepTimes(whole, plain)

    def _trunk_size(self) -> int:
        """Of the images that whole networks are tuned on first: large, and no less than the loosest limit allows."""
        kept = [pixels(place) for place in self._whole_places() if place is not None]
        return max([size for size in kept if size > self._largest], default=self._largest)

    def counted(self, times: StepTimes, left: float, patience: float) -> TuningSteps:
        """Steps of every training, within the seconds there are.

        Args:
            times: milliseconds of a training step.
            left: seconds that all trainings may take together.
            patience: how many times the usual steps a training may have at most.
        """
        images, batch = len(self.context.task.data.train), self.trainer.recipe.batch_size
        usual = [max(FEWEST_STEPS, round(own * images / batch)) for own in (TRUNK_EPOCHS, TUNED_EPOCHS)]
        trunk_size, quickest = self._trunk_size(), min(times.whole.values())
        trunks = {place_of(trunk_size, start) for start in self.weights}
        wholes = {place for place in self._whole_places() if place is not None}
        answers = bool(wholes & trunks)  # a trunk that keeps a limit has all its steps at once: that is better
        wholes -= trunks
        thinner = float(np.mean([times.whole[own] for own in self.table.result.sizes]))
        tuned_ms = self._thinner() * thinner + sum(times.whole[own] for own in wholes) + quickest  # and the plain one
        first = usual[0] + usual[1] * answers
        seconds = (first * sum(times.whole[own] for own in trunks) + usual[1] * tuned_ms) / 1000
        factor = float(np.clip(left / seconds, 0.05, patience))
        trunk, own = (max(1, round(factor * steps)) for steps in (first, usual[1]))
        return TuningSteps(
            step_ms=times.whole,
            factor=factor,
            seconds=factor * seconds,
            trunk_size=trunk_size,
            trunk_steps=trunk,
            tuned_steps=own,
            plain_steps=steps_within(own * quickest / 1000, times.plain),
        )

    def _whole_places(self) -> list[Place | None]:
        """For each limit, start and precision the largest size at which the whole network keeps it; None for none."""
        found = list[Place | None]()
        for limits, start, precision in product(self.table.limit_sets, self.weights, self.table.timed_in):
            fitting = [
                place
                for place in self.table.result.sizes
                if start_of(place) == start and met(limits, self.whole_costs(place, precision))
            ]
            found.append(max(fitting, key=pixels, default=None))
        return found

    def _thinner(self) -> int:
        """Thinner networks that are tuned for all limits together, about: one a limit; more where no whole one fits."""
        wholes, each = self._whole_places(), len(self.weights) * len(self.table.timed_in)
        groups = [wholes[start : start + each] for start in range(0, len(wholes), each)]
        return sum(CANDIDATES if not any(group) else CANDIDATES - 1 for group in groups)

    def whole_costs(self, place: Place, precision: Precision = FLOAT) -> dict[str, float]:
        """What the whole network takes of every resource, by the table.

        Args:
            place: of the network.
            precision: that it is computed in.
        """
        return self.table.predicted(place, self.spaces[place].heaviest(), precision)

    @property
    def steps(self) -> TuningSteps:
        """The counted steps as the stage ``plan`` keeps them."""
        return steps_of(self.context.run)

    # --- trunk, and what changes of it cost ---

    def _trunk(self) -> TrunkResult:
        """Fine-tune the whole network of each start; validate it at every searched size."""
        size, steps, trainer = self.steps.trunk_size, self.steps.trunk_steps, self.trainer
        for start in self.weights:
            name, place = trunk_name(start), place_of(size, start)
            if not trainer.file(name).is_file():
                network, space = trainer.load(self.floor(place).weights), self.spaces[place]
                trainer.train(name, network, place, steps)
                trainer.save(name, network, space.heaviest(), space, start)
                self.context.run.checkpoints(f"trained/{name}").clear()
        found = {own: self.trunk_at(own).validation_accuracy for own in self.table.result.sizes}
        shown = ", ".join(f"{accuracy:.1f} % at {said(own)}" for own, accuracy in found.items())
        self.context.progress.say(
            f"Fine-tuned at {size} px, the whole network has {shown} on validation; others start from it."
        )
        return TrunkResult(validation_accuracy=found)

    def trunk_at(self, place: Place) -> TrainedNetwork:
        """The trunk at one place; validated once, also where that is only searched since latencies were timed anew.

        Args:
            place: of the network.
        """
        name, space, known, start = f"trunk-{place}", self.spaces[place], networks_of(self.context.run), start_of(place)
        if name in known:
            return known[name]
        network, steps, weights = self.trainer.load(trunk_name(start)), self.steps.trunk_steps, trunk_name(start)
        return self.trainer.keep(
            name, network, space.heaviest(), space, steps, weights=weights, start=start, known=self._known(start)
        )

    def around(self, place: Place) -> ElasticSupernet:
        """The networks of ``place`` with the trunk's weights, narrower blocks matched to whole ones at its size."""
        batches = self.trainer.in_order(place, "train", CALIBRATION)
        trunk = self.trainer.load(trunk_name(start_of(place)))
        assert isinstance(trunk, MbConvNetwork)
        images = torch.cat([x for x, _ in batches])
        return supernet_around(trunk, self.spaces[place], images)

    def _changes(self) -> ChangesResult:
        """Measure what each single change of the whole networks costs, at the middle size."""
        found = dict[str, Changes]()
        for start in self.weights:
            places = [place for place in self.table.result.sizes if start_of(place) == start]
            if places:
                found[start] = self._changes_at(places[len(places) // 2])
        return ChangesResult(of=found)

    def _changes_at(self, place: Place) -> Changes:
        space = self.spaces[place]
        changes = single_changes(space)
        losses = self.losses(place, [space.to_choice(space.heaviest()), *changes.values()])
        depths, blocks = np.zeros(space.shape[:2]), np.zeros(space.shape)
        for where, loss in zip(changes, losses[1:], strict=True):
            (depths if len(where) == 2 else blocks)[where] = max(LEAST_LOSS, loss - losses[0])
        return Changes(depths=depths.tolist(), blocks=blocks.tolist())

    @torch.no_grad()
    def losses(self, place: Place, choices: Sequence[StagedChoice]) -> NDArray[np.float64]:
        """Mean cross entropy on validation images of networks that are cut from the trunk, (n,).

        Args:
            place: that they are compared at.
            choices: n networks of its space.
        """
        total, count, supernet = np.zeros(len(choices)), 0, self.around(place)
        whole = self.spaces[place].to_choice(self.spaces[place].heaviest())
        for images, labels in self.trainer.in_order(place, "validation", COMPARED):
            with autocast(images.device):
                inputs = [supernet.start(images.contiguous(memory_format=torch.channels_last))]
                for stage in range(len(whole.depths) - 1):
                    inputs.append(supernet.passed(inputs[-1], whole, stage))
                for number, choice in enumerate(choices):
                    first = first_difference(choice, whole)  # before it, every network does what the whole one does
                    logits = supernet.onward(inputs[first], choice, first).float()
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
                found = self._tuned(one.architecture, one.place)
                if found.name not in names:
                    self.context.progress.say(f"{said_limits(limits)}: {self._sentence(found)}")
                    names.append(found.name)
        return TunedResult(networks=names)

    def _tuned(self, text: str, place: Place) -> TrainedNetwork:
        """A network cut from the trunk, after a training of its own; the whole one at the trunk's size has had it."""
        space, known, start = self.spaces[place], networks_of(self.context.run), start_of(place)
        architecture = space.parse(text)
        name = short_name(text, f"tuned-{place}")
        if pixels(place) == self.steps.trunk_size and architecture == space.heaviest():
            name = f"trunk-{place}"
        if name in known:
            return known[name]
        network, trainer = self.around(place).cut_out(architecture).to(self.context.device.name), self.trainer
        trainer.train(
            name, network, place, self.steps.tuned_steps, trainer.recipe.changed(lr=RESTART * trainer.recipe.lr)
        )
        return trainer.keep(
            name, network, architecture, space, self.steps.tuned_steps, start=start, known=self._known(start)
        )

    def propose(self, limits: Limits) -> list[Proposal]:
        """What is tuned for ``limits``; kept, as timing does not repeat.

        Sizes that are no longer searched since latencies were timed anew are passed over.
        """
        log, key, places = self.context.run.items("proposals"), json.dumps(limits), self.table.result.sizes
        if key not in log.done:
            log.record(key, [one.model_dump() for one in self._proposed(limits)])
        kept = [Proposal.model_validate(one) for one in log.done[key]]
        return [one for one in kept if one.place in places]

    def _proposed(self, limits: Limits) -> list[Proposal]:
        """The most promising networks, held to the limits here: those first that are so by prediction."""
        places = self.table.result.sizes
        found = {(place, one): self._solved(place, limits, one) for one in self.table.timed_in for place in places}
        held = set[tuple[Place, Precision]]()
        while True:
            known = [one for one in found.values() if one is not None]
            chosen = most_promising(known)
            left = [one for one in chosen if (one.place, one.precision) not in held]
            if not chosen:
                raise InfeasibleError(
                    f"no network within {said_limits(limits)} was found at {', '.join(map(said, places))}. "
                    "Raise the limit, or search on a quieter machine."
                )
            if not left:
                return chosen
            where = left[0].place, left[0].precision
            found[where] = self._solved(where[0], limits, where[1], here=True)
            held.add(where)

    def _solved(self, place: Place, limits: Limits, precision: Precision, *, here: bool = False) -> Proposal | None:
        """The best network of one place that keeps ``limits`` in a precision; None where there is none.

        Args:
            place: of the network.
            limits: what is asked for.
            precision: that the network is computed in.
            here: whether it is timed, and stepped down until it keeps them; else it goes by the table.
        """
        problem, space = self._valued(place, precision), self.spaces[place]
        try:
            if here:
                solution = self.table.fitting(place, lambda within: milp.solve(problem, within), limits, precision)
            else:
                solution = milp.solve(problem, limits)
        except InfeasibleError:
            return None
        architecture = space.from_choice(solution.choice)
        return Proposal(
            architecture=str(architecture),
            image_size=pixels(place),
            start=start_of(place),
            precision=precision,
            whole=architecture == space.heaviest(),
            share=solution.costs["latency_ms"] / self.whole_costs(place, precision)["latency_ms"],
            value=solution.value,
        )

    def _valued(self, place: Place, precision: Precision = FLOAT) -> StagedProblem:
        """What is maximised at one place and precision: minus what changes of the whole network cost."""
        found = ChangesResult.model_validate(self.context.run.stage_result("changes")).of[start_of(place)]
        values = -np.array(found.blocks), -np.array(found.depths)
        return self.table.costs(place, precision).problem(
            self.spaces[place], *values, fixed_value=-self.trunk_at(place).loss
        )

    def _keep_fronts(self) -> None:
        """Write the union of exact fronts over starts, sizes and precisions: nothing is quicker and promises more."""
        points: list[dict[str, Any]] = []
        for place, precision in product(self.table.result.sizes, self.table.timed_in):
            found, space = front(self._valued(place, precision), "latency_ms"), self.spaces[place]
            choices, start = found.choices(), {"start": start_of(place)} if start_of(place) else {}
            for number, (ms, value) in enumerate(zip(found.costs.tolist(), found.values.tolist(), strict=True)):
                text = str(space.from_choice(choices[number]))
                where = {"image_size": pixels(place), **start, "precision": precision, "architecture": text}
                points.append({**where, "latency_ms": ms, "loss": -value})
        points.sort(key=lambda one: (one["latency_ms"], one["loss"]))
        best, union = np.inf, []
        for one in points:
            if one["loss"] < best:
                best = one["loss"]
                union.append(one)
        write_json(self.context.run.artifact("front.json"), {"certificate": "exact", "points": union})

    def _sentence(self, one: TrainedNetwork) -> str:
        space = self.spaces[one.place]
        whole, own = space.heaviest(), space.parse(one.architecture)
        costs = self.table.known(one.place, own)
        blocks = f"{sum(map(len, own.stages))} of {sum(map(len, whole.stages))} blocks"
        shape = "the whole network" if own == whole else f"{blocks}, {costs['params'] / 1e6:.2f} million parameters"
        accuracy = f"{one.validation_accuracy:.1f} % on validation"
        of = f" of {one.start}" if one.start else ""
        return f"{shape}{of} at {one.image_size} px, {costs['latency_ms']:.3g} ms in float: {accuracy}."

    # --- choosing and saying ---

    def pool(self) -> list[TrainedNetwork]:
        """The floor, and what was trained at its own size, at the searched sizes."""
        sizes = self.table.result.sizes
        unfit = {f"trunk-{place}" for place in sizes if pixels(place) != self.steps.trunk_size}
        trained = networks_of(self.context.run).values()
        return [one for one in trained if one.place in sizes and one.name not in unfit]

    def preferred(self, within: Sequence[TrainedNetwork]) -> TrainedNetwork:
        """Of what was trained, where it is not below the best of frozen features; else these."""
        floors = [one for one in within if not one.steps]
        bar = max((one.validation_accuracy for one in floors), default=0.0)
        above = [one for one in within if one.steps and one.validation_accuracy >= bar]
        above.sort(key=self._latency_ms)  # of equal ones the quicker
        if not above:
            return max(floors, key=order)
        accuracies, computed = [one.validation_accuracy for one in above], [self._float_ms(one) for one in above]
        return above[slowest_as_good(accuracies, computed, len(self.context.task.data.validation), CLEARLY)]

    def _latency_ms(self, one: TrainedNetwork) -> float:
        architecture = self.spaces[one.place].parse(one.architecture)
        return self.table.known(one.place, architecture, one.precision)["latency_ms"]

    def _float_ms(self, one: TrainedNetwork) -> float:
        """How much a network computes, in milliseconds: those of its float form where precisions are compared."""
        if len(self.table.timed_in) == 1:
            return self._latency_ms(one)
        return self.table.predicted(one.place, self.spaces[one.place].parse(one.architecture))["latency_ms"]

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
        best = max(map(self.floor, self._floors), key=order)
        data = self.data(best.place)
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
        tuned = TunedResult.model_validate(run.stage_result("train")).networks
        origins = (
            f"Started from {name} ({one['origin']}; licence: {one['licence']}; SHA-256 {one['sha256']})."
            for name, one in facts.pretrained.items()
        )
        shown = (self._sentence(trained[name]) for name in tuned if trained[name].place in self.table.result.sizes)
        starts = list(facts.pretrained.values())
        details = {
            "plan": self.steps.model_dump(),
            "pretrained": starts[0] if len(starts) == 1 else starts,
            "floor": facts.validation_accuracy,
            "certificate": "exact: the union of the exact fronts of all sizes and precisions is artifacts/front.json",
        }
        front = front_of(with_int8(run, self.pool()), self._latency_ms)
        return Summary(front, len(trained), [*origins, *shown], details)


def trunk_name(start: str) -> str:
    """Of the file with the weights of the tuned whole network of a start."""
    return f"trunk-{start}" if start else "trunk"


def steps_of(run: Run) -> TuningSteps:
    """The counted steps that the stage ``plan`` of a run keeps."""
    try:
        return TuningSteps.model_validate(run.stage_result("plan"))
    except ValidationError as error:
        raise InputError("a plan of a search from pretrained weights", f"another one in {run.folder}") from error


def most_size(own: int) -> int:
    """The largest size that images of ``own`` px are looked at: they are enlarged a little, small ones more."""
    return int(max(ALWAYS, ENLARGED * own))


def sizes_for(own: int, asked: int | None) -> tuple[int, ...]:
    """Sizes that are timed for images of ``own`` px; the one that was ``asked`` for, if any."""
    if asked is not None:
        return (asked,)
    most = most_size(own) // STEP * STEP
    found = [size for size in SIZES if size <= most]
    return (*found, most) if SIZES[-1] > most > found[-1] else tuple(found)


def finer(sizes: Sequence[int]) -> tuple[int, ...]:
    """Sizes between those that are timed, in the finest steps."""
    first = -(-sizes[0] // FINER) * FINER
    return tuple(size for size in range(first, sizes[-1], FINER) if size not in sizes and size > sizes[0])


def most_promising(found: Sequence[Proposal]) -> list[Proposal]:
    """Of the best network at each place and precision: what to tune.

    The whole networks at the largest size within the limit, in each precision and of each start, which are what one
    would take without a search; and one at a larger size than these by their value. Where no whole one fits there are
    two of the others. Networks of which too little is left are not looked at, unless there are no others.
    """
    wholes = largest_wholes(found)
    sizes = {start: max(one.image_size for one in wholes if one.start == start) for start in {w.start for w in wholes}}
    larger = [one for one in found if one.image_size > sizes.get(one.start, 0) and not one.whole]
    solid = [one for one in larger if one.share >= LEAST_SHARE]
    rest = sorted(solid if solid or wholes else larger, key=lambda one: -one.value)
    return [*wholes, *rest[: CANDIDATES - 1 if wholes else CANDIDATES]]


def largest_wholes(found: Iterable[Proposal]) -> list[Proposal]:
    """The whole network at its largest size, of each start and precision, less those that are the same network."""
    best = dict[tuple[str, Precision], Proposal]()
    for one in sorted((one for one in found if one.whole), key=lambda one: one.image_size):
        best[one.start, one.precision] = one
    return sorted(best.values(), key=lambda one: (-one.image_size, one.precision == FLOAT))


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
