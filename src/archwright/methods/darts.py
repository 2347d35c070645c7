"""The differentiable family on the cell supernet: DARTS (first and second order), MiLeNAS, GDAS and SNAS.

All of them give every operation a weight, a function of alpha, and learn alpha by gradients beside the shared weights.
The training images are divided by the seed into equal halves D_t and D_v; the validation and test parts of the data are
never looked at. They differ in one step (passes = forward and backward through the supernet):

    DARTS-1   alpha by grad_a L_v(w, a);                          w by grad_w L_t(w, a)          2 passes
    DARTS-2   alpha by grad_a L_v(w - xi grad_w L_t(w, a), a);    w as above                     5 passes
    MiLeNAS   w as above; then alpha by grad_a L_t + grad_a L_v at the new w  (eq. 3)            3 passes
    GDAS      as DARTS-1, on one hard Gumbel sample of which only the selected operations run    2 cheap passes
    SNAS      w and alpha together by grad (L_t + L_v)/2 on a soft Gumbel sample                 2 passes

RARTS, with two copies of the weights, is in :mod:`archwright.methods.rarts`; PC-DARTS, DrNAS, SmoothDARTS and OLES,
which change what DARTS-1 puts on the decisions or lets move, in :mod:`archwright.methods.darts_cures`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.methods.gradients import EnoughError, GradientOptions, GradientSearch
from archwright.search.configuration import AbsolutePath
from archwright.search.method import Options
from archwright.search.values import Choice
from archwright.spaces.base import Scale
from archwright.spaces.operations import Cost
from archwright.spaces.supernet_space import Masks, SupernetSpace, as_supernet_space
from archwright.supernets.base import Active, Supernet
from archwright.supernets.files import FILE_NAME, load_supernet, save_supernet, supernet_of
from archwright.supernets.train import new_supernet
from archwright.training import Position, Step
from archwright.training.bilevel import (
    Alphas,
    ArchitectureParameters,
    Batch,
    Gradients,
    Problem,
    WeightCopy,
    losses,
    norm,
    sums,
)
from archwright.training.diagnostics import cell_state, collapse_warning, plot_diagnostics

DIAGNOSED_IMAGES, DIAGNOSED_SHARE = 256, 8
"""Images of each half on which the diagnostics of an epoch are computed: so many at most, and of a half of few images
only one in so many, but a batch at least, as they would take longer than the epoch."""


class DifferentiableOptions(GradientOptions):
    """Options of every search on the cell supernet."""

    supernet_channels: int | None = Field(
        None, ge=2, description="channels of the supernet; by default as the final network"
    )
    supernet_cells: int | None = Field(None, ge=1, description="cells of the supernet; by default as the final network")
    supernet: AbsolutePath | None = Field(
        None, description="run folder of a search whose supernet this one starts from"
    )
    selection: Literal["strength", "perturbation", "perturbation-soft"] = Field(
        "strength",
        description="how the cell is read off: by the largest weights, or by what the network misses most; a settled "
        "edge is then its one operation (as published), or keeps that operation's weight (soft)",
    )
    stop_skips: float | None = Field(
        None, gt=0, le=1, description="end the search when this share of a cell's edges prefers a skip connection"
    )


class DartsOptions(DifferentiableOptions):
    """Options of DARTS: its order, and how the second one is computed."""

    order: Literal[1, 2] = Field(1, description="order of the architecture's gradient: first or second")
    xi: float | None = Field(
        None, gt=0, description="step of the look-ahead (--order 2); by default the weights' learning rate"
    )
    product: Literal["difference", "exact"] = Field(
        "difference", description="second-order term (--order 2): by a finite difference, as published, or exact"
    )


class GumbelOptions(DifferentiableOptions):
    """Options of searches that sample."""

    temperature: float = Field(10.0, gt=0, description="temperature of the Gumbel softmax at the start")
    temperature_min: float = Field(
        0.1, gt=0, description="temperature of the Gumbel softmax at the end; it falls linearly"
    )


# --- steps -----------------------------------------------------------------------------------------------------------


def descend_weights(problem: Problem, w: WeightCopy, position: Position) -> Tensor:
    """Move ``w`` by grad_w L_t on the batch of ``problem`` at ``position``; returns the loss."""
    train = problem.gradients(w.network, w.weights, "train", position, "weights")
    w.variable.descend(train.weights, position)
    return train.loss


def first_order_step(problem: Problem, w: WeightCopy) -> Step:
    """Move alpha by grad_a L_v(w, a), then w by grad_w L_t(w, a).

    Args:
        problem: both halves of the images, and alpha.
        w: the weights.
    """

    def step(position: Position) -> dict[str, Tensor]:
        validation = problem.gradients(w.network, w.weights, "validation", position, "architecture")
        problem.architecture.descend(validation.architecture, position)
        return losses(descend_weights(problem, w, position), validation.loss)

    return step


def second_order_step(problem: Problem, w: WeightCopy, xi: float | None, exact: bool = False) -> Step:
    """Move alpha by the gradient through one look-ahead step of the weights, then w by grad_w L_t(w, a).

    Args:
        problem: both halves of the images, and alpha.
        w: the weights.
        xi: step of the look-ahead; None is the weights' learning rate.
        exact: differentiate twice instead of taking a finite difference.
    """

    def step(position: Position) -> dict[str, Tensor]:
        ahead = w.variable.rate(position) if xi is None else xi
        find = exact_look_ahead_gradient if exact else look_ahead_gradient
        loss, gradient = find(problem, w, position, ahead)
        problem.architecture.descend(gradient, position)
        return losses(descend_weights(problem, w, position), loss)

    return step


def look_ahead_gradient(
    problem: Problem, w: WeightCopy, position: Position, xi: float, finite: float = 0.01
) -> tuple[Tensor, list[Tensor]]:
    """L_v and its gradient by alpha at w' = w - xi grad_w L_t(w, a), w' taken as a function of alpha.

    d/da L_v(w'(a), a) = grad_a L_v(w', a) - xi H v with v = grad_w' L_v and H = d^2 L_t / da dw; the product is the
    central difference (grad_a L_t(w + e v, a) - grad_a L_t(w - e v, a)) / 2e with e = ``finite`` / |v|. The look-ahead
    is plain gradient descent, without the optimiser's momentum and weight decay. Leaves w as it was.

    The difference crosses kinks of ReLUs and max-pools: in float64 on a supernet it can be off by more than the whole
    term; :func:`exact_look_ahead_gradient` is not.

    Args:
        problem: both halves of the images, and alpha.
        w: the weights.
        position: whose batches are used.
        xi: step of the look-ahead.
        finite: length of the difference.
    """
    weights = w.weights
    before, validation = _look_ahead(problem, w, position, xi)
    e = float(finite / norm(validation.weights).clamp_min(1e-12))
    sides = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            torch._foreach_copy_(weights, before)
            torch._foreach_add_(weights, validation.weights, alpha=sign * e)
        sides.append(problem.gradients(w.network, weights, "train", position, "architecture").architecture)
    with torch.no_grad():
        torch._foreach_copy_(weights, before)
    product = torch._foreach_div(sums(sides[0], sides[1], -1.0), 2 * e)
    return validation.loss, sums(validation.architecture, product, -xi)


def exact_look_ahead_gradient(
    problem: Problem, w: WeightCopy, position: Position, xi: float
) -> tuple[Tensor, list[Tensor]]:
    """As :func:`look_ahead_gradient`, with H v = grad_a <grad_w L_t(w, a), v> by differentiating twice.

    Args:
        problem: both halves of the images, and alpha.
        w: the weights.
        position: whose batches are used.
        xi: step of the look-ahead.
    """
    weights = w.weights
    before, validation = _look_ahead(problem, w, position, xi)
    with torch.no_grad():
        torch._foreach_copy_(weights, before)
    product = problem.mixed_product(w.network, weights, "train", position, validation.weights)
    return validation.loss, sums(validation.architecture, product, -xi)


def _look_ahead(problem: Problem, w: WeightCopy, position: Position, xi: float) -> tuple[list[Tensor], Gradients]:
    """Move w to w' = w - xi grad_w L_t(w, a); the weights before, and L_v with its gradients at w'."""
    train = problem.gradients(w.network, w.weights, "train", position, "weights")
    with torch.no_grad():
        before = [weight.clone() for weight in w.weights]
        torch._foreach_add_(w.weights, train.weights, alpha=-xi)
    return before, problem.gradients(w.network, w.weights, "validation", position, "both")


def mixed_level_step(problem: Problem, w: WeightCopy) -> Step:
    """MiLeNAS, eq. (3): w by grad_w L_t(w, a), then alpha by grad_a L_t + grad_a L_v at the new w.

    Args:
        problem: both halves of the images, and alpha.
        w: the weights.
    """

    def step(position: Position) -> dict[str, Tensor]:
        descend_weights(problem, w, position)
        train = problem.gradients(w.network, w.weights, "train", position, "architecture")
        validation = problem.gradients(w.network, w.weights, "validation", position, "architecture")
        problem.architecture.descend(sums(train.architecture, validation.architecture), position)
        return losses(train.loss, validation.loss)

    return step


def joint_step(problem: Problem, w: WeightCopy) -> Step:
    """SNAS: ``w`` and the alpha of ``problem`` at once by the mean of both losses."""

    def step(position: Position) -> dict[str, Tensor]:
        train = problem.gradients(w.network, w.weights, "train", position, "both")
        validation = problem.gradients(w.network, w.weights, "validation", position, "both")
        w.variable.descend(list(torch._foreach_div(sums(train.weights, validation.weights), 2)), position)
        problem.architecture.descend(
            list(torch._foreach_div(sums(train.architecture, validation.architecture), 2)), position
        )
        return losses(train.loss, validation.loss)

    return step


# --- the search ------------------------------------------------------------------------------------------------------


class Derived(Choice):
    """The choice, the weights (slots, choices) of each decision at the end, and what the cells are like."""

    weights: dict[str, list[list[float]]]
    cells: dict[str, Any]


class DifferentiableSearch(GradientSearch):
    """A gradient search on the cell supernet; subclasses give their step and how alpha weighs the operations."""

    resources = ()
    Options: ClassVar[type[Options]] = DifferentiableOptions
    options: DifferentiableOptions

    # What a subclass may change.

    def relax(self, alphas: Alphas, position: Position) -> tuple[Alphas, Active | None]:
        """Weights of the operations and, where not all of them run, which do.

        Args:
            alphas: architecture parameters (rows, choices) by decision.
            position: of the step, for what is drawn or annealed.
        """
        return self.strengths(alphas), None

    def strengths(self, alphas: Alphas) -> Alphas:
        """What the cell is read off, without sampling: weights (rows, choices) of every decision."""
        return softmax(alphas)

    @property
    def partial(self) -> int:
        """K of partial channels."""
        return 1

    # The rest is common.

    def check(self) -> None:
        """Also refuses what a supernet's search cannot have."""
        if self.context.configuration.data is None:
            raise InputError(f"images (--data) for the method {self.name!r}", "none")
        super().check()
        self.space.check_scale(self.supernet_scale)
        self.halves()
        if self.options.supernet is not None:
            self.make_network()

    @property
    def space(self) -> SupernetSpace[Any]:
        """The space; one without a supernet is refused."""
        return as_supernet_space(self.context.task.space)

    def largest(self) -> Cost | None:
        """The supernet, which has every operation everywhere."""
        return self.space.supernet_cost(self.supernet_scale)

    @property
    def supernet_scale(self) -> Scale:
        """Scale of the supernet, which the final network's need not be."""
        o = self.options
        final = self.context.task.scale.changed(channels=o.supernet_channels, cells=o.supernet_cells)
        return self.space.supernet_scale(final)

    def make_network(self) -> Supernet:
        """The supernet, from the weights of another run where asked."""
        seed, device = int(self.context.rng("supernet").integers(2**31)), self.context.device.torch
        network = new_supernet(self.space, self.supernet_scale, seed=seed, device=device, partial=self.partial)
        if self.options.supernet is not None:
            load_supernet(supernet_of(self.options.supernet), network, self.context.task.data.fingerprint)
        return network

    def make_alpha(self) -> ArchitectureParameters:
        """Small random numbers of the shapes of the space's decisions."""
        rng = self.context.rng("alpha")
        values = {
            name: torch.from_numpy(1e-3 * rng.standard_normal(shape)).float().to(self.context.device.torch)
            for name, shape in self.space.decisions.items()
        }
        return ArchitectureParameters(values)

    def objective(self, network: nn.Module, alphas: Alphas, batch: Batch, position: Position) -> Tensor:
        """Cross entropy of the relaxed supernet."""
        weights, active = self.relax(alphas, position)
        return supernet_loss(network, weights, batch, active)

    def ended(self, problem: Problem, copies: list[WeightCopy]) -> Derived:
        """Save the supernet and read the cells off the weights."""
        context, o = self.context, self.options
        trained = copies[0].network
        assert isinstance(trained, Supernet)
        save_supernet(trained, context.task.data.fingerprint, context.run.artifact(FILE_NAME))
        records = self.records()
        plot_diagnostics(records, context.run.artifact("diagnostics.png"))
        strengths = self.strengths(problem.alpha.get(detached=True))
        weights = {name: value.cpu().numpy() for name, value in strengths.items()}
        scores = weights if o.selection == "strength" else self._perturbed(strengths, copies[0])
        return Derived(
            architecture=str(self.space.derive(scores)),
            accuracy=None,
            accuracy_on="nothing: the search sees losses of the supernet",
            evaluations=0,
            weights={name: np.round(value, 6).tolist() for name, value in weights.items()},
            cells=records[-1]["cells"],
        )

    def _perturbed(self, weights: Alphas, w: WeightCopy) -> Any:
        """Scores by perturbation, from the loss of the trained supernet on D_v."""
        projects = self.options.selection == "perturbation"
        batches = self.batches(self.halves()[1], DIAGNOSED_IMAGES, 1, shuffled=False)

        def loss_of(on: Masks) -> float:
            put = projected(weights, on, self.space.operation_decisions) if projects else weights
            with torch.no_grad():
                values = [supernet_loss(w.network, put, batches.get(0, s), on) for s in range(len(batches))]
            return float(torch.stack(values).mean())

        return self.space.perturbation_scores(loss_of, self.context.rng("perturbation"))

    def fixed_problem(self, problem: Problem) -> Problem:
        """The same losses on one fixed batch of each half, without augmentation and sampling."""
        halves = self.halves()
        count = min(DIAGNOSED_IMAGES, max(self.half_batch, len(halves[0]) // DIAGNOSED_SHARE))
        train, validation = (
            self.batches(half[:count], count, number, shuffled=False) for number, half in enumerate(halves)
        )

        def objective(network: nn.Module, alphas: Alphas, batch: Batch, _position: Position) -> Tensor:
            return supernet_loss(network, self.strengths(alphas), batch, None)

        return Problem(objective, train, validation, problem.alpha, problem.architecture)

    def watch(self, epoch: int, metrics: dict[str, float], problem: Problem, copies: list[WeightCopy]) -> None:
        """Write the diagnostics into the run's events and warn of a collapse."""
        context = self.context
        cells = cell_state(self.space, self.strengths(problem.alpha.get(detached=True)))
        found = {**metrics, **self.diagnose(self.fixed_problem(problem), copies), "cells": cells}
        before = next((one["cells"] for one in self.records() if one["epoch"] == epoch - 1), None)
        context.run.on_epoch("search")(epoch, found)
        warning = collapse_warning(before, cells, epoch)
        if warning:
            context.progress.warn(warning)
            context.run.event("warning", epoch=epoch, text=warning)
        limit, share = self.options.stop_skips, max(state.get("skip_share", 0.0) for state in cells.values())
        if limit is not None and share >= limit:
            raise EnoughError(f"The search ends here: {share:.0%} of a cell's edges prefer a skip connection.")


def projected(weights: Alphas, on: Masks, decisions: list[str]) -> Alphas:
    """The weights with every edge that has one operation left on as that operation alone, with weight 1.

    Args:
        weights: of the operations, (edges, operations) by decision.
        on: which operations are left, as booleans of the same shapes.
        decisions: names of those that are projected.
    """
    found = dict(weights)
    for name in decisions:
        mask = torch.from_numpy(on[name]).to(weights[name])
        found[name] = torch.where(mask.sum(dim=1, keepdim=True) == 1, mask, weights[name])
    return found


def softmax(alphas: Alphas) -> Alphas:
    """The softmax of every row of architecture parameters."""
    return {name: value.softmax(dim=-1) for name, value in alphas.items()}


def supernet_loss(network: nn.Module, weights: Alphas, batch: Batch, active: Active | None) -> Tensor:
    """Cross entropy of a supernet.

    Args:
        network: the supernet.
        weights: of the operations, (rows, choices) by decision.
        batch: images (B, C, H, W) and labels (B,).
        active: which operations run; None for all.
    """
    images, labels = batch
    logits = network(images.contiguous(memory_format=torch.channels_last), weights, active)
    return F.cross_entropy(logits, labels)


class Darts(DifferentiableSearch):
    """First- or second-order DARTS."""

    name = "darts"
    Options: ClassVar[type[Options]] = DartsOptions
    options: DartsOptions

    @property
    def passes(self) -> int:  # type: ignore[override]
        """2 of the first order, 5 of the second."""
        return 2 if self.options.order == 1 else 5

    def check(self) -> None:
        """Also refuses settings of the second order beside the first."""
        o = self.options
        if o.order == 1 and (o.xi is not None or o.product != "difference"):
            raise InputError("--order 2 beside --xi or --product", "--order 1")
        super().check()

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """The step of the order that is asked for."""
        if self.options.order == 1:
            return first_order_step(problem, copies[0])
        return second_order_step(problem, copies[0], self.options.xi, self.options.product == "exact")


class MiLeNas(DifferentiableSearch):
    """Mixed-level search: alpha sees both losses."""

    name = "milenas"
    passes = 3

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """The step of eq. (3)."""
        return mixed_level_step(problem, copies[0])


class GumbelSearch(DifferentiableSearch):
    """What the sampling searches share."""

    Options: ClassVar[type[Options]] = GumbelOptions
    options: GumbelOptions

    def temperature(self, position: Position) -> float:
        """Linear over the search."""
        o = self.options
        return o.temperature + (o.temperature_min - o.temperature) * position.progress

    def sample(self, alphas: Alphas, position: Position, hard: bool) -> Alphas:
        """A Gumbel softmax of every row; drawn from torch's generator, which the loop seeds by the position.

        Args:
            alphas: architecture parameters (rows, choices) by decision.
            position: of the step; decides the temperature.
            hard: one-hot rows through which the soft gradient passes.
        """
        draw = partial(F.gumbel_softmax, tau=self.temperature(position), hard=hard, dim=-1)
        return {name: draw(F.log_softmax(value, dim=-1)) for name, value in alphas.items()}


class Gdas(GumbelSearch):
    """One hard sample a pass; only the selected operations run (GDAS' estimator of the gradient)."""

    name = "gdas"
    passes = 2

    def relax(self, alphas: Alphas, position: Position) -> tuple[Alphas, Active | None]:
        """Straight-through one-hot rows and their mask."""
        weights = self.sample(alphas, position, hard=True)
        return weights, {name: (value.detach() > 0.5).cpu().numpy() for name, value in weights.items()}

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """The step of first-order DARTS."""
        return first_order_step(problem, copies[0])


class Snas(GumbelSearch):
    """Soft samples; one level."""

    name = "snas"
    passes = 2

    def relax(self, alphas: Alphas, position: Position) -> tuple[Alphas, Active | None]:
        """All operations run, weighted by the sample."""
        return self.sample(alphas, position, hard=False), None

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """Both variables at once."""
        return joint_step(problem, copies[0])
