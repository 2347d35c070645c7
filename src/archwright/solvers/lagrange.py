"""The Lagrangian relaxation of one limit: an upper bound for every solver, and the price that prunes the exact one.

With price p >= 0 on the resource the problem falls apart into stages:

    bound(p) = p * limit + fixed + sum_s max_{choice of s} (value - p * cost)  >=  optimum

and bound(p) is convex in p with slope limit - cost(p), so bisection on the sign of the slope finds the lowest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from archwright.solvers.problem import Floats, StagedProblem


@dataclass(frozen=True)
class Relaxation:
    """The lowest bound found.

    Args:
        bound: no architecture within the limit has a higher value.
        price: the price that gives it.
        stage_surplus: (S,), max(value - price * cost) of each stage.
        safe_price: the lowest price tried at which the stages' best choices are together within the limit, or infinity.
    """

    bound: float
    price: float
    stage_surplus: Floats
    safe_price: float


def relax(problem: StagedProblem, resource: str, limit: float, rounds: int = 50) -> Relaxation:
    """Minimise bound(p) in ``rounds`` bisections; the limit must be reachable."""
    problem.check_limits({resource: limit})
    budget = limit - problem.fixed_costs[resource]
    surplus, cost = _best_per_stage(problem, resource, 0.0)
    bound, best_price = problem.fixed_value + float(surplus.sum()), 0.0
    if cost <= budget:  # the limit does not bind
        return Relaxation(bound, 0.0, surplus, 0.0)
    low, high, safe_price = 0.0, 1.0, np.inf
    while _best_per_stage(problem, resource, high)[1] > budget and high < 1e12:
        low, high = high, 4.0 * high
    for _ in range(rounds):
        price = 0.5 * (low + high)
        surplus_here, cost = _best_per_stage(problem, resource, price)
        if cost > budget:
            low = price
        else:
            high = safe_price = price
        bound_here = problem.fixed_value + price * budget + float(surplus_here.sum())
        if bound_here < bound:
            bound, best_price, surplus = bound_here, price, surplus_here
    return Relaxation(bound, best_price, surplus, safe_price)


def _best_per_stage(problem: StagedProblem, resource: str, price: float) -> tuple[Floats, float]:
    """Per stage the greatest value - price * cost, (S,), and the total cost of the choices that have it."""
    block_costs = problem.block_costs[resource]
    surplus = problem.block_values - price * block_costs
    best = surplus.argmax(-1)[..., None]
    by_depth = np.take_along_axis(surplus, best, -1)[..., 0].cumsum(-1) + problem.depth_values
    cost_by_depth = np.take_along_axis(block_costs, best, -1)[..., 0].cumsum(-1) + problem.depth_costs[resource]
    by_depth = np.where(problem.allowed, by_depth - price * problem.depth_costs[resource], -np.inf)
    depth = by_depth.argmax(-1)
    stage = np.arange(len(depth))
    return by_depth[stage, depth], float(cost_by_depth[stage, depth].sum())
