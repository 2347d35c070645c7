"""Data that a user has in memory: arrays, tensors, torch Datasets or Hugging Face datasets to an :class:`ImageData`.

Like every other source they end as 8-bit pixels: images are given raw, normalising and augmentation are done here. Of
an object such as torchvision's ``ImageFolder`` (``samples``, ``classes`` and ``loader``) the files are read by its own
loader and its transforms are left aside, for the same reason.
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
from archwright.data.image_data import ImageData, from_raw
from archwright.data.image_files import default_size
from archwright.data.images import is_grey, square_pixels
from archwright.data.raw import Pixels
from archwright.data.splits import Shares
from archwright.errors import InputError
from archwright.owncode import own_code
from archwright.references import DataRef

_ACCEPTED = (
    "data as (images, labels), (images, labels, test images, test labels), a dict of arrays called as in an npz "
    "archive, a torch Dataset, (dataset, test dataset), a Hugging Face Dataset or DatasetDict, or an ImageData"
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
            on; a Hugging Face ``Dataset`` with a column of images and one of labels, or a ``DatasetDict`` of which
            ``train`` and ``test`` are taken. An ImageData is returned as it is.
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
    if _is_hugging_face(data) or (isinstance(data, Mapping) and any(map(_is_hugging_face, data.values()))):
        return _from_datasets(_columns_of(data), image_size)
    if isinstance(data, Mapping):
        return {str(key): _array(value) for key, value in data.items()}
    if isinstance(data, Dataset):
        return _from_datasets([data], image_size)
    if not isinstance(data, tuple | list) or len(data) not in (2, 4):
        raise InputError(_ACCEPTED, type(data).__name__)
    if all(isinstance(one, Dataset) or _is_hugging_face(one) for one in data):
        if any(map(_is_hugging_face, data)):
            data = _columns_of(dict(zip(("train", "test"), data, strict=True)))
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
    items = [_items_of_files(one) if _is_folder_object(one) else _items(one) for one in sets]
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


class _Columns(Dataset[Any]):
    """Two columns of a Hugging Face dataset as (image, label)."""

    def __init__(self, data: Any) -> None:
        features = data.features
        self._image = _column(features, ("Image",), ("image", "img"), "images")
        self._label = _column(features, ("ClassLabel", "Value"), ("label", "labels", "fine_label"), "labels")
        self._data, self.classes = data, getattr(features[self._label], "names", None)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        row = self._data[number]
        return row[self._image], row[self._label]


def _column(features: Mapping[str, Any], kinds: Sequence[str], names: Sequence[str], what: str) -> str:
    """The column of the first of ``kinds`` that there is one of, or of several the first that has a usual name."""
    for kind in kinds:
        found = [name for name, feature in features.items() if type(feature).__name__ == kind]
        usual = [name for name in names if name in found]
        if kind == "Value" and not usual:
            continue
        if len(found) == 1 or usual:
            return usual[0] if usual else found[0]
    said = ", ".join(f"{name} ({type(one).__name__})" for name, one in features.items())
    raise InputError(f"a column of {what} called {' or '.join(names)}", said, "Rename it: data.rename_column(...).")


def _is_hugging_face(data: Any) -> bool:
    """Whether ``data`` is one table of the package ``datasets``, which is not imported for it."""
    return (
        type(data).__module__.partition(".")[0] == "datasets" and hasattr(data, "features") and hasattr(data, "shape")
    )


def _columns_of(data: Any) -> list[_Columns]:
    """The table to learn from and, where there is one, the table to test on."""
    parts = {"train": data} if _is_hugging_face(data) else dict(data)
    if "train" not in parts:
        raise InputError("a DatasetDict with train (and test)", ", ".join(map(str, parts)), "Give one of them alone.")
    found = [_Columns(parts["train"])]
    return [*found, _Columns(parts["test"])] if "test" in parts else found


def _is_folder_object(dataset: Any) -> bool:
    """Whether a Dataset is like torchvision's ``ImageFolder``: files with labels, and a function that reads one."""
    return all(hasattr(dataset, name) for name in ("samples", "classes", "loader")) and callable(dataset.loader)


def _items_of_files(dataset: Any) -> list[tuple[Any, int]]:
    """All (image, label), each file read by the object's own loader."""
    found = []
    for path, label in dataset.samples:
        with own_code(f"the loader of the Dataset for {path}"):
            found.append((dataset.loader(path), int(label)))
    if not found:
        raise InputError("images in the Dataset", "none")
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
