from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest

from archwright.errors import InfeasibleError, InputError
from archwright.solvers import problem as problem_module
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.solvers.synthetic import synthetic_problem
from helpers.staged_problems import every_choice, hand_evaluate, small_problem


def arguments(**changed: object) -> dict[str, object]:
    good: dict[str, object] = {
        "block_values": np.zeros((2, 3, 4)),
        "block_costs": {"latency_ms": np.ones((2, 3, 4))},
        "depth_values": np.zeros((2, 3)),
        "depth_costs": {},
        "depths": ((1, 2), (3,)),
        "fixed_value": 0.0,
        "fixed_costs": {},
    }
    return {**good, **changed}


@pytest.mark.parametrize(
    "changed",
    [
        {"block_values": np.zeros((2, 3))},
        {"block_values": np.full((2, 3, 4), np.nan)},
        {"block_costs": {}},
        {"block_costs": {"latency_ms": np.full((2, 3, 4), -1.0)}},
        {"block_costs": {"latency_ms": np.full((2, 3, 4), np.nan)}},
        {"block_costs": {"latency_ms": np.ones((2, 3, 5))}},
        {"depth_values": np.zeros((3, 2))},
        {"depth_costs": {"latency": np.ones((2, 3))}},
        {"depth_costs": {"latency_ms": np.full((2, 3), np.inf)}},
        {"depths": ((1, 2),)},
        {"depths": ((), (3,))},
        {"depths": ((0, 1), (3,))},
        {"depths": ((1, 4), (3,))},
        {"fixed_value": np.nan},
        {"fixed_costs": {"latency_ms": -4.5}},
    ],
)
def test_bad_tables_are_refused(changed: dict[str, object]) -> None:
    with pytest.raises(InputError):
        StagedProblem(**arguments(**changed))  # type: ignore[arg-type]


def test_a_negative_intercept_is_allowed_while_every_architecture_costs_something() -> None:
    problem = StagedProblem(**arguments(fixed_costs={"latency_ms": -3.5}))  # type: ignore[arg-type]
    assert problem.cost_range("latency_ms") == (0.5, 1.5)


@pytest.mark.parametrize("seed", range(5))
def test_evaluate_and_range_by_hand(seed: int) -> None:
    problem = small_problem(seed, stages=2, blocks=3, configurations=2)
    choices = every_choice(problem)
    values, costs = problem.evaluate(choices)
    for index in range(len(choices)):
        value, cost = hand_evaluate(problem, choices[index])
        assert values[index] == pytest.approx(value, abs=1e-12)
        assert {name: costs[name][index] for name in costs} == pytest.approx(cost, abs=1e-12)
    for name in problem.resources:
        assert problem.cost_range(name) == pytest.approx((costs[name].min(), costs[name].max()), abs=1e-12)


def test_samples_are_valid_and_reach_every_depth() -> None:
    problem = synthetic_problem()
    choices = problem.sample(500, np.random.default_rng(0))
    problem.evaluate(choices)
    assert all(set(choices.depths[:, stage]) == {2, 3, 4} for stage in range(5))


def test_choices_outside_the_space_are_refused() -> None:
    problem = synthetic_problem()
    good = problem.sample(1, np.random.default_rng(0))[0]
    for depths, configurations in [
        (good.depths - 2, good.configurations),
        (good.depths, np.zeros_like(good.configurations)),
        (good.depths, np.where(good.configurations >= 0, 12, -1)),
        (good.depths[:-1], good.configurations),
    ]:
        if np.array_equal(configurations, np.zeros_like(configurations)) and (good.depths == 4).all():
            continue
        with pytest.raises(InputError):
            problem.evaluate(StagedChoice(depths, configurations))


def test_one_hot_by_hand() -> None:
    choice = StagedChoice.masked([1, 2], [[2, 0], [0, 1]])
    alpha = [0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert choice.one_hot(3).tolist() == [*alpha, 1, 0, 0, 1]


def test_unreachable_limits_print_the_range() -> None:
    problem = StagedProblem(**arguments(fixed_costs={"latency_ms": 0.25}))  # type: ignore[arg-type]
    with pytest.raises(InfeasibleError, match=r"4\.25 to 5\.25"):
        problem.check_limits({"latency_ms": 4.0})
    with pytest.raises(InputError, match="NaN"):
        problem.check_limits({"latency_ms": float("nan")})
    with pytest.raises(InputError, match="latency_ms"):
        problem.check_limits({"latency": 9.0})
    problem.check_limits({"latency_ms": 4.25})


def test_no_solver_imports_torch() -> None:
    for path in Path(problem_module.__file__).parent.glob("*.py"):
        imported = {
            name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        }
        assert not any(name.split(".")[0] == "torch" for name in imported), path.name
        inside = {name.split(".")[1] for name in imported if name.startswith("archwright.")}
        assert inside <= {"errors", "solvers"}, path.name
