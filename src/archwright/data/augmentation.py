"""Random changes to a batch of training images, a function of a seed alone.

Order: crop, zoom, flip, colour, AutoAugment on pixels in [0, 1]; normalisation; then cutout, whose zeros are the mean
pixel.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from archwright.errors import InputError, unknown_name
from archwright.owncode import own_code
from archwright.references import DataRef, ObjectRef, resolve

if TYPE_CHECKING:
    from archwright.data.image_data import ImageData

_NUMBER = re.compile(r"[0-9]{0,4}\.?[0-9]{1,6}")
POLICIES = ("cifar10", "imagenet")
FORMS = "default, off, MODULE:FUNCTION, or a list such as crop=4,flip,zoom=0.6,colour=0.4,cutout=8,autoaugment=cifar10"
STRETCH = 0.15
"""A zoomed window is wider or narrower than high by a factor of exp(0.15) at most."""
BEYOND = 0.05
"""A zoomed window may reach over the border by this part of the image's side, which is mirrored there."""


def _unchanged(x: Tensor) -> Tensor:
    return x


@dataclass(frozen=True)
class Augmentation:
    """What is done to training images.

    Args:
        crop: pad by so many black pixels on each side, then cut out the old size at a random place.
        flip: mirror left and right with probability one half.
        cutout: side of a square set to zero at a random centre, clipped at the border; 0 for none.
        autoaugment: a policy found by AutoAugment, "cifar10" or "imagenet"; each image draws its own sub-policy.
        zoom: show a random window, whose sides are so much of the image's or more, at the old size; 1 for none.
        colour: change brightness, contrast and saturation by random factors of 1 - colour to 1 + colour; 0 for none.
    """

    crop: int = 0
    flip: bool = False
    cutout: int = 0
    autoaugment: str | None = None
    zoom: float = 1.0
    colour: float = 0.0

    def __post_init__(self) -> None:
        if self.crop < 0 or self.cutout < 0:
            raise InputError("crop and cutout of 0 or more pixels", f"{self.crop} and {self.cutout}")
        if not 0 < self.zoom <= 1 or not 0 <= self.colour <= 1:
            raise InputError("a zoom above 0 and up to 1 and a colour of 0 to 1", f"{self.zoom} and {self.colour}")
        if self.autoaugment is not None and self.autoaugment not in POLICIES:
            raise unknown_name("policy", self.autoaugment, POLICIES)

    def __call__(self, unit: Tensor, seed: int, normalise: Callable[[Tensor], Tensor] = _unchanged) -> Tensor:
        """Augment ``unit`` (n, C, H, W) in [0, 1]; the same seed does the same, whatever the global random state.

        Random numbers are drawn on the CPU, so that the device does not change them.
        """
        generator = torch.Generator().manual_seed(seed)
        x = unit
        if self.crop:
            x = _random_crop(x, self.crop, generator)
        if self.zoom < 1:
            x = _random_window(x, self.zoom, generator)
        if self.flip:
            mirrored = torch.rand(len(x), generator=generator) < 0.5
            x = torch.where(mirrored.view(-1, 1, 1, 1).to(x.device), x.flip(3), x)
        if self.colour:
            x = _recoloured(x, self.colour, generator)
        if self.autoaugment:
            x = _autoaugment(x, self.autoaugment, generator)
        x = normalise(x)
        return _cutout(x, self.cutout, generator) if self.cutout else x

    @classmethod
    def default_for(cls, data: ImageData) -> Augmentation:
        """What suits a data set: little for digits (mirrored digits are other signs), none for noise.

        Everything that is not a named set is taken for photographs: crop by an eighth, flip, cutout of a quarter.
        """
        kind, size = DataRef.parse(data.spec).kind, data.image_size
        if kind == "digits":
            return cls(crop=max(1, size // 8))
        if kind == "fashion-mnist":
            return cls(crop=max(1, size // 14), flip=True)
        if kind == "random":
            return cls()
        return cls(crop=size // 8, flip=True, cutout=size // 4)

    @classmethod
    def parse(cls, text: str) -> Augmentation:
        """From ``crop=4,flip,cutout=8,autoaugment=cifar10``, any part of it left out."""
        values: dict[str, Any] = {}
        for item in text.split(","):
            key, equals, value = (word.strip() for word in item.partition("="))
            pixels = value.isdecimal() and len(value) < 6
            known = {"crop": pixels, "cutout": pixels, "autoaugment": bool(value)}
            known |= dict.fromkeys(("zoom", "colour"), bool(_NUMBER.fullmatch(value)))
            if not known.get(key, key == "flip" and not equals) or key in values:
                raise InputError(f"augmentation as {FORMS}", repr(text))
            if key in ("zoom", "colour"):
                values[key] = float(value)
            else:
                values[key] = True if key == "flip" else int(value) if key in ("crop", "cutout") else value
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Augmentation:
        """The inverse of `to_dict`."""
        unknown = sorted(set(values) - set(cls.__dataclass_fields__))
        if unknown:
            raise unknown_name("augmentation field", unknown[0], cls.__dataclass_fields__)
        return cls(**values)


@dataclass(frozen=True)
class OwnAugmentation:
    """A user's function of a batch of images (n, C, H, W) in [0, 1] that returns as many of the same shape.

    The global generators of torch, NumPy and ``random`` are seeded for each call and put back afterwards, so that any
    function that draws from them is a function of the seed, too.
    """

    function: Callable[[Tensor], Tensor]

    def __call__(self, unit: Tensor, seed: int, normalise: Callable[[Tensor], Tensor] = _unchanged) -> Tensor:
        """As :class:`Augmentation` is called."""
        states = random.getstate(), np.random.get_state()  # noqa: NPY002 - put back below
        with torch.random.fork_rng(devices=[unit.device] if unit.is_cuda else []):
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)  # noqa: NPY002
            random.seed(seed)
            try:
                with own_code("your augmentation"):
                    changed = self.function(unit)
            finally:
                random.setstate(states[0])
                np.random.set_state(states[1])  # noqa: NPY002
        if not isinstance(changed, Tensor) or changed.shape != unit.shape or not changed.is_floating_point():
            got = f"{changed.dtype} {tuple(changed.shape)}" if isinstance(changed, Tensor) else type(changed).__name__
            raise InputError(f"floating-point images {tuple(unit.shape)} from the augmentation", got)
        return normalise(changed.to(unit.dtype))


Augment = Augmentation | OwnAugmentation
"""What :class:`archwright.data.Batches` applies."""


def find_augmentation(spec: str, data: ImageData) -> Augment | None:
    """The augmentation that ``spec`` names for ``data``: default, off, a list of changes, or MODULE:FUNCTION."""
    if spec == "default":
        return Augmentation.default_for(data)
    if spec == "off":
        return None
    if ObjectRef.find(spec) is not None:
        function = resolve(spec, "augmentation")
        if not callable(function):
            raise InputError("a function of a batch of images as augmentation", f"{type(function).__name__} at {spec}")
        return OwnAugmentation(function)
    found = Augmentation.parse(spec)
    if max(found.crop, found.cutout) > data.image_size:
        raise InputError(f"crop and cutout of at most {data.image_size} px, the image size", repr(spec))
    return found


def _random_crop(x: Tensor, padding: int, generator: torch.Generator) -> Tensor:
    """Each image shifted by up to ``padding`` pixels each way, black where nothing was."""
    _, _, height, width = x.shape
    top, left = torch.randint(2 * padding + 1, (2, len(x)), generator=generator).to(x.device)
    windows = (
        functional.pad(x, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    )  # (n, C, top, left, H, W), a view
    return windows[torch.arange(len(x), device=x.device), :, top, left]


def _random_window(x: Tensor, least: float, generator: torch.Generator) -> Tensor:
    """A window of each image, at a random place and of ``least`` to 1 of its sides, at the old size (bilinear)."""
    share, stretch, across, down = torch.rand(4, len(x), generator=generator)
    side = torch.exp(math.log(least) * share)
    width, height = side * torch.exp(STRETCH * (2 * stretch - 1)), side
    room = 1 - side + 2 * BEYOND  # of the centre, where the image goes from -1 to 1
    place = torch.zeros(len(x), 2, 3)
    place[:, 0, 0], place[:, 0, 2] = width, (2 * across - 1) * room
    place[:, 1, 1], place[:, 1, 2] = height, (2 * down - 1) * room
    grid = functional.affine_grid(place, list(x.shape), align_corners=False).to(x.device)
    return functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False).clamp(0, 1)


def _recoloured(x: Tensor, most: float, generator: torch.Generator) -> Tensor:
    """Brightness, contrast (around the image's mean) and saturation (around its grey) times random factors."""
    factors = 1 + most * (2 * torch.rand(3, len(x), 1, 1, 1, generator=generator) - 1).to(x.device)
    x = x * factors[0]
    x = torch.lerp(x.mean((1, 2, 3), keepdim=True), x, factors[1])
    return torch.lerp(x.mean(1, keepdim=True), x, factors[2]).clamp(0, 1)


def _cutout(x: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """A square of zeros around a random pixel of each image."""
    n, _, height, width = x.shape
    top = torch.randint(height, (n, 1), generator=generator) - side // 2
    left = torch.randint(width, (n, 1), generator=generator) - side // 2
    rows, columns = torch.arange(height), torch.arange(width)
    inside_rows = (rows >= top) & (rows < top + side)  # (n, H)
    inside_columns = (columns >= left) & (columns < left + side)  # (n, W)
    hole = inside_rows[:, None, :, None] & inside_columns[:, None, None, :]
    return x.masked_fill(hole.to(x.device), 0)


@lru_cache(maxsize=len(POLICIES))
def _policy(name: str) -> Any:
    from kornia.augmentation.auto import AutoAugment  # deferred: slow to import and needed by few

    return AutoAugment(name)


def _autoaugment(x: Tensor, name: str, generator: torch.Generator) -> Tensor:
    """AutoAugment with a sub-policy an image (kornia's own call draws one for the whole batch).

    kornia draws from torch's global generator, which is therefore seeded for the call and put back afterwards.
    """
    policy = _policy(name)
    chosen = torch.randint(len(policy), (len(x),), generator=generator)
    seed = int(torch.randint(2**62, (), generator=generator))
    colour = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x  # kornia's colour operations need three channels
    result = torch.empty_like(colour, memory_format=torch.contiguous_format)
    with torch.random.fork_rng(devices=[x.device] if x.is_cuda else []):
        torch.manual_seed(seed)
        for index in sorted(set(chosen.tolist())):
            members = (chosen == index).nonzero()[:, 0].to(x.device)
            result[members] = policy[index](colour[members])
    return result[:, : x.shape[1]].clamp(0, 1)
