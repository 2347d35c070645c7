from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau

from archwright.errors import InputError
from archwright.predictors.staged import (
    StagedEstimate,
    fit_bilinear,
    fit_full_bilinear,
    fit_quadratic,
    pool_estimates,
    shrunk,
    split_rows,
    transitivity_bound,
    without_difficulty,
)
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.solvers.synthetic import synthetic_problem
from helpers.staged_problems import every_choice, small_problem


def uniform_population(problem: StagedProblem) -> StagedChoice:
    """Every architecture as often as uniform sampling of depths, then of configurations, draws it."""
    choices = every_choice(problem)
    _, blocks, configurations = problem.shape
    repeats = configurations ** (blocks - choices.depths).sum(1)
    return choices[np.repeat(np.arange(len(choices)), repeats)]


@pytest.mark.parametrize("seed", range(5))
def test_centred_form_reproduces_an_additive_accuracy_and_eq_3_does_not(seed: int) -> None:
    problem = small_problem(seed, stages=2, blocks=3, configurations=2)
    population = uniform_population(problem)
    accuracy = problem.evaluate(population)[0]
    np.testing.assert_allclose(pool_estimates(population, accuracy).predict(population), accuracy, atol=1e-9)
    published = pool_estimates(population, accuracy, centred=False)
    if any(len(allowed) > 1 for allowed in problem.depths):
        assert np.abs(published.predict(population) - accuracy).max() > 1e-3


def test_both_forms_by_direct_averages() -> None:
    problem = small_problem(11, stages=2, blocks=3, configurations=2)
    problem = replace(problem, depths=((2, 3), (1, 3)))
    population = uniform_population(problem)
    accuracy = problem.evaluate(population)[0]
    centred = pool_estimates(population, accuracy)
    published = pool_estimates(population, accuracy, centred=False)
    depths, chosen = population.depths, population.configurations
    r = accuracy.mean()
    assert centred.fixed == pytest.approx(r)
    assert centred.depth_values[0, 1] == pytest.approx(accuracy[depths[:, 0] == 2].mean() - r)
    assert centred.depth_values[0, 0] == 0
    assert np.isinf(centred.depth_errors[0, 0])
    deep = depths[:, 0] >= 3
    expected = accuracy[deep & (chosen[:, 0, 2] == 1)].mean() - accuracy[deep].mean()
    assert centred.block_values[0, 2, 1] == pytest.approx(expected)
    # Block 1 of the first stage is below its least depth, so eq. 3 leaves the depth uniform; block 2 fixes it.
    assert published.block_values[0, 0, 1] == pytest.approx(accuracy[chosen[:, 0, 0] == 1].mean() - r)
    mask = (depths[:, 0] == 2) & (chosen[:, 0, 1] == 1)
    assert published.block_values[0, 1, 1] == pytest.approx(accuracy[mask].mean() - r)
    mask = (depths[:, 1] == 1) & (chosen[:, 1, 0] == 1)
    assert published.block_values[1, 0, 1] == pytest.approx(accuracy[mask].mean() - r)


def exact_conditionals(problem: StagedProblem, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Depth and block terms of an additive accuracy when depths and configurations are uniform, in closed form."""
    mean = problem.block_values.mean(-1)
    by_depth = problem.depth_values + mean.cumsum(-1)
    expected = np.array([by_depth[s, np.array(allowed) - 1].mean() for s, allowed in enumerate(problem.depths)])
    depth_terms = by_depth - expected[:, None]
    block_terms = problem.block_values - mean[..., None]
    if not centred:
        block_terms = block_terms + np.where(problem.allowed, depth_terms, 0.0)[..., None]
    return np.where(problem.allowed, depth_terms, 0.0), block_terms


@pytest.mark.parametrize("centred", [True, False])
def test_sampled_pool_is_within_its_standard_errors(centred: bool) -> None:
    problem = synthetic_problem(0)
    rng = np.random.default_rng(0)
    choices = problem.sample(100_000, rng)
    correct = rng.random(len(choices)) < problem.evaluate(choices)[0] / 100
    estimate = pool_estimates(choices, 100.0 * correct, centred=centred)
    depth_terms, block_terms = exact_conditionals(problem, centred)
    z_depth = ((estimate.depth_values - depth_terms) / estimate.depth_errors)[problem.allowed]
    z_block = ((estimate.block_values - block_terms) / estimate.block_errors).ravel()
    for z in (z_depth, z_block):
        assert np.abs(z).max() < 4
    assert 0.8 < z_block.std() < 1.2  # the errors are neither too small nor too large
    assert abs(z_block.mean()) < 0.2


def test_standard_errors_against_repeated_pools() -> None:
    problem = small_problem(3, stages=2, blocks=2, configurations=3)
    problem = replace(problem, depths=((1, 2), (2,)))
    rng = np.random.default_rng(0)
    estimates = []
    for _ in range(400):
        choices = problem.sample(300, rng)
        estimates.append(pool_estimates(choices, problem.evaluate(choices)[0] + rng.normal(size=300)))
    spread = np.std([estimate.block_values for estimate in estimates], axis=0)
    stated = np.mean([estimate.block_errors for estimate in estimates], axis=0)
    np.testing.assert_allclose(stated, spread, rtol=0.2)


def test_eq_3_with_exact_conditionals_only_ranks() -> None:
    problem = synthetic_problem(0)
    choices = problem.sample(400, np.random.default_rng(5))
    accuracy = problem.evaluate(choices)[0]
    for centred, low, high in [(True, 0.9999, 1.0), (False, 0.8, 0.97)]:
        depth_terms, block_terms = exact_conditionals(problem, centred)
        row = np.concatenate([block_terms.ravel(), depth_terms.ravel()])
        tau = kendalltau(choices.one_hot(12) @ row, accuracy).statistic
        assert low <= tau <= high


def test_a_large_pool_ranks_better_centred_than_as_published() -> None:
    problem = synthetic_problem(0)
    rng = np.random.default_rng(1)
    choices, test = problem.sample(400_000, rng), problem.sample(400, rng)
    accuracy = problem.evaluate(choices)[0]
    truth = problem.evaluate(test)[0]
    tau = {
        centred: kendalltau(pool_estimates(choices, accuracy, centred).predict(test), truth).statistic
        for centred in (True, False)
    }
    assert tau[True] > 0.98
    assert 0.8 < tau[False] < 0.97


def test_bilinear_fit_reproduces_additive_accuracy_on_new_architectures() -> None:
    problem = synthetic_problem(2)
    rng = np.random.default_rng(0)
    train, test = problem.sample(600, rng), problem.sample(100, rng)
    fit = fit_bilinear(train, problem.evaluate(train)[0])
    np.testing.assert_allclose(fit.predict(test), problem.evaluate(test)[0], atol=1e-8)
    assert np.isnan(fit.block_errors).all()


def test_ridge_shrinks_and_solves_its_normal_equations() -> None:
    problem = small_problem(5, stages=2, blocks=2, configurations=3)
    rng = np.random.default_rng(0)
    choices = problem.sample(50, rng)
    y = problem.evaluate(choices)[0] + rng.normal(size=50)
    fit = fit_bilinear(choices, y, ridge=3.0, num_configurations=3)
    x = choices.one_hot(3)
    weights = np.concatenate([fit.block_values.ravel(), fit.depth_values.ravel()])
    residual = y - fit.predict(choices)
    np.testing.assert_allclose(x.T @ residual, 3.0 * weights, atol=1e-9)
    assert residual.sum() == pytest.approx(0, abs=1e-9)


def explicit_features(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)], axis=1)


def test_quadratic_of_full_rank_is_least_squares() -> None:
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(80, 4)), rng.normal(size=(20, 4))
    y = rng.normal(size=80)
    fit = fit_quadratic(x, y, rank=80)
    features = np.concatenate([np.ones((80, 1)), explicit_features(x)], axis=1)
    weights = np.linalg.lstsq(features, y, rcond=None)[0]
    expected = np.concatenate([np.ones((20, 1)), explicit_features(new)], axis=1) @ weights
    np.testing.assert_allclose(fit.predict(new), expected, atol=1e-8)
    assert fit.rank == 14  # 4 linear and 10 different products


def test_quadratic_of_low_rank_is_the_truncated_svd() -> None:
    rng = np.random.default_rng(1)
    problem = small_problem(6, stages=2, blocks=2, configurations=3)
    x, y = problem.sample(60, rng).one_hot(3), rng.normal(size=60)
    features = explicit_features(x)
    u, s, vt = np.linalg.svd(features - features.mean(0), full_matrices=False)
    for rank in (1, 3, 5):
        weights = vt[:rank].T @ ((u[:, :rank].T @ (y - y.mean())) / s[:rank])
        expected = y.mean() + (features - features.mean(0)) @ weights
        fit = fit_quadratic(x, y, rank=rank)
        np.testing.assert_allclose(fit.predict(x), expected, atol=1e-8)
        np.testing.assert_allclose(fit.objective.q, weights[: x.shape[1]], atol=1e-8)
        np.testing.assert_allclose(fit.objective.Q.ravel(), weights[x.shape[1] :], atol=1e-8)


def test_rank_is_chosen_on_rows_left_out() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 6))
    truth = 1.0 + x @ rng.normal(size=6) + ((x @ rng.normal(size=(6, 6))) * x).sum(1)
    exact = fit_quadratic(x, truth)
    np.testing.assert_allclose(exact.predict(x), truth, atol=1e-8)
    assert exact.rank == 27
    noise = fit_quadratic(x[:60], rng.normal(size=60))
    assert noise.rank < 27
    assert noise.held_out_errors.argmin() == noise.rank
    assert len(noise.held_out_errors) == 28


def bilinear_features(x: np.ndarray, num_alpha: int) -> np.ndarray:
    alpha, beta = x[:, :num_alpha], x[:, num_alpha:]
    return np.concatenate([x, (alpha[:, :, None] * beta[:, None, :]).reshape(len(x), -1)], axis=1)


def test_full_bilinear_of_full_rank_is_least_squares_of_eq_6() -> None:
    rng = np.random.default_rng(0)
    x, new = rng.normal(size=(80, 5)), rng.normal(size=(20, 5))
    y = rng.normal(size=80)
    fit = fit_full_bilinear(x, y, num_alpha=3, rank=80)
    features = np.concatenate([np.ones((80, 1)), bilinear_features(x, 3)], axis=1)
    weights = np.linalg.lstsq(features, y, rcond=None)[0]
    assert fit.objective.r == pytest.approx(weights[0])
    np.testing.assert_allclose(fit.objective.q, weights[1:6], atol=1e-8)
    np.testing.assert_allclose(fit.objective.Q[:3, 3:], weights[6:].reshape(3, 2), atol=1e-8)
    expected = np.concatenate([np.ones((20, 1)), bilinear_features(new, 3)], axis=1) @ weights
    np.testing.assert_allclose(fit.predict(new), expected, atol=1e-8)
    assert fit.rank == 5 + 3 * 2


def test_full_bilinear_of_low_rank_is_the_truncated_svd() -> None:
    rng = np.random.default_rng(1)
    problem = small_problem(6, stages=2, blocks=2, configurations=3)
    x, y = problem.sample(60, rng).one_hot(3), rng.normal(size=60)
    features = bilinear_features(x, 12)
    u, s, vt = np.linalg.svd(features - features.mean(0), full_matrices=False)
    for rank in (1, 3, 5):
        weights = vt[:rank].T @ ((u[:, :rank].T @ (y - y.mean())) / s[:rank])
        fit = fit_full_bilinear(x, y, 12, rank=rank)
        np.testing.assert_allclose(fit.objective.q, weights[:16], atol=1e-8)
        np.testing.assert_allclose(fit.objective.Q[:12, 12:].ravel(), weights[16:], atol=1e-8)
        np.testing.assert_allclose(fit.predict(x), y.mean() + (features - features.mean(0)) @ weights, atol=1e-8)
        outside = fit.objective.Q.copy()
        outside[:12, 12:] = 0
        assert not outside.any()


def test_full_bilinear_holds_couplings_of_stages_that_the_structure_of_eq_3_cannot() -> None:
    problem = replace(small_problem(0, stages=2, blocks=2, configurations=2), depths=((1, 2), (1, 2)))
    choices = every_choice(problem)
    # The first block of the first stage is worth 5 more when the second stage is deep.
    coupled = 5.0 * (choices.configurations[:, 0, 0] == 1) * (choices.depths[:, 1] == 2)
    y, x = problem.evaluate(choices)[0] + coupled, choices.one_hot(2)
    np.testing.assert_allclose(fit_full_bilinear(x, y, 8, rank=len(x)).predict(x), y, atol=1e-8)
    assert np.abs(fit_bilinear(choices, y).predict(choices) - y).max() > 0.5


def test_rank_of_the_full_bilinear_fit_is_chosen_on_rows_left_out() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=(200, 6))
    truth = 1.0 + x @ rng.normal(size=6) + ((x[:, :4] @ rng.normal(size=(4, 2))) * x[:, 4:]).sum(1)
    exact = fit_full_bilinear(x, truth, 4)
    np.testing.assert_allclose(exact.predict(x), truth, atol=1e-8)
    assert exact.rank == 6 + 4 * 2
    noise = fit_full_bilinear(x[:40], rng.normal(size=40), 4)
    assert noise.held_out_errors.argmin() == noise.rank < 14


def test_full_bilinear_is_solved_as_by_brute_force() -> None:
    pytest.importorskip("pyscipopt", reason="needs the extra 'solver'")
    from archwright.solvers.quadratic import solve

    problem = replace(small_problem(3, stages=2, blocks=2, configurations=2), depths=((1, 2), (1, 2)))
    choices = every_choice(problem)
    x = choices.one_hot(2)
    fit = fit_full_bilinear(x, np.random.default_rng(0).normal(size=len(x)), 8, rank=len(x))
    costs = problem.evaluate(choices)[1]["latency_ms"]
    limit = float(np.median(costs))
    found = solve(problem, {"latency_ms": limit}, fit.objective)
    assert found.value == pytest.approx(fit.predict(x)[costs <= limit].max())


def test_rows_are_split_once_into_two_parts_that_are_never_empty() -> None:
    for count, share, expected in [(10, 0.2, 2), (4, 0.01, 1), (4, 0.99, 3)]:
        train, test = split_rows(count, share, seed=0)
        assert len(test) == expected
        assert sorted([*train, *test]) == list(range(count))
    for share in (0.0, 1.0, np.nan):
        with pytest.raises(InputError):
            split_rows(10, share, seed=0)


def test_transitivity_bound_known_value() -> None:
    assert transitivity_bound(0.97, 0.99) == pytest.approx(0.926, abs=5e-4)
    assert transitivity_bound(1.0, 0.5) == 0.5
    with pytest.raises(InputError):
        transitivity_bound(1.2, 0.5)


def test_bad_pools_are_refused() -> None:
    problem = synthetic_problem(0)
    choices = problem.sample(5, np.random.default_rng(0))
    for outcome in (np.ones(4), np.full(5, np.nan), np.ones((5, 1))):
        with pytest.raises(InputError):
            pool_estimates(choices, outcome)
        with pytest.raises(InputError):
            fit_bilinear(choices, outcome)
    with pytest.raises(InputError):
        fit_quadratic(np.zeros((5, 3)), np.zeros(4))
    with pytest.raises(InputError):
        fit_full_bilinear(np.zeros((5, 3)), np.zeros(4), 2)
    for num_alpha in (0, 3):
        with pytest.raises(InputError):
            fit_full_bilinear(np.zeros((5, 3)), np.zeros(5), num_alpha)


def test_shrinking_keeps_clear_terms_and_flattens_noise() -> None:
    blocks = np.array([[[3.0, 1.0, -1.0, -3.0], [0.1, -0.1, 0.1, -0.1]]])
    errors = np.full((1, 2, 4), 1.0)
    depths, depth_errors = np.array([[0.0, 2.0]]), np.array([[np.inf, 0.0]])
    found = shrunk(StagedEstimate(50.0, depths, blocks, 0.1, depth_errors, errors))
    # Mean square 5 and noise 1 leave 4/5; mean square .01 is less than the noise alone would give.
    assert found.block_values[0, 0] == pytest.approx(0.8 * blocks[0, 0])
    assert found.block_values[0, 1] == pytest.approx([0.0] * 4)
    assert found.depth_values == pytest.approx(depths)
    assert found.fixed == 50.0


def test_shrinking_brings_noisy_terms_nearer_to_the_truth() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(0.0, 1.0, (5, 4, 12))
    noisy = truth + rng.normal(0.0, 1.5, truth.shape)
    zeros = np.zeros((5, 4))
    found = shrunk(StagedEstimate(0.0, zeros, noisy, 0.0, zeros, np.full(truth.shape, 1.5)))
    assert ((found.block_values - truth) ** 2).mean() < 0.6 * ((noisy - truth) ** 2).mean()


def test_what_is_left_without_the_difficulty_of_images() -> None:
    # Image 7 is seen twice and image 2 once: deviations of 7 are doubled, and 2 says nothing but the mean.
    left = without_difficulty(np.array([1.0, 0.0, 1.0]), np.array([7, 7, 2]))
    assert left == pytest.approx(np.array([1.0, -1.0, 0.0]) + 2 / 3)


def test_terms_are_the_same_without_the_difficulty_of_images_and_much_surer() -> None:
    problem, rng = synthetic_problem(seed=0), np.random.default_rng(0)
    choices, image = problem.sample(40_000, rng), rng.integers(0, 400, 40_000)
    difficulty = rng.normal(0.0, 30.0, 400)
    outcome = problem.evaluate(choices)[0] + difficulty[image]
    exact = pool_estimates(choices, problem.evaluate(choices)[0])
    raw, better = (pool_estimates(choices, values) for values in (outcome, without_difficulty(outcome, image)))
    errors = [np.abs(found.block_values - exact.block_values).mean() for found in (raw, better)]
    assert errors[1] < 0.1 * errors[0]
    assert better.block_errors.mean() < 0.1 * raw.block_errors.mean()
