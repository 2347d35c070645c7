"""Spaces of stages: a depth and a width a stage, a configuration a block. What such spaces share is the *choice*.

A choice is integers (:class:`~archwright.solvers.problem.StagedChoice`): depths, numbers of configurations and of
widths. A space says which there are and how they become an architecture and back; encodings, sampling, variation and
the list of all different parts, which costs are measured of, follow from that.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from archwright.errors import InputError
from archwright.solvers.problem import ABSENT, StagedChoice
from archwright.spaces.base import Encoding, Scale, Space
from archwright.spaces.operations import Cost
from archwright.spaces.staged_architecture import Block, StagedArchitecture
from archwright.spaces.staged_scale import StagedScale, preset_for
from archwright.strict import from_plain

BYTES_PER_NUMBER = 4
Rows = list[list[int]]
"""Configuration numbers of the present blocks of each stage."""


class Part(Protocol):
    """A piece of a network: its text is its name in cost tables, and equal texts are equal pieces."""

    @property
    def in_channels(self) -> int:
        """Channels of its input."""

    @property
    def size(self) -> int:
        """Height and width of its input."""

    def cost(self) -> Cost:
        """Parameters and multiply-accumulates of one image."""

    def activation_elements(self) -> int:
        """Numbers in its intermediate and output tensors for one image: what training keeps of it."""

    def build(self) -> nn.Module:
        """A freshly initialised module."""


SA = TypeVar("SA", bound=StagedArchitecture[Any])


class StagedSpace(Space[SA]):
    """Architectures of S stages with one of some widths each, D blocks at most, C configurations of a block.

    Args:
        scale: the shape of the space and of its networks; one that no network can have is refused.
    """

    architecture_type: type[SA]
    scale_type: ClassVar[type[StagedScale]]
    presets: ClassVar[Mapping[int, StagedScale]]
    """Scales by the least image size that each suits, falling."""
    scale: StagedScale
    widths_in_architecture: ClassVar[bool] = True
    counts_memory: ClassVar[bool] = True
    additive_costs: ClassVar[bool] = True
    """So they are at given widths; and narrower is cheaper whatever the rest is."""

    def __init__(self, scale: Scale) -> None:
        self.scale = self.scale_type.of(scale)
        self.scale.check()

    def at_scale(self, scale: Scale) -> Self:
        """The space with the stages of ``scale``."""
        return type(self)(scale)

    def scale_from(self, values: Mapping[str, Any]) -> Scale:
        """Inverse of ``to_dict`` of this space's scales."""
        return from_plain(self.scale_type, values, f"a scale of the space {self.name}")

    def named_scale(self, name: str, classes: int, image_size: int, image_channels: int) -> Scale:
        """As in ``Space``, except that ``small`` is the preset whose strides suit the images."""
        if name == "small":
            return preset_for(self.presets, image_size, classes, image_channels)
        return super().named_scale(name, classes, image_size, image_channels)

    def check_scale(self, scale: Scale) -> None:
        """Refuse a scale that no network of this space can have."""
        self.scale_type.of(scale).with_stages(self.scale).check()

    def total_stride(self, scale: Scale) -> int:
        """With this space's stages, whose strides the architectures bring."""
        return self.scale_type.of(scale).with_stages(self.scale).total_stride

    def proxy_scale(self, channels: int, cells: int, classes: int, image_size: int, image_channels: int) -> Scale:
        """Refused: the architectures say their own widths, so none can be built as a small stand-in."""
        raise InputError(
            "a space whose architectures can be built small for training-free scores (nasbench201, darts, ...)",
            f"the space {self.name!r}, whose architectures say their own widths",
            "Use the method binas, random or evolution here.",
        )

    # --- what may be chosen ---

    @cached_property
    def widths(self) -> tuple[tuple[int, ...], ...]:
        """Per stage the channels it may have, rising."""
        return self.scale.stage_channel_choices

    @property
    def depths(self) -> tuple[int, ...]:
        """The depths a stage may have, rising."""
        return self.scale.depths

    @property
    def stage_depths(self) -> tuple[tuple[int, ...], ...]:
        """Per stage those of :attr:`depths` that it may have; all of them by default."""
        return (self.depths,) * self.stages

    @property
    @abstractmethod
    def configurations(self) -> tuple[Any, ...]:
        """What a block may be."""

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """(S, D, C): whether a block at that place may have that configuration; for reading only."""
        allowed = self._allowed()
        allowed.setflags(write=False)
        return allowed

    def _allowed(self) -> NDArray[np.bool_]:
        """A new array (S, D, C) of what is :attr:`allowed`: by default all up to the greatest depth of each stage."""
        most = np.array([depths[-1] for depths in self.stage_depths])
        present = np.arange(self.most_blocks) < most[:, None]
        return np.repeat(present[:, :, None], len(self.configurations), axis=2)

    # --- what a space says ---

    @abstractmethod
    def _parse_block(self, word: str, stage: int) -> Block:
        """The block that a word of stage ``stage`` (from 1) names."""

    @abstractmethod
    def _block(self, configuration: int, stride: int, channels: int) -> Block:
        """A block with the configuration of that number."""

    @abstractmethod
    def _allowed_text(self, stage: int, block: int) -> str:
        """What a block at that place may be, for errors."""

    @abstractmethod
    def part(self, stage: int, block: int, configuration: int, width_before: int = 0, width: int = 0) -> Part:
        """What a block is with some configuration, between some widths.

        Args:
            stage: its number, from 0.
            block: its number in the stage, from 0.
            configuration: number of what it is, in :attr:`configurations`.
            width_before: number, in :attr:`widths`, of the stage before; only a stage's first block meets it.
            width: number of the stage's own width.
        """

    @abstractmethod
    def start(self) -> Part | None:
        """What comes before the first stage and is not searched."""

    @abstractmethod
    def end(self, width: int = 0) -> Part:
        """What comes after the last stage, at its width of that number."""

    @abstractmethod
    def heaviest(self) -> SA:
        """The dearest architecture there is: deepest, widest, of the dearest blocks."""

    @abstractmethod
    def lightest(self) -> SA:
        """The cheapest architecture there is: shallowest, narrowest, of the cheapest blocks."""

    # --- counting ---

    @property
    def stages(self) -> int:
        """S, the number of stages."""
        return len(self.widths)

    @property
    def most_blocks(self) -> int:
        """D, the depth of the deepest stage."""
        return self.depths[-1]

    @property
    def most_widths(self) -> int:
        """W, the widths of the stage that has most of them."""
        return max(map(len, self.widths))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, D, C): stages, most blocks of a stage, and configurations."""
        return self.stages, self.most_blocks, len(self.configurations)

    @property
    def size(self) -> int:
        """Every stage has a width, some depth d and one configuration for each of its d blocks."""
        counts = self.allowed.sum(-1)
        both = zip(counts, self.stage_depths, strict=True)
        per_stage = [sum(prod(row[:depth].tolist()) for depth in depths) for row, depths in both]
        return prod(len(widths) * count for widths, count in zip(self.widths, per_stage, strict=True))

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """alpha, one row a block position, beta, one row a stage, and the widths where there is a choice."""
        shapes = {
            "configuration": (self.stages * self.most_blocks, len(self.configurations)),
            "depth": (self.stages, len(self.depths)),
        }
        return {**shapes, "width": (self.stages, self.most_widths)} if self.most_widths > 1 else shapes

    def places(self) -> Iterator[tuple[int, int, int, int, int]]:
        """All (stage, block, configuration, width before, width) that networks have.

        Only a stage's first block meets the width before; for the others it is the stage's own.
        """
        for stage, block, configuration in np.argwhere(self.allowed).tolist():
            for width in range(len(self.widths[stage])):
                before = range(len(self.widths[stage - 1]) if stage else 1) if block == 0 else [width]
                for width_before in before:
                    yield stage, block, configuration, width_before, width

    # --- values ---

    def parse(self, text: str) -> SA:
        """Read the text form (see the space's module) and check that it is of this space."""
        stages = [
            tuple(self._parse_block(word, number) for word in words.split("|"))
            for number, words in enumerate(text.strip().split("/"), 1)
        ]
        architecture = self.architecture_type(tuple(stages))
        self.check(architecture)
        return architecture

    def check(self, architecture: SA) -> None:
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
                    f"It is of the space {self.name} with other widths or strides; use that one's scale.",
                )
            if len(blocks) not in self.stage_depths[number]:
                raise InputError(f"{where} to have a depth among {self.stage_depths[number]}", f"{len(blocks)}")
            for place, block in enumerate(blocks):
                known = itertools.compress(self.configurations, self.allowed[number, place])
                if block.configuration not in known:
                    raise InputError(f"{self._allowed_text(number, place)} in {where}", str(block))

    def _assemble(self, rows: Sequence[Sequence[int]], widths: Sequence[int]) -> SA:
        """The architecture of configuration numbers and width numbers."""
        stages = []
        for row, stride, own, width in zip(rows, self.scale.stage_strides, self.widths, widths, strict=True):
            strides = [stride] + [1] * (len(row) - 1)
            stages.append(tuple(self._block(c, s, own[width]) for c, s in zip(row, strides, strict=True)))
        return self.architecture_type(tuple(stages))

    def _take_apart(self, architecture: SA) -> tuple[Rows, list[int]]:
        """Configuration numbers and width numbers of which :meth:`_assemble` makes the architecture."""
        self.check(architecture)
        rows = [[self.configurations.index(block.configuration) for block in blocks] for blocks in architecture.stages]
        own = zip(self.widths, architecture.stages, strict=True)
        return rows, [widths.index(blocks[0].channels) for widths, blocks in own]

    def from_choice(self, choice: StagedChoice) -> SA:
        """The architecture of depths (S,), configuration numbers (S, D), -1 beyond the depth, and widths (S,)."""
        depths, chosen, widths = choice.depths, choice.configurations, choice.widths
        stages, blocks, count = self.shape
        if depths.shape != (stages,) or chosen.shape != (stages, blocks) or widths.shape != (stages,):
            raise InputError(
                f"depths and widths ({stages},) and configurations ({stages}, {blocks})",
                f"shapes {depths.shape}, {widths.shape} and {chosen.shape}",
            )
        present = np.arange(blocks) < depths[:, None]
        inside = np.where(present, (chosen >= 0) & (chosen < count), chosen == ABSENT)
        if not np.isin(depths, self.depths).all() or not inside.all():
            raise InputError(
                f"depths among {self.depths} and configurations 0..{count - 1}, {ABSENT} beyond",
                f"{depths.tolist()} and {chosen.tolist()}",
            )
        if not all(0 <= width < len(own) for width, own in zip(widths.tolist(), self.widths, strict=True)):
            raise InputError(f"widths of numbers below {[len(own) for own in self.widths]}", f"{widths.tolist()}")
        places = np.argwhere(present)
        refused = [place for place in places.tolist() if not self.allowed[(*place, chosen[tuple(place)])]]
        if refused:
            raise InputError("configurations that are allowed where they are", f"{chosen.tolist()}, not at {refused}")
        return self._assemble([row[row >= 0].tolist() for row in chosen], widths.tolist())

    def to_choice(self, architecture: SA) -> StagedChoice:
        """Depths (S,), configuration numbers (S, D), -1 beyond the depth, and width numbers (S,)."""
        self.check(architecture)
        rows, widths = self._take_apart(architecture)
        chosen = np.full((self.stages, self.most_blocks), ABSENT, dtype=np.int64)
        for line, row in zip(chosen, rows, strict=True):
            line[: len(row)] = row
        return StagedChoice(np.array([len(row) for row in rows]), chosen, np.array(widths, dtype=np.int64))

    def sample(self, rng: np.random.Generator) -> SA:
        """Every depth, configuration and width uniformly: the distribution under which BINAS takes expectations."""
        depths = [int(rng.choice(own)) for own in self.stage_depths]
        options = [[np.flatnonzero(place) for place in stage] for stage in self.allowed]
        rows = [
            [int(own[block][rng.integers(len(own[block]))]) for block in range(depth)]
            for own, depth in zip(options, depths, strict=True)
        ]
        return self._assemble(rows, [int(rng.integers(len(own))) if len(own) > 1 else 0 for own in self.widths])

    def encode(self, architecture: SA) -> Encoding:
        """One-hot configuration (S*D, C), zero rows beyond the depth, depth (S, number of depths), and width (S, W)."""
        choice = self.to_choice(architecture)
        numbers = np.arange(len(self.configurations))
        encoding: Encoding = {
            "configuration": (choice.configurations.reshape(-1, 1) == numbers).astype(np.int8),
            "depth": (choice.depths[:, None] == np.array(self.depths)).astype(np.int8),
        }
        if self.most_widths > 1:
            encoding["width"] = (choice.widths[:, None] == np.arange(self.most_widths)).astype(np.int8)
        return encoding

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> SA:
        """The architecture whose :meth:`encode` this is; anything else is refused."""
        checked = self.check_encoding(encoding)
        rows, depth = checked["configuration"], checked["depth"]
        for name in ("depth", "width"):
            if name in checked and not (checked[name].sum(1) == 1).all():
                raise InputError(f"exactly one {name} a stage", f"{checked[name].sum(1).tolist()}")
        depths = np.array(self.depths)[depth.argmax(1)]
        present = (np.arange(self.most_blocks) < depths[:, None]).reshape(-1)
        if not (rows.sum(1) == present).all():
            raise InputError(
                "one configuration a block up to the depth and none beyond it", f"{rows.sum(1).tolist()} a block"
            )
        chosen = np.where(present, rows.argmax(1), ABSENT).reshape(self.stages, self.most_blocks)
        widths = checked["width"].argmax(1) if "width" in checked else np.zeros(self.stages, np.int64)
        return self.from_choice(StagedChoice(depths, chosen, widths))

    # --- variation ---

    def neighbours(self, architecture: SA) -> list[SA]:
        """Another configuration of one block, a stage cut to the next smaller depth or deepened, or another width.

        A deeper stage's new blocks are equal where their places allow it.
        """
        rows, widths = self._take_apart(architecture)
        found = []
        for stage, row in enumerate(rows):
            found += [
                self._assemble([*rows[:stage], changed, *rows[stage + 1 :]], widths)
                for changed in self._changed_rows(stage, row)
            ]
            found += [
                self._assemble(rows, [*widths[:stage], other, *widths[stage + 1 :]])
                for other in range(len(self.widths[stage]))
                if other != widths[stage]
            ]
        return found

    def _changed_rows(self, stage: int, row: list[int]) -> list[list[int]]:
        options = [np.flatnonzero(place).tolist() for place in self.allowed[stage]]
        changed = [
            [*row[:block], other, *row[block + 1 :]]
            for block, own in enumerate(row)
            for other in options[block]
            if other != own
        ]
        depths = self.stage_depths[stage]
        place = depths.index(len(row))
        changed += [row[: depths[place - 1]]] if place else []
        if place + 1 < len(depths):
            new = range(len(row), depths[place + 1])
            changed += [row + [one] * len(new) for one in options[len(row)] if all(one in options[b] for b in new)]
        return changed

    def crossover(self, first: SA, second: SA, rng: np.random.Generator) -> SA:
        """Each stage's depth and width from either parent, each block from either parent that has it."""
        rows = []
        (ours, our_widths), (theirs, their_widths) = self._take_apart(first), self._take_apart(second)
        for one, other in zip(ours, theirs, strict=True):
            depth = (len(one), len(other))[rng.integers(2)]
            picks = rng.integers(2, size=depth)
            pairs = [[row[b] for row in (one, other) if b < len(row)] for b in range(depth)]
            rows.append([pair[pick % len(pair)] for pair, pick in zip(pairs, picks, strict=True)])
        both = zip(our_widths, their_widths, strict=True)
        return self._assemble(rows, [pair[rng.integers(2)] if pair[0] != pair[1] else pair[0] for pair in both])

    def canonical(self, architecture: SA) -> SA:
        """Itself: blocks beyond the depth are not part of the value, and no two values are one function."""
        return architecture

    def is_connected(self, architecture: SA) -> bool:
        """Always true: every stage has a block."""
        return True

    def cost(self, architecture: SA, scale: Scale) -> Cost:
        """Sum over start, blocks and end."""
        total = Cost()
        for part in self.parts_of(architecture, scale):
            total += part.cost()
        return total

    def memory_bytes(self, architecture: SA, scale: Scale) -> int:
        """Weights and all activations of one image, held at once, in float32.

        That is what a training step keeps of a forward pass and an upper bound of what any executor needs; unlike the
        exact peak it is additive.
        """
        parts = self.parts_of(architecture, scale)
        return BYTES_PER_NUMBER * sum(part.cost().params + part.activation_elements() for part in parts)

    @abstractmethod
    def parts_of(self, architecture: SA, scale: Scale) -> list[Part]:
        """Start, blocks and end of the network of ``architecture`` at ``scale``, in order."""


def heaviest_rows(space: StagedSpace[Any], sign: int) -> Rows:
    """The deepest (sign 1) or shallowest (-1) rows of the configurations with the most or least multiply-accumulates.

    Widths are the greatest or the least ones; costs of blocks rise with both.

    Args:
        space: of the blocks.
        sign: 1 for the heaviest, -1 for the lightest.
    """
    widths = [len(own) - 1 if sign > 0 else 0 for own in space.widths]
    depth, rows = space.depths[-1 if sign > 0 else 0], []
    for stage, block in itertools.product(range(space.stages), range(depth)):
        before = (widths[stage - 1] if stage else 0) if block == 0 else widths[stage]
        options = np.flatnonzero(space.allowed[stage, block]).tolist()
        macs = [sign * space.part(stage, block, option, before, widths[stage]).cost().macs for option in options]
        rows.append(options[int(np.argmax(macs))])
    return [rows[stage * depth : (stage + 1) * depth] for stage in range(space.stages)]
