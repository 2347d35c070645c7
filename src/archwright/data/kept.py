"""An :class:`ImageData` in one file, so that another process or a resumed run sees the same images in the same parts.

Plain arrays in an ``.npz`` archive, read without pickle: ``x_PART`` (n,C,H,W) uint8 and ``y_PART`` for the three parts,
``mean``, ``std``, ``class_names``, and ``about``, the rest as JSON. ``npz:PATH`` reads such a file too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from archwright.data.arrays import read_archive, write_archive
from archwright.data.image_data import ImageData, Split
from archwright.data.preprocessing import Preprocessing
from archwright.data.raw import MemoryPixels
from archwright.errors import InputError
from archwright.runs.files import atomic_file
from archwright.strict import parse_json

PARTS = ("train", "validation", "test")


def keep(data: ImageData, path: Path) -> None:
    """Write ``data`` to ``path``, aside first, so that the file is whole or absent."""
    arrays: dict[str, Any] = {
        "mean": np.array(data.mean),
        "std": np.array(data.std),
        "class_names": np.array(data.class_names),
    }
    for name in PARTS:
        part: Split = getattr(data, name)
        if not part.in_memory:
            raise InputError(
                "images that fit into memory, to be kept in the run",
                f"{data.name}, which is read as it is used",
                f"Give its path instead: data={data.spec!r}",
            )
        arrays[f"x_{name}"], arrays[f"y_{name}"] = part.pixels(np.arange(len(part))).numpy(), part.labels
    about = {"spec": data.spec, "name": data.name, "fingerprint": data.fingerprint, "skipped": list(data.skipped)}
    arrays["about"] = np.array(json.dumps(about))
    with atomic_file(path) as file:
        write_archive(file, arrays)


def load_kept(path: Path) -> ImageData:
    """What :func:`keep` wrote; anything else is an error that names the file."""
    if not path.is_file():
        raise InputError("the images that were given to the search, kept in its folder", f"no {path}")
    arrays = read_archive(path)
    try:
        about = parse_json(str(arrays["about"]))
        parts = {name: (arrays[f"x_{name}"], arrays[f"y_{name}"].astype(np.int64)) for name in PARTS}
        for pixels, labels in parts.values():
            if pixels.dtype != np.uint8 or pixels.ndim != 4 or len(pixels) != len(labels) or len(labels) == 0:
                raise ValueError(f"images {pixels.dtype} {pixels.shape} with {len(labels)} labels")
        preprocessing = Preprocessing(
            image_size=int(parts["train"][0].shape[2]),
            image_channels=int(parts["train"][0].shape[1]),
            mean=tuple(map(float, arrays["mean"])),
            std=tuple(map(float, arrays["std"])),
            class_names=tuple(map(str, arrays["class_names"])),
        )
        splits = {
            name: Split(MemoryPixels(pixels), labels, np.arange(len(labels)))
            for name, (pixels, labels) in parts.items()
        }
        return ImageData(
            spec=str(about["spec"]),
            name=str(about["name"]),
            preprocessing=preprocessing,
            fingerprint=str(about["fingerprint"]),
            skipped=tuple(map(str, about["skipped"])),
            **splits,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError("images kept by archwright", f"{path} ({type(error).__name__}: {error})") from error
