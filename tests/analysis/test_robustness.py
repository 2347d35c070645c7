"""Attacks on a linear classifier, whose adversarial points are known, and the rounds of attack and defence."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from archwright.analysis.robustness import Unnormalised, adversarial, attack_and_defend
from archwright.data import load as load_images
from archwright.ensembles import Ensemble
from archwright.errors import InputError
from archwright.models import Model
from archwright.spaces.nasbench201 import NASBENCH201


class Linear(nn.Module):
    """Logits (0, w . x + b) of images (B, 1, 2, 2)."""

    def __init__(self, w: list[float], b: float) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.tensor(w)), b

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1) @ self.w + self.b
        return torch.stack([torch.zeros_like(score), score], dim=1)


IMAGES = torch.tensor([[0.5, 0.4, 0.6, 0.5], [0.001, 0.9, 0.2, 0.7], [0.2, 0.999, 0.3, 0.1]]).reshape(3, 1, 2, 2)
W = [1.0, -2.0, 0.5, 3.0]


@pytest.fixture
def art() -> None:
    pytest.importorskip("art.estimators.classification")


@pytest.mark.parametrize("attack", ["fgsm", "pgd-40"])
def test_gradient_attacks_find_the_corner_of_a_linear_classifier(art: None, attack: str) -> None:
    """The worst point within eps is x - eps sign(w) for the class of w, else x + eps sign(w), inside [0, 1]."""
    labels = torch.tensor([1, 1, 0])
    direction = torch.where(labels == 1, -1.0, 1.0)[:, None] * torch.tensor(W).sign()
    expected = (IMAGES + 0.05 * direction.reshape(3, 1, 2, 2)).clamp(0, 1)
    found = adversarial(Linear(W, -0.5), IMAGES, labels, 2, attack, eps=0.05)
    assert torch.allclose(found, expected, atol=1e-6)


def test_carlini_and_wagner_come_near_the_nearest_point_behind_the_boundary(art: None) -> None:
    """The distance to the boundary is |w . x + b| / |w|; nothing nearer can be misclassified."""
    network = Linear(W, -1.0)
    labels = network(IMAGES).argmax(1)
    distance = (network(IMAGES)[:, 1].abs() / np.linalg.norm(W)).detach()
    found = adversarial(network, IMAGES, labels, 2, "cw")
    moved = (found - IMAGES).flatten(1).norm(dim=1)
    wrong = network(found).argmax(1) != labels
    assert wrong.any()
    assert (moved[wrong] >= distance[wrong] - 1e-4).all()
    assert (moved[wrong] <= 1.5 * distance[wrong] + 0.05).all()


class FourClasses(nn.Module):
    """Logits that are the means of the four quarters of images (B, 1, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.one * torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


def test_autoattack_succeeds_exactly_where_something_within_eps_does(art: None) -> None:
    """Each quarter's mean can change by eps, so that a lead of the first class up to 2 eps can be lost."""
    images = torch.full((2, 1, 8, 8), 0.4)
    images[0, :, :4, :4], images[1, :, :4, :4] = 0.45, 0.7
    found = adversarial(FourClasses(), images, torch.zeros(2).long(), 4, "autoattack", eps=0.05)
    assert (found - images).abs().max() <= 0.05 + 1e-6
    assert (FourClasses()(found).argmax(1) != 0).tolist() == [True, False]


def test_the_caller_s_generators_are_left_alone(art: None) -> None:
    before = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    twice = [adversarial(Linear(W, 0.0), IMAGES, torch.ones(3).long(), 2, "pgd-40", eps=0.05, seed=3) for _ in "ab"]
    assert torch.equal(*twice)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == str(np.random.get_state())  # noqa: NPY002


@pytest.fixture(scope="module")
def ensemble() -> Ensemble:
    data = load_images("digits", seed=0)
    scale = NASBENCH201.scales["small"].changed(channels=4, classes=10, image_size=8, image_channels=1)
    made = []
    for number in range(2):
        torch.manual_seed(number)
        cell = NASBENCH201.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_1x1~2|")
        made.append(Model(NASBENCH201.build(cell, scale), "nasbench201", cell, scale, data.preprocessing))
    return Ensemble(tuple(made))


def test_each_round_attacks_another_member(art: None, ensemble: Ensemble) -> None:
    data = load_images("digits", seed=0)
    images = data.test.pixels(np.arange(40)).float() / 255
    with torch.no_grad():  # labels that each image has by the ensemble, so that the clean accuracy is 100 %
        labels = Unnormalised(ensemble.network, data.preprocessing)(images).argmax(1)
    found = attack_and_defend(ensemble, images, labels, "fgsm", eps=0.2)
    assert found.clean == 100
    assert len(found.attacked) == len(found.defended) == 2
    for number, member in enumerate(ensemble.members):
        alone = Unnormalised(member.network, data.preprocessing)
        changed = adversarial(alone, images, labels, 10, "fgsm", eps=0.2)
        with torch.no_grad():
            assert found.attacked[number] == pytest.approx(100 * (alone(changed).argmax(1) == labels).float().mean())
    assert found.summary()["attack"] == pytest.approx(np.mean(found.attacked))


@pytest.mark.parametrize(
    ("images", "attack", "eps", "message"),
    [
        (IMAGES * 255, "fgsm", 0.01, r"pixels in \[0, 1\].*before normalisation"),
        (IMAGES - 0.5, "fgsm", 0.01, r"pixels in \[0, 1\]"),
        (IMAGES[:0], "fgsm", 0.01, "got none"),
        (IMAGES, "fgms", 0.01, "Did you mean 'fgsm'"),
        (IMAGES, "fgsm", 0.0, "largest change"),
    ],
)
def test_bad_input(images: Tensor, attack: str, eps: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        adversarial(Linear(W, 0.0), images, torch.zeros(len(images)).long(), 2, attack, eps=eps)


def test_without_the_toolbox_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "art.estimators.classification", None)
    with pytest.raises(InputError, match=r"archwright\[robustness\]"):
        adversarial(Linear(W, 0.0), IMAGES, torch.zeros(3).long(), 2, "fgsm")
