"""Objectives that couple stages, r + q.x + x^T Q x, maximised by SCIP (extra ``solver``).

x is the masked one-hot vector of ``encoding``; limits are linear in it. Squares of binaries and products of two
configurations of one block are reduced before SCIP sees them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from archwright.errors import InputError, missing_extra
from archwright.solvers.encoding import coefficients, decode, structure, upper_bounds
from archwright.solvers.milp import infeasible
from archwright.solvers.problem import Floats, Solution, StagedProblem


@dataclass(frozen=True, eq=False)
class QuadraticObjective:
    """r + q.x + x^T Q x over the masked one-hot x of N = S*D*C + S*D entries.

    Args:
        r: the constant.
        q: (N,).
        Q: (N, N), not necessarily symmetric.
    """

    r: float
    q: Floats
    Q: Floats

    def __call__(self, x: Floats) -> Floats:
        """Values (...) of the rows of x (..., N)."""
        values: Floats = self.r + x @ self.q + ((x @ self.Q) * x).sum(-1)
        return values


def bilinear_objective(problem: StagedProblem) -> QuadraticObjective:
    """The problem's own objective with its products written out, as in eq. 4: alpha^T Q beta + q_beta.beta + r."""
    stages, blocks, configurations = problem.shape
    split = stages * blocks * configurations
    Q = np.zeros((split + stages * blocks,) * 2)
    for stage in range(stages):
        for block in range(blocks):
            alpha = (stage * blocks + block) * configurations + np.arange(configurations)
            beta = split + stage * blocks + np.arange(block, blocks)
            Q[np.ix_(alpha, beta)] = problem.block_values[stage, block][:, None]
    q = coefficients(np.zeros(problem.shape), problem.depth_values)
    return QuadraticObjective(problem.fixed_value, q, Q)


def solve(
    problem: StagedProblem,
    limits: Mapping[str, float],
    objective: QuadraticObjective | None = None,
    time_limit: float = 100.0,
) -> Solution:
    """Maximise an objective over architectures within the limits.

    ``value``, ``bound`` and ``gap`` are of the objective; structure and costs are the problem's. After ``time_limit``
    seconds the best architecture found comes with its gap.

    Args:
        problem: with one width a stage.
        limits: most of each resource, by its name.
        objective: over x = (alpha, beta); by default the problem's own, as a bilinear program.
        time_limit: seconds.
    """
    scip = _import_scip()
    start = time.perf_counter()
    problem.check_single("SCIP")
    problem.check_limits(limits)
    objective = objective or bilinear_objective(problem)
    size = len(upper_bounds(problem))
    if objective.q.shape != (size,) or objective.Q.shape != (size, size):
        raise InputError(f"q of {size} and Q of {size} x {size} entries", f"{objective.q.shape}, {objective.Q.shape}")
    model, x = _model(scip, problem, limits, _reduced(problem, objective))
    model.setParam("limits/time", time_limit)
    model.optimize()
    if model.getStatus() == "infeasible":
        raise infeasible(problem, limits)
    if model.getNSols() == 0:
        raise InputError("an answer of SCIP in time", model.getStatus(), "Give it a longer time_limit.")
    found = model.getBestSol()
    choice = decode(problem, np.array([model.getSolVal(found, variable) for variable in x]))
    _, costs = problem.evaluate(choice)
    value = float(objective(choice.one_hot(problem.shape[2])))
    if any(costs[name] > limit for name, limit in limits.items()):  # by less than SCIP's tolerance
        tightened = {name: limit - 2 * max(float(costs[name]) - limit, 0.0) for name, limit in limits.items()}
        return solve(problem, tightened, objective, time_limit)
    bound = max(float(model.getDualbound()), value)
    floats = {name: float(cost) for name, cost in costs.items()}
    return Solution(choice, value, floats, bound, bound - value, time.perf_counter() - start, "scip")


def _import_scip() -> Any:
    try:
        import pyscipopt
    except ImportError as error:
        raise missing_extra("pyscipopt", "solver", "objectives that couple stages") from error
    return pyscipopt


def _reduced(problem: StagedProblem, objective: QuadraticObjective) -> QuadraticObjective:
    """The same values with upper-triangular Q: x_i^2 = x_i goes to q, and pairs that exclude each other are dropped."""
    stages, blocks, configurations = problem.shape
    of_block = np.repeat(np.arange(stages * blocks), configurations)
    group = np.concatenate([of_block, stages * blocks + np.repeat(np.arange(stages), blocks)])
    Q = np.triu(objective.Q, 1) + np.tril(objective.Q, -1).T
    Q[group[:, None] == group] = 0.0
    return QuadraticObjective(objective.r, objective.q + np.diagonal(objective.Q), Q)


def _model(scip: Any, problem: StagedProblem, limits: Mapping[str, float], objective: QuadraticObjective) -> Any:
    """The SCIP model and its variables x; a quadratic objective is a bounded variable below the quadratic form."""
    model = scip.Model()
    model.hideOutput()
    x = [model.addVar(vtype="B", ub=bound) for bound in upper_bounds(problem)]
    rows, right = structure(problem)
    for row in range(rows.shape[0]):
        entries = slice(rows.indptr[row], rows.indptr[row + 1])
        terms = zip(rows.indices[entries], rows.data[entries], strict=True)
        model.addCons(scip.quicksum(float(weight) * x[column] for column, weight in terms) == float(right[row]))
    for name, limit in limits.items():
        cost = coefficients(problem.block_costs[name], problem.depth_costs[name])
        scale = max(float(cost.max()), np.finfo(float).tiny)
        total = scip.quicksum(float(weight) / scale * variable for weight, variable in zip(cost, x, strict=True))
        model.addCons(total <= (limit - problem.fixed_costs[name]) / scale)
    linear = scip.quicksum(float(weight) * variable for weight, variable in zip(objective.q, x, strict=True))
    products = scip.quicksum(float(objective.Q[i, j]) * x[i] * x[j] for i, j in np.argwhere(objective.Q))
    coupled = model.addVar(lb=None, ub=float(np.maximum(objective.Q, 0.0).sum()))
    model.addCons(coupled <= products)
    model.setObjective(linear + coupled + objective.r, "maximize")
    return model, x
