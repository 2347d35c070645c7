"""The fast strategy of BINAS: small networks tried for the tightest limit, one trained on, and grown where it pays.

1. ``plan``: from timed training steps, how the given minutes are shared out. The networks to try are exact answers of
   one problem with two resources: the tightest limit, and the time of a training step.
2. ``candidates``: each is trained for the same short time.
3. ``train``: the network that a person would try, or a candidate clearly better than it, is the trunk and is trained
   on. For each looser limit the best network so far grows to the largest that the limit and the time allow, without
   changing its function, and is trained on; a growth that does not pay on validation is dropped, and the next limit's
   time goes on with what it came from. Every training is steady first and anneals at its end; larger networks grow
   from the steady state. Where the time is too short for that the trunk gets all of it, and answers every limit.

Every answer is the best on validation within its limit, so that a looser limit is never worse. The schedule is made
once and kept, and counts steps: a resumed run, or one with ``plan_from``, trains the same networks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log2
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError, computed_field

from archwright.costs.additive import StagedCosts
from archwright.costs.clock import MARGIN
from archwright.costs.device_table import DeviceTable
from archwright.costs.limits import met
from archwright.costs.measure import Timing
from archwright.costs.tables import LatencyTable
from archwright.data import Augmentation, Batches, ImageData
from archwright.data.augmentation import Augment
from archwright.errors import InfeasibleError, InputError, RunError
from archwright.methods.binas.options import BinasOptions
from archwright.runs.files import Json
from archwright.runs.run import Run
from archwright.search.answer import Beside
from archwright.search.beside import PlainNetwork
from archwright.search.budget import Pace, step_fit, steps_within
from archwright.search.context import Context
from archwright.search.limited import PlainSteps, Summary, front_of, said_limits, tightest_first
from archwright.search.method import BY_LIMITS, Stage
from archwright.search.trained import TrainedNetwork, Trainer, better_than, networks_of, order, short_name
from archwright.search.values import StageResult
from archwright.solvers import StagedProblem, milp
from archwright.solvers.problem import Solution, StagedChoice
from archwright.spaces.base import Network
from archwright.spaces.compact import Compact, CompactArchitecture
from archwright.spaces.compact_network import CompactNetwork
from archwright.spaces.compact_scale import PLAIN
from archwright.spaces.staged import StagedSpace
from archwright.supernets.grow import grow
from archwright.training import Recipe

LEARNING_RATE = 0.05
LABEL_SMOOTHING = 0.1
FEW_IMAGES = 1000
"""Up to so many training images the batches are half as large, which is more steps in the same time."""
FEW_PHOTOGRAPHS, SHOWN = 2000, {"crop": 0, "cutout": 0, "zoom": 0.6, "colour": 0.4}
"""Up to so many training images the default augmentation of photographs becomes this stronger one."""
LOOSER = 1.8
"""A search without limits gets the latency of a plain network, and so many times it."""

STEP = "step_ms"
"""The resource that time for training is counted in: milliseconds of one training step."""
STEPS_FILE = "steps.json"
"""The table of training steps, among the run's artifacts."""
STEP_TIMING = Timing(batch=16, warm_up=1, repeats=3, training=True)
"""Of a block; whole networks tell what the real batch takes."""
OVERHEAD_STEPS = 25
"""Steps of a real training that are timed to know what each takes beyond its forward and backward pass."""
KEPT_BACK = 0.06
"""Part of the minutes that is kept for timing, testing and saving."""
LEAST_TRAINING = 0.3
"""Part of the minutes that is spent on training even where the tables took too long."""

CANDIDATE_SHARE = 0.1
"""Part of the time for training that goes into short trainings of candidates for the tightest limit."""
CANDIDATES = 4
"""Of them, at most."""
TRUNK_PARTS = 2
"""The first answer, which all others grow from, gets so many times what a further one does."""
FEWEST_STEPS = 1200
"""Steps that the first answer should get: networks whose step is too slow for that are not looked at."""
GROWTH_STEPS = 1000
"""Steps that a grown network should get."""
SHARED_FROM = 100
"""Times that the first answer's network could see every image, from which on its time is shared with larger ones."""
ANNEALED = 0.25
"""Part of an answer's training over which the learning rate falls to nothing. Until then it is steady, and that is
where the next, larger network goes on from: annealed weights would have to be warmed up again."""

PLAIN_WIDTH = 2
"""Width number of the plain network that a person would try: always among the candidates where it keeps the limits."""
TRIED = ((0.5, True), (1.0, False), (0.25, False), (0.5, False), (1.0, True), (0.25, True))
"""Further candidates: each with the part of the longest step that it may take, and whether of plain blocks alone.
Whether a large network pays in the time is measured."""
WIDER, DEEPER = 1.0, (0.0, 0.7, 1.1)
"""What twice the width and each depth of a stage are thought to be worth before anything is measured."""
KIND_WORTH = {"bb": 0.3, "er": 0.1, "ir": -0.2}
"""What a block of a kind is thought to be worth beside a plain one: basic, fused and inverted residual."""
TOO_DEAR = 1.5
"""What must not be chosen costs so many times what the dearest network does."""

Limits = Mapping[str, float]


class Shares(StageResult):
    """What is known of the time there is; who gets how much follows from it, and is turned into steps.

    Attributes:
        seconds: of training, all in all.
        limits: answers that it is for.
        beside: whether a plain network is trained beside them.
        first_step_ms: of the network that a person would try.
        steps_a_pass: over the training images.
        least_step_ms: of the quickest network.
        overhead_ms: of a step, for its images and the bookkeeping of a training.
        plain_step_ms: one step of the plain network, with that.
        step_factor: times the table of step times, which is of small batches, and
        step_offset_ms: more than that are steps of the real ones.
    """

    seconds: float = Field(gt=0)
    limits: int = Field(ge=1)
    beside: bool = True
    first_step_ms: float = Field(gt=0)
    steps_a_pass: float = Field(gt=0)
    least_step_ms: float = Field(gt=0)
    overhead_ms: float = Field(ge=0)
    plain_step_ms: float = Field(gt=0)
    step_factor: float = Field(gt=0)
    step_offset_ms: float

    def steps(self, seconds: float, step_ms: float) -> int:
        """Steps of a network, whose forward and backward pass take ``step_ms``, that fit into ``seconds``."""
        return steps_within(seconds, step_ms + self.overhead_ms)

    def candidate_seconds(self, count: int) -> float:
        """For each of ``count`` networks that were proposed."""
        return CANDIDATE_SHARE * self.seconds / count

    @property
    def _part(self) -> float:
        """Seconds of a further answer: the first has some parts, the plain network the mean of all answers."""
        answers = TRUNK_PARTS + self.limits - 1
        return (1 - CANDIDATE_SHARE) * self.seconds / (answers + self.beside * answers / self.limits)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shared(self) -> bool:
        """Whether the answers' time is shared with networks that grow from the first one.

        Until a network has seen its images a hundred times it gains more by further passes than by growing.
        """
        steps = self.steps((TRUNK_PARTS + self.limits - 1) * self._part, self.first_step_ms)
        return steps >= SHARED_FROM * self.steps_a_pass and self.first_step_ms <= self.longest_grown_ms

    @computed_field  # type: ignore[prop-decorator]
    @property
    def trunk_seconds(self) -> float:
        """For the first answer; where the time is not shared that of all."""
        if self.shared:
            return TRUNK_PARTS * self._part
        return (1 - CANDIDATE_SHARE) * self.seconds / (1 + self.beside)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def growth_seconds(self) -> float:
        """For each further answer; where the time is not shared only of a limit that comes later."""
        return self._part

    @computed_field  # type: ignore[prop-decorator]
    @property
    def plain_seconds(self) -> float:
        """For the plain network beside: as one answer has in the mean."""
        return self._part * (TRUNK_PARTS + self.limits - 1) / self.limits if self.shared else self.trunk_seconds

    @property
    def longest_step_ms(self) -> float:
        """Of a network that is tried; the quickest one always is."""
        return max(1000 * self.trunk_seconds / FEWEST_STEPS - self.overhead_ms, self.least_step_ms)

    @property
    def longest_grown_ms(self) -> float:
        """Of a step of a grown network."""
        return max(1000 * self.growth_seconds / GROWTH_STEPS - self.overhead_ms, self.least_step_ms)

    @property
    def plain_steps(self) -> int:
        """Steps of the plain network beside."""
        return steps_within(self.plain_seconds, self.plain_step_ms) if self.beside else 1


class CandidatesResult(StageResult):
    """Names of the networks that were tried."""

    networks: list[str]


class GrownAnswer(StageResult):
    """What became of one limit's training.

    Attributes:
        trained: name of the network; ``base`` of the best one before it.
        base: what it is compared with.
        how: ``trained`` on, ``grown``, or the base ``kept``.
        paid: whether it is better than what it came from, so that answers may be it.
        steady: name of its state before the learning rate fell.
        source: name of what it goes on from.
        why: of a base that was kept.
    """

    trained: str
    base: str
    how: str
    paid: bool
    steady: str = ""
    source: str = ""
    why: str = ""


class TrainResult(StageResult):
    """One record a limit, the tightest first."""

    answers: list[GrownAnswer]


@dataclass
class Grow:
    """The strategy; the frame sets ``table``."""

    context: Context
    options: BinasOptions
    space: Compact
    table: DeviceTable = field(init=False)

    repeated = ("stages/plan.json", f"artifacts/{STEPS_FILE}")
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

    def augment(self, data: ImageData) -> Augment | None:
        """Of all trainings: few photographs in colour are seen often, and are shown in more ways."""
        usual = self.context.task.augmentation_of(data)
        photographs = isinstance(usual, Augmentation) and usual.flip and data.image_channels == 3
        few = photographs and len(data.train) <= FEW_PHOTOGRAPHS
        return self.context.task.augmentation_of(data, **SHOWN) if few else usual

    @cached_property
    def trainer(self) -> Trainer:
        """What trains, validates and keeps networks, for counted steps of :attr:`recipe`."""
        return Trainer(self.context, self.recipe, lambda _: self.context.task.data, self.augment)

    @property
    def _seconds(self) -> float:
        """What the user spends."""
        minutes, data = self.context.configuration.minutes, self.context.task.data
        return 60 * (minutes or default_minutes(len(data.train), data.image_size))

    def estimate_seconds(self) -> float:
        """What the user spends."""
        return self._seconds

    def check(self) -> None:
        """The shares that the run keeps, if it does, must be readable."""
        _ = self.recipe
        if self.context.run.stage_result("plan") is not None:
            _ = self.shares

    def check_source(self, source: Run) -> None:
        """The shares that are repeated must be of this version, of the same space and of as many limits."""
        c, own = self.context.configuration, shares_of(source)
        if c.limits and self.context.run.stage_result("train") is None and len(c.limit_sets) != own.limits:
            raise InputError(
                f"as many limits as the plan of {source.folder} is for: {own.limits}", str(len(c.limit_sets))
            )
        for name in ("latency.json", STEPS_FILE):
            LatencyTable.load(source.folder / "artifacts" / name).check(self.space)

    def limits_without(self) -> list[float]:
        """The latency of a plain network and nearly twice that."""
        plain = self.table.latency.predict(self.space, [self._by_hand])[0]
        return [round(float(plain) / MARGIN, 4), round(LOOSER * float(plain), 4)]

    @property
    def _by_hand(self) -> CompactArchitecture:
        """The plain network that a person would try."""
        return self.space.plain(width=PLAIN_WIDTH)

    def before_table(self) -> list[Stage]:
        """No stages: every training here waits for the limits."""
        return []

    def training_stages(self) -> list[Stage]:
        """The stages ``plan``, ``candidates`` and ``train``, as in the module's text."""
        return [
            Stage("plan", "plan", self.plan),
            Stage("candidates", "try networks", self._candidates),
            Stage("train", "train and grow", self._train, redone=BY_LIMITS),
        ]

    # --- plan ---

    def plan(self) -> Shares:
        """The stage ``plan``: time training steps, and say how the time is shared out."""
        context, pace = self.context, Pace(self.context.device, self.recipe.batch_size)
        with pace.watched():
            timing = replace(STEP_TIMING, processor=context.device.name)
            steps = self.table.measured(timing, "training steps", "steps", networks=0)
            steps.save(context.run.artifact(STEPS_FILE))
            least = steps.costs(self.space).problem(self.space).cost_range("latency_ms")[0]
            factor, offset = self._step_fit(pace, steps, least)
            (first,) = steps.predict(self.space, [self._by_hand]).tolist()
            overhead = self._overhead_ms(pace)
            plain = pace.step_ms(PlainNetwork(context.task.data), self._shape) + overhead
        left = (1 - KEPT_BACK) * self._seconds - context.run.seconds_spent()
        found = Shares(
            seconds=max(left, LEAST_TRAINING * self._seconds) * pace.share,
            limits=len(self.table.limit_sets),
            first_step_ms=factor * first + offset,
            steps_a_pass=len(context.task.data.train) / self.recipe.batch_size,
            least_step_ms=factor * least + offset,
            overhead_ms=overhead,
            plain_step_ms=plain,
            step_factor=factor,
            step_offset_ms=offset,
        )
        further = f", {found.growth_seconds:.3g} s for each further one" if found.limits > 1 and found.shared else ""
        context.progress.say(
            f"Plan: {found.candidate_seconds(1):.3g} s for networks to try, {found.trunk_seconds:.3g} s for the first "
            f"answer{further}, {found.plain_seconds:.3g} s for a plain network beside."
        )
        return found

    @property
    def _shape(self) -> tuple[int, int, int]:
        scale = self.space.scale
        return scale.image_channels, scale.image_size, scale.image_size

    def _step_fit(self, pace: Pace, steps: LatencyTable, least: float) -> tuple[float, float]:
        """Factor and offset from the table's sum of blocks to a step of the real batch, of a range of plain networks.

        What a block costs beside its arithmetic counts less in a larger batch: small networks are quicker than their
        sums say, large ones slower.
        """
        shapes = [(1, 0), (1, PLAIN_WIDTH), (2, self.space.most_widths - 1)]
        networks = [self.space.plain(min(depth, max(self.space.depths)), width) for depth, width in shapes]
        timed = [pace.step_ms(self.space.build(one, self.space.scale), self._shape) for one in networks]
        return step_fit(steps.predict(self.space, networks), np.array(timed), least)

    def _overhead_ms(self, pace: Pace) -> float:
        """What a step of a real training takes beyond the timed one: its images, their augmentation, bookkeeping."""
        network = self.space.build(self._by_hand, self.space.scale)
        data, device = self.context.task.data, self.context.device.name
        batches = Batches(data, "train", self.recipe.batch_size, augment=self.augment(data), device=device)
        real = pace.real_step_ms(network, batches, self.recipe, OVERHEAD_STEPS)
        return max(0.0, real - pace.step_ms(network, self._shape))

    @property
    def shares(self) -> Shares:
        """How the time is shared out, as the stage ``plan`` keeps it."""
        return shares_of(self.context.run)

    @cached_property
    def problem(self) -> StagedProblem:
        """Costs of the space, ``step_ms`` among them by the fit to whole networks that :attr:`shares` keep."""
        table = LatencyTable.load(self.context.run.artifact(STEPS_FILE)).costs(self.space, STEP)
        factor, offset = self.shares.step_factor, self.shares.step_offset_ms
        steps = StagedCosts(
            {name: factor * costs for name, costs in table.block_costs.items()},
            {name: factor * fixed + offset for name, fixed in table.fixed_costs.items()},
            {name: factor * costs for name, costs in table.depth_costs.items()},
        )
        return (self.table.costs(self._size) | steps).problem(self.space)

    @cached_property
    def valued(self) -> StagedProblem:
        """The problem with what networks are thought to be worth before any is measured."""
        return worth(self.space, self.problem)

    def step_ms(self, architecture: str) -> float:
        """Milliseconds of a network's forward and backward pass, as predicted in :attr:`problem`."""
        return self.problem.cost(self.space.to_choice(self.space.parse(architecture)), STEP)

    # --- candidates ---

    def _candidates(self) -> CandidatesResult:
        """A short training of everything proposed for the tightest limit."""
        found = self.candidates(tightest_first(self.table.limit_sets)[0])
        best = max(one.validation_accuracy for one in found)
        self.context.progress.say(f"Tried {len(found)} networks: up to {best:.1f} % on validation.")
        return CandidatesResult(networks=[one.name for one in found])

    def candidates(self, limits: Limits) -> list[TrainedNetwork]:
        """What is proposed for ``limits``, each after a short training."""
        proposals = self.propose(limits)
        seconds = self.shares.candidate_seconds(len(proposals))
        return [self._candidate(one, self.shares.steps(seconds, self.step_ms(one))) for one in proposals]

    def propose(self, limits: Limits) -> list[str]:
        """Different networks within ``limits`` to try; kept, as timing does not repeat."""
        log, key = self.context.run.items("proposals"), json.dumps(limits)
        if key not in log.done:
            found = [str(self._by_hand)] if self._keeps(self._by_hand, limits) else []
            for wish in wishes(self.space, self.valued, self.shares.longest_step_ms):
                one = self._fitting(wish, limits) if len(found) < CANDIDATES else None
                if one is not None and one not in found:
                    found.append(one)
            if not found:
                raise InfeasibleError(
                    f"no network within {dict(limits)} was found whose training step takes at most "
                    f"{self.shares.longest_step_ms:.3g} ms. Raise the limit, or give more time (--minutes)."
                )
            log.record(key, found)
        proposals: list[str] = log.done[key]
        return proposals

    def _keeps(self, architecture: CompactArchitecture, limits: Limits) -> bool:
        """Whether a network keeps ``limits``, by the table and as timed here."""
        if not met(limits, self.table.predicted(self._size, architecture)):
            return False
        limit = limits.get("latency_ms", np.inf)
        timed = self.table.timed(self._size, architecture, limit)
        return timed is None or timed.within(limit)

    def _fitting(self, wish: Wish, limits: Limits) -> str | None:
        """The network of a wish that keeps ``limits``; None where there is none."""
        try:
            found = self.table.fitting(self._size, wish.within, limits)
        except InfeasibleError:
            return None
        return str(self.space.from_choice(found.choice))

    def _candidate(self, architecture: str, steps: int) -> TrainedNetwork:
        name = short_name(f"{architecture} {steps}", "candidate")
        return self._trained(name, self.new_network(architecture), architecture, None, self.recipe, steps)

    def new_network(self, architecture: str) -> Network:
        """With the initial weights of the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.context.configuration.seed)
            return self.space.build(self.space.parse(architecture), self.space.scale)

    # --- answers ---

    def _train(self) -> TrainResult:
        """One training a limit, the tightest first."""
        log, limit_sets = self.context.run.items("answers"), tightest_first(self.table.limit_sets)
        for limits in limit_sets:
            key = json.dumps(limits)
            if key not in log.done:
                log.record(key, self.train_answer(limits).model_dump())
                self.context.progress.say(self._sentence(limits, GrownAnswer.model_validate(log.done[key])))
        return TrainResult(answers=[log.done[json.dumps(limits)] for limits in limit_sets])

    def train_answer(self, limits: Limits) -> GrownAnswer:
        """One more training for ``limits``: says which network it was, what it came from, and whether it paid.

        The first is the trunk's: the network that a person would try goes on, or the best candidate that is better
        beyond the noise: differences after some hundred steps are mostly that. For a looser limit the best network so
        far grows to the largest that the limit and the time allow; where a growth did not pay it goes on as it is.
        Where the time is too short to be shared the trunk has had all of it, and answers the limits of :attr:`shares`.
        """
        answers, shares = self._answers(), self.shares
        within = [one for one in self.pool() if met(limits, self._known(one))]
        if not within:
            first = self._first(self.candidates(limits))
            return self._answer(first, first, first.architecture, shares.trunk_seconds, "trained")
        base = self.preferred(within)
        if len(answers) < shares.limits and not shares.shared:
            return _kept(base, "all of the time is worth more to it than to a larger one")
        steady = self._steady()[next(one.steady for one in answers if one.trained == base.name)]
        failed = {one.how for one in answers if one.source == steady.name and not one.paid}
        grown = None if "grown" in failed else self._grown(steady, limits)
        if grown is not None:
            return self._answer(steady, base, grown, shares.growth_seconds, "grown")
        if "trained" not in failed:
            return self._answer(steady, base, steady.architecture, shares.growth_seconds, "trained")
        return _kept(base, "neither a larger one nor more training was better")

    def _first(self, tried: list[TrainedNetwork]) -> TrainedNetwork:
        """What becomes the trunk: the best candidate, but the one of a person where none is better beyond the noise."""
        by_hand = next((one for one in tried if one.architecture == str(self._by_hand)), None)
        better = tried if by_hand is None else [one for one in tried if one is by_hand or better_than(one, by_hand)]
        return self.preferred(better)

    def _answer(
        self, before: TrainedNetwork, base: TrainedNetwork, architecture: str, seconds: float, how: str
    ) -> GrownAnswer:
        """Train on from ``before``, steadily and then with a falling rate, and compare with ``base``.

        A network that was only trained on counts where it became better; a larger one only beyond the noise.
        """
        name, larger = f"{before.name} {architecture} {how}", architecture != before.architecture
        network = self._larger(before, architecture, name) if larger else self.trainer.load(before.weights)
        steps, climb = self.shares.steps(seconds, self.step_ms(architecture)), self.recipe.warmup_epochs
        last = max(1, round(ANNEALED * steps))
        rate = self.recipe.changed(schedule="constant", warmup_epochs=0.0 if larger else climb)
        fall = self.recipe.changed(schedule="linear", warmup_epochs=0.0)
        first = max(1, steps - last)
        steady = self._trained(short_name(name, "steady"), network, architecture, before, rate, first, "steady")
        again = self.trainer.load(steady.weights)
        new = self._trained(short_name(name, how), again, architecture, steady, fall, last)
        paid = base.name == before.name or (better_than(new, base) if larger else self._order(new) > self._order(base))
        return GrownAnswer(trained=new.name, base=base.name, how=how, paid=paid, steady=steady.name, source=before.name)

    def _larger(self, base: TrainedNetwork, architecture: str, name: str) -> Network:
        """A network of ``architecture`` that computes what ``base`` does."""
        network = self.trainer.load(base.weights)
        assert isinstance(network, CompactNetwork)
        smaller, larger = (self.space.parse(text) for text in (base.architecture, architecture))
        images, _ = self.trainer.batches(name, self._size).get(0, 0)
        return grow(network, smaller, larger, self.space, self.context.configuration.seed, images)

    def _grown(self, base: TrainedNetwork, limits: Limits) -> str | None:
        """What ``base`` grows into within ``limits``, None if nothing; kept, as what is timed does not repeat."""
        log, key = self.context.run.items("growth"), f"{json.dumps(limits)} from {base.name}"
        if key not in log.done:
            choice = self.space.to_choice(self.space.parse(base.architecture))
            found = self._fitting(growth(self.space, self.valued, choice, self.shares.longest_grown_ms), limits)
            log.record(key, None if found == base.architecture else found)
        grown: str | None = log.done[key]
        return grown

    def _trained(
        self,
        name: str,
        network: Network,
        architecture: str,
        before: TrainedNetwork | None,
        recipe: Recipe,
        steps: int,
        log: str = "trained",
    ) -> TrainedNetwork:
        """Train, validate and save a network; one that is finished is not trained again.

        Args:
            name: that it is known by.
            network: with the weights to begin with.
            architecture: of it.
            before: what the weights come from; None for new ones.
            recipe: of one pass over the steps.
            steps: for how long.
            log: of the run, in which it is kept.
        """
        known = networks_of(self.context.run, log)
        if name in known:
            return known[name]
        self.trainer.train(name, network, self._size, steps, recipe)
        total = steps + (0 if before is None else before.steps)
        return self.trainer.keep(name, network, self.space.parse(architecture), self.space, total, log=log)

    def _answers(self) -> list[GrownAnswer]:
        return [GrownAnswer.model_validate(one) for one in self.context.run.items("answers").done.values()]

    def _steady(self) -> dict[str, TrainedNetwork]:
        """What networks were before the learning rate fell: where larger ones go on from."""
        return networks_of(self.context.run, "steady")

    # --- choosing and saying ---

    def pool(self) -> list[TrainedNetwork]:
        """Trained for an answer, and better than what they came from."""
        trained = networks_of(self.context.run)
        return [trained[name] for name in dict.fromkeys(one.trained for one in self._answers() if one.paid)]

    def preferred(self, within: Sequence[TrainedNetwork]) -> TrainedNetwork:
        """The best on validation, the quicker of equals."""
        return max(within, key=self._order)

    def _order(self, one: TrainedNetwork) -> tuple[float, float, float]:
        return (*order(one), -self._known(one)["latency_ms"])

    def _known(self, one: TrainedNetwork) -> dict[str, float]:
        return self.table.known(self._size, self.space.parse(one.architecture))

    def plain(self) -> PlainSteps:
        """As an answer of the mean time."""
        return PlainSteps(self.recipe, self.shares.plain_steps, self.augment(self.context.task.data))

    def beside(self) -> dict[str, Beside]:
        """No further simple things beside those of every search."""
        return {}

    def summary(self) -> Summary:
        """All that was trained and is not dominated, and what became of each limit."""
        trained = networks_of(self.context.run)
        front = front_of(list(trained.values()), lambda one: self._known(one)["latency_ms"])
        answers = self.context.run.items("answers").done
        sentences = [self._sentence(json.loads(key), GrownAnswer.model_validate(one)) for key, one in answers.items()]
        return Summary(front, len(trained), sentences, {"plan": self.shares.model_dump()})

    def _sentence(self, limits: Limits, one: GrownAnswer) -> str:
        """What became of a limit's training, for people."""
        trained, where = networks_of(self.context.run), said_limits(limits)
        if one.how == "kept":
            return f"{where}: the network before it is kept: {one.why}."
        new, base, before = trained[one.trained], trained[one.base], {**trained, **self._steady()}[one.source]
        change = f"{base.validation_accuracy:.1f} -> {new.validation_accuracy:.1f} % on validation"
        return f"{where}: {one.how} for {new.steps - before.steps} steps, {change}" + (
            "." if one.paid else ": it does not pay, and is left out."
        )


def _kept(base: TrainedNetwork, why: str) -> GrownAnswer:
    return GrownAnswer(trained=base.name, base=base.name, how="kept", paid=True, why=why)


def shares_of(run: Run) -> Shares:
    """How a run shares out its time, as its stage ``plan`` keeps it."""
    try:
        return Shares.model_validate(run.stage_result("plan"))
    except ValidationError as error:
        raise RunError(
            f"expected a plan as this version makes it, got another one in {run.folder}. Start a new search."
        ) from error


def default_minutes(images: int, image_size: int) -> float:
    """Minutes for a search that was given none: more for more and for larger images.

    Few images need as many steps as a thousand do: they are only seen more often.

    Args:
        images: how many there are to train on.
        image_size: height and width of them, in pixels.
    """
    return float(min(60.0, max(2.0, round(2 * max(1.0, images / 1000) ** 0.5 * image_size / 16))))


# --- what is worth trying ---------------------------------------------------------------------------------------------


def worth(space: StagedSpace[Any], problem: StagedProblem) -> StagedProblem:
    """``problem`` with the values that networks are thought to have before any is measured: wider and deeper is better.

    The value of a stage is log2 of its width, a term a depth and a term a block's kind; only their order counts.

    Args:
        space: of the networks.
        problem: with their costs; its own values are replaced.
    """
    stages, blocks, _ = space.shape
    by_width = np.zeros((stages, space.most_widths, blocks))
    for stage, widths in enumerate(space.widths):
        for number, width in enumerate(widths):
            by_width[stage, number] = WIDER * log2(width) + np.resize(DEEPER, blocks)
    kinds = [KIND_WORTH.get(getattr(one, "kind", ""), 0.0) for one in space.configurations]
    block_values = np.broadcast_to(np.array(kinds), space.shape)
    depth_values = by_width if space.most_widths > 1 else by_width[:, 0]
    return replace(problem, block_values=block_values, depth_values=depth_values, fixed_value=0.0)


@dataclass(frozen=True)
class Wish:
    """A network that is looked for: the best of ``problem`` whose training step takes at most ``step_ms``."""

    problem: StagedProblem
    step_ms: float

    def within(self, limits: Limits) -> Solution:
        """It, within further limits: one exact problem with several resources."""
        return milp.solve(self.problem, {**limits, STEP: self.step_ms})


def wishes(space: StagedSpace[Any], problem: StagedProblem, longest_ms: float) -> Iterator[Wish]:
    """What to try beside the plain network: of several sizes, of plain blocks alone and of any; the likeliest first.

    Args:
        space: of the networks.
        problem: what is maximised.
        longest_ms: that a training step may take.
    """
    plain = _of_plain_blocks(space)
    of_plain = problem if plain is None else replace(problem, allowed_configurations=plain)
    least = of_plain.cost_range(STEP)[0]
    for size, only_plain in TRIED:
        yield Wish(of_plain if only_plain else problem, max(least, size * longest_ms))


def _of_plain_blocks(space: StagedSpace[Any]) -> NDArray[np.bool_] | None:
    """The configurations of plain convolutions, (S, D, C), where every place may have one."""
    plain = np.array([getattr(one, "kind", None) == PLAIN for one in space.configurations])
    allowed: NDArray[np.bool_] = space.allowed & plain
    return allowed if allowed.any(-1).all() else None


def growth(space: StagedSpace[Any], problem: StagedProblem, base: StagedChoice, step_ms: float) -> Wish:
    """Networks that contain ``base``: its blocks stay what they are, stages become wider or deeper.

    Args:
        space: that all are of.
        problem: what is maximised.
        base: what grows.
        step_ms: how long a training step may take.
    """
    allowed, depths = space.allowed.copy(), []
    for stage, depth in enumerate(base.depths.tolist()):
        allowed[stage, :depth] = np.arange(allowed.shape[-1]) == base.configurations[stage, :depth, None]
        depths.append(tuple(d for d in space.depths if d >= depth))
    costs = {name: table.copy() for name, table in problem.depth_costs.items()}
    if space.most_widths > 1:
        for name, table in costs.items():
            dearest = problem.cost_range(name)[1]
            for stage, width in enumerate(base.widths.tolist()):
                table[stage, :width] = TOO_DEAR * dearest
    grown = replace(problem, depths=tuple(depths), allowed_configurations=allowed, depth_costs=costs)
    return Wish(grown, step_ms)
