"""Accuracy predictors in closed form: estimates from one pool of measurements, and least squares.

``pool_estimates`` and ``fit_bilinear`` give the tables of a staged problem, so that the exact solver applies;
``fit_full_bilinear`` and ``fit_quadratic`` give objectives that couple stages. Accuracies may be 0/1 outcomes of single
images or averages, in any unit; the predictions have the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archwright.errors import InputError
from archwright.predictors.ridge import leave_one_out_ridge, ridge_weights
from archwright.solvers.problem import Floats, Ints, StagedChoice
from archwright.solvers.quadratic import QuadraticObjective


@dataclass(frozen=True, eq=False)
class StagedEstimate:
    """A predictor of the staged form: the values of a ``StagedProblem`` and their standard errors.

    Args:
        fixed: r = E[Acc].
        depth_values: (S, D).
        block_values: (S, D, C).
        fixed_error, depth_errors, block_errors: standard errors of the same shapes; infinite for a term without
            samples (whose value is 0), NaN where the fit gives none.
        width_values, width_errors: (S, W); (S, 0) where there is no choice of widths.
    """

    fixed: float
    depth_values: Floats
    block_values: Floats
    fixed_error: float
    depth_errors: Floats
    block_errors: Floats
    width_values: Floats = field(default_factory=lambda: np.empty((0, 0)))
    width_errors: Floats = field(default_factory=lambda: np.empty((0, 0)))

    def predict(self, choices: StagedChoice) -> Floats:
        """Predictions, fixed + sum beta * depth_values + sum alpha beta * block_values, (...), of choices (...).

        Where widths are chosen, their values are added.
        """
        x = choices.one_hot(self.block_values.shape[-1], max(1, self.width_values.shape[1]))
        terms = (self.block_values, self.depth_values, self.width_values)
        values: Floats = self.fixed + x @ np.concatenate([term.ravel() for term in terms])
        return values


def pool_estimates(
    choices: StagedChoice,
    correct: ArrayLike,
    centred: bool = True,
    num_configurations: int | None = None,
    num_widths: int = 1,
) -> StagedEstimate:
    """All conditional expectations at once from n uniformly sampled (sub-network, outcome) rows.

    Delta^s_d = E[Acc | d_s = d] - r, and so for the widths. For the blocks:

    - centred: Delta^s_{b,c} = E[Acc | O^s_b = c, d_s >= b] - E[Acc | d_s >= b].
      It reproduces an additive accuracy exactly.
    - as published (eq. 3): E[Acc | O^s_b = c, d_s = b] - r, where a block below the least depth leaves the depth
      uniform. It counts depth more than once, hence ranks but does not reproduce.

    Standard errors take rows as independent.

    Args:
        choices: depths (n, S) and configurations (n, S, D).
        correct: (n,), 0/1 or real outcomes.
        centred: which of the two forms.
        num_configurations: C; by default the greatest configuration seen plus one.
        num_widths: W.
    """
    outcome = checked_outcomes(choices, correct)
    _, stages, blocks = choices.configurations.shape
    configurations = num_configurations or int(choices.configurations.max()) + 1
    mean = float(outcome.mean())
    outcome = outcome - mean  # differences are the same, and their squares lose no digits
    everyone = np.ones(len(outcome), bool)
    depth_values, depth_errors = np.zeros((2, stages, blocks))
    block_values, block_errors = np.zeros((2, stages, blocks, configurations))
    width_values, width_errors = np.zeros((2, stages, num_widths if num_widths > 1 else 0))
    for stage in range(stages):
        depths = choices.depths[:, stage]
        if num_widths > 1:
            widths = choices.widths[:, stage]
            width_values[stage], width_errors[stage] = _contrasts(outcome, widths, everyone, everyone, num_widths)
        depth_values[stage], depth_errors[stage] = _contrasts(outcome, depths - 1, everyone, everyone, blocks)
        for block in range(blocks):
            chosen = choices.configurations[:, stage, block]
            present = depths > block
            exactly = depths == block + 1
            among = present if centred or not exactly.any() else exactly
            reference = present if centred else everyone
            block_values[stage, block], block_errors[stage, block] = _contrasts(
                outcome, chosen, among, reference, configurations
            )
    error = float(outcome.std(ddof=1) / np.sqrt(len(outcome))) if len(outcome) > 1 else np.inf
    return StagedEstimate(
        mean, depth_values, block_values, error, depth_errors, block_errors, width_values, width_errors
    )


def without_difficulty(outcome: ArrayLike, image: Ints) -> Floats:
    """Outcomes less their image's mean, plus the mean of all, (n,): what is left varies with the sub-network.

    Which images a term's rows have is chance, and easy and hard images differ more than sub-networks do. An image seen
    k times keeps k - 1 degrees of freedom, hence the factor k / (k - 1); one seen once tells nothing.

    Args:
        outcome: of a sub-network on an image, (n,).
        image: its number, (n,).
    """
    values = np.asarray(outcome, float)
    number = np.unique(image, return_inverse=True)[1]
    count = np.bincount(number)
    means = np.bincount(number, values) / count
    left: Floats = values.mean() + (values - means[number]) * (count / np.maximum(count - 1, 1))[number]
    return left


def by_known_difficulty(outcome: ArrayLike, image: Ints, known: ArrayLike, known_image: Ints) -> Floats:
    """Outcomes (n,) less their image's mean in *other* outcomes, plus the mean of those: comparable with them.

    Args:
        outcome: of networks that were chosen for being good, (n,).
        image: number of the image of each, (n,).
        known: outcomes of random networks, (m,).
        known_image: numbers of their images, (m,); an image that is not among them counts as an average one.
    """
    values, others = np.asarray(outcome, float), np.asarray(known, float)
    size = int(max(image.max(), known_image.max())) + 1
    count, total = np.bincount(known_image, minlength=size), np.bincount(known_image, others, size)
    means = np.where(count > 0, total / np.maximum(count, 1), others.mean())
    left: Floats = others.mean() + values - means[image]
    return left


def shrunk(estimate: StagedEstimate) -> StagedEstimate:
    """The estimate with each simplex' terms pulled towards their mean by the share of noise in their spread.

    Maximising noisy terms picks the luckiest ones, and the sum over many blocks promises far too much. The factor is
    max(0, 1 - mean error^2 / mean squared deviation): 1 without noise, 0 where the spread is no larger than the noise
    alone would make it, which leaves the choice to the costs. Terms of a regression have no errors here, and are shrunk
    by its ridge already.
    """
    if np.isnan(estimate.block_errors).all():
        raise InputError(
            "an estimate with standard errors to shrink by", "a regression's", "Its ridge has shrunk it already."
        )
    width_values = _shrunk_rows(estimate.width_values, estimate.width_errors)
    depth_values = _shrunk_rows(estimate.depth_values, estimate.depth_errors)
    block_values = _shrunk_rows(estimate.block_values, estimate.block_errors)
    return replace(estimate, depth_values=depth_values, block_values=block_values, width_values=width_values)


def _shrunk_rows(values: Floats, errors: Floats) -> Floats:
    """Rows (..., n); terms without samples (infinite error) stay as they are and do not count."""
    seen = np.isfinite(errors)
    count = np.maximum(seen.sum(-1, keepdims=True), 1)
    centre = np.where(seen, values, 0.0).sum(-1, keepdims=True) / count
    spread = np.where(seen, (values - centre) ** 2, 0.0).sum(-1, keepdims=True) / count
    noise = np.where(seen, errors, 0.0) ** 2
    signal = np.maximum(0.0, spread - noise.sum(-1, keepdims=True) / count)
    return np.where(seen, centre + signal / np.maximum(spread, np.finfo(float).tiny) * (values - centre), values)


def _contrasts(
    outcome: Floats, group: Ints, among: NDArray[np.bool_], reference: NDArray[np.bool_], groups: int
) -> tuple[Floats, Floats]:
    """E[outcome | group = g, among] - E[outcome | reference] for each g, (groups,), and standard errors.

    A group is part of its reference, a share f of it, so the difference is (1 - f) times that of group and remainder,
    which are independent.
    """
    count, total, squares = _moments(outcome[among], group[among], groups)
    whole = np.array([np.count_nonzero(reference), outcome[reference].sum(), (outcome[reference] ** 2).sum()])
    rest_variance, rest_count = _variance(*(whole[:, None] - np.stack([count, total, squares])))
    variance, _ = _variance(count, total, squares)
    seen = count > 0
    number = np.maximum(count, 1)
    share = count / max(whole[0], 1)
    value = np.where(seen, total / number - whole[1] / max(whole[0], 1), 0.0)
    error = (1 - share) * np.sqrt(variance / number + rest_variance / np.maximum(rest_count, 1))
    return value, np.where(seen, error, np.inf)


def _moments(outcome: Floats, group: Ints, groups: int) -> tuple[Floats, Floats, Floats]:
    """Count, sum and sum of squares by group, each (groups,)."""
    count = np.bincount(group, minlength=groups).astype(float)
    total, squares = (np.bincount(group, weights, groups).astype(float) for weights in (outcome, outcome**2))
    return count, total, squares


def _variance(count: Floats, total: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Unbiased variance from moments, and the count."""
    number = np.maximum(count, 1)
    return np.maximum(squares - total**2 / number, 0.0) / np.maximum(count - 1, 1), count


def fit_bilinear(
    choices: StagedChoice,
    accuracy: ArrayLike,
    ridge: float | None = None,
    num_configurations: int | None = None,
    num_widths: int = 1,
) -> StagedEstimate:
    """Least squares on the features of eq. 3, beta and alpha * sum_{d >= b} beta (eq. 6 restricted to that structure).

    ``ridge`` * |coefficients|^2 is added to the sum of squares; the constant is never penalised. By default it is the
    ridge of least leave-one-out error, without which the fit collapses where rows are about as many as terms. One-hot
    features are redundant; with ridge 0 the minimiser of least norm is taken.

    Args:
        choices: n of them.
        accuracy: of each, (n,).
        ridge: penalty; None chooses it.
        num_configurations: of a block; None is the largest one seen.
        num_widths: of a stage; 1 where widths do not vary.
    """
    y = checked_outcomes(choices, accuracy)
    _, stages, blocks = choices.configurations.shape
    configurations = num_configurations or int(choices.configurations.max()) + 1
    x = choices.one_hot(configurations, num_widths)
    weights = ridge_weights(x, y, leave_one_out_ridge(x, y) if ridge is None else ridge)
    return estimate_of_weights(x, y, weights, (stages, blocks, configurations), num_widths)


def estimate_of_weights(
    x: Floats, y: Floats, weights: Floats, shape: tuple[int, int, int], num_widths: int
) -> StagedEstimate:
    """The estimate with given weights of one-hot rows, right on average over the rows; its errors are NaN.

    Args:
        x: rows (n, N), as of ``StagedChoice.one_hot``.
        y: targets (n,).
        weights: (N,).
        shape: stages, blocks a stage and configurations a block.
        num_widths: of a stage; 1 where widths do not vary.
    """
    stages, blocks, configurations = shape
    split = stages * blocks * configurations
    block_values, depth_values, width_values = np.split(weights, [split, split + stages * blocks])
    block_values, depth_values = block_values.reshape(shape), depth_values.reshape(stages, blocks)
    width_values = width_values.reshape(stages, num_widths if num_widths > 1 else 0)
    nan = np.full_like
    return StagedEstimate(
        float(y.mean() - x.mean(0) @ weights), depth_values, block_values,
        np.nan, nan(depth_values, np.nan), nan(block_values, np.nan), width_values, nan(width_values, np.nan),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class QuadraticFit:
    """A bilinear or quadratic predictor, the rank k it was fitted with, and the held-out error of every rank tried."""

    objective: QuadraticObjective
    rank: int
    held_out_errors: Floats

    def predict(self, x: Floats) -> Floats:
        """Predictions b + a.x + x^T Q x of rows x (..., N)."""
        return self.objective(x)


def fit_full_bilinear(
    x: Floats, y: Floats, num_alpha: int, rank: int | None = None, folds: int = 5, seed: int = 0
) -> QuadraticFit:
    """Rank-k least squares of eq. 6, r + alpha.q_alpha + beta.q_beta + alpha^T Q beta, on (x, alpha kron beta).

    Every configuration is paired with the depths of all stages, not only of its own as in ``fit_bilinear``; of the
    objective's Q only the rows of alpha and the columns of beta are not zero.

    Args:
        x: (n, N) one-hot vectors (alpha, beta) of ``StagedChoice.one_hot``.
        y: (n,) accuracies.
        num_alpha: how many of the N entries are alpha: S*D*C.
        rank: k; by default the one of least squared error when each of ``folds`` parts of the rows is left out in turn,
            then fitted to all rows.
        folds: how many.
        seed: of the parts.
    """
    x, y = checked_rows(x, y)
    if not 0 < num_alpha < x.shape[1]:
        raise InputError(f"num_alpha within 1..{x.shape[1] - 1}", str(num_alpha))
    return _fit_products(_Products(slice(None, num_alpha), slice(num_alpha, None)), x, y, rank, folds, seed)


def fit_quadratic(x: Floats, y: Floats, rank: int | None = None, folds: int = 5, seed: int = 0) -> QuadraticFit:
    """Rank-k least squares on the features (x, x kron x), Algorithm 2, without ever forming them.

    Args:
        x: (n, N) one-hot vectors (``StagedChoice.one_hot``) or any real ones.
        y: (n,) accuracies.
        rank: k; by default the one of least squared error when each of ``folds`` parts of the rows is left out in turn,
            then fitted to all rows.
        folds: how many.
        seed: of the parts.
    """
    return _fit_products(_Products(slice(None), slice(None)), *checked_rows(x, y), rank, folds, seed)


def checked_rows(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Vectors and targets of a regression as floats, refused where nothing can be fitted to them.

    Args:
        x: vectors (n, N).
        y: targets (n,).
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    if x.ndim != 2 or y.shape != (len(x),) or len(x) < 4 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InputError("finite x (n, N) and y (n,) of at least 4 rows", f"shapes {x.shape} and {y.shape}")
    return x, y


def split_rows(count: int, held_out: float, seed: int) -> tuple[Ints, Ints]:
    """Row numbers of a random training part and of a held-out part, at least one row each.

    Args:
        count: number of rows.
        held_out: share of the second part, between 0 and 1.
        seed: of the order.
    """
    if not 0 < held_out < 1:
        raise InputError("a held-out share between 0 and 1", str(held_out))
    order = np.random.default_rng(seed).permutation(count)
    test, train = np.split(order, [min(max(1, round(held_out * count)), count - 1)])
    return train, test


@dataclass(frozen=True)
class _Products:
    """The features (x, l kron r) of two parts l and r of x; their inner products are x.x' + (l.l')(r.r')."""

    left: slice
    right: slice

    def kernel(self, x: Floats, other: Floats) -> Floats:
        """Inner products of the features of rows (n, N) and (m, N), (n, m)."""
        products = (x[:, self.left] @ other[:, self.left].T) * (x[:, self.right] @ other[:, self.right].T)
        kernel: Floats = x @ other.T + products
        return kernel

    def combination(self, x: Floats, c: Floats) -> QuadraticObjective:
        """The predictor whose weights are the sum of the rows' features times c (n,)."""
        Q = np.zeros((x.shape[1],) * 2)
        Q[self.left, self.right] = (x[:, self.left] * c[:, None]).T @ x[:, self.right]
        return QuadraticObjective(0.0, x.T @ c, Q)


def _fit_products(features: _Products, x: Floats, y: Floats, rank: int | None, folds: int, seed: int) -> QuadraticFit:
    """Algorithm 2 in the n x n kernel, which holds all the SVD needs.

    With the centred kernel K = U s^2 U^T the weights are W = X^T c, c = U_k s_k^-2 U_k^T y.
    """
    errors = np.empty(0)
    if rank is not None and rank < 0:
        raise InputError("a rank of 0 or more", str(rank))
    if rank is None:
        errors = _errors_by_rank(features, x, y, folds, seed)
        rank = int(errors.argmin())
    kernel = features.kernel(x, x)
    vectors, squares = _components(kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean())
    vectors, squares = vectors[:, :rank], squares[:rank]
    uncentred = features.combination(x, vectors @ ((vectors.T @ (y - y.mean())) / squares))
    objective = replace(uncentred, r=float((y - uncentred(x)).mean()))
    return QuadraticFit(objective, len(squares), errors)


def _components(centred_kernel: Floats) -> tuple[Floats, Floats]:
    """U (n, r) and s^2 (r,), largest first, up to the numerical rank r."""
    squares, vectors = np.linalg.eigh(centred_kernel)
    squares, vectors = squares[::-1], vectors[:, ::-1]
    rank = int((squares > 1e-12 * len(squares) * squares[0]).sum()) if squares[0] > 0 else 0
    return vectors[:, :rank], squares[:rank]


def _errors_by_rank(features: _Products, x: Floats, y: Floats, folds: int, seed: int) -> Floats:
    """Mean squared error of the fits of rank 0, 1, 2, ... on rows left out: each once, in one of ``folds`` parts."""
    if folds < 2:
        raise InputError("at least 2 folds", str(folds))
    part = np.random.default_rng(seed).permutation(len(x)) % min(folds, len(x))
    squares = [_held_out_squares(features, x[part != p], y[part != p], x[part == p], y[part == p]) for p in set(part)]
    ranks = min(found.shape[1] for found in squares)
    errors: Floats = np.concatenate([found[:, :ranks] for found in squares]).mean(0)
    return errors


def _held_out_squares(features: _Products, x: Floats, y: Floats, x_test: Floats, y_test: Floats) -> Floats:
    """Squared errors (m, ranks) on the test rows of the fits of rank 0, 1, 2, ... to the training rows."""
    kernel, cross = features.kernel(x, x), features.kernel(x_test, x)
    vectors, squares = _components(kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean())
    centred = cross - kernel.mean(0) - cross.mean(1)[:, None] + kernel.mean()
    by_component = (centred @ vectors) * ((vectors.T @ (y - y.mean())) / squares)
    predictions = y.mean() + np.concatenate([np.zeros((len(x_test), 1)), by_component.cumsum(1)], axis=1)
    errors: Floats = (predictions - y_test[:, None]) ** 2
    return errors


def transitivity_bound(r_po: float, r_os: float) -> float:
    """The least Cor(P, S) that Cor(P, O) and Cor(O, S) leave possible.

    ``r_po r_os - sqrt((1 - r_po^2)(1 - r_os^2))`` with P predicted, O one-shot and S stand-alone accuracy: .97 and .99
    guarantee .926.
    """
    if not (abs(r_po) <= 1 and abs(r_os) <= 1):
        raise InputError("correlations within -1..1", f"{r_po}, {r_os}")
    return float(r_po * r_os - np.sqrt((1 - r_po**2) * (1 - r_os**2)))


def checked_outcomes(choices: StagedChoice, outcomes: ArrayLike) -> Floats:
    """``outcomes`` as floats, (n,); refused unless there is a finite one for each of ``choices``."""
    outcome = np.asarray(outcomes, float)
    if choices.depths.ndim != 2 or outcome.shape != (len(choices.depths),) or not len(outcome):
        raise InputError(
            "an array of choices and one outcome a choice", f"shapes {choices.depths.shape} and {outcome.shape}"
        )
    if not np.isfinite(outcome).all():
        raise InputError("finite outcomes", "NaN or infinity")
    return outcome
