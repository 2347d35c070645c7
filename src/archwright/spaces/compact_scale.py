"""The shape of a compact network: stage widths and strides, and what is searched."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

from archwright.bounds import MOST_CHANNELS
from archwright.errors import InputError
from archwright.spaces.staged_scale import StagedScale, round_to_eight

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
        """The configuration that ``text`` names, as ``str`` writes it."""
        match = _WORD.fullmatch(text)
        if match is None:
            raise InputError("a configuration like 'cn_k3', 'bb_k3', 'er_k3_e2' or 'ir_k5_e4'", repr(text[:40]))
        kind, kernel, expansion = (match[1], match[2], 1) if match[1] else (match[3], match[4], match[5])
        return cls(cast(Kind, kind), int(kernel), int(expansion))


@dataclass(frozen=True)
class CompactScale(StagedScale):
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

    space_name: ClassVar[str] = "compact"
    stage_fields: ClassVar[tuple[str, ...]] = ("stage_strides", "stage_factors")

    channels: int = 16
    cells: int = 3
    stage_factors: tuple[int, ...] = (1, 2, 4)
    width_choices: tuple[float, ...] = (0.5, 1.0, 1.5, 2.0, 3.0)
    stage_strides: tuple[int, ...] = (2, 2, 1)
    depths: tuple[int, ...] = (1, 2, 3)
    configurations: tuple[str, ...] = ("cn_k3", "bb_k3", "er_k3_e2", "ir_k3_e3")

    @property
    def stage_channel_choices(self) -> tuple[tuple[int, ...], ...]:
        """Per stage the different channels it may have, rising."""
        return tuple(
            tuple(sorted({round_to_eight(self.channels * factor * choice) for choice in self.width_choices}))
            for factor in self.stage_factors
        )

    def _check_own(self) -> None:
        if len(self.stage_factors) != len(self.stage_strides):
            raise InputError(
                "one factor and one stride a stage", f"{len(self.stage_factors)} and {len(self.stage_strides)} of them"
            )
        self._check_numbers("stage_factors", "stage_strides", "depths")
        self._check_rising()
        if max(widths[-1] for widths in self.stage_channel_choices) > MOST_CHANNELS:
            raise InputError(f"at most {MOST_CHANNELS:,} channels in a stage", f"{self.stage_channel_choices}")
        self._check_configurations()

    def _check_configurations(self) -> None:
        parsed = [Configuration.parse(word) for word in self.configurations]
        if any(one.kernel % 2 == 0 or one.expansion < 1 for one in parsed):
            raise InputError("odd kernels and positive expansions", f"{self.configurations}")
        if len(set(parsed)) < len(parsed) or not any(one.kind == PLAIN for one in parsed):
            raise InputError(
                "different configurations, a plain one (cn) among them for the first block", f"{self.configurations}"
            )
