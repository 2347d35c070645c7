"""Networks, batches and recipes as bytes for the other processes of a team, which trust each other.

Images go as the request that loads them, a user's function by the text that finds it; the rest is pickled, by torch, so
that tensors keep their layout and arrive on the CPU. Arrays keep theirs, too: convolutions of grey images end in other
last bits where these lie otherwise in memory. The module is its own ``pickle_module``, as torch asks for one.
"""

from __future__ import annotations

import io
import pickle
import sys
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from archwright.data.augmentation import OwnAugmentation
from archwright.data.image_data import ImageData
from archwright.data.request import load_data, request_of
from archwright.errors import InputError
from archwright.references import refer, resolve


class Pickler(pickle.Pickler):
    """As pickle's, but for images and a user's functions."""

    def reducer_override(self, thing: Any) -> Any:
        """How ``thing`` is sent, where that is otherwise than usual."""
        if isinstance(thing, ImageData) and (request := request_of(thing)) is not None:
            return load_data, (request,)
        if isinstance(thing, OwnAugmentation):
            return _own_augmentation, (refer(thing.function),)
        if type(thing) is np.ndarray and _laid_out_otherwise(thing):
            return as_strided, (thing.ravel(order="K"), thing.shape, thing.strides)
        return NotImplemented


def _laid_out_otherwise(array: NDArray[Any]) -> bool:
    """Whether an array would have other strides after it was pickled; it has every element in memory once."""
    usual = [array.itemsize * prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
    extent = array.itemsize + sum((size - 1) * step for size, step in zip(array.shape, array.strides, strict=True))
    once = extent == array.nbytes and min(array.strides, default=0) > 0
    return once and list(array.strides) != usual and not array.dtype.hasobject


def _own_augmentation(text: str) -> OwnAugmentation:
    return OwnAugmentation(resolve(text, "augmentation"))


def packed(thing: Any) -> bytes:
    """``thing`` as bytes; what only this process has is refused."""
    file = io.BytesIO()
    try:
        torch.save(thing, file, pickle_module=sys.modules[__name__])
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InputError(
            "networks and functions of modules, which other processes can import",
            f"one that only this process has ({error})",
            "Put it into a module, or train in one process.",
        ) from error
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """What :func:`packed` made bytes of, in a process of the same team."""
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
