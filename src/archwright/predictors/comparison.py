"""How well accuracy predictors of the staged space rank networks they have not seen (BINAS, Fig. 3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import kendalltau, spearmanr

from archwright.errors import InputError
from archwright.predictors.hierarchical import fit_hierarchical
from archwright.predictors.staged import checked_rows, fit_bilinear, fit_full_bilinear, fit_quadratic
from archwright.solvers.problem import StagedChoice

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HeldOut = Callable[[Ints, Ints], Floats]
"""From the numbers of the rows to fit to and of those to predict, the predictions of the latter."""

HELD_OUT = 0.2
"""The share of a fit's own rows that chooses its epochs."""


def compare_predictors(
    choices: StagedChoice,
    accuracy: ArrayLike,
    num_configurations: int,
    folds: int = 5,
    seed: int = 0,
    attributes: Floats | None = None,
    most: int | None = None,
) -> dict[str, dict[str, float]]:
    """Rank correlations of the measured accuracy with cross-validated predictions, by predictor.

    Every network is predicted by a fit that has not seen it, and the correlations are over all n at once. Predictors:

    - ``additive``: ``fit_bilinear``, the structure of eq. 3, its ridge chosen by leaving one out;
    - ``hierarchical``: ``fit_hierarchical`` on -log(error) where accuracies are in percent;
    - ``full bilinear`` (eq. 6) and ``full quadratic`` (Algorithm 2), their ranks chosen by folds;
    - ``mlp``: ``MlpPredictor``.

    Args:
        choices: depths (n, S) and configurations (n, S, D) of measured networks.
        accuracy: (n,).
        num_configurations: C.
        folds: how many parts of the networks are left out in turn.
        seed: of the folds and of the fits.
        attributes: (C, A), what the configurations have in common (``attributes_of``); by default nothing.
        most: networks that a fit sees, drawn from those of the other folds; None for all of them.

    Returns:
        ``kendall`` and ``spearman`` of each predictor; 0 for predictions that are all the same.
    """
    x, y = checked_rows(choices.one_hot(num_configurations), accuracy)
    if not 2 <= folds <= len(y) // 4:
        raise InputError(f"2..{len(y) // 4} folds of at least 4 of the {len(y)} networks", str(folds))
    if choices.configurations.max() >= num_configurations:
        raise InputError(f"configurations below {num_configurations}", str(choices.configurations.max()))
    if not np.ptp(y):
        raise InputError("accuracies that differ", f"{len(y)} times {y[0]:.6g}")
    attributes = np.eye(num_configurations) if attributes is None else attributes
    log_error = bool(y.min() >= 0 and y.max() <= 100)
    num_alpha = choices.configurations[0].size * num_configurations

    def additive(train: Ints, test: Ints) -> Floats:
        return fit_bilinear(choices[train], y[train], None, num_configurations).predict(choices[test])

    def hierarchical(train: Ints, test: Ints) -> Floats:
        return fit_hierarchical(choices[train], y[train], attributes, log_error=log_error).predict(choices[test])

    from archwright.predictors.mlp import MlpPredictor  # brings torch

    predictors: dict[str, HeldOut] = {
        "additive": additive,
        "hierarchical": hierarchical,
        "full bilinear": lambda train, test: fit_full_bilinear(
            x[train], y[train], num_alpha, seed=seed
        ).predict(x[test]),
        "full quadratic": lambda train, test: fit_quadratic(
            x[train], y[train], seed=seed
        ).predict(x[test]),
        "mlp": lambda train, test: MlpPredictor.fit(
            x[train], y[train], seed=seed, held_out=HELD_OUT
        ).predict(x[test]),
    }  # fmt: skip
    fold = _balanced_folds(y, folds, seed)
    return {
        name: _rank_correlations(_cross_validated(predict, fold, most, seed), y) for name, predict in predictors.items()
    }


def _balanced_folds(y: Floats, folds: int, seed: int) -> Ints:
    """The fold of each row, (n,): each ``folds`` neighbours in the order of accuracy go to different ones at random.

    Where a fit finds nothing it predicts the mean of its rows, and that is high exactly where the left-out rows are
    low. Folds of equal accuracy keep this from showing as a negative correlation.
    """
    groups = -(-len(y) // folds)
    dealt = np.random.default_rng(seed).permuted(np.tile(np.arange(folds), (groups, 1)), axis=1)
    fold = np.empty(len(y), np.int64)
    fold[y.argsort(kind="stable")] = dealt.ravel()[: len(y)]
    return fold


def _cross_validated(predict: HeldOut, fold: Ints, most: int | None = None, seed: int = 0) -> Floats:
    """Predictions (n,), each fold's by a fit to the others, or to ``most`` of them drawn at random."""
    predictions = np.empty(len(fold))
    for part in range(int(fold.max()) + 1):
        test, train = np.flatnonzero(fold == part), np.flatnonzero(fold != part)
        if most is not None:
            train = np.sort(np.random.default_rng([seed, most, part]).permutation(train)[:most])
        predictions[test] = predict(train, test)
    return predictions


def _rank_correlations(predictions: Floats, y: Floats) -> dict[str, float]:
    if not np.ptp(predictions):
        return {"kendall": 0.0, "spearman": 0.0}
    return {
        "kendall": float(kendalltau(predictions, y).statistic),
        "spearman": float(spearmanr(predictions, y).statistic),
    }
