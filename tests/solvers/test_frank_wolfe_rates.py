"""Theorems 3.2, F.1, F.2 and F.4 of IQNAS (G.1, G.2, G.4 of BINAS): what they bound, evaluated beside the bounds.

F.1 is Lacoste-Julien's, of convex objectives: its iteration is written out here, for convex quadratics over products of
simplices, as nothing in the package solves such. F.4 and 3.2 take it over to bilinear objectives, which are not convex:
there the rate fails, even where no row couples blocks.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from archwright.solvers import pareto
from archwright.solvers.frank_wolfe import iterates
from archwright.solvers.problem import StagedProblem
from archwright.solvers.synthetic import synthetic_problem

BLOCKS, SIZE, STEPS, RUNS = 3, 4, 60, 200
Floats = NDArray[np.float64]


def value_of(problem: StagedProblem, alpha: Floats, beta: Floats) -> float:
    """ACC(alpha, beta), bilinear: a block counts with the weight of the depths that have it."""
    presence = beta[:, ::-1].cumsum(-1)[:, ::-1, None]
    gain = (presence * alpha * problem.block_values).sum() + (beta * problem.depth_values).sum()
    return float(problem.fixed_value + gain)


def convex(seed: int) -> tuple[Floats, Floats]:
    """The Hessian and the linear term of a convex quadratic over BLOCKS simplices of SIZE entries."""
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(BLOCKS * SIZE, 4))
    return factor @ factor.T, rng.normal(size=BLOCKS * SIZE)


def curvature(hessian: Floats) -> float:
    """C_f: for a quadratic the largest (s - x) H_ii (s - x) of each block, convex and so between two corners."""
    total = 0.0
    for block in range(BLOCKS):
        own = hessian[block * SIZE : (block + 1) * SIZE, block * SIZE : (block + 1) * SIZE]
        corners = np.eye(SIZE)
        total += max((a - b) @ own @ (a - b) for a, b in itertools.product(corners, corners))
    return total


def least(hessian: Floats, linear: Floats) -> float:
    """The minimum, by another solver."""
    found = minimize(
        lambda z: 0.5 * z @ hessian @ z + linear @ z,
        np.full(BLOCKS * SIZE, 1 / SIZE),
        jac=lambda z: hessian @ z + linear,
        bounds=[(0, 1)] * (BLOCKS * SIZE),
        constraints=[
            {"type": "eq", "fun": lambda z, b=b: z[b * SIZE : (b + 1) * SIZE].sum() - 1} for b in range(BLOCKS)
        ],
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.success
    return float(found.fun)


@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_rate_of_theorem_f_1_holds_for_convex_objectives(seed: int, searched: bool) -> None:
    hessian, linear = convex(seed)
    rng, gaps = np.random.default_rng(seed), np.zeros(STEPS + 1)
    best, first = least(hessian, linear), np.zeros(BLOCKS * SIZE)
    first[::SIZE] = 1.0
    for _ in range(RUNS):
        z = first.copy()
        for k in range(STEPS + 1):
            gaps[k] += (0.5 * z @ hessian @ z + linear @ z - best) / RUNS
            own = slice((block := int(rng.integers(BLOCKS))) * SIZE, (block + 1) * SIZE)
            gradient = hessian @ z + linear
            move = np.zeros(BLOCKS * SIZE)
            move[own] = np.eye(SIZE)[gradient[own].argmin()] - z[own]
            step = 2 * BLOCKS / (k + 2 * BLOCKS)
            if searched and (bent := move @ hessian @ move) > 0:
                step = float(np.clip(-(gradient @ move) / bent, 0, 1))
            z = z + step * move
    k = np.arange(STEPS + 1)
    bound = 2 * BLOCKS / (k + 2 * BLOCKS) * (curvature(hessian) + gaps[0])
    assert (gaps <= bound + 1e-6).all()
    assert gaps[-1] < 0.2 * gaps[0]  # and it does converge


@pytest.mark.parametrize("seed", range(5))
def test_the_line_search_of_theorem_f_2_always_takes_the_whole_step(seed: int) -> None:
    """Along every update of Algorithm 1 nothing between its ends is better than the new end."""
    problem = synthetic_problem(seed)
    low, high = problem.cost_range("latency_ms")
    points = list(iterates(problem, "latency_ms", 0.7 * low + 0.3 * high, np.random.default_rng(seed), STEPS))
    gains = 0
    for before, after in itertools.pairwise(points):
        between = [
            [(1 - part) * a + part * b for a, b in zip(before, after, strict=True)] for part in np.linspace(0, 1, 21)
        ]
        values = [value_of(problem, *point) for point in between]
        assert values[-1] >= max(values) - 1e-9
        gains += values[-1] > values[0] + 1e-9
    assert gains > 1


def test_the_rate_of_theorems_3_2_and_f_4_fails_as_bilinear_objectives_are_not_convex() -> None:
    """The limit is the largest cost, so that no row couples alpha and beta, as the proof asks."""
    broken = 0
    for seed in range(5):
        problem = synthetic_problem(seed)
        limit = problem.cost_range("latency_ms")[1]
        best, gaps = pareto.solve(problem, "latency_ms", limit).value, np.zeros(STEPS + 1)
        for run in range(RUNS):
            values = []
            for alpha, beta in iterates(problem, "latency_ms", limit, np.random.default_rng(run), STEPS):
                values.append(value_of(problem, alpha, beta))
            values += values[-1:] * (STEPS + 1 - len(values))  # it has stopped
            gaps += (best - np.array(values)) / RUNS
        assert (gaps >= -1e-9).all()
        bound = 4 / (np.arange(4001) + 4) * gaps[0]
        assert (gaps[:20] <= bound[:20]).all()  # at first it is far below its bound,
        assert gaps[-1] == pytest.approx(gaps[-10], abs=0.01)  # then it stays where it is,
        broken += gaps[-1] > 2 * bound[4000]  # above a bound that goes to nothing
    assert broken == 5
