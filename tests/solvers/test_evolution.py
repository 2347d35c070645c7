from __future__ import annotations

import numpy as np
import pytest

from archwright.errors import InfeasibleError
from archwright.solvers import evolution, pareto
from archwright.solvers.synthetic import synthetic_problem
from helpers.staged_problems import every_choice, small_problem


@pytest.mark.parametrize("seed", range(5))
def test_finds_the_optimum_of_small_problems(seed: int) -> None:
    problem = small_problem(seed, stages=2, blocks=2, configurations=3)
    values, costs = problem.evaluate(every_choice(problem))
    limit = float(np.quantile(costs["latency_ms"], 0.4))
    solution = evolution.solve(problem, "latency_ms", limit, seed=seed, iterations=60)
    assert solution.value == pytest.approx(values[costs["latency_ms"] <= limit].max(), abs=1e-9)


def test_meets_every_limit_is_reproducible_and_never_beats_the_exact_solver() -> None:
    problem = synthetic_problem(0)
    low, high = problem.cost_range("latency_ms")
    for limit in np.linspace(low, high, 6):
        solution = evolution.solve(problem, "latency_ms", float(limit), seed=1, iterations=50)
        again = evolution.solve(problem, "latency_ms", float(limit), seed=1, iterations=50)
        assert solution.costs["latency_ms"] <= limit
        assert solution.value == again.value
        assert solution.value <= pareto.solve(problem, "latency_ms", float(limit)).value + 1e-9 <= solution.bound + 2e-9
    with pytest.raises(InfeasibleError):
        evolution.solve(problem, "latency_ms", low - 1)


def test_genomes_evaluate_as_the_problem_does() -> None:
    problem = small_problem(7, stages=3, blocks=3, configurations=4)
    genomes = evolution._Genomes(problem, "latency_ms", np.inf)
    drawn = genomes.draw(200, np.random.default_rng(0))
    values, costs = genomes.evaluate(drawn)
    for index in range(200):
        value, cost = problem.evaluate(genomes.choice(drawn[index]))
        assert values[index] == pytest.approx(value)
        assert costs[index] == pytest.approx(cost["latency_ms"])
