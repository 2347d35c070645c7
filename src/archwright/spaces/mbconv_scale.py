"""The shape of an mbconv network: stem, stage widths and strides, what is searched, last layers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields
from math import ceil, prod
from typing import Any, Literal, cast, get_args

from archwright.bounds import MOST_CELLS, MOST_CHANNELS, MOST_PIXELS, MOST_WIDTH
from archwright.errors import InputError
from archwright.spaces.base import Scale

ActivationName = Literal["relu", "relu6", "swish", "hard_swish"]
Configuration = tuple[int, int, bool]
"""(expansion, kernel, squeeze-excite)."""


@dataclass(frozen=True)
class MbConvScale(Scale):
    """Shape of an mbconv space and of its networks; the defaults are the paper's (Table 3).

    Attributes:
        channels: of the stem, before the width multiplier.
        cells: most blocks a stage; always the last of ``depths``.
        stem_stride: of the stem's 3x3 convolution.
        first_width: of the fixed block after the stem.
        stage_widths: output channels of the searchable stages, before the width multiplier.
        stage_strides: of each stage's first block.
        depths: allowed numbers of blocks a stage.
        expansions: allowed ratios of the inner to the input channels of a block.
        kernels: allowed sizes of the depth-wise convolution.
        squeeze_excite: allowed settings of squeeze-excite.
        last_widths: of the 1x1 convolutions before the pooling (two in the paper: its table's last block is a 1x1
            convolution in the published code, and here).
        activations: of each stage; the stem and the first block have the first, the last layers the last.
        width: multiplies all widths, which are then rounded to multiples of eight.
        width_choices: rising multiples of its width that a stage may have; the paper's space has no choice.
        stage_depths: most blocks of each stage where they differ, which are then the last of ``depths`` it may have.
        stage_kernels: the one kernel of each stage where kernels are not searched.
        full_stages: how many of the first stages have the largest expansion only.
        norm_eps: what batch norms add to variances.
    """

    channels: int = 32
    cells: int = 4
    stem_stride: int = 2
    first_width: int = 16
    stage_widths: tuple[int, ...] = (24, 40, 80, 112, 192)
    stage_strides: tuple[int, ...] = (2, 2, 2, 1, 2)
    depths: tuple[int, ...] = (2, 3, 4)
    expansions: tuple[int, ...] = (2, 3, 6)
    kernels: tuple[int, ...] = (3, 5)
    squeeze_excite: tuple[bool, ...] = (False, True)
    last_widths: tuple[int, ...] = (960, 1280)
    activations: tuple[ActivationName, ...] = ("relu", "swish", "swish", "swish", "swish")
    width: float = 1.0
    width_choices: tuple[float, ...] = (1.0,)
    stage_depths: tuple[int, ...] = ()
    stage_kernels: tuple[int, ...] = ()
    full_stages: int = 0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        for field in fields(self):  # lists come from JSON
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
        object.__setattr__(self, "cells", self.depths[-1] if self.depths else 0)

    @classmethod
    def of(cls, scale: Scale) -> MbConvScale:
        """``scale`` if it is one of this space."""
        if not isinstance(scale, cls):
            raise InputError(
                "a scale of the mbconv space", type(scale).__name__, "Take one with scale_for(image_size)."
            )
        return scale

    def changed(self, **changes: Any) -> MbConvScale:
        """A copy with some fields replaced; None leaves a field as it is."""
        return cast(MbConvScale, super().changed(**changes))

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Expansion-major, then kernel, then squeeze-excite, as in Table 3."""
        return tuple(itertools.product(self.expansions, self.kernels, self.squeeze_excite))

    @property
    def stem_channels(self) -> int:
        """With the width multiplier, as are the following."""
        return self._rounded(self.channels)

    @property
    def first_channels(self) -> int:
        """Of the fixed block."""
        return self._rounded(self.first_width)

    @property
    def stage_channels(self) -> tuple[int, ...]:
        """Of the stages, at the greatest of their width choices."""
        return tuple(own[-1] for own in self.stage_channel_choices)

    @property
    def stage_channel_choices(self) -> tuple[tuple[int, ...], ...]:
        """Per stage the different channels it may have, rising."""
        return tuple(
            tuple(sorted({self._rounded(channels, choice) for choice in self.width_choices}))
            for channels in self.stage_widths
        )

    @property
    def last_channels(self) -> tuple[int, ...]:
        """Of the last convolutions."""
        return tuple(map(self._rounded, self.last_widths))

    @property
    def stem_size(self) -> int:
        """Image size after the stem."""
        return ceil(self.image_size / self.stem_stride)

    @property
    def total_stride(self) -> int:
        """By how much the network shrinks an image."""
        return self.stem_stride * prod(self.stage_strides)

    def check(self) -> None:
        """Refuse what no network can have."""
        if not isinstance(self.image_size, int):
            raise InputError("one number as image_size", f"{self.image_size}", "Crop or resize the images to squares.")
        self.check_bounds()
        for name, most in (("first_width", MOST_CHANNELS), ("stem_stride", MOST_PIXELS), ("width", MOST_WIDTH)):
            if not 0 < getattr(self, name) <= most:
                raise InputError(f"more than 0 and at most {most:g} for {name}", str(getattr(self, name)))
        stages = len(self.stage_widths)
        if stages == 0 or len(self.stage_strides) != stages or len(self.activations) != stages:
            raise InputError(
                "one width, stride and activation a stage",
                f"{stages}, {len(self.stage_strides)} and {len(self.activations)} of them",
            )
        for name in ("stage_widths", "stage_strides", "depths", "expansions", "kernels", "last_widths"):
            values = getattr(self, name)
            if not 1 <= len(values) <= MOST_CELLS or not 1 <= min(values) <= max(values) <= MOST_CHANNELS:
                raise InputError(f"numbers from 1 to {MOST_CHANNELS:,} in {name}", f"{values}")
        if not self.width_choices or not 0 < min(self.width_choices) <= max(self.width_choices) <= MOST_WIDTH:
            raise InputError(f"numbers above 0 and at most {MOST_WIDTH:g} in width_choices", f"{self.width_choices}")
        for name in ("depths", "expansions", "kernels", "squeeze_excite", "width_choices"):
            values = list(getattr(self, name))
            if not values or values != sorted(set(values)):
                raise InputError(f"increasing values in {name}", f"{tuple(values)}")
        if any(kernel % 2 == 0 for kernel in self.kernels):
            raise InputError("odd kernels", f"{self.kernels}")
        self._check_stages()
        unknown = set(self.activations) - set(get_args(ActivationName))
        if unknown:
            raise InputError(f"activations among {get_args(ActivationName)}", f"{sorted(unknown)}")
        if self.auxiliary or self.pool_norm or self.stem != "plain":
            raise InputError("no cell-space options (auxiliary, pool_norm, stem) in an mbconv scale", "one that is set")
        if self.image_size < self.total_stride:
            raise InputError(
                f"images of at least {self.total_stride} px (the network's total stride)",
                f"{self.image_size} px",
                "Use larger images (--image-size) or a scale with smaller strides (scale_for picks one).",
            )

    def _check_stages(self) -> None:
        """Refuse depths and kernels of single stages that the space does not have, and a norm that divides by 0."""
        stages = len(self.stage_widths)
        for name, known in (("stage_depths", self.depths), ("stage_kernels", self.kernels)):
            given = getattr(self, name)
            if given and (len(given) != stages or not set(given) <= set(known)):
                raise InputError(f"{name} for {stages} stages among {known}, or none", f"{given}")
        if not 0 <= self.full_stages <= stages:
            raise InputError(f"0 to {stages} full_stages", str(self.full_stages))
        if not 0 < self.norm_eps < 1:
            raise InputError("norm_eps between 0 and 1", str(self.norm_eps))

    def _rounded(self, channels: int, choice: float = 1.0) -> int:
        """The nearest multiple of eight to ``channels * width * choice`` that is not more than a tenth below it."""
        return channels if self.width * choice == 1.0 else round_to_eight(channels * self.width * choice)


def round_to_eight(wanted: float) -> int:
    """The nearest multiple of eight that is not more than a tenth below ``wanted``."""
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * wanted else rounded + 8
