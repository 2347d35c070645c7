"""What the scales of staged spaces share: rising depths and widths, a stride a stage, and the checks of these."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from math import prod
from typing import ClassVar, Self, TypeVar

from archwright.bounds import MOST_CELLS, MOST_CHANNELS, MOST_WIDTH
from archwright.errors import InputError
from archwright.spaces.base import Scale


class StagedScale(Scale):
    """Base of the scales of staged spaces, which are frozen dataclasses with the fields that are declared here.

    Attributes:
        cells: most blocks a stage; always the last of ``depths``.
        stage_strides: of each stage's first block.
        depths: allowed numbers of blocks a stage, rising.
        width_choices: rising multiples of its own width that a stage may have.
    """

    space_name: ClassVar[str]
    """Name of the space, for errors."""
    stage_fields: ClassVar[tuple[str, ...]] = ("stage_strides",)
    """Fields that say which stages there are: architectures of a space bring them, whatever scale they are built at."""
    stage_strides: tuple[int, ...]
    depths: tuple[int, ...]
    width_choices: tuple[float, ...]

    def __post_init__(self) -> None:
        for field in fields(self):  # lists come from JSON
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
        object.__setattr__(self, "cells", self.depths[-1] if self.depths else 0)

    @classmethod
    def of(cls, scale: Scale) -> Self:
        """``scale`` if it is one of this space."""
        if not isinstance(scale, cls):
            expected = f"a scale of the {cls.space_name} space"
            raise InputError(expected, type(scale).__name__, "Take one with scale_for(image_size).")
        return scale

    def with_stages(self, other: StagedScale) -> Self:
        """A copy with the stages of another scale of the same space."""
        return self.changed(**{name: getattr(other, name) for name in self.stage_fields})

    @property
    @abstractmethod
    def stage_channel_choices(self) -> tuple[tuple[int, ...], ...]:
        """Per stage the different channels it may have, rising."""

    @property
    def total_stride(self) -> int:
        """By how much the network shrinks an image."""
        return prod(self.stage_strides)

    def check(self) -> None:
        """Refuse what no network can have."""
        if not isinstance(self.image_size, int):
            raise InputError("one number as image_size", f"{self.image_size}", "Crop or resize the images to squares.")
        self.check_bounds()
        self._check_own()
        if self.auxiliary or self.pool_norm or self.stem != "plain":
            kind = f"a scale of the {self.space_name} space"
            raise InputError(f"no cell-space options (auxiliary, pool_norm, stem) in {kind}", "one that is set")
        if self.image_size < self.total_stride:
            raise InputError(
                f"images of at least {self.total_stride} px (the network's total stride)",
                f"{self.image_size} px",
                "Use larger images (--image-size) or a scale with smaller strides (scale_for picks one).",
            )

    @abstractmethod
    def _check_own(self) -> None:
        """Refuse stages and blocks that no network can have."""

    def _check_numbers(self, *names: str) -> None:
        """Refuse fields that have no numbers, too many of them or any out of bounds."""
        for name in names:
            values = getattr(self, name)
            if not 1 <= len(values) <= MOST_CELLS or not 1 <= min(values) <= max(values) <= MOST_CHANNELS:
                raise InputError(f"numbers from 1 to {MOST_CHANNELS:,} in {name}", f"{values}")

    def _check_rising(self, *names: str) -> None:
        """Refuse fields whose values do not rise, and width choices out of bounds."""
        if not self.width_choices or not 0 < min(self.width_choices) <= max(self.width_choices) <= MOST_WIDTH:
            raise InputError(f"numbers above 0 and at most {MOST_WIDTH:g} in width_choices", f"{self.width_choices}")
        for name in ("depths", "width_choices", *names):
            values = list(getattr(self, name))
            if not values or values != sorted(set(values)):
                raise InputError(f"increasing values in {name}", f"{tuple(values)}")


T = TypeVar("T", bound=StagedScale)


def preset_for(presets: Mapping[int, T], image_size: int, classes: int, image_channels: int) -> T:
    """The preset whose strides suit images of ``image_size`` px, set to that size.

    Args:
        presets: by the least image size that each suits, falling.
        image_size: height and width in px.
        classes: of the classifier.
        image_channels: 1 for grey, 3 for colour.
    """
    for smallest, preset in presets.items():
        if image_size >= smallest:
            return preset.changed(image_size=image_size, classes=classes, image_channels=image_channels)
    raise InputError(f"images of at least {min(presets)} px", f"{image_size} px", "Use larger images (--image-size 8).")


def round_to_eight(wanted: float) -> int:
    """The nearest multiple of eight that is not more than a tenth below ``wanted``."""
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8
