"""What every search by gradients shares: two halves of the images, copies of the weights, and the loop that moves them.

A subclass brings its network, its architecture parameters, how they act on the network (the objective), the step, and
what is read off at the end. Nothing here knows cells or channels.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from archwright.data import Batches, ImageData
from archwright.device import seconds_on
from archwright.errors import InputError
from archwright.numerics import autocast
from archwright.runs.files import Json
from archwright.search.driving import drive_stage
from archwright.search.evaluator import evaluation_seconds
from archwright.search.method import Options, SearchMethod, Stage
from archwright.search.values import StageResult
from archwright.training import Position, Stateful, Step
from archwright.training.bilevel import Alphas, ArchitectureParameters, Batch, Problem, Variable, WeightCopy
from archwright.training.diagnostics import equilibrium
from archwright.training.schedule import ScheduleName, make_schedule

Half = np.ndarray[Any, np.dtype[np.int64]]
"""Positions of images in the train part."""


class GradientOptions(Options):
    """Options of every search by gradients; the defaults are those of DARTS."""

    search_epochs: int = Field(50, ge=1, description="passes over each half of the training images")
    search_batch: int = Field(64, ge=2, description="images of each half in a step of the search")
    w_lr: float = Field(0.025, gt=0, description="learning rate of the shared weights")
    w_lr_min: float = Field(0.001, ge=0, description="learning rate of the weights at the end")
    w_schedule: ScheduleName = Field("cosine", description="how the learning rate of the weights falls")
    w_momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD on the weights")
    w_weight_decay: float = Field(3e-4, ge=0, description="weight decay of the weights")
    w_clip: float = Field(5.0, ge=0, description="largest norm of the weights' gradient; 0 = off")
    alpha_lr: float = Field(3e-4, gt=0, description="learning rate of the architecture parameters (Adam)")
    alpha_lr_min: float = Field(0.0, ge=0, description="learning rate of the architecture parameters at the end")
    alpha_schedule: ScheduleName = Field(
        "constant", description="how the learning rate of the architecture parameters falls"
    )
    alpha_weight_decay: float = Field(1e-3, ge=0, description="weight decay of the architecture parameters")
    search_augment: bool = Field(True, description="crop and flip the images of the search")
    search_images: int | None = Field(
        None, ge=2, description="images of each half that the search sees; all by default"
    )


class EnoughError(Exception):
    """Raised by :meth:`GradientSearch.watch` where a search is to end before its epochs are over; its text says why."""


class GradientSearch(SearchMethod):
    """A search that moves weights and architecture parameters by the losses on two halves of the images."""

    Options: ClassVar[type[Options]] = GradientOptions
    options: GradientOptions
    passes: ClassVar[int]
    """Forward-backward passes a step, for the estimate of time."""

    # What a subclass brings.

    @abstractmethod
    def make_network(self) -> nn.Module:
        """The network with its initial weights, on the device."""

    @abstractmethod
    def make_alpha(self) -> ArchitectureParameters:
        """The architecture parameters as they start, on the device."""

    @abstractmethod
    def objective(self, network: nn.Module, alphas: Alphas, batch: Batch, position: Position) -> Tensor:
        """Loss of the network on a batch; a 0-d tensor.

        Args:
            network: the copy that is run.
            alphas: architecture parameters by name.
            batch: images (B, C, H, W) and labels (B,).
            position: of the step.
        """

    @abstractmethod
    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """The step that :func:`archwright.training.drive` repeats.

        Args:
            problem: the images, the objective and the architecture parameters.
            copies: networks with their optimisers.
        """

    @abstractmethod
    def ended(self, problem: Problem, copies: list[WeightCopy]) -> StageResult:
        """What the search ends with; the stage's result.

        Args:
            problem: with the trained architecture parameters.
            copies: networks with the trained weights.
        """

    @abstractmethod
    def watch(self, epoch: int, metrics: dict[str, float], problem: Problem, copies: list[WeightCopy]) -> None:
        """Called after each epoch; may end the search by :class:`EnoughError`, as a function of what it is given.

        Args:
            epoch: its number, from 0.
            metrics: mean of the steps' metrics.
            problem: with the architecture parameters of now.
            copies: networks with the weights of now.
        """

    # What a subclass may change.

    def make_copies(self, network: nn.Module) -> list[WeightCopy]:
        """The weights that are trained: one copy, or two of the same start."""
        o = self.options
        return [self.copy_of(network, o.w_lr, o.w_lr_min, o.w_schedule)]

    def move_alpha(self, parameters: list[Tensor]) -> Variable:
        """What moves the architecture parameters: Adam."""
        o = self.options
        adam = torch.optim.Adam(parameters, lr=o.alpha_lr, betas=(0.5, 0.999), weight_decay=o.alpha_weight_decay)
        return Variable(parameters, adam, make_schedule(o.alpha_schedule, o.alpha_lr, min(o.alpha_lr, o.alpha_lr_min)))

    def further_state(self, copies: list[WeightCopy]) -> dict[str, Stateful]:
        """What the step changes beside weights and architecture parameters; called once, before the step is made."""
        return {}

    def diagnose(self, problem: Problem, copies: list[WeightCopy]) -> dict[str, float]:
        """Lagrangian, distance and residuals; here of one copy.

        Args:
            problem: on fixed batches.
            copies: networks with the weights of now.
        """
        return equilibrium(problem, copies[0], copies[0], 1.0, 0.0, [], 0.0)

    @property
    def half_batch(self) -> int:
        """Images of each half a step."""
        return self.options.search_batch

    @property
    def data(self) -> ImageData:
        """The images as the networks are shown them."""
        return self.context.task.data

    # The rest is common.

    def search_seconds(self) -> float:
        """Of the search itself, from a timed pass of the network."""
        problem, network = self.problem(), self.make_network()
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        times, device = [], self.context.device.torch
        for _ in range(2):
            begin = seconds_on(device)
            with autocast(device):
                loss = self.objective(
                    network, problem.alpha.get(detached=False), problem.train.get(0, 0), Position.at(0, 1, 1)
                )
            torch.autograd.grad(loss, weights, allow_unused=True)
            times.append(seconds_on(device) - begin)
        return min(times) * self.passes * len(problem.train) * self.options.search_epochs

    def estimate_seconds(self) -> float:
        """The search and the final training."""
        return self.team_share * self.search_seconds() + self.final_rounds * evaluation_seconds(self.context)

    def batch_sizes(self) -> list[int]:
        """Also those of the search."""
        return [*super().batch_sizes(), self.half_batch]

    def search_stages(self) -> list[Stage]:
        """One: search and discretise."""
        return [Stage("search", "differentiable search", self._search)]

    def halves(self) -> tuple[Half, Half]:
        """Positions of D_t and D_v in the train part: disjoint random halves of equal size."""
        count = len(self.data.train) // 2
        asked = self.options.search_images
        if asked is not None and asked > count:
            raise InputError(f"at most {count} images of each half", f"--search-images {asked}")
        count = asked or count
        if count < 2:
            raise InputError(
                "at least 4 training images, to divide into D_t and D_v",
                f"{len(self.data.train)} (an empty or tiny validation half)",
                "Give more images.",
            )
        order = self.context.rng("halves").permutation(len(self.data.train))
        return np.sort(order[:count]), np.sort(order[count : 2 * count])

    def batches(self, half: Half, size: int, number: int, shuffled: bool) -> Batches:
        """Batches of a half: those of a search, in random order and augmented as asked, or each image as it is.

        Args:
            half: indices of its images.
            size: images a batch.
            number: of the half; seeds the order.
            shuffled: for a search.
        """
        context = self.context
        crop_and_flip = context.task.augmentation(cutout=0)
        seed = int(context.rng("order of a half", number).integers(2**31))
        device = context.device.torch
        augment = crop_and_flip if shuffled and self.options.search_augment else None
        return Batches(
            self.data, "train", size, seed=seed, indices=half, device=device, augment=augment, shuffle=shuffled
        )

    def copy_of(self, network: nn.Module, lr: float, lr_min: float, schedule: ScheduleName) -> WeightCopy:
        """A network with SGD on its weights.

        Args:
            network: used as it is.
            lr: learning rate at the start.
            lr_min: and at the end, where it is lower.
            schedule: of the learning rate.
        """
        o = self.options
        weights: list[Tensor] = [weight for weight in network.parameters() if weight.requires_grad]
        sgd = torch.optim.SGD(weights, lr=lr, momentum=o.w_momentum, weight_decay=o.w_weight_decay)
        return WeightCopy(network, Variable(weights, sgd, make_schedule(schedule, lr, min(lr, lr_min)), o.w_clip))

    def problem(self) -> Problem:
        """Both losses with batches augmented as asked, and alpha with what moves it."""
        alpha = self.make_alpha()
        train, validation = (
            self.batches(half, min(self.half_batch, len(half)), number, shuffled=True)
            for number, half in enumerate(self.halves())
        )
        moved, team = self.move_alpha(list(alpha.parameters())), self.context.team
        return Problem(self.objective, train, validation, alpha, moved, team=team)

    def _search(self) -> StageResult:
        context, o = self.context, self.options
        problem, copies = self.problem(), self.make_copies(self.make_network())
        state: dict[str, Stateful] = {"alpha": problem.alpha, "alpha_optimizer": problem.architecture.optimizer}
        for name, one in zip(("w", "y"), copies, strict=False):
            state |= {name: one.network, f"{name}_optimizer": one.variable.optimizer}
        state |= self.further_state(copies)
        try:
            drive_stage(
                context,
                "search",
                self.make_step(problem, copies),
                state,
                epochs=o.search_epochs,
                steps_per_epoch=len(problem.train),
                title="searching",
                on_epoch=lambda epoch, metrics: self.watch(epoch, metrics, problem, copies),
            )
        except EnoughError as end:
            context.progress.say(str(end))
        return self.ended(problem, copies)

    def records(self) -> list[dict[str, Json]]:
        """The events that :meth:`watch` wrote, one an epoch; of an epoch repeated after a kill, the last."""
        events = [
            event for event in self.context.run.events() if event["kind"] == "epoch" and event["stage"] == "search"
        ]
        return [record for _, record in sorted({event["epoch"]: event for event in events}.items())]
