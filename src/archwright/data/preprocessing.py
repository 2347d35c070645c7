"""From an image to a network's input, with nothing but what a saved model's metadata holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch
from PIL import Image
from torch import Tensor

from archwright.bounds import MOST_PIXELS
from archwright.data.images import square_pixels
from archwright.errors import InputError
from archwright.strict import from_plain


@dataclass(frozen=True)
class Preprocessing:
    """Image size, channels and normalisation of a data set.

    Attributes:
        mean: a channel, of pixels in [0, 1]; ``std`` alike.
        turned: whether the network is shown images upside down, turned by 180 degrees: so are the filters of weights
            that were trained with TensorFlow's asymmetric padding, which is symmetric then.
        order: of colours, ``RGB`` or ``BGR``; mean and std are in it, too.
    """

    image_size: int
    image_channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    class_names: tuple[str, ...]
    turned: bool = False
    order: Literal["RGB", "BGR"] = "RGB"

    def __post_init__(self) -> None:
        if not len(self.mean) == len(self.std) == self.image_channels:
            raise InputError(
                f"one mean and one std for each of {self.image_channels} channels",
                f"{len(self.mean)} means and {len(self.std)} stds",
            )
        if not 1 <= self.image_size <= MOST_PIXELS or self.image_channels not in (1, 3):
            shape = f"{self.image_size} px and {self.image_channels} channels"
            raise InputError(f"images of 1 to {MOST_PIXELS} px with 1 or 3 channels", shape)
        least, most = 1e-6, 1e6  # pixels are 0 to 1, so that others would be lost in the digits of a number
        if not all(abs(mean) <= most for mean in self.mean) or not all(least <= std <= most for std in self.std):
            raise InputError(
                f"means up to {most:g} and stds of {least:g} to {most:g}, of pixels in [0, 1]",
                f"{self.mean} and {self.std}",
            )
        if not self.class_names:
            raise InputError("names of the classes", "none")

    def standardise(self, unit: Tensor, inplace: bool = False) -> Tensor:
        """Pixels less the mean, divided by the std, and turned where the network wants it.

        Args:
            unit: in [0, 1], (n, C, H, W); with three means grey pixels, (n, 1, H, W), become three equal channels.
            inplace: whether they may be written over, which saves the time that new memory takes.
        """
        unit = unit.flip(1) if self.order == "BGR" else unit
        mean = torch.tensor(self.mean, dtype=unit.dtype, device=unit.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, dtype=unit.dtype, device=unit.device).view(1, -1, 1, 1)
        own = inplace and unit.shape[1] == len(self.mean)
        scaled = unit.sub_(mean).div_(std) if own else (unit - mean) / std
        return scaled.flip(2, 3) if self.turned else scaled

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 pixels (n, C, H, W) to normalised float32."""
        return self.standardise(pixels.to(torch.float32).div_(255), inplace=True)

    def preprocess(self, image: Image.Image) -> Tensor:
        """Any image to a network's input (1, C, H, W), exactly as the training images were treated."""
        return self.normalise(torch.from_numpy(square_pixels(image, self.image_size, self.image_channels).copy())[None])

    def steps(self) -> list[str]:
        """What :meth:`preprocess` does, in words for whoever writes it again in another language."""
        size = self.image_size
        colour = (
            "convert to grey (ITU-R 601-2 luma)"
            if self.image_channels == 1
            else f"convert to {self.order}, in that order"
        )
        return [
            "turn upright by the EXIF orientation",
            "scale 16-bit grey to 8 bits by dropping the low byte",
            "paint transparent pixels over white",
            colour,
            f"crop the centre to a square and resize it to {size} x {size} px (bilinear, antialiased)",
            "divide by 255",
            "subtract mean and divide by std, channel by channel",
            *(["turn by 180 degrees: reverse the rows and the columns"] if self.turned else []),
            "lay out as float32 (batch, channel, row, column)",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Preprocessing:
        """The inverse of `to_dict`; earlier files do not say ``turned`` and ``order``: they are not, and RGB."""
        known = {"turned": False, "order": "RGB", **values} if isinstance(values, Mapping) else values
        return from_plain(cls, known, "preprocessing")
