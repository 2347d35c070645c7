"""Theorem 3.1 of BINAS (D.1, E.1): sums of conditional means, and how far they are from the truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from archwright.predictors.staged import pool_estimates
from archwright.solvers.problem import StagedChoice, StagedProblem


def exact_and_sum(strength: float, variables: int, seed: int) -> tuple[float, float, float]:
    """Largest error of the sum, largest sum of single effects, and epsilon of the theorem.

    A is right or wrong, and every X_i is given A a coin of its own whose bias is at most ``strength``.
    """
    rng = np.random.default_rng(seed)
    right = 0.6
    bias = strength * rng.uniform(-1, 1, (variables, 2))  # of X_i where A is 0 and 1
    chance = 0.5 + bias  # P(X_i = 1 | A)
    marginal = chance @ np.array([1 - right, right])
    errors, sums, epsilon = [], [], 0.0
    for x in itertools.product((0, 1), repeat=variables):
        one = np.array(x, dtype=bool)[:, None]
        given = np.where(one, chance, 1 - chance)  # P(x_i | A), (variables, 2)
        weights = given.prod(0) * np.array([1 - right, right])
        exact = weights[1] / weights.sum()
        single = given[:, 1] * right / np.where(one[:, 0], marginal, 1 - marginal)  # P(A = 1 | x_i)
        errors.append(abs(exact - right - (single - right).sum()))
        sums.append(np.abs(single - right).sum())
        epsilon = max(
            epsilon, float(np.abs(single / right - 1).max()), float(np.abs((1 - single) / (1 - right) - 1).max())
        )
    return max(errors), max(sums), epsilon


@pytest.mark.parametrize("variables", [3, 6])
@pytest.mark.parametrize("seed", range(3))
def test_the_error_of_the_sum_is_of_the_order_of_n_epsilon(variables: int, seed: int) -> None:
    relative = []
    for strength in (0.02, 0.01, 0.005):
        error, total, epsilon = exact_and_sum(strength, variables, seed)
        assert error <= variables * epsilon * total  # (1 + O(n epsilon)) with a constant of 1
        relative.append(error / total)
    assert relative[2] < 0.6 * relative[1] < 0.36 * relative[0] * 1.1  # it vanishes with epsilon


def test_conditional_means_of_all_networks_give_an_additive_accuracy_back() -> None:
    rng = np.random.default_rng(0)
    values, depths = rng.normal(size=(2, 2, 3)), rng.normal(size=(2, 2))
    problem = StagedProblem(values, {"latency_ms": np.ones((2, 2, 3))}, depths, {}, ((1, 2),) * 2, 70.0, {})
    stage = [(1, (c, 0)) for c in range(3) for _ in range(3)] + [
        (2, pair) for pair in itertools.product(range(3), repeat=2)
    ]
    rows = list(itertools.product(stage, repeat=2))  # depths are equally frequent, as in a uniform draw
    choices = StagedChoice.masked([[d for d, _ in row] for row in rows], [[c for _, c in row] for row in rows])
    accuracy = problem.evaluate(choices)[0]
    assert pool_estimates(choices, accuracy, True, 3).predict(choices) == pytest.approx(accuracy)
    assert np.abs(pool_estimates(choices, accuracy, False, 3).predict(choices) - accuracy).max() > 0.1  # eq. 3 ranks
