from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from archwright.errors import InputError
from archwright.proxies.initialise import initialise, weight_scale
from archwright.proxies.metrics import GRAD, NASWOT
from archwright.proxies.score import combine, score
from helpers.small_networks import hook_count, small_batch, small_network


def test_sharing_passes_changes_no_score() -> None:
    model, batch = small_network(), small_batch()
    names = ["grad", "snip", "grasp", "trace", "kappa", "knas", "fisher", "synflow", "naswot", "params", "macs"]
    together = score(model, batch, names, seed=3)
    for name in names:
        alone = score(model, batch, [name], seed=3)
        assert alone[name][0] == pytest.approx(together[name][0], rel=1e-6)


def test_network_keeps_its_weights_and_loses_its_hooks() -> None:
    model = small_network()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    score(model, small_batch(), replicates=2)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert hook_count(model) == 0


def test_replicates_are_averaged_in_the_logarithm() -> None:
    draws = np.array([[[1.0, -2.0], [100.0, 4.0]]])
    scores = combine([GRAD, NASWOT], draws)
    assert scores.values[0] == pytest.approx([10.0, 1.0])
    assert scores.standard_errors[0] == pytest.approx([np.log(100) / 2, 3.0])


def test_zero_among_replicates_stays_worst() -> None:
    scores = combine([GRAD], np.array([[[0.0], [0.0]], [[1e-3], [1e-3]]]))
    assert np.isfinite(scores.values).all()
    assert list(scores.best_first("grad")) == [1, 0]


def test_scores_depend_on_seed_and_initialisation_only() -> None:
    batch = small_batch()
    one = score(small_network(), batch, ["grad"], seed=1)["grad"]
    again = score(small_network(), batch, ["grad"], seed=1)["grad"]
    assert one == again
    assert score(small_network(), batch, ["grad"], seed=2)["grad"] != one
    assert score(small_network(), batch, ["grad"], seed=1, initialisation="he")["grad"] != one


def test_generator_of_networks_is_consumed_lazily() -> None:
    alive: list[int] = []

    def networks():
        for i in range(3):
            alive.append(i)
            yield small_network()

    assert score(networks(), small_batch(), ["grad"]).values.shape == (3, 1)
    assert alive == [0, 1, 2]


@pytest.mark.parametrize(("name", "variance"), [("lecun", 1 / 27), ("xavier", 2 / (27 + 576)), ("he", 2 / 27)])
def test_initialisation_has_the_variance_it_says(name: str, variance: float) -> None:
    assert weight_scale((64, 3, 3, 3), name) ** 2 == pytest.approx(variance)
    layer = nn.Conv2d(3, 64, 3)
    initialise(layer, torch.Generator().manual_seed(0), name)
    assert float(layer.weight.var()) == pytest.approx(variance, rel=0.15)
    assert not layer.bias.any()


def test_bad_input() -> None:
    model, (x, y) = small_network(), small_batch()
    with pytest.raises(InputError, match="grad"):
        score(model, (x, y), ["gradd"])
    with pytest.raises(InputError, match="at least two images"):
        score(model, (x[:1], y[:1]), ["kappa"])
    with pytest.raises(InputError, match="parameters"):
        score(nn.Flatten(), (x, y))
    with pytest.raises(InputError, match="at least one metric"):
        score(model, (x, y), [])
    with pytest.raises(InputError, match="finite images"):
        score(model, (x * float("nan"), y))
    with pytest.raises(InputError, match="initialisation"):
        score(model, (x, y), initialisation="uniform")
    with pytest.raises(InputError, match="labels"):
        score(model, (x, y[:2]))
    with pytest.raises(InputError, match="scored metrics"):
        score(model, (x, y), ["grad"])["snip"]


def test_one_class_warns_and_is_defined() -> None:
    x, y = small_batch()
    with pytest.warns(UserWarning, match="one class"):
        scores = score(small_network(), (x, torch.zeros_like(y)))
    assert np.isfinite(scores.values).all()


def test_batch_of_one_without_batch_norm_has_a_gradient() -> None:
    scores = score(small_network(batch_norm=False), small_batch(1), ["grad", "trace"])
    assert (scores.values > 0).all()
