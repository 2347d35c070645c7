"""The images that an int8 network of a search is calibrated on: training images of every class in turn."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from archwright.data import Batches, ImageData
from archwright.quantise import CALIBRATION_IMAGES
from archwright.runs.progress import Progress

NAMED = 5
"""Classes without images that are named, at most."""


def calibration_images(data: ImageData, progress: Progress) -> Tensor:
    """Training images as a network is shown them, (n, C, H, W); classes that have none among them are said.

    Args:
        data: at the network's image size, with its normalisation.
        progress: where it is said.
    """
    chosen = in_turn(data.train.labels, CALIBRATION_IMAGES)
    names, seen = data.preprocessing.class_names, set(data.train.labels[chosen].tolist())
    missing = [name for number, name in enumerate(names) if number not in seen]
    if missing:
        further = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
        progress.say(f"int8 is calibrated without images of {', '.join(missing[:NAMED])}{further}.")
    batches = Batches(data, "train", 32, shuffle=False, drop_last=False, indices=chosen)
    return torch.cat([images for images, _ in batches])


def in_turn(labels: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Numbers of at most ``most`` images: the first of every class, then the second of each, spread over the classes.

    Args:
        labels: of all images, (n,).
        most: images that are wanted.
    """
    turns: list[tuple[int, int]] = []
    for label in np.unique(labels).tolist():
        own = np.flatnonzero(labels == label)
        spread = own[np.unique(np.linspace(0, len(own) - 1, min(most, len(own))).astype(np.int64))]
        order = np.argsort([int(f"{number:032b}"[::-1], 2) for number in range(len(spread))])  # far apart first
        turns += [(turn, int(spread[place])) for turn, place in enumerate(order.tolist())]
    return np.sort(np.array([number for _, number in sorted(turns)[:most]], dtype=np.int64))
