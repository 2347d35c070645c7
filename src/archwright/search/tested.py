"""What a trained network says of every test image, kept beside its file: ``artifacts/NAME-test.npz``.

Pages draw from it where a network errs and compare two networks image by image; nothing of a search goes by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.data.arrays import read_archive, write_archive
from archwright.data.image_data import ImageData
from archwright.data.images import resize_arrays
from archwright.errors import InputError, RunError
from archwright.runs.files import atomic_file, inside
from archwright.training.evaluation import Outcomes

SUFFIX = "-test.npz"
MOST_SHOWN = 12
"""Wrong images that are kept as pictures: those that the network is surest of."""
THUMBNAIL = 96
"""Pixels a side of these at most."""


@dataclass(frozen=True, eq=False)
class OnTestImages:
    """A network on the test images.

    Attributes:
        outcomes: of every image, in the order of the test part.
        class_names: label i is called ``class_names[i]``.
        shown: numbers of the wrong images that are kept, the surest first, (k,).
        pictures: these, uint8 (k, C, side, side).
        files: paths of these below the root of the data set; empty where they are no files.
    """

    outcomes: Outcomes
    class_names: tuple[str, ...]
    shown: NDArray[np.int64]
    pictures: NDArray[np.uint8]
    files: tuple[str, ...]


def keep_tested(path: Path, data: ImageData, found: Outcomes) -> None:
    """Write what a network says of the test images.

    Args:
        path: of the file.
        data: whose test part they are, in its order.
        found: of every image.
    """
    wrong = np.flatnonzero(~found.right)
    shown = wrong[np.argsort(-found.confidence[wrong], kind="stable")][:MOST_SHOWN]
    channels = data.test.pixels(np.arange(1)).shape[1]
    pictures = np.zeros((0, channels, 1, 1), np.uint8)
    if len(shown):
        pixels = data.test.pixels(shown).numpy()
        pictures = resize_arrays(pixels, min(THUMBNAIL, pixels.shape[2]))
    arrays = {
        "labels": found.labels.astype(np.int32),
        "predicted": found.predicted.astype(np.int32),
        "confidence": found.confidence.astype(np.float32),
        "class_names": np.array(data.class_names),
        "shown": shown,
        "pictures": pictures,
        "files": np.array([data.test.file(int(number)) for number in shown], dtype=np.str_),
    }
    with atomic_file(path) as file:
        write_archive(file, arrays)


def read_tested(folder: Path, model: str | None) -> OnTestImages | None:
    """What is kept of the network ``model`` of the run in ``folder``; None where nothing is.

    Args:
        folder: of the run.
        model: path of its file in the run, as an answer names it.
    """
    if model is None:
        return None
    path = inside(folder, model.removesuffix(".safetensors") + SUFFIX)
    if not path.is_file():
        return None
    try:
        return _checked(read_archive(path))
    except (InputError, LookupError, TypeError, ValueError) as error:
        raise RunError(
            f"expected what a network says of test images in {path}, got a damaged file ({error})."
        ) from error


def _checked(arrays: dict[str, NDArray[np.generic]]) -> OnTestImages:
    """The arrays of a file, which may be somebody else's."""
    labels, predicted = (np.asarray(arrays[name]).astype(np.int64) for name in ("labels", "predicted"))
    confidence, shown = np.asarray(arrays["confidence"], np.float32), np.asarray(arrays["shown"]).astype(np.int64)
    names, pictures = tuple(map(str, arrays["class_names"])), np.asarray(arrays["pictures"])
    files = tuple(map(str, arrays["files"]))
    if not (labels.ndim == 1 and len(labels) and labels.shape == predicted.shape == confidence.shape):
        raise ValueError("images without labels, or labels without images")
    for classes in (labels, predicted):
        if classes.min() < 0 or classes.max() >= len(names):
            raise ValueError("classes without a name")
    if not (np.isfinite(confidence).all() and confidence.min() >= 0 and confidence.max() <= 1 + 1e-6):
        raise ValueError("confidences that are no probabilities")
    if not (len(shown) == len(pictures) == len(files) <= MOST_SHOWN) or (
        len(shown) and (shown.min() < 0 or shown.max() >= len(labels))
    ):
        raise ValueError("pictures of no image")
    if pictures.dtype != np.uint8 or pictures.ndim != 4 or pictures.shape[1] not in (1, 3):
        raise ValueError(f"pictures of shape {pictures.shape}")
    return OnTestImages(Outcomes(labels, predicted, confidence), names, shown, pictures, files)
