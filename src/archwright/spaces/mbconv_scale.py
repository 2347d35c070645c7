"""The shape of an mbconv network: stem, stage widths and strides, what is searched, last layers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import ceil
from typing import ClassVar, Literal, get_args

from archwright.bounds import MOST_CHANNELS, MOST_PIXELS, MOST_WIDTH
from archwright.errors import InputError
from archwright.spaces.staged_scale import StagedScale, round_to_eight

ActivationName = Literal["relu", "relu6", "swish", "hard_swish"]
SqueezeOf = Literal["expanded", "input"]
Configuration = tuple[int, int, bool]
"""(expansion, kernel, squeeze-excite)."""


@dataclass(frozen=True)
class MbConvScale(StagedScale):
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
        squeeze_of: the channels that squeeze-excite takes a quarter of: a block's ``expanded`` ones, as the published
            networks, or its ``input``.
        last_widths: of the 1x1 convolutions before the pooling (two in the paper: its table's last block is a 1x1
            convolution in the published code, and here).
        pooled_last: whether the last of them comes after the pooling, with a bias and no norm, as in the published
            networks; before it in Table 3.
        activations: of each stage; the stem and the first block have the first, the last layers the last.
        width: multiplies all widths, which are then rounded to multiples of eight.
        width_choices: rising multiples of its width that a stage may have; the paper's space has no choice.
        stage_depths: most blocks of each stage where they differ, which are then the last of ``depths`` it may have.
        stage_kernels: the one kernel of each stage where kernels are not searched.
        full_stages: how many of the first stages have the largest expansion only.
        norm_eps: what batch norms add to variances.
    """

    space_name: ClassVar[str] = "mbconv"

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
    squeeze_of: SqueezeOf = "expanded"
    last_widths: tuple[int, ...] = (960, 1280)
    pooled_last: bool = False
    activations: tuple[ActivationName, ...] = ("relu", "swish", "swish", "swish", "swish")
    width: float = 1.0
    width_choices: tuple[float, ...] = (1.0,)
    stage_depths: tuple[int, ...] = ()
    stage_kernels: tuple[int, ...] = ()
    full_stages: int = 0
    norm_eps: float = 1e-5

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
    def unpooled_channels(self) -> tuple[int, ...]:
        """Of those before the pooling."""
        return self.last_channels[:-1] if self.pooled_last else self.last_channels

    @property
    def stem_size(self) -> int:
        """Image size after the stem."""
        return ceil(self.image_size / self.stem_stride)

    @property
    def total_stride(self) -> int:
        """By how much the network shrinks an image."""
        return self.stem_stride * super().total_stride

    def _check_own(self) -> None:
        for name, most in (("first_width", MOST_CHANNELS), ("stem_stride", MOST_PIXELS), ("width", MOST_WIDTH)):
            if not 0 < getattr(self, name) <= most:
                raise InputError(f"more than 0 and at most {most:g} for {name}", str(getattr(self, name)))
        stages = len(self.stage_widths)
        if stages == 0 or len(self.stage_strides) != stages or len(self.activations) != stages:
            raise InputError(
                "one width, stride and activation a stage",
                f"{stages}, {len(self.stage_strides)} and {len(self.activations)} of them",
            )
        self._check_numbers("stage_widths", "stage_strides", "depths", "expansions", "kernels", "last_widths")
        self._check_rising("expansions", "kernels", "squeeze_excite")
        if any(kernel % 2 == 0 for kernel in self.kernels):
            raise InputError("odd kernels", f"{self.kernels}")
        self._check_stages()
        if self.squeeze_of not in get_args(SqueezeOf):
            raise InputError(f"squeeze_of among {get_args(SqueezeOf)}", repr(self.squeeze_of))
        if self.pooled_last and len(self.last_widths) < 2:
            raise InputError("two last_widths or more with pooled_last", f"{self.last_widths}")
        unknown = set(self.activations) - set(get_args(ActivationName))
        if unknown:
            raise InputError(f"activations among {get_args(ActivationName)}", f"{sorted(unknown)}")

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
