from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import kendalltau

from archwright.errors import InputError
from archwright.predictors import comparison
from archwright.predictors.comparison import compare_predictors
from archwright.predictors.ridge import leave_one_out_ridge
from archwright.predictors.staged import StagedEstimate, fit_bilinear
from archwright.solvers.problem import StagedChoice
from archwright.solvers.synthetic import synthetic_problem

NAMES = ["additive", "hierarchical", "full bilinear", "full quadratic", "mlp"]


def additive_sample(count: int, noise: float = 0.0) -> tuple[StagedChoice, np.ndarray]:
    """Networks of two stages and accuracies with noise in units of their spread."""
    problem = synthetic_problem(0, stages=2, blocks=2, depths=(1, 2))
    rng = np.random.default_rng(0)
    choices = problem.sample(count, rng)
    y = problem.evaluate(choices)[0]
    return choices, y + noise * y.std() * rng.normal(size=count)


def test_the_additive_fit_ranks_an_additive_accuracy_best() -> None:
    choices, y = additive_sample(200, noise=0.1)
    found = compare_predictors(choices, y, 12, folds=4)
    assert list(found) == NAMES
    best = max(scores["kendall"] for scores in found.values())
    assert found["additive"]["kendall"] > best - 0.01
    assert found["additive"]["kendall"] > 0.8
    for scores in found.values():
        assert 0.4 < scores["kendall"] < scores["spearman"] < 1


def test_nothing_predicts_shuffled_accuracies() -> None:
    choices, y = additive_sample(200)
    y = np.random.default_rng(1).permutation(y)
    found = compare_predictors(choices, y, 12, folds=4)
    assert found == compare_predictors(choices, y, 12, folds=4)  # and the same nothing again
    for scores in found.values():
        assert abs(scores["kendall"]) < 0.15  # three standard deviations of tau between independent rankings
        assert abs(scores["spearman"]) < 0.22


def test_every_network_is_predicted_by_a_fit_that_has_not_seen_it() -> None:
    fold = np.random.default_rng(0).integers(0, 5, 50)
    trained_on = []

    def predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        trained_on.append(len(train))
        assert sorted([*train, *test]) == list(range(50))
        return 10.0 * test

    predictions = comparison._cross_validated(predict, fold)
    assert predictions.tolist() == [10.0 * row for row in range(50)]
    assert trained_on == [50 - (fold == part).sum() for part in range(5)]


def test_fits_see_as_many_networks_as_are_asked_for_drawn_from_other_folds() -> None:
    fold, seen = np.arange(50) % 5, []

    def predict(train: np.ndarray, test: np.ndarray) -> np.ndarray:
        assert len(train) == len(set(train)) == 12
        assert not set(fold[train]) & set(fold[test])
        seen.append(train.tolist())
        return np.zeros(len(test))

    comparison._cross_validated(predict, fold, 12)
    comparison._cross_validated(predict, fold, 12)
    assert seen[:5] == seen[5:]
    assert seen[0] != seen[0][0:1] + list(range(seen[0][0] + 1, seen[0][0] + 12)), "drawn, not the first ones"
    choices, y = additive_sample(200, noise=0.1)
    few, many = (compare_predictors(choices, y, 12, folds=4, most=most) for most in (24, 200))
    assert few["additive"]["kendall"] < many["additive"]["kendall"] - 0.1
    assert many == compare_predictors(choices, y, 12, folds=4)


def test_predictions_without_differences_rank_nothing() -> None:
    scores = comparison._rank_correlations(np.full(9, 70.0), np.arange(9.0))
    assert scores == {"kendall": 0.0, "spearman": 0.0}


def test_parts_of_x_are_given_to_the_full_bilinear_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    choices, y = additive_sample(20)
    asked = []

    def fit(x: np.ndarray, y: np.ndarray, num_alpha: int, **_: object) -> StagedEstimate:
        asked.append((x.shape, num_alpha))
        raise InputError("nothing more", "this test ends here")

    monkeypatch.setattr(comparison, "fit_full_bilinear", fit)
    with pytest.raises(InputError):
        compare_predictors(choices, y, 12)
    assert asked == [((16, 2 * 2 * 12 + 2 * 2), 2 * 2 * 12)]


def test_leaving_folds_out_of_equal_accuracy_hides_nothing_in_the_mean() -> None:
    y = np.random.default_rng(0).normal(size=103)
    fold = comparison._balanced_folds(y, 5, seed=0)
    assert np.bincount(fold).min() >= 20
    means_of_others = np.array([y[fold != part].mean() for part in range(5)])
    assert abs(kendalltau(means_of_others[fold], y).statistic) < 0.05


def test_ridge_is_that_of_least_error_when_each_network_is_left_out_in_turn() -> None:
    choices, y = additive_sample(40, noise=1.0)
    ridges = np.array([0.1, 1.0, 3.0, 10.0, 100.0])
    everyone = np.arange(40)
    errors = [
        sum(
            (fit_bilinear(choices[everyone != row], y[everyone != row], ridge, 12).predict(choices[row]) - y[row]) ** 2
            for row in everyone
        )
        for ridge in ridges
    ]
    assert leave_one_out_ridge(choices.one_hot(12), y, ridges) == ridges[int(np.argmin(errors))]


def test_bad_input_is_refused() -> None:
    choices, y = additive_sample(40)
    one = replace(choices, depths=choices.depths[0], configurations=choices.configurations[0])
    for bad_choices, accuracy, configurations, folds in [
        (choices, y[:-1], 12, 5),
        (choices, np.full(40, np.nan), 12, 5),
        (choices, np.full(40, 70.0), 12, 5),
        (one, y, 12, 5),
        (choices, y, 3, 5),
        (choices, y, 12, 1),
        (choices, y, 12, 11),
    ]:
        with pytest.raises(InputError):
            compare_predictors(bad_choices, accuracy, configurations, folds)
