"""The small Gaussian process against scikit-learn's, and what it promises against sampling."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from archwright.predictors.gaussian_process import GaussianProcess, expected_improvement, fit


def observations() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(9, 2))
    return x, np.sin(5 * x[:, 0]) + 0.1 * rng.standard_normal(9)


def test_predictions_and_likelihood_are_those_of_scikit_learn() -> None:
    x, y = observations()
    at = np.random.default_rng(1).uniform(size=(20, 2))
    ours = GaussianProcess(x, y, np.array([0.3, 1.2]), 0.05)
    kernel = Matern(length_scale=[0.3, 1.2], nu=2.5)
    theirs = GaussianProcessRegressor(kernel, alpha=0.05 + 1e-8, optimizer=None).fit(x, y)
    mean, deviation = theirs.predict(at, return_std=True)
    found = ours.predict(at)
    assert found[0] == pytest.approx(mean)
    assert found[1] == pytest.approx(deviation)
    constant = -len(y) / 2 * np.log(2 * np.pi)
    assert ours.log_likelihood() + constant == pytest.approx(theirs.log_marginal_likelihood_value_)


def test_expected_improvement_is_the_mean_of_what_samples_gain() -> None:
    x, y = observations()
    process, at = fit(x, y), np.array([[0.2, 0.5], [0.9, 0.1]])
    mean, deviation = process.predict(at)
    samples = mean + deviation * np.random.default_rng(2).standard_normal((200_000, 2))
    gain = np.maximum(samples - process.y.max(), 0).mean(0)
    assert expected_improvement(process, at) == pytest.approx(gain, rel=0.05, abs=1e-3)


def test_the_axis_that_matters_gets_the_shorter_length() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(30, 2))
    found = fit(x, np.sin(9 * x[:, 0]))
    assert found.lengths[0] < found.lengths[1]


def test_equal_observations_are_no_error() -> None:
    x, _ = observations()
    assert np.isfinite(expected_improvement(fit(x, np.full(9, 80.0)), x)).all()
