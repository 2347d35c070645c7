"""The staged problem as a mixed-integer linear program for HiGHS, with any number of limits at once.

The products alpha * beta of eqs. 3 and 5 become one binary each (see ``encoding``), tied to the depths by
sum_c x^s_{b,c} = sum_{d >= b} beta^s_d; no big constants, so the linear relaxation is tight.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from archwright.errors import InfeasibleError, InputError
from archwright.solvers.encoding import coefficients, decode, structure, upper_bounds
from archwright.solvers.problem import Solution, StagedProblem


def solve(problem: StagedProblem, limits: Mapping[str, float], time_limit: float = 100.0) -> Solution:
    """The best architecture within all limits; after ``time_limit`` seconds the best found, with its gap.

    HiGHS accepts a row that is broken by its tolerance. The architecture is therefore re-checked in full precision and,
    where it is over a limit, the program is solved again with that limit lowered by twice the excess.
    """
    start = time.perf_counter()
    problem.check_limits(limits)
    tightened = dict(limits)
    for _ in range(5):
        solution = _solve_once(problem, tightened, time_limit, start, limits)
        over = {name: solution.costs[name] - limit for name, limit in limits.items()}
        if all(excess <= 0 for excess in over.values()):
            return solution
        tightened = {name: tightened[name] - 2 * max(over[name], 0.0) for name in limits}
    raise infeasible(problem, limits)


def infeasible(problem: StagedProblem, limits: Mapping[str, float]) -> InfeasibleError:
    """The error for limits that can be met one by one but not together."""
    asked = ", ".join(f"{name} <= {limit:.6g}" for name, limit in limits.items())
    reach = "; ".join("{}: {:.6g} to {:.6g}".format(name, *problem.cost_range(name)) for name in limits)
    return InfeasibleError(f"no architecture has {asked} together. Reachable one at a time are {reach}. Loosen one.")


def _solve_once(
    problem: StagedProblem, limits: Mapping[str, float], time_limit: float, start: float, asked: Mapping[str, float]
) -> Solution:
    rows, right = structure(problem)
    constraints = [LinearConstraint(rows, right, right)]
    for name, limit in limits.items():
        cost = coefficients(problem.block_costs[name], problem.depth_costs[name])
        scale = max(float(cost.max()), np.finfo(float).tiny)  # one scale for ms and for millions of parameters
        constraints.append(LinearConstraint(cost[None] / scale, ub=(limit - problem.fixed_costs[name]) / scale))
    result = milp(
        -coefficients(problem.block_values, problem.depth_values),
        integrality=np.ones(rows.shape[1]),
        bounds=Bounds(0.0, upper_bounds(problem)),
        constraints=constraints,
        options={"mip_rel_gap": 0.0, "time_limit": max(time_limit - (time.perf_counter() - start), 0.1)},
    )
    if result.status == 2:
        raise infeasible(problem, asked)
    if result.x is None:
        raise InputError("an answer of HiGHS in time", str(result.message), "Give it a longer time_limit.")
    bound = problem.fixed_value - float(result.mip_dual_bound)
    return problem.solution(decode(problem, result.x), bound, time.perf_counter() - start, "highs")
