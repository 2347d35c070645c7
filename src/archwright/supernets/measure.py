"""How good the sub-networks of a trained supernet are, with shared weights: losses and hits on given images.

It serves both kinds. A *choice* is what the supernet takes beside the images: weights or 0/1 masks by decision for a
:class:`~archwright.supernets.cell.CellSupernet` (several operations an edge are allowed), a
:class:`~archwright.solvers.problem.StagedChoice` for an elastic one. Sub-networks run one after another: running
several elastic ones in one batch, grouped by configuration, saved at most 15 % and only below 128 images.

**Batch norm.** Shared weights have no statistics of one sub-network, so what a measurement normalises by is a policy,
and numbers of two policies must not be compared:

- :data:`BATCH`: the measured batch's own mean and variance. Nothing must be prepared, but an image's outcome depends
  on the images beside it: take batches of a hundred images or more, without order by class.
- :data:`RUNNING`: the averages that the supernet kept while all sub-networks were trained. Fast and independent of the
  batch; biased for a sub-network whose activations differ from the average one's. A supernet with
  ``statistics="batch"`` keeps none, and is refused.
- :func:`recalibrated`: for every sub-network its own averages over some training images, as a network cut out and
  recalibrated (:func:`archwright.training.recalibrate`) would have. Costs one more pass over those images each time.

Whatever the policy, the supernet's own statistics and modes are as before afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from archwright.errors import InputError
from archwright.numerics import autocast
from archwright.supernets.parallel import ParallelNorm

Batches = Iterable[tuple[Tensor, Tensor]]
"""Images (B, C, H, W) and labels (B,), the same ones whenever they are iterated over."""


@dataclass(frozen=True)
class Norms:
    """Batch-norm policy; see the module's text. ``images`` of ``batches`` recalibrate each sub-network."""

    policy: Literal["batch", "running", "recalibrated"]
    batches: Batches = ()
    images: int = 0


BATCH = Norms("batch")
RUNNING = Norms("running")


def recalibrated(batches: Batches, images: int) -> Norms:
    """Statistics of each sub-network over the first ``images`` of the training ``batches`` (whole batches)."""
    if images < 2:
        raise InputError("at least 2 training images to recalibrate on", str(images))
    return Norms("recalibrated", batches, images)


@dataclass(frozen=True)
class Outcome:
    """One sub-network on N images: cross entropy of each, (N,), and whether it was right, (N,)."""

    losses: NDArray[np.float64]
    correct: NDArray[np.bool_]

    @property
    def loss(self) -> float:
        """Mean cross entropy of the images."""
        return float(self.losses.mean())

    @property
    def accuracy(self) -> float:
        """Images that it was right of, in percent."""
        return 100 * float(self.correct.mean())


def measure_subnetwork(supernet: nn.Module, choice: Any, batches: Batches, norms: Norms) -> Outcome:
    """The outcome of one sub-network over one pass of ``batches``.

    Args:
        supernet: trained; left as it is.
        choice: of the sub-network, as the supernet takes it beside the images.
        batches: images and labels.
        norms: what batch norms go by.

    Example:
        >>> masks = supernet.one_hot(space.sample(rng))  # doctest: +SKIP
        >>> measure_subnetwork(supernet, masks, validation, BATCH).accuracy  # doctest: +SKIP
    """
    with torch.no_grad(), _normalising(supernet, choice, norms):
        parts = [_outcomes(supernet, choice, images, labels) for images, labels in batches]
    if not parts:
        raise InputError("at least one image to measure on", "none")
    losses, correct = zip(*parts, strict=True)
    return Outcome(np.concatenate(losses), np.concatenate(correct))


def predict(supernet: nn.Module, choice: Any, batches: Batches, norms: Norms) -> NDArray[np.float64]:
    """Class probabilities of one sub-network on all images, (N, classes).

    Args:
        supernet: trained; left as it is.
        choice: of the sub-network, as the supernet takes it beside the images.
        batches: images and labels, which do not matter here.
        norms: what batch norms go by.
    """
    with torch.no_grad(), _normalising(supernet, choice, norms):
        parts = [torch.softmax(_logits(supernet, choice, images).cpu().double(), dim=1) for images, _ in batches]
    if not parts:
        raise InputError("at least one image to predict", "none")
    return torch.cat(parts).numpy()


def _logits(supernet: nn.Module, choice: Any, images: Tensor) -> Tensor:
    """Of one sub-network, float32 (B, classes)."""
    with autocast(images.device):
        logits: Tensor = supernet(images.contiguous(memory_format=torch.channels_last), choice)
    return logits.float()


def _outcomes(
    supernet: nn.Module, choice: Any, images: Tensor, labels: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Cross entropy and hits of one batch, (B,) each."""
    logits = _logits(supernet, choice, images)
    losses = F.cross_entropy(logits, labels, reduction="none")
    return losses.cpu().numpy().astype(np.float64), (logits.argmax(1) == labels).cpu().numpy()


# --- batch norm ------------------------------------------------------------------------------------------------------

_Norm = _BatchNorm | ParallelNorm
_KEPT = ("running_mean", "running_var", "num_batches_tracked", "track_running_stats", "momentum")


@contextmanager
def _normalising(supernet: nn.Module, choice: Any, norms: Norms) -> Iterator[None]:
    """The supernet inside normalises as ``norms`` says; modes and statistics are put back."""
    layers = [module for module in supernet.modules() if isinstance(module, _Norm)]
    modes = [(module, module.training) for module in supernet.modules()]
    kept = [{name: getattr(layer, name) for name in _KEPT if hasattr(layer, name)} for layer in layers]
    try:
        supernet.eval()
        if norms.policy == "running":
            _need_statistics(layers)
        elif norms.policy == "batch":
            for layer in layers:
                if layer.running_mean is not None and layer.running_var is not None:
                    _move_statistics(layer, layer.running_mean.clone(), layer.running_var.clone())
        else:
            _recalibrate(supernet, choice, layers, norms)
        yield
    finally:
        for layer, attributes in zip(layers, kept, strict=True):
            for name, value in attributes.items():
                setattr(layer, name, value)
        for module, training in modes:
            module.training = training


def _need_statistics(layers: Sequence[_Norm]) -> None:
    if any(layer.running_mean is None for layer in layers):
        raise InputError(
            "a supernet that keeps running statistics for the batch-norm policy 'running'",
            "one that normalises by the batch's own",
            "Measure with the policy 'batch' or 'recalibrated'.",
        )


def _move_statistics(layer: _Norm, mean: Tensor, variance: Tensor) -> None:
    """Let ``layer`` normalise by the batch, and move ``mean`` and ``variance`` instead of its own statistics."""
    layer.running_mean, layer.running_var = mean, variance
    layer.training = True
    if isinstance(layer, _BatchNorm):
        layer.track_running_stats, layer.num_batches_tracked = True, None


def _recalibrate(supernet: nn.Module, choice: Any, layers: Sequence[_Norm], norms: Norms) -> None:
    """New statistics for the layers: the plain average over training batches, as seen by one sub-network."""
    device = next(supernet.parameters()).device
    for layer in layers:
        size = layer.num_features
        _move_statistics(layer, torch.zeros(size, device=device), torch.ones(size, device=device))
    seen = 0
    for number, (images, _) in enumerate(norms.batches):
        if seen >= norms.images:
            break
        for layer in layers:
            layer.momentum = 1 / (number + 1)  # a cumulative average
        _logits(supernet, choice, images)
        seen += len(images)
    if not seen:
        raise InputError("training images to recalibrate on", "none")
    for layer in layers:
        layer.training = False
