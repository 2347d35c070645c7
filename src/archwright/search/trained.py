"""Networks that a search under limits trains: one value for each, and what trains, validates and saves them.

Nothing here reads the clock: how many steps a training has was counted before, by the run's stage ``plan``, and what is
finished is not done again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from archwright.costs.places import Place, place_of
from archwright.data import Batches, Endless, ImageData, Steps
from archwright.data.augmentation import Augment
from archwright.models import Model, load_member
from archwright.numerics import autocast
from archwright.quantise import (
    CannotQuantise,
    Int8,
    OnnxNetwork,
    Precision,
    clearly_lower,
    quantise,
    to_onnx,
    weight_steps,
)
from archwright.runs.files import write_atomic
from archwright.runs.run import Run
from archwright.search.budget import ByTheClock
from archwright.search.calibration import calibration_images
from archwright.search.context import Context
from archwright.search.values import StageResult
from archwright.spaces.base import Architecture, Network
from archwright.spaces.staged import StagedSpace
from archwright.spaces.width import WidthSpace
from archwright.training import Position, Recipe, train
from archwright.training.rounded import input_bounds, rounding
from archwright.training.team import Team

Placed = StagedSpace[Any] | WidthSpace
"""Spaces that know the scale of their networks."""
ROUNDED_SHARE, ROUNDED_STEPS, ROUNDED_RATE = 0.2, 30, 0.1
"""Tuning with the rounding of int8 in it: its part of a network's steps, the fewest, and its part of the rate."""
AS_SLOW = 0.9
"""The part of a latency that is nearly as slow."""
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
        precision: that it is computed in; accuracy and losses are those of the int8 file where that is int8.
        start: name of the weights that it began with, where there were several.
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
    precision: Precision = "fp32"
    start: str = ""
    known: dict[str, Any] = Field(default_factory=dict)

    @property
    def place(self) -> Place:
        """Where it lives in the device table."""
        return place_of(self.image_size, self.start)

    @property
    def loss(self) -> float:
        """Mean cross entropy on validation."""
        return float(np.mean(self.losses))


def order(one: TrainedNetwork) -> tuple[float, float]:
    """The better network has the greater one: accuracy on validation, then cross entropy."""
    return one.validation_accuracy, -one.loss


def slowest_as_good(accuracies: Sequence[float], latencies: Sequence[float], images: int, errors: float) -> int:
    """The number of the network to take of some that keep a limit.

    Latencies are of one precision, whatever the networks are computed in: what counts is how much each computes.

    On a few hundred images good networks differ by chance more than by merit, and the best of several there is often a
    thin one that was lucky. Larger networks and images are known to be better. So the slowest is taken of those that
    are less than some standard errors below the most accurate; where several are nearly as slow, the most accurate.

    Args:
        accuracies: of the networks on validation, in percent.
        latencies: of the same, in milliseconds.
        images: how many the accuracies were measured on.
        errors: standard errors from which on an accuracy is clearly lower.
    """
    share = (images * max(accuracies) / 100 + 1) / (images + 2)
    least = max(accuracies) - 100 * errors * np.sqrt(share * (1 - share) / images)
    good = [number for number, accuracy in enumerate(accuracies) if accuracy >= least]
    slowest = max(latencies[number] for number in good)
    slow = [number for number in good if latencies[number] >= AS_SLOW * slowest]
    return max(slow, key=lambda number: (accuracies[number], latencies[number]))


def short_name(of: str, how: str) -> str:
    """A name for a network that comes from ``of``, in a word ``how`` and a digest."""
    return f"{how}-{hashlib.sha256(of.encode()).hexdigest()[:8]}"


def networks_of(run: Run, log: str = "trained") -> dict[str, TrainedNetwork]:
    """Every network that ``run`` keeps in its item log ``log``, by name."""
    return {name: TrainedNetwork.model_validate(one) for name, one in run.items(log).done.items()}


INT8 = "int8"
"""Log of a run: the int8 networks of trained ones, and what no int8 network could be made of."""
INT8_SUFFIX = "-int8"
"""Of the name of an int8 network, behind that of the float one."""


def with_int8(run: Run, networks: Sequence[TrainedNetwork]) -> list[TrainedNetwork]:
    """``networks`` of ``run``, each followed by what it is in int8, where it was quantised."""
    twins, found = run.items(INT8).done, list[TrainedNetwork]()
    for one in networks:
        twin = twins.get(one.name)
        found += [one] if not twin else [one, TrainedNetwork.model_validate(twin)]
    return found


def without_twins(networks: Sequence[TrainedNetwork]) -> list[TrainedNetwork]:
    """``networks`` less the int8 forms of those that are there in float, too.

    Rounding makes nothing more accurate: what it seems to gain on some hundred images is chance.
    """
    floats = {one.name for one in networks if one.precision == "fp32"}
    return [one for one in networks if one.precision == "fp32" or one.name.removesuffix(INT8_SUFFIX) not in floats]


@dataclass(frozen=True)
class _Validated:
    """An int8 file, the cross entropy of each validation image (n,), and its accuracy there in percent."""

    file: Int8
    losses: NDArray[np.float64]
    accuracy: float


@dataclass
class Trainer:
    """Trains networks for counted steps, validates them and keeps them in the run.

    Attributes:
        context: of the search.
        recipe: of one pass over the steps.
        data: the images at a place, as the networks are shown them.
        augment: what is done to training images.
        looked_at: images that a network sees at once when it is validated.
    """

    context: Context
    recipe: Recipe
    data: Callable[[Any], ImageData]
    augment: Callable[[ImageData], Augment | None]
    looked_at: int = 256

    # --- images ---

    def batches(self, name: str, size: Place) -> Batches:
        """Training batches; every training sees the images in another order and otherwise augmented.

        Args:
            name: of the training.
            size: the place: an image size in pixels a side, with a start where there are several.
        """
        context, data = self.context, self.data(size)
        seed = int(context.rng(f"batches of {name}").integers(2**31))
        device = context.device.name
        return Batches(data, "train", self.recipe.batch_size, seed=seed, augment=self.augment(data), device=device)

    def in_order(self, size: Place, part: Any, most: int | None = None) -> Batches:
        """Batches of a part of the images in its own order, not augmented.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
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

    def save(self, name: str, network: Network, architecture: Architecture, space: Placed, start: str = "") -> None:
        """Write a network and its weights as the file of ``name``.

        Args:
            name: of the file, see :meth:`file`.
            network: whose weights they are.
            architecture: of it.
            space: that it is of, at its image size.
            start: name of the weights that it began with, where there were several.
        """
        how = self.data(place_of(space.scale.image_size, start)).preprocessing
        Model(network, space.name, architecture, space.scale, how).save(self.file(name))

    # --- training ---

    def train(
        self,
        name: str,
        network: Network,
        size: Place,
        steps: int,
        recipe: Recipe | None = None,
        teacher: nn.Module | None = None,
        team: Team | None = None,
    ) -> None:
        """Train ``network`` in place for so many steps on images of ``size`` px; interrupted, it goes on.

        Args:
            name: of the training: of its checkpoints, and of the order of its images.
            network: with the weights to begin with.
            size: of the images.
            steps: for how long.
            recipe: of one pass over the steps; the trainer's by default.
            teacher: whose answers count where the recipe says so.
            team: who trains it; the search's by default.
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
                on_part=context.run.on_part(name),
                team=team or context.team,
            )

    def train_for(
        self,
        name: str,
        network: Network,
        size: Place,
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
                on_part=context.run.on_part(name),
                length=length,
                team=context.team,
            )
        return length.reviews[-1].total

    def keep(
        self,
        name: str,
        network: Network,
        architecture: Architecture,
        space: Placed,
        steps: int,
        *,
        epochs: int | None = None,
        weights: str | None = None,
        log: str = "trained",
        known: dict[str, Any] | None = None,
        start: str = "",
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
            start: name of the weights that it began with, where there were several.
        """
        size = place_of(space.scale.image_size, start)
        losses, right = self.outcomes(network, size)
        passes = max(min(1, steps), round(steps * self.recipe.batch_size / len(self.data(size).train)))
        if weights is None:
            self.save(name, network, architecture, space, start)
        found = TrainedNetwork(
            name=name,
            architecture=str(architecture),
            image_size=space.scale.image_size,
            steps=steps,
            epochs=passes if epochs is None else epochs,
            validation_accuracy=100 * float(right.mean()),
            losses=[round(loss, 5) for loss in losses.tolist()],
            weights=weights or name,
            start=start,
            known=known or {},
        )
        self.context.run.items(log).record(name, found.model_dump())
        self.context.run.checkpoints(f"trained/{name}").clear()
        return found

    # --- int8 ---

    def int8_file(self, name: str) -> Path:
        """Of the int8 network of that name."""
        return self.context.run.artifact(f"networks/{name}.int8.onnx")

    def calibration(self, size: Place) -> Tensor:
        """Training images to calibrate on, (n, C, H, W); a class that has none among them is said.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
        """
        return calibration_images(self.data(size), self.context.progress)

    def in_int8(self, one: TrainedNetwork) -> None:
        """Quantise a trained network, validate the int8 file and keep it in the run; what cannot be is said.

        Where int8 is clearly less often right, whatever layers stay in float, the network is tuned for some steps with
        the rounding in it; that is kept where it helps.

        Args:
            one: in float; of its int8 file the same is known afterwards, see :func:`with_int8`.
        """
        log = self.context.run.items(INT8)
        if one.name in log.done:
            return
        try:
            lossy, found = self._int8_of(one.weights, one)
            weights = one.weights
            if lossy:
                weights = self._tuned_for_int8(one)
                still, tuned = self._int8_of(weights, one)
                if tuned.accuracy > found.accuracy:
                    found = tuned
                else:
                    weights = one.weights
                outcome = "clearly less accurate" if still and tuned.accuracy <= found.accuracy else "close to float"
                self.context.progress.say(
                    f"{one.name} lost accuracy in int8; tuned with its rounding it has {tuned.accuracy:.1f} % "
                    f"instead of {one.validation_accuracy:.1f} % in float, {outcome}."
                )
        except CannotQuantise as error:
            self.context.progress.say(f"{one.name} stays in float: {error}")
            log.record(one.name, None)
            return
        made = found.file
        for what, names in (("layers", made.float_layers), ("operators", made.float_operators)):
            if names:
                self.context.progress.say(f"{one.name} as int8: the {what} {', '.join(names)} stay in float.")
        write_atomic(self.int8_file(one.name), made.content)
        facts = {**made.facts(), "float_validation_accuracy": one.validation_accuracy}
        twin = one.model_copy(
            update={
                "name": one.name + INT8_SUFFIX,
                "precision": "int8",
                "weights": weights,
                "validation_accuracy": found.accuracy,
                "losses": [round(loss, 5) for loss in found.losses.tolist()],
                "known": {**one.known, "int8": {**facts, "tuned_for_int8": weights != one.weights}},
            }
        )
        log.record(one.name, twin.model_dump())

    def _int8_of(self, weights: str, one: TrainedNetwork) -> tuple[bool, _Validated]:
        """The int8 file of some weights, and whether it is clearly less often right than ``one`` in float."""
        images = self.calibration(one.place)
        content = to_onnx(self.load(weights).cpu().eval(), images[:1])
        seen: dict[bytes, tuple[NDArray[np.float64], NDArray[np.bool_]]] = {}

        def outcomes(file: bytes) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
            if file not in seen:
                seen[file] = self.outcomes(OnnxNetwork(file), one.place)
            return seen[file]

        made = quantise(
            content, images.numpy(), lambda file: outcomes(file)[1], lambda file: float(outcomes(file)[0].mean())
        )
        losses, right = outcomes(made.content)
        return clearly_lower(outcomes(content)[1], right), _Validated(made, losses, 100 * float(right.mean()))

    def _tuned_for_int8(self, one: TrainedNetwork) -> str:
        """Tune a network with the rounding of int8 in it; the name of its weights."""
        name = f"{one.name}-rounded"
        if self.file(name).is_file():
            return name
        loaded = load_member(self.file(one.weights))
        network, device = loaded.network.to(self.context.device.name), self.context.device.name
        steps = max(ROUNDED_STEPS, round(ROUNDED_SHARE * one.steps))
        bounds = input_bounds(network, self.calibration(one.place).to(device))
        recipe, alone = self.recipe.changed(lr=ROUNDED_RATE * self.recipe.lr), self.context.alone
        with rounding(network, bounds, weight_steps()):  # which cannot be sent to other processes
            self.train(name, network, one.place, steps, recipe, team=alone)
        replace(loaded, network=network).save(self.file(name))
        self.context.run.checkpoints(f"trained/{name}").clear()
        return name

    @torch.no_grad()
    def outcomes(self, network: nn.Module, size: Place) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Cross entropy of every validation image, and whether it is classified right, (n,) each.

        Args:
            network: on the trainer's device; in evaluation mode afterwards.
            size: the place: an image size in pixels a side, with a start where there are several.
        """
        losses, right = [], []
        network.eval()
        for images, labels in self.in_order(size, "validation"):
            with autocast(images.device):
                logits = network(images.contiguous(memory_format=torch.channels_last)).float()
            losses.append(F.cross_entropy(logits, labels, reduction="none"))
            right.append(logits.argmax(1) == labels)
        return torch.cat(losses).cpu().double().numpy(), torch.cat(right).cpu().numpy()
