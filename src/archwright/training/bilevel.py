"""The pieces that every differentiable search is put together from: losses on two halves, gradients, descent.

A search moves weights w (one copy or two) and architecture parameters alpha by the losses L_t on the half D_t and L_v
on the half D_v of the training images. What is differentiated decides what a pass costs: architecture parameters that
take no gradient are detached before the forward pass, and weights that take none are left out of the backward pass.
Nothing here knows a supernet: a network is any module the objective understands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from archwright.data.shards import WHOLE, Shard, taken
from archwright.numerics import autocast, gradients
from archwright.training import BatchSource, Position
from archwright.training.schedule import Schedule
from archwright.training.team import ALONE, Team

Alphas: TypeAlias = dict[str, Tensor]
Batch: TypeAlias = tuple[Tensor, Tensor]
Objective: TypeAlias = Callable[[nn.Module, Alphas, Batch, Position], Tensor]
"""Mean loss of a network with these architecture parameters on a batch; a 0-d tensor."""

Half: TypeAlias = Literal["train", "validation"]


class ArchitectureParameters(nn.Module):
    """alpha: one trainable tensor for each decision."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        super().__init__()
        self.names: list[str] = []
        self.tensors = nn.ParameterList()  # by number: torch forbids dots and some words in names
        for name, value in values.items():
            self.add(name, value)

    def add(self, name: str, value: Tensor) -> None:
        """One more tensor ``value``, of the decision ``name``."""
        self.names.append(name)
        self.tensors.append(nn.Parameter(value))

    def get(self, *, detached: bool) -> Alphas:
        """The tensors by decision, with or without their part in the graph."""
        both = zip(self.names, self.tensors, strict=True)
        return {name: value.detach() if detached else value for name, value in both}


@dataclass
class Variable:
    """Parameters that one optimiser moves by a schedule of their own; ``clip`` bounds the gradient's norm (0: off)."""

    parameters: list[Tensor]
    optimizer: torch.optim.Optimizer
    schedule: Schedule
    clip: float = 0.0

    def rate(self, position: Position) -> float:
        """Learning rate at ``position``."""
        return self.schedule(position)

    def descend(self, gradients: Sequence[Tensor], position: Position) -> None:
        """One step of the optimiser along ``gradients``, one for each parameter, at the rate of ``position``."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(position)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        if self.clip > 0:
            nn.utils.clip_grad_norm_(self.parameters, self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


@dataclass
class WeightCopy:
    """A network and what moves its weights."""

    network: nn.Module
    variable: Variable

    @property
    def weights(self) -> list[Tensor]:
        """The trainable weights, in the order of every gradient."""
        return self.variable.parameters


@dataclass(frozen=True)
class Gradients:
    """Loss of one pass and its gradients; an empty list where none was asked for."""

    loss: Tensor
    weights: list[Tensor]
    architecture: list[Tensor]


@dataclass
class Problem:
    """The two losses. ``passes`` counts forward-backward passes.

    Attributes:
        objective: the loss of a network on a batch.
        train: batches of D_t.
        validation: batches of D_v.
        architecture: alpha and what moves it.
        team: who shares the batches; an architecture that is drawn is the same for all shards.
    """

    objective: Objective
    train: BatchSource
    validation: BatchSource
    alpha: ArchitectureParameters
    architecture: Variable
    passes: int = 0
    team: Team = ALONE
    _last: dict[tuple[Half, Shard], tuple[int, Batch]] = field(default_factory=dict)

    def batch(self, half: Half, position: Position, shard: Shard = WHOLE) -> Batch:
        """The batch of a half; made once for all passes of a step.

        Args:
            half: train or validation.
            position: of the step.
            shard: which part of the batch.
        """
        index, batch = self._last.get((half, shard), (-1, None))
        if batch is None or index != position.index:
            source = self.train if half == "train" else self.validation
            batch = taken(source, position.epoch, position.step, shard)
            self._last[half, shard] = position.index, batch
        return batch

    def gradients(
        self, network: nn.Module, weights: Sequence[Tensor], half: Half, position: Position, wrt: str
    ) -> Gradients:
        """One pass on the position's batch of a half.

        Args:
            network: the copy that is run.
            weights: those of its weights that are asked for.
            half: train or validation.
            position: of the step.
            wrt: ``weights``, ``architecture`` or ``both``; what is not asked for is empty.
        """
        self.passes += 1
        alphas = self.alpha.get(detached=wrt == "weights")
        asked = [] if wrt == "architecture" else list(weights)
        count = len(asked)
        asked += [] if wrt == "weights" else list(self.architecture.parameters)

        def one(shard: Shard) -> tuple[int, list[Tensor]]:
            batch = self.batch(half, position, shard)
            with autocast(batch[0].device):
                loss = self.objective(network, alphas, batch, position)
            found = gradients(loss, asked)
            return len(batch[1]), [loss.detach(), *found]

        loss, *found = self.team.mean([network], one, apart=False)
        return Gradients(loss, found[:count], found[count:])

    def mixed_product(
        self, network: nn.Module, weights: Sequence[Tensor], half: Half, position: Position, vector: Sequence[Tensor]
    ) -> list[Tensor]:
        """d/da <grad_w L(w, a), vector>, one tensor a decision: a pass that is differentiated twice, counted as two.

        Args:
            network: the copy that is run.
            weights: w, in the order of ``vector``.
            half: train or validation.
            position: of the step.
            vector: one tensor a weight, of its shape.
        """
        self.passes += 2
        parameters = list(self.architecture.parameters)

        def one(shard: Shard) -> tuple[int, list[Tensor]]:
            batch = self.batch(half, position, shard)
            with autocast(batch[0].device):
                loss = self.objective(network, self.alpha.get(detached=False), batch, position)
            downhill = gradients(loss, weights, create_graph=True)
            along = torch.stack([(g * v).sum() for g, v in zip(downhill, vector, strict=True)]).sum()
            found = torch.autograd.grad(along, parameters, allow_unused=True, materialize_grads=True)
            return len(batch[1]), list(found)

        return self.team.mean([network], one, apart=False)


def losses(train: Tensor, validation: Tensor) -> dict[str, Tensor]:
    """A step's metrics from its ``train`` and ``validation`` losses; the loop watches ``loss``, their sum."""
    return {"loss": train + validation, "train_loss": train, "validation_loss": validation}


def norm(tensors: Sequence[Tensor]) -> Tensor:
    """Euclidean norm of all entries together."""
    total: Tensor = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(list(tensors))))
    return total


def sums(first: Sequence[Tensor], second: Sequence[Tensor], factor: float = 1.0) -> list[Tensor]:
    """``first + factor * second``, tensor by tensor."""
    return list(torch._foreach_add(list(first), list(second), alpha=factor))
