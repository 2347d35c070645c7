"""Relatives of first-order DARTS that mean to keep it from collapsing to skip connections.

    PC-DARTS      operations see 1/K of the channels, every edge has a weight of its own among those into its node, and
                  alpha stays put for the first part of the search (Xu et al., 2020)
    DrNAS         weights are drawn from Dirichlet distributions with learned concentrations (Chen et al., 2021)
    SmoothDARTS   the shared weights learn under alpha with a perturbation, random or adversarial (Chen and Hsieh, 2020)
    OLES          an operation whose gradients on D_t and D_v no longer point the same way stops learning (Jiang et al.,
                  2023): it is overfitting D_t that makes a skip connection look good on D_v

All four move alpha by grad_a L_v and w by grad_w L_t, one after the other, as DARTS-1 does. Which to take is in
docs/rarts.md, with what each ends at in the setting where DARTS-1 collapses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.methods.darts import (
    DifferentiableOptions,
    DifferentiableSearch,
    descend_weights,
    first_order_step,
    softmax,
    supernet_loss,
)
from archwright.search.method import Options
from archwright.spaces.cell_space import EdgeCell, VertexCell, as_cell_space
from archwright.supernets.base import Active, Supernet
from archwright.training import Position, Stateful, Step
from archwright.training.bilevel import Alphas, ArchitectureParameters, Batch, Problem, WeightCopy, losses

# --- PC-DARTS --------------------------------------------------------------------------------------------------------


class PcDartsOptions(DifferentiableOptions):
    """Options of PC-DARTS: partial channels, edge weights and warm-up."""

    partial_channels: int = Field(
        4, ge=1, description="number K: an operation of the supernet sees 1/K of the channels"
    )
    edge_weights: bool = Field(True, description="weigh the edges into a node by parameters of their own")
    warm_up: float = Field(
        0.3, ge=0, lt=1, description="part of the search, at its start, in which only the weights move"
    )


class PcDarts(DifferentiableSearch):
    """Partial channels, edge normalisation and a warm-up."""

    name = "pc-darts"
    passes = 2
    Options: ClassVar[type[Options]] = PcDartsOptions
    options: PcDartsOptions

    def check(self) -> None:
        """Also refuses spaces whose cells have no weighted edges, and channels that K does not divide."""
        super().check()
        _ = self.targets
        self.space.check_partial(self.supernet_scale.channels, self.options.partial_channels)

    @property
    def partial(self) -> int:
        """K, as the options say."""
        return self.options.partial_channels

    @cached_property
    def targets(self) -> dict[str, list[int]]:
        """The node that each row of a decision leads to."""
        found: dict[str, list[int]] = {}

        def note(pattern: EdgeCell | VertexCell, _inputs: int, _channels: int) -> nn.Module:
            if isinstance(pattern, VertexCell):
                raise InputError("a space with operations on edges for pc-darts", f"the space {self.space.name!r}")
            found[pattern.decision] = [target for _, target in pattern.edges]
            return nn.Identity()

        with torch.device("meta"):
            as_cell_space(self.space).skeleton(self.supernet_scale, note)
        return found

    def make_alpha(self) -> ArchitectureParameters:
        """With a number for every edge beside those of its operations."""
        alpha = super().make_alpha()
        if self.options.edge_weights:
            rng = self.context.rng("edges")
            for name, targets in self.targets.items():
                start = torch.from_numpy(1e-3 * rng.standard_normal(len(targets))).float()
                alpha.add(_edges(name), start.to(self.context.device.torch))
        return alpha

    def strengths(self, alphas: Alphas) -> Alphas:
        """Softmax over the operations of an edge times softmax over the edges into its node."""
        decisions = self.space.decisions
        found = softmax({name: alphas[name] for name in decisions})
        if self.options.edge_weights:
            for name, targets in self.targets.items():
                found[name] = found[name] * normalised_edges(alphas[_edges(name)], targets)[:, None]
        return found

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """Weights alone at first, then DARTS-1."""
        both, w, warm_up = first_order_step(problem, copies[0]), copies[0], self.options.warm_up

        def step(position: Position) -> Any:
            if position.progress >= warm_up:
                return both(position)
            loss = descend_weights(problem, w, position)
            return losses(loss, torch.zeros_like(loss))

        return step


def _edges(decision: str) -> str:
    return f"{decision} edges"


def normalised_edges(values: Tensor, targets: list[int]) -> Tensor:
    """Softmax of ``values`` (edges,) within the edges that have the same one of ``targets`` (edges,)."""
    same = torch.tensor([[a == b for b in targets] for a in targets], device=values.device)
    lowest = torch.finfo(values.dtype).min
    rows = torch.where(same, values[None, :], lowest).softmax(dim=1)
    return rows.diagonal()


# --- DrNAS -----------------------------------------------------------------------------------------------------------


class DrNasOptions(DifferentiableOptions):
    """Options of DrNAS: partial channels and the anchor."""

    partial_channels: int = Field(
        1, ge=1, description="number K: an operation of the supernet sees 1/K of the channels"
    )
    anchor: float = Field(
        1e-3, ge=0, description="weight of the squared distance of the Dirichlet concentrations from 1"
    )


class DrNas(DifferentiableSearch):
    """Every row of weights is a draw from Dirichlet(elu(alpha) + 1); the cell is read off the mean."""

    name = "drnas"
    passes = 2
    Options: ClassVar[type[Options]] = DrNasOptions
    options: DrNasOptions

    @property
    def partial(self) -> int:
        """K, as the options say."""
        return self.options.partial_channels

    def check(self) -> None:
        """Also refuses channels that K does not divide."""
        super().check()
        self.space.check_partial(self.supernet_scale.channels, self.options.partial_channels)

    def relax(self, alphas: Alphas, position: Position) -> tuple[Alphas, Active | None]:
        """A draw that gradients pass through."""
        drawn = {name: torch.distributions.Dirichlet(c).rsample() for name, c in concentrations(alphas).items()}
        return drawn, None

    def strengths(self, alphas: Alphas) -> Alphas:
        """The mean of the distribution."""
        return {name: c / c.sum(dim=-1, keepdim=True) for name, c in concentrations(alphas).items()}

    def objective(self, network: nn.Module, alphas: Alphas, batch: Batch, position: Position) -> Tensor:
        """With what keeps the concentrations near 1, where a draw is anything."""
        away = torch.stack([(c - 1).square().sum() for c in concentrations(alphas).values()]).sum()
        return super().objective(network, alphas, batch, position) + self.options.anchor * away

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """The step of first-order DARTS."""
        return first_order_step(problem, copies[0])


def concentrations(alphas: Alphas) -> Alphas:
    """elu(alpha) + 1, kept from 0."""
    return {name: (F.elu(value) + 1).clamp_min(1e-3) for name, value in alphas.items()}


# --- SmoothDARTS -----------------------------------------------------------------------------------------------------


class SmoothDartsOptions(DifferentiableOptions):
    """Options of SmoothDARTS: kind and size of the perturbation."""

    perturbation: Literal["random", "adversarial"] = Field(
        "random", description="change of the operations' weights: uniform (SDARTS-RS), or the worst found (SDARTS-ADV)"
    )
    epsilon: float = Field(0.3, gt=0, le=1, description="largest change of a weight at the end of the search")
    epsilon_start: float = Field(
        0.03, ge=0, le=1, description="largest change of a weight at the start of the search; it grows linearly"
    )
    attack_steps: int = Field(7, ge=1, description="steps of the adversarial perturbation")


class SmoothDarts(DifferentiableSearch):
    """Alpha moves as in DARTS-1; the weights learn for all architectures near it."""

    name = "smooth-darts"
    Options: ClassVar[type[Options]] = SmoothDartsOptions
    options: SmoothDartsOptions

    @property
    def passes(self) -> int:  # type: ignore[override]
        """2, and those of the attack."""
        return 2 + (self.options.attack_steps if self.options.perturbation == "adversarial" else 0)

    def check(self) -> None:
        """Also refuses a perturbation that shrinks."""
        o = self.options
        if o.epsilon_start > o.epsilon:
            raise InputError("--epsilon-start at most --epsilon", f"{o.epsilon_start} and {o.epsilon}")
        super().check()

    def reach(self, position: Position) -> float:
        """Epsilon at a position: it grows linearly over the search."""
        o = self.options
        return o.epsilon_start + (o.epsilon - o.epsilon_start) * position.progress

    def perturbed_objective(self, network: nn.Module, alphas: Alphas, batch: Batch, position: Position) -> Tensor:
        """The loss with weights off by at most epsilon, cut to be positive and of sum 1.

        Args:
            network: the supernet.
            alphas: architecture parameters (rows, choices) by decision.
            batch: images (B, C, H, W) and labels (B,).
            position: of the step; decides epsilon.
        """
        weights, reach = softmax(alphas), self.reach(position)
        if self.options.perturbation == "random":
            off = {name: torch.empty_like(value).uniform_(-reach, reach) for name, value in weights.items()}
        else:
            off = self._worst(network, weights, batch, reach)
        return supernet_loss(network, _moved(weights, off), batch, None)

    def _worst(self, network: nn.Module, weights: Alphas, batch: Batch, reach: float) -> Alphas:
        """A few steps up the loss by the sign of its gradient, within ``reach``."""
        fixed = {name: value.detach() for name, value in weights.items()}
        off = {name: torch.zeros_like(value) for name, value in fixed.items()}
        size = 2 * reach / self.options.attack_steps
        for _ in range(self.options.attack_steps):
            tried = {name: value.requires_grad_(True) for name, value in off.items()}
            loss = supernet_loss(network, _moved(fixed, tried), batch, None)
            uphill = torch.autograd.grad(loss, list(tried.values()), allow_unused=True, materialize_grads=True)
            off = {
                name: (value.detach() + size * gradient.sign()).clamp(-reach, reach)
                for (name, value), gradient in zip(tried.items(), uphill, strict=True)
            }
        return off

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """Alpha by L_v as it is, w by L_t under the perturbation."""
        w = copies[0]
        nearby = replace(problem, objective=self.perturbed_objective)

        def step(position: Position) -> dict[str, Tensor]:
            validation = problem.gradients(w.network, w.weights, "validation", position, "architecture")
            problem.architecture.descend(validation.architecture, position)
            return losses(descend_weights(nearby, w, position), validation.loss)

        return step


def _moved(weights: Alphas, off: Alphas) -> Alphas:
    """``weights + off``, cut at 0 and brought to sum 1 row by row."""
    found = {}
    for name, value in weights.items():
        cut = (value + off[name]).clamp_min(1e-6)
        found[name] = cut / cut.sum(dim=-1, keepdim=True)
    return found


# --- OLES ------------------------------------------------------------------------------------------------------------


class OlesOptions(DifferentiableOptions):
    """Options of OLES: when an operation stops."""

    agreement: float = Field(
        0.3,
        ge=-1,
        le=1,
        description="least mean cosine of an operation's gradients on both halves; it is stopped below it",
    )
    window: int = Field(20, ge=1, description="steps that the mean cosine of the gradients is taken over")


class Oles(DifferentiableSearch):
    """DARTS-1 in which operations stop learning one by one."""

    name = "oles"
    passes = 2
    Options: ClassVar[type[Options]] = OlesOptions
    options: OlesOptions

    def further_state(self, copies: list[WeightCopy]) -> dict[str, Stateful]:
        """Which operations have stopped."""
        network = copies[0].network
        assert isinstance(network, Supernet)
        self.stopped = StoppedOperations(network, copies[0].weights, self.options.agreement, self.options.window)
        self.stopped.to(self.context.device.torch)
        return {"stopped": self.stopped}

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """DARTS-1 with both gradients of the weights, and operations that stay as they are."""
        w, stopped = copies[0], self.stopped

        def step(position: Position) -> dict[str, Tensor]:
            validation = problem.gradients(w.network, w.weights, "validation", position, "both")
            problem.architecture.descend(validation.architecture, position)
            train = problem.gradients(w.network, w.weights, "train", position, "weights")
            stopped.compare(train.weights, validation.weights)
            with unmoved(stopped, w.weights):
                w.variable.descend(stopped.silenced(train.weights), position)
            return {**losses(train.loss, validation.loss), "stopped": stopped.off.float().mean()}

        return step


class StoppedOperations(nn.Module):
    """For every operation of every edge the agreement of its gradients, and whether it has stopped learning.

    Args:
        network: the supernet.
        weights: its parameters, in the order of all gradients.
        least: mean cosine under which an operation stops.
        window: steps between two looks.
    """

    off: Tensor
    total: Tensor
    count: Tensor

    def __init__(self, network: Supernet, weights: list[Tensor], least: float, window: int) -> None:
        super().__init__()
        self.least, self.window = least, window
        places = {id(weight): place for place, weight in enumerate(weights)}
        self.parts = [
            (places[id(weight)], rows, torch.tensor(numbers)) for weight, rows, numbers in network.operation_weights()
        ]
        size = 1 + max(int(numbers.max()) for _, _, numbers in self.parts) if self.parts else 0
        self.register_buffer("off", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("total", torch.zeros(size))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def compare(self, first: list[Tensor], second: list[Tensor]) -> None:
        """Add the cosine of both gradients of each operation; after ``window`` steps, stop those that disagree.

        Args:
            first: gradients of the weights on one half.
            second: those on the other, in the same order.
        """
        product, lengths = torch.zeros_like(self.total), torch.zeros(2, *self.total.shape).to(self.total)
        for place, rows, numbers in self.parts:
            a, b, own = first[place].reshape(rows, -1), second[place].reshape(rows, -1), numbers.to(self.off.device)
            product.index_add_(0, own, (a * b).sum(dim=1))
            lengths[0].index_add_(0, own, a.square().sum(dim=1))
            lengths[1].index_add_(0, own, b.square().sum(dim=1))
        self.total += product / lengths.prod(dim=0).sqrt().clamp_min(1e-12)
        self.count += 1
        if int(self.count) == self.window:
            self.off |= self.total / self.window < self.least
            self.total.zero_()
            self.count.zero_()

    def rows_off(self) -> Iterator[tuple[int, int, Tensor]]:
        """(place of a parameter, its rows, which of them are off) for parameters of operations that have stopped."""
        for place, rows, numbers in self.parts:
            off = self.off[numbers.to(self.off.device)]
            if bool(off.any()):
                yield place, rows, off

    def silenced(self, gradients: list[Tensor]) -> list[Tensor]:
        """The gradients with those of stopped operations at 0."""
        found = list(gradients)
        for place, rows, off in self.rows_off():
            kept = found[place].reshape(rows, -1).masked_fill(off[:, None], 0.0)
            found[place] = kept.reshape(found[place].shape)
        return found


@contextmanager
def unmoved(stopped: StoppedOperations, weights: list[Tensor]) -> Iterator[None]:
    """Inside, an optimiser may do what it likes (momentum, decay): stopped operations are as before afterwards.

    Args:
        stopped: which operations are.
        weights: of the supernet, in the order of ``stopped``.
    """
    kept = [(place, rows, off, weights[place].detach().clone()) for place, rows, off in stopped.rows_off()]
    yield
    with torch.no_grad():
        for place, rows, off, before in kept:
            now = weights[place]
            mixed = torch.where(off[:, None], before.reshape(rows, -1), now.reshape(rows, -1))
            now.copy_(mixed.reshape(now.shape))
