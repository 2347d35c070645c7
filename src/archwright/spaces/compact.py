"""Small networks for small images: about three stages of one to three blocks, four kinds of block, some widths a stage.

An architecture's text has one timm-style word a block, ``|`` between the blocks of a stage and ``/`` between stages::

    cn_r1_k3_s2_c16/cn_r1_k3_s1_c32|bb_r1_k3_s1_c32/er_r1_k3_s2_e2_c96

with kernel k, stride s, expansion e and output channels c; kinds are ``cn`` (convolution, norm, ReLU), ``bb`` (basic
residual), ``er`` (fused inverted residual) and ``ir`` (inverted residual). There is no other stem than the first block
and no other end than pooling and the classifier, so a plain network of three convolutions is in the space. At 8 to 64
px such networks give more accuracy a millisecond, and a second of training, than those of ``mbconv``. The modules are
in :mod:`archwright.spaces.compact_network`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces.base import Network, Scale
from archwright.spaces.compact_network import BlockGeometry, CompactNetwork, EndGeometry
from archwright.spaces.compact_scale import EXPANDING, PLAIN, CompactScale, Configuration, Kind
from archwright.spaces.staged import Part, StagedSpace, heaviest_rows
from archwright.spaces.staged_architecture import StagedArchitecture
from archwright.spaces.staged_scale import preset_for

_BLOCK_TEXT = re.compile(r"(cn|bb|er|ir)_r1_k(\d{1,3})_s(\d{1,3})(?:_e(\d{1,3}))?_c(\d{1,6})")

SCALES: Mapping[str, CompactScale] = {
    "compact-8": CompactScale(image_size=8, image_channels=1, channels=16, stage_factors=(1, 4), stage_strides=(2, 2)),
    "compact-16": CompactScale(image_size=16, channels=16, stage_strides=(2, 1, 2)),
    "compact-32": CompactScale(image_size=32, channels=16),
    "compact-64": CompactScale(
        image_size=64, channels=16, stage_factors=(1, 2, 4, 8), stage_strides=(2, 2, 2, 2), depths=(1, 2)
    ),
}
"""By the least image size they suit. Strides come early, which leaves more training steps to a second; not at 16 px,
where most convolutions would be left with 4 x 4 places, which costs six points on CIFAR-10 (docs/training.md). At 8 px
two stages are enough: a third would have as many places as the second, and every convolution costs a call."""

PRESETS: Mapping[int, CompactScale] = {
    64: SCALES["compact-64"],
    28: SCALES["compact-32"],
    12: SCALES["compact-16"],
    4: SCALES["compact-8"],
}
"""By the least image size that each suits."""


def scale_for(image_size: int, classes: int = 10, image_channels: int = 3) -> CompactScale:
    """The preset whose strides suit images of ``image_size`` px, set to that size.

    Args:
        image_size: height and width in px.
        classes: outputs of the classifier.
        image_channels: 1 for grey, 3 for colour.
    """
    return preset_for(PRESETS, image_size, classes, image_channels)


@dataclass(frozen=True, order=True)
class CompactBlock:
    """One block: its configuration, its stride and its output channels."""

    configuration: Configuration
    stride: int
    channels: int

    def __str__(self) -> str:
        kind, kernel, expansion = self.configuration.kind, self.configuration.kernel, self.configuration.expansion
        return f"{kind}_r1_k{kernel}_s{self.stride}" + f"_e{expansion}" * (kind in EXPANDING) + f"_c{self.channels}"

    @property
    def kernel(self) -> int:
        """Height and width of its convolution."""
        return self.configuration.kernel

    @property
    def expansion(self) -> int:
        """Ratio of inner to input channels; 1 for the kinds that do not expand."""
        return self.configuration.expansion


class CompactArchitecture(StagedArchitecture[CompactBlock]):
    """The blocks of each stage; only a stage's first block may have a stride, and a stage has one width."""

    def geometries(self, scale: CompactScale) -> tuple[tuple[BlockGeometry, ...], ...]:
        """Each block with the channels and the image size it meets in a network of ``scale``."""
        size, channels, found = scale.image_size, scale.image_channels, []
        for blocks in self.stages:
            row: list[BlockGeometry] = []
            for block in blocks:
                row.append(BlockGeometry(channels, block.channels, block.configuration, block.stride, size, not row))
                size, channels = row[-1].out_size, block.channels
            found.append(tuple(row))
        return tuple(found)


class Compact(StagedSpace[CompactArchitecture]):
    """All architectures with the widths, strides, depths and configurations of one :class:`CompactScale`."""

    name = "compact"
    architecture_type = CompactArchitecture
    scale_type = CompactScale
    presets = PRESETS
    scale: CompactScale
    operations: ClassVar[tuple[str, ...]] = CompactScale.configurations
    scales: ClassVar[Mapping[str, Scale]] = {**SCALES, "search": SCALES["compact-32"], "small": SCALES["compact-16"]}

    # --- what may be chosen -------------------------------------------------------------------------------------------

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """What a block may be: kind, kernel and expansion."""
        return tuple(map(Configuration.parse, self.scale.configurations))

    def _allowed(self) -> NDArray[np.bool_]:
        """All, but the first block, which sees the image, is plain."""
        allowed = super()._allowed()
        allowed[0, 0] = [one.kind == PLAIN for one in self.configurations]
        return allowed

    def heaviest(self) -> CompactArchitecture:
        """Deepest and widest, of the blocks with most multiply-accumulates."""
        return self._assemble(heaviest_rows(self, 1), [len(own) - 1 for own in self.widths])

    def lightest(self) -> CompactArchitecture:
        """Shallowest and narrowest, of the blocks with least multiply-accumulates."""
        return self._assemble(heaviest_rows(self, -1), [0] * self.stages)

    def plain(self, depth: int = 1, width: int | None = None) -> CompactArchitecture:
        """Convolutions of the first plain configuration only: what one would try by hand.

        Args:
            depth: blocks of every stage.
            width: number of the width that every stage takes, 0 for the narrowest; the widest where it has fewer. None
                for the base width, of the choice 1.
        """
        if width is None:
            width = sum(choice < 1 for choice in self.scale.width_choices)
        number = next(n for n, one in enumerate(self.configurations) if one.kind == PLAIN)
        return self._assemble([[number] * depth] * self.stages, [min(width, len(own) - 1) for own in self.widths])

    def _allowed_text(self, stage: int, block: int) -> str:
        allowed = ", ".join(itertools.compress(self.scale.configurations, self.allowed[stage, block]))
        return f"blocks among {allowed}" + " (a plain first block)" * (stage == block == 0)

    def _parse_block(self, word: str, stage: int) -> CompactBlock:
        match = _BLOCK_TEXT.fullmatch(word)
        if match is None or (match[4] is not None) != (match[1] in EXPANDING):
            raise InputError(
                f"a block like 'cn_r1_k3_s2_c32' or 'er_r1_k3_s1_e2_c64' in stage {stage}",
                repr(word[:60]),
                "Blocks are joined by '|' and stages by '/'; er and ir have an expansion e.",
            )
        configuration = Configuration(cast(Kind, match[1]), int(match[2]), int(match[4] or 1))
        return CompactBlock(configuration, int(match[3]), int(match[5]))

    def _block(self, configuration: int, stride: int, channels: int) -> CompactBlock:
        return CompactBlock(self.configurations[configuration], stride, channels)

    # --- networks -----------------------------------------------------------------------------------------------------

    def build(self, architecture: CompactArchitecture, scale: Scale) -> Network:
        """The stand-alone network, freshly initialised."""
        scale = self._usable(architecture, scale)
        geometries = architecture.geometries(scale)
        return CompactNetwork(geometries, _end(geometries, scale))

    def parts_of(self, architecture: CompactArchitecture, scale: Scale) -> list[Part]:
        """Its blocks and its end; nothing comes before them."""
        scale = self._usable(architecture, scale)
        geometries = architecture.geometries(scale)
        return [*(geometry for row in geometries for geometry in row), _end(geometries, scale)]

    def part(self, stage: int, block: int, configuration: int, width_before: int = 0, width: int = 0) -> BlockGeometry:
        """What block ``block`` of ``stage`` is with that configuration, between widths of those numbers."""
        size, first, own = self.scale.image_size, block == 0, self.widths[stage][width]
        for stride in self.scale.stage_strides[: stage if first else stage + 1]:
            size = -(-size // stride)
        if not first:
            before = own
        else:
            before = self.widths[stage - 1][width_before] if stage else self.scale.image_channels
        stride = self.scale.stage_strides[stage] if first else 1
        return BlockGeometry(before, own, self.configurations[configuration], stride, size, first)

    def start(self) -> None:
        """Nothing: the first block sees the image."""

    def end(self, width: int = 0) -> EndGeometry:
        """Pooling and classifier after the last stage, at its width of number ``width``."""
        return EndGeometry(self.widths[-1][width], self.part(self.stages - 1, 0, 0).out_size, self.scale.classes)

    def _usable(self, architecture: CompactArchitecture, scale: Scale) -> CompactScale:
        """The scale, checked together with the strides that the architecture brings."""
        scale = CompactScale.of(scale)
        strides = architecture.strides
        scale.changed(stage_strides=strides, stage_factors=(1,) * len(strides)).check()
        return scale


def _end(geometries: tuple[tuple[BlockGeometry, ...], ...], scale: CompactScale) -> EndGeometry:
    last = geometries[-1][-1]
    return EndGeometry(last.channels, last.out_size, scale.classes)


COMPACT = Compact(SCALES["compact-16"])
