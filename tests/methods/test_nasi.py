"""NASI: the trace, its gradient, eq. 6.13 and the sampling, each against an independent answer; then small searches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import archwright as aw
from archwright.errors import InputError
from archwright.methods.nasi import Accumulator, sample, sample_weights, trace
from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench1shot1 import NASBENCH1SHOT1_1
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.cell import CellSupernet

SMALL = {
    "steps": 3,
    "nu_samples": 2,
    "proxy_channels": 4,
    "proxy_batch": 16,
    "epochs": 1,
    "final_epochs": 1,
    "channels": 4,
}


class Scaled(nn.Module):
    """logits = weight * (x W^T): the gradient by W is known in closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4, bias=False)

    def forward(self, x: Tensor, weights: dict[str, Tensor], active: object) -> Tensor:
        return weights["scale"] * self.linear(x)


def test_trace_of_a_linear_network_in_closed_form() -> None:
    torch.manual_seed(0)
    network, x, y = Scaled().double(), torch.randn(5, 3, dtype=torch.float64), torch.randint(4, (5,))
    scale = torch.tensor(0.7, dtype=torch.float64)
    logits = scale * x @ network.linear.weight.T
    residual = (torch.softmax(logits, 1) - F.one_hot(y, 4)) / 5
    gradient = scale * residual.T @ x
    assert trace(network, {"scale": scale}, (x, y)).item() == pytest.approx((gradient**2).sum().item(), rel=1e-12)


def test_gradient_of_the_trace_equals_a_finite_difference() -> None:
    torch.manual_seed(0)
    supernet = CellSupernet(NASBENCH201, Scale(4, 1, image_size=8)).double().train()
    batch = torch.randn(6, 3, 8, 8, dtype=torch.float64), torch.randint(10, (6,))
    weights = torch.softmax(torch.randn(6, 5, dtype=torch.float64), -1).requires_grad_()
    (found,) = torch.autograd.grad(trace(supernet, {"cell": weights}, batch, create_graph=True), weights)
    for edge, operation in ((0, 3), (2, 2), (5, 1), (4, 4)):
        move = torch.zeros_like(weights)
        move[edge, operation] = 1e-5
        with_grad = [(weights.detach() + sign * move).requires_grad_() for sign in (1, -1)]
        up, down = (trace(supernet, {"cell": w}, batch).item() for w in with_grad)
        assert found[edge, operation].item() == pytest.approx((up - down) / 2e-5, rel=1e-4)


def test_accumulator_is_equation_6_13() -> None:
    state = Accumulator({"a": (1, 2)})
    steps = [
        torch.tensor([[3.0, 4.0]]),
        torch.tensor([[0.0, 0.0]]),
        torch.tensor([[0.0, 10.0]]),
        torch.tensor([[2.0, 0.0]]),
    ]
    for gradient in steps:
        state.add({"a": gradient})
    # Largest norms so far: 5, 5, 10, 10.
    expected = steps[0] / 5 + steps[2] / 10 + steps[3] / 10
    assert torch.allclose(state.total["a"], expected)
    flat = Accumulator({"a": (1, 2)})
    flat.add({"a": torch.zeros(1, 2)})  # a reward that is flat above nu: 0/0 must not appear
    assert torch.equal(flat.total["a"], torch.zeros(1, 2))


def test_samples_are_hard_and_carry_the_softmax_derivative() -> None:
    torch.manual_seed(0)
    logits = torch.zeros(200, 5, requires_grad=True)
    drawn = sample(logits, 1, 1.0)
    assert torch.allclose(drawn.sum(1), torch.ones(200))
    assert set(drawn.detach().round(decimals=5).unique().tolist()) == {0.0, 1.0}
    (gradient,) = torch.autograd.grad((drawn * torch.arange(5.0)).sum(), logits)
    assert gradient.abs().min() > 0  # unselected operations have a derivative too
    assert torch.allclose(gradient.sum(1), torch.zeros(200), atol=1e-5)


def test_none_is_never_drawn_and_picks_are_kept() -> None:
    torch.manual_seed(0)
    for space in (NASBENCH201, DARTS, NASBENCH1SHOT1_1):
        zeros = {name: torch.zeros(choice.shape) for name, choice in space.draws.items()}
        for _ in range(20):
            weights = sample_weights(space, zeros, 1.0)
            assert {name: tuple(w.shape) for name, w in weights.items()} == space.decisions
            if "none" in space.operations:
                assert all(float(w[:, space.operations.index("none")].abs().sum()) == 0 for w in weights.values())
    picks = NASBENCH1SHOT1_1.picks
    assert all(
        float(weights[name][0].sum()) == pytest.approx(count) for name, count in picks.items() if name != "operation"
    )


def test_strongest_of_darts_pairs_the_two_best_in_order() -> None:
    delta = {name: np.zeros(choice.shape) for name, choice in DARTS.draws.items()}
    delta["normal:operation"][1, [4, 1]] = 2.0, 1.0  # node 3: sep_conv_3x3 first, then max_pool_3x3
    delta["normal:inputs:3"][0, [2, 0]] = 5.0, 4.0
    architecture: Any = DARTS.derive_draws(delta)
    assert set(architecture.normal.nodes[1]) == {("sep_conv_3x3", 2), ("max_pool_3x3", 0)}
    assert DARTS.parse(str(architecture)) == architecture


@pytest.mark.parametrize("space", ["nasbench201", "darts", "nasbench1shot1-1"])
def test_small_search_gives_a_connected_architecture(space: str) -> None:
    result = aw.search("nasi", space=space, data="digits", **SMALL)
    from archwright.spaces.registry import spaces

    chosen = spaces.get(space)
    assert chosen.is_connected(chosen.parse(result.best.architecture))
    assert result.best.accuracy > 0


def test_random_labels_and_images_and_the_cheaper_estimator_run() -> None:
    for changes in ({"labels": "random"}, {"images": "random"}, {"estimator": "selected", "nu": "adaptive"}):
        result = aw.search("nasi", data="digits", **{**SMALL, **changes})
        assert NASBENCH201.is_connected(NASBENCH201.parse(result.best.architecture))


def test_limits_are_refused() -> None:
    with pytest.raises(InputError, match="no limits"):
        aw.search("nasi", data="digits", limits={"params": 1e9}, **SMALL)
