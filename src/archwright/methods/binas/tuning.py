"""Networks of a pretrained start: frozen with a fitted classifier, fine-tuned whole, thinner ones tuned one by one.

Everything goes by what works for pretrained weights: AdamW from a classifier that is fitted first, norms that keep the
statistics they came with (recalibrating them destroys a pretrained network), images as the weights were trained on.
Nothing here reads the clock: how many steps a training has is the plan's, and what is finished is not done again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from archwright.data import Batches, ImageData, Steps
from archwright.methods.binas.trunk import Trained
from archwright.models import Model, load_member
from archwright.pretrained import Weights
from archwright.search.context import Context
from archwright.solvers.problem import StagedChoice
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.spaces.mbconv_network import MbConvNetwork
from archwright.supernets.around import supernet_around
from archwright.supernets.elastic import ElasticSupernet
from archwright.training import Recipe, train

LEARNING_RATE = 3e-4
"""Of AdamW, for the classifier, too: it is fitted before, and a higher rate undoes that in a few steps."""
RESTART = 0.5
"""Learning rate of the networks that are cut out of the trunk, as a part of the trunk's."""
BATCH = 32
WEIGHT_DECAY = 0.01
LABEL_SMOOTHING = 0.1
MOST_IMAGES = 5000
"""Training images that the floor's classifier is fitted on; more are thinned out evenly."""
PENALTIES = (0.001, 0.01, 0.1)
"""Values of C of the floor's logistic regression; the one that is best on validation counts."""
UNSEEN = -10.0
"""Logit of a class that was thinned out of the floor's images."""
LOOKED_AT = 32
"""Images that a network sees at once: with twice as many at 128 px their activations leave the processor's cache."""
CALIBRATION = 64
"""Images on which narrower blocks are matched to whole ones."""
COMPARED = 256
"""Validation images, at most, on which single changes of the network are compared."""


@dataclass(frozen=True)
class Sized(Trained):
    """A network that was trained and validated at an image size.

    Attributes:
        weights: name of the file with its weights; one file may serve several sizes.
    """

    image_size: int
    weights: str


@dataclass
class Tuner:
    """What is trained in one search, on images as the start is shown them."""

    context: Context
    weights: Weights

    # --- images ---

    def data(self, size: int) -> ImageData:
        """At one size, normalised as the weights were trained; grey images get three equal channels."""
        data, start = self.context.task.data_at(size), self.weights.start
        how = replace(data.preprocessing, image_channels=3, mean=start.mean, std=start.std, turned=start.turned)
        return replace(data, preprocessing=how)

    @cached_property
    def recipe(self) -> Recipe:
        """Of one pass of counted steps."""
        c = self.context.configuration
        return Recipe(
            epochs=1,
            batch_size=min(c.batch_size or BATCH, len(self.context.task.data.train)),
            optimizer="adamw",
            lr=c.lr or LEARNING_RATE,
            frozen_norms=True,
            weight_decay=WEIGHT_DECAY,
            label_smoothing=LABEL_SMOOTHING,
            warmup_epochs=0.1,
        )

    def batches(self, name: str, size: int) -> Batches:
        """Training batches; every training sees the images in another order and otherwise augmented."""
        context, data = self.context, self.data(size)
        seed = int(context.rng(f"batches of {name}").integers(2**31))
        augment = context.task.augmentation_of(data, cutout=0)
        device = context.device.name
        return Batches(data, "train", self.recipe.batch_size, seed=seed, augment=augment, device=device)

    def _in_order(self, size: int, part: Any, most: int | None = None) -> Batches:
        data, device = self.data(size), self.context.device.name
        count = len(getattr(data, part))
        chosen = None if most is None else np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.int64))
        return Batches(data, part, LOOKED_AT, shuffle=False, drop_last=False, device=device, indices=chosen)

    # --- what is kept ---

    def trained(self) -> dict[str, Sized]:
        """Everything trained so far, by name."""
        return {name: Sized.from_json(one) for name, one in self.context.run.items("trained").done.items()}

    def file(self, name: str) -> Path:
        """Of the weights of that name."""
        return self.context.run.artifact(f"networks/{name}.safetensors")

    def load(self, name: str) -> MbConvNetwork:
        """The network with the weights of that name."""
        network = load_member(self.file(name)).network
        assert isinstance(network, MbConvNetwork)
        return network.to(self.context.device.name)

    def _save(self, name: str, network: MbConvNetwork, architecture: MbConvArchitecture, space: MbConv) -> None:
        how = self.data(space.scale.image_size).preprocessing
        Model(network, "mbconv", architecture, space.scale, how).save(self.file(name))

    def _record(
        self, name: str, network: nn.Module, space: MbConv, architecture: MbConvArchitecture, steps: int, **known: Any
    ) -> Sized:
        """Validate a network and keep what came of it."""
        losses, right = self.outcomes(network, space.scale.image_size)
        found = Sized(
            **{"name": name, "weights": name, **known},
            architecture=str(architecture),
            steps=steps,
            validation_accuracy=100 * float(right.mean()),
            losses=losses,
            image_size=space.scale.image_size,
        )
        self.context.run.items("trained").record(name, found.to_json())
        return found

    @torch.no_grad()
    def outcomes(
        self, network: nn.Module, size: int, most: int | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Cross entropy of validation images, and whether they are classified right, (n,) each."""
        losses, right = [], []
        network.eval()
        for images, labels in self._in_order(size, "validation", most):
            logits = network(images.contiguous(memory_format=torch.channels_last))
            losses.append(F.cross_entropy(logits, labels, reduction="none"))
            right.append(logits.argmax(1) == labels)
        return torch.cat(losses).double().cpu().numpy(), torch.cat(right).cpu().numpy()

    # --- the floor ---

    def floor(self, space: MbConv, **known: Any) -> Sized:
        """The frozen network at one size, its classifier a logistic regression on its features."""
        size = space.scale.image_size
        name = f"floor-{size}"
        if name not in self.trained():
            network = self.weights.network(space.scale.classes, size).to(self.context.device.name)
            fit_head(network, *self._features(network, size, "train", MOST_IMAGES), *self._features(network, size))
            self._save(name, network, space.heaviest(), space)
            self._record(name, network, space, space.heaviest(), 0, **known)
        return self.trained()[name]

    @torch.no_grad()
    def _features(
        self, network: MbConvNetwork, size: int, part: str = "validation", most: int | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """What the classifier gets, (n, width), and labels (n,)."""
        network.eval()
        features = nn.Sequential(network.start, network.blocks, *list(network.end)[:-1])
        rows, labels = [], []
        for images, own in self._in_order(size, part, most):
            images = images.contiguous(memory_format=torch.channels_last)
            rows.append(features(images).cpu().numpy())
            labels.append(own.cpu().numpy())
        return np.concatenate(rows), np.concatenate(labels)

    # --- trainings ---

    def _train(self, name: str, network: nn.Module, size: int, steps: int, rate: float = 1.0) -> None:
        """On images of one size, at so many times the recipe's learning rate; interrupted, it goes on."""
        context, batches = self.context, Steps(self.batches(name, size), steps)
        store = context.run.checkpoints(f"trained/{name}")
        with context.progress.task(f"training {name}", steps) as bar:
            train(
                network,
                batches,
                self.recipe.changed(lr=rate * self.recipe.lr),
                seed=context.configuration.seed,
                device=context.device.name,
                checkpoints=store,
                stop=context.stop,
                on_step=lambda _: bar.advance(),
            )

    def trunk(self, space: MbConv, steps: int, costs: Mapping[MbConv, dict[str, Any]]) -> list[Sized]:
        """The whole network fine-tuned at one size; validated at every size of the spaces that ``costs`` are of."""
        if not self.file("trunk").is_file():
            size = space.scale.image_size
            network = self.load(f"floor-{size}")
            self._train("trunk", network, size, steps)
            self._save("trunk", network, space.heaviest(), space)
            self.context.run.checkpoints("trained/trunk").clear()
        done, network = self.trained(), self.load("trunk")
        for seen, known in costs.items():
            name = f"trunk-{seen.scale.image_size}"
            if name not in done:
                self._record(name, network, seen, seen.heaviest(), steps, **known, weights="trunk")
        return [self.trained()[f"trunk-{seen.scale.image_size}"] for seen in costs]

    def around(self, space: MbConv) -> ElasticSupernet:
        """The networks of ``space`` with the trunk's weights, narrower blocks matched to whole ones at its size."""
        batches = self._in_order(space.scale.image_size, "train", CALIBRATION)
        trunk = self.load("trunk")
        return supernet_around(trunk, space, torch.cat([x for x, _ in batches])).to(self.context.device.name)

    def tuned(self, architecture: MbConvArchitecture, space: MbConv, steps: int, **known: Any) -> Sized:
        """One network, cut from the trunk, after a training of its own."""
        size = space.scale.image_size
        name = f"tuned-{size}-{hashlib.sha256(str(architecture).encode()).hexdigest()[:8]}"
        if name not in self.trained():
            network = self.around(space).cut_out(architecture).to(self.context.device.name)
            assert isinstance(network, MbConvNetwork)
            self._train(name, network, size, steps, RESTART)
            self._save(name, network, architecture, space)
            self._record(name, network, space, architecture, steps, **known)
            self.context.run.checkpoints(f"trained/{name}").clear()
        return self.trained()[name]

    # --- what a change costs ---

    @torch.no_grad()
    def losses(self, space: MbConv, choices: Sequence[StagedChoice]) -> NDArray[np.float64]:
        """Mean cross entropy on validation images of each network that is cut from the trunk, (n,)."""
        total, count, supernet = np.zeros(len(choices)), 0, self.around(space)
        whole = space.to_choice(space.heaviest())
        for images, labels in self._in_order(space.scale.image_size, "validation", COMPARED):
            inputs = [supernet.start(images.contiguous(memory_format=torch.channels_last))]
            for stage in range(len(whole.depths) - 1):
                inputs.append(supernet.passed(inputs[-1], whole, stage))
            for number, choice in enumerate(choices):
                first = first_difference(choice, whole)  # before it, every network does what the whole one does
                logits = supernet.onward(inputs[first], choice, first)
                total[number] += float(F.cross_entropy(logits, labels, reduction="sum"))
            count += len(labels)
        return total / count


def first_difference(one: StagedChoice, other: StagedChoice) -> int:
    """The first stage in which two networks differ; the last one where they are the same."""
    differs = (one.depths != other.depths) | (one.configurations != other.configurations).any(1)
    return int(differs.argmax()) if differs.any() else len(differs) - 1


def fit_head(
    network: MbConvNetwork,
    features: NDArray[np.float32],
    labels: NDArray[np.int64],
    validation: NDArray[np.float32],
    validation_labels: NDArray[np.int64],
) -> None:
    """Make the classifier of ``network`` the logistic regression on ``features`` (n, width) best on validation.

    The features are standardised for the fit, which is then part of the classifier's weights.
    """
    from sklearn.linear_model import LogisticRegression

    mean, std = features.mean(0), features.std(0) + 1e-6
    best: tuple[float, Any] | None = None
    for penalty in PENALTIES:
        model = LogisticRegression(C=penalty, max_iter=200).fit((features - mean) / std, labels)
        score = float(np.mean(model.predict((validation - mean) / std) == validation_labels))
        if best is None or score > best[0]:
            best = score, model
    assert best is not None
    classifier = network.end[-1]
    assert isinstance(classifier, nn.Linear)
    coefficients, intercepts = best[1].coef_, best[1].intercept_
    if len(intercepts) == 1:  # two classes have one row, for the second of them
        coefficients, intercepts = (np.concatenate([-one, one]) / 2 for one in (coefficients, intercepts))
    weight = coefficients / std
    with torch.no_grad():
        classifier.weight[best[1].classes_] = torch.from_numpy(weight).float().to(classifier.weight.device)
        classifier.bias.fill_(UNSEEN)
        bias = torch.from_numpy(intercepts - weight @ mean).float()
        classifier.bias[best[1].classes_] = bias.to(classifier.bias.device)
