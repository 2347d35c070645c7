"""How the fast plan of BINAS spends the time it is given, counted in steps, and which networks are worth a try.

Everything here is a function of the tables and the plan: no clock, no training. The plan is made once, from timed
steps, and kept in the run; a resumed or repeated run goes by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, computed_field

from archwright.search.values import StageResult
from archwright.solvers import StagedProblem, milp
from archwright.solvers.problem import Solution, StagedChoice
from archwright.spaces.compact_scale import PLAIN
from archwright.spaces.staged import StagedSpace

STEP = "step_ms"
"""The resource that time for training is counted in: milliseconds of one training step."""
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


class Plan(StageResult):
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
        """Steps of a network that fit into ``seconds``."""
        return max(1, round(1000 * seconds / (step_ms + self.overhead_ms)))

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
        """Of the plain network."""
        return max(1, round(1000 * self.plain_seconds / self.plain_step_ms)) if self.beside else 1


def step_fit(summed: NDArray[np.float64], timed: NDArray[np.float64], least: float) -> tuple[float, float]:
    """The line from sums of blocks to whole steps (both (n,), in ms) with the least relative errors: factor and offset.

    Where it falls, or the ``least`` sum of the space would cost nothing, one factor for all.
    """
    factor, offset = np.polyfit(summed, timed, 1, w=1 / timed)
    if factor <= 0 or factor * least + offset <= 0:
        return float(np.median(timed / summed)), 0.0
    return float(factor), float(offset)


def default_minutes(images: int, image_size: int) -> float:
    """Minutes for a search that was given none: more for more and for larger images.

    Few images need as many steps as a thousand do: they are only seen more often.
    """
    return float(min(60.0, max(2.0, round(2 * max(1.0, images / 1000) ** 0.5 * image_size / 16))))


# --- what is worth trying ---------------------------------------------------------------------------------------------


def worth(space: StagedSpace[Any], problem: StagedProblem) -> StagedProblem:
    """``problem`` with the values that networks are thought to have before any is measured: wider and deeper is better.

    The value of a stage is log2 of its width, a term a depth and a term a block's kind; only their order counts.
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

    def within(self, limits: Mapping[str, float]) -> Solution:
        """It, within further limits: one exact problem with several resources."""
        return milp.solve(self.problem, {**limits, STEP: self.step_ms})


def wishes(space: StagedSpace[Any], problem: StagedProblem, plan: Plan) -> Iterator[Wish]:
    """What to try beside the plain network: of several sizes, of plain blocks alone and of any; the likeliest first."""
    plain = _of_plain_blocks(space)
    of_plain = problem if plain is None else replace(problem, allowed_configurations=plain)
    least = of_plain.cost_range(STEP)[0]
    for size, only_plain in TRIED:
        yield Wish(of_plain if only_plain else problem, max(least, size * plan.longest_step_ms))


def _of_plain_blocks(space: StagedSpace[Any]) -> NDArray[np.bool_] | None:
    """The configurations of plain convolutions, (S, D, C), where every place may have one."""
    plain = np.array([getattr(one, "kind", None) == PLAIN for one in space.configurations])
    allowed: NDArray[np.bool_] = space.allowed & plain
    return allowed if allowed.any(-1).all() else None


def growth(
    space: StagedSpace[Any],
    problem: StagedProblem,
    base: StagedChoice,
    step_ms: float,
) -> Wish:
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
