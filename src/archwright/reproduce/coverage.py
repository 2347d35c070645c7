"""Every table, figure, theorem and algorithm of the five texts: what was done about it, and what came out.

``coverage.json`` is the data: ``numbers`` is what the texts contain, ``claims`` has a row for each of them (a test
holds the two together), ``runs`` says at what size commands run. ``archwright reproduce --coverage`` prints the rows;
``docs/papers.md`` is :func:`page`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from archwright.runs.files import Json
from archwright.strict import parse_json

DATA = Path(__file__).with_suffix(".json")
VERDICTS = ("holds", "does not hold", "cannot be told at this scale", "not run", "claims nothing")
"""What a row may say; ``claims nothing`` is of drawings, and of what is quoted from others."""


@dataclass(frozen=True)
class Run:
    """At what size a command runs: scale, data, seeds, and what it costs on two cores."""

    scale: str = ""
    data: str = ""
    seeds: str = ""
    cost: str = ""


@dataclass(frozen=True)
class Claim:
    """One number of a text.

    Attributes:
        label: text, kind and number.
        command: that measures it, tests it, or would; empty for a drawing.
        verdict: one of :data:`VERDICTS`.
        paper: the text's own number or statement.
        ours: what was measured, or why it was not.
    """

    label: str
    command: str
    verdict: str
    paper: str
    ours: str

    @property
    def run(self) -> Run:
        """At what size its command runs; empty where that is no reproduction."""
        words = self.command.split()
        return runs().get(words[2], Run()) if words[:2] == ["archwright", "reproduce"] else Run()


@lru_cache(maxsize=1)
def data() -> dict[str, Any]:
    """What the file holds."""
    found: dict[str, Any] = parse_json(DATA.read_text(encoding="utf-8"))
    return found


def claims() -> list[Claim]:
    """A row for every number of the texts, in their order."""
    return [Claim(**one) for one in data()["claims"]]


def runs() -> dict[str, Run]:
    """By the name of a reproduction; ``not timed``: nobody wrote down how long it took."""
    return {name: Run(**one) for name, one in data()["runs"].items()}


def coverage() -> dict[str, Json]:
    """All rows, and how many have each verdict."""
    rows = claims()
    counts = {verdict: sum(one.verdict == verdict for one in rows) for verdict in VERDICTS}
    return {"rows": [{**asdict(one), **asdict(one.run)} for one in rows], "verdicts": counts}


def page() -> str:
    """The rows as a page of the documentation."""
    told = ", ".join(f"{verdict} {count}" for verdict, count in coverage()["verdicts"].items())
    lines = [
        "# What the texts claim",
        "",
        "Made by `archwright reproduce --coverage`: every table, figure, theorem and algorithm of the five texts by",
        "its number (lemmas, steps of proofs, are left out). Scale, data, seeds and cost (on two cores) are those of",
        "the command. What did not come out is said as plainly as what did; *not run* has the command that would.",
        "The rows of the latest runs, as their commands printed them, are in `docs/measured/rows` (seconds are those",
        "of the last call: what is kept is not computed again).",
        "",
        f"In all: {told}.",
    ]
    head = ["", "| | verdict | the text | here | command | scale; data; seeds; cost |", "|---|---|---|---|---|---|"]
    for text, title in data()["texts"].items():
        lines += ["", f"## {title}", *head]
        lines += [_line(one) for one in claims() if one.label.split()[0] == text]
    lines += ["", "## Beside the texts", "", "| command | what | scale; data; seeds; cost |", "|---|---|---|"]
    for name, what in data()["beside"].items():
        lines.append(f"| `archwright reproduce {name}` | {what} | {_size(runs()[name])} |")
    return "\n".join(lines) + "\n"


def _size(run: Run) -> str:
    return "; ".join(part for part in (run.scale, run.data, run.seeds, run.cost) if part)


def _line(claim: Claim) -> str:
    command = f"`{claim.command}`" if claim.command else ""
    name = " ".join(claim.label.split()[1:])
    return f"| {name} | {claim.verdict} | {claim.paper} | {claim.ours} | {command} | {_size(claim.run)} |"
