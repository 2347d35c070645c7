"""The hierarchical ridge: known answers at both ends, and what it is for in between."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from archwright.errors import InputError
from archwright.predictors.hierarchical import attributes_of, fit_hierarchical
from archwright.predictors.staged import fit_bilinear, pool_estimates, shrunk
from archwright.solvers import pareto
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.solvers.synthetic import EXPANSION, KERNEL, SQUEEZE_EXCITE, synthetic_problem, synthetic_widths_problem

ATTRIBUTES = attributes_of(list(zip(EXPANSION, KERNEL, SQUEEZE_EXCITE, strict=True)))


def by_stage_problem(seed: int, deviation: float = 0.0) -> StagedProblem:
    """Block values are sums of stage effects of the attributes, and deviations of single blocks."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(0.0, 0.5, (5, ATTRIBUTES.shape[1]))
    values = np.repeat((effects @ ATTRIBUTES.T)[:, None], 4, axis=1)
    plain = synthetic_problem(seed)
    return StagedProblem(
        values + deviation * rng.normal(size=values.shape), plain.block_costs, plain.depth_values, {}, plain.depths,
        70.0, plain.fixed_costs,
    )  # fmt: skip


def test_attributes_are_one_hot_by_column() -> None:
    assert attributes_of([(2, 3, 1), (2, 5, 1), (6, 5, 1)]).tolist() == [[1, 0, 1, 0], [1, 0, 0, 1], [0, 1, 0, 1]]
    assert ATTRIBUTES.shape == (12, 3 + 2 + 2)


def test_an_additive_accuracy_is_reproduced() -> None:
    problem, rng = synthetic_problem(2), np.random.default_rng(0)
    train, test = problem.sample(700, rng), problem.sample(100, rng)
    fit = fit_hierarchical(train, problem.evaluate(train)[0], ATTRIBUTES, log_error=False)
    np.testing.assert_allclose(fit.predict(test), problem.evaluate(test)[0], atol=1e-6)
    assert fit.deviation > 0


def test_stage_effects_are_recovered_from_few_networks() -> None:
    problem, rng = by_stage_problem(0), np.random.default_rng(0)
    train, test = problem.sample(100, rng), problem.sample(200, rng)
    truth = problem.evaluate(test)[0]
    fit = fit_hierarchical(train, problem.evaluate(train)[0], ATTRIBUTES, log_error=False)
    np.testing.assert_allclose(fit.predict(test), truth, atol=1e-5)  # 255 terms from 100 networks
    assert fit.deviation == 0
    assert np.abs(fit_bilinear(train, problem.evaluate(train)[0], None, 12).predict(test) - truth).max() > 0.1


def test_it_ranks_better_than_conditional_means_with_a_hundred_networks() -> None:
    problem, rng = by_stage_problem(1, deviation=0.15), np.random.default_rng(1)
    train, test = problem.sample(100, rng), problem.sample(300, rng)
    truth = problem.evaluate(test)[0]
    measured = problem.evaluate(train)[0] + rng.normal(0.0, 0.5, 100)
    tau = {
        "hierarchical": kendalltau(fit_hierarchical(train, measured, ATTRIBUTES).predict(test), truth).statistic,
        "means": kendalltau(pool_estimates(train, measured, True, 12).predict(test), truth).statistic,
        "block terms": kendalltau(fit_bilinear(train, measured, None, 12).predict(test), truth).statistic,
    }
    assert tau["hierarchical"] > 0.75
    assert tau["hierarchical"] > tau["means"] + 0.15
    assert tau["hierarchical"] > tau["block terms"]


def test_the_log_of_the_error_is_additive_where_it_is() -> None:
    """Errors that are products of factors: exact in the logarithm, and beyond an additive accuracy."""
    problem, rng = by_stage_problem(3), np.random.default_rng(3)

    def accuracy(choices: StagedChoice) -> np.ndarray:
        return 100.1 - np.exp(2.5 - 0.2 * (problem.evaluate(choices)[0] - 70.0))

    train, test = problem.sample(150, rng), problem.sample(200, rng)
    truth, shown = accuracy(test), accuracy(train)
    fit = fit_hierarchical(train, shown, ATTRIBUTES)
    plain = fit_hierarchical(train, shown, ATTRIBUTES, log_error=False)
    np.testing.assert_allclose(fit.predict(test), truth, atol=1e-3)
    assert np.abs(plain.predict(test) - truth).max() > 0.1


def test_widths_are_terms_and_the_estimate_goes_to_the_exact_solver() -> None:
    problem, rng = synthetic_widths_problem(0), np.random.default_rng(0)
    train, test = problem.sample(800, rng), problem.sample(200, rng)
    fit = fit_hierarchical(train, problem.evaluate(train)[0], ATTRIBUTES, num_widths=3)
    estimate = fit.estimate
    assert estimate.width_values.shape == (5, 3)
    assert (np.diff(estimate.width_values) > 0).all()  # wider is better here
    assert kendalltau(fit.predict(test), problem.evaluate(test)[0]).statistic > 0.9
    predicted = StagedProblem(
        estimate.block_values, problem.block_costs, estimate.depth_values[:, None] + estimate.width_values[:, :, None],
        {}, problem.depths, estimate.fixed, problem.fixed_costs, problem.widths,
    )  # fmt: skip
    found = pareto.solve(predicted, "latency_ms", 20.0)
    assert fit.accuracy(found.value) == pytest.approx(float(fit.predict(found.choice)))
    for ours in (
        pool_estimates(train, problem.evaluate(train)[0], True, 12, 3),
        fit_bilinear(train, problem.evaluate(train)[0], None, 12, 3),
    ):
        assert (np.diff(ours.width_values) > 0).all()
        assert kendalltau(ours.predict(test), problem.evaluate(test)[0]).statistic > 0.6


def test_the_bilinear_default_does_not_collapse_where_rows_are_as_many_as_terms() -> None:
    problem, rng = synthetic_problem(0), np.random.default_rng(0)
    train, test = problem.sample(210, rng), problem.sample(300, rng)
    truth, measured = problem.evaluate(test)[0], problem.evaluate(train)[0] + rng.normal(0.0, 0.3, 210)
    by_default = kendalltau(fit_bilinear(train, measured, None, 12).predict(test), truth).statistic
    without = kendalltau(fit_bilinear(train, measured, 0.0, 12).predict(test), truth).statistic
    assert by_default > without + 0.15


def test_a_regression_is_not_shrunk_twice_in_silence() -> None:
    problem = synthetic_problem(0, stages=1)
    choices = problem.sample(40, np.random.default_rng(0))
    with pytest.raises(InputError, match="standard errors"):
        shrunk(fit_bilinear(choices, problem.evaluate(choices)[0]))


@pytest.mark.parametrize(("accuracy", "message"), [(-1.0, "percent"), (101.0, "percent"), (np.nan, "finite")])
def test_bad_accuracies_are_refused(accuracy: float, message: str) -> None:
    choices = synthetic_problem(0).sample(10, np.random.default_rng(0))
    with pytest.raises(InputError, match=message):
        fit_hierarchical(choices, np.full(10, accuracy), ATTRIBUTES)
