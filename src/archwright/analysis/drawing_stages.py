"""Networks of stages as a row of blocks in SVG: as high as they have channels, coloured by kind, strides on the arrows.

Reads the words of an architecture's text, ``cn_r1_k3_s2_c16/...|...``, which the spaces of stages share.
"""

from __future__ import annotations

import re
from html import escape
from typing import NamedTuple

from archwright.errors import InputError

WORD = re.compile(r"(?P<kind>cn|bb|er|ir)_r1_k(?P<k>\d+)_s(?P<s>\d+)(?:_e(?P<e>\d+))?_c(?P<c>\d+)(?P<se>_se[\d.]+)?")
KINDS = {"cn": "convolution", "bb": "residual", "er": "fused inverted", "ir": "inverted residual"}
FILL = {"cn": "#dbe9fb", "bb": "#dff3e4", "er": "#fdeed8", "ir": "#f0e4fb"}
INK = {"cn": "#0b63c4", "bb": "#1d7f3f", "er": "#8a5a00", "ir": "#7a3db8"}
WIDTH, GAP, STEP, LEFT = 104, 10, 46, 90
LOWEST, HIGHEST, TOP = 46, 130, 30


class Block(NamedTuple):
    """One block of a network."""

    kind: str
    kernel: int
    stride: int
    expansion: int
    channels: int
    squeeze_excite: bool

    @property
    def words(self) -> str:
        """For people and screen readers."""
        parts = [f"{KINDS[self.kind]} {self.kernel}x{self.kernel}", f"{self.channels} channels"]
        parts += [f"expansion {self.expansion}"] if self.expansion > 1 else []
        parts += ["squeeze-excite"] if self.squeeze_excite else []
        parts += [f"stride {self.stride}"] if self.stride > 1 else []
        return ", ".join(parts)


def blocks(text: str) -> list[list[Block]]:
    """The blocks of each stage of a network's text; another kind of text is an error."""
    found = []
    for stage in text.split("/"):
        words = [WORD.fullmatch(word) for word in stage.split("|")]
        found.append([_block(word.groupdict()) for word in words if word is not None])
        if len(found[-1]) < len(words):
            raise InputError("blocks as cn_r1_k3_s2_c16 in stages", repr(stage))
    return found


def _block(word: dict[str, str | None]) -> Block:
    kernel, stride, expansion, channels = (int(word[name] or 1) for name in ("k", "s", "e", "c"))
    return Block(str(word["kind"]), kernel, stride, expansion, channels, word["se"] is not None)


def draw_stages(text: str) -> str:
    """The network as one SVG document with a title for screen readers."""
    stages = blocks(text)
    most = max(block.channels for stage in stages for block in stage)
    middle, x, parts = TOP + HIGHEST / 2, float(LEFT), [_end("image", 8, TOP + HIGHEST / 2)]
    for number, stage in enumerate(stages, 1):
        first = stage[0].stride
        parts.append(_arrow(x - STEP + 12, x - 4, middle, f"/{first}" if first > 1 else ""))
        width = len(stage) * (WIDTH + GAP) - GAP
        parts.append(
            f'<text x="{x + width / 2:.0f}" y="18" text-anchor="middle" fill="#41556b">'
            f"stage {number}: {stage[0].channels} channels</text>"
        )
        for block in stage:
            parts.append(_drawn(block, x, middle, most))
            x += WIDTH + GAP
        x += STEP - GAP
    parts += [_arrow(x - STEP + 12, x - 4, middle, ""), _end("class", x, middle)]
    whole, height = x + 50, TOP + HIGHEST + 16
    said = "; ".join(f"stage {n}: {', then '.join(b.words for b in stage)}" for n, stage in enumerate(stages, 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {whole:.0f} {height:.0f}" '
        f'width="{whole:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12">'
        f"<title>{escape(said)}</title>"
        f'<rect width="{whole:.0f}" height="{height:.0f}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def _drawn(block: Block, x: float, middle: float, most: int) -> str:
    """A box with kind, kernel and extras; its height grows with the root of its channels."""
    height = LOWEST + (HIGHEST - LOWEST) * (block.channels / most) ** 0.5
    extras = ([f"expansion {block.expansion}"] if block.expansion > 1 else []) + ["SE"] * block.squeeze_excite
    lines = [KINDS[block.kind], f"{block.kernel}x{block.kernel}", ", ".join(extras)]
    shown = [line for line in lines if line]
    texts = "".join(
        f'<text x="{x + WIDTH / 2:.0f}" y="{middle + 4 + 15 * (n - (len(shown) - 1) / 2):.0f}" text-anchor="middle" '
        f'fill="#1b2733">{escape(line)}</text>'
        for n, line in enumerate(shown)
    )
    return (
        f'<g><rect x="{x:.0f}" y="{middle - height / 2:.0f}" width="{WIDTH}" height="{height:.0f}" rx="6" '
        f'fill="{FILL[block.kind]}" stroke="{INK[block.kind]}"/>{texts}<title>{escape(block.words)}</title></g>'
    )


def _arrow(x1: float, x2: float, y: float, label: str) -> str:
    way = f'<path d="M{x1:.0f},{y:.0f} H{x2:.0f} m-6,-4 l6,4 l-6,4" fill="none" stroke="#555555"/>'
    if not label:
        return way
    return way + f'<text x="{(x1 + x2) / 2:.0f}" y="{y - 6:.0f}" text-anchor="middle" fill="#41556b">{label}</text>'


def _end(text: str, x: float, y: float) -> str:
    return f'<text x="{x:.0f}" y="{y + 4:.0f}" fill="#1b2733">{text}</text>'
