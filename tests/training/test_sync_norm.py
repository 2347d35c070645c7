"""Batch norms over the whole batch, against torch's own."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from archwright.training.sync_norm import whole_norm, whole_norms
from archwright.training.team import Team


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False, momentum=None)])
def test_it_is_a_batch_norm(norm: nn.BatchNorm2d) -> None:
    torch.manual_seed(0)
    x = (3 + 2 * torch.randn(5, 3, 4, 4, dtype=torch.float64)).requires_grad_()
    ours, theirs = copy.deepcopy(norm).double(), copy.deepcopy(norm).double()
    down = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    for _ in range(2):
        found, expected = whole_norm(ours, Team(), x), theirs(x)
        assert torch.allclose(found, expected, atol=1e-9)
        gradients = [torch.autograd.grad((y * down).sum(), x)[0] for y in (found, expected)]
        assert torch.allclose(*gradients, atol=1e-9)
    for name, value in theirs.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], value, atol=1e-9), name
    ours.eval()
    assert torch.equal(whole_norm(ours, Team(), x), ours(x))


def test_norms_are_as_before_afterwards() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2))
    with whole_norms(network, Team(2, 0, 2)):
        assert "forward" in network[1].__dict__
    assert "forward" not in network[1].__dict__
