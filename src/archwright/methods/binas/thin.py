"""The fast strategy of BINAS: the loosest limit's network gets most of the time, tighter ones are cut from it.

1. ``plan``: a few whole networks are timed in training. The time of a step follows their multiply-accumulates, so *the
   best network within a limit that can be trained in my time* is one exact problem with two resources: latency and
   multiply-accumulates. What a network is worth before any is trained was measured on two data sets, see
   docs/training.md.
2. ``train``: the best network within the tightest limit is proposed, and for each looser one the best that contains it.
   The loosest limit's is trained from scratch. Each tighter one takes the strongest channels of the larger one and is
   trained on towards that one's answers. A network that serves several limits is trained once, for the time of all of
   these.

Where the time is enough for few passes over the images it is not shared: the network of the tightest limit is trained
for all of it and answers every limit.

Trainings end by the clock: their steps are counted as they go, so that the minutes are kept on a busy machine too, and
every count is kept in the run, so that a resumed run, or one with ``plan_from``, trains the same networks. Every limit
gets the slowest network within it that is not clearly worse on validation, so that a looser one is never clearly worse.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from pydantic import Field, ValidationError

from archwright.costs.clock import MARGIN
from archwright.costs.device_table import DeviceTable
from archwright.costs.limits import said_limits
from archwright.costs.tables import LatencyTable
from archwright.data import Augmentation, Batches, ImageData
from archwright.data.augmentation import Augment
from archwright.errors import InfeasibleError, InputError, RunError
from archwright.methods.binas.options import BinasOptions
from archwright.methods.binas.worth import MACS, best_within, containing, inside, no_wider, worth
from archwright.quantise import Precision
from archwright.runs.files import Json
from archwright.runs.run import ItemLog, Run
from archwright.search.answer import Beside
from archwright.search.budget import Pace, step_fit
from archwright.search.context import Context
from archwright.search.limited import PlainSteps, Summary, front_of, tightest_first
from archwright.search.method import BY_LIMITS, Stage
from archwright.search.trained import TrainedNetwork, Trainer, networks_of, short_name, slowest_as_good, with_int8
from archwright.search.values import StageResult
from archwright.solvers import StagedProblem
from archwright.solvers.problem import StagedChoice
from archwright.spaces.base import Network
from archwright.spaces.compact import Compact, CompactArchitecture
from archwright.spaces.compact_network import CompactNetwork
from archwright.supernets.shrink import contains, shrink
from archwright.training import Recipe

LEARNING_RATE = 0.15
"""Of SGD, for batches of 64 images."""
LABEL_SMOOTHING = 0.1
WARMED_UP = 0.05
"""Part of a training over which the learning rate climbs; then it falls to nothing by a line."""
TAUGHT = 0.5
"""Weight of the larger network's answer against the label's in the training of a smaller one; one that was cut from the
larger one begins at the whole learning rate all the same (docs/training.md)."""
FEW_IMAGES = 1000
"""Up to so many training images the batches are half as large, which is more steps in the same time."""
FEW_PHOTOGRAPHS, SHOWN = 2000, {"crop": 0, "cutout": 0, "zoom": 0.6, "colour": 0.4}
"""Up to so many training images the default augmentation of photographs becomes this stronger one."""
MIRRORED_FROM, SHIFTED_FROM = 50.0, 150.0
"""Passes over the training images, times the parameters of the network for each of them, from which on grey images are
mirrored (as colour ones always are) and from which on images are shifted too: a network with many parameters that sees
them often learns them by heart, any other learns them better as they are. See the arms in docs/training.md."""

KEPT_BACK, KEPT_SECONDS = 0.03, 2.0
"""Part of the minutes, and seconds for each limit, that are kept for timing, testing and saving the answers."""
LEAST_SHARE = 0.2
"""Of the processor's time that this process is thought to get at least, on a machine however busy."""
BUSY = 0.8
"""Share of the processor's time up to which it is said how much this process gets."""
TABLE = 0.03
"""Part of the minutes after which no further round of the latency table is begun."""
BESIDE = 0.1
"""Part of the minutes for simple things beside."""
LOOSEST = 0.6
"""Part of the training time that the loosest of several limits gets; the others share the rest."""
SHARED_FROM = 25
"""Passes over the images, of the tightest limit's network in all of the time, from which on the time is shared among
limits. On Fashion-MNIST sharing lost points at 5 and at 13 passes and gained at 38: see docs/measured/binas.md."""
ASKED = 1 / 3
"""Part of a training step that a teacher's answer takes: no backward pass."""
LATE = 0.3
"""Part of the training time that a limit gets beside it which was given later."""
FEWEST_STEPS, FEWEST_SHIFTED, OF_NARROW = 1500, 10_000, 0.75
"""Steps that an answer should get: networks too large for them are not looked at. Shifted images are learnt slowly:
there it is the second number, or this part of what a narrow plain network would get (docs/training.md)."""
QUICKEST_MS = 0.1
"""No training step is quicker; a plan that says so does not make a training endless."""
LEAST_STEPS = 30
"""Steps below which nothing is worth training: a time too short for them is refused."""
CLEARLY, CLEARLY_OF_FEW, FEW_VALIDATED = 1.0, 2.0, 1000
"""Standard errors from which on an accuracy is clearly lower, so that a quicker network answers a looser limit too; and
of up to so many validation images, on which the best of several networks is often a lucky one."""
WELL_USED = 0.8
"""Part of a limit below which it is said that an answer leaves some of it unused, and why."""
TIMED_STEPS = 10
"""Steps of a real training that are timed for each of some networks."""
WORTH_IT = 0.85
"""Part of the time of a float32 step below which bfloat16 is taken."""

SHARES_OF_PLAIN = (1 / 3, 0.5, 0.7, 1.0)
"""The limits of a search that was given none, as parts of the latency of the usual plain network."""
PLAIN_CONVOLUTIONS, PLAIN_WIDTH = 3, 3
"""The usual plain network has at least so many convolutions, of that width number: one narrower where a stage needs
several."""
SAME_WORTH = 1e-6
"""Worths that differ by less are the same: they are sums of tenths."""

Limits = Mapping[str, float]


class Spending(StageResult):
    """How the minutes are spent.

    Attributes:
        seconds: of training, all in all.
        until: seconds of the run's working time at which trainings are to be over.
        beside_seconds: of simple things beside.
        limits: answers that they are for.
        precision: that trainings compute in.
        step_fixed_ms: of a training step, and
        step_mega_ms: more for each million multiply-accumulates of one image.
        shifted: whether training images are shifted, as they could be learnt by heart.
        mirrored: whether grey ones are mirrored at least.
        fewest_steps: that an answer should get; networks too large for them are not looked at.
        share: of these seconds that the processor was working for this process when they were planned.
        shared_from: passes over the images from which on several limits share the time.
    """

    seconds: float = Field(gt=0)
    until: float = Field(gt=0)
    beside_seconds: float = Field(ge=0)
    limits: int = Field(ge=1)
    precision: Literal["float32", "bfloat16"]
    step_fixed_ms: float = Field(ge=0)
    step_mega_ms: float = Field(gt=0)
    shifted: bool
    mirrored: bool = False
    fewest_steps: int = Field(FEWEST_STEPS, ge=1)
    share: float = Field(1.0, gt=0, le=1)
    shared_from: float = Field(SHARED_FROM, ge=0)

    def step_ms(self, macs: float) -> float:
        """Milliseconds of a training step of a network with so many multiply-accumulates an image."""
        return self.step_fixed_ms + self.step_mega_ms * macs / 1e6

    def steps(self, seconds: float, macs: float) -> int:
        """Steps that fit into ``seconds``, of a network with so many ``macs`` an image."""
        return max(1, round(1000 * seconds / max(self.step_ms(macs), QUICKEST_MS)))

    def most_macs(self, seconds: float) -> float:
        """Multiply-accumulates of the largest network that ``seconds`` are enough for."""
        return max(0.0, 1e6 * (1000 * seconds / self.fewest_steps - self.step_fixed_ms) / self.step_mega_ms)


class Proposal(StageResult):
    """A network that is to be trained.

    Attributes:
        architecture: of it.
        source: architecture of the larger network that teaches it, and that it is cut out of where it is inside; empty
            for one that learns alone.
    """

    architecture: str
    source: str = ""

    @property
    def name(self) -> str:
        """The name that its training has in the run."""
        return short_name(f"{self.architecture} from {self.source}", "thinned" if self.source else "trained")


class TrainResult(StageResult):
    """What was trained for each limit, the loosest first."""

    answers: list[Proposal]


@dataclass
class Thin:
    """The strategy; the frame sets ``table``."""

    context: Context
    options: BinasOptions
    space: Compact
    table: DeviceTable = field(init=False)

    repeated = ("stages/plan.json",)
    facts: Mapping[str, Json] = field(default_factory=dict)

    # --- settings ---

    @property
    def spaces(self) -> dict[int, Compact]:
        """One, at the images' own size."""
        return {self._size: self.space}

    @property
    def _size(self) -> int:
        return self.space.scale.image_size

    @cached_property
    def recipe(self) -> Recipe:
        """Of a training whose steps are one pass."""
        c, data = self.context.configuration, self.context.task.data
        batch = min(c.batch_size or (32 if len(data.train) <= FEW_IMAGES else 64), len(data.train))
        return self.context.task.recipe.changed(
            epochs=1,
            warmup_epochs=WARMED_UP,
            schedule="linear",
            lr=c.lr or LEARNING_RATE * batch / 64,
            batch_size=batch,
            label_smoothing=LABEL_SMOOTHING,
        )

    def augment(self, data: ImageData) -> Augment | None:
        """Of all trainings, by how often the images will be seen."""
        if self.context.run.stage_result("plan") is None:
            return self._augment(data, shifted=True, mirrored=True)
        return self._augment(data, shifted=self.spending.shifted, mirrored=self.spending.mirrored)

    def _augment(self, data: ImageData, *, shifted: bool, mirrored: bool) -> Augment | None:
        """What is done to training images; what a user asks for is left as it is.

        Args:
            data: the images.
            shifted: whether all that is usual for them is done.
            mirrored: whether grey ones are mirrored at least, where that is usual.
        """
        task, usual = self.context.task, self.context.task.augmentation_of(data)
        if not isinstance(usual, Augmentation) or self.context.configuration.augment != "default":
            return usual
        colour = data.image_channels == 3
        if usual.flip and colour and len(data.train) <= FEW_PHOTOGRAPHS:
            return task.augmentation_of(data, **SHOWN)
        if shifted:
            return task.augmentation_of(data, cutout=0)
        return task.augmentation_of(data, cutout=0, crop=0, flip=usual.flip and (colour or mirrored))

    @cached_property
    def trainer(self) -> Trainer:
        """What trains, validates and keeps the networks."""
        return Trainer(self.context, self.recipe, lambda _: self.context.task.data, self.augment)

    @property
    def _seconds(self) -> float:
        """What the user spends."""
        minutes, data = self.context.configuration.minutes, self.context.task.data
        return 60 * (minutes or default_minutes(len(data.train), data.image_size))

    def estimate_seconds(self) -> float:
        """What the user spends."""
        return self._seconds

    @property
    def table_seconds(self) -> float:
        """A small part of it."""
        return TABLE * self._seconds

    def check(self) -> None:
        """A plan that the run has must be readable."""
        _ = self.recipe
        if self.context.run.stage_result("plan") is not None:
            _ = self.spending

    def check_source(self, source: Run) -> None:
        """The plan that is repeated must be of this version, of the same space and of as many limits."""
        c, own = self.context.configuration, spending_of(source)
        if c.limits and self.context.run.stage_result("train") is None and len(c.limit_sets) != own.limits:
            raise InputError(
                f"as many limits as the plan of {source.folder} is for: {own.limits}", str(len(c.limit_sets))
            )
        LatencyTable.load(source.folder / "artifacts" / "latency.json").check(self.space)

    def limits_without(self) -> list[float]:
        """From a third of a plain network's latency up to it."""
        plain = float(self.table.latency.predict(self.space, [self._by_hand])[0])
        return [round(share * plain / MARGIN, 4) for share in SHARES_OF_PLAIN]

    def plain_of(self, width: int) -> CompactArchitecture:
        """The plain network of one width number with three convolutions, or more where stages have several."""
        depth = min(-(-PLAIN_CONVOLUTIONS // self.space.stages), max(self.space.depths))
        return self.space.plain(depth, width)

    @property
    def _by_hand(self) -> CompactArchitecture:
        """The usual plain network."""
        several = self.space.stages < PLAIN_CONVOLUTIONS
        return self.plain_of(PLAIN_WIDTH - several)

    def before_table(self) -> list[Stage]:
        """No stage comes before the table."""
        return []

    def training_stages(self) -> list[Stage]:
        """The plan, and all trainings in one stage."""
        return [
            Stage("plan", "plan", self.plan),
            Stage("train", "train, and thin for tighter limits", self._train, redone=BY_LIMITS),
        ]

    # --- plan ---

    def plan(self) -> Spending:
        """The stage ``plan``: time training steps of some networks, and say how the minutes are spent."""
        context, pace = self.context, self._pace
        with pace.watched():
            precision = self._precision(pace)
            fixed, mega = self._step_line(pace, precision)
        spent, beside = context.run.seconds_spent(), BESIDE * self._seconds * self.context.configuration.beside
        limits = len(self.table.limit_sets)
        kept = self._kept_back(limits)
        until = self._seconds - kept - beside
        found = Spending(
            seconds=max(until - spent, 1e-3),
            until=max(until, 1e-3),
            beside_seconds=beside,
            limits=limits,
            precision=precision,
            step_fixed_ms=fixed,
            step_mega_ms=mega,
            shifted=False,
            share=1.0 if self.options.minutes_of == "processor" else max(pace.share, LEAST_SHARE),
        )
        self._check_time(found, spent + beside + kept)
        together = self._one_for_all(found)
        first, place = (found.seconds, 0) if together else (self._share([1] * limits) * found.seconds, -1)
        found = self._showing(found, first, place)
        passes = self._passes(found, first, self._counted(found, first, place)[MACS])
        whose = "one network for all limits" if together else "the loosest limit's network"
        apart = limits > 1 and not together
        further = f", {(found.seconds - first) / (limits - 1):.3g} s for each tighter one" if apart else ""
        busy = "" if found.share > BUSY else f" This process gets {found.share:.0%} of a processor now."
        seen = f"{passes:,.0f}" if passes >= 10 else f"{passes:.1f}"
        context.progress.say(
            f"Plan: {first:.3g} s for {whose}, about {seen} passes over the images, in "
            f"{precision}{further}; {beside:.3g} s for simple models to compare.{busy}"
        )
        return found

    def _showing(self, found: Spending, seconds: float, place: int) -> Spending:
        """The plan with images mirrored, or shifted and more steps for every answer, where they are seen often.

        Args:
            found: as it is so far.
            seconds: of the first training.
            place: of its limit, from the tightest on.
        """
        counted, images = self._counted(found, seconds, place), len(self.context.task.data.train)
        passes = self._passes(found, seconds, counted[MACS])
        seen = passes * counted["params"] / images
        if seen < SHIFTED_FROM:
            return found.model_copy(update={"mirrored": seen >= MIRRORED_FROM})
        narrow = found.steps(found.share * seconds, self._macs(self.space.plain(width=1)))
        steps = min(FEWEST_SHIFTED, round(OF_NARROW * narrow))
        return found.model_copy(
            update={"shifted": True, "mirrored": True, "fewest_steps": max(found.fewest_steps, steps)}
        )

    @cached_property
    def _pace(self) -> Pace:
        streamed = not self.context.task.data.train.in_memory
        return Pace(self.context.device, self.recipe.batch_size, self.context.team, streamed)

    def _kept_back(self, limits: int) -> float:
        """Seconds that timing, testing and saving so many answers take on a quiet machine."""
        return KEPT_BACK * self._seconds + KEPT_SECONDS * limits

    def _share(self, waiting: Sequence[int]) -> float:
        """Part of the time that is left for the first of some networks, each for so many limits, the loosest first."""
        if len(waiting) == 1 or self.options.limits_equally:
            return waiting[0] / sum(waiting)
        return LOOSEST if len(self.answers.done) == 0 else 1 / len(waiting)

    def _check_time(self, found: Spending, taken: float) -> None:
        """Refuse a time in which nothing can be trained."""
        least = LEAST_STEPS * found.limits * found.step_ms(self._macs(self.space.lightest())) / 1000
        if found.seconds < least:
            minutes = (taken + least) / (1 - BESIDE * self.context.configuration.beside - KEPT_BACK) / 60
            raise InfeasibleError(
                f"in {self._seconds / 60:.3g} minutes nothing can be trained here: timing takes {taken:.3g} s, and "
                f"{LEAST_STEPS} steps for each limit {least:.3g} s. Give at least --minutes {minutes:.2g}."
            )

    def _passes(self, spending: Spending, seconds: float, macs: float) -> float:
        """Passes over the training images in ``seconds``, of a network with so many ``macs`` an image."""
        steps = spending.steps(spending.share * seconds, macs)
        return steps * self.recipe.batch_size / len(self.context.task.data.train)

    def _one_for_all(self, spending: Spending) -> bool:
        """Whether one network is trained for all limits, as there is time for few passes over the images."""
        if spending.limits == 1 or self.options.limits_equally:
            return False
        counted = self._counted(spending, spending.seconds, 0)
        return self._passes(spending, spending.seconds, counted[MACS]) < spending.shared_from

    def _counted(self, spending: Spending, seconds: float, place: int) -> Mapping[str, float]:
        """Costs of the network that ``seconds`` would be spent on for a limit, by the table alone.

        Args:
            spending: the plan.
            seconds: of its training.
            place: of the limit, from the tightest on.
        """
        limits = tightest_first(self.table.limit_sets)[place]
        try:
            return best_within(self.valued, spending.most_macs(spending.share * seconds), limits).costs
        except InfeasibleError:  # said when it is trained
            return self.table.predicted(self._size, self.space.lightest())

    def _precision(self, pace: Pace) -> Literal["float32", "bfloat16"]:
        """What trainings compute in: bfloat16 where a step of a plain network is clearly quicker in it."""
        plain, half = (self._step_ms(pace, self._by_hand, name) for name in ("float32", "bfloat16"))
        return "bfloat16" if half < WORTH_IT * plain else "float32"

    def _step_line(self, pace: Pace, precision: str) -> tuple[float, float]:
        """Milliseconds of a real step: a fixed part, and one for each million multiply-accumulates."""
        shapes = [(1, 0), (1, 1), (2, self.space.most_widths - 2)]
        networks = [self.space.plain(min(depth, max(self.space.depths)), width) for depth, width in shapes]
        macs = np.array([self._macs(one) for one in networks]) / 1e6
        timed = np.array([self._step_ms(pace, one, precision) for one in networks])
        mega, fixed = step_fit(macs, timed, self._macs(self.space.lightest()) / 1e6)
        return max(fixed, 0.0), mega

    def _step_ms(self, pace: Pace, architecture: CompactArchitecture, precision: str) -> float:
        data, device = self.context.task.data, self.context.device.name
        augment = self._augment(data, shifted=True, mirrored=True)
        batches = Batches(data, "train", self.recipe.batch_size, augment=augment, device=device)
        network = self.space.build(architecture, self.space.scale)
        return pace.real_step_ms(network, batches, self.recipe.changed(precision=precision), TIMED_STEPS)

    def _macs(self, architecture: CompactArchitecture) -> float:
        return float(self.space.cost(architecture, self.space.scale).macs)

    @property
    def spending(self) -> Spending:
        """The plan as it was made and kept; it cannot spend more than there is."""
        found = spending_of(self.context.run)
        if max(found.seconds, found.beside_seconds) > self._seconds:
            raise RunError(
                f"expected a plan of at most {self._seconds:g} s in {self.context.run.folder}, got one of "
                f"{found.seconds:g} s. Start a new search."
            )
        return found

    @cached_property
    def valued(self) -> StagedProblem:
        """Costs of the space, and what networks are thought to be worth before any is measured."""
        return worth(self.space, self.table.problem(self._size, self._counted_in))

    @cached_property
    def _counted_in(self) -> Precision:
        """The precision that proposals are to keep their limits in: int8 where it is asked for and quicker."""
        whole = self.space.heaviest()
        times = {one: self.table.predicted(self._size, whole, one)["latency_ms"] for one in self.table.timed_in}
        return min(times, key=lambda one: times[one])

    # --- training ---

    @property
    def answers(self) -> ItemLog:
        """The run's log of what was trained for each limit."""
        return self.context.run.items("answers")

    def _train(self) -> TrainResult:
        """One training a network, the loosest limit's first; what is kept of an earlier call is not done again."""
        log, limit_sets = self.answers, tightest_first(self.table.limit_sets)[::-1]
        proposals = self.proposed(limit_sets)
        waiting: dict[Proposal, list[Limits]] = {}
        for limits, proposal in zip(limit_sets, proposals, strict=True):
            if json.dumps(limits) not in log.done:
                waiting.setdefault(proposal, []).append(limits)
        while waiting:
            share = self._share([len(limits) for limits in waiting.values()])
            proposal = next(iter(waiting))
            self.train_network(proposal, self._allotted(proposal, share))
            for answered in waiting.pop(proposal):
                log.record(json.dumps(answered), proposal.model_dump())
                self.context.progress.say(self._sentence(answered, proposal))
        return TrainResult(answers=[log.done[json.dumps(limits)] for limits in limit_sets])

    def proposed(self, limit_sets: Sequence[Limits]) -> list[Proposal]:
        """What is to be trained for each limit, the loosest first; kept, as what is timed does not repeat."""
        log = self.context.run.items("proposals")
        if not log.done:
            nested = zip(limit_sets, self._nested(limit_sets), strict=True)
            log.record_all([(json.dumps(limits), proposal.model_dump()) for limits, proposal in nested])
        for limits in limit_sets:
            if json.dumps(limits) not in log.done:
                log.record(json.dumps(limits), self._further(limits).model_dump())
        return [Proposal.model_validate(log.done[json.dumps(limits)]) for limits in limit_sets]

    def _nested(self, limit_sets: Sequence[Limits]) -> list[Proposal]:
        """A chain of networks that contain each other, one a limit, the loosest first, worth the most together.

        The best within the tightest limit may be so wide that nothing good is around it. So it is looked for with every
        bound on its widths, each looser limit's is the best that contains it, and tighter ones grow again where these
        leave them room. The chain counts that is worth most by the table; it is then held to its limits here. In a time
        for few passes all have the tightest one's.
        """
        tightest = list(reversed(limit_sets))
        if self._one_for_all(self.spending):
            return [Proposal(architecture=self._best(tightest[0], self.valued))] * len(tightest)
        worths = []
        for width in range(self.space.most_widths):
            try:
                worths.append((sum(map(self._value, self._chain(tightest, width, self._within))), width))
            except InfeasibleError:
                continue
        width = max(worths)[1] if worths else self.space.most_widths - 1
        chain = self._chain(tightest, width, self._best)[::-1]
        larger = [next((one for one in reversed(chain[:place]) if one != own), "") for place, own in enumerate(chain)]
        return [Proposal(architecture=own, source=source) for own, source in zip(chain, larger, strict=True)]

    def _chain(
        self, limit_sets: Sequence[Limits], width: int, best: Callable[[Limits, StagedProblem], str]
    ) -> list[str]:
        """One network a limit, the tightest first, each inside the next one; widths of the first are bound at first.

        Args:
            limit_sets: the tightest first.
            width: number of the widest width of the first network, as it is looked for at first.
            best: the best network of a problem within limits.
        """
        problem, chain = no_wider(self.space, self.valued, width), list[str]()
        for before, limits in zip([None, *limit_sets], limit_sets, strict=False):
            try:
                chain.append(best(limits, problem))
            except InfeasibleError:
                if before is None:
                    raise
                looser = all(most >= before[name] for name, most in limits.items())  # in each of several resources
                chain.append(chain[-1] if looser else best(limits, self.valued))
            problem = containing(self.space, self.valued, self._choice(chain[-1]))
        for place in reversed(range(len(chain) - 1)):
            chain[place] = self._between(chain, place, limit_sets[place], best)
        return chain

    def _between(
        self, chain: Sequence[str], place: int, limits: Limits, best: Callable[[Limits, StagedProblem], str]
    ) -> str:
        """A network of the chain again, now that the looser limits' are known: what left room for these may grow.

        It is the best that is inside the next one and contains the one before, where that is worth more.

        Args:
            chain: one network a limit, the tightest first.
            place: of the network, which is not the last.
            limits: that it is for.
            best: the best network of a problem within limits.
        """
        problem, own = inside(self.space, self.valued, self._choice(chain[place + 1])), chain[place]
        if place:
            problem = containing(self.space, problem, self._choice(chain[place - 1]))
        try:
            if self._value(self._within(limits, problem)) <= self._value(own) + SAME_WORTH:
                return own
            found = best(limits, problem)
        except InfeasibleError:  # in what the clock shows now
            return own
        return max(own, found, key=self._value)

    def _further(self, limits: Limits) -> Proposal:
        """For a limit that was given later: inside the quickest network that does not keep it, else the best of all."""
        known = {one["architecture"]: Proposal(**one) for one in self.context.run.items("proposals").done.values()}
        parsed = {text: self.space.parse(text) for text in known}
        within = [text for text, one in parsed.items() if self.table.keeps(self._size, one, limits, self._counted_in)]
        costs = {text: self.table.known(self._size, one, self._counted_in) for text, one in parsed.items()}
        larger = sorted((text for text in costs if text not in within), key=lambda text: costs[text]["latency_ms"])
        if not larger:
            return Proposal(architecture=self._best(limits, self.valued))
        if within:
            return known[max(within, key=self._value)]
        try:
            inner = inside(self.space, self.valued, self._choice(larger[0]))
            return Proposal(architecture=self._best(limits, inner), source=larger[0])
        except InfeasibleError:
            return Proposal(architecture=self._best(limits, self.valued), source=larger[0])

    @property
    def _most_macs(self) -> float:
        """Multiply-accumulates of the largest network that there is time for."""
        spending = self.spending
        alone = spending.limits == 1 or self._one_for_all(spending)
        return spending.most_macs(spending.share * spending.seconds * (1.0 if alone else LOOSEST))

    def _within(self, limits: Limits, problem: StagedProblem) -> str:
        """The most valuable network of ``problem`` within ``limits``, by the table, for which there is time."""
        return str(self.space.from_choice(best_within(problem, self._most_macs, limits).choice))

    def _best(self, limits: Limits, problem: StagedProblem) -> str:
        """The same as timed here."""
        most = self._most_macs
        found = self.table.fitting(self._size, lambda own: best_within(problem, most, own), limits, self._counted_in)
        return str(self.space.from_choice(found.choice))

    def _choice(self, architecture: str) -> StagedChoice:
        return self.space.to_choice(self.space.parse(architecture))

    def _value(self, architecture: str) -> float:
        return float(self.valued.evaluate(self._choice(architecture))[0])

    def _allotted(self, proposal: Proposal, share: float) -> float:
        """Seconds of a training: its share of what is left until trainings are to be over; kept when it is decided.

        Where the processor works for others, too, what comes after trainings takes longer, and these end sooner.
        When their end is past (a limit that was given later), it has a time of its own.
        """
        log, spending = self.context.run.items("allotted"), self.spending
        if proposal.name not in log.done:
            if self.options.minutes_of == "processor":
                left = spending.seconds - sum(map(float, log.done.values()))
            else:
                crowded = 1 / max(self._pace.share, LEAST_SHARE) - 1
                left = spending.until - self.context.run.seconds_spent() - crowded * self._kept_back(spending.limits)
            log.record(proposal.name, round(share * left if left > 0 else LATE * spending.seconds, 3))
        return min(float(log.done[proposal.name]), self._seconds)

    def train_network(self, proposal: Proposal, seconds: float) -> TrainedNetwork:
        """Train ``proposal`` for ``seconds``, from scratch or from the larger one; validate and keep it."""
        name, known = proposal.name, networks_of(self.context.run)
        if name in known:
            return known[name]
        parsed, network = self.space.parse(proposal.architecture), self.new_network(proposal.architecture)
        recipe, teacher = self.recipe.changed(precision=self.spending.precision), None
        if proposal.source:
            source = next(one for one in known.values() if one.architecture == proposal.source)
            teacher, recipe = self.trainer.load(source.weights), recipe.changed(distill_weight=TAUGHT)
            whole = self.space.parse(proposal.source)
            if contains(whole, parsed):
                assert isinstance(teacher, CompactNetwork)
                network = shrink(teacher, whole, parsed, self.space)
        macs = self._macs(parsed) + (ASKED * self._macs(self.space.parse(proposal.source)) if proposal.source else 0.0)
        steps = self.spending.steps(seconds, macs)
        if self.options.minutes_of == "processor":
            self.trainer.train(name, network, self._size, steps, recipe, teacher)
        else:
            with self._pace.watched():
                steps = self.trainer.train_for(name, network, self._size, seconds, steps, recipe, teacher)
        return self.trainer.keep(name, network, parsed, self.space, steps)

    def new_network(self, architecture: str) -> Network:
        """With the initial weights of the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.context.configuration.seed)
            return self.space.build(self.space.parse(architecture), self.space.scale)

    # --- choosing and saying ---

    def pool(self) -> list[TrainedNetwork]:
        """Everything that was trained."""
        return list(networks_of(self.context.run).values())

    def preferred(self, within: Sequence[TrainedNetwork]) -> TrainedNetwork:
        """The slowest that is not clearly worse on validation: what a limit allows is used where that costs nothing."""
        accuracies = [one.validation_accuracy for one in within]
        computed, images = [self._computed(one) for one in within], len(self.context.task.data.validation)
        errors = CLEARLY_OF_FEW if images <= FEW_VALIDATED else CLEARLY
        return within[slowest_as_good(accuracies, computed, images, errors)]

    def _computed(self, one: TrainedNetwork) -> float:
        """How much a network computes, in milliseconds: those of its float form where precisions are compared."""
        if len(self.table.timed_in) == 1:
            return self._known(one)["latency_ms"]
        return self.table.predicted(self._size, self.space.parse(one.architecture))["latency_ms"]

    def _known(self, one: TrainedNetwork) -> dict[str, float]:
        return self.table.known(self._size, self.space.parse(one.architecture), one.precision)

    def plain(self) -> PlainSteps:
        """In the time for simple things beside."""
        recipe, own = self.recipe.changed(precision=self.spending.precision), self.spending.beside_seconds
        left = self._seconds - self.context.run.seconds_spent()
        seconds = own if self.options.minutes_of == "processor" else min(own, max(left, 0.0))
        return PlainSteps(recipe, 1, self.augment(self.context.task.data), seconds)

    def beside(self) -> dict[str, Beside]:
        """Nothing beyond what the frame tries."""
        return {}

    def summary(self) -> Summary:
        """All that was trained and is not dominated, and what became of each limit."""
        front = front_of(with_int8(self.context.run, self.pool()), lambda one: self._known(one)["latency_ms"])
        answers = self.answers.done
        sentences = [self._sentence(json.loads(key), Proposal.model_validate(one)) for key, one in answers.items()]
        return Summary(front, len(self.pool()), sentences[::-1], {"plan": self.spending.model_dump()})

    def _sentence(self, limits: Limits, proposal: Proposal) -> str:
        """What became of a limit's training, for people."""
        new, where = networks_of(self.context.run)[proposal.name], said_limits(limits)
        how = "cut from a looser limit's network and taught by it" if proposal.source else "trained from scratch"
        said = f"{where}: {how}, {new.validation_accuracy:.1f} % on validation after {new.steps:,} steps."
        ms = self.table.known(self._size, self.space.parse(new.architecture), self._counted_in)["latency_ms"]
        used = ms / limits["latency_ms"] if "latency_ms" in limits else 1.0
        if used >= WELL_USED:
            return said
        if self._one_for_all(self.spending):
            passes = self._passes(self.spending, self.spending.seconds, self._macs(self.space.parse(new.architecture)))
            return (
                f"{said} It uses {used:.0%} of the limit: {passes:.0f} passes over the images are too few to train "
                f"several networks. More --minutes, or this limit alone, get a larger one."
            )
        return f"{said} It uses {used:.0%} of the limit: no larger one that fits is expected to be better."


def spending_of(run: Run) -> Spending:
    """The plan that a run goes by."""
    try:
        return Spending.model_validate(run.stage_result("plan"))
    except ValidationError as error:
        raise RunError(
            f"expected a plan as this version makes it, got another one in {run.folder}. Start a new search."
        ) from error


def default_minutes(images: int, image_size: int) -> float:
    """Minutes for a search that was given none: more for more ``images`` and for a larger ``image_size`` in pixels.

    Few images need as many steps as a thousand do: they are only seen more often.
    """
    return float(min(60.0, max(2.0, round(2 * max(1.0, images / 1000) ** 0.5 * image_size / 16))))
