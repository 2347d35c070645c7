"""Block-coordinate Frank-Wolfe (BINAS, Algorithm 1): a local method on the continuous relaxation.

alpha (S, D, C) and beta (S, D) lie on simplices. A step fixes one of them and replaces the other by the solution of a
linear program over simplices with one cost row, that is a relaxed multiple-choice knapsack, which a greedy pass over
convex hulls solves in O(n log n). The objective is bilinear, so the line search always takes the whole step.
Alternating best responses stop at the first equilibrium; compare ``pareto``, which is exact and quicker.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.solvers.lagrange import relax
from archwright.solvers.problem import Floats, Solution, StagedChoice, StagedProblem

STEPS = 2000
PROJECTION_STEPS = 1000
Point = tuple[Floats, Floats]


def relaxed_knapsack(values: Floats, costs: Floats, budget: float, allowed: NDArray[np.bool_] | None = None) -> Floats:
    """argmax_u sum u * values with sum u * costs <= budget and every row of u (G, n) on the simplex (eq. 42).

    Every row starts at its cheapest entry and climbs its upper convex hull of value over cost; the climbs of all rows
    are taken by falling gain per cost until the budget is spent, so at most one row stays between two entries.

    Args:
        values: (G, n).
        costs: (G, n).
        budget: at least the sum of the cheapest entries.
        allowed: entries that may be taken, (G, n); None for all.
    """
    rows = np.arange(len(values))
    allowed = np.ones(values.shape, bool) if allowed is None else allowed
    at = np.lexsort((-values, np.where(allowed, costs, np.inf)), axis=-1)[:, 0]
    spare = budget - costs[rows, at].sum()
    if spare < -1e-9 * max(1.0, abs(budget)):
        raise InputError(f"a budget of at least {costs[rows, at].sum():.6g}", f"{budget:.6g}")
    u = np.zeros(values.shape)
    u[rows, at] = 1.0
    climbs = _hull_climbs(values, costs, allowed, at)
    for row, start, end in climbs:
        cost = costs[row, end] - costs[row, start]
        part = 1.0 if cost <= spare else max(spare, 0.0) / cost
        u[row, start], u[row, end] = 1.0 - part, part
        spare -= cost
        if part < 1.0:
            break
    return u


def _hull_climbs(values: Floats, costs: Floats, allowed: NDArray[np.bool_], at: NDArray[np.int64]) -> NDArray[np.int64]:
    """(row, from, to) of every edge of the rows' upper hulls, steepest first; all rows advance together."""
    rows = np.arange(len(values))
    edges, slopes = [], []
    for _ in range(values.shape[1] - 1):
        gain, extra = values - values[rows, at][:, None], costs - costs[rows, at][:, None]
        better = allowed & (gain > 0) & (extra > 0)
        slope = np.divide(gain, extra, out=np.full(values.shape, -np.inf), where=better)
        steepest = slope.max(-1)
        moves = np.flatnonzero(steepest > 0)
        if not len(moves):
            break
        # Of equally steep entries the farthest: an edge is climbed whole.
        to = np.where(slope == steepest[:, None], extra, -np.inf).argmax(-1)
        edges.append(np.column_stack([moves, at[moves], to[moves]]))
        slopes.append(steepest[moves])
        at = at.copy()
        at[moves] = to[moves]
    if not edges:
        return np.empty((0, 3), np.int64)
    # Stable, and edges of one row are found in hull order, so equal slopes never jump ahead.
    return np.concatenate(edges)[np.argsort(-np.concatenate(slopes), kind="stable")]


def iterates(
    problem: StagedProblem, resource: str, limit: float, rng: np.random.Generator, steps: int = STEPS, p: float = 0.5
) -> Iterator[Point]:
    """The points (alpha_k, beta_k) of Algorithm 1 from a random feasible start, the start first.

    Each has at most one split alpha block and at most one split beta stage, with two entries each (Theorem 3.3).

    Args:
        problem: with one width a stage.
        resource: name of the one that is limited.
        limit: most of it.
        rng: of the start and of the order of updates.
        steps: number of updates.
        p: probability that an update is of alpha.
    """
    problem.check_single("Frank-Wolfe")
    return _alternate(problem, resource, limit, _start(problem, resource, limit, rng), rng, steps, p, None)


def solve(
    problem: StagedProblem, resource: str, limit: float, seed: int = 0, steps: int = STEPS,
    projection_steps: int = PROJECTION_STEPS,
) -> Solution:  # fmt: skip
    """One run from one random start, projected to an architecture within the limit.

    The projection is Algorithm 1 again with the nearness alpha*.alpha + beta*.beta as objective. What is still split is
    rounded both ways, and the best rounding within the limit is taken: as cost is linear in alpha and in beta, the
    cheaper end of each split is always within it. (The published argmax is over the limit in many runs.)

    Args:
        problem: with one width a stage.
        resource: name of the one that is limited.
        limit: most of it.
        seed: of start and updates.
        steps: updates of the relaxation.
        projection_steps: updates of the projection.
    """
    start = time.perf_counter()
    bound = relax(problem, resource, limit).bound
    rng = np.random.default_rng(seed)
    relaxed = _last(iterates(problem, resource, limit, rng, steps))
    projected = _last(_alternate(problem, resource, limit, relaxed, rng, projection_steps, 0.5, relaxed))
    choice = _round(problem, resource, limit, [relaxed, projected])
    return problem.solution(choice, bound, time.perf_counter() - start, "bcfw")


def _same(moved: Floats, before: Floats) -> bool:
    return bool(np.abs(moved - before).max() <= 1e-12)


def _last(points: Iterator[Point]) -> Point:
    return deque(points, maxlen=1)[0]


def _alternate(
    problem: StagedProblem, resource: str, limit: float, start: Point, rng: np.random.Generator, steps: int, p: float,
    target: Point | None,
) -> Iterator[Point]:  # fmt: skip
    """Random alpha and beta steps; ends early where neither would change anything any more."""
    alpha, beta = start
    settled_alpha = settled_beta = False
    yield alpha, beta
    for _ in range(steps):
        if rng.random() < p:
            if not settled_alpha:
                moved = _alpha_step(problem, resource, limit, alpha, beta, target)
                settled_beta &= _same(moved, alpha)
                alpha, settled_alpha = moved, True
        elif not settled_beta:
            moved = _beta_step(problem, resource, limit, alpha, target)
            settled_alpha &= _same(moved, beta)
            beta, settled_beta = moved, True
        yield alpha, beta
        if settled_alpha and settled_beta:
            return


def _alpha_step(
    problem: StagedProblem, resource: str, limit: float, alpha: Floats, beta: Floats, target: Point | None
) -> Floats:
    """Eq. 7. A block beyond the depth has no gradient and keeps its alpha (its larger entry, if it was split)."""
    presence = beta[:, ::-1].cumsum(-1)[:, ::-1, None]
    active = presence[..., 0] > 0
    values = presence * problem.block_values if target is None else target[0]
    costs = presence * problem.block_costs[resource]
    budget = limit - problem.fixed_costs[resource] - float((beta * problem.depth_costs[resource]).sum())
    moved: Floats = (alpha.argmax(-1)[..., None] == np.arange(alpha.shape[-1])).astype(float)
    moved[active] = relaxed_knapsack(values[active], costs[active], budget)
    return moved


def _beta_step(problem: StagedProblem, resource: str, limit: float, alpha: Floats, target: Point | None) -> Floats:
    """Eq. 8: a depth has its own value and cost and those of all blocks up to it."""
    values, costs = _by_depth(problem, resource, alpha)
    budget = limit - problem.fixed_costs[resource]
    return relaxed_knapsack(values if target is None else target[1], costs, budget, problem.allowed)


def _by_depth(problem: StagedProblem, resource: str, alpha: Floats) -> tuple[Floats, Floats]:
    """Value and cost (S, D) of each depth at this alpha."""
    values = problem.depth_values + (alpha * problem.block_values).sum(-1).cumsum(-1)
    costs = problem.depth_costs[resource] + (alpha * problem.block_costs[resource]).sum(-1).cumsum(-1)
    return values, costs


def _start(problem: StagedProblem, resource: str, limit: float, rng: np.random.Generator) -> Point:
    """A random architecture with random stages replaced by their cheapest form until it is within the limit."""
    drawn, cheap = problem.sample(1, rng)[0], problem.cheapest(resource)
    configurations = rng.integers(0, problem.shape[2], problem.shape[:2])
    depths = drawn.depths.copy()
    for stage in rng.permutation(problem.shape[0]):
        if problem.evaluate(StagedChoice.masked(depths, configurations))[1][resource] <= limit:
            break
        depths[stage] = cheap.depths[stage]
        present = np.arange(problem.shape[1]) < depths[stage]
        configurations[stage] = np.where(present, cheap.configurations[stage], configurations[stage])
    alpha = (configurations[..., None] == np.arange(problem.shape[2])).astype(float)
    return alpha, (depths[:, None] == np.arange(1, problem.shape[1] + 1)).astype(float)


def _round(problem: StagedProblem, resource: str, limit: float, points: list[Point]) -> StagedChoice:
    """The best architecture within the limit among all roundings of the points; the cheapest is always one."""
    cheapest = problem.cheapest(resource)
    depths, configurations = [cheapest.depths], [cheapest.configurations]
    for alpha, beta in points:
        for chosen, depth in product(_ends(alpha), _ends(beta)):
            choice = StagedChoice.masked(depth + 1, chosen)
            depths.append(choice.depths)
            configurations.append(choice.configurations)
    candidates = StagedChoice(np.stack(depths), np.stack(configurations))
    values, costs = problem.evaluate(candidates)
    return candidates[int(np.where(costs[resource] <= limit, values, -np.inf).argmax())]


def _ends(weights: Floats) -> list[NDArray[np.int64]]:
    """The largest entry of every simplex, and the same with the split simplex at its other end."""
    largest = weights.argmax(-1)
    others = np.argwhere((weights > 0) & (np.arange(weights.shape[-1]) != largest[..., None]))
    ends = [largest]
    for *place, entry in others:
        other = largest.copy()
        other[tuple(place)] = entry
        ends.append(other)
    return ends
