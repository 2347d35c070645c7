"""Small networks for small images: about three stages of one to three blocks, four kinds of block, some widths a stage.

An architecture's text has one timm-style word a block, ``|`` between the blocks of a stage and ``/`` between stages::

    cn_r1_k3_s2_c16/cn_r1_k3_s2_c32|bb_r1_k3_s1_c32/er_r1_k3_s1_e2_c96

with kernel k, stride s, expansion e and output channels c; kinds are ``cn`` (convolution, norm, ReLU), ``bb`` (basic
residual), ``er`` (fused inverted residual) and ``ir`` (inverted residual). There is no other stem than the first block
and no other end than pooling and the classifier, so a plain network of three convolutions is in the space. At 8 to 64
px such networks give more accuracy a millisecond, and a second of training, than those of ``mbconv``. The modules are
in :mod:`archwright.spaces.compact_network`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces.base import Architecture, Network, Scale
from archwright.spaces.compact_network import BlockGeometry, CompactNetwork, EndGeometry
from archwright.spaces.compact_scale import EXPANDING, PLAIN, CompactScale, Configuration, Kind
from archwright.spaces.staged import Part, Rows, StagedSpace, heaviest_rows
from archwright.strict import from_plain

_BLOCK_TEXT = re.compile(r"(cn|bb|er|ir)_r1_k(\d{1,3})_s(\d{1,3})(?:_e(\d{1,3}))?_c(\d{1,6})")

SCALES: Mapping[str, CompactScale] = {
    "compact-8": CompactScale(image_size=8, image_channels=1, channels=16),
    "compact-16": CompactScale(image_size=16, channels=16, stage_strides=(2, 2, 1)),
    "compact-32": CompactScale(image_size=32, channels=16, stage_strides=(2, 2, 2)),
    "compact-64": CompactScale(
        image_size=64, channels=16, stage_factors=(1, 2, 4, 8), stage_strides=(2, 2, 2, 2), depths=(1, 2)
    ),
}
"""By the least image size they suit. Strides come early, which leaves more training steps to a second."""

_SMALLEST_IMAGE = {64: "compact-64", 28: "compact-32", 12: "compact-16", 4: "compact-8"}


def scale_for(image_size: int, classes: int = 10, image_channels: int = 3) -> CompactScale:
    """The preset whose strides suit images of ``image_size`` px, set to that size."""
    for smallest, name in _SMALLEST_IMAGE.items():
        if image_size >= smallest:
            return SCALES[name].changed(image_size=image_size, classes=classes, image_channels=image_channels)
    raise InputError("images of at least 4 px", f"{image_size} px", "Use larger images (--image-size 8).")


@dataclass(frozen=True, order=True)
class CompactBlock:
    """One block: its configuration, its stride and its output channels."""

    configuration: Configuration
    stride: int
    channels: int

    def __str__(self) -> str:
        kind, kernel, expansion = self.configuration.kind, self.configuration.kernel, self.configuration.expansion
        return f"{kind}_r1_k{kernel}_s{self.stride}" + f"_e{expansion}" * (kind in EXPANDING) + f"_c{self.channels}"


@dataclass(frozen=True, order=True)
class CompactArchitecture(Architecture):
    """The blocks of each stage; only a stage's first block may have a stride, and a stage has one width."""

    stages: tuple[tuple[CompactBlock, ...], ...]

    def __post_init__(self) -> None:
        for number, blocks in enumerate(self.stages, 1):
            if not blocks:
                raise InputError(f"at least one block in stage {number}", "none")
            if len({block.channels for block in blocks}) > 1:
                raise InputError(f"one width in stage {number}", f"{[block.channels for block in blocks]}")
            if any(block.stride != 1 for block in blocks[1:]):
                raise InputError(f"a stride only in the first block of stage {number}", f"{[b.stride for b in blocks]}")
            for block in blocks:
                kernel, expansion = block.configuration.kernel, block.configuration.expansion
                if kernel % 2 == 0 or min(kernel, expansion, block.stride, block.channels) < 1:
                    raise InputError("an odd kernel and positive stride, expansion and channels", str(block))

    def __str__(self) -> str:
        return "/".join("|".join(map(str, blocks)) for blocks in self.stages)

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
    operations: ClassVar[tuple[str, ...]] = CompactScale.configurations
    scales: ClassVar[Mapping[str, Scale]] = {**SCALES, "search": SCALES["compact-32"], "small": SCALES["compact-16"]}

    def __init__(self, scale: CompactScale) -> None:
        scale.check()
        self._scale = scale
        self._configurations = tuple(map(Configuration.parse, scale.configurations))

    @property
    def scale(self) -> CompactScale:
        """The shape of the space and of its networks."""
        return self._scale

    def at_scale(self, scale: Scale) -> Compact:
        """The space with the stages of ``scale``."""
        return Compact(CompactScale.of(scale))

    def scale_from(self, values: Mapping[str, Any]) -> CompactScale:
        """Inverse of ``CompactScale.to_dict``."""
        return from_plain(CompactScale, values, "a scale of the space compact")

    def named_scale(self, name: str, classes: int, image_size: int, image_channels: int) -> Scale:
        """As in ``Space``, except that ``small`` is the preset whose strides suit the images."""
        if name == "small":
            return scale_for(image_size, classes, image_channels)
        return super().named_scale(name, classes, image_size, image_channels)

    # --- what may be chosen -------------------------------------------------------------------------------------------

    @property
    def widths(self) -> tuple[tuple[int, ...], ...]:
        """Of each stage."""
        return self.scale.stage_widths

    @property
    def depths(self) -> tuple[int, ...]:
        """Of any stage."""
        return self.scale.depths

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """Of a block."""
        return self._configurations

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

    def plain(self, depth: int = 1, width: int = 0) -> CompactArchitecture:
        """Convolutions of the first plain configuration only: what a person would try by hand."""
        number = next(n for n, one in enumerate(self.configurations) if one.kind == PLAIN)
        return self._assemble([[number] * depth] * self.stages, [min(width, len(own) - 1) for own in self.widths])

    def check(self, architecture: CompactArchitecture) -> None:
        """Refuse an architecture that is not of this space, saying where it differs."""
        if len(architecture.stages) != self.stages:
            raise InputError(f"an architecture of {self.stages} stages", f"{len(architecture.stages)}")
        for number, blocks in enumerate(architecture.stages):
            where, first, stride = f"stage {number + 1}", blocks[0], self.scale.stage_strides[number]
            if first.channels not in self.widths[number] or first.stride != stride:
                channels = " or ".join(map(str, self.widths[number]))
                raise InputError(
                    f"{channels} channels and stride {stride} in {where}",
                    f"{first}",
                    "It is of a compact space with other widths or strides; use that one's scale.",
                )
            if len(blocks) not in self.depths:
                raise InputError(f"{where} to have a depth among {self.depths}", f"{len(blocks)}")
            for block in blocks:
                if block.configuration not in self.configurations:
                    raise InputError(f"blocks among {', '.join(self.scale.configurations)} in {where}", str(block))
        if architecture.stages[0][0].configuration.kind != PLAIN:
            raise InputError(f"a plain first block ({PLAIN})", str(architecture.stages[0][0]))

    def parse(self, text: str) -> CompactArchitecture:
        """Read the text form (see the module) and check that it is of this space."""
        stages = []
        for number, words in enumerate(text.strip().split("/"), 1):
            stages.append(tuple(_parse_block(word, number) for word in words.split("|")))
        architecture = CompactArchitecture(tuple(stages))
        self.check(architecture)
        return architecture

    def _assemble(self, rows: Sequence[Sequence[int]], widths: Sequence[int]) -> CompactArchitecture:
        stages = []
        for row, stride, own, width in zip(rows, self.scale.stage_strides, self.widths, widths, strict=True):
            strides = [stride] + [1] * (len(row) - 1)
            stages.append(
                tuple(CompactBlock(self.configurations[c], s, own[width]) for c, s in zip(row, strides, strict=True))
            )
        return CompactArchitecture(tuple(stages))

    def _take_apart(self, architecture: CompactArchitecture) -> tuple[Rows, list[int]]:
        self.check(architecture)
        rows = [[self.configurations.index(block.configuration) for block in blocks] for blocks in architecture.stages]
        own = zip(self.widths, architecture.stages, strict=True)
        return rows, [widths.index(blocks[0].channels) for widths, blocks in own]

    # --- networks -----------------------------------------------------------------------------------------------------

    def build(self, architecture: CompactArchitecture, scale: Scale) -> Network:
        """The stand-alone network."""
        scale = self._usable(architecture, scale)
        geometries = architecture.geometries(scale)
        return CompactNetwork(geometries, _end(geometries, scale))

    def parts_of(self, architecture: CompactArchitecture, scale: Scale) -> list[Part]:
        """Blocks and end."""
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
        """Pooling and classifier."""
        return EndGeometry(self.widths[-1][width], self.part(self.stages - 1, 0, 0).out_size, self.scale.classes)

    def total_stride(self, scale: Scale) -> int:
        """Of this space's stages, whose strides the architectures bring."""
        return self.scale.total_stride

    def check_scale(self, scale: Scale) -> None:
        """Refuse a scale that no network of this space can have."""
        CompactScale.of(scale).changed(
            stage_strides=self.scale.stage_strides, stage_factors=self.scale.stage_factors
        ).check()

    def _usable(self, architecture: CompactArchitecture, scale: Scale) -> CompactScale:
        """The scale, checked together with the strides that the architecture brings."""
        scale = CompactScale.of(scale)
        strides = tuple(blocks[0].stride for blocks in architecture.stages)
        scale.changed(stage_strides=strides, stage_factors=(1,) * len(strides)).check()
        return scale


def _end(geometries: tuple[tuple[BlockGeometry, ...], ...], scale: CompactScale) -> EndGeometry:
    last = geometries[-1][-1]
    return EndGeometry(last.channels, last.out_size, scale.classes)


def _parse_block(word: str, stage: int) -> CompactBlock:
    match = _BLOCK_TEXT.fullmatch(word)
    if match is None or (match[4] is not None) != (match[1] in EXPANDING):
        raise InputError(
            f"a block like 'cn_r1_k3_s2_c32' or 'er_r1_k3_s1_e2_c64' in stage {stage}",
            repr(word[:60]),
            "Blocks are joined by '|' and stages by '/'; er and ir have an expansion e.",
        )
    configuration = Configuration(cast(Kind, match[1]), int(match[2]), int(match[4] or 1))
    return CompactBlock(configuration, int(match[3]), int(match[5]))


COMPACT = Compact(SCALES["compact-16"])
