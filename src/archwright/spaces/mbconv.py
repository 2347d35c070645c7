"""The mobile space of BINAS: five stages of two to four inverted-residual blocks, twelve configurations a block.

An architecture's text has one timm-style word a block, ``|`` between the blocks of a stage and ``/`` between stages::

    ir_r1_k3_s2_e6_c24|ir_r1_k5_s1_e3_c24_se0.25/ir_r1_k3_s2_e2_c40|ir_r1_k3_s1_e2_c40/...

with kernel k, stride s, expansion e, output channels c, and ``se0.25`` where squeeze-excite is on. Widths and strides
of the stages are thus part of the architecture; everything else (stem, last layers, classes, image size) is the
:class:`MbConvScale`'s. The networks are in :mod:`archwright.spaces.mbconv_network`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.solvers.problem import StagedChoice
from archwright.spaces.base import Architecture, Encoding, Network, Scale, Space
from archwright.spaces.mbconv_network import (
    BYTES_PER_NUMBER,
    BlockGeometry,
    MbConvNetwork,
    end_cost,
    fixed_elements,
    start_cost,
)
from archwright.spaces.mbconv_scale import Configuration, MbConvScale
from archwright.spaces.operations import Cost
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
            row = []
            for block in blocks:
                geometry = BlockGeometry(channels, block.channels, *block.configuration, block.stride, size, activation)
                row.append(geometry)
                size, channels = geometry.out_size, block.channels
            found.append(tuple(row))
        return tuple(found)


class MbConv(Space[MbConvArchitecture]):
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

    widths_in_architecture: ClassVar[bool] = True
    counts_memory: ClassVar[bool] = True
    additive_costs: ClassVar[bool] = True

    def __init__(self, scale: MbConvScale) -> None:
        scale.check()
        self.scale = scale

    def at_scale(self, scale: Scale) -> MbConv:
        """The space with the stages of ``scale``."""
        return MbConv(MbConvScale.of(scale))

    def proxy_scale(self, channels: int, cells: int, classes: int, image_size: int, image_channels: int) -> Scale:
        """Refused: the architectures say their own widths, so none can be built as a small stand-in."""
        raise InputError(
            "a space whose architectures can be built small for training-free scores (nasbench201, darts, ...)",
            f"the space {self.name!r}, whose architectures say their own widths",
            "Use the method binas, random or evolution here.",
        )

    def scale_from(self, values: Mapping[str, Any]) -> MbConvScale:
        """Inverse of ``MbConvScale.to_dict``."""
        return from_plain(MbConvScale, values, "a scale of the space mbconv")

    def named_scale(self, name: str, classes: int, image_size: int, image_channels: int) -> Scale:
        """As in ``Space``, except that ``small`` is the preset whose strides suit the images."""
        if name == "small":
            return scale_for(image_size, classes, image_channels)
        return super().named_scale(name, classes, image_size, image_channels)

    @property
    def stages(self) -> int:
        """S."""
        return len(self.scale.stage_widths)

    @property
    def most_blocks(self) -> int:
        """D, the depth of the deepest stage."""
        return self.scale.depths[-1]

    @property
    def configurations(self) -> tuple[Configuration, ...]:
        """(expansion, kernel, squeeze-excite) of each configuration, in the order of Table 3."""
        return self.scale.configurations

    @property
    def size(self) -> int:
        """Every stage has some depth d and one configuration for each of its d blocks."""
        count = len(self.configurations)
        return int(sum(count**depth for depth in self.scale.depths) ** self.stages)

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """alpha, one row a block position, and beta, one row a stage."""
        return {
            "configuration": (self.stages * self.most_blocks, len(self.configurations)),
            "depth": (self.stages, len(self.scale.depths)),
        }

    # --- values -------------------------------------------------------------------------------------------------------

    def from_choice(self, choice: StagedChoice) -> MbConvArchitecture:
        """The architecture of depths (S,) and configuration numbers (S, D), -1 beyond the depth."""
        depths, chosen = choice.depths, choice.configurations
        if depths.shape != (self.stages,) or chosen.shape != (self.stages, self.most_blocks):
            raise InputError(
                f"depths ({self.stages},) and configurations ({self.stages}, {self.most_blocks})",
                f"shapes {depths.shape} and {chosen.shape}",
            )
        present = np.arange(self.most_blocks) < depths[:, None]
        inside = np.where(present, (chosen >= 0) & (chosen < len(self.configurations)), chosen == -1)
        if not np.isin(depths, self.scale.depths).all() or not inside.all():
            raise InputError(
                f"depths among {self.scale.depths} and configurations 0..{len(self.configurations) - 1}, -1 beyond",
                f"{depths.tolist()} and {chosen.tolist()}",
            )
        return self._architecture([row[row >= 0].tolist() for row in chosen])

    def to_choice(self, architecture: MbConvArchitecture) -> StagedChoice:
        """Depths (S,) and configuration numbers (S, D), -1 beyond the depth."""
        self.check(architecture)
        chosen = np.full((self.stages, self.most_blocks), -1, dtype=np.int64)
        for row, blocks in zip(chosen, architecture.stages, strict=True):
            row[: len(blocks)] = [self.configurations.index(block.configuration) for block in blocks]
        return StagedChoice(np.array([len(blocks) for blocks in architecture.stages]), chosen)

    def heaviest(self) -> MbConvArchitecture:
        """Deepest, widest, largest kernel, squeeze-excite where the space has it."""
        return self._architecture([[len(self.configurations) - 1] * self.most_blocks] * self.stages)

    def lightest(self) -> MbConvArchitecture:
        """Shallowest, narrowest, smallest kernel, no squeeze-excite where the space allows that."""
        return self._architecture([[0] * self.scale.depths[0]] * self.stages)

    def check(self, architecture: MbConvArchitecture) -> None:
        """Refuse an architecture that is not of this space, saying where it differs."""
        widths, strides = self.scale.stage_channels, self.scale.stage_strides
        if len(architecture.stages) != self.stages:
            raise InputError(f"an architecture of {self.stages} stages", f"{len(architecture.stages)}")
        for number, blocks in enumerate(architecture.stages):
            where, first = f"stage {number + 1}", blocks[0]
            if (first.channels, first.stride) != (widths[number], strides[number]):
                raise InputError(
                    f"{widths[number]} channels and stride {strides[number]} in {where}",
                    f"{first}",
                    "It is of an mbconv space with other widths or strides; use that one's scale.",
                )
            if len(blocks) not in self.scale.depths:
                raise InputError(f"{where} to have a depth among {self.scale.depths}", f"{len(blocks)}")
            for block in blocks:
                if block.configuration not in self.configurations:
                    scale = self.scale
                    raise InputError(
                        f"expansion in {scale.expansions}, kernel in {scale.kernels} and squeeze-excite in "
                        f"{scale.squeeze_excite} in {where}",
                        str(block),
                    )

    def sample(self, rng: np.random.Generator) -> MbConvArchitecture:
        """Every depth and every configuration uniformly: the distribution under which BINAS takes expectations."""
        depths = rng.choice(self.scale.depths, self.stages)
        return self._architecture([rng.integers(len(self.configurations), size=d).tolist() for d in depths])

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

    def encode(self, architecture: MbConvArchitecture) -> Encoding:
        """One-hot configuration (S*D, C), zero rows beyond the depth, and depth (S, number of depths)."""
        choice = self.to_choice(architecture)
        numbers = np.arange(len(self.configurations))
        return {
            "configuration": (choice.configurations.reshape(-1, 1) == numbers).astype(np.int8),
            "depth": (choice.depths[:, None] == np.array(self.scale.depths)).astype(np.int8),
        }

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> MbConvArchitecture:
        """Inverse of :meth:`encode`."""
        checked = self.check_encoding(encoding)
        rows, depth = checked["configuration"], checked["depth"]
        if not (depth.sum(1) == 1).all():
            raise InputError("exactly one depth a stage", f"{depth.sum(1).tolist()}")
        depths = np.array(self.scale.depths)[depth.argmax(1)]
        present = (np.arange(self.most_blocks) < depths[:, None]).reshape(-1)
        if not (rows.sum(1) == present).all():
            raise InputError(
                "one configuration a block up to the depth and none beyond it", f"{rows.sum(1).tolist()} a block"
            )
        chosen = np.where(present, rows.argmax(1), -1).reshape(self.stages, self.most_blocks)
        return self.from_choice(StagedChoice(depths, chosen))

    # --- variation ----------------------------------------------------------------------------------------------------

    def neighbours(self, architecture: MbConvArchitecture) -> list[MbConvArchitecture]:
        """Another configuration of one block, a stage cut to the next smaller depth, or deepened by equal blocks."""
        rows = self._rows(architecture)
        every, depths, found = range(len(self.configurations)), self.scale.depths, []
        for stage, row in enumerate(rows):
            changed = [
                [*row[:block], other, *row[block + 1 :]]
                for block, other in itertools.product(range(len(row)), every)
                if other != row[block]
            ]
            place = depths.index(len(row))
            changed += [row[: depths[place - 1]]] if place else []
            more = depths[place + 1] - len(row) if place + 1 < len(depths) else 0
            changed += [row + [new] * more for new in every] if more else []
            found += [self._architecture([*rows[:stage], new_row, *rows[stage + 1 :]]) for new_row in changed]
        return found

    def crossover(
        self, first: MbConvArchitecture, second: MbConvArchitecture, rng: np.random.Generator
    ) -> MbConvArchitecture:
        """Each stage's depth from either parent, each block from either parent that has it."""
        rows = []
        for one, other in zip(self._rows(first), self._rows(second), strict=True):
            depth = (len(one), len(other))[rng.integers(2)]
            picks = rng.integers(2, size=depth)
            pairs = [[row[b] for row in (one, other) if b < len(row)] for b in range(depth)]
            rows.append([pair[pick % len(pair)] for pair, pick in zip(pairs, picks, strict=True)])
        return self._architecture(rows)

    def canonical(self, architecture: MbConvArchitecture) -> MbConvArchitecture:
        """Itself: blocks beyond the depth are not part of the value, and no two values are one function."""
        return architecture

    def is_connected(self, architecture: MbConvArchitecture) -> bool:
        """Always."""
        return True

    # --- networks -----------------------------------------------------------------------------------------------------

    def build(self, architecture: MbConvArchitecture, scale: Scale) -> Network:
        """The stand-alone network."""
        scale = self._usable(architecture, scale)
        geometries = [geometry for row in architecture.geometries(scale) for geometry in row]
        return MbConvNetwork(scale, geometries)

    def cost(self, architecture: MbConvArchitecture, scale: Scale) -> Cost:
        """Sum over stem, blocks, last layers and classifier."""
        scale = self._usable(architecture, scale)
        total, last = start_cost(scale), None
        for last in (geometry for row in architecture.geometries(scale) for geometry in row):
            total += last.cost()
        assert last is not None
        return total + end_cost(scale, last.channels, last.out_size)

    def memory_bytes(self, architecture: MbConvArchitecture, scale: Scale) -> int:
        """Weights and all activations of one image, held at once, in float32.

        That is what a training step keeps of a forward pass and an upper bound of what any executor needs; unlike the
        exact peak it is additive.
        """
        scale = self._usable(architecture, scale)
        blocks = [geometry for row in architecture.geometries(scale) for geometry in row]
        kept = sum(block.activation_elements() for block in blocks) + fixed_elements(scale, blocks[-1].out_size)
        return BYTES_PER_NUMBER * (self.cost(architecture, scale).params + kept)

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

    def _rows(self, architecture: MbConvArchitecture) -> list[list[int]]:
        """Configuration numbers of the present blocks of each stage."""
        return [row[row >= 0].tolist() for row in self.to_choice(architecture).configurations]

    def _architecture(self, rows: Sequence[Sequence[int]]) -> MbConvArchitecture:
        """Inverse of :meth:`_rows`."""
        stages = []
        for row, stride, channels in zip(rows, self.scale.stage_strides, self.scale.stage_channels, strict=True):
            strides = [stride] + [1] * (len(row) - 1)
            stages.append(
                tuple(MbConvBlock(*self.configurations[c], s, channels) for c, s in zip(row, strides, strict=True))
            )
        return MbConvArchitecture(tuple(stages))

    def geometry(self, stage: int, block: int, configuration: int) -> BlockGeometry:
        """What block ``block`` of ``stage`` (both from 0) is with that configuration."""
        rows = [[0] * (block + 1)] * stage + [[configuration] * (block + 1)] + [[0]] * (self.stages - stage - 1)
        return self._architecture(rows).geometries(self.scale)[stage][block]


MBCONV = MbConv(SCALES["mbconv-32"])
