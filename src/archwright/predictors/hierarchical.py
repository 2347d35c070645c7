"""The default predictor: few terms where measurements are few, a term a block where they are many.

Real tables of mobile networks say that with a hundred measured networks effects of a *stage* (of its expansion, kernel,
depth, ...) rank best, and with a thousand a term for each block; and that fitting -log(error) ranks better than fitting
the accuracy. So all terms are there at once, under one ridge: of the attributes of a block over the whole network, over
its stage, and the deviation of each single block, which is shrunk by a factor of its own. Ridge and factor are those of
least leave-one-out error. In the end it is a staged estimate like the others, so the exact solver applies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from archwright.errors import InputError
from archwright.predictors.ridge import RIDGES, leave_one_out_errors, ridge_weights
from archwright.predictors.staged import StagedEstimate, checked_outcomes, estimate_of_weights
from archwright.solvers.problem import Floats, StagedChoice

DEVIATIONS = (0.0, 0.1, 0.2, 0.5, 1.0)
"""Factors of the single blocks' features: 0 leaves only stages, 1 shrinks blocks no more than stages."""
FLOOR = 0.1
"""Percentage points added to an error before its logarithm, so that no error at all is a number too."""


def attributes_of(configurations: Sequence[Sequence[Any]]) -> Floats:
    """One-hot attributes (C, A) of configurations given as rows of values, such as (expansion, kernel, squeeze-excite).

    A column that is the same for all says nothing and is left out.
    """
    columns = [
        [float(row[position] == value) for row in configurations]
        for position in range(len(configurations[0]))
        if len(values := sorted({row[position] for row in configurations})) > 1
        for value in values
    ]
    return np.array(columns).T.reshape(len(configurations), -1)


@dataclass(frozen=True, eq=False)
class HierarchicalFit:
    """The fitted predictor.

    Attributes:
        estimate: its terms, in the units of the target: for the solvers.
        log_error: whether the target is -log(error).
        ridge: chosen penalty.
        deviation: chosen factor of the single blocks' terms.
        error: root of the mean squared leave-one-out error, in the units of the target.
    """

    estimate: StagedEstimate
    log_error: bool
    ridge: float
    deviation: float
    error: float

    def accuracy(self, values: ArrayLike) -> Floats:
        """Percent, of values of the estimate such as a solver's objective."""
        values = np.asarray(values, float)
        return 100.0 + FLOOR - np.exp(-values) if self.log_error else values

    def target(self, accuracy: ArrayLike) -> Floats:
        """What is fitted of accuracies in percent: the inverse of :meth:`accuracy`."""
        accuracy = np.asarray(accuracy, float)
        return -np.log(100.0 + FLOOR - accuracy) if self.log_error else accuracy

    def predict(self, choices: StagedChoice) -> Floats:
        """Percent, (...), of choices (...)."""
        return self.accuracy(self.estimate.predict(choices))


def fit_hierarchical(
    choices: StagedChoice,
    accuracy: ArrayLike,
    attributes: Floats,
    num_widths: int = 1,
    log_error: bool = True,
    deviations: Sequence[float] = DEVIATIONS,
) -> HierarchicalFit:
    """Fit to n measured networks.

    Args:
        choices: depths (n, S), configurations (n, S, D) and widths (n, S).
        accuracy: (n,), in percent where ``log_error``.
        attributes: (C, A), what the configurations have in common (:func:`attributes_of`).
        num_widths: W.
        log_error: fit -log(100 - accuracy) instead of the accuracy.
        deviations: factors to choose from.
    """
    outcome = checked_outcomes(choices, accuracy)
    if len(outcome) < 4:
        raise InputError("at least 4 measured networks", str(len(outcome)))
    if log_error:
        if outcome.min() < 0 or outcome.max() > 100:
            raise InputError("accuracies in percent", f"{outcome.min():.6g} to {outcome.max():.6g}")
        outcome = -np.log(100.0 + FLOOR - outcome)
    _, stages, blocks = choices.configurations.shape
    x = choices.one_hot(len(attributes), num_widths)
    best = (np.inf, 0.0, 0.0, np.empty((0, 0)))
    for deviation in deviations:
        basis = _basis(stages, blocks, attributes, num_widths, deviation)
        errors = leave_one_out_errors(x @ basis, outcome, RIDGES)
        if errors.min() < best[0]:
            best = float(errors.min()), float(RIDGES[errors.argmin()]), deviation, basis
    error, ridge, deviation, basis = best
    weights = basis @ ridge_weights(x @ basis, outcome, ridge)
    estimate = estimate_of_weights(x, outcome, weights, (stages, blocks, len(attributes)), num_widths)
    return HierarchicalFit(estimate, log_error, ridge, deviation, float(np.sqrt(error)))


@dataclass(frozen=True, eq=False)
class TermPosterior:
    """What the fitted terms might be instead, for measurements with this noise: a normal distribution.

    With noise of variance s^2 and the ridge r the terms v of the features z have mean v^ and covariance
    s^2 (Z^T Z + r I)^-1, Z the centred features. s is the root of the mean squared leave-one-out error.

    Attributes:
        fit: the predictor.
        rows: one-hot rows (n, N) of what was measured.
        target: (n,), what was fitted.
        basis: (N, P) from terms to weights of the rows.
        mean: v^, (P,).
        root: (P, P) upper factor R of (Z^T Z + r I) / s^2 = R^T R.
    """

    fit: HierarchicalFit
    rows: Floats
    target: Floats
    basis: Floats
    mean: Floats
    root: Floats

    @classmethod
    def of(
        cls, fit: HierarchicalFit, choices: StagedChoice, accuracy: ArrayLike, attributes: Floats, num_widths: int = 1
    ) -> TermPosterior:
        """The posterior of a fit.

        Args:
            fit: of the following.
            choices: n networks.
            accuracy: (n,), in percent.
            attributes: (C, A).
            num_widths: W.
        """
        _, stages, blocks = choices.configurations.shape
        rows, target = choices.one_hot(len(attributes), num_widths), fit.target(accuracy)
        basis = _basis(stages, blocks, attributes, num_widths, fit.deviation)
        features = (rows - rows.mean(0)) @ basis
        precision = features.T @ features + fit.ridge * np.eye(basis.shape[1])
        mean = ridge_weights(rows @ basis, target, fit.ridge)
        root: Floats = np.linalg.cholesky(precision / max(fit.error, 1e-12) ** 2).T
        return cls(fit, rows, target, basis, mean, root)

    def draw(self, rng: np.random.Generator) -> StagedEstimate:
        """Terms drawn from it, as an estimate like the fit's own."""
        drawn = self.mean + np.linalg.solve(self.root, rng.standard_normal(len(self.mean)))
        shape, own = self.fit.estimate.block_values.shape, self.fit.estimate.width_values
        widths = own.shape[1] if own.size else 1
        return estimate_of_weights(self.rows, self.target, self.basis @ drawn, shape, widths)


def _basis(stages: int, blocks: int, attributes: Floats, num_widths: int, deviation: float) -> Floats:
    """(N, P): the features as combinations of the entries of x = (alpha, beta[, gamma]) of ``StagedChoice.one_hot``."""
    count = attributes.shape[0]
    alpha = stages * blocks * count
    of_stage = np.kron(np.eye(stages), np.tile(attributes, (blocks, 1)))  # (S D C, S A)
    of_network = np.tile(attributes, (stages * blocks, 1))  # (S D C, A)
    of_blocks = [of_network, of_stage] + ([deviation * np.eye(alpha)] if deviation else [])
    others = stages * blocks + (stages * num_widths if num_widths > 1 else 0)
    left = np.concatenate(of_blocks, axis=1)
    basis = np.zeros((alpha + others, left.shape[1] + others))
    basis[:alpha, : left.shape[1]] = left
    basis[alpha:, left.shape[1] :] = np.eye(others)
    return basis
