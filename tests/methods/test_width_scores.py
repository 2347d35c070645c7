"""Scores of channels against what removing a channel really does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from archwright.methods.width_scores import (
    L1,
    Fisher,
    Looked,
    PassScore,
    Random,
    Taylor,
    image_gradients,
    per_image_gradients,
    scores,
)
from archwright.spaces.base import Scale
from archwright.spaces.width import WidthSpace
from archwright.supernets.scored import Scores
from archwright.training import Position
from archwright.training.bilevel import ArchitectureParameters, Problem, WeightCopy
from helpers.two_layer import descent


@dataclass
class Same:
    """The same batch at every step."""

    images: torch.Tensor
    labels: torch.Tensor

    def get(self, epoch: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.images, self.labels

    def __len__(self) -> int:
        return 1


VIT = "examples/small_vit.py:build"


def looked(name: str) -> tuple[WidthSpace, Looked]:
    scale = Scale(1 if ":" in name else 8, 1, classes=3, image_size=8, image_channels=1)
    space = WidthSpace(name, scale)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = space.whole().eval()
        images, labels = torch.randn(6, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    batches = [(images[:4], labels[:4]), (images[4:], labels[4:])]
    return space, Looked(network, Scores(space.structure), batches, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["resnet20", "helpers.own_networks:make", VIT])
def test_taylor_is_the_gradient_of_every_images_own_score(name: str) -> None:
    """By one image at a time through scaled kernels: another way to the same numbers."""
    _, one = looked(name)
    rows = []
    for images, labels in one.batches:
        for image, label in zip(images, labels, strict=True):
            s = torch.ones(one.scores.total, requires_grad=True)
            loss = F.cross_entropy(one.scores.logits(one.network, s, image[None]), label[None])
            rows.append(torch.autograd.grad(loss, s)[0].abs())
    found = torch.stack(rows)
    assert np.allclose(Taylor()(one), found.mean(0).numpy(), atol=1e-6)
    assert np.allclose(Fisher()(one), found.square().mean(0).numpy(), atol=1e-6)


def test_taylor_predicts_what_a_small_cut_does_to_the_loss() -> None:
    """The sum of a channel's signed changes is the derivative of the loss by its score."""
    _, one = looked("resnet20")
    images, labels = one.batches[0]  # type: ignore[index]
    signed = per_image_gradients(one.network, one.scores, images, labels).sum(0)
    channel, cut = int(signed.abs().argmax()), 1e-3
    s = torch.ones(one.scores.total)
    s[channel] -= cut
    with torch.no_grad():
        before, after = (
            F.cross_entropy(one.scores.logits(one.network, scale, images), labels, reduction="sum")
            for scale in (torch.ones(one.scores.total), s)
        )
    assert float(after - before) == pytest.approx(-cut * float(signed[channel]), rel=0.05)


def test_a_gate_of_zero_is_a_channel_that_is_gone() -> None:
    space, one = looked(VIT)
    width = space.sample(np.random.default_rng(1))
    mask = torch.from_numpy(one.scores.mask(width)).float()
    images, _ = one.batches[0]  # type: ignore[index]
    with torch.no_grad():
        with one.scores.gated(one.network, mask.expand(len(images), -1)):
            gated = one.network(images)
        assert torch.allclose(gated, space.removed(one.network, width).eval()(images), atol=1e-5)


def test_the_gradient_by_image_is_the_mean_size_of_each_images_own() -> None:
    """At scores that are not 1, beside the weights' gradient of the same pass, which stays that of the batch."""
    _, one = looked("resnet20")
    images, labels = one.batches[0]  # type: ignore[index]
    values = torch.linspace(0.5, 1.5, one.scores.total)

    def objective(network: nn.Module, alphas: Any, batch: Any, position: Any) -> torch.Tensor:
        return F.cross_entropy(one.scores.logits(network, alphas["scores"], batch[0]), batch[1])

    alpha = ArchitectureParameters({"scores": values})
    weights = list(one.network.parameters())
    problem = Problem(objective, Same(images, labels), Same(images, labels), alpha, descent(alpha.parameters(), 0.1))
    copy = WeightCopy(one.network, descent(weights, 0.1))
    found = image_gradients(problem, copy, "train", Position.at(0, 1, 1))
    rows = []
    for image, label in zip(images, labels, strict=True):
        s = values.clone().requires_grad_()
        loss = F.cross_entropy(one.scores.logits(one.network, s, image[None]), label[None])
        rows.append(torch.autograd.grad(loss, s)[0].abs())
    assert torch.allclose(found.architecture[0], torch.stack(rows).mean(0), atol=1e-6)
    usual = problem.gradients(one.network, weights, "train", Position.at(0, 1, 1), "weights")
    assert torch.allclose(found.loss, usual.loss, atol=1e-6)
    for own, other in zip(found.weights, usual.weights, strict=True):
        assert torch.allclose(own, other, atol=1e-5)


def test_l1_is_the_size_of_what_writes_a_channel() -> None:
    _, one = looked("helpers.own_networks:plain")
    sizes = one.network.body[2].weight.detach().abs().mean((1, 2, 3)).numpy()
    assert np.allclose(L1()(one), sizes / sizes.mean())


def test_random_goes_by_the_seed() -> None:
    _, one = looked("helpers.own_networks:plain")
    _, other = looked("helpers.own_networks:plain")
    assert Random()(one).tolist() == Random()(other).tolist()


def test_every_registered_score_is_of_one_of_the_two_kinds() -> None:
    names = [entry.name for entry in scores]
    assert {"taylor", "rarts", "darts", "slimming", "l1", "random"} <= set(names)
    for name in names:
        made = scores.get(name)()
        assert isinstance(made, PassScore) != hasattr(made, "step")
