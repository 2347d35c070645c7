"""Networks of a user's own, for tests of thinning."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Tangled(nn.Module):
    """Everything that ties channels: a residual sum, a grouped and a depth-wise convolution, a concatenation."""

    def __init__(self, classes: int, image_channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(image_channels, 4, 3, padding=1)
        self.widen = nn.Conv2d(4, 8, 1)
        self.conv1, self.norm1 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.grouped = nn.Conv2d(8, 12, 3, padding=1, groups=4)
        self.conv2 = nn.Conv2d(12, 8, 1)
        self.left, self.right = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 4, 1)
        self.deep = nn.Conv2d(10, 10, 3, padding=1, groups=10)
        self.last = nn.Conv2d(10, 7, 1)
        self.classifier = nn.Linear(7 * 4, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.widen(F.relu(self.stem(x)))
        x = x + self.conv2(F.silu(self.grouped(F.relu(self.norm1(self.conv1(x))))))
        x = torch.cat([self.left(x), self.right(x)], dim=1)
        x = F.adaptive_avg_pool2d(F.gelu(self.last(self.deep(x))), 2)
        return self.classifier(x.flatten(1))


def make(classes: int, image_channels: int) -> nn.Module:
    return Tangled(classes, image_channels)


def plain(classes: int, image_channels: int) -> nn.Module:
    """No batch norm anywhere."""
    return nn.Sequential(
        nn.Conv2d(image_channels, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, classes),
    )


def one_layer(classes: int, image_channels: int) -> nn.Module:
    """Nothing between the first layer and the classifier."""
    return nn.Sequential(nn.Conv2d(image_channels, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))


class Cut(nn.Module):
    """No gradient comes back through its middle."""

    def __init__(self, classes: int, image_channels: int) -> None:
        super().__init__()
        self.first, self.middle = nn.Conv2d(image_channels, 4, 3), nn.Conv2d(4, 4, 3)
        self.classifier = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.middle(self.first(x)).detach().mean((2, 3)))


class Failing(nn.Module):
    """Its second layer has the wrong number of inputs."""

    def __init__(self, image_channels: int) -> None:
        super().__init__()
        self.first, self.wrong = nn.Conv2d(image_channels, 4, 3), nn.Conv2d(5, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.wrong(self.first(x))


class Mixing(nn.Module):
    """A softmax over channels: a removed channel changes the others."""

    def __init__(self, classes: int, image_channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(image_channels, 4, 3), nn.Conv2d(4, 6, 3)
        self.classifier = nn.Linear(6, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.softmax(self.second(self.first(x)), dim=1).mean((2, 3)))


def no_network() -> str:
    return "not a module"


def three_outputs() -> nn.Module:
    return plain(3, 1)


class HalfNoise(nn.Module):
    """Of eight channels the second half is noise, whatever the image shows: frozen layers pick what they hold."""

    def __init__(self, classes: int, image_channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(image_channels, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.signal, self.noise = (nn.Conv2d(8, 8, 1, groups=8, bias=False).requires_grad_(False) for _ in range(2))
        with torch.no_grad():
            self.signal.weight[:, 0, 0, 0] = torch.tensor([1.0] * 4 + [0.0] * 4)
            self.noise.weight[:, 0, 0, 0] = torch.tensor([0.0] * 4 + [1.0] * 4)
        self.classifier = nn.Linear(8 * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(F.relu(self.first(x)))
        noise = torch.randn_like(x) if self.training else torch.zeros_like(x)
        x = self.signal(x) + self.noise(noise)
        return self.classifier(F.adaptive_avg_pool2d(F.relu(x), 4).flatten(1))
