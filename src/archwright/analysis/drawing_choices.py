"""A user's own network with its choices in SVG: what was chosen is filled, what was not is pale, in the order of calls.

Reads what a run keeps of the choices (``ModelSpace.outline``), so that a page imports nothing of the user's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from archwright.errors import InputError

Outline = Sequence[Mapping[str, Any]]
Changes = Mapping[str, Mapping[str, Sequence[float]]]
"""By decision and option: what taking it would change, accuracy in points and latency in milliseconds."""
LETTER, LINE, GAP, STEP = 7.2, 17, 8, 30
CHOSEN, PALE, FRAME = ("#dbe9fb", "#0b63c4", "#1b2733"), ("#ffffff", "#c3ccd6", "#5b6b7b"), "#8a97a5"


class Piece(NamedTuple):
    """A part of the drawing: its size, and its SVG with the left upper corner at 0, 0."""

    width: float
    height: float
    svg: str


def draw_choices(outline: Outline, text: str, changes: Changes | None = None) -> str:
    """The network as one SVG document with a title for screen readers.

    Args:
        outline: of the choices that are in no other one.
        text: of the architecture, JSON with an option for each choice that is reached.
        changes: what other options would change, where that is known.
    """
    try:
        picks = json.loads(text)
        pieces = [_choice(one, picks, changes or {}) for one in outline]
        said = "; ".join(f"{name}: {option}" for name, option in picks.items())
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError("the choices of a network and an architecture of them", str(error)) from error
    height = max((piece.height for piece in pieces), default=0.0) + 2 * GAP
    x, parts = 58.0, [_text("image", 8, height / 2 + 4)]
    for piece in pieces:
        parts.append(_arrow(x - STEP + 16, x - 3, height / 2))
        parts.append(_moved(piece, x, (height - piece.height) / 2))
        x += piece.width + STEP
    parts += [_arrow(x - STEP + 4, x - 5, height / 2), _text("class", x, height / 2 + 4)]
    whole = x + 48
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {whole:.0f} {height:.0f}" '
        f'width="{whole:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" font-size="12">'
        f"<title>{escape(said)}</title>"
        f'<rect width="{whole:.0f}" height="{height:.0f}" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def _choice(one: Mapping[str, Any], picks: Mapping[str, str], changes: Changes) -> Piece:
    """A frame with the name of the decision and its options, or its blocks."""
    name, chosen = str(one["decision"]), picks.get(str(one["decision"]))
    parts = _blocks(one, chosen, picks, changes) if one["kind"] == "Depth" else _options(one, chosen, picks, changes)
    title = f"{name}: {chosen} of {len(one['inside'])}" if one["kind"] == "Depth" and chosen is not None else name
    beside = _row(parts) if one["kind"] == "Depth" else _column(parts)
    width = max(beside.width, LETTER * len(title)) + 2 * GAP
    height = beside.height + LINE + 2 * GAP
    said = f"{one['kind']} {name}, {one['shape']}" if one.get("shape") else f"{one['kind']} {name}"
    frame = f'<rect width="{width:.0f}" height="{height:.0f}" rx="7" fill="none" stroke="{FRAME}"/>'
    inner = _moved(beside, GAP, LINE + GAP)
    return Piece(width, height, f"<g>{frame}{_text(title, GAP, LINE)}{inner}<title>{escape(said)}</title></g>")


def _options(one: Mapping[str, Any], chosen: str | None, picks: Mapping[str, str], changes: Changes) -> list[Piece]:
    """Every option; below the chosen one what is chosen in it."""
    found = []
    for option in map(str, one["options"]):
        change = changes.get(str(one["decision"]), {}).get(option)
        found.append(_pill(option, option == chosen, change))
        found += [_choice(other, picks, changes) for other in one["inside"].get(option, []) if option == chosen]
    return found


def _blocks(one: Mapping[str, Any], chosen: str | None, picks: Mapping[str, str], changes: Changes) -> list[Piece]:
    """Every block; in those that are there what is chosen in them."""
    found = []
    for number, inside in one["inside"].items():
        there = chosen is not None and int(number) < int(chosen)
        parts = [_choice(other, picks, changes) for other in inside if there]
        change = changes.get(str(one["decision"]), {}).get(str(int(number) + 1))
        found.append(_column([_pill(f"block {int(number) + 1}", there, change), *parts]))
    return found


def _pill(text: str, chosen: bool, change: Sequence[float] | None) -> Piece:
    """A box with a name, and below it what taking it would change."""
    fill, stroke, ink = CHOSEN if chosen else PALE
    lines = [text] if change is None or chosen else [text, f"{change[0]:+.2f} %, {_time(change[1])}"]
    width, height = LETTER * max(map(len, lines)) + 2 * GAP, LINE * len(lines) + GAP
    box = f'<rect width="{width:.0f}" height="{height:.0f}" rx="5" fill="{fill}" stroke="{stroke}"/>'
    texts = "".join(_text(line, GAP, LINE * (number + 1), ink) for number, line in enumerate(lines))
    said = f"{text}, {'chosen' if chosen else 'not chosen'}"
    return Piece(width, height, f"<g>{box}{texts}<title>{escape(said)}</title></g>")


def _time(milliseconds: float) -> str:
    return f"{milliseconds:+.2f} ms" if abs(milliseconds) >= 0.1 else f"{1000 * milliseconds:+.2g} \N{MICRO SIGN}s"


def _row(pieces: Sequence[Piece]) -> Piece:
    x, parts = 0.0, []
    for piece in pieces:
        parts.append(_moved(piece, x, 0))
        x += piece.width + GAP
    return Piece(max(0.0, x - GAP), max((one.height for one in pieces), default=0.0), "".join(parts))


def _column(pieces: Sequence[Piece]) -> Piece:
    y, parts = 0.0, []
    for piece in pieces:
        parts.append(_moved(piece, 0, y))
        y += piece.height + GAP
    return Piece(max((one.width for one in pieces), default=0.0), max(0.0, y - GAP), "".join(parts))


def _moved(piece: Piece, x: float, y: float) -> str:
    return f'<g transform="translate({x:.0f} {y:.0f})">{piece.svg}</g>'


def _text(text: str, x: float, y: float, ink: str = "#1b2733") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{ink}">{escape(text)}</text>'


def _arrow(x1: float, x2: float, y: float) -> str:
    return f'<path d="M{x1:.0f},{y:.0f} H{x2:.0f} m-6,-4 l6,4 l-6,4" fill="none" stroke="#555555"/>'
