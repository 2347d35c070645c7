from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from archwright.analysis.landscape import (
    HIGHEST,
    Landscape,
    gradient_variance,
    grid_steps,
    loss_landscape,
    plot_landscapes,
    random_directions,
    variance_landscape,
)
from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import NASBENCH201

BEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|avg_pool_3x3~2|"


def squared(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs[:, 0] - targets).square()


@pytest.fixture
def linear() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Linear(4, 1).double(), torch.randn(30, 4).double(), torch.randn(30).double()


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    found = NASBENCH201.build(NASBENCH201.parse(BEST), Scale(channels=4, cells=1, image_size=8))
    with torch.no_grad():
        for module in found.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 2)
                module.weight.uniform_(0.5, 2)
                module.bias.normal_(0, 0.3)
    return found


@pytest.fixture(scope="module")
def images() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(20, 3, 8, 8), torch.randint(10, (20,))


def test_the_landscape_of_a_quadratic_is_the_quadratic(linear) -> None:
    model, x, y = linear
    first, second = random_directions(model, 0)
    steps = grid_steps(5, 1.0)
    found = loss_landscape(model, x, y, (first, second), steps, losses=squared)
    residual = (model(x)[:, 0] - y).detach()
    d1, d2 = x @ first["weight"][0], x @ second["weight"][0]
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            assert found.values[i, j] == pytest.approx(float((residual + a * d1 + b * d2).square().mean()))


def test_gradient_variance_of_a_linear_model_in_closed_form(linear) -> None:
    """g_i = 2 (w.x_i + c - y_i) (x_i, 1)."""
    model, x, y = linear
    directions = random_directions(model, 0)
    steps = grid_steps(3, 0.5)
    found = variance_landscape(model, x, y, directions, steps, losses=squared, chunk=7)
    rows = torch.cat([x, torch.ones(30, 1).double()], dim=1)
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            weight = model.weight.detach()[0] + a * directions[0]["weight"][0] + b * directions[1]["weight"][0]
            gradients = 2 * (x @ weight + model.bias.detach() - y)[:, None] * rows
            assert found.values[i, j] == pytest.approx(float(gradients.var(0, unbiased=False).sum()))


def test_gradient_variance_of_a_network_is_that_of_a_loop(network, images) -> None:
    x, y = images
    kept = network.eval()
    weights = {name: weight.detach() for name, weight in kept.named_parameters()}
    found = gradient_variance(kept, weights, x[:6], y[:6], chunk=4)
    rows = []
    for i in range(6):
        loss = nn.functional.cross_entropy(kept(x[i : i + 1]), y[i : i + 1])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(kept.parameters()))]))
    assert found == pytest.approx(float(torch.stack(rows).double().var(0, unbiased=False).sum()), rel=1e-4)


def test_directions_have_the_norm_of_every_filter(network) -> None:
    first, second = random_directions(network, 3)
    for name, weight in network.named_parameters():
        if weight.ndim < 2:
            assert not first[name].any()
        else:
            assert torch.allclose(first[name].flatten(1).norm(dim=1), weight.detach().flatten(1).norm(dim=1), rtol=1e-4)
    assert not torch.equal(first["classifier.weight"], second["classifier.weight"])
    again, _ = random_directions(network, 3)
    assert torch.equal(again["classifier.weight"], first["classifier.weight"])


@pytest.mark.parametrize("norms", ["kept", "batch"])
def test_the_grid_is_the_plain_double_loop(network, images, norms) -> None:
    x, y = images
    directions, steps = random_directions(network, 0), grid_steps(3, 1.0)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    found = loss_landscape(network, x, y, directions, steps, norms=norms, batch=10)
    own = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            with torch.no_grad():
                for name, weight in network.named_parameters():
                    weight.copy_(own[name] + a * directions[0][name] + b * directions[1][name])
                network.train(norms == "batch")
                statistics = {name: tensor.clone() for name, tensor in network.named_buffers()}
                parts = [nn.functional.cross_entropy(network(x[s : s + 10]), y[s : s + 10]) for s in (0, 10)]
                for name, tensor in network.named_buffers():
                    tensor.copy_(statistics[name])
            assert found.values[i, j] == pytest.approx(float(sum(parts)) / 2, rel=1e-4)
    network.load_state_dict(before)


def test_the_network_is_as_before(network, images) -> None:
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    loss_landscape(network, *images, random_directions(network, 0), grid_steps(2, 1.0))
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_what_overflows_is_cut_and_marked(linear, tmp_path) -> None:
    model, x, y = linear
    directions = random_directions(model, 0)
    found = loss_landscape(model, x, y, directions, np.array([-1e3, 0.0, 1e200]), losses=squared)
    assert found.cut[2].all()
    assert not found.cut[1, 1]
    assert found.values.max() == HIGHEST
    assert np.isfinite(found.values).all()
    plot_landscapes({"one": found, "two": found}, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5000


def test_a_landscape_without_a_value_is_not_drawn(tmp_path) -> None:
    gone = Landscape(np.array([-1.0, 1.0]), np.full((2, 2), HIGHEST), np.ones((2, 2), dtype=bool))
    with pytest.raises(InputError, match="all points were clipped"):
        plot_landscapes({"one": gone}, tmp_path / "plot.png")


def test_share_under_a_level_and_json() -> None:
    found = Landscape(np.array([-1.0, 1.0]), np.array([[1.0, 2.0], [3.0, 4.0]]), np.zeros((2, 2), dtype=bool))
    assert found.share_under(2.0) == 0.5
    again = Landscape.from_json(found.to_json())
    assert np.array_equal(again.values, found.values)


def test_bad_directions_and_grids(network) -> None:
    with pytest.raises(InputError, match="zero norm"):
        random_directions(nn.BatchNorm2d(3), 0)
    with pytest.raises(InputError, match="2 points"):
        grid_steps(1, 1.0)
    with pytest.raises(InputError, match="own parameters"):
        loss_landscape(network, torch.zeros(1, 3, 8, 8), torch.zeros(1), ({}, {}), grid_steps(2, 1.0))
