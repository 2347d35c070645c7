"""The staged problem as a mixed-integer linear program for HiGHS, with any number of limits at once.

Binaries, with no big constants, so that the linear relaxation is tight:

- z^s_{v,w}, the pair of widths around stage s: a flow along the chain of stages;
- y^s_{v,w,c}, the configuration of the stage's first block, sum_c y^s_{v,w,c} = z^s_{v,w};
- beta^s_{w,d}, its depth, sum_d beta^s_{w,d} = sum_v z^s_{v,w};
- x^s_{w,b,c}, the configuration of a later block, sum_c x^s_{w,b,c} = sum_{d >= b} beta^s_{w,d}: the products
  alpha * beta of eqs. 3 and 5.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint

from archwright.errors import InfeasibleError, InputError
from archwright.solvers.highs import milp
from archwright.solvers.problem import ABSENT, Floats, Solution, StagedChoice, StagedProblem


def solve(problem: StagedProblem, limits: Mapping[str, float], time_limit: float = 100.0) -> Solution:
    """The best architecture within all limits; after ``time_limit`` seconds the best found, with its gap.

    HiGHS accepts a row that is broken by its tolerance. The architecture is therefore re-checked in full precision and,
    where it is over a limit, the program is solved again with that limit lowered by twice the excess.

    Args:
        problem: staged problem.
        limits: most of each resource, by its name.
        time_limit: seconds of one solve.
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
    """The error for ``limits`` of ``problem`` that can be met one by one but not together."""
    asked = ", ".join(f"{name} <= {limit:.6g}" for name, limit in limits.items())
    reach = "; ".join("{}: {:.6g} to {:.6g}".format(name, *problem.cost_range(name)) for name in limits)
    return InfeasibleError(f"no architecture has {asked} together. Reachable one at a time are {reach}. Loosen one.")


def _solve_once(
    problem: StagedProblem, limits: Mapping[str, float], time_limit: float, start: float, asked: Mapping[str, float]
) -> Solution:
    program = _Program(problem)
    rows, right = program.structure()
    constraints = [LinearConstraint(rows, right, right)]
    for name, limit in limits.items():
        cost = program.coefficients(*problem.tables(name))
        scale = max(float(cost.max()), np.finfo(float).tiny)  # one scale for ms and for millions of parameters
        constraints.append(LinearConstraint(cost[None] / scale, ub=(limit - problem.fixed_costs[name]) / scale))
    with _stdout_to_stderr():
        result = milp(
            -program.coefficients(*problem.tables()),
            integrality=np.ones(rows.shape[1]),
            bounds=Bounds(0.0, program.upper_bounds()),
            constraints=constraints,
            options={"mip_rel_gap": 0.0, "time_limit": max(time_limit - (time.perf_counter() - start), 0.1)},
        )
    if result.status == 2:
        raise infeasible(problem, asked)
    if result.x is None:
        raise InputError("an answer of HiGHS in time", str(result.message), "Give it a longer time_limit.")
    bound = problem.fixed_value - float(result.mip_dual_bound)
    return problem.solution(program.decode(result.x), bound, time.perf_counter() - start, "highs")


@contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """HiGHS prints lines of its own to the process's stdout now and then, which scripts read as JSON."""
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # a process without these has nothing to protect
        yield
        return
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@dataclass(frozen=True)
class _Program:
    """The variables (z, y, beta, x) of a problem, each an array flattened, one after another."""

    problem: StagedProblem

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        (stages, blocks, configurations), widest = self.problem.shape, max(self.problem.widths)
        return (
            (stages, widest, widest),
            (stages, widest, widest, configurations),
            (stages, widest, blocks),
            (stages, widest, blocks - 1, configurations),
        )

    def _parts(self, vector: Floats) -> list[Floats]:
        sizes = np.cumsum([int(np.prod(shape)) for shape in self._shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(vector, sizes[:-1]), self._shapes, strict=True)]

    def coefficients(self, blocks: Floats, depths: Floats) -> Floats:
        """Tables (S, W, W, D, C) and (S, W, D) as one row."""
        pairs = np.zeros(self._shapes[0])
        # Later blocks do not see the width before: any one's table will do.
        parts = (pairs, blocks[..., 0, :], depths, blocks[:, 0, :, 1:])
        return np.concatenate([np.ascontiguousarray(part).ravel() for part in parts])

    def upper_bounds(self) -> Floats:
        """1 for every variable that may be chosen, 0 for widths, depths and configurations that are not there."""
        widths = np.array(self.problem.widths)
        widest = int(widths.max())
        own = np.arange(widest) < widths[:, None]
        before = np.concatenate([np.arange(widest)[None] < 1, own[:-1]])
        pairs = before[:, :, None] & own[:, None]
        allowed = self.problem.allowed_configurations
        parts = (
            pairs,
            pairs[..., None] & allowed[:, None, None, 0],
            own[:, :, None] & self.problem.allowed[:, None],
            own[:, :, None, None] & allowed[:, None, 1:],
        )
        return np.concatenate([part.ravel() for part in parts]).astype(float)

    def structure(self) -> tuple[sparse.csr_array, Floats]:
        """A and b of A x = b: the equations of the module's list, in its order, the flow first."""
        (stages, blocks, configurations), widest = self.problem.shape, max(self.problem.widths)
        eye, ones = sparse.eye_array, np.ones
        stage, pair, place = stages, stages * widest**2, stages * widest
        into = sparse.kron(eye(stage), sparse.kron(ones((1, widest)), eye(widest)))  # sum_v z_{v,w}, (S W, S W W)
        out = sparse.kron(eye(stage), sparse.kron(eye(widest), ones((1, widest))))  # sum_w z_{v,w}
        total = sparse.csr_array(([1.0] * widest**2, ([0] * widest**2, range(widest**2))), (1, pair))
        chain = (into.tocsr()[: place - widest] - out.tocsr()[widest:]).tocsr()
        of_pair = sparse.kron(eye(pair), ones((1, configurations)))
        one_depth = sparse.kron(eye(place), ones((1, blocks)))
        deep = np.triu(ones((blocks, blocks)))[1:]  # sum_{d >= b} for b = 2, ..., D
        present = sparse.kron(eye(place), deep) if blocks > 1 else None
        later = sparse.kron(eye(place * (blocks - 1)), ones((1, configurations))) if blocks > 1 else None
        grid = [
            [total, None, None, None],
            *([[chain, None, None, None]] if stages > 1 else []),
            [-eye(pair), of_pair, None, None],
            [-into, None, one_depth, None],
            *([[None, None, -present, later]] if present is not None else []),
        ]
        if present is None:
            grid = [row[:3] for row in grid]
        rows = sparse.block_array(grid, format="csr")
        right = np.zeros(rows.shape[0])
        right[0] = 1.0
        return rows, right

    def decode(self, x: Floats) -> StagedChoice:
        """The choice nearest to x: the largest entry of every simplex, along the chain of widths."""
        pairs, firsts, depths, later = self._parts(x)
        (stages, blocks, _), before = self.problem.shape, 0
        chosen = np.full((stages, blocks), ABSENT)
        widths, deep = np.zeros((2, stages), np.int64)
        for stage in range(stages):
            width = int(pairs[stage, before].argmax())
            widths[stage] = width
            deep[stage] = np.where(self.problem.allowed[stage], depths[stage, width], -np.inf).argmax() + 1
            chosen[stage, 0] = firsts[stage, before, width].argmax()
            chosen[stage, 1:] = later[stage, width].argmax(-1)
            before = width
        return StagedChoice.masked(deep, chosen, widths)
