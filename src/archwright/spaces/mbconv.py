"""The mobile space of BINAS: five stages of two to four inverted-residual blocks, twelve configurations a block.

An architecture's text has one timm-style word a block, ``|`` between the blocks of a stage and ``/`` between stages::

    ir_r1_k3_s2_e6_c24|ir_r1_k5_s1_e3_c24_se0.25/ir_r1_k3_s2_e2_c40|ir_r1_k3_s1_e2_c40/...

with kernel k, stride s, expansion e, output channels c, and ``se0.25`` where squeeze-excite is on. Widths and strides
of the stages are thus part of the architecture; everything else (stem, last layers, classes, image size) is the
:class:`MbConvScale`'s. The networks are in :mod:`archwright.spaces.mbconv_network`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces.base import Network, Scale
from archwright.spaces.mbconv_network import BlockGeometry, EndGeometry, MbConvNetwork, StartGeometry
from archwright.spaces.mbconv_scale import Configuration, MbConvScale
from archwright.spaces.staged import Part, StagedSpace
from archwright.spaces.staged_architecture import StagedArchitecture
from archwright.spaces.staged_scale import preset_for

_BLOCK_TEXT = re.compile(r"ir_r1_k(\d+)_s(\d+)_e(\d+)_c(\d+)(_se0\.25)?")

SCALES: Mapping[str, MbConvScale] = {
    "mbconv-224": MbConvScale(classes=1000, image_size=224),
    "mbconv-224-published": MbConvScale(
        classes=1000,
        image_size=224,
        expansions=(3, 4, 6),
        pooled_last=True,
        activations=("relu", "relu", "hard_swish", "hard_swish", "hard_swish"),
    ),
    "mbconv-64": MbConvScale(image_size=64, width=0.5, stage_strides=(1, 2, 2, 1, 2)),
    "mbconv-32": MbConvScale(image_size=32, width=0.5, stem_stride=1, stage_strides=(2, 2, 2, 1, 1)),
    "mbconv-32-fast": MbConvScale(image_size=32, width=0.5, stage_strides=(2, 2, 2, 1, 1)),
    "mbconv-8": MbConvScale(
        image_size=8, image_channels=1, width=0.25, stem_stride=1, stage_strides=(1, 2, 1, 1, 2), last_widths=(480, 640)
    ),
}
"""The paper's ImageNet shape, the one of the networks that its authors published, and some for small images.

``mbconv-8`` fits the embedded digits, and ``mbconv-32-fast`` with its stride-2 stem trains about three times as fast as
``mbconv-32``.
"""

PRESETS: Mapping[int, MbConvScale] = {
    128: SCALES["mbconv-224"],
    48: SCALES["mbconv-64"],
    16: SCALES["mbconv-32"],
    8: SCALES["mbconv-8"],
}
"""By the least image size that each suits."""


def scale_for(image_size: int, classes: int = 10, image_channels: int = 3) -> MbConvScale:
    """The preset whose strides suit images of ``image_size`` px, set to that size.

    Args:
        image_size: height and width in px.
        classes: outputs of the classifier.
        image_channels: 1 for grey, 3 for colour.
    """
    return preset_for(PRESETS, image_size, classes, image_channels)


@dataclass(frozen=True, order=True)
class MbConvBlock:
    """One inverted-residual block: its configuration, its stride and its output channels."""

    expansion: int
    kernel: int
    squeeze_excite: bool
    stride: int
    channels: int

    def __str__(self) -> str:
        word = f"ir_r1_k{self.kernel}_s{self.stride}_e{self.expansion}_c{self.channels}"
        return word + "_se0.25" * self.squeeze_excite

    @property
    def configuration(self) -> Configuration:
        """(expansion, kernel, squeeze-excite): what is searched."""
        return (self.expansion, self.kernel, self.squeeze_excite)


class MbConvArchitecture(StagedArchitecture[MbConvBlock]):
    """The blocks of each stage; only a stage's first block may have a stride, and a stage has one width."""

    def geometries(self, scale: MbConvScale) -> tuple[tuple[BlockGeometry, ...], ...]:
        """Each block with the channels, image size and activation it meets in a network of ``scale``."""
        if len(self.stages) != len(scale.activations):
            raise InputError(f"{len(scale.activations)} stages, as in the scale", f"{len(self.stages)}")
        size, channels, found = scale.stem_size, scale.first_channels, []
        for blocks, activation in zip(self.stages, scale.activations, strict=True):
            row: list[BlockGeometry] = []
            for block in blocks:
                shape = (channels, block.channels, *block.configuration, block.stride, size, activation)
                # only a stage's later blocks have a skip
                geometry = BlockGeometry(*shape, residual=bool(row), squeeze_of=scale.squeeze_of)
                row.append(geometry)
                size, channels = geometry.out_size, block.channels
            found.append(tuple(row))
        return tuple(found)


class MbConv(StagedSpace[MbConvArchitecture]):
    """All architectures with the stage widths, strides, depths and configurations of one :class:`MbConvScale`.

    The paper's space is ``MbConv(SCALES["mbconv-224"])``: 5 stages, N = 240 + 15 one-hot entries.
    """

    name = "mbconv"
    architecture_type = MbConvArchitecture
    scale_type = MbConvScale
    presets = PRESETS
    scale: MbConvScale
    operations: ClassVar[tuple[str, ...]] = tuple(
        f"k{kernel}_e{expansion}" + "_se0.25" * on for expansion in (2, 3, 6) for kernel in (3, 5) for on in (0, 1)
    )
    scales: ClassVar[Mapping[str, Scale]] = {
        **SCALES,
        "paper": SCALES["mbconv-224"],
        "search": SCALES["mbconv-32"],
        "small": SCALES["mbconv-8"],
    }

    # --- what may be chosen -------------------------------------------------------------------------------------------

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """(expansion, kernel, squeeze-excite) of each configuration, in the order of Table 3."""
        return self.scale.configurations

    @property
    def stage_depths(self) -> tuple[tuple[int, ...], ...]:
        """Of each stage: all, unless the scale has ``stage_depths``."""
        most = self.scale.stage_depths or (self.depths[-1],) * self.stages
        return tuple(tuple(depth for depth in self.depths if depth <= own) for own in most)

    def _allowed(self) -> NDArray[np.bool_]:
        """All, unless the scale has ``stage_kernels`` or ``full_stages``."""
        allowed, scale = super()._allowed(), self.scale
        full = np.array([expansion == scale.expansions[-1] for expansion, _, _ in self.configurations])
        allowed[: scale.full_stages] &= full
        for stage, kernel in enumerate(scale.stage_kernels):
            allowed[stage] &= np.array([own == kernel for _, own, _ in self.configurations])
        return allowed

    def heaviest(self) -> MbConvArchitecture:
        """Deepest, widest, largest kernel, squeeze-excite where the space has it."""
        last = [int(np.flatnonzero(stage[0])[-1]) for stage in self.allowed]
        rows = [[one] * depths[-1] for one, depths in zip(last, self.stage_depths, strict=True)]
        return self._assemble(rows, [len(own) - 1 for own in self.widths])

    def lightest(self) -> MbConvArchitecture:
        """Shallowest, narrowest, smallest kernel, no squeeze-excite where the space allows that."""
        first = [int(np.flatnonzero(stage[0])[0]) for stage in self.allowed]
        rows = [[one] * depths[0] for one, depths in zip(first, self.stage_depths, strict=True)]
        return self._assemble(rows, [0] * self.stages)

    def _allowed_text(self, stage: int, block: int) -> str:
        expansions, kernels, on = self.scale.expansions, self.scale.kernels, self.scale.squeeze_excite
        return f"expansion in {expansions}, kernel in {kernels} and squeeze-excite in {on}"

    def _parse_block(self, word: str, stage: int) -> MbConvBlock:
        match = _BLOCK_TEXT.fullmatch(word)
        if match is None:
            raise InputError(
                f"a block like 'ir_r1_k5_s1_e3_c24_se0.25' in stage {stage}",
                repr(word[:60]),
                "Blocks are joined by '|' and stages by '/'.",
            )
        kernel, stride, expansion, channels = (int(match[i]) for i in range(1, 5))
        return MbConvBlock(expansion, kernel, match[5] is not None, stride, channels)

    def _block(self, configuration: int, stride: int, channels: int) -> MbConvBlock:
        return MbConvBlock(*self.configurations[configuration], stride, channels)

    # --- networks -----------------------------------------------------------------------------------------------------

    def build(self, architecture: MbConvArchitecture, scale: Scale) -> Network:
        """The stand-alone network, freshly initialised."""
        scale = self._usable(architecture, scale)
        geometries = [geometry for row in architecture.geometries(scale) for geometry in row]
        return MbConvNetwork(scale, geometries)

    def parts_of(self, architecture: MbConvArchitecture, scale: Scale) -> list[Part]:
        """Stem and fixed block, blocks, last layers and classifier."""
        scale = self._usable(architecture, scale)
        blocks = [geometry for row in architecture.geometries(scale) for geometry in row]
        return [StartGeometry(scale), *blocks, EndGeometry(scale, blocks[-1].channels, blocks[-1].out_size)]

    def part(self, stage: int, block: int, configuration: int, width_before: int = 0, width: int = 0) -> BlockGeometry:
        """What block ``block`` of ``stage`` is with that configuration, between widths of those numbers."""
        rows = [[0] * (block + 1)] * stage + [[configuration] * (block + 1)] + [[0]] * (self.stages - stage - 1)
        widths = [0] * self.stages
        widths[stage] = width
        if stage and block == 0:
            widths[stage - 1] = width_before
        return self._assemble(rows, widths).geometries(self.scale)[stage][block]

    def start(self) -> StartGeometry:
        """Stem and fixed block."""
        return StartGeometry(self.scale)

    def end(self, width: int = 0) -> EndGeometry:
        """Last layers and classifier."""
        last = self.part(self.stages - 1, 0, 0, 0, width)
        return EndGeometry(self.scale, last.channels, last.out_size)

    def _usable(self, architecture: MbConvArchitecture, scale: Scale) -> MbConvScale:
        """The scale, checked together with the strides that the architecture brings."""
        scale = MbConvScale.of(scale)
        scale.changed(stage_strides=architecture.strides).check()
        return scale


MBCONV = MbConv(SCALES["mbconv-32"])
