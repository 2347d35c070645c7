"""The exact front of value against one resource, for every limit at once.

Given the depths, value and cost are sums over blocks, so a part of an architecture that is dearer and not better than
another part in the same place can never belong to the front. Hence the front of a stage is the pruned sum of its
blocks' fronts, joined over its depths, and the front of the whole is the pruned sum of the stages'.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from archwright.solvers.lagrange import Relaxation, relax
from archwright.solvers.problem import Floats, Ints, Solution, StagedChoice, StagedProblem

StageFront = tuple[Floats, Floats, tuple[Ints, Ints]]
"""Costs (m,), values (m,), and the choices: depths (m,) and configurations (m, D)."""


@dataclass(frozen=True, eq=False)
class Front:
    """All undominated architectures by rising cost and rising value.

    Args:
        problem: what was solved.
        resource: the resource on the cost axis.
        costs: (n,), strictly rising.
        values: (n,), strictly rising.
        stages: per stage its own front: depths (m,) and configurations (m, D).
        pointers: per stage, for each surviving partial sum, (which partial sum before, which point of the stage).
    """

    problem: StagedProblem
    resource: str
    costs: Floats
    values: Floats
    stages: tuple[tuple[Ints, Ints], ...]
    pointers: tuple[tuple[Ints, Ints], ...]

    def __len__(self) -> int:
        return len(self.costs)

    def choices(self, points: Ints | None = None) -> StagedChoice:
        """The architectures of the given points (default: all), found by walking the pointers back."""
        at = np.arange(len(self)) if points is None else points
        depths, configurations = [], []
        for (stage_depths, stage_configurations), (before, own) in zip(
            reversed(self.stages), reversed(self.pointers), strict=True
        ):
            depths.append(stage_depths[own[at]])
            configurations.append(stage_configurations[own[at]])
            at = before[at]
        return StagedChoice(np.stack(depths[::-1], -1), np.stack(configurations[::-1], -2))

    def best(self, limit: float) -> StagedChoice:
        """The architecture of highest value with cost <= limit."""
        self.problem.check_limits({self.resource: limit})
        return self.choices(np.array([self._index(limit)]))[0]

    def _index(self, limit: float) -> int:
        """The last point within the limit, by its cost evaluated in the problem's own order of summation."""
        index = max(int(np.searchsorted(self.costs, limit, side="right")) - 1, 0)
        for point in range(min(index + 1, len(self) - 1), -1, -1):
            _, costs = self.problem.evaluate(self.choices(np.array([point])))
            if costs[self.resource][0] <= limit:
                return point
        return 0


def front(problem: StagedProblem, resource: str) -> Front:
    """The whole exact front."""
    return _front(problem, resource, None, np.inf)


def solve(problem: StagedProblem, resource: str, limit: float) -> Solution:
    """The best architecture with cost <= limit: the front's point there, found without the far parts of the front.

    A partial sum is dropped when the Lagrangian bound of its completion is below a known architecture's value, or when
    no completion is within the limit. That leaves the answer exact, and keeps fifty stages quick.
    """
    start = time.perf_counter()
    choice = _front(problem, resource, relax(problem, resource, limit), limit).best(limit)
    value = float(problem.evaluate(choice)[0])
    return problem.solution(choice, value, time.perf_counter() - start, "exact")


def _front(problem: StagedProblem, resource: str, relaxation: Relaxation | None, limit: float) -> Front:
    stage_fronts = [_stage_front(problem, resource, stage) for stage in range(problem.shape[0])]
    if relaxation is not None:
        known = _known_value(problem, resource, relaxation.safe_price, limit, stage_fronts)
        least_hope = known - _slack(abs(known) + relaxation.price * abs(limit))
    costs, values = np.array([problem.fixed_costs[resource]]), np.array([problem.fixed_value])
    pointers = []
    for stage, (own_costs, own_values, _) in enumerate(stage_fronts):
        sums = (costs[:, None] + own_costs).ravel(), (values[:, None] + own_values).ravel()
        candidates = np.arange(len(sums[0]))
        if relaxation is not None:
            cost_of_rest = sum(own[0][0] for own in stage_fronts[stage + 1 :])
            value_of_rest = relaxation.price * limit + relaxation.stage_surplus[stage + 1 :].sum()
            hopeful = sums[1] - relaxation.price * sums[0] + value_of_rest >= least_hope
            candidates = np.flatnonzero(hopeful & (sums[0] + cost_of_rest <= limit + _slack(limit)))
        kept, costs, values = _prune(sums[0][candidates], sums[1][candidates])
        kept = candidates[kept]
        pointers.append((kept // len(own_costs), kept % len(own_costs)))
    return Front(problem, resource, costs, values, tuple(choice for _, _, choice in stage_fronts), tuple(pointers))


def _known_value(
    problem: StagedProblem, resource: str, safe_price: float, limit: float, stage_fronts: list[StageFront]
) -> float:
    """The value of some good architecture within the limit; the higher, the more partial sums are pruned.

    Each stage's best point at the safe price, then the best replacement of one stage at a time.
    """
    at = []
    for costs, values, _ in stage_fronts:
        if safe_price == np.inf:
            at.append(0)
            continue
        surplus = values - safe_price * costs
        # Equal but for rounding, two points may swap places from one order of summation to another: the cheaper one.
        best = float(surplus.max())
        at.append(int(np.argmax(surplus >= best - _slack(abs(best) + safe_price * float(costs[-1])))))

    def sum_at(part: int, start: float) -> float:
        return start + float(sum(own[part][here] for own, here in zip(stage_fronts, at, strict=True)))

    if sum_at(0, problem.fixed_costs[resource]) > limit:
        at = [0] * len(at)
    spare, total = limit - sum_at(0, problem.fixed_costs[resource]), sum_at(1, problem.fixed_value)
    while True:
        gains = []
        for (own_costs, own_values, _), here in zip(stage_fronts, at, strict=True):
            to = max(int(np.searchsorted(own_costs, own_costs[here] + spare, side="right")) - 1, here)
            gains.append((own_values[to] - own_values[here], own_costs[to] - own_costs[here], to))
        stage = max(range(len(gains)), key=lambda index: gains[index][0])
        if gains[stage][0] <= 0:
            return total
        total, spare, at[stage] = total + gains[stage][0], spare - gains[stage][1], gains[stage][2]


def _slack(number: float) -> float:
    """Room for rounding errors of sums, far below any difference that matters."""
    return 1e-9 * max(1.0, abs(number))


def _stage_front(problem: StagedProblem, resource: str, stage: int) -> StageFront:
    """Costs, values and choices of one stage's front over its depths."""
    blocks = problem.shape[1]
    block_costs, block_values = problem.block_costs[resource][stage], problem.block_values[stage]
    costs, values = np.zeros(1), np.zeros(1)
    chosen = np.zeros((1, 0), np.int64)
    found = []
    for depth in range(1, max(problem.depths[stage]) + 1):
        here = depth - 1
        own, own_costs, own_values = _prune(block_costs[here], block_values[here])
        kept, costs, values = _prune((costs[:, None] + own_costs).ravel(), (values[:, None] + own_values).ravel())
        chosen = np.column_stack([chosen[kept // len(own)], own[kept % len(own)]])
        if depth in problem.depths[stage]:
            padded = np.pad(chosen, ((0, 0), (0, blocks - depth)), constant_values=-1)
            depth_cost, depth_value = problem.depth_costs[resource][stage, here], problem.depth_values[stage, here]
            found.append((costs + depth_cost, values + depth_value, np.full(len(kept), depth), padded))
    all_costs, all_values, depths, configurations = (np.concatenate(parts) for parts in zip(*found, strict=True))
    kept, costs, values = _prune(all_costs, all_values)
    return costs, values, (depths[kept], configurations[kept])


def _prune(costs: Floats, values: Floats) -> tuple[Ints, Floats, Floats]:
    """Indices, costs and values of the undominated points by rising cost; of equal points one stays."""
    order = np.argsort(costs, kind="stable")
    best = np.maximum.accumulate(values[order])
    rises = np.concatenate([[True], best[1:] > best[:-1]])
    order = order[rises]
    last_at_cost = np.concatenate([costs[order][1:] > costs[order][:-1], [True]])
    order = order[last_at_cost]
    return order, costs[order], values[order]
