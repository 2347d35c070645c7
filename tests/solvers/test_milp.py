from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from archwright.errors import InfeasibleError
from archwright.solvers import milp
from archwright.solvers.encoding import coefficients, decode, structure
from archwright.solvers.problem import StagedProblem
from helpers.staged_problems import brute_force_widths, every_choice, small_problem, width_problem


@pytest.mark.parametrize("seed", range(15))
def test_two_limits_equal_brute_force(seed: int) -> None:
    problem = small_problem(seed, stages=2, blocks=2, configurations=3, integers=seed % 2 == 0)
    values, costs = problem.evaluate(every_choice(problem))
    limits = {name: float(np.quantile(costs[name], 0.45)) for name in problem.resources}
    within = (costs["latency_ms"] <= limits["latency_ms"]) & (costs["params"] <= limits["params"])
    if not within.any():
        with pytest.raises(InfeasibleError, match="together"):
            milp.solve(problem, limits)
        return
    solution = milp.solve(problem, limits)
    assert solution.value == pytest.approx(values[within].max(), abs=1e-9)
    assert all(solution.costs[name] <= limit for name, limit in limits.items())
    assert solution.gap == pytest.approx(0, abs=1e-6)


def test_limits_that_exclude_each_other() -> None:
    # Two configurations: one is quick and large, the other slow and small.
    problem = StagedProblem(
        block_values=np.zeros((1, 1, 2)),
        block_costs={"latency_ms": np.array([[[1.0, 5.0]]]), "params": np.array([[[5.0, 1.0]]])},
        depth_values=np.zeros((1, 1)),
        depth_costs={},
        depths=((1,),),
        fixed_value=0.0,
        fixed_costs={},
    )
    with pytest.raises(InfeasibleError, match="latency_ms: 1 to 5; params: 1 to 5"):
        milp.solve(problem, {"latency_ms": 2.0, "params": 2.0})


def test_encoding_is_linear_and_complete() -> None:
    problem = small_problem(4, stages=2, blocks=2, configurations=2)
    choices = every_choice(problem)
    x = choices.one_hot(2)
    rows, right = structure(problem)
    np.testing.assert_array_equal(rows @ x.T, np.repeat(right[:, None], len(x), 1))
    row = coefficients(problem.block_values, problem.depth_values)
    np.testing.assert_allclose(problem.fixed_value + x @ row, problem.evaluate(choices)[0], atol=1e-12)
    for index in range(len(choices)):
        back = decode(problem, x[index])
        np.testing.assert_array_equal(back.configurations, choices.configurations[index])
        np.testing.assert_array_equal(back.depths, choices.depths[index])


@pytest.mark.parametrize("seed", range(8))
def test_widths_and_two_limits_equal_brute_force(seed: int) -> None:
    problem = width_problem(seed, 3, 2, 2, 3)
    if max(problem.widths) == 1:
        pytest.skip("no widths drawn")
    values, costs = brute_force_widths(problem)
    limits = {name: float(np.quantile(costs[name], 0.3)) for name in costs}
    within = np.all([costs[name] <= limit for name, limit in limits.items()], axis=0)
    if not within.any():
        with pytest.raises(InfeasibleError):
            milp.solve(problem, limits)
        return
    solution = milp.solve(problem, limits)
    assert solution.value == pytest.approx(values[within].max(), abs=1e-7)
    assert all(solution.costs[name] <= limit for name, limit in limits.items())


def test_what_highs_prints_does_not_reach_stdout(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    quiet = milp.milp

    def loud(*arguments: Any, **options: Any) -> Any:
        os.write(1, b"HighsMipSolverData says something")
        return quiet(*arguments, **options)

    monkeypatch.setattr(milp, "milp", loud)
    milp.solve(small_problem(0, 2, 2, 2), {"params": 100.0})
    print("an answer")
    assert capfd.readouterr() == ("an answer\n", "HighsMipSolverData says something")
