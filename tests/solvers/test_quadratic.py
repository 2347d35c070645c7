from __future__ import annotations

import sys

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.solvers import pareto, quadratic
from archwright.solvers.quadratic import QuadraticObjective, bilinear_objective
from helpers.staged_problems import every_choice, small_problem


def test_bilinear_objective_is_the_problems_own() -> None:
    problem = small_problem(1, stages=2, blocks=2, configurations=3)
    choices = every_choice(problem)
    np.testing.assert_allclose(
        bilinear_objective(problem)(choices.one_hot(3)), problem.evaluate(choices)[0], atol=1e-12
    )


def test_reduction_keeps_every_value() -> None:
    problem = small_problem(2, stages=2, blocks=2, configurations=2)
    x = every_choice(problem).one_hot(2)
    rng = np.random.default_rng(0)
    objective = QuadraticObjective(1.0, rng.normal(size=12), rng.normal(size=(12, 12)))
    reduced = quadratic._reduced(problem, objective)
    np.testing.assert_allclose(reduced(x), objective(x), atol=1e-12)
    assert not np.tril(reduced.Q).any()


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    with pytest.raises(InputError, match=r"archwright\[solver\]"):
        quadratic.solve(small_problem(0, 1, 1, 2), {})


@pytest.mark.parametrize("seed", range(6))
def test_coupled_objective_equals_brute_force(seed: int) -> None:
    pytest.importorskip("pyscipopt", reason="needs the extra 'solver'")
    problem = small_problem(seed, stages=2, blocks=2, configurations=3)
    choices = every_choice(problem)
    x, costs = choices.one_hot(3), problem.evaluate(choices)[1]
    rng = np.random.default_rng(seed)
    objective = QuadraticObjective(2.0, rng.normal(size=x.shape[1]), rng.normal(size=(x.shape[1],) * 2))
    limits = {"latency_ms": float(np.quantile(costs["latency_ms"], 0.4))}
    within = costs["latency_ms"] <= limits["latency_ms"]
    solution = quadratic.solve(problem, limits, objective)
    assert solution.value == pytest.approx(objective(x)[within].max(), abs=1e-6)
    assert solution.costs["latency_ms"] <= limits["latency_ms"]
    with pytest.raises(InputError, match="Q of"):
        quadratic.solve(problem, limits, QuadraticObjective(0.0, np.zeros(3), np.zeros((3, 3))))


@pytest.mark.parametrize("seed", range(4))
def test_bilinear_program_equals_the_exact_front(seed: int) -> None:
    pytest.importorskip("pyscipopt", reason="needs the extra 'solver'")
    problem = small_problem(seed, stages=3, blocks=2, configurations=3)
    low, high = problem.cost_range("latency_ms")
    limit = 0.5 * (low + high)
    solution = quadratic.solve(problem, {"latency_ms": limit})
    assert solution.value == pytest.approx(pareto.solve(problem, "latency_ms", limit).value, abs=1e-6)
