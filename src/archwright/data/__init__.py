"""Images in (named sets, folders, arrays, torch Datasets); normalised tensors, splits and augmentation out.

The names are imported on first use, so that ``archwright.data.datasets`` can be listed without importing torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from archwright.data.registry import datasets

if TYPE_CHECKING:
    from archwright.data.augmentation import Augmentation
    from archwright.data.batches import Batches, Endless, Steps
    from archwright.data.image_data import ImageData, Split, load
    from archwright.data.objects import from_object
    from archwright.data.preprocessing import Preprocessing

__all__ = [
    "Augmentation",
    "Batches",
    "Endless",
    "ImageData",
    "Preprocessing",
    "Split",
    "Steps",
    "datasets",
    "from_object",
    "load",
]

_HOMES = {
    "Augmentation": "augmentation",
    "Batches": "batches",
    "Endless": "batches",
    "ImageData": "image_data",
    "Preprocessing": "preprocessing",
    "Split": "image_data",
    "Steps": "batches",
    "from_object": "objects",
    "load": "image_data",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
