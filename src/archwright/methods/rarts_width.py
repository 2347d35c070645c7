"""RARTS for width: score every channel of a network that exists, remove the weakest, fine-tune what is left.

1. ``time``: the whole network and the thinnest one are timed here, so that a latency limit nobody can meet is refused.
2. ``search``: weights and scores are trained. A score multiplies its channel (:mod:`archwright.supernets.scored`); the
   three-step iteration of :mod:`archwright.methods.rarts` moves w on D_t, y on D_v and the scores on both. Baselines on
   the same scores: ``slimming`` (jointly on all images, as Network Slimming), ``darts-1``, ``darts-2``, ``random``.
3. ``remove``: channels go by rising score, over all layers, until the share or the limits are met.
4. ``before`` and ``train``: the whole network and the thinned one are fine-tuned alike, tested and saved.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from archwright.costs.measure import Timing
from archwright.errors import InputError, RunError, missing_extra
from archwright.export import has_onnx
from archwright.methods.darts import descend_weights, first_order_step, second_order_step
from archwright.methods.gradients import GradientSearch
from archwright.methods.rarts import fused_rarts_step, rarts_step
from archwright.methods.width_removal import Removal, RemovalOptions, Removed, Scored, TimeResult, timing_on
from archwright.references import SpaceRef
from archwright.runs.files import Json, load_weights, read_metadata, save_weights, write_atomic
from archwright.runs.run import Run
from archwright.search.answer import Beside, Candidate, Found, Spread
from archwright.search.configuration import OF_TABLES, AbsolutePath
from archwright.search.evaluator import evaluation_seconds
from archwright.search.final import keep_answer
from archwright.search.jobs import train_network, training_job
from archwright.search.method import Options, Stage
from archwright.search.task import Task
from archwright.search.values import Trained
from archwright.spaces.base import Network
from archwright.spaces.channel_groups import takes_channels_last
from archwright.spaces.width import Width, WidthSpace
from archwright.supernets.scored import Scores, broken_group
from archwright.training import Position, Recipe, Step
from archwright.training.bilevel import (
    Alphas,
    ArchitectureParameters,
    Batch,
    Problem,
    Variable,
    WeightCopy,
    losses,
    norm,
    sums,
)
from archwright.training.schedule import ScheduleName, make_schedule

SCORED = "scored.safetensors"
"""Weights and scores at the end of the search."""
USUAL_L1 = 1e-4
"""Of the scores where a share is given: Network Slimming's."""
TUNE_LR = 0.05
"""Learning rate of the fine-tuning where the user says none."""
UNPRUNED = "unpruned"
"""What the network with all its channels is called beside the answer."""

Optimiser = Literal["rarts", "slimming", "darts-1", "darts-2", "random"]
WHOLE_DATA = ("slimming", "random")
"""Optimisers that train on all training images at once."""
PASSES = {"rarts": 4, "slimming": 1, "darts-1": 2, "darts-2": 5, "random": 1}


class WidthOptions(RemovalOptions):
    """Options of the width search; scores are the architecture parameters (``alpha_*``)."""

    optimiser: Optimiser = Field("rarts", description="what trains the scores: rarts, or a baseline")
    compare: bool = Field(True, description="also fine-tune and test the network with all its channels")
    search_from: AbsolutePath | None = Field(
        None, description="run folder whose trained scores are used: only removal and fine-tuning are done"
    )
    lam: float = Field(1.0, gt=0, description="weight of the training loss in the Lagrangian (--optimiser rarts)")
    beta: float = Field(0.1, ge=0, description="strength of the coupling of the two copies (--optimiser rarts)")
    fused: bool = Field(
        True, description="take the scores' gradient from the passes of the weight steps: half the time (rarts)"
    )
    search_epochs: int = Field(10, ge=1, description="passes over the training images (both halves)")
    search_batch: int = Field(
        64, ge=4, description="images of a step; where there are two halves, half as many of each"
    )
    w_lr: float = Field(0.1, gt=0, description="learning rate of the weights")
    w_weight_decay: float = Field(1e-4, ge=0, description="weight decay of the weights")
    alpha_lr: float = Field(0.1, gt=0, description="learning rate of the scores (SGD with momentum)")
    alpha_schedule: ScheduleName = Field("cosine", description="how the learning rate of the scores falls")
    alpha_weight_decay: float = Field(0.0, ge=0, description="weight decay of the scores")


@dataclass
class Shrinking(Variable):
    """Each step ends by the proximal map of ``l1 |s|``: scores come nearer to 0 by ``rate * l1``, and stay there.

    Gradients are multiplied by ``gain`` first. A channel among C has about 1/C of the say, and so has its score's
    gradient: without a gain in proportion to C the scores of narrow layers would spread most, and go first.
    """

    l1: float = 0.0
    gain: Tensor | float = 1.0

    def descend(self, gradients: Any, position: Position) -> None:
        """Gradient step, then soft threshold."""
        super().descend([gradient * self.gain for gradient in gradients], position)
        with torch.no_grad():
            for score in self.parameters:
                score.copy_(F.softshrink(score, self.rate(position) * self.l1))


def joint_step(problem: Problem, w: WeightCopy) -> Step:
    """Network Slimming: weights and scores at once, by the loss on all images.

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


class RartsWidth(GradientSearch):
    """Scores of channels, trained beside the weights; removal; fine-tuning."""

    name = "rarts-width"
    default_space = str(SpaceRef("width", "resnet20"))
    uses = GradientSearch.uses - OF_TABLES - {"space", "cells"}  # the space is that of --network
    resources = ("params", "macs", "latency_ms", "channels")
    measures_latency = True
    Options: ClassVar[type[Options]] = WidthOptions
    options: WidthOptions

    @classmethod
    def completed(cls, task: Task) -> dict[str, Any]:
        """The space of the network."""
        network = task.configuration.options.get("network", WidthOptions.model_fields["network"].default)
        return {"space": str(SpaceRef("width", network))}

    @property
    def timing(self) -> Timing | None:
        """Where it times networks, as these are before and after."""
        return timing_on(self.context.device) if self.options.timing else None

    # --- what is searched ---

    @property
    def passes(self) -> int:  # type: ignore[override]
        """Passes a step of the optimiser that is asked for."""
        return 2 if self.options.optimiser == "rarts" and self.options.fused else PASSES[self.options.optimiser]

    @cached_property
    def space(self) -> WidthSpace:
        """Of the network, for the data's images and classes."""
        space = self.context.task.space
        assert isinstance(space, WidthSpace)
        return space

    @cached_property
    def scores(self) -> Scores:
        """Where the scores act."""
        return Scores(self.space.structure, self._asked_groups())

    @cached_property
    def removal(self) -> Removal:
        """What takes channels out."""
        return Removal(self.context, self.options, self.space, self.scores)

    @cached_property
    def tune_recipe(self) -> Recipe:
        """Of the fine-tuning: the recipe's epochs, by a lower learning rate."""
        c, recipe = self.context.configuration, self.context.task.recipe
        return recipe.changed(epochs=c.final_epochs or recipe.epochs, lr=c.lr or TUNE_LR)

    # --- checks ---

    def check(self) -> None:
        """Everything that can be known before the first step."""
        context, task = self.context, self.context.task
        c, o = context.configuration, self.options
        self.check_own()
        if o.ratio is None and o.l1 is None and not c.limits:
            raise InputError("how much to remove: --ratio, --l1 or a limit", "none of them")
        if o.l1 is not None and o.optimiser == "random":
            raise InputError("no --l1 with --optimiser random, which trains no scores", str(o.l1))
        self.halves()
        _ = task.scale, task.recipe, self.tune_recipe, self.space.structure
        self._check_recipe()
        with torch.random.fork_rng(devices=[]):
            broken = broken_group(self.space, self.space.whole(), self._asked_groups())
        if broken is not None:
            raise InputError(
                "a network whose layers treat channels one by one between those that mix them",
                f"{o.network}, where channels of {broken!r} cannot be removed without changing others",
                "Leave that layer out with --layers.",
            )
        if c.onnx and not has_onnx():
            raise missing_extra("onnx", "onnx", "writing ONNX files")
        if o.search_from is not None:
            self._check_source()
        self.removal.check()

    def _check_recipe(self) -> None:
        recipe = self.context.task.recipe
        if recipe.drop_path or recipe.auxiliary_weight:
            raise InputError("a recipe without drop-path and auxiliary classifier", self.context.configuration.recipe)

    def _asked_groups(self) -> frozenset[str] | None:
        """Names of the groups that --layers asks for."""
        if self.options.layers is None:
            return None
        structure, asked = self.space.structure, [name.strip() for name in self.options.layers.split(",")]
        writers = {part.layer: group.name for group in structure.groups for part in group.parts if part.written}
        for name in asked:
            if name not in writers:
                what = {structure.first: "the first layer, which sees the image"}.get(name, "")
                what = what or ("the classifier" if name == list(structure.shapes)[-1] else "")
                raise InputError(
                    f"layers with channels that may go ({', '.join(structure.by_name)})",
                    f"{name!r}" + (f", {what}, whose channels stay" if what else ""),
                )
        return frozenset(writers[name] for name in asked)

    def _check_source(self) -> None:
        """The run to take scores from has some, of this network and these images."""
        source = Run.open(Path(str(self.options.search_from)))
        path = source.folder / "artifacts" / SCORED
        facts = read_metadata(path) if path.is_file() else {}
        wanted = {"network": self.options.network, "fingerprint": str(self.context.task.data.fingerprint)}
        if {name: facts.get(name) for name in wanted} != wanted or source.stage_result("search") is None:
            raise InputError(
                f"a run of {self.name} with trained scores of {self.options.network} on the same images",
                str(source.folder),
            )

    # --- the search ---

    def estimate_seconds(self) -> float:
        """The search and the fine-tunings."""
        rounds = self.tune_recipe.epochs / self.context.task.recipe.epochs * (2 if self.options.compare else 1)
        search = 0.0 if self.options.search_from is not None else self.search_seconds()
        return search + rounds * evaluation_seconds(self.context)

    def stages(self) -> list[Stage]:
        """Time, search, remove, fine-tune and answer, as the options ask."""
        o = self.options
        timing = [Stage("time", "time the network", self.removal.time)]
        before = [Stage("before", "fine-tune the whole network", self._before)]
        search = Stage("search", "train weights and scores", self._search if o.search_from is None else self._taken)
        return [
            *(timing if o.timing else []),
            search,
            Stage("remove", "remove channels", lambda: self.removal.remove(self.result("search", Scored))),
            *(before if o.compare else []),
            Stage("train", "fine-tune the thinned network", self._tune),
            Stage("answer", "answer", self._found),
        ]

    def make_network(self) -> Network:
        """The whole network, with the weights it comes with or random ones by the seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.context.rng("network").integers(2**31)))
            network = self.space.whole()
        network.to(self.context.device.torch)
        return network.to(memory_format=self.layout)  # type: ignore[call-overload, no-any-return]

    @cached_property
    def layout(self) -> torch.memory_format:
        """Of the images in memory while weights are trained."""
        return torch.channels_last if takes_channels_last(self.space.whole()) else torch.contiguous_format

    def make_alpha(self) -> ArchitectureParameters:
        """All scores are 1: the network as it is."""
        return ArchitectureParameters({"scores": torch.ones(self.scores.total, device=self.context.device.torch)})

    def move_alpha(self, parameters: list[Tensor]) -> Variable:
        """SGD as on the weights, and the pull to 0."""
        o = self.options
        sgd = torch.optim.SGD(parameters, lr=o.alpha_lr, momentum=o.w_momentum, weight_decay=o.alpha_weight_decay)
        schedule = make_schedule(o.alpha_schedule, o.alpha_lr, min(o.alpha_lr, o.alpha_lr_min))
        sizes = torch.tensor([group.channels for group in self.scores.groups for _ in group.members])
        gain = (sizes / sizes.float().mean()).to(parameters[0].device)
        return Shrinking(parameters, sgd, schedule, o.w_clip, USUAL_L1 if o.l1 is None else o.l1, gain)

    def objective(self, network: nn.Module, alphas: Alphas, batch: Batch, position: Position) -> Tensor:
        """Cross entropy of the network with these scores."""
        images, labels = batch
        images = images.contiguous(memory_format=self.layout)
        return F.cross_entropy(self.scores.logits(network.train(), alphas["scores"], images), labels)

    @property
    def half_batch(self) -> int:
        """So that all optimisers have as many steps an epoch."""
        return self.options.search_batch // 2

    def problem(self) -> Problem:
        """Two halves, or all images at once for the baselines that know no halves."""
        found = super().problem()
        if self.options.optimiser in WHOLE_DATA:
            everything = np.arange(len(self.context.task.data.train))
            size = min(self.options.search_batch, len(everything))
            found.train = found.validation = self.batches(everything, size, 0, shuffled=True)
        return found

    def make_copies(self, network: nn.Module) -> list[WeightCopy]:
        """One, for rarts two of the same start."""
        o = self.options
        networks = [network, copy.deepcopy(network)] if o.optimiser == "rarts" else [network]
        return [self.copy_of(one, o.w_lr, o.w_lr_min, o.w_schedule) for one in networks]

    def make_step(self, problem: Problem, copies: list[WeightCopy]) -> Step:
        """The step of the optimiser that is asked for."""
        o = self.options
        if o.optimiser == "rarts":
            make = fused_rarts_step if o.fused else rarts_step
            return make(problem, copies[0], copies[1], o.lam, o.beta)
        if o.optimiser == "darts-1":
            return first_order_step(problem, copies[0])
        if o.optimiser == "darts-2":
            return second_order_step(problem, copies[0], None)
        return (joint_step if o.optimiser == "slimming" else weights_step)(problem, copies[0])

    def watch(self, epoch: int, metrics: dict[str, float], problem: Problem, copies: list[WeightCopy]) -> None:
        """Losses, the distance of the copies and how the scores lie, into the run's events."""
        scores = problem.alpha.get(detached=True)["scores"].abs()
        found = {**metrics, "score_mean": float(scores.mean()), "score_zero_share": float((scores == 0).float().mean())}
        if len(copies) > 1:
            with torch.no_grad():
                found["distance"] = float(norm(sums(copies[1].weights, copies[0].weights, -1.0)))
        self.context.run.on_epoch("search")(epoch, found)

    def ended(self, problem: Problem, copies: list[WeightCopy]) -> Scored:
        """Save the trained weights and the scores."""
        scores = problem.alpha.get(detached=True)["scores"].cpu()
        facts = {"network": self.options.network, "fingerprint": str(self.context.task.data.fingerprint)}
        state = {name: one.detach().cpu().contiguous() for name, one in middle(copies).state_dict().items()}
        save_weights(self.context.run.artifact(SCORED), state, facts)
        importance = self.removal.relative(scores.abs().numpy()).tolist()
        if self.options.optimiser == "random":
            importance = self.context.rng("random channels").random(self.scores.total).tolist()
        return Scored(scores=scores.tolist(), importance=importance)

    def _taken(self) -> Scored:
        """The scores of another run."""
        source = Run.open(Path(str(self.options.search_from)))
        write_atomic(self.context.run.artifact(SCORED), (source.folder / "artifacts" / SCORED).read_bytes())
        found = Scored.model_validate(source.stage_result("search"))
        if len(found.scores) != self.scores.total:
            raise RunError(f"expected {self.scores.total} scores in {source.folder}, got {len(found.scores)}.")
        return found

    # --- fine-tuning and answer ---

    def _trained_network(self) -> Network:
        """The whole network at the end of the search, scores multiplied into its kernels."""
        network = self.space.whole()
        load_weights(network, self.context.run.artifact(SCORED))
        self.scores.fold(network, torch.tensor(self.result("search", Scored).scores))
        return network

    def _tuned(self, width: Width, name: str, stage: str) -> Trained:
        """Fine-tune, test and save the network with the channels of ``width``."""
        context, recipe = self.context, self.tune_recipe
        network = self.space.removed(self._trained_network(), width)
        assert isinstance(network, Network)
        if not takes_channels_last(network):
            recipe = recipe.changed(channels_last=False)
        folder = str(context.run.folder / "checkpoints" / stage)
        job = training_job(context, width, folder, recipe=recipe.model_dump(), split="validation")
        steps = recipe.epochs * max(1, len(context.task.data.train) // recipe.batch_size)
        with context.progress.task("fine-tuning", steps) as bar:
            train_network(network, job, context.stop, lambda _: bar.advance(), context.run.on_epoch(stage))
        epochs = recipe.epochs + self.options.search_epochs
        onnx = has_onnx()
        return keep_answer(context, network, width, self.space.scale, name, epochs, onnx=onnx)

    def _before(self) -> Trained:
        return self._tuned(self.space.full, UNPRUNED, "before")

    def _tune(self) -> Trained:
        return self._tuned(self.space.parse(self.result("remove", Removed).architecture), "best", "train")

    def _found(self) -> Found:
        """The thinned network, and the whole one beside it."""
        removed, trained = self.result("remove", Removed), self.result("train", Trained)
        before: dict[str, Any] = dict(self.removal.costs(self.space.full))
        after: dict[str, Any] = {**removed.costs, "accuracy": trained.accuracy, "onnx": trained.onnx}
        timed, beside = removed.latency, {}
        if self.options.timing:
            before["latency_ms"] = self.result("time", TimeResult).whole.median_ms
            after["latency_ms"] = timed.median_ms if timed else None
        if self.options.compare:
            whole = self.result("before", Trained)
            before |= {"accuracy": whole.accuracy, "onnx": whole.onnx}
            known = whole.model_dump(include={"accuracy", "accuracy_on", "accuracy_interval", "validation_accuracy"})
            extra = {name: value for name, value in before.items() if name not in known}
            beside = {UNPRUNED: Beside(**known, **extra, epochs=whole.epochs, model=whole.model)}
        spread = Spread(**timed.model_dump(include={"median_ms", "low_ms", "high_ms"})) if timed else None
        best = Candidate(
            architecture=removed.architecture,
            limits=self.removal.limits or None,
            params=removed.costs["params"],
            macs=removed.costs["macs"],
            latency_ms=timed.median_ms if timed else None,
            measured_latency_ms=spread,
            scale=self.space.scale.to_dict(),
            **trained.model_dump(),
        )
        share = removed.removed / self.scores.total
        insights = [
            f"{removed.removed} of {self.scores.total} prunable channels are gone ({share:.1%}).",
            *(_sentence(name, before[name], after[name]) for name in before if name in after and name != "onnx"),
            *removed.sentences,
        ]
        details: dict[str, Json] = {
            "optimiser": self.options.optimiser,
            "removed_share": share,
            "before": {name: value for name, value in before.items() if value is not None},
            "after": {name: value for name, value in after.items() if value is not None},
        }
        return Found(best=best, beside=beside, evaluations=0, insights=insights, details=details)


def _sentence(name: str, before: float, after: float) -> str:
    """``macs: 40,813,184 -> 20,000,000 (-51.0 %).``"""
    if name == "accuracy":
        return f"accuracy: {before:.2f} -> {after:.2f} %, both fine-tuned alike."
    digits = "" if float(before).is_integer() else ".3f"
    return f"{name}: {before:,{digits}} -> {after:,{digits}} ({100 * (after / before - 1):+.1f} %)."


@torch.no_grad()
def middle(copies: list[WeightCopy]) -> nn.Module:
    """The network half-way between the copies, running statistics included; of one copy itself."""
    found = copy.deepcopy(copies[0].network)
    for one in copies[1:]:
        for mine, other in zip(found.state_dict().values(), one.network.state_dict().values(), strict=True):
            if mine.is_floating_point():
                mine.lerp_(other, 1 / 2)
    return found
