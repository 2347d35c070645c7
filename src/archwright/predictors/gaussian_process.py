"""A Gaussian process for a handful of observations in a small box, and the expected improvement it promises.

Everything is exact and takes milliseconds: Matern-5/2 kernel, zero mean of standardised observations, and the length
scales and noise of a fixed grid that make the observations most likely. No random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.stats import norm

Array = NDArray[np.float64]

LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)
NOISES = (1e-4, 1e-2, 1e-1, 0.5)
"""Candidates of the length scale of each axis of the unit box, and of the noise's share of the variance."""


@dataclass(frozen=True)
class GaussianProcess:
    """Observations ``y`` (n,), standardised, at ``x`` (n, d) in the unit box; one length scale an axis."""

    x: Array
    y: Array
    lengths: Array
    noise: float

    def log_likelihood(self) -> float:
        """Logarithm of the density of the observations, without its constant."""
        lower = self._factor()
        fitted = cho_solve((lower, True), self.y)
        return float(-0.5 * self.y @ fitted - np.log(np.diag(lower)).sum())

    def predict(self, at: Array) -> tuple[Array, Array]:
        """Mean and standard deviation (k,) of the noise-free function at ``at`` (k, d)."""
        lower = self._factor()
        cross = matern(self.x, at, self.lengths)
        mean = cross.T @ cho_solve((lower, True), self.y)
        explained = (solve_triangular(lower, cross, lower=True) ** 2).sum(0)
        return mean, np.sqrt(np.maximum(1 - explained, 1e-12))

    def _factor(self) -> Array:
        covariance = matern(self.x, self.x, self.lengths) + (self.noise + 1e-8) * np.eye(len(self.x))
        factor: Array = cholesky(covariance, lower=True)
        return factor


def matern(first: Array, second: Array, lengths: Array) -> Array:
    """Matern-5/2 covariances (n, k), variance 1.

    Args:
        first: points (n, d).
        second: points (k, d).
        lengths: length scale of each coordinate, (d,).
    """
    distance = np.sqrt((((first[:, None] - second[None]) / lengths) ** 2).sum(-1))
    scaled = np.sqrt(5) * distance
    covariance: Array = (1 + scaled + scaled**2 / 3) * np.exp(-scaled)
    return covariance


def fit(x: Array, y: Array) -> GaussianProcess:
    """The process of standardised observations with the most likely length scales and noise of the grid.

    Args:
        x: where they were made, (n, d).
        y: the observations, (n,).
    """
    spread = y.std()
    standard = (y - y.mean()) / (spread if spread > 0 else 1.0)
    grid = product(product(LENGTHS, repeat=x.shape[1]), NOISES)
    candidates = [GaussianProcess(x, standard, np.array(lengths), noise) for lengths, noise in grid]
    return max(candidates, key=GaussianProcess.log_likelihood)


def expected_improvement(process: GaussianProcess, at: Array) -> Array:
    """How much a look at a point is expected to raise the best observation, (k,), in deviations of y.

    Args:
        process: fitted to the observations.
        at: points (k, d).
    """
    mean, deviation = process.predict(at)
    ahead = mean - process.y.max()
    gain: Array = ahead * norm.cdf(ahead / deviation) + deviation * norm.pdf(ahead / deviation)
    return gain
