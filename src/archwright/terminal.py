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

    Args:
        heads: of the columns.
        rows: texts of the cells.
        title: above the table.
    """
    from rich.measure import Measurement
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(*(Column(Text(visible(head))) for head in heads), title=Text(visible(title)) if title else None)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    target = console()
    target.width = max(target.width, Measurement.get(target, target.options.update(max_width=100_000), table).maximum)
    target.print(table)
