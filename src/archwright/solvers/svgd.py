"""Stein variational gradient descent with regularised diversity (SVGD-RD, thesis algorithm 5.3), without torch.

n particles x_i follow

    x_i += eps/n * sum_j [ k(x_j, x_i) grad log p(x_j) + grad_{x_j} k(x_j, x_i) - delta * grad_{x_i} k(x_j, x_i) ]

(eq. B.10; proposition 5.1 in the body has the gradient of the second term by x_i, a misprint). delta = 0 is SVGD. With
the radial basis function kernel grad_{x_j} k = -grad_{x_i} k, so that particles repel each other with 1 + delta times
SVGD's force: not at all at -1, and below it they attract. One particle climbs log p whatever delta (proposition 5.2).

The target may be any density whose logarithm has a gradient; :class:`ArchitectureDensity` is the relaxed posterior over
architectures (eq. 5.8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Gradient = Callable[[Floats], Floats]
"""Gradients (n, d) of log p at particles (n, d)."""


def median_bandwidth(x: Floats) -> float:
    """H of k(x, y) = exp(-|x - y|^2 / h): the median squared distance over log(n + 1) (Liu and Wang, 2016).

    The thesis gives no bandwidth; a fixed one of 1 underflows in 196 dimensions. 1 where all particles coincide or
    there is one only, when it plays no part.
    """
    if len(x) < 2:
        return 1.0
    squared = _squared_distances(x)[np.triu_indices(len(x), 1)]
    median = float(np.median(squared))
    return median / float(np.log(len(x) + 1)) if median > 0 else 1.0


def svgd_direction(x: Floats, gradients: Floats, delta: float, bandwidth: float | None = None) -> Floats:
    """The direction of every particle, (n, d).

    Args:
        x: particles (n, d).
        gradients: of log p at them, (n, d).
        delta: of the diversity.
        bandwidth: h of the kernel; None takes the median heuristic.
    """
    h = median_bandwidth(x) if bandwidth is None else bandwidth
    k = np.exp(-_squared_distances(x) / h)
    # grad_{x_j} k(x_j, x_i) = 2/h (x_i - x_j) k_ji, summed over j
    repulsion = 2 / h * (k.sum(axis=0)[:, None] * x - k.T @ x)
    direction: Floats = (k.T @ gradients + (1 + delta) * repulsion) / len(x)
    return direction


def _squared_distances(x: Floats) -> Floats:
    squares = (x * x).sum(axis=1)
    found: Floats = np.maximum(squares[:, None] + squares[None, :] - 2 * x @ x.T, 0.0)
    np.fill_diagonal(found, 0.0)
    return found


def sample(
    gradient: Gradient,
    start: Floats,
    *,
    delta: float = 0.0,
    steps: int = 1000,
    rate: float = 0.1,
    momentum: float = 0.9,
    bandwidth: float | None = None,
) -> Floats:
    """Particles (n, d) after ``steps`` of SVGD-RD from ``start``, by gradient ascent with momentum.

    The defaults are the thesis' (section 5.3.4).

    Args:
        gradient: of the log-density at particles (n, d), (n, d).
        start: (n, d).
        delta: weight of the diversity; 0 is plain SVGD.
        steps: number of updates.
        rate: of the ascent.
        momentum: in [0, 1).
        bandwidth: of the kernel; None takes the median's each step.

    Example:
        >>> centre = np.array([1.0, 2.0])
        >>> sample(lambda x: centre - x, np.zeros((1, 2))).round(3)
        array([[1., 2.]])
    """
    x = np.array(start, dtype=np.float64)
    if x.ndim != 2 or not x.size or not np.isfinite(x).all():
        raise InputError("finite particles of shape (n, d)", f"shape {x.shape}")
    if not np.isfinite(delta) or steps < 1 or not rate > 0 or not 0 <= momentum < 1:
        raise InputError(
            "a finite delta, at least one step, a positive rate and a momentum in [0, 1)",
            f"delta {delta}, steps {steps}, rate {rate}, momentum {momentum}",
        )
    if bandwidth is not None and not bandwidth > 0:
        raise InputError("a positive bandwidth", str(bandwidth))
    velocity = np.zeros_like(x)
    for _ in range(steps):
        velocity = momentum * velocity + svgd_direction(x, gradient(x), delta, bandwidth)
        x = x + rate * velocity
    return x


def mean_pairwise_distance(x: Floats) -> float:
    """Mean Euclidean distance of two different particles; 0 for one."""
    if len(x) < 2:
        return 0.0
    return float(np.sqrt(_squared_distances(x)[np.triu_indices(len(x), 1)]).mean())


# --- densities -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """sum_c weights_c N(x | means_c, diag(variances_c)): means and variances (C, d), weights (C,), not normalised."""

    means: Floats
    variances: Floats
    weights: Floats

    def log_terms(self, x: Floats) -> Floats:
        """Logarithm of every component's part at x (n, d): (n, C)."""
        apart = x[:, None, :] - self.means[None]
        exponents = -0.5 * (apart**2 / self.variances).sum(axis=2)
        scale = np.log(self.weights) - 0.5 * np.log(2 * np.pi * self.variances).sum(axis=1)
        terms: Floats = exponents + scale
        return terms

    def gradient(self, x: Floats) -> Floats:
        """Of log p at x (n, d)."""
        shares = _softmax(self.log_terms(x))
        pull = -(x[:, None, :] - self.means[None]) / self.variances
        found: Floats = np.einsum("nc,ncd->nd", shares, pull)
        return found


def figure_5_2_target() -> GaussianMixture:
    """The mixture of figure 5.2: means (-1, 0) and (0, 1), covariances diag(.25, .5), equal weights."""
    return GaussianMixture(np.array([[-1.0, 0.0], [0.0, 1.0]]), np.full((2, 2), (0.25, 0.5)), np.ones(2))


def tempered(logits: Floats, temperature: float) -> Floats:
    """p_i(o), the softmax of alpha_i / tau row by row (eq. 5.6), (slots, operations).

    Args:
        logits: alpha, (slots, operations).
        temperature: tau, above 0.
    """
    if not temperature > 0:
        raise InputError("a temperature above 0", str(temperature))
    return _softmax(np.asarray(logits, dtype=np.float64) / temperature)


def _softmax(rows: Floats) -> Floats:
    shifted = np.exp(rows - rows.max(axis=-1, keepdims=True))
    found: Floats = shifted / shifted.sum(axis=-1, keepdims=True)
    return found


@dataclass(frozen=True, eq=False)
class ArchitectureDensity:
    """The relaxed posterior prod_i sum_o p_i(o) N(x_i | onehot_o, |O| I) over architectures (eq. 5.8).

    Attributes:
        probabilities: p_i(o), (slots, operations), rows that sum to 1.
    """

    probabilities: Floats

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.ndim != 2 or not np.isfinite(p).all() or (p < 0).any() or not np.allclose(p.sum(axis=1), 1):
            raise InputError("rows of probabilities that sum to 1, (slots, operations)", f"shape {p.shape}")

    @property
    def size(self) -> int:
        """Numbers of a particle: slots times operations."""
        return int(self.probabilities.size)

    def gradient(self, x: Floats) -> Floats:
        """Of log p at particles (n, slots * operations), in closed form.

        |x_i - onehot_o|^2 differs between operations by -2 x_io only, so that the responsibilities are a softmax of
        log p_i(o) + x_io / |O|, and the gradient is (responsibilities - x_i) / |O|.
        """
        slots, operations = self.probabilities.shape
        points = x.reshape(len(x), slots, operations)
        with np.errstate(divide="ignore"):
            logits = np.log(self.probabilities)[None] + points / operations
        found: Floats = ((_softmax(logits) - points) / operations).reshape(len(x), -1)
        return found


# --- ensembles from predictions --------------------------------------------------------------------------------------


def ensemble_error(probabilities: Sequence[Floats], labels: Ints) -> float:
    """Error in percent of the members' averaged ``probabilities``, each (images, classes), on ``labels`` (images,)."""
    mean = np.mean(np.stack(probabilities), axis=0)
    return 100 * float((mean.argmax(axis=1) != labels).mean())


def average_test_error(probabilities: Sequence[Floats], labels: Ints) -> float:
    """ATE: the members' mean error in percent (table 5.5).

    Args:
        probabilities: of each member, (images, classes).
        labels: (images,).
    """
    return float(np.mean([ensemble_error([one], labels) for one in probabilities]))


def pairwise_disagreement(probabilities: Sequence[Floats]) -> float:
    """PPD: the share in percent of images on which two members predict different classes, over all pairs."""
    classes = [one.argmax(axis=1) for one in probabilities]
    pairs = [(a, b) for i, a in enumerate(classes) for b in classes[i + 1 :]]
    return 100 * float(np.mean([(a != b).mean() for a, b in pairs])) if pairs else 0.0


def calibration_error(probabilities: Floats, labels: Ints, bins: int = 15) -> float:
    """ECE in percent: the mean gap of confidence and accuracy over equal bins of confidence, by their images.

    Args:
        probabilities: (images, classes).
        labels: (images,).
        bins: number of them between 0 and 1.
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [
        abs(confidence[place == b].mean() - right[place == b].mean()) * (place == b).mean()
        for b in range(bins)
        if (place == b).any()
    ]
    return 100 * float(sum(gaps))
