"""Stages of blocks as a value; its text has a word a block, ``|`` between blocks and ``/`` between stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from archwright.errors import InputError
from archwright.spaces.base import Architecture


class Block(Protocol):
    """One block: its text is its word, and what is searched of it its configuration."""

    @property
    def configuration(self) -> Any:
        """What is searched of it, comparable with a space's configurations."""

    @property
    def kernel(self) -> int:
        """Height and width of its convolution."""

    @property
    def expansion(self) -> int:
        """Ratio of inner to input channels."""

    @property
    def stride(self) -> int:
        """By how much it shrinks an image."""

    @property
    def channels(self) -> int:
        """Channels of its output."""


B = TypeVar("B", bound=Block)


@dataclass(frozen=True, order=True)
class StagedArchitecture(Architecture, Generic[B]):
    """The blocks of each stage; only a stage's first block may have a stride, and a stage has one width."""

    stages: tuple[tuple[B, ...], ...]

    def __post_init__(self) -> None:
        for number, blocks in enumerate(self.stages, 1):
            if not blocks:
                raise InputError(f"at least one block in stage {number}", "none")
            if len({block.channels for block in blocks}) > 1:
                raise InputError(f"one width in stage {number}", f"{[block.channels for block in blocks]}")
            if any(block.stride != 1 for block in blocks[1:]):
                raise InputError(f"a stride only in the first block of stage {number}", f"{[b.stride for b in blocks]}")
            for block in blocks:
                if block.kernel % 2 == 0 or min(block.kernel, block.expansion, block.stride, block.channels) < 1:
                    raise InputError("an odd kernel and positive stride, expansion and channels", str(block))

    def __str__(self) -> str:
        return "/".join("|".join(map(str, blocks)) for blocks in self.stages)

    @property
    def strides(self) -> tuple[int, ...]:
        """Of each stage's first block."""
        return tuple(blocks[0].stride for blocks in self.stages)
