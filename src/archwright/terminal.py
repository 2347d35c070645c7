"""Text as a terminal may show it: nothing that was read from a file or an argument can colour, move or cut the output.

Everything people read goes through here: :func:`say`, :func:`show_table` and, for errors, :func:`visible`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

# Control characters, halves of surrogate pairs (bytes that are no UTF-8), line separators, and marks that turn the
# direction of the text around.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """``text`` in one line, with every character that a terminal would obey written as its escape, as repr does."""
    return _HIDDEN.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def brief(text: str, most: int = 60) -> str:
    """``text``, or its beginning with dots behind it.

    Args:
        text: of any length: the space of a network that was thinned names every channel.
        most: characters of the result.
    """
    return text if len(text) <= most else f"{text[: most - 3]}..."


def shortened(text: str, lines: int = 8, characters: int = 1500) -> str:
    """A text as one screen: each line visible, and what is too much left out aloud.

    Args:
        text: of any length.
        lines: at most so many.
        characters: at most so many, and a few words on what was left out.
    """
    shown = [visible(line) for line in text.splitlines()]
    if len(shown) > lines:
        shown = [*shown[: lines - 1], f"... and {len(shown) - lines + 1} more lines"]
    whole = "\n".join(shown)
    if len(whole) <= characters:
        return whole
    head, tail = 2 * characters // 3, characters // 3
    return f"{whole[:head]} ... {len(whole) - head - tail:,} characters left out ... {whole[-tail:]}"


def console(stderr: bool = False) -> Console:
    """A console that takes text as it is: no markup, no emoji codes, no highlighting, no wrapping."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, soft_wrap=True)


def say(text: str, stderr: bool = False) -> None:
    """Print ``text`` for people, in one line, on stdout or, with ``stderr``, there."""
    console(stderr).print(visible(text))


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table at its own width, so that names are never cut; a narrower terminal wraps its lines.

    The lines are put together here: rich takes seconds for the layout of some thousand rows.

    Args:
        heads: of the columns.
        rows: texts of the cells.
        title: above the table.
    """
    from rich.box import HEAVY_HEAD
    from rich.text import Text

    named, cells = [visible(head) for head in heads], [[visible(cell) for cell in row] for row in rows]
    widths = [max(map(_columns, column)) + 2 for column in zip(named, *cells, strict=True)]
    target = console()
    box = HEAVY_HEAD.substitute(target.options)
    if title:
        target.print(Text(visible(title).center(sum(widths) + len(widths) + 1).rstrip(), style="italic"))
    target.print(box.get_top(widths))
    head = [Text(_padded(text, width), style="bold") for text, width in zip(named, widths, strict=True)]
    target.print(Text(box.head_left) + Text(box.head_vertical).join(head) + Text(box.head_right))
    lines = [box.get_row(widths, "head")]
    for row in cells:
        padded = (_padded(text, width) for text, width in zip(row, widths, strict=True))
        lines.append(box.mid_left + box.mid_vertical.join(padded) + box.mid_right)
    target.file.write("\n".join([*lines, box.get_bottom(widths)]) + "\n")


def _columns(text: str) -> int:
    """Columns of a terminal that ``text`` takes; some characters take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _padded(text: str, width: int) -> str:
    return f" {text}{' ' * (width - 1 - _columns(text))}"
