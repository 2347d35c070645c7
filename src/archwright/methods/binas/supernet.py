"""The paper's strategy of BINAS: heaviest network, supernet, estimator, solver, tuning. For large data, reproductions.

1. ``heaviest``: the largest sub-network is trained alone. It starts the supernet and teaches it.
2. ``supernet``: every image of a batch goes through its own random sub-network, distilled from the heaviest.
3. ``measure``: one pool of random sub-networks, each on some validation images and with batch-norm statistics of its
   own, gives all terms of the predictor at once: a constant, a term a depth and a term a block configuration.
4. ``rounds``: the last third of the measurements, around the limits: networks that are best within a limit by terms
   drawn from the predictor's posterior, with a new fit before each round (:mod:`archwright.predictors.rounds`).
5. ``solve``: predictor and latency are additive, so the exact front of all undominated networks is one pass; a limit on
   several resources goes to an integer program.
6. ``verify``: the front's networks just within a limit, and the best of the rounds', are measured on all validation
   images, and the best of them is built and timed. While it is over the limit, the choice steps down the front.
7. ``tune``: each network is cut out of the supernet, fine-tuned with distillation and validated. Every limit gets the
   best on validation of those within it, so that a looser one is never worse.

Letters as in :mod:`archwright.solvers.problem`. Several limits give several models of one supernet. Everything is
resumable: trainings by checkpoints, measurements by a log of finished batches.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau, spearmanr
from torch import Tensor, nn

from archwright.costs.device_table import DeviceTable
from archwright.data import Augmentation, Batches
from archwright.data.augmentation import OwnAugmentation, policy_for
from archwright.data.shards import Shard
from archwright.device import seconds_on
from archwright.errors import InputError
from archwright.methods.binas.exact import (
    SHARE_OF_ROUNDS,
    SHARES_OF_RANGE,
    ChosenNetwork,
    ExactChoice,
    FrontResult,
    RoundsResult,
    VerifyResult,
    solve_within,
)
from archwright.methods.binas.options import BinasOptions
from archwright.models import Model, load_member
from archwright.numerics import autocast
from archwright.predictors.comparison import compare_predictors
from archwright.predictors.contributions import Contributions
from archwright.predictors.hierarchical import HierarchicalFit, attributes_of, fit_hierarchical
from archwright.predictors.rounds import Field, Measured, RoundSettings, StagedField, measure_in_rounds
from archwright.predictors.staged import (
    StagedEstimate,
    by_known_difficulty,
    pool_estimates,
    shrunk,
    without_difficulty,
)
from archwright.runs import disk
from archwright.runs.files import Json, write_json
from archwright.runs.run import Run
from archwright.search.answer import Beside
from archwright.search.context import Context
from archwright.search.driving import drive_stage
from archwright.search.evaluator import team_share
from archwright.search.jobs import measure as accuracy_of
from archwright.search.limited import PlainSteps, Summary
from archwright.search.method import BY_LATENCY, BY_LIMITS, Stage
from archwright.search.trained import TrainedNetwork, Trainer, networks_of, short_name
from archwright.search.values import StageResult
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.spaces.base import Network
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.supernets.elastic import ElasticSupernet, deal
from archwright.supernets.files import FILE_NAME, load_supernet, save_supernet
from archwright.supernets.measure import Norms, Outcome, measure_subnetwork, recalibrated
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
ROUND_BATCHES = 8
"""Batches of images that each network of the rounds is measured on."""
FEWEST_COMPARED = 50
"""Measured networks from which on predictors that are fitted to such measurements are compared, too."""
R = TypeVar("R", bound=StageResult)


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


class PoolResult(StageResult):
    """The pool of measurements and what it says of the design decisions."""

    rows: int
    mean_accuracy: float
    insights: list[str]


@dataclass(frozen=True)
class Predictor:
    """What is solved for: additive terms, and what accuracies in percent their sums mean."""

    estimate: StagedEstimate
    percent: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda values: values


class TuneResult(StageResult):
    """Names of the networks that were tuned."""

    networks: list[str]


@dataclass
class Supernet:
    """The strategy; the frame sets ``table``."""

    context: Context
    options: BinasOptions
    space: MbConv
    table: DeviceTable = field(init=False)

    repeated = ()
    facts: Mapping[str, Json] = field(default_factory=dict)

    # --- settings ---

    @property
    def spaces(self) -> dict[int, MbConv]:
        """One, at the images' own size."""
        return {self._size: self.space}

    @property
    def _size(self) -> int:
        return self.space.scale.image_size

    @cached_property
    def work(self) -> SupernetWork:
        """What trains the supernet and measures its sub-networks."""
        source = Path(self.options.supernet) if self.options.supernet is not None else None
        return SupernetWork(self.context, self.space, source, self.options.paths)

    @cached_property
    def trainer(self) -> Trainer:
        """What validates and keeps tuned networks; they are trained by epochs, as the supernet is."""
        task = self.context.task
        return Trainer(self.context, self.tuning_recipe(), lambda _: task.data, task.augmentation_of)

    def check(self) -> None:
        """A supernet that is given must fit."""
        if self.options.supernet is not None:
            _ = self.work.trained

    def check_source(self, source: Run) -> None:
        """Always refused: this strategy counts epochs and has no counted steps to repeat."""
        raise InputError("no --plan-from with the plan 'paper'", str(source.folder), "Use --supernet and --epochs.")

    def limits_without(self) -> list[float]:
        """Two inside the reachable range."""
        least, most = self.table.problem(self._size).cost_range("latency_ms")
        return [round(least + share * (most - least), 4) for share in SHARES_OF_RANGE]

    def estimate_seconds(self) -> float:
        """From three timed steps of the heaviest network; the table and the measuring are added as a guess."""
        context, recipe = self.context, self.context.task.recipe
        size, scale = min(recipe.batch_size, len(context.task.data.train)), self.space.scale
        network = OnePath(self.work.new_supernet(), self.space.to_choice(self.space.heaviest())).train()
        x = torch.zeros(size, scale.image_channels, scale.image_size, scale.image_size, device=context.device.torch)
        times = []
        for _ in range(3):
            begin = seconds_on(context.device.torch)
            with autocast(context.device.torch):
                total = network(x).sum()
            total.backward()
            times.append(seconds_on(context.device.torch) - begin)
        models = max(2, len(context.configuration.limit_sets))
        epochs = 1.3 * models * self.tuning_recipe().epochs
        epochs += 0 if self.options.supernet else recipe.epochs + 1.3 * self._supernet_recipe().epochs
        steps = team_share(context) * epochs * max(1, len(context.task.data.train) // size)
        return float(np.median(times)) * (steps + self.options.rows / (3 * size)) + 20

    def before_table(self) -> list[Stage]:
        """No stages: limits and latencies are known before the supernet is trained."""
        return []

    def training_stages(self) -> list[Stage]:
        """In order; a supernet that is given is not trained again."""
        training = [
            Stage("heaviest", "train the heaviest network", self.work.train_heaviest),
            Stage("supernet", "train the supernet", lambda: self.work.train_supernet(self._supernet_recipe())),
        ]
        ranks = [Stage("rank", "judge the predictor", lambda: self.work.measure_ranks(self.options.rank_networks))]
        both = BY_LIMITS | BY_LATENCY
        return [
            *([] if self.options.supernet else training),
            Stage("measure", "measure sub-networks", self._measure),
            *(ranks if self.options.rank_networks else []),
            *([Stage("rounds", "measure around the limits", self._rounds, redone=both)] if self._spent else []),
            Stage("solve", "exact front", lambda: self.exact.solve(), redone=both if self._spent else BY_LATENCY),
            Stage("verify", "latencies of the chosen networks", lambda: self.exact.verify(), redone=both),
            Stage("tune", "fine-tune", self._tune, redone=both),
        ]

    def _supernet_recipe(self) -> Recipe:
        epochs = self.options.supernet_epochs or self.context.task.recipe.epochs
        return self.work.recipe(epochs, self.options.supernet_lr, self.options.distill)

    def tuning_recipe(self) -> Recipe:
        """Of the chosen networks."""
        epochs = self.context.configuration.final_epochs or max(1, self.context.task.recipe.epochs // 2)
        recipe = self.work.recipe(epochs, self.options.tune_lr, self.options.distill)
        return recipe.changed(ema_decay=self.options.tune_ema)

    def _result(self, stage: str, kind: type[R]) -> R:
        return kind.model_validate(self.context.run.stage_result(stage))

    # --- measuring and choosing ---

    def _measure(self) -> PoolResult:
        """The pool, and what it says about the design decisions."""
        run, rows = self.context.run, self.work.measure_pool(self.options.rows - self._spent)
        estimate = self.work.estimate(centred=True)
        latency_ms = self.table.costs(self._size).block_costs["latency_ms"]
        found = Contributions.of(estimate, self.space.scale, latency_ms)
        write_json(run.artifact("contributions.json"), found.to_json())
        found.plot(run.artifact("contributions.png"))
        return PoolResult(rows=rows, mean_accuracy=estimate.fixed, insights=found.sentences())

    @property
    def _spent(self) -> int:
        """Rows that are kept for rounds around the limits."""
        return round(SHARE_OF_ROUNDS * self.options.rows) if self.options.measured_rounds else 0

    def _rounds(self) -> RoundsResult:
        """Measure what might be best within the limits; kept network by network."""
        each = self.work.rows_of_a_network
        networks = max(len(self.table.limit_sets), self._spent // each)
        seed = int(self.context.rng("rounds").integers(2**31))
        settings = RoundSettings(networks, self.options.measured_rounds, seed=seed)
        field = StagedField(self.table.problem(self._size), self.table.limit_sets, solve_within)
        found = [str(self.space.from_choice(choice)) for choice in self.work.measure_rounds(field, settings)]
        return RoundsResult(networks=found, rows=each * len(found))

    @cached_property
    def _around(self) -> list[str]:
        """Networks of the rounds."""
        return self._result("rounds", RoundsResult).networks if self._spent else []

    @cached_property
    def predictor(self) -> Predictor:
        """Accuracies of networks, as the options ask for them, from all that was measured."""
        return self.work.predictor(self.options.estimator, self.options.shrink, self._around)

    @property
    def problem(self) -> StagedProblem:
        """What is solved: the predictor's terms against all costs."""
        estimate = self.predictor.estimate
        return self.table.costs(self._size).problem(
            self.space, estimate.block_values, estimate.depth_values, fixed_value=estimate.fixed
        )

    @property
    def exact(self) -> ExactChoice:
        """What chooses the network of every limit."""
        measured = sorted(self._around, key=lambda text: -self.work.round_accuracy(text))
        place, percent = self._size, self.predictor.percent
        return ExactChoice(
            self.context, self.table, place, self.space, self.problem, percent, self._measured_loss, measured
        )

    def _measured_loss(self, architecture: str) -> float:
        """Cross entropy of a sub-network on the validation images; kept."""
        log = self.context.run.items("around")
        if architecture not in log.done:
            self.context.stop.check()
            found = self.work.outcome(self.space.to_choice(self.space.parse(architecture)))
            log.record(architecture, {"loss": found.loss, "accuracy": found.accuracy})
        return float(log.done[architecture]["loss"])

    # --- models ---

    def _tune(self) -> TuneResult:
        """Each different network: cut out, fine-tuned, validated; finished ones are not done again."""
        chosen = {one.architecture: one for one in self._result("verify", VerifyResult).chosen}
        names, recipe = {text: short_name(text, "tuned") for text in chosen}, self.tuning_recipe()
        waiting = [text for text in chosen if names[text] not in networks_of(self.context.run)]
        total = len(waiting) * recipe.epochs * len(self.work.batches(recipe))
        with self.context.progress.task("fine-tuning", total) as bar:
            for text in waiting:
                self._tune_one(chosen[text], names[text], recipe, bar)
        return TuneResult(networks=list(names.values()))

    def _tune_one(self, one: ChosenNetwork, name: str, recipe: Recipe, bar: Any) -> TrainedNetwork:
        context, architecture = self.context, self.space.parse(one.architecture)
        network = self.work.trained.cut_out(architecture)
        inherited = accuracy_of(network, context.task.data, "validation", context.device.name)
        policy = policy_for(context.task.data) if self.options.tune_autoaugment else None
        on_epoch = context.run.on_epoch("tune", model=name)
        self.work.train_network(network, recipe, f"trained/{name}", bar, policy, on_epoch)
        steps = recipe.epochs * len(self.work.batches(recipe))
        known = {
            "predicted_accuracy": one.predicted_accuracy,
            "inherited_accuracy": inherited.percent,
            "solver": one.solver,
        }
        return self.trainer.keep(name, network, architecture, self.space, steps, epochs=recipe.epochs, known=known)

    def pool(self) -> list[TrainedNetwork]:
        """What was tuned for the limits."""
        trained = networks_of(self.context.run)
        return [trained[name] for name in self._result("tune", TuneResult).networks]

    def preferred(self, within: Sequence[TrainedNetwork]) -> TrainedNetwork:
        """The best on validation."""
        return max(within, key=lambda one: one.validation_accuracy)

    def plain(self) -> PlainSteps:
        """As many steps as an answer's weights have seen."""
        recipes = [self.tuning_recipe()]
        if not self.options.supernet:
            recipes += [self.work.recipe(self.context.task.recipe.epochs, 1.0), self._supernet_recipe()]
        steps = sum(recipe.epochs for recipe in recipes) * len(self.work.batches(recipes[0]))
        return PlainSteps(self.work.recipe(1, 0.5), steps, self.context.task.augmentation())

    def beside(self) -> dict[str, Beside]:
        """No further simple things beside those of every search."""
        return {}

    def summary(self) -> Summary:
        """Some of the front's networks from end to end, and what the pool says of design decisions."""
        disk.remove(self.context.run.artifact("start.safetensors"))
        solved, pool = self._result("solve", FrontResult), self._result("measure", PoolResult)
        details = {"rank": self._result("rank", Ranks).ranks} if self.options.rank_networks else {}
        rows = pool.rows + (self._result("rounds", RoundsResult).rows if self._spent else 0)
        return Summary(solved.front, rows, pool.insights, details, solved.points)


# --- training and measuring -------------------------------------------------------------------------------------------


@dataclass
class SupernetWork:
    """Training and measuring for one search.

    Attributes:
        context: of the search.
        space: that the supernet is of.
        source: run folder that the supernet and its teacher are taken from; this run's own if None.
        paths: ``multi`` gives every image its own sub-network, ``single`` one to the whole batch.
    """

    context: Context
    space: MbConv
    source: Path | None
    paths: Literal["multi", "single"]

    # --- training ---

    def recipe(self, epochs: int, part_of_lr: float, distill: float = 0.0) -> Recipe:
        """The search's recipe, changed, with label smoothing.

        Args:
            epochs: instead of the search's.
            part_of_lr: that its learning rate is multiplied by.
            distill: weight of the teacher's predictions; 0 for none.
        """
        base = self.context.task.recipe
        lr = base.lr * part_of_lr
        return base.changed(epochs=epochs, lr=lr, label_smoothing=LABEL_SMOOTHING, distill_weight=distill)

    def batches(self, recipe: Recipe, autoaugment: str | None = None) -> Batches:
        """Augmented training batches.

        Args:
            recipe: says how many images a batch has.
            autoaugment: name of an AutoAugment policy besides; not with a user's own augmentation.
        """
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
        """``network`` of ``architecture`` with the scale of the space and the data's preprocessing."""
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
        """Plain training, with distillation where the recipe asks for it.

        Args:
            network: trained in place.
            recipe: of the training.
            name: that its checkpoints are kept under.
            bar: advanced after every step.
            autoaugment: name of an AutoAugment policy besides.
            on_epoch: called after each epoch with its number and metrics.
        """
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
            team=context.team,
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
        """The heaviest network, trained, in evaluation mode."""
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
            lambda position, images, shard: self._paths(position.index, images, shard),
            make_optimizer(supernet.parameters(), recipe),
            recipe.learning_rate(),
            loss=lambda logits, images, labels: self._loss(logits, images, labels, recipe),
            clip=recipe.clip,
            memory_format=torch.contiguous_format,
            team=context.team,
        )
        steps = len(training.batches)
        history = drive_stage(
            context, "supernet", training.step, training.state, epochs=recipe.epochs, steps_per_epoch=steps
        )
        save_supernet(supernet, fingerprint, context.run.artifact(FILE_NAME))
        return SupernetResult(training_accuracy=history[-1]["accuracy"], loss=history[-1]["loss"])

    def _paths(self, index: int, count: int, shard: Shard) -> StagedChoice:
        """Sub-networks of the images of a shard of step ``index``, dealt evenly within it; a single one for all."""
        rng, scale = self.context.rng("paths", index), self.space.scale
        if self.paths == "single":
            return deal(1, rng, scale)[0]
        return deal(count, rng if shard.of == 1 else self.context.rng("paths", index, shard.number), scale)

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
                    choice, norms = self._pool_choice(number), self._own(POOL_RECALIBRATED)
                    found = measure_subnetwork(self.trained, choice, images, norms)
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
    def rows_of_a_network(self) -> int:
        """Outcomes of a network of the rounds: some batches, so that one tells more than a network of the pool."""
        batches = self._pool_batches()
        return min(ROUND_BATCHES, len(batches)) * batches.batch_size

    def measure_rounds(self, field: Field, settings: RoundSettings) -> list[StagedChoice]:
        """Measure in rounds around limits; returns the networks, whose outcomes are kept.

        Args:
            field: the space and the limits.
            settings: number of networks and rounds.
        """
        attributes = attributes_of(self.space.configurations)
        with self.context.progress.task("measuring around the limits", settings.networks) as bar:

            def measure(choice: StagedChoice) -> list[float]:
                text = str(self.space.from_choice(choice))
                rows = self._round_rows(text)
                bar.advance()
                return rows

            return measure_in_rounds(measure, self._known([]), field, attributes, settings)[1]

    def _round_outcome(self, architecture: str) -> list[list[int]]:
        """Right or wrong on the images of each batch; the batches are the same for all networks."""
        log, batches = self.context.run.items("rounds"), self._pool_batches()
        if architecture not in log.done:
            self.context.stop.check()
            choice, norms = self.space.to_choice(self.space.parse(architecture)), self._own(RECALIBRATED_IMAGES)
            images = [batches.get(0, number) for number in range(min(ROUND_BATCHES, len(batches)))]
            found = measure_subnetwork(self.trained, choice, images, norms).correct.astype(int)
            log.record(architecture, [one.tolist() for one in np.split(found, len(images))])
        return [list(one) for one in log.done[architecture]]

    def round_accuracy(self, architecture: str) -> float:
        """Percent of the images of the rounds that a network of them has right."""
        return 100 * float(np.mean(self._round_outcome(architecture)))

    def _round_rows(self, architecture: str) -> list[float]:
        """Accuracies in percent of a network's batches, comparable with the pool's and as finite as they."""
        outcomes = np.array(self._round_outcome(architecture))
        images = np.concatenate([self._pool_images(number, len(own)) for number, own in enumerate(outcomes)])
        left = by_known_difficulty(100.0 * outcomes.ravel(), images, *self._pool_rows)
        return [float(one) for one in np.clip(left.reshape(outcomes.shape).mean(1), 0.0, self._most)]

    @property
    def _most(self) -> float:
        """No error at all counts as half an image."""
        return 100 - 50 / self._pool_batches().batch_size

    @cached_property
    def _pool_rows(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Outcomes of the pool, 100 or 0, and the number of the image of each, (rows,)."""
        done = self.context.run.items("measure").done
        rows = [done[str(number)]["correct"] for number in range(len(done))]
        images = [self._pool_images(number, len(own)) for number, own in enumerate(rows)]
        return 100.0 * np.concatenate(rows), np.concatenate(images)

    @property
    def pool(self) -> tuple[StagedChoice, NDArray[np.float64]]:
        """Measured sub-networks (n) and their accuracies in percent (n,), corrected for how hard their images are."""
        done = self.context.run.items("measure").done
        ends = np.cumsum([len(done[str(number)]["correct"]) for number in range(len(done))])[:-1]
        accuracy = np.array([own.mean() for own in np.split(without_difficulty(*self._pool_rows), ends)])
        return _stacked([self._pool_choice(number) for number in range(len(done))]), accuracy

    def estimate(self, centred: bool) -> StagedEstimate:
        """The published predictor's terms in percent, from the pool: conditional means, centred or as printed."""
        choices, accuracy = self.pool
        return pool_estimates(choices, accuracy, centred, len(self.space.configurations))

    def _known(self, around: Sequence[str]) -> Measured:
        """Rows of the pool and of networks ``around`` limits."""
        choices, accuracy = self.pool
        known = Measured(choices, np.clip(accuracy, 0.0, self._most))
        for text in around:
            known = known.with_rows(self.space.to_choice(self.space.parse(text)), self._round_rows(text))
        return known

    def hierarchical(self, around: Sequence[str] = ()) -> HierarchicalFit:
        """The hierarchical ridge on the log error, from the pool and networks ``around`` limits."""
        known = self._known(around)
        return fit_hierarchical(known.choices, known.accuracy, attributes_of(self.space.configurations))

    def predictor(
        self, estimator: Literal["hierarchical", "centred", "eq3"], shrink: bool, around: Sequence[str] = ()
    ) -> Predictor:
        """The predictor of accuracies from what was measured.

        Args:
            estimator: ``hierarchical``, ``centred``, or ``eq3`` as published.
            shrink: whether the terms of the latter two are shrunk by their noise.
            around: networks of the rounds, for the first.
        """
        if estimator == "hierarchical":
            fit = self.hierarchical(around)
            return Predictor(fit.estimate, fit.accuracy)
        estimate = self.estimate(estimator == "centred")
        return Predictor(shrunk(estimate) if shrink else estimate)

    def outcome(self, choice: StagedChoice) -> Outcome:
        """What a sub-network does on all validation images, with batch-norm statistics of its own."""
        data, device = self.context.task.data, self.context.device.name
        images = Batches(data, "validation", MEASURED_BATCH, shuffle=False, drop_last=False, device=device)
        return measure_subnetwork(self.trained, choice, images, self._own(RECALIBRATED_IMAGES))

    def measure_ranks(self, networks: int) -> Ranks:
        """Accuracies of random sub-networks on the validation images, and how well predictors rank them."""
        context, log = self.context, self.context.run.items("rank")
        with context.progress.task("random sub-networks", networks) as bar:
            for number in range(networks):
                if str(number) not in log.done:
                    context.stop.check()
                    found = self.outcome(self._rank_choice(number))
                    halves = [100 * float(found.correct[half::2].mean()) for half in (0, 1)]
                    log.record(str(number), {"accuracies": halves, "loss": found.loss})
                bar.advance()
        choices, accuracies = self.ranked
        hierarchical = self.hierarchical().estimate
        ranks = rank_correlations(self.estimate(True), self.estimate(False), hierarchical, choices, accuracies)
        if networks >= FEWEST_COMPARED and np.ptp(accuracies.mean(1)):
            configurations = self.space.configurations
            ranks["fitted"] = compare_predictors(
                choices, accuracies.mean(1), len(configurations), attributes=attributes_of(configurations)
            )
        return Ranks(ranks=ranks)

    def _rank_choice(self, number: int) -> StagedChoice:
        return self.space.to_choice(self.space.sample(self.context.rng("rank", number)))

    @property
    def ranked(self) -> tuple[StagedChoice, NDArray[np.float64]]:
        """The random sub-networks that predictors are judged by (n), and their accuracies in percent on two halves of
        the validation images, (n, 2).
        """
        done = self.context.run.items("rank").done
        accuracies = np.array([done[str(number)]["accuracies"] for number in range(len(done))])
        return StagedChoice.stack([self._rank_choice(number) for number in range(len(done))]), accuracies


def _stacked(choices: list[StagedChoice]) -> StagedChoice:
    return StagedChoice(np.stack([one.depths for one in choices]), np.stack([one.configurations for one in choices]))


def rank_correlations(
    centred: StagedEstimate,
    published: StagedEstimate,
    hierarchical: StagedEstimate,
    choices: StagedChoice,
    halves: NDArray[np.float64],
) -> Json:
    """Kendall's tau and Spearman's rho of predictions with accuracies, by predictor.

    ``hierarchical`` is what is solved by default, ``shrunk`` the centred predictor as the solver sees it.
    ``q_beta = 0`` leaves out the published one's depth terms and ``Q = 0`` its block terms (Table 2). ``halves`` is the
    agreement of the two: how well measurements of half this size can be repeated at all.

    Args:
        centred: the centred estimate.
        published: the one by eq. 3.
        hierarchical: the one that is solved.
        choices: n networks.
        halves: their accuracies on two halves of the images, (n, 2), whose mean is predicted.
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
