"""The exact front of value against one resource, for every limit at once.

Given depths and widths, value and cost are sums over blocks, so a part of an architecture that is dearer and not better
than another part in the same place, between the same widths, can never belong to the front. Hence the front of a stage
between two widths is the pruned sum of its blocks' fronts, joined over its depths; the front of the first s stages is
kept for each width of the last of them, as what follows depends on it; and the fronts of all last widths are joined.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from archwright.solvers.chain import best_choice
from archwright.solvers.lagrange import Relaxation, relax
from archwright.solvers.problem import Floats, Ints, Solution, StagedChoice, StagedProblem

Points = tuple[Floats, Floats]
"""Costs (m,) and values (m,) of undominated points, both rising."""


@dataclass(frozen=True, eq=False)
class StageFronts:
    """What one stage can do.

    Args:
        points: by (width before, width), the undominated points.
        first: by the same pair, the number of its first point among all of the stage.
        depths: (n,) of all points of the stage.
        configurations: (n, D) of them.
    """

    points: dict[tuple[int, int], Points]
    first: dict[tuple[int, int], int]
    depths: Ints
    configurations: Ints


@dataclass(frozen=True, eq=False)
class Partials:
    """The surviving sums over the stages so far, for all widths of the last one, the widths one after another.

    Args:
        costs, values: by width, (m_w,) each.
        before: (m,), number of the sum that it continues.
        own: (m,), number of the stage's point that it adds.
        width: (m,), of the stage.
    """

    costs: list[Floats]
    values: list[Floats]
    before: Ints
    own: Ints
    width: Ints


@dataclass(frozen=True, eq=False)
class Front:
    """All undominated architectures by rising cost and rising value.

    Args:
        problem: what was solved.
        resource: the resource on the cost axis.
        costs: (n,), strictly rising.
        values: (n,), strictly rising.
        last: (n,), numbers of the points among the last partial sums.
        stages: per stage its own fronts.
        partials: per stage the surviving sums, which point back to those before.
    """

    problem: StagedProblem
    resource: str
    costs: Floats
    values: Floats
    last: Ints
    stages: tuple[StageFronts, ...]
    partials: tuple[Partials, ...]

    def __len__(self) -> int:
        return len(self.costs)

    def choices(self, points: Ints | None = None) -> StagedChoice:
        """The architectures of the given points (default: all), found by walking the pointers back."""
        at = self.last if points is None else self.last[points]
        depths, configurations, widths = [], [], []
        for stage, partial in zip(reversed(self.stages), reversed(self.partials), strict=True):
            depths.append(stage.depths[partial.own[at]])
            configurations.append(stage.configurations[partial.own[at]])
            widths.append(partial.width[at])
            at = partial.before[at]
        return StagedChoice(np.stack(depths[::-1], -1), np.stack(configurations[::-1], -2), np.stack(widths[::-1], -1))

    def best(self, limit: float) -> StagedChoice:
        """The architecture of highest value with cost <= limit."""
        self.problem.check_limits({self.resource: limit})
        return self.choices(np.array([self._index(limit)]))[0]

    def _index(self, limit: float) -> int:
        """The last point within the limit, by its cost evaluated in the problem's own order of summation."""
        index = max(int(np.searchsorted(self.costs, limit, side="right")) - 1, 0)
        for point in range(min(index + 1, len(self) - 1), -1, -1):
            if self.problem.cost(self.choices(np.array([point]))[0], self.resource) <= limit:
                return point
        return 0


def front(problem: StagedProblem, resource: str) -> Front:
    """The whole exact front of value against ``resource`` over the architectures of ``problem``."""
    return _front(problem, resource, None, np.inf)


def solve(problem: StagedProblem, resource: str, limit: float) -> Solution:
    """The best architecture with cost <= limit: the front's point there, found without the far parts of the front.

    A partial sum is dropped when the Lagrangian bound of its completion is below a known architecture's value, or when
    no completion is within the limit. That leaves the answer exact, and keeps fifty stages quick.

    Args:
        problem: staged problem.
        resource: name of the one that is limited.
        limit: most of it.
    """
    start = time.perf_counter()
    choice = _front(problem, resource, relax(problem, resource, limit), limit).best(limit)
    value = float(problem.evaluate(choice)[0])
    return problem.solution(choice, value, time.perf_counter() - start, "exact")


def _front(problem: StagedProblem, resource: str, relaxation: Relaxation | None, limit: float) -> Front:
    stages = [_stage_fronts(problem, resource, stage) for stage in range(problem.shape[0])]
    bound = None if relaxation is None else _Bound(problem, resource, relaxation, limit, stages)
    costs, values = [np.array([problem.fixed_costs[resource]])], [np.array([problem.fixed_value])]
    partials = []
    for number, stage in enumerate(stages):
        partials.append(_extended(costs, values, stage, problem.widths[number], bound, number))
        costs, values = partials[-1].costs, partials[-1].values
    kept, front_costs, front_values = _prune(np.concatenate(costs), np.concatenate(values))
    return Front(problem, resource, front_costs, front_values, kept, tuple(stages), tuple(partials))


def _extended(
    costs: list[Floats], values: list[Floats], stage: StageFronts, widths: int, bound: _Bound | None, number: int
) -> Partials:
    """All sums of what survived and the stage's points, pruned within each width of the stage."""
    offsets = np.concatenate([[0], np.cumsum([len(own) for own in costs])])
    sums = []
    for width in range(widths):
        parts = []
        for before in range(len(costs)):
            own_costs, own_values = stage.points[before, width]
            total, value = (costs[before][:, None] + own_costs).ravel(), (values[before][:, None] + own_values).ravel()
            candidates = np.arange(len(total))
            if bound is not None:
                candidates = np.flatnonzero(bound.hopeful(total, value, number + 1, width))
            sources = offsets[before] + candidates // len(own_costs)
            own = stage.first[before, width] + candidates % len(own_costs)
            parts.append((total[candidates], value[candidates], sources, own))
        total, value, sources, own = (np.concatenate(part) for part in zip(*parts, strict=True))
        kept, total, value = _prune(total, value)
        sums.append((total, value, sources[kept], own[kept], np.full(len(kept), width)))
    all_costs, all_values, before_numbers, own_numbers, all_widths = zip(*sums, strict=True)
    return Partials(
        list(all_costs), list(all_values), *(np.concatenate(p) for p in (before_numbers, own_numbers, all_widths))
    )


class _Bound:
    """Which partial sums can still become the best architecture within one limit."""

    def __init__(
        self, problem: StagedProblem, resource: str, relaxation: Relaxation, limit: float, stages: list[StageFronts]
    ) -> None:
        self.price, self.limit = relaxation.price, limit
        self.surplus_to_go = relaxation.to_go
        blocks, depths = problem.tables(resource)
        self.cost_to_go = -best_choice(problem, -blocks, -depths)[1]
        known = _known_value(problem, resource, relaxation.safe, limit, stages)
        self.least_hope = known - _slack(abs(known) + self.price * abs(limit))

    def hopeful(self, costs: Floats, values: Floats, stage: int, width: int) -> NDArray[np.bool_]:
        """Whether sums (n,) over the stages before ``stage``, the last of which has ``width``, may go on."""
        hope = values - self.price * costs + (self.price * self.limit + self.surplus_to_go[stage, width])
        within = costs + self.cost_to_go[stage, width] <= self.limit + _slack(self.limit)
        kept: NDArray[np.bool_] = (hope >= self.least_hope) & within
        return kept


def _known_value(
    problem: StagedProblem, resource: str, safe: StagedChoice, limit: float, stages: list[StageFronts]
) -> float:
    """The value of some good architecture within the limit; the higher, the more partial sums are pruned.

    The safe architecture, then the best replacement of one stage at a time, all at its widths.
    """
    value, costs = problem.evaluate(safe)
    total, spare = float(value), limit - float(costs[resource]) - _slack(limit)
    widths = [0, *safe.widths.tolist()]
    fronts = [stage.points[pair] for stage, pair in zip(stages, pairwise(widths), strict=True)]
    own_costs, own_values = problem.by_stage(safe, resource), problem.by_stage(safe)
    while True:
        gains = []
        for (front_costs, front_values), cost, value in zip(fronts, own_costs, own_values, strict=True):
            to = int(np.searchsorted(front_costs, cost + spare, side="right")) - 1
            gains.append(
                (front_values[to] - value, front_costs[to], front_values[to]) if to >= 0 else (0.0, cost, value)
            )
        stage = max(range(len(gains)), key=lambda index: gains[index][0])
        gain, cost, value = gains[stage]
        if gain <= 0:
            return total
        total, spare = total + gain, spare - (cost - own_costs[stage])
        own_costs[stage], own_values[stage] = cost, value


def _slack(number: float) -> float:
    """Room for rounding errors of sums, far below any difference that matters."""
    return 1e-9 * max(1.0, abs(number))


def _stage_fronts(problem: StagedProblem, resource: str, stage: int) -> StageFronts:
    """Undominated points of one stage between all widths before it and of its own."""
    blocks, depth_costs = (table[stage] for table in problem.tables(resource))
    values, depth_values = (table[stage] for table in problem.tables())
    options = [np.flatnonzero(place) for place in problem.allowed_configurations[stage]]
    points, first, depths, configurations = {}, {}, [], []
    count = 0
    for width in range(problem.widths[stage]):
        # Later blocks do not see the width before: it makes no difference which one's table they are read from.
        tails = _tails(blocks[0, width], values[0, width], options, problem.depths[stage])
        for before in range(problem.widths[stage - 1] if stage else 1):
            place = before, width, 0, options[0]
            kept, costs, gains = _prune(blocks[place], values[place])
            firsts = options[0][kept]
            found = []
            for depth, (tail_costs, tail_values, chosen) in tails.items():
                total = (costs[:, None] + (tail_costs + depth_costs[width, depth - 1])).ravel()
                value = (gains[:, None] + (tail_values + depth_values[width, depth - 1])).ravel()
                pairs = np.repeat(firsts, len(tail_costs))[:, None], np.tile(chosen, (len(firsts), 1))
                found.append((total, value, np.full(len(total), depth), np.concatenate(pairs, axis=1)))
            total, value, deep, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
            kept, total, value = _prune(total, value)
            points[before, width], first[before, width] = (total, value), count
            depths.append(deep[kept])
            configurations.append(rows[kept])
            count += len(kept)
    return StageFronts(points, first, np.concatenate(depths), np.concatenate(configurations))


def _tails(
    costs: Floats, values: Floats, options: list[Ints], depths: tuple[int, ...]
) -> dict[int, tuple[Floats, Floats, Ints]]:
    """By allowed depth, costs (m,), values (m,) and configurations (m, D - 1) of the blocks after the first.

    ``costs`` and ``values`` are (D, C); -1 stands beyond the depth.
    """
    sums, gains = np.zeros(1), np.zeros(1)
    chosen = np.full((1, len(costs) - 1), -1)
    found = {}
    for depth in range(1, depths[-1] + 1):
        if depth > 1:
            here = options[depth - 1]
            own, own_costs, own_values = _prune(costs[depth - 1, here], values[depth - 1, here])
            kept, sums, gains = _prune((sums[:, None] + own_costs).ravel(), (gains[:, None] + own_values).ravel())
            chosen = chosen[kept // len(own)]
            chosen[:, depth - 2] = here[own][kept % len(own)]
        if depth in depths:
            found[depth] = sums, gains, chosen
    return found


def _prune(costs: Floats, values: Floats) -> tuple[Ints, Floats, Floats]:
    """Indices, costs and values of the undominated points by rising cost; of equal points one stays."""
    if not len(costs):
        return np.empty(0, np.int64), costs, values
    order = np.argsort(costs)
    best = np.maximum.accumulate(values[order])
    order = order[np.concatenate([[True], best[1:] > best[:-1]])]
    order = order[np.concatenate([costs[order][1:] > costs[order][:-1], [True]])]
    return order, costs[order], values[order]
