"""Networks that come with weights, for tests of thinning: a small one that knows the digits, and broken ones."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MEAN, STD = (0.25,), (0.5,)


def _body(classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(64, classes),
    )


@lru_cache(maxsize=1)
def _state() -> dict[str, Tensor]:
    """After two hundred steps on the digits that a search with seed 0 trains on."""
    from archwright.data import load

    with torch.random.fork_rng():
        torch.manual_seed(0)
        network, data = _body(10), load("digits")
        pixels = data.train.pixels(torch.arange(len(data.train)).numpy()).float() / 255
        images, labels = (pixels - MEAN[0]) / STD[0], torch.from_numpy(data.train.labels).long()
        adam = torch.optim.Adam(network.parameters(), lr=5e-3)
        for _ in range(200):
            chosen = torch.randint(len(images), (64,))
            loss = F.cross_entropy(network(images[chosen]), labels[chosen])
            adam.zero_grad()
            loss.backward()
            adam.step()
    return network.state_dict()


def learned(classes: int) -> nn.Module:
    """Knows the digits, and says how it wants to see them."""
    network = _body(classes)
    network.load_state_dict(_state())
    network.preprocessing = {"mean": MEAN, "std": STD}  # type: ignore[assignment]
    return network


def ignorant(classes: int) -> nn.Module:
    """Always the same weights, which know nothing."""
    network = _body(classes)
    with torch.no_grad():
        for number, weight in enumerate(network.parameters()):
            weight.copy_(torch.linspace(-0.1, 0.1, weight.numel()).roll(number).view(weight.shape))
    return network


def not_finite(classes: int) -> nn.Module:
    """A weight that is no number."""
    network = learned(classes)
    with torch.no_grad():
        network[2].weight[0] = torch.nan  # type: ignore[index]
    return network


def scripted(classes: int) -> nn.Module:
    """Compiled."""
    made: nn.Module = torch.jit.script(_body(classes))
    return made


def odd_words(classes: int) -> nn.Module:
    """Says something of its images that nobody knows."""
    network = _body(classes)
    network.preprocessing = {"colour": "blue"}  # type: ignore[assignment]
    return network


class HalfMixing(nn.Module):
    """One group that can go, and one that runs through a softmax over channels."""

    def __init__(self, classes: int, image_channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(image_channels, 4, 3), nn.Conv2d(4, 8, 3)
        self.mixed, self.classifier = nn.Conv2d(8, 6, 1), nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits."""
        x = self.mixed(F.relu(self.second(self.first(x))))
        logits: Tensor = self.classifier(torch.softmax(x, dim=1).mean((2, 3)))
        return logits


def half_mixing(classes: int, image_channels: int) -> Any:
    """Made anew each time."""
    return HalfMixing(classes, image_channels)
