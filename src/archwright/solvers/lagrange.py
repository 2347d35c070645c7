"""The Lagrangian relaxation of one limit: an upper bound for every solver, and the price that prunes the exact one.

With price p >= 0 on the resource the problem falls apart into stages, tied by their widths only:

    bound(p) = p * limit + fixed + max_{choice} (value - p * cost)  >=  optimum

and bound(p) is convex in p with slope limit - cost(p), so bisection on the sign of the slope finds the lowest.
"""

from __future__ import annotations

from dataclasses import dataclass

from archwright.solvers.chain import best_choice
from archwright.solvers.problem import Floats, StagedChoice, StagedProblem


@dataclass(frozen=True)
class Relaxation:
    """The lowest bound found.

    Args:
        bound: no architecture within the limit has a higher value.
        price: the price that gives it.
        to_go: (S + 1, W), what the stages from s on add at best to value - price * cost after each width.
        safe: an architecture within the limit, the best at the lowest price tried at which the best one is.
    """

    bound: float
    price: float
    to_go: Floats
    safe: StagedChoice


def relax(problem: StagedProblem, resource: str, limit: float, rounds: int = 50) -> Relaxation:
    """Minimise bound(p), the Lagrangian bound at a price p of the resource.

    Args:
        problem: staged problem.
        resource: name of the one that is limited.
        limit: most of it; must be reachable.
        rounds: bisections of the price.
    """
    problem.check_limits({resource: limit})
    values, by_depth = problem.tables()
    costs, costs_by_depth = problem.tables(resource)
    fixed = problem.fixed_costs[resource]

    def at(price: float) -> tuple[StagedChoice, Floats, float, float]:
        choice, to_go = best_choice(problem, values - price * costs, by_depth - price * costs_by_depth)
        bound = problem.fixed_value + price * (limit - fixed) + float(to_go[0, 0])
        return choice, to_go, bound, problem.cost(choice, resource)

    choice, to_go, bound, cost = at(0.0)
    best = Relaxation(bound, 0.0, to_go, choice)
    if cost <= limit:  # the limit does not bind
        return best
    low, high, safe = 0.0, 1.0, problem.cheapest(resource)
    while at(high)[3] > limit and high < 1e12:
        low, high = high, 4.0 * high
    for _ in range(rounds):
        price = 0.5 * (low + high)
        choice, to_go, bound, cost = at(price)
        if cost > limit:
            low = price
        else:
            high, safe = price, choice
        if bound < best.bound:
            best = Relaxation(bound, price, to_go, choice)
    return Relaxation(best.bound, best.price, best.to_go, safe)
