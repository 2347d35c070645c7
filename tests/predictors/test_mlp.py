from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kendalltau
from torch import nn

from archwright.errors import InputError
from archwright.predictors.mlp import MlpPredictor
from archwright.solvers.synthetic import synthetic_problem


def additive_sample(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """One-hot networks of two stages and their accuracies in percent."""
    problem = synthetic_problem(0, stages=2, blocks=2, depths=(1, 2))
    choices = problem.sample(count, np.random.default_rng(seed))
    return choices.one_hot(12), problem.evaluate(choices)[0]


def test_learns_an_additive_accuracy_in_its_own_unit() -> None:
    x, y = additive_sample(400)
    predicted = MlpPredictor.fit(x[:300], y[:300], most_epochs=40).predict(x[300:])
    assert predicted.shape == (100,)
    assert kendalltau(predicted, y[300:]).statistic > 0.8
    assert ((predicted - y[300:]) ** 2).mean() < 0.1 * y.var()


def test_has_three_hidden_layers_of_500_with_dropout_used_in_training_only() -> None:
    x, y = additive_sample(40)
    fit = MlpPredictor.fit(x, y, most_epochs=1)
    linear = [layer for layer in fit.network if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in linear] == [500, 500, 500, 1]
    assert [layer.p for layer in fit.network if isinstance(layer, nn.Dropout)] == [0.2] * 3
    np.testing.assert_array_equal(fit.predict(x), fit.predict(x))
    # The forward pass by hand: no dropout, and the targets' mean and scale are put back.
    hidden = x
    for layer in linear[:-1]:
        hidden = np.maximum(hidden @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 0)
    standardised = (hidden @ linear[-1].weight.detach().numpy().T + linear[-1].bias.detach().numpy())[:, 0]
    np.testing.assert_allclose(fit.predict(x), y.mean() + y.std() * standardised, rtol=1e-5)
    np.testing.assert_allclose(fit.predict(x[3]), fit.predict(x)[3], rtol=1e-5)


def test_is_a_function_of_its_seed_and_leaves_the_global_generator_alone() -> None:
    x, y = additive_sample(60)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = MlpPredictor.fit(x, y, seed=3, most_epochs=3).predict(x)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    np.testing.assert_array_equal(MlpPredictor.fit(x, y, seed=3, most_epochs=3).predict(x), first)
    assert not np.array_equal(MlpPredictor.fit(x, y, seed=4, most_epochs=3).predict(x), first)


def test_epochs_are_those_of_least_held_out_error_and_patience_ends_the_trial() -> None:
    rng = np.random.default_rng(0)
    x, _ = additive_sample(60)
    fit = MlpPredictor.fit(x, rng.normal(size=60), patience=4)  # noise: soon nothing improves
    errors = fit.held_out_errors
    assert fit.epochs == errors.argmin() + 1
    assert len(errors) == fit.epochs + 4


def test_equal_accuracies_are_predicted_as_such() -> None:
    x, _ = additive_sample(40)
    np.testing.assert_allclose(MlpPredictor.fit(x, np.full(40, 70.0), most_epochs=20).predict(x), 70.0, atol=0.5)


def test_bad_input_is_refused() -> None:
    x, y = additive_sample(20)
    for bad_x, bad_y in [(x, y[:-1]), (x, np.full(20, np.nan)), (x[:, 0], y), (x[:3], y[:3])]:
        with pytest.raises(InputError):
            MlpPredictor.fit(bad_x, bad_y)
    for options in ({"held_out": 0.0}, {"held_out": 1.0}, {"most_epochs": 0}, {"patience": 0}):
        with pytest.raises(InputError):
            MlpPredictor.fit(x, y, **options)
    fit = MlpPredictor.fit(x, y, most_epochs=1)
    with pytest.raises(InputError):
        fit.predict(x[:, :-1])
