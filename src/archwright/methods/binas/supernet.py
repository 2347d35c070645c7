"""The expensive half of BINAS: train the heaviest network and the supernet, and measure random sub-networks.

Everything is resumable: trainings by checkpoints, measurements by a log of finished batches.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau, spearmanr
from torch import Tensor, nn

from archwright.data import Augmentation, Batches
from archwright.data.augmentation import OwnAugmentation
from archwright.models import Model, load_member
from archwright.predictors.comparison import compare_predictors
from archwright.predictors.hierarchical import HierarchicalFit, attributes_of, fit_hierarchical
from archwright.predictors.staged import StagedEstimate, pool_estimates, shrunk, without_difficulty
from archwright.runs.files import Json
from archwright.search.context import Context
from archwright.search.driving import drive_stage
from archwright.search.jobs import measure as accuracy_of
from archwright.search.values import StageResult
from archwright.solvers.problem import StagedChoice
from archwright.spaces.base import Network
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.supernets.elastic import ElasticSupernet, deal
from archwright.supernets.files import FILE_NAME, load_supernet, save_supernet
from archwright.supernets.measure import Norms, Outcome, measure, recalibrated
from archwright.supernets.train import SharedTraining, new_elastic_supernet
from archwright.training import Recipe, train
from archwright.training.losses import classification_loss
from archwright.training.plain import make_optimizer

LABEL_SMOOTHING = 0.1
MEASURED_BATCH = 512
RECALIBRATED_IMAGES = 512
"""Training images that give a measured sub-network its batch-norm statistics."""
FEWEST_NETWORKS = 4
"""Sub-networks that the predictor can be fitted to, however few rows are asked for."""
POOL_IMAGES, POOL_RECALIBRATED = 64, 128
"""Images that each sub-network of the pool is measured on, and training images that give it its statistics."""
FEWEST_COMPARED = 50
"""Measured networks from which on predictors that are fitted to such measurements are compared, too."""


class OnePath(nn.Module):
    """A supernet that takes the same sub-network for every image, trained like any network."""

    def __init__(self, supernet: ElasticSupernet, choice: StagedChoice) -> None:
        super().__init__()
        self.supernet, self.choice = supernet, choice

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) to logits (B, classes)."""
        logits: Tensor = self.supernet(x, self.choice)
        return logits


class HeaviestResult(StageResult):
    """Of the heaviest network alone."""

    validation_accuracy: float


class SupernetResult(StageResult):
    """Means over the last epoch."""

    training_accuracy: float
    loss: float


class Ranks(StageResult):
    """Rank correlations by predictor, as :func:`rank_correlations` gives them."""

    ranks: dict[str, Any]


@dataclass(frozen=True)
class Predictor:
    """What is solved for: additive terms, and what accuracies in percent their sums mean."""

    estimate: StagedEstimate
    percent: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda values: values


@dataclass
class SupernetWork:
    """Training and measuring for one search.

    Attributes:
        source: run folder that the supernet and its teacher are taken from; this run's own if None.
        paths: ``multi`` gives every image its own sub-network, ``single`` one to the whole batch.
    """

    context: Context
    space: MbConv
    source: Path | None
    paths: Literal["multi", "single"]

    # --- training ---

    def recipe(self, epochs: int, part_of_lr: float, distill: float = 0.0) -> Recipe:
        """The search's recipe for other epochs and another learning rate, with label smoothing."""
        base = self.context.task.recipe
        lr = base.lr * part_of_lr
        return base.changed(epochs=epochs, lr=lr, label_smoothing=LABEL_SMOOTHING, distill_weight=distill)

    def batches(self, recipe: Recipe, autoaugment: str | None = None) -> Batches:
        """Augmented training batches, also by the AutoAugment policy of that name where one is given."""
        context = self.context
        augment = context.task.augmentation()
        if autoaugment is not None and not isinstance(augment, OwnAugmentation):
            augment = replace(augment or Augmentation(), autoaugment=autoaugment)
        seed, device = context.configuration.seed, context.device.name
        return Batches(context.task.data, "train", recipe.batch_size, seed=seed, augment=augment, device=device)

    def new_supernet(self) -> ElasticSupernet:
        """With the initial weights of the seed."""
        return new_elastic_supernet(self.space, seed=self.context.configuration.seed, device=self.context.device.torch)

    def model(self, network: Network, architecture: MbConvArchitecture) -> Model:
        """A network of the space with the data's preprocessing."""
        return Model(network, self.space.name, architecture, self.space.scale, self.context.task.data.preprocessing)

    def train_network(
        self,
        network: nn.Module,
        recipe: Recipe,
        name: str,
        bar: Any,
        autoaugment: str | None = None,
        on_epoch: Callable[[int, dict[str, float]], None] | None = None,
    ) -> None:
        """Plain training, with distillation where the recipe asks for it; checkpoints are kept under ``name``."""
        context = self.context
        train(
            network,
            self.batches(recipe, autoaugment),
            recipe,
            seed=context.configuration.seed,
            device=context.device.name,
            teacher=self.teacher if recipe.distill_weight else None,
            checkpoints=context.run.checkpoints(name),
            stop=context.stop,
            on_step=lambda _: bar.advance(),
            on_epoch=on_epoch,
        )

    def train_heaviest(self) -> HeaviestResult:
        """Train the heaviest path alone; keep it as a model of its own and as the start of the supernet."""
        context, recipe = self.context, self.recipe(self.context.task.recipe.epochs, 1.0)
        supernet, heaviest = self.new_supernet(), self.space.heaviest()
        network = OnePath(supernet, self.space.to_choice(heaviest))
        with context.progress.task("heaviest network", recipe.epochs * len(self.batches(recipe))) as bar:
            self.train_network(network, recipe, "heaviest", bar, on_epoch=context.run.on_epoch("heaviest"))
        model = self.model(supernet.cut_out(heaviest), heaviest)
        accuracy = accuracy_of(model.network, context.task.data, "validation", context.device.name)
        model.measured = {"accuracy": accuracy.percent, "accuracy_on": f"{context.task.data.name} validation"}
        model.save(context.run.artifact("heaviest.safetensors"))
        supernet.spread_heaviest()
        save_supernet(supernet, context.task.data.fingerprint, context.run.artifact("start.safetensors"))
        context.progress.say(f"The heaviest network: {accuracy.percent:.2f} % on validation.")
        return HeaviestResult(validation_accuracy=accuracy.percent)

    @property
    def artifacts(self) -> Path:
        """Where the trained supernet and its teacher are."""
        return (self.source or self.context.run.folder) / "artifacts"

    @cached_property
    def teacher(self) -> nn.Module:
        """The heaviest network."""
        teacher = load_member(self.artifacts / "heaviest.safetensors").network
        teacher.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return teacher.to(self.context.device.torch).eval()

    @cached_property
    def trained(self) -> ElasticSupernet:
        """The trained supernet, for measuring and cutting out."""
        path = self.artifacts / FILE_NAME
        return load_supernet(path, self.new_supernet(), self.context.task.data.fingerprint).eval()

    def train_supernet(self, recipe: Recipe) -> SupernetResult:
        """Fine-tune all sub-networks together, from the heaviest one's weights and towards its answers."""
        context, fingerprint = self.context, self.context.task.data.fingerprint
        supernet = load_supernet(context.run.artifact("start.safetensors"), self.new_supernet(), fingerprint)
        training = SharedTraining(
            supernet,
            self.batches(recipe),
            lambda position, images: self._paths(position.index, images),
            make_optimizer(supernet.parameters(), recipe),
            recipe.learning_rate(),
            loss=lambda logits, images, labels: self._loss(logits, images, labels, recipe),
            clip=recipe.clip,
            memory_format=torch.contiguous_format,
        )
        steps = len(training.batches)
        history = drive_stage(
            context, "supernet", training.step, training.state, epochs=recipe.epochs, steps_per_epoch=steps
        )
        save_supernet(supernet, fingerprint, context.run.artifact(FILE_NAME))
        return SupernetResult(training_accuracy=history[-1]["accuracy"], loss=history[-1]["loss"])

    def _paths(self, index: int, count: int) -> StagedChoice:
        """Sub-networks of the images of step ``index``."""
        rng, scale = self.context.rng("paths", index), self.space.scale
        return deal(1, rng, scale)[0] if self.paths == "single" else deal(count, rng, scale)

    def _loss(self, logits: Tensor, images: Tensor, labels: Tensor, recipe: Recipe) -> Tensor:
        taught = None
        if recipe.distill_weight:
            with torch.no_grad():
                taught = self.teacher(images.contiguous(memory_format=torch.channels_last))
        return classification_loss(
            logits,
            labels,
            label_smoothing=recipe.label_smoothing,
            teacher_logits=taught,
            distill_weight=recipe.distill_weight,
            distill_temperature=recipe.distill_temperature,
        )

    # --- measuring ---

    def measure_pool(self, rows: int) -> int:
        """Fill the pool up to ``rows`` rows; returns its size.

        Each random sub-network is measured on some of the validation images, with statistics of its own. Outcomes are
        kept; which images and sub-network they belong to is a function of the seed and the number.
        """
        context, batches = self.context, self._pool_batches()
        log = context.run.items("measure")
        count = max(FEWEST_NETWORKS, -(-rows // batches.batch_size))
        with context.progress.task("measuring sub-networks", count) as bar:
            for number in range(count):
                if str(number) not in log.done:
                    context.stop.check()
                    images = [batches.get(*divmod(number, len(batches)))]
                    (found,) = measure(self.trained, [self._pool_choice(number)], images, self._own(POOL_RECALIBRATED))
                    log.record(
                        str(number), {"correct": found.correct.astype(int).tolist(), "loss": round(found.loss, 5)}
                    )
                bar.advance()
        return sum(len(one["correct"]) for one in log.done.values())

    def _own(self, images: int) -> Norms:
        """Batch-norm statistics of each sub-network's own, over so many training images at most.

        The supernet's are those of all its sub-networks mixed: measured with them, orders are mostly noise.
        """
        data, device = self.context.task.data, self.context.device.name
        size = min(images, len(data.train))
        seen = Batches(data, "train", min(size, 128), seed=self.context.configuration.seed, device=device)
        return recalibrated(seen, size)

    def _pool_batches(self) -> Batches:
        """Passes over the validation images, each in its own order."""
        context = self.context
        size, seed = min(POOL_IMAGES, len(context.task.data.validation)), context.configuration.seed
        return Batches(context.task.data, "validation", size, seed=seed, device=context.device.name)

    def _pool_images(self, number: int, count: int) -> NDArray[np.int64]:
        """Which images the rows of batch ``number`` are of."""
        batches = self._pool_batches()
        epoch, step = divmod(number, len(batches))
        return batches.order(epoch)[step * batches.batch_size :][:count]

    def _pool_choice(self, number: int) -> StagedChoice:
        return deal(1, self.context.rng("pool", number), self.space.scale)[0]

    @property
    def pool(self) -> tuple[StagedChoice, NDArray[np.float64]]:
        """Measured sub-networks (n) and their accuracies in percent (n,), corrected for how hard their images are."""
        done = self.context.run.items("measure").done
        rows = [done[str(number)]["correct"] for number in range(len(done))]
        images = np.concatenate([self._pool_images(number, len(own)) for number, own in enumerate(rows)])
        outcome = without_difficulty(100.0 * np.concatenate(rows), images)
        ends = np.cumsum([len(own) for own in rows])[:-1]
        accuracy = np.array([own.mean() for own in np.split(outcome, ends)])
        return _stacked([self._pool_choice(number) for number in range(len(done))]), accuracy

    def estimate(self, centred: bool) -> StagedEstimate:
        """The published predictor's terms in percent, from the pool: conditional means, centred or as printed."""
        choices, accuracy = self.pool
        return pool_estimates(choices, accuracy, centred, len(self.space.configurations))

    def hierarchical(self) -> HierarchicalFit:
        """The hierarchical ridge on the log error, from the pool. No error at all counts as half an image."""
        choices, accuracy = self.pool
        best = 100 - 50 / self._pool_batches().batch_size
        return fit_hierarchical(choices, np.clip(accuracy, 0.0, best), attributes_of(self.space.configurations))

    def predictor(self, estimator: Literal["hierarchical", "centred", "eq3"], shrink: bool) -> Predictor:
        """The one of that name; ``shrink`` shrinks the terms of the published ones by their noise."""
        if estimator == "hierarchical":
            fit = self.hierarchical()
            return Predictor(fit.estimate, fit.accuracy)
        estimate = self.estimate(estimator == "centred")
        return Predictor(shrunk(estimate) if shrink else estimate)

    def outcome(self, choice: StagedChoice) -> Outcome:
        """What a sub-network does on all validation images, with batch-norm statistics of its own."""
        data, device = self.context.task.data, self.context.device.name
        images = Batches(data, "validation", MEASURED_BATCH, shuffle=False, drop_last=False, device=device)
        (found,) = measure(self.trained, [choice], images, self._own(RECALIBRATED_IMAGES))
        return found

    def measure_ranks(self, networks: int) -> Ranks:
        """Accuracies of random sub-networks on the validation images, and how well predictors rank them."""
        context, log = self.context, self.context.run.items("rank")
        drawn = [self.space.to_choice(self.space.sample(context.rng("rank", number))) for number in range(networks)]
        with context.progress.task("random sub-networks", networks) as bar:
            for number, choice in enumerate(drawn):
                if str(number) not in log.done:
                    context.stop.check()
                    found = self.outcome(choice)
                    halves = [100 * float(found.correct[half::2].mean()) for half in (0, 1)]
                    log.record(str(number), {"accuracies": halves, "loss": found.loss})
                bar.advance()
        accuracies = np.array([log.done[str(number)]["accuracies"] for number in range(networks)])
        choices = _stacked(drawn)
        hierarchical = self.hierarchical().estimate
        ranks = rank_correlations(self.estimate(True), self.estimate(False), hierarchical, choices, accuracies)
        if networks >= FEWEST_COMPARED and np.ptp(accuracies.mean(1)):
            configurations = self.space.configurations
            ranks["fitted"] = compare_predictors(
                choices, accuracies.mean(1), len(configurations), attributes=attributes_of(configurations)
            )
        return Ranks(ranks=ranks)


def _stacked(choices: list[StagedChoice]) -> StagedChoice:
    return StagedChoice(np.stack([one.depths for one in choices]), np.stack([one.configurations for one in choices]))


def rank_correlations(
    centred: StagedEstimate,
    published: StagedEstimate,
    hierarchical: StagedEstimate,
    choices: StagedChoice,
    halves: NDArray[np.float64],
) -> Json:
    """Kendall's tau and Spearman's rho with the mean of ``halves`` (n, 2), the accuracies on two halves of the images.

    ``hierarchical`` is what is solved by default, ``shrunk`` the centred predictor as the solver sees it.
    ``q_beta = 0`` leaves out the published one's depth terms and ``Q = 0`` its block terms (Table 2). ``halves`` is the
    agreement of the two: how well measurements of half this size can be repeated at all.
    """
    accuracy = halves.mean(1)
    compared = {
        "hierarchical": (hierarchical.predict(choices), accuracy),
        "centred": (centred.predict(choices), accuracy),
        "shrunk": (shrunk(centred).predict(choices), accuracy),
        "eq3": (published.predict(choices), accuracy),
        "q_beta = 0": (replace(published, depth_values=0 * published.depth_values).predict(choices), accuracy),
        "Q = 0": (replace(published, block_values=0 * published.block_values).predict(choices), accuracy),
        "halves": (halves[:, 0], halves[:, 1]),
    }
    found: dict[str, Json] = {"networks": len(halves)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of constant accuracies, whose correlation is null
        for name, pair in compared.items():
            numbers = {"kendall": kendalltau(*pair).statistic, "spearman": spearmanr(*pair).statistic}
            found[name] = {key: float(value) if np.isfinite(value) else None for key, value in numbers.items()}
    return found
