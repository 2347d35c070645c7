"""Parts that every page is made of: cards, tables, and numbers as people say them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape

from archwright.references import DataRef
from archwright.runs.files import Json

REPORT = "report.html"
"""The page of a run, in its folder."""


def section(title: str, body: str) -> str:
    """A card of the page with ``title``, which is escaped, and ``body``, HTML; nothing where that is empty."""
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls sideways where the screen is narrow.

    Args:
        heads: of the columns, plain text.
        rows: cells as HTML.
    """
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table class="rows"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def source_of(asked: Mapping[str, Json]) -> str:
    """The images or the table that a search saw; of a path the last part.

    Args:
        asked: the settings of the search.
    """
    source = DataRef.parse(str(asked.get("data") or asked.get("benchmark") or ""))
    return str(source if source.path is None else DataRef(source.kind, source.path.name))


def unbroken(text: str) -> str:
    """A text whose numbers stay on one line with their units."""
    return re.sub(r"(?<=\d) (?=%|ms\b)", "\N{NO-BREAK SPACE}", text)


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.1f}\N{NO-BREAK SPACE}s"
    if seconds < 5400:
        return f"{seconds / 60:.1f}\N{NO-BREAK SPACE}min"
    return f"{seconds / 3600:.1f}\N{NO-BREAK SPACE}h"
