"""The page that compares finished runs: what each found, which is better on the same images, which settings differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import combinations
from pathlib import Path

from scipy.stats import binomtest

from archwright.errors import InputError
from archwright.report.charts import Mark, scatter
from archwright.report.columns import accuracy_text, latency_text
from archwright.report.front import cost_label, has_all, height_label
from archwright.report.parts import REPORT, duration, section, table, unbroken
from archwright.report.style import page
from archwright.runs.files import write_atomic
from archwright.runs.run import Run
from archwright.search.answer import Answer
from archwright.search.tested import OnTestImages, read_tested
from archwright.terminal import brief

SURE = 0.05
"""Chance below which a difference is called one."""
SCORE = 1.959964
"""Standard errors on both sides of a 95 % interval."""
Compared = tuple[Run, Answer]


def report_comparison(folders: Sequence[Path], path: Path) -> Path:
    """Write one page that compares finished runs; its path.

    Args:
        folders: of the runs, two or more.
        path: of the page.
    """
    runs = [Run.open(folder) for folder in folders]
    write_atomic(path, comparison_page(runs).encode())
    return path


def comparison_page(runs: Sequence[Run], address: Callable[[Run], str] | None = None) -> str:
    """The HTML page with a table of several finished runs, and for those on the same images a chart and a test.

    Args:
        runs: two or more.
        address: of a run's own page; that in its folder by default.
    """
    if len(runs) < 2:
        raise InputError("two or more runs to compare", str(len(runs)))
    unfinished = [str(run.folder) for run in runs if run.status() != "finished"]
    if unfinished:
        raise InputError("finished runs to compare", ", ".join(unfinished), "archwright runs resume continues them.")
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise InputError("different runs to compare", ", ".join(str(run.folder) for run in runs))
    both = [(run, Answer.read(run.folder)) for run in runs]
    title = f"{len(runs)} searches compared"
    groups = same_images(both)
    apart = f"<p>They saw {len(groups)} different sets of images: only runs on the same ones are compared.</p>"
    parts = [section("Found", _overview(both, address or _file_address) + apart * (len(groups) > 1))]
    for number, group in enumerate(groups, 1):
        where = f": images {number} of {len(groups)}, {group[0][1].data}" if len(groups) > 1 else ""
        parts.append(section(f"Is one better?{where}", differences(group)))
        parts.append(section(f"Accuracy and cost{where}", _chart(group)))
    settings = [[escape(name), *map(escape, row)] for name, row in differing(runs)]
    heads = ("setting", *(run.folder.name for run in runs))
    parts.append(section("Settings that differ", table(heads, settings) if settings else "<p>None.</p>"))
    return page(title, f"<h1>{title}</h1>{''.join(parts)}")


def _file_address(run: Run) -> str:
    return str(run.folder.resolve() / REPORT)


def _overview(both: Sequence[Compared], address: Callable[[Run], str]) -> str:
    """One row a run, each linked to its own page."""
    heads = ("run", "method", "space", "data", "seed", "accuracy", "latency", "parameters", "time", "note")
    rows = []
    for run, answer in both:
        best, name = answer.best, run.folder.name
        texts = (answer.method, brief(answer.space), answer.data or "", str(answer.seed))
        size = f"{best.params:,}" if best.params is not None else ""
        numbers = (accuracy_text(best), latency_text(best.latency_ms), size, duration(answer.seconds), run.note)
        link = f'<a href="{escape(address(run))}">{escape(name)}</a>'
        rows.append([link, *(escape(unbroken(text)) for text in (*texts, *numbers))])
    known = [any(row[number] for row in rows) for number in range(len(heads))]
    kept = [[cell for cell, shown in zip(row, known, strict=True) if shown] for row in (heads, *rows)]
    return table(kept[0], kept[1:])


def same_images(both: Sequence[Compared]) -> list[list[Compared]]:
    """The runs that saw the same images in the same parts, or look the same table or function up, together."""
    groups: dict[str, list[Compared]] = {}
    for run, answer in both:
        groups.setdefault(str(run.header.get("fingerprint") or answer.data), []).append((run, answer))
    return list(groups.values())


# --- which is better ---


@dataclass(frozen=True)
class Paired:
    """Two networks on the same test images.

    Attributes:
        won: images that only the first gets right.
        lost: those that only the second does.
        count: all images.
        chance: McNemar's exact p-value: how often chance alone makes as large a difference.
    """

    won: int
    lost: int
    count: int
    chance: float

    @property
    def points(self) -> float:
        """How much more accurate the first is, in percentage points."""
        return 100 * (self.won - self.lost) / self.count

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of :attr:`points`, by Wald's formula for pairs (Agresti and Min: half an image a cell)."""
        won, lost, count = self.won + 0.5, self.lost + 0.5, self.count + 2
        middle, spread = (won - lost) / count, math.sqrt(won + lost - (won - lost) ** 2 / count) / count
        return 100 * (middle - SCORE * spread), 100 * (middle + SCORE * spread)


def mcnemar(first: OnTestImages, second: OnTestImages) -> Paired:
    """Two networks compared image by image, by McNemar's exact test.

    Args:
        first: a network on the test images.
        second: another one on the same images, in the same order.
    """
    one, other = first.outcomes.right, second.outcomes.right
    won, lost = int((one & ~other).sum()), int((other & ~one).sum())
    chance = float(binomtest(won, won + lost).pvalue) if won + lost else 1.0
    return Paired(won, lost, len(one), chance)


def holm(chances: Sequence[float]) -> list[float]:
    """P-values of several tests made comparable with one threshold (Holm, 1979), in the order given."""
    order = sorted(range(len(chances)), key=lambda number: chances[number])
    found, least = [0.0] * len(chances), 0.0
    for rank, number in enumerate(order):
        least = max(least, min(1.0, (len(chances) - rank) * chances[number]))
        found[number] = least
    return found


def differences(group: Sequence[Compared]) -> str:
    """A sentence a pair of runs on the same test images, as an HTML list; empty where none can be paired."""
    kept = [(run.folder.name, read_tested(run.folder, answer.best.model)) for run, answer in group]
    pairs = []
    for (name, first), (other, second) in combinations(kept, 2):
        if first is not None and second is not None and len(first.outcomes.labels) == len(second.outcomes.labels):
            pairs.append((name, other, mcnemar(first, second)))
    chances = holm([paired.chance for *_, paired in pairs])
    said = [_sentence(*pair, chance) for pair, chance in zip(pairs, chances, strict=True)]
    items = "".join(f"<li>{escape(unbroken(text))}</li>" for text in said)
    note = "McNemar's exact test, image by image" + ("; p by Holm for several pairs." if len(said) > 1 else ".")
    return f'<ul>{items}</ul><p class="soft">{note}</p>' if items else ""


def _sentence(name: str, other: str, paired: Paired, chance: float) -> str:
    """What is known of two runs, the better one first."""
    if paired.lost > paired.won:
        name, other, paired = other, name, Paired(paired.lost, paired.won, paired.count, paired.chance)
    low, high = paired.interval
    verdict = f"{name} is better than {other}" if chance < SURE else f"{name} and {other} cannot be told apart"
    return (
        f"{verdict}: {paired.points:+.1f} points for {name} (95 % interval {low:+.1f} to {high:+.1f}; "
        f"p = {chance:.2g}). Of {paired.count:,} test images {paired.won} are right with {name} only, "
        f"{paired.lost} with {other} only."
    )


# --- what differs ---


def differing(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Settings in which ``runs`` differ, each with its text in every run."""
    plain = [_flat(run) for run in runs]
    names = dict.fromkeys(name for one in plain for name in one)
    texts = {name: [str(one.get(name, "")) for one in plain] for name in names}
    return [(name, row) for name, row in texts.items() if len(set(row)) > 1]


def _flat(run: Run) -> dict[str, object]:
    """Settings by name, those of the method and of the recipe beside the others."""
    found: dict[str, object] = {}
    for name, value in run.configuration.items():
        if isinstance(value, dict):
            found |= {str(key): one for key, one in value.items()}
        else:
            found[name] = "" if value is None else value
    return found


def _chart(group: Sequence[Compared]) -> str:
    """The answers of runs on the same images as named points, by a cost that is known of all."""
    shown = [(run.folder.name, answer) for run, answer in group if answer.best.accuracy is not None]
    best = [answer.best for _, answer in shown]
    axis = next((name for name in ("latency_ms", "params", "macs") if has_all(best, name)), None)
    if axis is None or len(shown) < 2 or len({height_label(answer) for _, answer in shown}) > 1:
        return ""
    marks = [
        Mark(
            float(getattr(answer.best, axis)),
            float(answer.best.accuracy or 0.0),
            f"{name}: {accuracy_text(answer.best)}",
            "chosen",
            label=name,
        )
        for name, answer in shown
    ]
    return scatter("accuracy against cost", marks, cost_label(axis), height_label(shown[0][1]))
