"""The supernet of a user's own network, beside the one of cells, which is independent code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import archwright as aw
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import EDGES, NASBENCH201
from helpers.choice_networks import NasBench201, load_from_cells

SCALE = Scale(4, 2, classes=3, image_size=8)


@pytest.mark.parametrize("kind", ["softmax", "one-hot", "mask"])
def test_nasbench201_with_choices_is_our_supernet_of_cells(kind: str) -> None:
    """Logits, and gradients by alpha and by the first weights, in double precision."""
    torch.manual_seed(0)
    theirs, mine = NASBENCH201.supernet(SCALE).double(), aw.ModelSpace(NasBench201).supernet(SCALE).double()
    load_from_cells(mine, theirs)
    x, labels = torch.randn(5, 3, 8, 8).double(), torch.arange(5) % 3
    alpha = torch.randn(6, 5).double().requires_grad_()
    on = np.random.default_rng(1).random((6, 5)) > 0.5 if kind == "mask" else np.eye(5, dtype=bool)[[3, 1, 2, 0, 4, 3]]
    active = np.ones((6, 5), bool) if kind == "softmax" else on
    weights = alpha.softmax(-1) if kind == "softmax" else torch.from_numpy(active).double() * alpha
    names = [f"{source}>{target}" for source, target in EDGES]
    rows = {name: weights[row : row + 1] for row, name in enumerate(names)}
    masks = {name: active[row : row + 1] for row, name in enumerate(names)}
    found = []
    for logits, first in (
        (theirs(x, {"cell": weights}, {"cell": active}), theirs.network.stem[0].weight),
        (mine(x, rows, masks), mine.network.stem[0].weight),
    ):
        gradients = torch.autograd.grad(F.cross_entropy(logits, labels), [alpha, first], retain_graph=True)
        found.append((logits, *gradients))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-10, rtol=0)
    assert found[0][1].abs().max() > 1e-3


def test_a_sub_network_of_ones_is_the_one_that_is_built() -> None:
    torch.manual_seed(0)
    space = aw.ModelSpace(NasBench201)
    supernet, x = space.supernet(SCALE).train(), torch.randn(4, 3, 8, 8)
    drawn = space.sample(np.random.default_rng(3))
    assert torch.allclose(supernet(x, supernet.one_hot(drawn)), supernet.inherit(drawn).train()(x), atol=1e-6)
