"""The strategy of BINAS for a user's own network with choices in it: exact limits among all its combinations.

1. ``supernet``: the user's network is trained with one uniformly drawn path a step; from weights of theirs at a low
   rate (``--pretrained FILE``).
2. ``measure``: random sub-networks on validation images, each with batch-norm statistics of its own. A hierarchical
   ridge on the log error says what every option adds; some that are held out say how well it ranks.
3. ``rounds``: the last third of the measurements, around the limits (:mod:`archwright.predictors.rounds`).
4. ``solve``: the exact front of all combinations (:mod:`archwright.spaces.model_stages`).
5. ``verify``: the networks around each limit are measured, and of these and the best of the rounds the best is timed;
   while it is over, the next is taken.
6. ``tune``: each is cut out of the supernet, trained on and validated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file
from scipy.stats import kendalltau, spearmanr
from torch import Tensor

from archwright.costs.device_table import DeviceTable
from archwright.data import Batches
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
from archwright.methods.binas.supernet import SupernetResult, TuneResult
from archwright.predictors.hierarchical import HierarchicalFit, attributes_of, fit_hierarchical
from archwright.predictors.rounds import Measured, RoundSettings, StagedField, measure_in_rounds
from archwright.runs.files import Json
from archwright.runs.run import Run
from archwright.search.answer import Beside
from archwright.search.context import Context
from archwright.search.driving import drive_stage
from archwright.search.evaluator import team_share
from archwright.search.limited import PlainSteps, Summary
from archwright.search.method import BY_LATENCY, BY_LIMITS, Stage
from archwright.search.task import Task
from archwright.search.trained import TrainedNetwork, Trainer, networks_of, short_name
from archwright.search.values import StageResult
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.spaces.base import Network
from archwright.spaces.choice_space import Combination
from archwright.spaces.model_space import ModelSpace
from archwright.spaces.model_stages import ModelStages
from archwright.supernets.files import FILE_NAME, load_supernet, save_supernet
from archwright.supernets.measure import Outcome, measure_subnetwork, recalibrated
from archwright.supernets.model import ModelSupernet, load_by_key
from archwright.supernets.train import SharedTraining, new_supernet
from archwright.training import Position, Recipe, recalibrate
from archwright.training.plain import make_optimizer

MEASURED, HELD_OUT = 120, 30
"""Sub-networks that are measured, and how many of the random ones only judge the predictor."""
IMAGES, BATCH = 512, 256
"""Validation images of each, at most, and training images that give it its statistics; images at once."""
FROM_WEIGHTS = 0.1
"""Learning rate of everything that starts from a user's weights, as a part of the recipe's."""
FEWEST_STEPS = 1500
"""Steps of the supernet, and at most of the tuning, where no epochs are asked for: few images are seen more often."""
WARMED_UP = 0.05
"""Part of a training over which the learning rate climbs."""
RANKS_WELL = 0.4
"""Kendall's tau on held-out networks below which the choices interact too strongly for a sum, and it is said."""
R = TypeVar("R", bound=StageResult)


class MeasureResult(StageResult):
    """What is known of the predictor: networks, their mean accuracy in percent, and ranks of those held out."""

    networks: int
    mean_accuracy: float
    kendall: float | None
    spearman: float | None
    insights: list[str]


def default_epochs(task: Task) -> dict[str, int]:
    """Epochs of the supernet and of the tuning where the user says nothing of them."""
    recipe, images = task.recipe, len(task.data.train)
    steps = max(1, images // min(recipe.batch_size, images))
    epochs = task.configuration.epochs or max(recipe.epochs, -(-FEWEST_STEPS // steps))
    return {"epochs": epochs, "final_epochs": epochs}


def one_pass(recipe: Recipe) -> Recipe:
    """``recipe`` over counted steps instead of epochs."""
    return recipe.changed(epochs=1, warmup_epochs=WARMED_UP)


@dataclass
class OwnNetworkLimits:
    """The strategy; the frame sets ``table``."""

    context: Context
    options: BinasOptions
    space: ModelSpace
    table: DeviceTable = field(init=False)

    repeated = ()
    facts: Mapping[str, Json] = field(default_factory=dict)

    # --- settings ---

    @cached_property
    def stages(self) -> ModelStages:
        """The network as stages of blocks."""
        return ModelStages(self.space, self.context.task.scale)

    @property
    def spaces(self) -> dict[int, ModelStages]:
        """One, at the images' own size."""
        return {self._size: self.stages}

    @property
    def _size(self) -> int:
        return self.context.task.scale.image_size

    @cached_property
    def _rate(self) -> float:
        """Of the recipe's learning rate, by where the weights come from."""
        given = self.options.start is not None or self.space.comes_with_weights(self.stages.scale)
        return FROM_WEIGHTS if given else 1.0

    @cached_property
    def recipe(self) -> Recipe:
        """How the supernet is trained."""
        base, images = self.context.task.recipe, len(self.context.task.data.train)
        lr, size = base.lr * self._rate, min(base.batch_size, images)
        return base.changed(lr=lr, batch_size=size, warmup_epochs=WARMED_UP * base.epochs)

    @cached_property
    def tuning(self) -> Recipe:
        """How networks that are chosen are trained on."""
        epochs = self.context.configuration.final_epochs or self.recipe.epochs
        return self.recipe.changed(epochs=epochs, warmup_epochs=WARMED_UP * epochs)

    @cached_property
    def trainer(self) -> Trainer:
        """What trains, validates and keeps networks."""
        task = self.context.task
        return Trainer(self.context, self.tuning, lambda _: task.data, task.augmentation_of)

    def check(self) -> None:
        """Whether the choices can be summed up, and whether weights that are given fit anything."""
        _ = self.stages.shape
        if self.options.start is not None:
            self.fresh()

    def check_source(self, source: Run) -> None:
        """Always refused: this strategy counts epochs and has no plan to repeat."""
        raise InputError("no --plan-from with a network of your own", str(source.folder), "Give the same --epochs.")

    def limits_without(self) -> list[float]:
        """Two inside the reachable range."""
        least, most = self.table.problem(self._size).cost_range("latency_ms")
        return [round(least + share * (most - least), 4) for share in SHARES_OF_RANGE]

    def estimate_seconds(self) -> float:
        """From two timed steps of the supernet; table and measurements are added as a guess."""
        training, times = replace(self.training(self.fresh()), team=self.context.alone), []
        for _ in range(2):
            begin = seconds_on(self.context.device.torch)
            training.step(Position.at(0, self.recipe.epochs, len(training.batches)))
            times.append(seconds_on(self.context.device.torch) - begin)
        epochs = self.recipe.epochs + self.tuning.epochs * max(2, len(self.context.configuration.limit_sets))
        images = min(IMAGES, len(self.context.task.data.validation))
        steps = team_share(self.context) * epochs * len(training.batches)
        return min(times) * (steps + MEASURED * images / self.recipe.batch_size) + 10

    def before_table(self) -> list[Stage]:
        """No stage comes before the table."""
        return []

    def training_stages(self) -> list[Stage]:
        """From the supernet to the tuned answers."""
        both = BY_LIMITS | BY_LATENCY
        return [
            Stage("supernet", "train your network, a path a step", self._train_supernet),
            Stage("measure", "measure sub-networks", self._measure),
            *([Stage("rounds", "measure around the limits", self._rounds, redone=both)] if self._spent else []),
            Stage("solve", "exact front", lambda: self.exact.solve(), redone=both if self._spent else BY_LATENCY),
            Stage("verify", "latencies of the chosen networks", lambda: self.exact.verify(), redone=both),
            Stage("tune", "train the chosen networks on", self._tune, redone=both),
        ]

    def _result(self, stage: str, kind: type[R]) -> R:
        return kind.model_validate(self.context.run.stage_result(stage))

    # --- the supernet ---

    def fresh(self) -> ModelSupernet:
        """With the weights that the search begins with."""
        seed, device = int(self.context.rng("supernet").integers(2**31)), self.context.device.torch
        supernet = new_supernet(self.space, self.stages.scale, seed=seed, device=device)
        assert isinstance(supernet, ModelSupernet)
        if self.options.start is not None:
            self._start_from(supernet, Path(self.options.start))
        return supernet

    def _start_from(self, supernet: ModelSupernet, path: Path) -> str:
        """Takes what fits of the file, and says how much that is."""
        try:
            state = load_file(path)
        except Exception as error:
            raise InputError("a FILE.safetensors with weights of your network", f"{path} ({error})") from error
        taken, count = load_by_key(supernet.network, state)
        if not taken:
            raise InputError(f"weights in {path} under keys of {self.space.title}", f"none of its {count}")
        return f"{path.name} has {taken} of the {count} tensors of {self.space.title} with all its options"

    @property
    def _given(self) -> str:
        """Where the weights come from."""
        if self.options.start is None:
            return f"{self.space.title} comes with weights"
        supernet = new_supernet(self.space, self.stages.scale, seed=0, device="cpu")
        assert isinstance(supernet, ModelSupernet)
        return self._start_from(supernet, Path(self.options.start))

    @cached_property
    def supernet(self) -> ModelSupernet:
        """The trained one, of the run's file."""
        path, fingerprint = self.context.run.artifact(FILE_NAME), self.context.task.data.fingerprint
        return load_supernet(path, self.fresh(), fingerprint)

    def training(self, supernet: ModelSupernet) -> SharedTraining:
        """The training of ``supernet``, a random path a step."""
        context, task = self.context, self.context.task
        seed = int(context.rng("order").integers(2**31))
        augment, size = task.augmentation(cutout=0), self.recipe.batch_size
        batches = Batches(task.data, "train", size, seed=seed, augment=augment, device=context.device.torch)

        def path(position: Position, _images: int, _shard: Shard) -> dict[str, Tensor]:
            drawn = self.space.sample(context.rng("path", position.index))
            return supernet.one_hot(drawn, context.device.torch)

        optimizer = make_optimizer(supernet.parameters(), self.recipe)
        clip, rate, team = self.recipe.clip or 5.0, self.recipe.learning_rate(), context.team
        return SharedTraining(supernet.train(), batches, path, optimizer, rate, clip=clip, team=team)

    def _train_supernet(self) -> SupernetResult:
        context, training = self.context, self.training(self.fresh())
        if self._rate != 1.0:
            context.progress.say(f"{self._given}: training at {self._rate:g} of the usual learning rate.")
        history = drive_stage(
            context,
            "supernet",
            training.step,
            training.state,
            epochs=self.recipe.epochs,
            steps_per_epoch=len(training.batches),
        )
        supernet = training.supernet
        assert isinstance(supernet, ModelSupernet)
        save_supernet(supernet, context.task.data.fingerprint, context.run.artifact(FILE_NAME))
        return SupernetResult(training_accuracy=history[-1]["accuracy"], loss=history[-1]["loss"])

    # --- measuring ---

    def outcome(self, architecture: Combination, supernet: ModelSupernet | None = None) -> Outcome:
        """On validation images with shared weights, and with statistics of its own.

        Args:
            architecture: that is measured.
            supernet: whose weights; the trained one by default.
        """
        supernet = self.supernet if supernet is None else supernet
        data, device = self.context.task.data, self.context.device.torch
        some = np.unique(np.linspace(0, len(data.validation) - 1, min(IMAGES, len(data.validation))).astype(np.int64))
        images = Batches(data, "validation", BATCH, shuffle=False, drop_last=False, indices=some, device=device)
        size = min(BATCH, len(data.train))
        own = recalibrated(Batches(data, "train", size, seed=self.context.configuration.seed, device=device), size)
        return measure_subnetwork(supernet, supernet.one_hot(architecture, device), images, own)

    def _drawn(self, number: int) -> Combination:
        return self.space.sample(self.context.rng("pool", number))

    def _measure(self) -> MeasureResult:
        """A pool of random sub-networks; those held out judge what is fitted to the others."""
        context, log, count = self.context, self.context.run.items("measure"), self._count - self._spent
        with context.progress.task("measuring sub-networks", count) as bar:
            for number in range(count):
                if str(number) not in log.done:
                    context.stop.check()
                    log.record(str(number), self.outcome(self._drawn(number)).accuracy)
                bar.advance()
        held = min(HELD_OUT, count // 4)
        choices, accuracy = self._pool
        fit = self._fit(choices[slice(held, None)], accuracy[held:])
        predicted, seen = fit.predict(choices[slice(0, held)]), accuracy[:held]
        varies = held > 2 and np.ptp(predicted) > 0 and np.ptp(seen) > 0
        tau = float(kendalltau(predicted, seen).statistic) if varies else None
        rho = float(spearmanr(predicted, seen).statistic) if varies else None
        said = [] if tau is None or rho is None else [f"Held-out sub-networks are ranked by {tau:.2f} (Kendall's tau)."]
        if tau is not None and tau < RANKS_WELL:
            warning = (
                f"Warning: what options add ranks {held} other sub-networks by {tau:.2f} only (Kendall's tau): the "
                "choices interact too strongly for a sum, or the supernet is trained too little. Give more --epochs."
            )
            context.progress.warn(warning)
            context.run.event("warning", text=warning)
        mean = float(accuracy.mean())
        return MeasureResult(networks=count, mean_accuracy=mean, kendall=tau, spearman=rho, insights=said)

    @property
    def _count(self) -> int:
        return int(min(MEASURED, max(8, 2 * self.space.size)))

    @property
    def _spent(self) -> int:
        """Sub-networks that are kept for rounds around the limits."""
        return round(SHARE_OF_ROUNDS * self._count) if self.options.measured_rounds else 0

    def _rounds(self) -> RoundsResult:
        """Measure what might be best within the limits; kept network by network."""
        seed = int(self.context.rng("rounds").integers(2**31))
        settings = RoundSettings(self._spent, self.options.measured_rounds, seed=seed)
        field = StagedField(self.table.problem(self._size), self.table.limit_sets, solve_within)
        choices, accuracy = self._pool
        pool = Measured(choices, np.clip(accuracy, 0.0, self._most))
        with self.context.progress.task("measuring around the limits", self._spent) as bar:

            def measure(choice: StagedChoice) -> list[float]:
                accuracy = self._in_rounds(str(self.stages.from_choice(choice)))["accuracy"]
                bar.advance()
                return [min(accuracy, self._most)]

            _, found = measure_in_rounds(measure, pool, field, self._attributes, settings)
        names = [str(self.stages.from_choice(choice)) for choice in found]
        return RoundsResult(networks=names, rows=len(names))

    def _in_rounds(self, architecture: str) -> dict[str, float]:
        """Accuracy in percent and cross entropy of a network of the rounds; measured once."""
        log = self.context.run.items("rounds")
        if architecture not in log.done:
            self.context.stop.check()
            found = self.outcome(self.space.parse(architecture))
            log.record(architecture, {"accuracy": found.accuracy, "loss": found.loss})
        return dict(log.done[architecture])

    @cached_property
    def _around(self) -> list[str]:
        """Networks of the rounds, the most accurate first."""
        networks = self._result("rounds", RoundsResult).networks if self._spent else []
        return sorted(networks, key=lambda text: -self._in_rounds(text)["accuracy"])

    @property
    def _pool(self) -> tuple[StagedChoice, NDArray[np.float64]]:
        done = self.context.run.items("measure").done
        choices = [self.stages.to_choice(self._drawn(number)) for number in range(len(done))]
        return StagedChoice.stack(choices), np.array([float(done[str(number)]) for number in range(len(done))])

    def _fit(self, choices: StagedChoice, accuracy: NDArray[np.float64]) -> HierarchicalFit:
        return fit_hierarchical(choices, np.clip(accuracy, 0.0, self._most), self._attributes)

    @property
    def _most(self) -> float:
        """No error at all counts as half an image."""
        return 100 - 50 / min(IMAGES, len(self.context.task.data.validation))

    @property
    def _attributes(self) -> NDArray[np.float64]:
        found = attributes_of(self.stages.configurations)
        return found if found.shape[1] else np.ones((len(found), 1))

    @cached_property
    def fit(self) -> HierarchicalFit:
        """The predictor, of all that was measured."""
        known = Measured(*self._pool)
        for text in self._around:
            known = known.with_rows(self.stages.to_choice(self.space.parse(text)), [self._in_rounds(text)["accuracy"]])
        return self._fit(known.choices, known.accuracy)

    @cached_property
    def problem(self) -> StagedProblem:
        """What is solved: the predictor's terms against all costs."""
        estimate = self.fit.estimate
        return self.table.costs(self._size).problem(
            self.stages, estimate.block_values, estimate.depth_values, fixed_value=estimate.fixed
        )

    # --- choosing ---

    @property
    def exact(self) -> ExactChoice:
        """What chooses the network of every limit."""
        place, percent = self._size, self.fit.accuracy
        return ExactChoice(
            self.context, self.table, place, self.stages, self.problem, percent, self._loss, self._around
        )

    def _loss(self, architecture: str) -> float:
        """Cross entropy of a network; measured once."""
        if architecture in self._around:
            return self._in_rounds(architecture)["loss"]
        log = self.context.run.items("around")
        if architecture not in log.done:
            self.context.stop.check()
            log.record(architecture, self.outcome(self.space.parse(architecture)).loss)
        return float(log.done[architecture])

    # --- the answers ---

    def _tune(self) -> TuneResult:
        chosen = {one.architecture: one for one in self._result("verify", VerifyResult).chosen}
        names = {text: short_name(text, "tuned") for text in chosen}
        for text, name in names.items():
            if name not in networks_of(self.context.run):
                self._tune_one(chosen[text], name)
        return TuneResult(networks=list(names.values()))

    def _tune_one(self, one: ChosenNetwork, name: str) -> None:
        architecture, batches = self.space.parse(one.architecture), self.trainer.batches(name, self._size)
        network, steps = self.cut_out(architecture, batches), self.tuning.epochs * len(batches)
        self.trainer.train(name, network, self._size, steps, one_pass(self.tuning))
        known = {"predicted_accuracy": one.predicted_accuracy, "solver": one.solver}
        self.trainer.keep(name, network, architecture, self.stages, steps, epochs=self.tuning.epochs, known=known)

    def cut_out(self, architecture: Combination, batches: Batches) -> Network:
        """The stand-alone network with the supernet's weights.

        Args:
            architecture: of the network.
            batches: of training images; some of them give it its statistics.
        """
        network = self.supernet.inherit(architecture).to(self.context.device.torch)
        recalibrate(network, batches, max(1, min(4, len(batches))))
        return network

    def pool(self) -> list[TrainedNetwork]:
        """What was tuned for the limits."""
        trained = networks_of(self.context.run)
        return [trained[name] for name in self._result("tune", TuneResult).networks]

    def preferred(self, within: Sequence[TrainedNetwork]) -> TrainedNetwork:
        """The best on validation."""
        return max(within, key=lambda one: one.validation_accuracy)

    def plain(self) -> PlainSteps:
        """As many steps as an answer's weights have seen."""
        epochs = self.recipe.epochs + self.tuning.epochs
        steps = epochs * max(1, len(self.context.task.data.train) // self.recipe.batch_size)
        return PlainSteps(one_pass(self.context.task.recipe), steps, self.context.task.augmentation())

    def beside(self) -> dict[str, Beside]:
        """No further simple things beside those of every search."""
        return {}

    def summary(self) -> Summary:
        """The front, and how well held-out networks were ranked."""
        solved, measured = self._result("solve", FrontResult), self._result("measure", MeasureResult)
        details = {"rank": {"kendall": measured.kendall, "spearman": measured.spearman}, "options": self._options()}
        looked_at = measured.networks + len(self._around)
        return Summary(solved.front, looked_at, measured.insights, details, solved.points)

    def _options(self) -> dict[str, dict[str, list[float]]]:
        """What other options would change in the best answer, as predicted: points of accuracy, and milliseconds."""
        best = self.space.parse(self.preferred(self.pool()).architecture)
        picks, (accuracy, latency_ms) = self.space.picks_of(best), self._predicted(best)
        found: dict[str, dict[str, list[float]]] = {}
        for name in json.loads(best.text):
            for option in self.space.choices[name]:
                if option != picks[name]:
                    other = self._predicted(self.space.of_picks({**picks, name: option}))
                    change = [round(other[0] - accuracy, 3), round(other[1] - latency_ms, 6)]
                    found.setdefault(name, {})[option] = change
        return found

    def _predicted(self, architecture: Combination) -> tuple[float, float]:
        """Accuracy in percent and latency in milliseconds."""
        choice = self.stages.to_choice(architecture)
        latency_ms = self.table.predicted(self._size, architecture)["latency_ms"]
        return float(self.fit.predict(choice)), latency_ms
