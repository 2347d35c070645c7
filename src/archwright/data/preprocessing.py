"""From an image to a network's input, with nothing but what a saved model's metadata holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from archwright.data.images import square_pixels
from archwright.errors import InputError


@dataclass(frozen=True)
class Preprocessing:
    """Image size, channels and normalisation of a data set; ``mean`` and ``std`` are of pixels in [0, 1]."""

    image_size: int
    image_channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        if not len(self.mean) == len(self.std) == self.image_channels:
            raise InputError(
                f"one mean and one std for each of {self.image_channels} channels",
                f"{len(self.mean)} means and {len(self.std)} stds",
            )

    def standardise(self, unit: Tensor) -> Tensor:
        """Pixels in [0, 1], (n, C, H, W), to mean 0 and standard deviation 1 a channel of the train part."""
        mean = torch.tensor(self.mean, dtype=unit.dtype, device=unit.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, dtype=unit.dtype, device=unit.device).view(1, -1, 1, 1)
        return (unit - mean) / std

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 pixels (n, C, H, W) to normalised float32."""
        return self.standardise(pixels.to(torch.float32) / 255)

    def preprocess(self, image: Image.Image) -> Tensor:
        """Any image to a network's input (1, C, H, W), exactly as the training images were treated."""
        return self.normalise(torch.from_numpy(square_pixels(image, self.image_size, self.image_channels).copy())[None])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        """The inverse of `to_dict`."""
        missing = sorted(set(cls.__dataclass_fields__) - set(values))
        if missing:
            raise InputError("preprocessing with every field", f"none for {', '.join(missing)}")
        return cls(
            image_size=int(values["image_size"]),
            image_channels=int(values["image_channels"]),
            mean=tuple(map(float, values["mean"])),
            std=tuple(map(float, values["std"])),
            class_names=tuple(map(str, values["class_names"])),
        )
