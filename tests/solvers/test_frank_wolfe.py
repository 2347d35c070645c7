from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

from archwright.errors import InfeasibleError, InputError
from archwright.solvers import frank_wolfe, pareto
from archwright.solvers.frank_wolfe import iterates, relaxed_knapsack
from archwright.solvers.synthetic import synthetic_problem


@pytest.mark.parametrize("seed", range(30))
def test_greedy_step_equals_linear_programming(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups, entries = int(rng.integers(1, 8)), int(rng.integers(1, 7))
    values, costs = rng.normal(size=(groups, entries)), rng.uniform(0, 3, (groups, entries))
    if seed % 3 == 0:  # ties
        values, costs = np.round(values), np.round(costs)
    budget = float(costs.min(1).sum() + rng.uniform(0, 1) * (costs.max(1) - costs.min(1)).sum())
    u = relaxed_knapsack(values, costs, budget)
    oracle = linprog(
        -values.ravel(), A_ub=costs.ravel()[None], b_ub=[budget],
        A_eq=np.kron(np.eye(groups), np.ones(entries)), b_eq=np.ones(groups),
    )  # fmt: skip
    assert (u * values).sum() == pytest.approx(-oracle.fun, abs=1e-9)
    assert (u * costs).sum() <= budget + 1e-9
    np.testing.assert_allclose(u.sum(1), 1)
    assert ((u > 0).sum(1) > 1).sum() <= 1
    assert (u > 0).sum(1).max() <= 2


def test_greedy_step_leaves_out_what_is_not_allowed_and_refuses_a_small_budget() -> None:
    values, costs = np.array([[9.0, 1.0, 2.0]]), np.array([[0.0, 1.0, 2.0]])
    allowed = np.array([[False, True, True]])
    np.testing.assert_allclose(relaxed_knapsack(values, costs, 1.25, allowed), [[0, 0.75, 0.25]])
    with pytest.raises(InputError, match="at least 1"):
        relaxed_knapsack(values, costs, 0.5, allowed)


@pytest.mark.parametrize("seed", range(10))
def test_iterates_are_feasible_and_sparse_as_theorem_3_3_says(seed: int) -> None:
    problem = synthetic_problem(seed)
    low, high = problem.cost_range("latency_ms")
    limit = low + (0.05 + 0.09 * seed) * (high - low)
    objective, count = -np.inf, 0
    for alpha, beta in iterates(problem, "latency_ms", limit, np.random.default_rng(seed)):
        np.testing.assert_allclose(alpha.sum(-1), 1)
        np.testing.assert_allclose(beta.sum(-1), 1)
        assert not beta[:, 0].any()  # depth 1 is not allowed
        for weights in (alpha, beta):
            nonzero = (weights > 0).sum(-1)
            assert nonzero.max() <= 2
            assert (nonzero == 2).sum() <= 1
        presence = beta[:, ::-1].cumsum(-1)[:, ::-1, None]
        cost = problem.fixed_costs["latency_ms"] + (presence * alpha * problem.block_costs["latency_ms"]).sum()
        assert cost <= limit + 1e-9
        value = (
            problem.fixed_value + (presence * alpha * problem.block_values).sum() + (beta * problem.depth_values).sum()
        )
        assert value >= objective - 1e-9  # a best response never loses
        objective, count = value, count + 1
    assert count > 2


@pytest.mark.parametrize("stages", [5, 12])
def test_the_answer_meets_the_limit_and_is_bounded(stages: int) -> None:
    problem = synthetic_problem(1, stages=stages)
    low, high = problem.cost_range("latency_ms")
    for seed, limit in enumerate(np.linspace(low, high, 12)):
        solution = frank_wolfe.solve(problem, "latency_ms", float(limit), seed=seed)
        value, costs = problem.evaluate(solution.choice)
        assert costs["latency_ms"] <= limit
        assert solution.value == value
        exact = pareto.solve(problem, "latency_ms", float(limit)).value
        assert solution.value <= exact + 1e-9 <= solution.bound + 2e-9
    with pytest.raises(InfeasibleError):
        frank_wolfe.solve(problem, "latency_ms", low - 1)


def test_absent_blocks_keep_their_configuration() -> None:
    problem = synthetic_problem(0)
    rng = np.random.default_rng(0)
    previous = None
    for alpha, beta in iterates(problem, "latency_ms", problem.cost_range("latency_ms")[0] + 2, rng):
        if previous is not None:
            before, same_beta = previous
            absent = same_beta[:, ::-1].cumsum(-1)[:, ::-1] == 0
            assert absent.any()
            np.testing.assert_array_equal(alpha.argmax(-1)[absent], before.argmax(-1)[absent])
        previous = (alpha, beta)
