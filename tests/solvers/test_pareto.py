from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archwright.errors import InfeasibleError
from archwright.solvers import milp, pareto
from archwright.solvers.problem import StagedProblem
from archwright.solvers.synthetic import synthetic_problem, synthetic_widths_problem
from helpers.staged_problems import brute_force_table, brute_force_widths, small_problem, width_problem

problems = st.builds(
    small_problem,
    seed=st.integers(0, 2**32 - 1),
    stages=st.integers(1, 3),
    blocks=st.integers(1, 2),
    configurations=st.integers(1, 3),
    integers=st.booleans(),
)


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(problem=problems, share=st.floats(0, 1))
def test_front_and_single_limit_equal_brute_force(problem: StagedProblem, share: float) -> None:
    values, costs = brute_force_table(problem, "latency_ms")
    front = pareto.front(problem, "latency_ms")
    best = np.array([values[costs <= cost + 1e-9].max() for cost in front.costs])
    np.testing.assert_allclose(front.values, best, atol=1e-9)
    # Nothing is missing: every architecture is weakly dominated by a point of the front.
    at = np.searchsorted(front.costs, costs + 1e-9, side="right") - 1
    assert (at >= 0).all()
    assert (values <= front.values[at] + 1e-9).all()

    low, high = problem.cost_range("latency_ms")
    limit = low + share * (high - low)
    solution = pareto.solve(problem, "latency_ms", limit)
    assert solution.value == pytest.approx(problem.evaluate(front.best(limit))[0], abs=1e-9)
    assert solution.costs["latency_ms"] <= limit
    assert values[costs <= limit - 1e-9].max(initial=-np.inf) <= solution.value + 1e-9


width_problems = st.builds(
    width_problem,
    seed=st.integers(0, 2**32 - 1),
    stages=st.integers(1, 3),
    blocks=st.integers(1, 2),
    configurations=st.integers(1, 3),
    widths=st.integers(2, 3),
    integers=st.booleans(),
).filter(lambda problem: max(problem.widths) > 1)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problem=width_problems, share=st.floats(0, 1))
def test_widths_equal_brute_force(problem: StagedProblem, share: float) -> None:
    values, all_costs = brute_force_widths(problem)
    costs = all_costs["latency_ms"]
    front = pareto.front(problem, "latency_ms")
    best = np.array([values[costs <= cost + 1e-9].max() for cost in front.costs])
    np.testing.assert_allclose(front.values, best, atol=1e-9)
    at = np.searchsorted(front.costs, costs + 1e-9, side="right") - 1
    assert (at >= 0).all()
    assert (values <= front.values[at] + 1e-9).all()
    stated_values, stated_costs = problem.evaluate(front.choices())
    np.testing.assert_allclose(stated_values, front.values, atol=1e-9)
    np.testing.assert_allclose(stated_costs["latency_ms"], front.costs, atol=1e-9)

    low, high = problem.cost_range("latency_ms")
    assert (low, high) == pytest.approx((costs.min(), costs.max()), abs=1e-9)
    limit = low + share * (high - low)
    solution = pareto.solve(problem, "latency_ms", limit)
    assert solution.costs["latency_ms"] <= limit
    assert values[costs <= limit - 1e-9].max(initial=-np.inf) <= solution.value + 1e-9
    assert solution.value <= values[costs <= limit + 1e-9].max() + 1e-9


def test_full_problem_with_widths_equals_highs() -> None:
    problem = synthetic_widths_problem(0)
    front = pareto.front(problem, "latency_ms")
    low, high = problem.cost_range("latency_ms")
    assert len({tuple(row) for row in front.choices().widths.tolist()}) > 10  # widths do matter
    for limit in np.random.default_rng(2).uniform(low, high, 3):
        exact = problem.evaluate(front.best(limit))[0]
        assert exact == pytest.approx(milp.solve(problem, {"latency_ms": limit}).value, abs=1e-9)
        assert exact == pytest.approx(pareto.solve(problem, "latency_ms", limit).value, abs=1e-9)


@pytest.mark.parametrize("resource", ["latency_ms", "macs"])
def test_front_is_monotone_and_every_point_evaluates_to_its_statement(resource: str) -> None:
    problem = synthetic_problem(3)
    front = pareto.front(problem, resource)
    assert len(front) > 100
    assert (np.diff(front.costs) > 0).all()
    assert (np.diff(front.values) > 0).all()
    values, costs = problem.evaluate(front.choices())
    np.testing.assert_allclose(values, front.values, rtol=1e-12)
    np.testing.assert_allclose(costs[resource], front.costs, rtol=1e-12)


def test_full_problem_equals_highs_at_thirty_limits() -> None:
    problem = synthetic_problem(0)
    front = pareto.front(problem, "latency_ms")
    low, high = problem.cost_range("latency_ms")
    for limit in np.random.default_rng(1).uniform(low, high, 30):
        exact = problem.evaluate(front.best(limit))[0]
        assert exact == pytest.approx(milp.solve(problem, {"latency_ms": limit}).value, abs=1e-9)
        assert exact == pytest.approx(pareto.solve(problem, "latency_ms", limit).value, abs=1e-9)


def test_fifty_stages_equal_highs() -> None:
    problem = synthetic_problem(0, stages=50)
    low, high = problem.cost_range("latency_ms")
    limit = low + 0.8 * (high - low)
    exact = pareto.solve(problem, "latency_ms", limit)
    assert exact.costs["latency_ms"] <= limit
    assert exact.value == pytest.approx(milp.solve(problem, {"latency_ms": limit}).value, abs=1e-9)


def test_ties_of_the_price_do_not_cost_the_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    """At these limits two points of a stage are equal at the safe price but for rounding; the work is counted."""
    problem = synthetic_problem(0, stages=50)
    low, high = problem.cost_range("latency_ms")
    looked_at: list[int] = []
    prune = pareto._prune
    monkeypatch.setattr(pareto, "_prune", lambda costs, *rest: looked_at.append(len(costs)) or prune(costs, *rest))
    for limit in (low + np.linspace(0.02, 0.98, 50) * (high - low))[[1, 13, 27]]:
        looked_at.clear()
        pareto.solve(problem, "latency_ms", limit)
        assert sum(looked_at) < 400_000  # 4 to 34 million where the search starts from the cheapest network


def test_limits_at_the_ends() -> None:
    problem = synthetic_problem(0)
    low, high = problem.cost_range("latency_ms")
    assert pareto.solve(problem, "latency_ms", low).costs["latency_ms"] == low
    unlimited = pareto.solve(problem, "latency_ms", 10 * high)
    assert unlimited.value == pytest.approx(pareto.front(problem, "latency_ms").values[-1], abs=1e-12)
    assert unlimited.gap == 0
    with pytest.raises(InfeasibleError, match=f"{low:.6g} to {high:.6g}"):
        pareto.solve(problem, "latency_ms", low - 0.1)
    with pytest.raises(InfeasibleError):
        pareto.front(problem, "latency_ms").best(low - 0.1)
