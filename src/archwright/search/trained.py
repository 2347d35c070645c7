"""Networks that a search under limits trains: one value for each, and what trains, validates and saves them.

Nothing here reads the clock: how many steps a training has was counted before, by the run's stage ``plan``, and what is
finished is not done again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import nn

from archwright.data import Batches, Endless, ImageData, Steps
from archwright.data.augmentation import Augment
from archwright.models import Model, load_member
from archwright.runs.run import Run
from archwright.search.budget import ByTheClock
from archwright.search.context import Context
from archwright.search.values import StageResult
from archwright.spaces.base import Architecture, Network
from archwright.spaces.staged import StagedSpace
from archwright.training import Position, Recipe, train

LENGTHS = "lengths"
"""Log of a run: how long trainings that end by the clock were decided to be."""


class TrainedNetwork(StageResult):
    """A network that was trained and validated. What it costs is the device table's to say.

    Attributes:
        version: of this form.
        name: by which it is known in the run.
        architecture: its text.
        image_size: of its images, in pixels.
        steps: of its training, with those of the network it comes from; 0 where nothing but a classifier was fitted.
        epochs: how often it saw the training images in them, rounded; at least once.
        validation_accuracy: in percent.
        losses: cross entropy of each validation image.
        weights: name of the file with its weights; one file may serve several image sizes.
        known: what only its strategy knows of it.
    """

    version: Literal[1] = 1
    name: str
    architecture: str
    image_size: int
    steps: int = Field(ge=0)
    epochs: int = Field(ge=0)
    validation_accuracy: float
    losses: list[float]
    weights: str
    known: dict[str, Any] = Field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Mean cross entropy on validation."""
        return float(np.mean(self.losses))


def order(one: TrainedNetwork) -> tuple[float, float]:
    """The better network has the greater one: accuracy on validation, then cross entropy."""
    return one.validation_accuracy, -one.loss


def short_name(of: str, how: str) -> str:
    """A name for a network that comes from ``of``, in a word ``how`` and a digest."""
    return f"{how}-{hashlib.sha256(of.encode()).hexdigest()[:8]}"


def networks_of(run: Run, log: str = "trained") -> dict[str, TrainedNetwork]:
    """Every network that ``run`` keeps in its item log ``log``, by name."""
    return {name: TrainedNetwork.model_validate(one) for name, one in run.items(log).done.items()}


@dataclass
class Trainer:
    """Trains networks for counted steps, validates them and keeps them in the run.

    Attributes:
        context: of the search.
        recipe: of one pass over the steps.
        data: the images at a size, as the networks are shown them.
        augment: what is done to training images.
        looked_at: images that a network sees at once when it is validated.
    """

    context: Context
    recipe: Recipe
    data: Callable[[int], ImageData]
    augment: Callable[[ImageData], Augment | None]
    looked_at: int = 256

    # --- images ---

    def batches(self, name: str, size: int) -> Batches:
        """Training batches; every training sees the images in another order and otherwise augmented.

        Args:
            name: of the training.
            size: of the images, in pixels.
        """
        context, data = self.context, self.data(size)
        seed = int(context.rng(f"batches of {name}").integers(2**31))
        device = context.device.name
        return Batches(data, "train", self.recipe.batch_size, seed=seed, augment=self.augment(data), device=device)

    def in_order(self, size: int, part: Any, most: int | None = None) -> Batches:
        """Batches of a part of the images in its own order, not augmented.

        Args:
            size: of the images, in pixels a side.
            part: ``train``, ``validation`` or ``test``.
            most: images that are taken, spread evenly over the part; None for all.
        """
        data, device = self.data(size), self.context.device.name
        count = len(getattr(data, part))
        chosen = None if most is None else np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))
        return Batches(data, part, self.looked_at, shuffle=False, drop_last=False, device=device, indices=chosen)

    # --- files ---

    def file(self, name: str) -> Path:
        """Of the weights of that name."""
        return self.context.run.artifact(f"networks/{name}.safetensors")

    def load(self, name: str) -> Network:
        """The network with the weights of that name."""
        return load_member(self.file(name)).network.to(self.context.device.name)

    def save(self, name: str, network: Network, architecture: Architecture, space: StagedSpace[Any]) -> None:
        """Write a network and its weights as the file of ``name``.

        Args:
            name: of the file, see :meth:`file`.
            network: whose weights they are.
            architecture: of it.
            space: that it is of, at its image size.
        """
        how = self.data(space.scale.image_size).preprocessing
        Model(network, space.name, architecture, space.scale, how).save(self.file(name))

    # --- training ---

    def train(
        self,
        name: str,
        network: Network,
        size: int,
        steps: int,
        recipe: Recipe | None = None,
        teacher: nn.Module | None = None,
    ) -> None:
        """Train ``network`` in place for so many steps on images of ``size`` px; interrupted, it goes on.

        Args:
            name: of the training: of its checkpoints, and of the order of its images.
            network: with the weights to begin with.
            size: of the images.
            steps: for how long.
            recipe: of one pass over the steps; the trainer's by default.
            teacher: whose answers count where the recipe says so.
        """
        context = self.context
        with context.progress.task(f"training {name}", steps) as bar:
            train(
                network,
                Steps(self.batches(name, size), steps),
                recipe or self.recipe,
                seed=context.configuration.seed,
                device=context.device.name,
                teacher=teacher,
                checkpoints=context.run.checkpoints(f"trained/{name}"),
                stop=context.stop,
                on_step=lambda _: bar.advance(),
            )

    def train_for(
        self,
        name: str,
        network: Network,
        size: int,
        seconds: float,
        guess: int,
        recipe: Recipe,
        teacher: nn.Module | None = None,
    ) -> int:
        """Train ``network`` in place until its seconds are over; returns the steps that it had.

        Args:
            name: of the training.
            network: with the weights to begin with.
            size: of the images.
            seconds: that it may take.
            guess: steps that are thought to fit into them.
            recipe: of one pass over the steps.
            teacher: whose answers count where the recipe says so.
        """
        context = self.context
        length = ByTheClock(context.run.items(LENGTHS), name, seconds, guess)
        with context.progress.task(f"training {name}", 100) as bar:
            done = [0]

            def on_step(position: Position) -> None:
                percent = int(100 * (position.index + 1) / position.steps_per_epoch)
                if percent > done[0]:
                    bar.advance(percent - done[0])
                    done[0] = percent

            train(
                network,
                Endless(self.batches(name, size)),
                recipe,
                seed=context.configuration.seed,
                device=context.device.name,
                teacher=teacher,
                checkpoints=context.run.checkpoints(f"trained/{name}"),
                stop=context.stop,
                on_step=on_step,
                length=length,
            )
        return length.reviews[-1].total

    def keep(
        self,
        name: str,
        network: Network,
        architecture: Architecture,
        space: StagedSpace[Any],
        steps: int,
        *,
        epochs: int | None = None,
        weights: str | None = None,
        log: str = "trained",
        known: dict[str, Any] | None = None,
    ) -> TrainedNetwork:
        """Validate a trained network, save its weights and record it; its checkpoints are then dropped.

        Args:
            name: that it is known by.
            network: after its training.
            architecture: of it.
            space: that it is of, at its image size.
            steps: that it was trained for, all in all.
            epochs: that these were, where they were counted; by default as often as it saw the images in them.
            weights: name of a file that has its weights already; by default they are saved under its own name.
            log: of the run, in which it is recorded.
            known: what only the strategy knows of it.
        """
        size = space.scale.image_size
        losses, right = self.outcomes(network, size)
        passes = max(min(1, steps), round(steps * self.recipe.batch_size / len(self.data(size).train)))
        if weights is None:
            self.save(name, network, architecture, space)
        found = TrainedNetwork(
            name=name,
            architecture=str(architecture),
            image_size=size,
            steps=steps,
            epochs=passes if epochs is None else epochs,
            validation_accuracy=100 * float(right.mean()),
            losses=[round(loss, 5) for loss in losses.tolist()],
            weights=weights or name,
            known=known or {},
        )
        self.context.run.items(log).record(name, found.model_dump())
        self.context.run.checkpoints(f"trained/{name}").clear()
        return found

    @torch.no_grad()
    def outcomes(self, network: nn.Module, size: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Cross entropy of every validation image, and whether it is classified right, (n,) each.

        Args:
            network: on the trainer's device; in evaluation mode afterwards.
            size: of the images, in pixels a side.
        """
        losses, right = [], []
        network.eval()
        for images, labels in self.in_order(size, "validation"):
            logits = network(images.contiguous(memory_format=torch.channels_last))
            losses.append(F.cross_entropy(logits, labels, reduction="none"))
            right.append(logits.argmax(1) == labels)
        return torch.cat(losses).double().cpu().numpy(), torch.cat(right).cpu().numpy()
