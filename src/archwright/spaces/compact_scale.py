"""The shape of a compact network: stage widths and strides, and what is searched."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from math import prod
from typing import Any, Literal, cast

from archwright.bounds import MOST_CELLS, MOST_CHANNELS, MOST_WIDTH
from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.mbconv_scale import round_to_eight

Kind = Literal["cn", "bb", "er", "ir"]
"""As in timm: ``cn`` convolution, norm, ReLU; ``bb`` basic residual block of two convolutions; ``er`` fused inverted
residual (3x3 expansion, 1x1 projection); ``ir`` inverted residual (1x1 expansion, depth-wise, 1x1 projection)."""
PLAIN: Kind = "cn"
EXPANDING: tuple[Kind, ...] = ("er", "ir")
_WORD = re.compile(r"(cn|bb)_k(\d{1,2})|(er|ir)_k(\d{1,2})_e(\d{1,2})")


@dataclass(frozen=True, order=True)
class Configuration:
    """What a block is: its kind, kernel and, for the kinds that expand, the ratio of inner to input channels."""

    kind: Kind
    kernel: int
    expansion: int = 1

    def __str__(self) -> str:
        return f"{self.kind}_k{self.kernel}" + f"_e{self.expansion}" * (self.kind in EXPANDING)

    @classmethod
    def parse(cls, text: str) -> Configuration:
        """Inverse of ``str``."""
        match = _WORD.fullmatch(text)
        if match is None:
            raise InputError("a configuration like 'cn_k3', 'bb_k3', 'er_k3_e2' or 'ir_k5_e4'", repr(text[:40]))
        kind, kernel, expansion = (match[1], match[2], 1) if match[1] else (match[3], match[4], match[5])
        return cls(cast(Kind, kind), int(kernel), int(expansion))


@dataclass(frozen=True)
class CompactScale(Scale):
    """Shape of a compact space and of its networks.

    Attributes:
        channels: of the first stage at the width choice 1; all widths are multiples of it.
        cells: most blocks a stage; always the last of ``depths``.
        stage_factors: of each stage, how many times ``channels`` it has.
        width_choices: rising multiples of its own width that a stage may have; rounded to multiples of eight.
        stage_strides: of each stage's first block.
        depths: allowed numbers of blocks a stage.
        configurations: allowed blocks, such as ``er_k3_e2``; the network's first block, which sees the image, is always
            one of the plain ones (``cn``).
    """

    channels: int = 16
    cells: int = 3
    stage_factors: tuple[int, ...] = (1, 2, 4)
    width_choices: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0)
    stage_strides: tuple[int, ...] = (1, 2, 2)
    depths: tuple[int, ...] = (1, 2, 3)
    configurations: tuple[str, ...] = ("cn_k3", "bb_k3", "er_k3_e2", "ir_k3_e3")

    def __post_init__(self) -> None:
        for field in fields(self):  # lists come from JSON
            value = getattr(self, field.name)
            if isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
        object.__setattr__(self, "cells", self.depths[-1] if self.depths else 0)

    @classmethod
    def of(cls, scale: Scale) -> CompactScale:
        """``scale`` if it is one of this space."""
        if not isinstance(scale, cls):
            raise InputError(
                "a scale of the compact space", type(scale).__name__, "Take one with scale_for(image_size)."
            )
        return scale

    def changed(self, **changes: Any) -> CompactScale:
        """A copy with some fields replaced; None leaves a field as it is."""
        return cast(CompactScale, super().changed(**changes))

    @property
    def stage_widths(self) -> tuple[tuple[int, ...], ...]:
        """Per stage the different channels it may have, rising."""
        return tuple(
            tuple(sorted({round_to_eight(self.channels * factor * choice) for choice in self.width_choices}))
            for factor in self.stage_factors
        )

    @property
    def total_stride(self) -> int:
        """By how much the network shrinks an image."""
        return prod(self.stage_strides)

    def check(self) -> None:
        """Refuse what no network can have."""
        if not isinstance(self.image_size, int):
            raise InputError("one number as image_size", f"{self.image_size}", "Crop or resize the images to squares.")
        self.check_bounds()
        if len(self.stage_factors) != len(self.stage_strides):
            raise InputError(
                "one factor and one stride a stage", f"{len(self.stage_factors)} and {len(self.stage_strides)} of them"
            )
        for name in ("stage_factors", "stage_strides", "depths"):
            numbers = getattr(self, name)
            if not 1 <= len(numbers) <= MOST_CELLS or not 1 <= min(numbers) <= max(numbers) <= MOST_CHANNELS:
                raise InputError(f"numbers from 1 to {MOST_CHANNELS:,} in {name}", f"{numbers}")
        for name in ("depths", "width_choices"):
            values = list(getattr(self, name))
            if not values or values != sorted(set(values)) or not 0 < values[0] <= values[-1] <= MOST_WIDTH:
                raise InputError(f"increasing values above 0 and at most {MOST_WIDTH:g} in {name}", f"{tuple(values)}")
        if max(widths[-1] for widths in self.stage_widths) > MOST_CHANNELS:
            raise InputError(f"at most {MOST_CHANNELS:,} channels in a stage", f"{self.stage_widths}")
        self._check_configurations()
        if self.auxiliary or self.pool_norm or self.stem != "plain":
            raise InputError("no cell-space options (auxiliary, pool_norm, stem) in a compact scale", "one that is set")
        if self.image_size < self.total_stride:
            raise InputError(
                f"images of at least {self.total_stride} px (the network's total stride)",
                f"{self.image_size} px",
                "Use larger images (--image-size) or a scale with smaller strides (scale_for picks one).",
            )

    def _check_configurations(self) -> None:
        parsed = [Configuration.parse(word) for word in self.configurations]
        if any(one.kernel % 2 == 0 or one.expansion < 1 for one in parsed):
            raise InputError("odd kernels and positive expansions", f"{self.configurations}")
        if len(set(parsed)) < len(parsed) or not any(one.kind == PLAIN for one in parsed):
            raise InputError(
                "different configurations, a plain one (cn) among them for the first block", f"{self.configurations}"
            )
