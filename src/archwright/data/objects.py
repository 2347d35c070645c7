"""Data that a user has in memory: arrays, tensors or torch Datasets to an :class:`ImageData`.

Like every other source they end as 8-bit pixels: images are given raw, normalising and augmentation are done here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from archwright.data.arrays import as_pixels, raw_from_mapping
from archwright.data.folder import default_size
from archwright.data.image_data import ImageData, from_raw
from archwright.data.images import is_grey, square_pixels
from archwright.data.raw import Pixels
from archwright.data.splits import Shares
from archwright.errors import InputError
from archwright.owncode import own_code
from archwright.references import DataRef

_ACCEPTED = (
    "data as (images, labels), (images, labels, test images, test labels), a dict of arrays called as in an npz "
    "archive, a torch Dataset, (dataset, test dataset) or an ImageData"
)


def from_object(
    data: Any, *, seed: int = 0, image_size: int | None = None, split: Shares = None, name: str = "arrays"
) -> ImageData:
    """An :class:`ImageData` from whatever a user has.

    Args:
        data: images (n,H,W), (n,H,W,C) or (n,C,H,W), as uint8 or as floats in [0, 1], with labels (n,) numbered from 0,
            as a pair or with a second pair to test on; a mapping with the keys of an npz archive (``x_train``,
            ``y_train``, ``x_test``, ``y_test``, ``class_names``, or ``x`` and ``y``); a torch Dataset of (image,
            label), an image being a PIL image, an array or a tensor (C,H,W), or a pair of Datasets, the second to test
            on. An ImageData is returned as it is.
        seed: of the splits.
        image_size: side the images are resized to.
        split: relative sizes of train, validation and test, as in :func:`archwright.data.load`.
        name: for people.

    Example:
        >>> from_object((np.zeros((20, 8, 8), np.uint8), np.arange(20) % 2)).classes
        2
    """
    if isinstance(data, ImageData):
        if split is not None or image_size not in (None, data.image_size):
            raise InputError("image size and split to be those of the ImageData", "others beside it", "Leave them out.")
        return data
    raw = raw_from_mapping(name, _mapping(data, image_size), image_size)
    return from_raw(raw, str(DataRef("object", name)), seed=seed, split=split)


def _mapping(data: Any, image_size: int | None) -> dict[str, NDArray[Any]]:
    """Arrays under the names that an npz archive has."""
    if isinstance(data, Mapping):
        return {str(key): _array(value) for key, value in data.items()}
    if isinstance(data, Dataset):
        return _from_datasets([data], image_size)
    if not isinstance(data, tuple | list) or len(data) not in (2, 4):
        raise InputError(_ACCEPTED, type(data).__name__)
    if all(isinstance(one, Dataset) for one in data):
        if len(data) != 2:
            raise InputError("one Dataset, or a second one to test on", str(len(data)))
        return _from_datasets(data, image_size)
    return dict(zip(("x_train", "y_train", "x_test", "y_test"), map(_array, data), strict=False))


def _array(value: Any) -> NDArray[Any]:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError as error:  # a ragged list
        raise InputError(_ACCEPTED, str(error)) from error
    if array.dtype.kind not in "biufUS":
        raise InputError(_ACCEPTED, f"{type(value).__name__} of type {array.dtype}")
    return array


def _from_datasets(sets: Sequence[Any], image_size: int | None) -> dict[str, NDArray[Any]]:
    items = [_items(one) for one in sets]
    images = [[image for image, _ in part] for part in items]
    if any(isinstance(image, Image.Image) for part in images for image in part):
        pixels = _from_pictures(images, image_size)
    else:
        pixels = [_stacked(part) for part in images]
    found: dict[str, NDArray[Any]] = {}
    for suffix, part, stack in zip(("train", "test"), items, pixels, strict=False):
        found[f"x_{suffix}"], found[f"y_{suffix}"] = stack, np.array([label for _, label in part])
    names = getattr(sets[0], "classes", None)
    if isinstance(names, list | tuple) and all(isinstance(one, str) for one in names):
        found["class_names"] = np.array(names)
    return found


def _items(dataset: Any) -> list[tuple[Any, int]]:
    """All (image, label) of a Dataset that can be counted and indexed."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        raise InputError("a Dataset with a length, whose items can be asked for by number", type(dataset).__name__)
    found = []
    with own_code("the length of the Dataset"):
        count = len(dataset)
    for number in range(count):
        with own_code(f"item {number} of the Dataset"):
            item = dataset[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise InputError("(image, label) as every item of a Dataset", f"{type(item).__name__} as item {number}")
        label = np.asarray(item[1])
        if label.size != 1 or label.dtype.kind not in "iu":
            raise InputError(f"a whole number as the label of item {number}", f"{label.dtype} of shape {label.shape}")
        found.append((item[0], int(label.reshape(()))))
    if not found:
        raise InputError("images in the Dataset", "none")
    return found


def _from_pictures(parts: Sequence[Sequence[Any]], image_size: int | None) -> list[Pixels]:
    """PIL images of any size, treated like the files of a folder: (n, C, size, size) a part."""
    pictures = [picture for part in parts for picture in part]
    if not all(isinstance(picture, Image.Image) for picture in pictures):
        raise InputError("PIL images throughout, or arrays throughout", "both in one Dataset")
    size = image_size or default_size([min(picture.size) for picture in pictures])
    channels = 1 if all(is_grey(picture) for picture in pictures) else 3
    return [np.stack([square_pixels(picture, size, channels) for picture in part]) for part in parts]


def _stacked(images: Sequence[Any]) -> Pixels:
    """Arrays or tensors of one shape, to uint8 (n, C, H, W)."""
    arrays = [_array(image) for image in images]
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1:
        raise InputError(
            "images of one shape", f"{len(shapes)} shapes, such as {', '.join(map(str, list(shapes)[:3]))}"
        )
    return as_pixels(np.stack(arrays), "the Dataset")
