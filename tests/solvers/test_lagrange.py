from __future__ import annotations

import numpy as np
import pytest

from archwright.solvers.lagrange import relax
from helpers.staged_problems import brute_force_table, small_problem


@pytest.mark.parametrize("seed", range(20))
def test_bound_is_above_the_optimum_and_equals_the_lower_concave_hull(seed: int) -> None:
    problem = small_problem(seed, stages=2, blocks=2, configurations=3)
    values, costs = brute_force_table(problem, "latency_ms")
    low, high = problem.cost_range("latency_ms")
    limit = 0.6 * low + 0.4 * high
    bound = relax(problem, "latency_ms", limit).bound
    assert bound >= values[costs <= limit].max() - 1e-9
    # The least over p of max(value + p (limit - cost)), p on a grid, cannot be below the bound found by bisection.
    grid = np.concatenate([[0.0], np.geomspace(1e-4, 1e4, 2000)])
    on_grid = min(float((values + price * (limit - costs)).max()) for price in grid)
    assert bound <= on_grid + 1e-9
    assert bound == pytest.approx(on_grid, abs=0.05)
