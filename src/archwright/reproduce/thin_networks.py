"""The trained networks that ``reproduce thin`` thins: each is trained once, and all arms and seeds share it.

- ``cifar``: a ResNet-20 after 60 epochs on CIFAR-10's 10,000 images, of which a fifth are for validation;
- ``photos4`` and ``photos6``: EfficientNet-Lite0, fine-tuned at 64 px on photographs of four and of six classes, 120 a
  class to train on, 30 to validate and 100 to test on.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from archwright.data import Batches, ImageData
from archwright.data.augmentation import find_augmentation
from archwright.data.request import DataRequest, load_data
from archwright.device import Device
from archwright.errors import InputError
from archwright.models import Model
from archwright.pretrained import DEFAULT, load_start
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.files import atomic_file
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.search.budget import Pace
from archwright.spaces.base import Architecture, Network, Scale
from archwright.spaces.width import WidthSpace
from archwright.tables.locate import shared_data
from archwright.training import Recipe, train

RESNET = "resnet20"
RESNET_RECIPE = Recipe(
    epochs=60,
    batch_size=64,
    lr=0.1,
    nesterov=True,
    weight_decay=5e-4,
    warmup_epochs=1.0,
    clip=5.0,
)
"""Ten minutes of one core that has bfloat16, forty of one that has not."""
TIMED_STEPS = 6
"""Steps of a real training that say which precision is quicker here."""
LITE_RECIPE = Recipe(
    epochs=10,
    batch_size=32,
    optimizer="adamw",
    lr=5e-4,
    frozen_norms=True,
    weight_decay=0.01,
    label_smoothing=0.1,
    warmup_epochs=1.0,
)
PHOTO_SIDE, IMAGE_SIZE = 96, 64
EACH, EACH_TESTED = 150, 100
"""Photographs a class: to train and validate on, and to test on."""


def archive() -> Path:
    """The file of the CIFAR-10 subset; an error says where to put it."""
    found = shared_data("cifar10_10k2k.npz")
    if found is None:
        raise InputError(
            "the CIFAR-10 subset cifar10_10k2k.npz", "no such file", "Set ARCHWRIGHT_DATA to the folder that has it."
        )
    return found


def written_photos(folder: Path, classes: int) -> str:
    """A folder of photographs with parts ``train`` and ``test``, written once; the reference to it.

    Args:
        folder: where they are written.
        classes: the first so many of CIFAR-10.
    """
    with np.load(archive()) as given:
        names = given["class_names"].tolist()
        parts = {part: (given[f"x_{part}"], given[f"y_{part}"].ravel()) for part in ("train", "test")}
    for (part, (images, labels)), label in product(parts.items(), range(classes)):
        for number, index in enumerate(np.flatnonzero(labels == label)[: EACH if part == "train" else EACH_TESTED]):
            path = folder / "images" / part / str(names[label]) / f"{number:03d}.jpg"
            if not path.exists():
                photo = Image.fromarray(images[index]).resize((PHOTO_SIDE, PHOTO_SIDE), Image.Resampling.BICUBIC)
                with atomic_file(path) as file:
                    photo.save(file, "JPEG", quality=92)
    return f"folder:{folder / 'images'}"


def trained_lite(folder: Path, data: str) -> Path:
    """The file of the fine-tuned Lite0; trained where it is not there yet.

    Args:
        folder: of the file and of the checkpoints.
        data: reference to the images.
    """
    path = folder / "lite0.safetensors"
    if not path.is_file():
        start = load_start(DEFAULT)
        images = load_data(DataRequest(data, 0, IMAGE_SIZE))
        how = replace(images.preprocessing, mean=start.start.mean, std=start.start.std, turned=start.start.turned)
        space = start.start.space(images.classes, IMAGE_SIZE)
        network = start.network(images.classes, IMAGE_SIZE)
        shown = replace(images, preprocessing=how)
        _train(path, network, shown, LITE_RECIPE, space.name, space.heaviest(), space.scale)
    return path


def trained_resnet(folder: Path, data: str) -> Path:
    """The file of the trained ResNet-20; trained where it is not there yet.

    Args:
        folder: of the file and of the checkpoints.
        data: reference to the images.
    """
    path = folder / f"{RESNET}.safetensors"
    if not path.is_file():
        images = load_data(DataRequest(data, 0))
        space = WidthSpace(RESNET)
        space = space.at_scale(space.named_scale("small", images.classes, images.image_size, images.image_channels))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network = space.whole()
        recipe = RESNET_RECIPE.changed(precision=quicker_precision(folder, network, images))
        _train(path, network, images, recipe, space.name, space.full, space.scale)
    return path


def quicker_precision(folder: Path, network: nn.Module, images: ImageData) -> str:
    """``float32`` or ``bfloat16``, in which a training step takes less here; timed once and kept.

    Args:
        folder: of the file that keeps it.
        network: that will be trained; left as it is.
        images: that it is shown.
    """
    log = ItemLog(folder / "precision.jsonl")
    if "precision" not in log.done:
        batches = Batches(images, "train", RESNET_RECIPE.batch_size, seed=0)
        pace = Pace(Device.choose("cpu", 1), RESNET_RECIPE.batch_size)
        short = RESNET_RECIPE.changed(epochs=1, warmup_epochs=0.0)

        def step_ms(precision: str) -> float:
            return pace.real_step_ms(deepcopy(network), batches, short.changed(precision=precision), TIMED_STEPS)

        log.record("precision", min(("float32", "bfloat16"), key=step_ms))
    return str(log.done["precision"])


def kept_precision(folder: Path) -> str:
    """What :func:`quicker_precision` found for the network of ``folder``; float32 where it was not asked."""
    return str(ItemLog(folder / "precision.jsonl").done.get("precision", "float32"))


def _train(
    path: Path,
    network: nn.Module,
    images: ImageData,
    recipe: Recipe,
    space: str,
    architecture: Architecture,
    scale: Scale,
) -> None:
    """Train and save; killed, it goes on.

    Args:
        path: of the file.
        network: with the weights to begin with.
        images: as it is shown them.
        recipe: of the training.
        space: that it is of; its ``architecture`` and ``scale``.
        architecture: of the network.
        scale: of the network.
    """
    assert isinstance(network, Network)
    augment = find_augmentation("default", images)
    batches = Batches(images, "train", recipe.batch_size, seed=0, augment=augment)
    checkpoints = Checkpoints(path.parent / "checkpoints")
    train(network, batches, recipe, seed=0, checkpoints=checkpoints, stop=Stop())
    Model(network, space, architecture, scale, images.preprocessing).save(path)
    checkpoints.clear()
