"""Random changes to a batch of training images, a function of a seed alone.

Order: crop, zoom, flip, colour, AutoAugment on pixels in [0, 1]; normalisation; then cutout, whose zeros are the mean
pixel.
"""

from __future__ import annotations

import math
import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from archwright.data.shards import WHOLE, Shard, mixed
from archwright.errors import InputError, unknown_name
from archwright.owncode import own_code
from archwright.references import DataRef, ObjectRef, resolve

if TYPE_CHECKING:
    from archwright.data.image_data import ImageData

_NUMBER = re.compile(r"[0-9]{0,4}\.?[0-9]{1,6}")
POLICIES = ("cifar10", "imagenet")
FORMS = "default, off, MODULE:FUNCTION, or a list such as crop=4,flip,zoom=0.6,colour=0.4,cutout=8,autoaugment"
STRETCH = 0.15
"""A zoomed window is wider or narrower than high by a factor of exp(0.15) at most."""
BY_DATA = "data"
"""In place of the name of a policy: the one that suits the data."""
ZOOM_OF_FILES = 0.35
"""Of photographs that are read from their files: about an eighth of the area, as is usual."""
LEAST_PHOTOGRAPH = 64
"""Pixels a side below which a picture is treated as CIFAR-10's are."""
_POLICY_LOCK = threading.Lock()
"""kornia's modules remember their last call."""
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
        zoom: show a random window, whose sides are so much of the image's or more, at the old size; 1 for none. Images
            that are read from files are cut out of these, at their own resolution.
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
        if self.autoaugment is not None and self.autoaugment not in (*POLICIES, BY_DATA):
            raise unknown_name("policy", self.autoaugment, POLICIES)

    def __call__(
        self,
        unit: Tensor,
        seed: int,
        normalise: Callable[[Tensor], Tensor] = _unchanged,
        shard: Shard = WHOLE,
        count: int | None = None,
    ) -> Tensor:
        """Augment images; the same seed does the same, whatever the global random state.

        Args:
            unit: (n, C, H, W) in [0, 1].
            seed: of what is drawn.
            normalise: done before holes are cut.
            shard: which part of a batch the images are; they get what they would get in the whole one.
            count: images of that batch; n by default.
        """
        drawn = self.draw(unit.shape, seed, shard, len(unit) if count is None else count)
        return self.apply(unit, drawn, normalise)

    def draw(self, shape: Sequence[int], seed: int, shard: Shard, count: int) -> Drawn:
        """All random numbers of a batch, drawn on the CPU, so that the device does not change them.

        Global generators are used for AutoAugment and put back: not to be called while another thread draws from them.

        Args:
            shape: (n, C, H, W) of the images of the shard.
            seed: of what is drawn.
            shard: which part of the batch the images are.
            count: images of the batch.
        """
        draws = _Draws(seed, shard, count)
        _, _, height, width = shape
        return Drawn(
            crop=draws.randint(2 * self.crop + 1, 2) if self.crop else None,
            window=draws.rand(4) if self.zoom < 1 else None,
            mirrored=draws.rand() < 0.5 if self.flip else None,
            colour=draws.rand(3) if self.colour else None,
            policies=_draw_policies(self.autoaugment, shape, draws) if self.autoaugment else (),
            hole=(draws.randint(height), draws.randint(width)) if self.cutout else None,
        )

    def apply(
        self,
        images: Tensor,
        drawn: Drawn,
        normalise: Callable[[Tensor], Tensor] = _unchanged,
        *,
        zoomed: bool = False,
    ) -> Tensor:
        """Do what was drawn; in any thread, as nothing is drawn here.

        Args:
            images: (n, C, H, W), uint8 or in [0, 1]. Moving bytes takes a fourth of moving floats.
            drawn: for these images.
            normalise: done before holes are cut.
            zoomed: whether the images are already the windows that were drawn (:meth:`windows`).
        """
        x = images
        if drawn.crop is not None:
            x = _random_crop(x, self.crop, drawn.crop)
        if drawn.window is not None and not zoomed:
            x = _random_window(as_unit(x), self.zoom, drawn.window)
        if drawn.mirrored is not None:
            x = torch.where(drawn.mirrored.view(-1, 1, 1, 1).to(x.device), x.flip(3), x)
        if drawn.colour is not None:
            x = _recoloured(as_unit(x), self.colour, drawn.colour)
        if drawn.policies:
            x = _autoaugment(as_unit(x), drawn.policies)
        x = normalise(as_unit(x))
        return _cutout(x, self.cutout, *drawn.hole) if drawn.hole is not None else x

    def windows(self, drawn: Drawn) -> NDArray[np.float64] | None:
        """Where to cut each image out of its file, as :meth:`archwright.data.raw.PixelSource.read_windows` takes it.

        The window's height is ``zoom`` to 1 of the short side, and it lies anywhere in the file.
        """
        if drawn.window is None:
            return None
        share, stretch, across, down = drawn.window.double()
        height = torch.exp(math.log(self.zoom) * share)
        width = height * torch.exp(STRETCH * (2 * stretch - 1))
        return torch.stack([height, width, down, across], 1).numpy()

    @classmethod
    def default_for(cls, data: ImageData) -> Augmentation:
        """What suits a data set: little for digits (mirrored digits are other signs), none for noise.

        Everything that is not a named set is taken for photographs: crop by an eighth, flip, cutout of a quarter. Where
        they are read from their files, a random part of each at its own resolution, and flip.
        """
        kind, size = DataRef.parse(data.spec).kind, data.image_size
        if data.train.has_windows:
            return cls(zoom=ZOOM_OF_FILES, flip=True)
        if kind == "digits":
            return cls(crop=max(1, size // 8))
        if kind == "fashion-mnist":
            return cls(crop=max(1, size // 14), flip=True)
        if kind == "random":
            return cls()
        return cls(crop=size // 8, flip=True, cutout=size // 4)

    @classmethod
    def parse(cls, text: str) -> Augmentation:
        """From ``crop=4,flip,cutout=8,autoaugment=cifar10``, any part of it left out.

        ``autoaugment`` alone is the policy that suits the data (:func:`policy_for`).
        """
        values: dict[str, Any] = {}
        for item in text.split(","):
            key, equals, value = (word.strip() for word in item.partition("="))
            pixels = value.isdecimal() and len(value) < 6
            known = {"crop": pixels, "cutout": pixels, "autoaugment": bool(value) or not equals}
            known |= dict.fromkeys(("zoom", "colour"), bool(_NUMBER.fullmatch(value)))
            if not known.get(key, key == "flip" and not equals) or key in values:
                raise InputError(f"augmentation as {FORMS}", repr(text))
            if key in ("zoom", "colour"):
                values[key] = float(value)
            else:
                values[key] = True if key == "flip" else int(value) if key in ("crop", "cutout") else value or BY_DATA
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

    def __call__(
        self,
        unit: Tensor,
        seed: int,
        normalise: Callable[[Tensor], Tensor] = _unchanged,
        shard: Shard = WHOLE,
        count: int | None = None,
    ) -> Tensor:
        """As :class:`Augmentation` is called; a shard has draws of its own.

        Args:
            unit: images (n, C, H, W) in [0, 1].
            seed: of what is drawn.
            normalise: done afterwards.
            shard: which part of a batch the images are.
            count: not looked at.
        """
        seed = seed if shard.of == 1 else mixed(seed, shard.number)
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


@dataclass(frozen=True, eq=False)
class Policy:
    """What a sub-policy of AutoAugment does to some images.

    Attributes:
        name: of the policy.
        index: of the sub-policy.
        members: numbers of the images in the batch, (m,).
        parameters: what kornia drew for them.
    """

    name: str
    index: int
    members: Tensor
    parameters: Any


@dataclass(frozen=True, eq=False)
class Drawn:
    """The random numbers of n augmented images; None where a change is not made.

    Attributes:
        crop: shifts down and to the right, (2, n).
        window: of the zoom, uniform numbers (4, n).
        mirrored: which are flipped, (n,).
        colour: uniform numbers (3, n).
        policies: of AutoAugment.
        hole: rows and columns of the centres that are cut out, (n,) each.
    """

    crop: Tensor | None
    window: Tensor | None
    mirrored: Tensor | None
    colour: Tensor | None
    policies: tuple[Policy, ...]
    hole: tuple[Tensor, Tensor] | None


def as_unit(images: Tensor) -> Tensor:
    """uint8 pixels as new float32 numbers in [0, 1]; others as they are."""
    return images.to(torch.float32).div_(255) if images.dtype == torch.uint8 else images


class _Draws:
    """Random numbers of all images of a batch, of which those of a shard are given.

    Args:
        seed: of the batch.
        shard: whose numbers they are.
        count: images of the whole batch.
    """

    def __init__(self, seed: int, shard: Shard, count: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._shard, self._count, self._rows = shard, count, shard.rows(count)

    def rand(self, *lead: int) -> Tensor:
        """Uniform numbers (*lead, n)."""
        return torch.rand(*lead, self._count, generator=self._generator)[..., self._rows]

    def randint(self, most: int, *lead: int) -> Tensor:
        """Whole numbers below ``most``, (*lead, n)."""
        return torch.randint(most, (*lead, self._count), generator=self._generator)[..., self._rows]

    def further_seed(self) -> int:
        """Of draws by somebody else; another one for each shard."""
        seed = int(torch.randint(2**62, (), generator=self._generator))
        return seed if self._shard.of == 1 else mixed(seed, self._shard.number)


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
    return replace(found, autoaugment=policy_for(data)) if found.autoaugment == BY_DATA else found


def policy_for(data: ImageData) -> str:
    """The AutoAugment policy that suits a data set: ImageNet's for photographs, CIFAR-10's for small pictures."""
    named = DataRef.parse(data.spec).kind in ("digits", "fashion-mnist", "cifar10", "cifar100", "random")
    return "cifar10" if named or data.image_size < LEAST_PHOTOGRAPH else "imagenet"


def _random_crop(x: Tensor, padding: int, shifts: Tensor) -> Tensor:
    """Each image shifted by up to ``padding`` pixels each way, black where nothing was."""
    _, _, height, width = x.shape
    top, left = shifts.to(x.device)
    windows = (
        functional.pad(x, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    )  # (n, C, top, left, H, W), a view
    return windows[torch.arange(len(x), device=x.device), :, top, left]


def _random_window(x: Tensor, least: float, drawn: Tensor) -> Tensor:
    """A window of each image, at a random place and of ``least`` to 1 of its sides, at the old size (bilinear)."""
    share, stretch, across, down = drawn
    side = torch.exp(math.log(least) * share)
    width, height = side * torch.exp(STRETCH * (2 * stretch - 1)), side
    room = 1 - side + 2 * BEYOND  # of the centre, where the image goes from -1 to 1
    place = torch.zeros(len(x), 2, 3)
    place[:, 0, 0], place[:, 0, 2] = width, (2 * across - 1) * room
    place[:, 1, 1], place[:, 1, 2] = height, (2 * down - 1) * room
    grid = functional.affine_grid(place, list(x.shape), align_corners=False).to(x.device)
    return functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False).clamp(0, 1)


def _recoloured(x: Tensor, most: float, drawn: Tensor) -> Tensor:
    """Brightness, contrast (around the image's mean) and saturation (around its grey) times random factors."""
    factors = 1 + most * (2 * drawn[:, :, None, None, None] - 1).to(x.device)
    x = x * factors[0]
    x = torch.lerp(x.mean((1, 2, 3), keepdim=True), x, factors[1])
    return torch.lerp(x.mean(1, keepdim=True), x, factors[2]).clamp(0, 1)


def _cutout(x: Tensor, side: int, down: Tensor, across: Tensor) -> Tensor:
    """A square of zeros around a pixel of each image."""
    _, _, height, width = x.shape
    top, left = down[:, None] - side // 2, across[:, None] - side // 2
    rows, columns = torch.arange(height), torch.arange(width)
    inside_rows = (rows >= top) & (rows < top + side)  # (n, H)
    inside_columns = (columns >= left) & (columns < left + side)  # (n, W)
    hole = inside_rows[:, None, :, None] & inside_columns[:, None, None, :]
    return x.masked_fill(hole.to(x.device), 0)


@lru_cache(maxsize=len(POLICIES))
def _policy(name: str) -> Any:
    from kornia.augmentation.auto import AutoAugment  # deferred: slow to import and needed by few

    return AutoAugment(name)


def _draw_policies(name: str, shape: Sequence[int], generator: _Draws) -> tuple[Policy, ...]:
    """AutoAugment with a sub-policy an image (kornia's own call draws one for the whole batch).

    kornia draws from torch's global generator, which is therefore seeded for the call and put back afterwards.
    """
    policy, (_, _, height, width) = _policy(name), shape
    chosen = generator.randint(len(policy))
    seed = generator.further_seed()
    found = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for index in sorted(set(chosen.tolist())):
            members = (chosen == index).nonzero()[:, 0]
            drawn = policy[index].forward_parameters(torch.Size((len(members), 3, height, width)))
            found.append(Policy(name, index, members, drawn))
    return tuple(found)


def _autoaugment(x: Tensor, policies: Sequence[Policy]) -> Tensor:
    colour = x.expand(-1, 3, -1, -1) if x.shape[1] == 1 else x  # kornia's colour operations need three channels
    result = torch.empty_like(colour, memory_format=torch.contiguous_format)
    for one in policies:
        members = one.members.to(x.device)
        with _POLICY_LOCK, torch.no_grad():
            result[members] = _policy(one.name)[one.index](colour[members], params=one.parameters)
    return result[:, : x.shape[1]].clamp(0, 1)
