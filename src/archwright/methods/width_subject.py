"""What is thinned: the given network, its images, its channels, its latency, and the tuning of its thinner forms.

The stages of :mod:`archwright.methods.rarts_width` work on it; here are what they share, and what a stage has kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from archwright.costs.backends import find_backend
from archwright.costs.clock import Clock, Timed, stopwatch
from archwright.costs.layers import NetworkTimes
from archwright.costs.measure import Stopwatch, Timing
from archwright.costs.registry import default_backend
from archwright.data import ImageData
from archwright.data.augmentation import Augment
from archwright.errors import InputError
from archwright.export import has_onnx
from archwright.methods.width_given import BY_NAME, Given, shown_as
from archwright.methods.width_options import WidthOptions
from archwright.methods.width_removal import Removal
from archwright.runs.files import load_weights
from archwright.search.answer import Spread
from archwright.search.context import Context
from archwright.search.final import keep_answer
from archwright.search.trained import TrainedNetwork, Trainer, networks_of, short_name
from archwright.search.values import StageResult, Trained
from archwright.spaces.base import Network
from archwright.spaces.channel_groups import example_images, takes_channels_last
from archwright.spaces.known_networks import NETWORKS
from archwright.spaces.width import Width, WidthSpace
from archwright.supernets.scored import Scores, broken_groups
from archwright.training import Recipe

R = TypeVar("R", bound=StageResult)

SCORED = "scored.safetensors"
"""Weights at the end of the scoring, as trained scores left them or as they came."""
TUNE_LR = 0.05
"""Learning rate of the fine-tuning after a training from scratch."""
TUNING = Recipe(
    epochs=1,
    batch_size=32,
    optimizer="adamw",
    lr=3e-4,
    frozen_norms=True,
    weight_decay=0.01,
    label_smoothing=0.1,
    warmup_epochs=0.1,
)
"""Of weights that are given, as in the plan from pretrained weights; recalibrating norms destroys them."""
TUNED_EPOCHS, FEWEST_STEPS = 3, 60
"""Passes over the images of a fine-tuning from given weights, and steps at least."""
LOOKED_BATCH = 32
"""Images that a network sees at once when it is scored or validated."""


# --- what stages keep -------------------------------------------------------------------------------------------------


class GivenResult(StageResult):
    """The given network as it came.

    Attributes:
        trained: its accuracies and files.
        preprocessing: how it was shown images.
        chance: what guessing reaches on test, in percent.
    """

    trained: Trained
    preprocessing: dict[str, Any]
    chance: float


class TimeResult(StageResult):
    """Milliseconds of the whole and of the thinnest network, and of the layers by their widths."""

    whole: Spread
    thinnest: Spread
    times: NetworkTimes


class Scored(StageResult):
    """The score of every channel, group after group, and what it is worth.

    Attributes:
        scores: that multiply channels, where they were trained; else empty.
        worth: by which channels stay.
    """

    scores: list[float]
    worth: list[float]


class Thinned(StageResult):
    """One choice of widths.

    Attributes:
        limits: that it keeps.
        asked: the shares or limits as they were given.
        architecture: the channels that stay.
        costs: counted, and the latency that is predicted.
        value: share of the whole network's worth that stays; ``gap`` to the bound, in the same unit.
        latency: as timed, where networks are.
        steps: how often a quicker one had to be taken than the table said.
    """

    limits: dict[str, float]
    asked: dict[str, float]
    architecture: str
    costs: dict[str, float]
    value: float
    gap: float
    latency: Timed | None
    steps: int = 0


class RemoveResult(StageResult):
    """Every choice, the tightest first."""

    chosen: list[Thinned]


class TunedNetworks(StageResult):
    """Names of what was fine-tuned: one for every choice, the whole network, and that with smaller images.

    Attributes:
        smaller: for every choice the size at which the whole network is as quick, and its name.
    """

    chosen: list[str]
    whole: str | None
    smaller: list[tuple[int, str] | None]
    kept: dict[str, Trained]


# --- the network ------------------------------------------------------------------------------------------------------


@dataclass
class Subject:
    """The network of a search.

    Attributes:
        context: of the search.
        options: of the search.
    """

    context: Context
    options: WidthOptions

    @property
    def int8(self) -> bool:
        """Whether every answer gets an int8 file, tested and timed beside it."""
        return self.context.configuration.precision in ("any", "int8")

    @property
    def score_name(self) -> str:
        """How channels are scored: as asked, else by Fisher's scores of given weights, RARTS' from scratch."""
        return self.options.scores or ("fisher" if self.has_weights else "rarts")

    def result(self, stage: str, kind: type[R]) -> R:
        """What an earlier stage kept.

        Args:
            stage: its name.
            kind: of the value that it returned.
        """
        return kind.model_validate(self.context.run.stage_result(stage))

    @cached_property
    def given(self) -> Given:
        """The network, as the user named it."""
        return Given(self.options.network)

    @cached_property
    def space(self) -> WidthSpace:
        """Of the network, for the data's images and classes."""
        space = self.context.task.space
        assert isinstance(space, WidthSpace)
        return space

    @cached_property
    def has_weights(self) -> bool:
        """Whether the network comes with weights, else it is trained from scratch."""
        return self.given.has_weights(self.space)

    @cached_property
    def scores(self) -> Scores:
        """Where the scores act: on the groups that are asked for, and can go."""
        asked = self.asked_groups()
        broken = self.broken
        names = [group.name for group in self.space.structure.groups if group.name not in broken]
        return Scores(self.space.structure, frozenset(names if asked is None else asked))

    @cached_property
    def broken(self) -> dict[str, str]:
        """Groups that cannot go, found by trying."""
        with torch.random.fork_rng(devices=[]):
            found = broken_groups(self.space, self.space.whole(), self.asked_groups())
        return dict.fromkeys(found, "its channels cannot be removed without changing others")

    @property
    def left_whole(self) -> dict[str, str]:
        """Layers that stay as they are, and why."""
        return {**self.space.structure.left_whole, **self.broken}

    @cached_property
    def data(self) -> ImageData:
        """The images as the network sees them."""
        return self.data_at(self.space.scale.image_size)

    def data_at(self, size: int) -> ImageData:
        """The same at another size in pixels."""
        found = self.context.task.data_at(size)
        return replace(found, preprocessing=shown_as(found.preprocessing, self.said))

    @cached_property
    def said(self) -> dict[str, Any]:
        """What is known of how the network sees images: by the user, by a name, by the network itself."""
        o = self.options
        if o.preprocessing is not None and o.preprocessing not in BY_NAME:
            raise InputError(f"preprocessing among {', '.join(BY_NAME)}", repr(o.preprocessing))
        network = self.space.whole() if self.given.file is None and self.given.text not in NETWORKS else nn.Identity()
        own = {} if self.given.text in NETWORKS else self.given.said(network)
        named = dict(BY_NAME[o.preprocessing]) if o.preprocessing else {}
        asked = {name: getattr(o, name) for name in ("mean", "std", "order") if getattr(o, name) is not None}
        return {**own, **named, **asked}

    @property
    def timing(self) -> Timing | None:
        """How networks are timed; None where they are not."""
        o, device = self.options, self.context.device.name
        if not o.timing:
            return None
        backend = o.backend or default_backend(device.partition(":")[0])
        processor = device if find_backend(backend).any_processor else "cpu"
        return Timing(backend, o.latency_threads, processor=processor)

    def asked_groups(self) -> frozenset[str] | None:
        """Names of the groups that --layers asks for."""
        if self.options.layers is None:
            return None
        structure, asked = self.space.structure, [name.strip() for name in self.options.layers.split(",")]
        writers = {part.layer: group.name for group in structure.groups for part in group.parts if part.written}
        for name in asked:
            if name not in writers:
                what = {structure.first: "the first layer, which sees the image"}.get(name, "")
                what = what or ("the classifier" if name == list(structure.shapes)[-1] else "")
                what = what or structure.left_whole.get(name, "")
                raise InputError(
                    f"layers with channels that may go ({', '.join(structure.by_name)})",
                    f"{name!r}" + (f", {what}, whose channels stay" if what else ""),
                )
        return frozenset(writers[name] for name in asked)

    @cached_property
    def whole_costs(self) -> dict[str, float]:
        """What is counted of the whole network."""
        return Removal(self.space, self.scores, np.zeros(self.scores.total)).costs_of(self.space.full.channels)

    def watch(self, what: tuple[Width, int]) -> Stopwatch:
        """A stopwatch of the network with some channels, at an image size."""
        width, size = what
        assert self.timing is not None
        scale = self.space.scale.changed(image_size=size)
        network = self.space.at_scale(scale).whole() if size != self.space.scale.image_size else self.space.whole()
        if width != self.space.full:
            network = self.space.removed(network, width)  # type: ignore[assignment]
        return stopwatch(network, scale, self.timing)

    @cached_property
    def tuning(self) -> Recipe:
        """Of one pass over the steps of a fine-tuning."""
        c, recipe = self.context.configuration, self.context.task.recipe
        if self.has_weights:
            own = {"lr": c.lr, "batch_size": c.batch_size, **c.training}
            changed = TUNING.changed(**{name: value for name, value in own.items() if value is not None})
        else:
            warmup = min(0.25, recipe.warmup_epochs / recipe.epochs)
            changed = recipe.changed(epochs=1, lr=c.lr or TUNE_LR, warmup_epochs=warmup)
        changed = changed.changed(batch_size=min(changed.batch_size, len(self.data.train)))
        if not takes_channels_last(self.space.whole()):
            changed = changed.changed(channels_last=False)
        return changed

    @property
    def tune_steps(self) -> int:
        """Steps of every fine-tuning."""
        c, a_pass = self.context.configuration, max(1, len(self.data.train) // self.tuning.batch_size)
        if self.options.tune_steps is not None:
            return self.options.tune_steps
        if c.final_epochs is not None or not self.has_weights:
            return (c.final_epochs or self.context.task.recipe.epochs) * a_pass
        return max(FEWEST_STEPS, TUNED_EPOCHS * a_pass)

    @cached_property
    def trainer(self) -> Trainer:
        """What fine-tunes, validates and keeps networks."""
        return Trainer(self.context, self.tuning, self.data_at, self._augment, LOOKED_BATCH)

    def _augment(self, data: ImageData) -> Augment | None:
        return self.context.task.augmentation_of(data, **({"cutout": 0} if self.has_weights else {}))

    def scored_network(self) -> Network:
        """The whole network at the end of the search, trained scores multiplied into its kernels."""
        network = self.space.whole()
        load_weights(network, self.context.run.artifact(SCORED))
        values = self.result("search", Scored).scores
        if values:
            self.scores.fold(network, torch.tensor(values))
        return network

    def tuned(self, width: Width, size: int | None = None) -> TrainedNetwork:
        """The network with the channels of ``width``, fine-tuned at an image size; trained once.

        Args:
            width: the channels that stay.
            size: of the images; the network's own by default.
        """
        size = size or self.space.scale.image_size
        space = self.space.at_scale(self.space.scale.changed(image_size=size))
        whole = width == self.space.full
        name = f"whole-{size}" if whole else short_name(str(width), "thin")
        known = networks_of(self.context.run)
        if name in known:
            return known[name]
        network: nn.Module = self.scored_network()
        if not whole:
            network = self.space.removed(network, width)
        assert isinstance(network, Network)
        device = self.context.device.name
        recipe, teacher = self.tuning, None
        if self.options.distill:
            recipe = recipe.changed(distill_weight=self.options.distill)
            teacher = self.scored_network().to(device)
        self.trainer.train(name, network.to(device), size, self.tune_steps, recipe, teacher)
        return self.trainer.keep(name, network, width, space, self.tune_steps)

    def takes(self, size: int) -> bool:
        """Whether the network with its weights takes images of ``size`` px a side."""
        try:
            network = self.space.at_scale(self.space.scale.changed(image_size=size)).whole()
            network.load_state_dict(self.scored_network().state_dict())
            network.eval()(example_images(self.space.scale.changed(image_size=size)))
        except (InputError, RuntimeError) as error:
            self.context.progress.say(f"The network does not take images of {size} px ({str(error)[:80]}).")
            return False
        return True

    def kept(self, name: str, file: str | None = None) -> Trained:
        """What the test says of a fine-tuned network; tested and saved once.

        Args:
            name: of the network.
            file: name of its files; by default the next ``model-N``.
        """
        log, one = self.context.run.items("kept"), networks_of(self.context.run)[name]
        if name not in log.done:
            models = [known for known in log.done.values() if known["model"].startswith("artifacts/model-")]
            file = file or f"model-{len(models) + 1}"
            space = self.space.at_scale(self.space.scale.changed(image_size=one.image_size))
            width = space.parse(one.architecture)
            network = space.build(width, space.scale)
            load_weights(network, self.trainer.file(one.weights))
            kept = keep_answer(
                self.context, network.to(self.context.device.name), width, space.scale, file, one.epochs,
                onnx=has_onnx(), data=self.data_at(one.image_size),
            )  # fmt: skip
            log.record(name, kept.model_dump(mode="json"))
        return Trained.model_validate(log.done[name])

    @cached_property
    def clock(self) -> Clock[tuple[Width, int]]:
        """Times thinned networks; the whole one is what they are compared by."""
        context, size = self.context, self.space.scale.image_size
        whole_ms = self.result("time", TimeResult).whole.median_ms
        return Clock(
            self.watch,
            (self.space.full, size),
            whole_ms,
            context.progress,
            context.stop,
            context.run.items("timed"),
            lambda one: f"{short_name(str(one[0]), 'width')} at {one[1]}",
        )
