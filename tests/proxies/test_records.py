from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from archwright.errors import DivergedError, InputError
from archwright.proxies.modules import record_module, record_synflow
from helpers.small_networks import hook_count, small_batch, small_network


def test_gradients_are_those_of_a_plain_backward_pass() -> None:
    model, (x, y) = small_network(), small_batch()
    layers, relus, *_ = record_module(model, x, y, needs=["loss"])
    F.cross_entropy(model(x), y).backward()
    weights = [m.weight for m in model if isinstance(m, nn.Conv2d | nn.Linear)]
    assert [r.name for r in layers] == ["0", "3", "8"]
    for record, weight in zip(layers, weights, strict=True):
        assert weight.grad is not None
        torch.testing.assert_close(record.weight_gradient[0].reshape(weight.shape), weight.grad)
    assert [r.active.shape for r in relus] == [(1, 6, 4 * 16), (1, 6, 6 * 16)]


def test_network_is_left_as_it_was() -> None:
    model, (x, y) = small_network(), small_batch()
    model.eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    record_module(model, x, y)
    assert hook_count(model) == 0
    assert not any(m.training for m in model.modules())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_hooks_are_gone_after_an_exception() -> None:
    model, (x, y) = small_network(), small_batch()
    with pytest.raises(RuntimeError):
        record_module(model, x[:, :2], y)
    assert hook_count(model) == 0


def test_unused_layer_has_zero_gradients() -> None:
    class Dangling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.main, self.unused = small_network(), nn.Conv2d(3, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.unused(x)
            return self.main(x)

    layers, *_ = record_module(Dangling(), *small_batch(), needs=["loss", "logit", "hessian"])
    (dangling,) = [r for r in layers if r.name == "unused"]
    for field in (dangling.weight_gradient, dangling.loss_gradients, dangling.logit_gradients, dangling.hessian_weight):
        assert field is not None
        assert not field.any()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Sequential(nn.Flatten()), "convolution or linear weights"),
        (nn.Conv2d(3, 4, 3), "logits"),
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), "classes 0 to 1"),
    ],
)
def test_bad_networks_are_refused(model: nn.Module, words: str) -> None:
    x, _ = small_batch()
    with pytest.raises(InputError, match=words):
        record_module(model, x, torch.tensor([0, 1, 2, 3, 4, 4]))


def test_a_layer_used_twice_is_one_record_with_both_uses() -> None:
    shared = nn.Conv2d(3, 3, 1)
    model = nn.Sequential(shared, shared, nn.Flatten(), nn.Linear(192, 5))
    first, last = record_module(model, *small_batch())[0]
    assert (first.name, last.name) == ("0", "3")
    assert first.jacobian is not None
    assert len(first.uses) == 1
    assert last.jacobian is None


def test_non_finite_loss_is_an_error() -> None:
    model, (x, y) = small_network(batch_norm=False), small_batch()
    with torch.no_grad():
        model[8].weight.fill_(float("inf"))
    with pytest.raises(DivergedError, match="finite loss"):
        record_module(model, x, y, needs=["loss"])


def test_synflow_leaves_the_network_alone_and_ignores_batch_norm() -> None:
    model, (x, _) = small_network(), small_batch()
    with torch.no_grad():
        model[1].weight.fill_(7.0)
    plain = small_network(batch_norm=False)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if k.split(".")[0] in "038"})
    before = model[0].weight.clone()
    for ours, theirs in zip(record_synflow(model, x), record_synflow(plain, x), strict=True):
        torch.testing.assert_close(ours.weight_gradient, theirs.weight_gradient)
        assert ours.weight.dtype == torch.float64
        assert (ours.weight >= 0).all()
    assert torch.equal(before, model[0].weight)
