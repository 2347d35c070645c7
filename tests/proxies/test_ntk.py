from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

from archwright.proxies import ntk
from archwright.proxies.modules import record_module
from archwright.proxies.records import LayerRecord
from helpers.small_networks import small_batch, small_network


def kernel_of(records: list[LayerRecord]) -> torch.Tensor:
    return sum(ntk.layer_kernel(r) for r in records)[0]


def weight_names(model: nn.Module) -> list[str]:
    return [n for n, m in model.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)]


def expanded_kernel(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Oracle of `contracted`: every example has its own copy of every weight, batch norm sees the whole batch."""
    m = len(x)
    copies = {n: model.get_submodule(n).weight.detach().repeat(m, *[1] * model.get_submodule(n).weight.ndim) for n in
              weight_names(model)}  # fmt: skip

    def run(weights: dict[str, torch.Tensor]) -> torch.Tensor:
        value = x
        for name, module in model.named_children():
            if name in weights:
                each = [
                    functional_call(module, {"weight": w}, (v[None],), strict=False)
                    for w, v in zip(weights[name], value, strict=True)
                ]
                value = torch.cat(each)
            else:
                value = module(value)
        return value.gather(1, y[:, None]).sum()

    gradients = jacrev(run)(copies)
    flat = torch.cat([gradients[n].flatten(1) for n in copies], 1)
    return flat @ flat.T


@pytest.mark.parametrize("batch_norm", [True, False])
def test_contracted_is_autograd_with_weights_expanded_per_example(batch_norm: bool) -> None:
    model, (x, y) = small_network(batch_norm), small_batch()
    records, *_ = record_module(model, x, y, needs=["logit"])
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
            module.num_batches_tracked = None
    torch.testing.assert_close(kernel_of(records), expanded_kernel(model, x, y), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_norm", [True, False])
def test_exact_is_a_plain_loop(batch_norm: bool) -> None:
    model, (x, y) = small_network(batch_norm), small_batch()
    records, *_ = record_module(model, x, y, needs=["logit"], ntk="exact")
    weights = [model.get_submodule(n).weight for n in weight_names(model)]
    rows = []
    for i in range(len(x)):
        gradients = torch.autograd.grad(model(x)[i, y[i]], weights)
        rows.append(torch.cat([g.flatten() for g in gradients]))
    rows_ = torch.stack(rows)
    torch.testing.assert_close(kernel_of(records), rows_ @ rows_.T, rtol=1e-4, atol=1e-5)


def test_both_modes_agree_without_batch_norm() -> None:
    model, (x, y) = small_network(batch_norm=False), small_batch()
    contracted, *_ = record_module(model, x, y, needs=["logit"])
    exact, *_ = record_module(model, x, y, needs=["logit"], ntk="exact")
    torch.testing.assert_close(kernel_of(contracted), kernel_of(exact), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size", "channels"), [(1, 24), (2, 24), (6, 3)])
def test_pairs_of_positions_give_the_same_kernel(size: int, channels: int) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.Flatten(), nn.Linear(channels * size**2, 3))
    x, y = torch.randn(12, channels, size, size), torch.randint(3, (12,))
    record = record_module(model, x, y, needs=["logit"])[0][0]
    formed = ntk._gram(ntk.per_example_gradients(record, record.logit_gradients))
    torch.testing.assert_close(ntk._kernel_over_position_pairs(record), formed, rtol=1e-4, atol=1e-4)
    assert ntk._pairs_are_cheaper(record) == (size < 6)


class Wide(nn.Module):
    """f(x) = 1^T sum_i W_i x of eq. 7.5, or f'(x) = 1^T (prod_i W_i) x."""

    def __init__(self, n: int, depth: int, deep: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(n, n, bias=False) for _ in range(depth))
        self.deep = deep
        for layer in self.layers:
            nn.init.normal_(layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.deep:
            for layer in self.layers:
                x = layer(x)
            return x.sum(1, keepdim=True)
        return sum(layer(x) for layer in self.layers).sum(1, keepdim=True)


def test_theorem_7_4_wide_exactly() -> None:
    torch.manual_seed(0)
    n, m, depth = 12, 7, 3
    x = torch.linalg.qr(torch.randn(n, m))[0].T
    for mode in ("contracted", "exact"):
        records, *_ = record_module(Wide(n, depth, deep=False), x, torch.zeros(m, dtype=torch.long), needs=["logit"],
                                   ntk=mode)  # fmt: skip
        theta = kernel_of(records)
        torch.testing.assert_close(theta, depth * n * torch.eye(m), rtol=1e-5, atol=1e-4)
        assert ntk.condition_number(theta[None]).item() == pytest.approx(1, abs=1e-5)


def test_theorem_7_4_deep_in_expectation() -> None:
    torch.manual_seed(0)
    n, m, depth, draws = 4, 3, 2, 1500
    x = torch.linalg.qr(torch.randn(n, m))[0].T
    label = torch.zeros(m, dtype=torch.long)
    thetas = torch.stack(
        [kernel_of(record_module(Wide(n, depth, deep=True), x, label, needs=["logit"])[0]) for _ in range(draws)]
    )
    error = thetas.std(0) / draws**0.5
    assert ((thetas.mean(0) - depth * n**depth * torch.eye(m)).abs() < 4 * error + 1e-3).all()


def test_condition_number_against_numpy_and_never_negative() -> None:
    torch.manual_seed(0)
    rows = torch.randn(5, 10, 40)
    good = rows @ rows.transpose(1, 2)
    expected = [np.linalg.cond(k) for k in good.double().numpy()]
    np.testing.assert_allclose(ntk.condition_number(good).numpy(), expected, rtol=1e-5)
    singular = torch.randn(4, 10, 3)
    singular = singular @ singular.transpose(1, 2)
    bad = torch.stack([*singular, torch.zeros(10, 10), torch.full((10, 10), float("nan"))])
    kappa = ntk.condition_number(bad)
    assert (kappa > 1e5).all()
    assert (kappa[-2:] == 1 / ntk.EIGENVALUE_FLOOR).all()


def test_trace_and_its_approximations_by_hand() -> None:
    """A linear classifier: the gradient of example i's loss is (p_i - y_i) x_i^T, of its true logit x_i."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 4))
    x, y = torch.randn(5, 3, 2, 2), torch.tensor([0, 1, 2, 3, 0])
    records, *_ = record_module(model, x, y)
    flat = x.flatten(1)
    error = model(x).detach().softmax(1) - torch.eye(4)[y]
    torch.testing.assert_close(ntk.trace_norm(kernel_of(records)[None])[0], flat.square().sum())
    each = (error.square().sum(1) * flat.square().sum(1)).sum()
    torch.testing.assert_close(ntk.sample_gradient_trace(records)[0], each)
    together = 5 * (error.T @ flat / 5).square().sum()
    torch.testing.assert_close(ntk.batch_gradient_trace(records)[0], together)
    assert together <= each <= 2 * flat.square().sum()  # eq. 6.6 with gamma^2 = 2 for cross entropy
