"""A supernet made and trained: weights that all sub-networks share, moved every step by some that are drawn anew.

A method says which sub-networks are drawn and what they descend; making the supernet, the step and what a checkpoint
holds are the same for cells and for stages of blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.data.shards import Shard, taken
from archwright.numerics import autocast
from archwright.spaces.base import Scale
from archwright.spaces.mbconv import MbConv
from archwright.spaces.supernet_space import SupernetSpace
from archwright.supernets.base import Supernet
from archwright.supernets.elastic import ElasticSupernet
from archwright.training import BatchSource, Position, Stateful
from archwright.training.schedule import Schedule
from archwright.training.team import ALONE, Pass, Team

Draw = Callable[[Position, int, Shard], Any]
"""The choice of sub-networks for a step, so many images and their part of the batch, as the supernet takes it."""
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Logits (B, classes), images (B, C, H, W) and labels (B,) to the mean loss, a 0-d tensor."""
S = TypeVar("S", bound=nn.Module)


def new_supernet(
    space: SupernetSpace[Any], scale: Scale, *, seed: int, device: torch.device | str, **options: Any
) -> Supernet:
    """The space's supernet with the initial weights of ``seed``, on ``device``, channels last.

    Args:
        space: that it is of.
        scale: of the supernet.
        seed: of the weights; the caller's generator stays as it is.
        device: where it is put.
        options: further arguments of the space's ``supernet``.
    """
    supernet = _seeded(lambda: space.supernet(scale, **options), seed).to(device)
    return supernet.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def new_elastic_supernet(space: MbConv, *, seed: int, device: torch.device | str) -> ElasticSupernet:
    """An elastic supernet of ``space`` with the initial weights of ``seed``, on ``device``."""
    return _seeded(lambda: ElasticSupernet(space), seed).to(device)


def _seeded(make: Callable[[], S], seed: int) -> S:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def cross_entropy(logits: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy of the sub-networks; a :data:`Loss`.

    Args:
        logits: (B, classes).
        images: not looked at.
        labels: (B,).
    """
    return F.cross_entropy(logits, labels)


@dataclass
class SharedTraining:
    """The training of a supernet's weights by sub-networks that are drawn every step.

    Attributes:
        supernet: in training mode; called with images and a choice of sub-networks.
        batches: training images and labels.
        draw: the sub-networks of a step, a function of its position (and of torch's generator, seeded by it).
        optimizer: of the supernet's parameters.
        rate: learning rate at each step.
        loss: what is descended.
        clip: largest norm of the gradient; 0 for any.
        memory_format: of the images.
        team: who shares a batch; what is drawn by torch's generator is the same for all shards.
    """

    supernet: nn.Module
    batches: BatchSource
    draw: Draw
    optimizer: torch.optim.Optimizer
    rate: Schedule
    loss: Loss = cross_entropy
    clip: float = 0.0
    memory_format: torch.memory_format = torch.channels_last
    team: Team = ALONE

    @property
    def state(self) -> dict[str, Stateful]:
        """What a step changes."""
        return {"supernet": self.supernet, "optimizer": self.optimizer}

    def step(self, position: Position) -> Mapping[str, float | Tensor]:
        """One step; ``loss`` and ``accuracy`` (percent) of the drawn sub-networks on their batch.

        What no drawn sub-network uses keeps its weights and their momenta.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(position)
        self.optimizer.zero_grad(set_to_none=True)
        metrics = self.team.backward([self.supernet], lambda shard: self._pass(position, shard), apart=False)
        if self.clip:
            nn.utils.clip_grad_norm_(self.supernet.parameters(), self.clip)
        self.optimizer.step()
        return metrics

    def _pass(self, position: Position, shard: Shard) -> Pass:
        images, labels = taken(self.batches, position.epoch, position.step, shard)
        images = images.contiguous(memory_format=self.memory_format)
        with autocast(images.device):
            logits = self.supernet(images, self.draw(position, len(images), shard))
            loss = self.loss(logits, images, labels)
        return Pass(loss, len(labels), {"accuracy": 100 * (logits.argmax(1) == labels).float().mean()})
