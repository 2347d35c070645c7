"""How channels are scored, by name: what a channel is worth, so that what is worth least can go.

A score in one pass (:class:`PassScore`) looks at a trained network and leaves it as it is; one that is trained
(:class:`TrainedScore`) moves weights and one number a channel together. A third party adds one by a class of either
kind, under an entry point of the group ``archwright.scores`` or by ``scores.register``.

Which to take: ``fisher`` for a network that has learned, ``rarts`` where network and scores are trained from scratch;
the others are what these are compared with (docs/thin.md has the numbers).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.data.shards import Shard
from archwright.methods.darts import descend_weights, first_order_step, second_order_step
from archwright.methods.rarts import fused_rarts_step, pulled, rarts_step
from archwright.numerics import autocast, gradients
from archwright.registry import Entry, Registry
from archwright.supernets.scored import Scores
from archwright.training import Position, Step
from archwright.training.bilevel import Gradients, Half, Problem, WeightCopy, losses

_HERE = "archwright.methods.width_scores"
scores = Registry(
    "score",
    Entry(
        "fisher", f"{_HERE}:Fisher", "mean square of the first-order change of each image's loss, for a trained network"
    ),
    Entry("taylor", f"{_HERE}:Taylor", "mean size of the first-order change of each image's loss"),
    Entry("l1", f"{_HERE}:L1", "size of the weights that write a channel"),
    Entry("random", f"{_HERE}:Random", "chance, to compare with"),
    Entry("rarts", f"{_HERE}:Rarts", "RARTS: trained with two coupled copies of the weights"),
    Entry("rarts-taylor", f"{_HERE}:RartsFromTaylor", "RARTS with scores that begin as Taylor's"),
    Entry("rarts-images", f"{_HERE}:RartsByImage", "RARTS with scores that rise by the size of each image's gradient"),
    Entry("darts", f"{_HERE}:Darts", "DARTS, first order"),
    Entry("darts-2", f"{_HERE}:Darts2", "DARTS, second order"),
    Entry("slimming", f"{_HERE}:Slimming", "Network Slimming: trained with the weights on all images"),
)
"""The scores by name."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Looked:
    """What a score in one pass may look at.

    Attributes:
        network: trained, in evaluation mode; left as it is.
        scores: where the channels are.
        batches: training images (B, C, H, W) and labels (B,), not augmented.
        rng: of what is drawn.
    """

    network: nn.Module
    scores: Scores
    batches: Iterable[tuple[Tensor, Tensor]]
    rng: np.random.Generator


class Score:
    """What a channel is worth: the base of both kinds.

    Attributes:
        by_resource: whether it estimates a loss, so that what is worth least *for what it costs* goes; else what is
            worth least goes, whatever it costs.
    """

    by_resource: ClassVar[bool] = False


class PassScore(Score, ABC):
    """A score of a trained network, in one pass over some images."""

    @abstractmethod
    def __call__(self, looked: Looked) -> Floats:
        """The worth of every channel, (total,), not negative, in the order of ``looked.scores``."""


class TrainedScore(Score, ABC):
    """Scores that are trained beside the weights; each multiplies its channel.

    Attributes:
        copies: of the weights.
        whole_data: whether a step sees all training images at once, as against one of two halves.
        from_taylor: whether scores begin as Taylor's, else as 1.
    """

    copies: ClassVar[int] = 1
    whole_data: ClassVar[bool] = False
    from_taylor: ClassVar[bool] = False

    @abstractmethod
    def passes(self, options: Any) -> int:
        """Forward-backward passes a step; ``options`` are those of the method."""

    @abstractmethod
    def step(self, problem: Problem, copies: list[WeightCopy], options: Any) -> Step:
        """The step that is repeated.

        Args:
            problem: the images, the objective and the scores.
            copies: networks with their optimisers.
            options: of the method.
        """


# --- in one pass ------------------------------------------------------------------------------------------------------


class Taylor(PassScore):
    """Mean over images of |dL/ds|, where s multiplies the channel at all layers that read it.

    That is |sum of activation x gradient| there: by how much the image's loss changes, to first order, if the channel
    goes. Over a whole batch these changes have both signs and cancel at trained weights; image by image they do not.
    """

    by_resource = True

    def __call__(self, looked: Looked) -> Floats:
        """One forward and backward pass over the images."""
        total, count = np.zeros(looked.scores.total), 0
        for images, labels in looked.batches:
            total += (
                per_image_gradients(looked.network, looked.scores, images, labels).abs().sum(0).cpu().double().numpy()
            )
            count += len(labels)
        return total / max(count, 1)


def per_image_gradients(network: nn.Module, where: Scores, images: Tensor, labels: Tensor) -> Tensor:
    """dL_i/ds of each image's cross entropy with every score at 1, (B, total), on the CPU.

    Args:
        network: in evaluation mode.
        where: places of the scores.
        images: (B, C, H, W); ``labels`` (B,).
        labels: of the images.
    """
    gates = torch.ones(len(images), where.total, device=images.device, requires_grad=True)
    with where.gated(network, gates), torch.enable_grad():
        loss = F.cross_entropy(network(images), labels, reduction="sum")
        (found,) = torch.autograd.grad(loss, gates)
    return found.cpu()


class Fisher(PassScore):
    """Mean over images of (dL/ds)^2, s as in :class:`Taylor`.

    Changes of one image's loss by several channels have both signs. As far as these are independent it is their
    squares that add up, and a choice of widths adds up what its channels are worth.
    """

    by_resource = True

    def __call__(self, looked: Looked) -> Floats:
        """One forward and backward pass over the images."""
        total, count = np.zeros(looked.scores.total), 0
        for images, labels in looked.batches:
            found = per_image_gradients(looked.network, looked.scores, images, labels).cpu().double()
            total += found.square().sum(0).numpy()
            count += len(labels)
        return total / max(count, 1)


class L1(PassScore):
    """Mean size of the weights that write a channel, over all layers that do, each in units of its layer's mean."""

    def __call__(self, looked: Looked) -> Floats:
        """Sizes of weights; no image is looked at."""
        found = np.zeros(looked.scores.total)
        modules = dict(looked.network.named_modules())
        for group in looked.scores.groups:
            start, writers = looked.scores.offsets[group.name], 0
            own = np.zeros(group.channels)
            for part in group.parts:
                weight = getattr(modules[part.layer], "weight", None)
                if not part.written or weight is None or weight.dim() < 2:
                    continue
                sizes = weight.detach().abs().flatten(1).mean(1).cpu().numpy()
                sizes = sizes / max(float(sizes.mean()), 1e-12)
                np.add.at(own, np.array(part.units), sizes[np.array(part.positions)])
                writers += 1
            found[start : start + group.channels] = own / max(writers, 1)
        return found


class Random(PassScore):
    """Uniform numbers by the seed."""

    def __call__(self, looked: Looked) -> Floats:
        """Numbers that look at nothing."""
        return looked.rng.random(looked.scores.total)


# --- trained ----------------------------------------------------------------------------------------------------------


class Rarts(TrainedScore):
    """w on D_t, y on D_v, scores on both, copies pulled together (:mod:`archwright.methods.rarts`)."""

    copies = 2

    def passes(self, options: Any) -> int:
        """Half as many where the scores' gradient is taken from the weights' passes."""
        return 2 if options.fused else 4

    def step(self, problem: Problem, copies: list[WeightCopy], options: Any) -> Step:
        """The three-step iteration, fused or as written.

        Args:
            problem: of two halves.
            copies: w and y.
            options: with lam, beta and fused.
        """
        make = fused_rarts_step if options.fused else rarts_step
        return make(problem, copies[0], copies[1], options.lam, options.beta)


class RartsFromTaylor(Rarts):
    """The same, from the scores of :class:`Taylor` in units of their group's mean."""

    from_taylor = True


class RartsByImage(Rarts):
    """The same, but scores rise by the mean over images of |dL/ds|, as in :class:`Taylor`, instead of by its mean.

    The signed mean over a batch is near zero at trained weights, whatever a channel is worth; this one is not. It comes
    from the passes of the weights.
    """

    def passes(self, options: Any) -> int:
        """Two, one on each half."""
        return 2

    def step(self, problem: Problem, copies: list[WeightCopy], options: Any) -> Step:
        """Both copies, then the scores.

        Args:
            problem: of two halves.
            copies: w and y.
            options: with lam and beta.
        """
        return by_image_step(problem, copies[0], copies[1], options.lam, options.beta)


def by_image_step(problem: Problem, w: WeightCopy, y: WeightCopy, lam: float, beta: float) -> Step:
    """The weights as in :func:`~archwright.methods.rarts.fused_rarts_step`, the scores by each image.

    Args:
        problem: both halves of the images, and the scores.
        w: the copy that sees the training loss.
        y: the copy that sees the validation loss.
        lam: weight of the training loss.
        beta: of the pull between the copies.
    """

    def step(position: Position) -> dict[str, Tensor]:
        train = image_gradients(problem, w, "train", position)
        w.variable.descend(pulled(train.weights, lam, w, y, beta), position)
        validation = image_gradients(problem, y, "validation", position)
        y.variable.descend(pulled(validation.weights, 1.0, y, w, beta), position)
        sizes = lam * train.architecture[0] + validation.architecture[0]
        problem.architecture.descend([-sizes], position)
        return losses(train.loss, validation.loss)

    return step


def image_gradients(problem: Problem, one: WeightCopy, half: Half, position: Position) -> Gradients:
    """One pass: the loss, its gradient by the weights, and the mean over images of |dL/ds| (total,).

    Args:
        problem: with the images and the scores.
        one: the weights.
        half: train or validation.
        position: of the step.
    """
    problem.passes += 1
    values = problem.alpha.get(detached=True)["scores"]

    def one_shard(shard: Shard) -> tuple[int, list[Tensor]]:
        batch = problem.batch(half, position, shard)
        count = len(batch[1])
        gates = values.expand(count, -1).clone().requires_grad_()
        with autocast(batch[0].device):
            loss = problem.objective(one.network, {"scores": gates}, batch, position)
        *by_weights, by_gates = gradients(loss, [*one.weights, gates])
        return count, [loss.detach(), (count * by_gates).abs().mean(0), *by_weights]

    loss, sizes, *by_weights = problem.team.mean([one.network], one_shard, apart=False)
    return Gradients(loss, by_weights, [sizes])


class Darts(TrainedScore):
    """Scores on D_v, weights on D_t."""

    def passes(self, options: Any) -> int:
        """Two, one on each half."""
        return 2

    def step(self, problem: Problem, copies: list[WeightCopy], options: Any) -> Step:
        """A step of first order.

        Args:
            problem: of two halves.
            copies: the weights.
            options: none is read.
        """
        return first_order_step(problem, copies[0])


class Darts2(TrainedScore):
    """DARTS through an unrolled step of the weights."""

    def passes(self, options: Any) -> int:
        """Two for the unrolled step, two for the finite difference, one for the weights."""
        return 5

    def step(self, problem: Problem, copies: list[WeightCopy], options: Any) -> Step:
        """A step of second order.

        Args:
            problem: of two halves.
            copies: the weights.
            options: none is read.
        """
        return second_order_step(problem, copies[0], None)


class Slimming(TrainedScore):
    """Network Slimming: weights and scores at once, by the loss on all images."""

    whole_data = True

    def passes(self, options: Any) -> int:
        """One, for weights and scores at once."""
        return 1

    def step(self, problem: Problem, copies: list[WeightCopy], options: Any) -> Step:
        """Weights and scores down their gradients on one batch.

        Args:
            problem: all images as training half.
            copies: the weights.
            options: none is read.
        """
        return joint_step(problem, copies[0])


def joint_step(problem: Problem, w: WeightCopy) -> Step:
    """Weights and scores at once, by the loss on all images.

    Args:
        problem: all images as training half, and the scores.
        w: the weights.
    """

    def step(position: Position) -> dict[str, Tensor]:
        found = problem.gradients(w.network, w.weights, "train", position, "both")
        w.variable.descend(found.weights, position)
        problem.architecture.descend(found.architecture, position)
        return losses(found.loss, torch.zeros_like(found.loss))

    return step


def weights_step(problem: Problem, w: WeightCopy) -> Step:
    """The weights ``w`` alone, on all images of ``problem``: scores stay 1."""

    def step(position: Position) -> dict[str, Tensor]:
        loss = descend_weights(problem, w, position)
        return losses(loss, torch.zeros_like(loss))

    return step
