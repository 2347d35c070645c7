"""Measuring in rounds: the posterior against closed forms, changes against brute force, and what rounds gain."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Kernel

from archwright.errors import InputError
from archwright.predictors.hierarchical import TermPosterior, attributes_of, fit_hierarchical
from archwright.predictors.rounds import (
    Measured,
    Residuals,
    RoundSettings,
    StagedField,
    key_of,
    measure_in_rounds,
    single_changes,
)
from archwright.predictors.staged import by_known_difficulty
from archwright.solvers import pareto
from archwright.solvers.problem import Floats, StagedChoice, StagedProblem

ATTRIBUTES = attributes_of(list(itertools.product((2, 6), (3, 5))))


def small_problem(seed: int = 0) -> StagedProblem:
    """Three stages of one or two blocks with four configurations: 8,000 networks, each of which can be looked at."""
    rng = np.random.default_rng(seed)
    shape = (3, 2, 4)
    costs = {"latency_ms": rng.uniform(1, 3, shape)}
    return StagedProblem(rng.normal(size=shape), costs, np.zeros((3, 2)), {}, ((1, 2),) * 3, 90.0, {})


def every(problem: StagedProblem) -> StagedChoice:
    stages = [(1, (c, 0)) for c in range(4)] + [(2, pair) for pair in itertools.product(range(4), repeat=2)]
    rows = list(itertools.product(stages, repeat=3))
    return StagedChoice.masked([[d for d, _ in row] for row in rows], [[c for _, c in row] for row in rows])


def interacting(problem: StagedProblem, choices: StagedChoice, seed: int = 1) -> Floats:
    """Accuracies with terms of pairs of decisions, which no sum of single ones has."""
    x = choices.one_hot(4)
    pairs = np.random.default_rng(seed).normal(size=(x.shape[-1],) * 2) * 0.15
    values: Floats = 80 + problem.evaluate(choices)[0] - 90 + np.einsum("...i,ij,...j->...", x, pairs, x)
    return values


def solve(problem: StagedProblem, limits: dict[str, float]) -> pareto.Solution:
    return pareto.solve(problem, "latency_ms", limits["latency_ms"])


def test_terms_are_drawn_from_the_posterior_of_the_ridge() -> None:
    problem, rng = small_problem(), np.random.default_rng(0)
    choices = problem.sample(60, rng)
    accuracy = problem.evaluate(choices)[0] - 5 + 0.3 * rng.normal(size=60)
    fit = fit_hierarchical(choices, accuracy, ATTRIBUTES)
    posterior = TermPosterior.of(fit, choices, accuracy, ATTRIBUTES)
    others = problem.sample(5, rng)
    drawn = np.array([posterior.draw(rng).predict(others) for _ in range(4000)])
    # By hand: features z, precision Z'Z + r, noise s^2; what an estimate predicts is right on average over the rows.
    z = (choices.one_hot(4) - choices.one_hot(4).mean(0)) @ posterior.basis
    at = (others.one_hot(4) - choices.one_hot(4).mean(0)) @ posterior.basis
    covariance = fit.error**2 * at @ np.linalg.inv(z.T @ z + fit.ridge * np.eye(z.shape[1])) @ at.T
    assert drawn.mean(0) == pytest.approx(fit.estimate.predict(others), abs=4 * np.sqrt(covariance.max() / 4000))
    assert np.cov(drawn.T) == pytest.approx(covariance, abs=0.12 * covariance.max())


def test_the_target_is_the_inverse_of_the_accuracy() -> None:
    choices = small_problem().sample(20, np.random.default_rng(0))
    for log_error in (True, False):
        fit = fit_hierarchical(choices, np.linspace(10, 90, 20), ATTRIBUTES, log_error=log_error)
        assert fit.accuracy(fit.target([12.5, 99.0])) == pytest.approx([12.5, 99.0])


def test_single_changes_are_all_networks_one_decision_away() -> None:
    problem = small_problem()
    choice = StagedChoice.masked([1, 2, 2], [[3, 0], [0, 1], [2, 2]])
    found = {key_of(one) for one in single_changes(problem, choice)}
    assert len(found) == 5 * 3 + 3  # five blocks with three other configurations, three other depths
    for one in single_changes(problem, choice):
        problem.evaluate(one)  # each is a choice of the problem
        assert ((one.depths != choice.depths).any(), (one.configurations != choice.configurations).sum()) in (
            (False, 1),
            (True, 1),
        )


def test_the_field_keeps_limits_and_solves_exactly() -> None:
    problem = small_problem()
    field = StagedField(problem, [{"latency_ms": 8.0}, {"latency_ms": 11.0}], solve)
    choices = problem.sample(80, np.random.default_rng(1))
    estimate = fit_hierarchical(choices, interacting(problem, choices), ATTRIBUTES).estimate
    networks = every(problem)
    costs, predicted = problem.evaluate(networks)[1]["latency_ms"], estimate.predict(networks)
    for number, limit in enumerate((8.0, 11.0)):
        best = field.solve(estimate, number)
        assert estimate.predict(best) == pytest.approx(predicted[costs <= limit].max())
        assert (problem.evaluate(field.changes(best, number))[1]["latency_ms"] <= limit).all()


class _Decisions(Kernel):
    """The process' covariance in another library: exp(-h / length)."""

    def __init__(self, length: float = 1.0) -> None:
        self.length = length

    def __call__(self, X: Floats, Y: Floats | None = None, eval_gradient: bool = False) -> Floats:
        other = X if Y is None else Y
        return np.exp(-np.abs(X[:, None] - other[None]).sum(-1) / 2 / self.length)

    def diag(self, X: Floats) -> Floats:
        return np.ones(len(X))

    def is_stationary(self) -> bool:
        return True


def test_the_process_of_residuals_is_the_library_s() -> None:
    problem, rng = small_problem(), np.random.default_rng(2)
    choices = problem.sample(50, rng)
    known = Measured(choices, interacting(problem, choices))
    fit = fit_hierarchical(known.choices, known.accuracy, ATTRIBUTES)
    process = Residuals.of(known, fit, 4)
    x, member, counts = np.unique(choices.one_hot(4), axis=0, return_inverse=True, return_counts=True)
    residual = fit.target(known.accuracy) - fit.estimate.predict(choices)
    mean = np.bincount(member.ravel(), residual) / counts
    noise = (float(residual.var()) - process.variance) / counts
    kernel = ConstantKernel(process.variance) * _Decisions(process.length)
    library = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(x, mean)
    others = problem.sample(10, rng)
    expected, deviation = library.predict(others.one_hot(4), return_std=True)
    found = process.predict(others)
    assert found[0] == pytest.approx(expected, abs=1e-8)
    assert found[1] == pytest.approx(deviation, rel=1e-5)


@pytest.mark.parametrize("residuals", [False, True])
def test_rounds_find_better_networks_than_as_many_random_ones(residuals: bool) -> None:
    regrets, random = [], []
    for seed in range(4):
        problem = small_problem(seed)
        networks = every(problem)
        costs, accuracy = problem.evaluate(networks)[1]["latency_ms"], interacting(problem, networks)
        limits = np.quantile(costs, (0.2, 0.5)).tolist()
        field = StagedField(problem, [{"latency_ms": limit} for limit in limits], solve)
        drawn = networks[np.random.default_rng(seed).permutation(len(networks))[:60]]
        pool = Measured(drawn[slice(0, 40)], interacting(problem, drawn)[:40])
        settings = RoundSettings(networks=20, rounds=4, residuals=residuals, seed=seed)
        known, new = measure_in_rounds(
            lambda one, p=problem: [float(interacting(p, one))], pool, field, ATTRIBUTES, settings
        )
        assert len(new) == 20
        assert len({key_of(one) for one in new} | {key_of(pool.choices[i]) for i in range(40)}) == 20 + len(
            {key_of(pool.choices[i]) for i in range(40)}
        )
        for limit in limits:
            best = accuracy[costs <= limit].max()
            within = problem.evaluate(known.choices)[1]["latency_ms"] <= limit
            regrets.append(best - known.accuracy[within].max())
            others = interacting(problem, drawn)[problem.evaluate(drawn)[1]["latency_ms"] <= limit]
            random.append(best - others.max())
    assert np.mean(regrets) < 0.6 * np.mean(random)


def test_rounds_are_a_function_of_what_was_measured() -> None:
    problem = small_problem()
    field = StagedField(problem, [{"latency_ms": 9.0}], solve)
    choices = problem.sample(30, np.random.default_rng(0))
    pool = Measured(choices, interacting(problem, choices))

    def run(kept: dict[bytes, float], most: int) -> list[bytes]:
        asked: list[bytes] = []

        def measure(choice: StagedChoice) -> list[float]:
            key = key_of(choice)
            if key not in kept:
                if len(kept) == most:
                    raise KeyboardInterrupt
                kept[key] = float(interacting(problem, choice))
            asked.append(key)
            return [kept[key]] * 2

        measure_in_rounds(measure, pool, field, ATTRIBUTES, RoundSettings(9, 3, seed=5))
        return asked

    whole = run({}, 100)
    kept: dict[bytes, float] = {}
    with pytest.raises(KeyboardInterrupt):
        run(kept, 4)
    assert list(kept) == whole[:4]
    assert run(kept, 100) == whole


def test_outcomes_are_compared_with_those_of_the_same_images() -> None:
    known, images = np.array([100.0, 0, 100, 100]), np.array([0, 0, 1, 1])  # image 0 is harder than image 1
    found = by_known_difficulty([100.0, 100.0, 100.0], np.array([0, 1, 2]), known, images)
    assert found == pytest.approx([75 + 50, 75 + 0, 75 + 25])


def test_no_rounds_are_refused() -> None:
    with pytest.raises(InputError, match="at least one round"):
        RoundSettings(networks=5, rounds=0)
