"""How good a network is, with a confidence interval; and the batch-norm statistics that answer depends on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from archwright.device import widest_float
from archwright.errors import DivergedError, InputError
from archwright.numerics import autocast
from archwright.training.plain import BatchSource

Z95 = 1.959963984540054
"""The 97.5 % point of the normal distribution."""


@dataclass(frozen=True)
class Accuracy:
    """Accuracy in percent on ``count`` images, its 95 % interval, and the mean cross entropy."""

    percent: float
    low: float
    high: float
    count: int
    loss: float

    def to_dict(self) -> dict[str, float]:
        """The fields as a dictionary, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.percent:.2f} % (95 % interval {self.low:.2f} to {self.high:.2f}, {self.count} images)"


def wilson_interval(correct: int, count: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a proportion, as fractions; unlike the normal one it holds near 0 and 1.

    Args:
        correct: number of successes.
        count: number of trials.
        z: quantile of the normal distribution; 1.96 for 95 %.
    """
    p, n = correct / count, count
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


@torch.no_grad()
def evaluate(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], *, device: torch.device | str = "cpu"
) -> Accuracy:
    """Accuracy of a network in eval mode over one pass of batches; the modes of its modules are put back.

    Args:
        network: moved to the device.
        batches: of images (B, C, H, W) and labels (B,).
        device: where it runs.
    """
    network.to(device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    wide = widest_float(torch.device(device))
    loss = torch.zeros((), dtype=wide, device=device)
    count = 0
    with _modes_kept(network):
        network.eval()
        for images, labels in batches:
            labels = labels.to(device, non_blocking=True)
            with autocast(torch.device(device)):
                logits = network(images.to(device, non_blocking=True)).float()
            correct += (logits.argmax(1) == labels).sum()
            loss += F.cross_entropy(logits, labels, reduction="sum").to(wide)
            count += len(labels)
    if count == 0:
        raise InputError("at least one image to evaluate on", "none")
    mean_loss = float(loss) / count
    if not math.isfinite(mean_loss):
        raise DivergedError(
            f"expected a finite loss in evaluation, got {mean_loss}: the network's weights have diverged."
        )
    low, high = wilson_interval(int(correct), count)
    return Accuracy(100 * int(correct) / count, 100 * low, 100 * high, count, mean_loss)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """What a network says of each of n images.

    Attributes:
        labels: the true classes, (n,).
        predicted: the likeliest classes, (n,).
        confidence: their probabilities, (n,).
    """

    labels: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float32]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Which images are classified right, (n,)."""
        return np.asarray(self.labels == self.predicted)


@torch.no_grad()
def outcomes(
    network: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], *, device: torch.device | str = "cpu"
) -> tuple[Accuracy, Outcomes]:
    """As :func:`evaluate`, with what the network says of every image.

    Args:
        network: moved to the device; from images (B, C, H, W) to logits (B, classes).
        batches: of images and labels (B,), in the order of the outcomes.
        device: where it runs.
    """
    labels, predicted, confidence = [], [], []

    def seen() -> Iterator[tuple[Tensor, Tensor]]:
        for images, truth in batches:
            labels.append(truth.cpu())
            yield images, truth

    def look(_module: nn.Module, _inputs: Any, logits: Tensor) -> None:
        most = torch.softmax(logits.float(), 1).max(1)
        confidence.append(most.values.cpu())
        predicted.append(most.indices.cpu())

    with network.register_forward_hook(look):
        accuracy = evaluate(network, seen(), device=device)
    return accuracy, Outcomes(*(torch.cat(one).numpy() for one in (labels, predicted, confidence)))


@torch.no_grad()
def recalibrate(network: nn.Module, batches: BatchSource, steps: int) -> None:
    """Replace batch-norm running statistics by their plain average over some training batches.

    Needed where the statistics belong to other weights: inherited, averaged, or cut out of a supernet. Only batch norm
    is in training mode: the statistics are those of the network without dropout or drop-path, as it will be used.

    Args:
        network: changed in place.
        batches: of images (B, C, H, W) and labels (B,).
        steps: number of batches, at least 1.
    """
    if steps < 1:
        raise InputError("at least one step of recalibration", str(steps))
    norms = [norm for norm in network.modules() if isinstance(norm, _BatchNorm) and norm.track_running_stats]
    if not norms:
        return
    device = next(tensor.device for tensor in network.state_dict().values())
    momenta = [norm.momentum for norm in norms]
    with _modes_kept(network):
        network.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # torch's sign for a cumulative average
            norm.train()
        try:
            for index in range(steps):
                images, _ = batches.get(*divmod(index, len(batches)))
                with autocast(device):
                    network(images.to(device, non_blocking=True))
        finally:
            for norm, momentum in zip(norms, momenta, strict=True):
                norm.momentum = momentum


@contextmanager
def _modes_kept(network: nn.Module) -> Iterator[None]:
    """Put every module back into the mode, training or eval, that it had."""
    modes = [(module, module.training) for module in network.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
