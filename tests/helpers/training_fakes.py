"""Small stand-ins that the training tests share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from archwright.errors import Interrupted
from archwright.runs.stop import Stop


class FakeBatches:
    """Random images with labels that can be learnt from them, a function of (epoch, step)."""

    def __init__(self, steps: int = 4, size: int = 6, seed: int = 0) -> None:
        self.steps, self.size, self.seed = steps, size, seed

    def __len__(self) -> int:
        return self.steps

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(1000 * self.seed + 100 * epoch + step)
        images = torch.randn(self.size, 3, 8, 8, generator=generator)
        return images, images.mean(dim=(2, 3)).argmax(1)

    def __iter__(self):
        return (self.get(0, step) for step in range(self.steps))


class DigitBatches(FakeBatches):
    """scikit-learn's digits, (B, 1, 8, 8) in [0, 1]; every epoch in a new order; the last 360 images are left out."""

    def __init__(self, size: int = 32) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        self.images = torch.tensor(digits.images[:-360] / 16, dtype=torch.float32).unsqueeze(1)
        self.labels = torch.tensor(digits.target[:-360])
        super().__init__(len(self.labels) // size, size)

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        order = torch.randperm(len(self.labels), generator=torch.Generator().manual_seed(epoch))
        chosen = order[step * self.size : (step + 1) * self.size]
        return self.images[chosen], self.labels[chosen]


class ListBatches:
    """The given batches, the same in every epoch."""

    def __init__(self, *batches: tuple[Tensor, Tensor]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        return self.batches[step]

    def __iter__(self):
        return iter(self.batches)


def small_network(channels: int = 3, classes: int = 3, seed: int = 0) -> nn.Sequential:
    """A convolutional network with everything that makes resuming hard: dropout, batch norm, depth-wise kernels."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Conv2d(channels, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False), nn.Conv2d(8, 12, 1), nn.BatchNorm2d(12), nn.ReLU(),
            nn.Dropout(0.3), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(48, classes),
        )  # fmt: skip


class StopAfter(Stop):
    """Asks to stop from the n-th look on."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.left = looks

    @property
    def requested(self) -> bool:
        self.left -= 1
        return self.left < 0

    def check(self) -> None:
        if self.left < 0:
            raise Interrupted("stopped by the test")


def assert_same_network(one: nn.Module, other: nn.Module) -> None:
    """Bit for bit."""
    expected = other.state_dict()
    assert one.state_dict().keys() == expected.keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
