"""The mobile space of BINAS: five stages of two to four inverted-residual blocks, twelve configurations a block.

An architecture's text has one timm-style word a block, ``|`` between the blocks of a stage and ``/`` between stages::

    ir_r1_k3_s2_e6_c24|ir_r1_k5_s1_e3_c24_se0.25/ir_r1_k3_s2_e2_c40|ir_r1_k3_s1_e2_c40/...

with kernel k, stride s, expansion e, output channels c, and ``se0.25`` where squeeze-excite is on. Widths and strides
of the stages are thus part of the architecture; everything else (stem, last layers, classes, image size) is the
:class:`MbConvScale`'s. The networks are in :mod:`archwright.spaces.mbconv_network`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces.base import Architecture, Network, Scale
from archwright.spaces.mbconv_network import BlockGeometry, EndGeometry, MbConvNetwork, StartGeometry
from archwright.spaces.mbconv_scale import Configuration, MbConvScale
from archwright.spaces.staged import Part, Rows, StagedSpace
from archwright.strict import from_plain

_BLOCK_TEXT = re.compile(r"ir_r1_k(\d+)_s(\d+)_e(\d+)_c(\d+)(_se0\.25)?")

SCALES: Mapping[str, MbConvScale] = {
    "mbconv-224": MbConvScale(classes=1000, image_size=224),
    "mbconv-64": MbConvScale(image_size=64, width=0.5, stage_strides=(1, 2, 2, 1, 2)),
    "mbconv-32": MbConvScale(image_size=32, width=0.5, stem_stride=1, stage_strides=(2, 2, 2, 1, 1)),
    "mbconv-32-fast": MbConvScale(image_size=32, width=0.5, stage_strides=(2, 2, 2, 1, 1)),
    "mbconv-8": MbConvScale(
        image_size=8, image_channels=1, width=0.25, stem_stride=1, stage_strides=(1, 2, 1, 1, 2), last_widths=(480, 640)
    ),
}
"""The paper's ImageNet shape and some for small images; ``mbconv-8`` fits the embedded digits, and ``mbconv-32-fast``
with its stride-2 stem trains about three times as fast as ``mbconv-32``."""

_SMALLEST_IMAGE = {128: "mbconv-224", 48: "mbconv-64", 16: "mbconv-32", 8: "mbconv-8"}


def scale_for(image_size: int, classes: int = 10, image_channels: int = 3) -> MbConvScale:
    """The preset whose strides suit images of ``image_size`` px, set to that size."""
    for smallest, name in _SMALLEST_IMAGE.items():
        if image_size >= smallest:
            return SCALES[name].changed(image_size=image_size, classes=classes, image_channels=image_channels)
    raise InputError("images of at least 8 px", f"{image_size} px", "Use larger images (--image-size 8).")


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


@dataclass(frozen=True, order=True)
class MbConvArchitecture(Architecture):
    """The blocks of each stage; only a stage's first block may have a stride, and a stage has one width."""

    stages: tuple[tuple[MbConvBlock, ...], ...]

    def __post_init__(self) -> None:
        for number, blocks in enumerate(self.stages, 1):
            if not blocks:
                raise InputError(f"at least one block in stage {number}", "none")
            if len({block.channels for block in blocks}) > 1:
                raise InputError(f"one width in stage {number}", f"{[block.channels for block in blocks]}")
            if any(block.stride != 1 for block in blocks[1:]):
                raise InputError(f"a stride only in the first block of stage {number}", f"{[b.stride for b in blocks]}")
            for block in blocks:
                if block.kernel % 2 == 0 or min(block.kernel, block.stride, block.expansion, block.channels) < 1:
                    raise InputError("an odd kernel and positive stride, expansion and channels", str(block))

    def __str__(self) -> str:
        return "/".join("|".join(map(str, blocks)) for blocks in self.stages)

    def geometries(self, scale: MbConvScale) -> tuple[tuple[BlockGeometry, ...], ...]:
        """Each block with the channels, image size and activation it meets in a network of ``scale``."""
        if len(self.stages) != len(scale.activations):
            raise InputError(f"{len(scale.activations)} stages, as in the scale", f"{len(self.stages)}")
        size, channels, found = scale.stem_size, scale.first_channels, []
        for blocks, activation in zip(self.stages, scale.activations, strict=True):
            row: list[BlockGeometry] = []
            for block in blocks:
                shape = (channels, block.channels, *block.configuration, block.stride, size, activation)
                geometry = BlockGeometry(*shape, residual=bool(row))  # only a stage's later blocks have a skip
                row.append(geometry)
                size, channels = geometry.out_size, block.channels
            found.append(tuple(row))
        return tuple(found)


class MbConv(StagedSpace[MbConvArchitecture]):
    """All architectures with the stage widths, strides, depths and configurations of one :class:`MbConvScale`.

    The paper's space is ``MbConv(SCALES["mbconv-224"])``: 5 stages, N = 240 + 15 one-hot entries.
    """

    name = "mbconv"
    operations: ClassVar[tuple[str, ...]] = tuple(
        f"k{kernel}_e{expansion}" + "_se0.25" * on for expansion in (2, 3, 6) for kernel in (3, 5) for on in (0, 1)
    )
    scales: ClassVar[Mapping[str, Scale]] = {
        **SCALES,
        "paper": SCALES["mbconv-224"],
        "search": SCALES["mbconv-32"],
        "small": SCALES["mbconv-8"],
    }

    def __init__(self, scale: MbConvScale) -> None:
        scale.check()
        self._scale, self._widths, self._configurations = scale, scale.stage_channel_choices, scale.configurations

    @property
    def scale(self) -> MbConvScale:
        """The shape of the space and of its networks."""
        return self._scale

    def at_scale(self, scale: Scale) -> MbConv:
        """The space with the stages of ``scale``."""
        return MbConv(MbConvScale.of(scale))

    def scale_from(self, values: Mapping[str, Any]) -> MbConvScale:
        """Inverse of ``MbConvScale.to_dict``."""
        return from_plain(MbConvScale, values, "a scale of the space mbconv")

    def named_scale(self, name: str, classes: int, image_size: int, image_channels: int) -> Scale:
        """As in ``Space``, except that ``small`` is the preset whose strides suit the images."""
        if name == "small":
            return scale_for(image_size, classes, image_channels)
        return super().named_scale(name, classes, image_size, image_channels)

    # --- what may be chosen -------------------------------------------------------------------------------------------

    @property
    def widths(self) -> tuple[tuple[int, ...], ...]:
        """Of each stage: one, unless the scale has several ``width_choices``."""
        return self._widths

    @property
    def depths(self) -> tuple[int, ...]:
        """Of any stage."""
        return self.scale.depths

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """(expansion, kernel, squeeze-excite) of each configuration, in the order of Table 3."""
        return self._configurations

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

    def check(self, architecture: MbConvArchitecture) -> None:
        """Refuse an architecture that is not of this space, saying where it differs."""
        strides, allowed = self.scale.stage_strides, self.allowed
        if len(architecture.stages) != self.stages:
            raise InputError(f"an architecture of {self.stages} stages", f"{len(architecture.stages)}")
        for number, blocks in enumerate(architecture.stages):
            where, first = f"stage {number + 1}", blocks[0]
            if first.channels not in self.widths[number] or first.stride != strides[number]:
                channels = " or ".join(map(str, self.widths[number]))
                raise InputError(
                    f"{channels} channels and stride {strides[number]} in {where}",
                    f"{first}",
                    "It is of an mbconv space with other widths or strides; use that one's scale.",
                )
            if len(blocks) not in self.stage_depths[number]:
                raise InputError(f"{where} to have a depth among {self.stage_depths[number]}", f"{len(blocks)}")
            known = [one for one, on in zip(self.configurations, allowed[number, 0], strict=True) if on]
            for block in blocks:
                if block.configuration not in known:
                    scale = self.scale
                    raise InputError(
                        f"expansion in {scale.expansions}, kernel in {scale.kernels} and squeeze-excite in "
                        f"{scale.squeeze_excite} in {where}",
                        str(block),
                    )

    def parse(self, text: str) -> MbConvArchitecture:
        """Read the text form (see the module) and check that it is of this space."""
        stages = []
        for number, words in enumerate(text.strip().split("/"), 1):
            blocks = []
            for word in words.split("|"):
                match = _BLOCK_TEXT.fullmatch(word)
                if match is None:
                    raise InputError(
                        f"a block like 'ir_r1_k5_s1_e3_c24_se0.25' in stage {number}",
                        repr(word[:60]),
                        "Blocks are joined by '|' and stages by '/'.",
                    )
                kernel, stride, expansion, channels = (int(match[i]) for i in range(1, 5))
                blocks.append(MbConvBlock(expansion, kernel, match[5] is not None, stride, channels))
            stages.append(tuple(blocks))
        architecture = MbConvArchitecture(tuple(stages))
        self.check(architecture)
        return architecture

    def _assemble(self, rows: Sequence[Sequence[int]], widths: Sequence[int]) -> MbConvArchitecture:
        stages = []
        for row, stride, own, width in zip(rows, self.scale.stage_strides, self.widths, widths, strict=True):
            strides = [stride] + [1] * (len(row) - 1)
            stages.append(
                tuple(MbConvBlock(*self.configurations[c], s, own[width]) for c, s in zip(row, strides, strict=True))
            )
        return MbConvArchitecture(tuple(stages))

    def _take_apart(self, architecture: MbConvArchitecture) -> tuple[Rows, list[int]]:
        self.check(architecture)
        rows = [[self.configurations.index(block.configuration) for block in blocks] for blocks in architecture.stages]
        own = zip(self.widths, architecture.stages, strict=True)
        return rows, [widths.index(blocks[0].channels) for widths, blocks in own]

    # --- networks -----------------------------------------------------------------------------------------------------

    def build(self, architecture: MbConvArchitecture, scale: Scale) -> Network:
        """The stand-alone network."""
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

    def total_stride(self, scale: Scale) -> int:
        """Of the scale's stem and this space's stages, whose strides the architectures bring."""
        return MbConvScale.of(scale).changed(stage_strides=self.scale.stage_strides).total_stride

    def check_scale(self, scale: Scale) -> None:
        """Refuse a scale that no network of this space can have."""
        MbConvScale.of(scale).changed(stage_strides=self.scale.stage_strides).check()

    def _usable(self, architecture: MbConvArchitecture, scale: Scale) -> MbConvScale:
        """The scale, checked together with the strides that the architecture brings."""
        scale = MbConvScale.of(scale)
        scale.changed(stage_strides=tuple(blocks[0].stride for blocks in architecture.stages)).check()
        return scale


MBCONV = MbConv(SCALES["mbconv-32"])
