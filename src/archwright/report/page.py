"""The page of a run: what was asked, what was found, why, how to use it and how long everything took.

A finished run is shown by its typed answer; a stopped or running one by its list of stages and its events so far.
Several runs are compared by :mod:`archwright.report.compared`. Everything that a run says (names, paths, class names)
is escaped.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from archwright.analysis.drawing import draw_cells
from archwright.analysis.drawing_choices import draw_choices
from archwright.analysis.drawing_stages import draw_stages
from archwright.costs.limits import RESOURCES
from archwright.errors import ArchwrightError
from archwright.references import SpaceRef
from archwright.report.charts import SERIES, bars, lines
from archwright.report.columns import accuracy_text, latency_text, limits_text, model_note, model_table, reasons
from archwright.report.front import front_chart, objectives_chart
from archwright.report.insights import insights
from archwright.report.parts import REPORT, duration, section, source_of, table, unbroken
from archwright.report.story import Reader, Story
from archwright.report.style import page
from archwright.report.tested import errors_of
from archwright.runs.files import Json, reading, write_atomic
from archwright.runs.run import Run, resume_command
from archwright.search.answer import Answer, Beside, Candidate
from archwright.search.beside import CHANCE
from archwright.search.flags import command_of, only_in_memory
from archwright.search.tried import read_tried
from archwright.search.values import OWN_FUNCTION
from archwright.spaces.base import Space
from archwright.spaces.registry import spaces
from archwright.spaces.staged import StagedSpace
from archwright.spaces.width import Width

LARGEST_PICTURE = 400_000
"""Bytes of a picture that goes into the page; larger ones are linked."""
LARGEST_PAGE = 2_000_000
FIRST_ROWS, MOST_ROWS = 10, 100
"""Of the table of a front: rows that are shown at once, and in all."""
DRAWN = ("polynomial.png", "diagnostics.png")
"""Pictures of what the page draws itself; they are linked."""
WORDS = {
    "contributions.png": "bars of what each design decision gains in every stage, with two errors, and of its cost"
}
"""What pictures show, for those who cannot see them; of others only the name is known."""


def report_run(folder: Path) -> Path:
    """Write the page of the run in ``folder`` into it and return its path."""
    run = Run.open(folder)
    path = folder / REPORT
    with reading(folder):
        text = run_page(run)
    write_atomic(path, text.encode())
    return path


def run_page(run: Run, story: Story | None = None, linked: bool = True) -> str:
    """The whole HTML page of ``run``, finished or not.

    Args:
        run: that is shown.
        story: what its events tell, if that is known already.
        linked: whether images are linked where they lie on this machine, which a page on a server cannot.
    """
    asked = run.configuration
    title = title_of(asked)
    answer = Answer.read(run.folder) if run.status() == "finished" else None
    story = Reader(run).read() if story is None else story
    parts = [f"<h1>{escape(title)}</h1>", _wish(asked), section("Note", _note(run.note))]
    parts += _found(run, answer) if answer is not None else [_under_way(run)]
    if answer is not None:
        parts += [
            _models(answer),
            section("Objectives", objectives_chart(answer, read_tried(run.folder)) + _front_table(answer)),
            section("Accuracy and cost", _priced(answer, run)),
            _members(answer),
            _beside(answer),
            _use(run, answer),
            *(section(name, body) for name, body in errors_of(run, answer.best.model, linked)),
            _drawing(run, answer),
        ]
        parts.append(section("Why", insights(run, answer)))
    parts += [
        search_section(run, story, answer),
        diagnostics_section(story),
        _pictures(run),
        times_section(run, story),
        _asked(run),
    ]
    return page(escape(title), "".join(part for part in parts if part))


def title_of(asked: Mapping[str, Json]) -> str:
    """What was asked, in a few words; of a path the last part."""
    shown = source_of(asked)
    return f"{asked['method']} on {asked['space']}" + (f", {shown}" if shown else "") + f", seed {asked['seed']}"


def _fact(name: str, value: str) -> str:
    return f"<div><span>{escape(name)}</span>{escape(value)}</div>"


def _wish(asked: Mapping[str, Json]) -> str:
    """What was asked for, in a line."""
    words = []
    for name, limits in (asked.get("limits") or {}).items():
        many = limits if isinstance(limits, list) else [limits]
        what = RESOURCES[name].meaning if name in RESOURCES else name
        words.append(f"{what} at most {' or '.join(f'{one:g}' for one in many)}")
    if asked.get("minutes") is not None:
        words.append(f"within {asked['minutes']:g} min")
    return f'<p class="soft">Asked: {escape("; ".join(words))}.</p>' if words else ""


def _found(run: Run, answer: Answer) -> list[str]:
    """The answer first: how good, how fast, how large."""
    best = answer.best
    facts = []
    if best.latency_ms is not None:
        facts.append(_fact("latency", latency_text(best.latency_ms)))
    if best.params is not None:
        facts.append(_fact("parameters", f"{best.params:,}"))
    if best.macs is not None:
        facts.append(_fact("multiply-accumulates", f"{best.macs:,}"))
    if best.validation_accuracy is not None:
        facts.append(_fact("on validation", f"{best.validation_accuracy:.2f} %"))
    facts += [_fact(f"test {name}", f"{tested:.2f} %") for name, tested in (best.tests or {}).items()]
    facts += [_fact("networks looked at", f"{answer.evaluations:,}"), _fact("time", duration(answer.seconds))]
    interval = ""
    if best.accuracy_interval is not None:
        interval = f" (95 % interval {best.accuracy_interval[0]:.1f} to {best.accuracy_interval[1]:.1f})"
    own = best.accuracy_on == OWN_FUNCTION  # a score of the user's own is in no unit that we know
    accuracy = "not measured" if best.accuracy is None else f"{best.accuracy:.6g}" if own else f"{best.accuracy:.2f} %"
    style = ' class="warn"' if (answer.verdict or "").startswith("Warning") else ""
    said = f"<p{style}>{escape(answer.verdict)}</p>" if answer.verdict else ""
    body = (
        f'<p class="big">{accuracy}</p><p class="soft">{escape(_on(best.accuracy_on) + interval)}</p>'
        f'<div class="facts">{"".join(facts)}</div>{said}'
    )
    return [section("Found", body)]


def _link(path: str, text: str) -> str:
    """To a file of the run; a path that leads elsewhere, in somebody else's run, stays text."""
    parts = PurePosixPath(path).parts
    if not parts or parts[0] != "artifacts" or ".." in parts:
        return escape(text)
    return f'<a href="{escape(quote(path))}">{escape(text)}</a>'


def _on(what: str | None) -> str:
    return "" if what is None else f"by {what}" if what == OWN_FUNCTION else f"correct on {what}"


def _under_way(run: Run) -> str:
    done = [one for one in run.header.get("plan", []) if run.stage_result(one["name"]) is not None]
    total = len(run.header.get("plan", []))
    state = run.status()
    text = f"<p>This run is {state}: {len(done)} of {total or 'its'} stages are done.</p>"
    if state == "stopped":
        text += f"<pre><code>{escape(resume_command(run.folder.resolve()))}</code></pre>"
    return section("Not finished", text)


def _models(answer: Answer) -> str:
    """One row a model, with its files."""
    if not answer.models:
        return ""
    heads, texts = model_table(answer)
    both = [[path for path in (one.onnx, one.model) if path] for one in answer.models]
    files = [" ".join(_link(path, Path(path).suffix[1:]) for path in paths) for paths in both]
    rows = [[*(escape(unbroken(cell)) for cell in row), links] for row, links in zip(texts, files, strict=True)]
    body = table([*heads, "files"] if any(files) else heads, rows)
    title = "For each limit" if any(one.limits for one in answer.models) else "Models"
    return section(title, f'{body}<p class="soft">{escape(model_note(answer))}</p>{_reasons(answer)}')


def _priced(answer: Answer, run: Run) -> str:
    """Accuracy against cost, where the search did not trade objectives of its own."""
    return "" if any(one.objectives for one in answer.front) else front_chart(answer, read_tried(run.folder))


def _front_table(answer: Answer) -> str:
    """The front of several objectives, a row an architecture."""
    front = [one for one in answer.front if one.objectives]
    if not front:
        return ""
    names = list(front[0].objectives or {})
    rows = [
        [*(f"{(one.objectives or {})[name]:.6g}" for name in names), f"<code>{escape(one.architecture)}</code>"]
        for one in front[:MOST_ROWS]
    ]
    heads, first, rest = [*names, "architecture"], rows[:FIRST_ROWS], rows[FIRST_ROWS:]
    folded = f"<details><summary>{len(rest)} more</summary>{table(heads, rest)}</details>" if rest else ""
    return table(heads, first) + folded


def _reasons(answer: Answer) -> str:
    """Why a network was taken that the front does not show as best, a sentence each."""
    items = "".join(f"<li>{escape(one)}</li>" for one in reasons(answer))
    return f"<ul>{items}</ul>" if items else ""


def _members(answer: Answer) -> str:
    """What the members of an ensemble do alone and together."""
    if not answer.members or answer.best.accuracy is None:
        return ""
    rows = [("all together", answer.best.accuracy, unbroken(accuracy_text(answer.best)), True)]
    for number, one in enumerate(answer.members, 1):
        size = f", {one.params:,} parameters" if one.params is not None else ""
        rows.append((f"member {number}", one.accuracy or 0.0, unbroken(accuracy_text(one)) + size, False))
    body, known = bars(rows, 100.0), answer.ensemble
    if known is not None:
        words = {"mean error of a member": known.ate, "two members disagree": known.ppd, "calibration error": known.ece}
        facts = "".join(_fact(text, _percent(value)) for text, value in words.items())
        body += f'<div class="facts">{facts}</div>'
    return section("Members", body)


def _percent(value: float) -> str:
    return f"{value:.2f}\N{NO-BREAK SPACE}%"


def _how_good(one: Candidate | Beside) -> str:
    """Accuracy, and the latency of what was timed."""
    return unbroken(", ".join(filter(None, (f"{one.accuracy:.2f} %", latency_text(one.latency_ms)))))


def _beside(answer: Answer) -> str:
    """Simple things tried in the same time, with a bar each."""
    if not answer.beside or answer.best.accuracy is None:
        return ""
    every: dict[str, Candidate | Beside] = {"this answer": answer.best, **answer.beside}
    rows = [(name, one.accuracy or 0.0, _how_good(one), one is answer.best) for name, one in every.items()]
    simple = "Simple models, trained and tested on the same images."
    note = f'<p class="soft">{simple if CHANCE in answer.beside else "On the same images."}</p>'
    return section("Compared with", bars(sorted(rows, key=lambda row: -row[1]), 100.0) + note)


def _use(run: Run, answer: Answer) -> str:
    """How to load it: text that works when it is pasted."""
    if answer.best.model is None:
        text = "<p>No network was trained: accuracies were looked up. Search with --data to get a model.</p>"
        return section("Use it", text + f"<p><code>{escape(answer.best.architecture)}</code></p>")
    folder = run.folder.resolve()
    python = (
        "import archwright as aw\n"
        f"model = aw.load_model({str(folder)!r}{', allow_import=True' if answer.needs_import else ''})\n"
        'for prediction in model.predict(["image.png"]):\n'
        "    print(prediction.label, prediction.probability)"
    )
    shell = f"archwright predict {shlex.quote(str(folder))} image.png{' --allow-import' if answer.needs_import else ''}"
    links = [answer.best.onnx, answer.best.model]
    files = ", ".join(_link(path, path) for path in links if path)
    return section(
        "Use it",
        f"<p>Files: {files}</p><pre><code>{escape(shell)}</code></pre><pre><code>{escape(python)}</code></pre>",
    )


def _drawing(run: Run, answer: Answer) -> str:
    """Cells as graphs, of an ensemble each member's; other networks as their text."""
    return section("The network", "".join(_drawn(run, answer, one) for one in answer.members or [answer.best]))


def _drawn(run: Run, answer: Answer, one: Candidate) -> str:
    said = ""
    for name, cell in (one.topology or {}).items():
        said += (
            f"<p>{escape(name)}: width {cell['width']:g} c, depth {cell['depth']}, "
            f"{cell.get('skip_share', 0):.0%} skip connections.</p>"
        )
    own = SpaceRef.parse(str(run.configuration["space"])).kind == "model"
    picture = _chosen(run, answer, one) if own else _picture(run.configuration, one.architecture)
    return f"{picture}{said}<p><code>{escape(one.architecture)}</code></p>"


def _picture(asked: Mapping[str, Json], text: str) -> str:
    """A drawing of what is made of cells or of stages; empty for other spaces, or ones that are not here."""
    if SpaceRef.parse(str(asked["space"])).kind == "width":
        return _thinned(text)
    try:
        space: Space[Any] = spaces.get(asked["space"])
        svg = draw_stages(text) if isinstance(space, StagedSpace) else draw_cells(space.parse(text))
    except (ArchwrightError, ImportError):
        return ""
    return f'<div class="drawing">{svg}</div>'


def _chosen(run: Run, answer: Answer, one: Candidate) -> str:
    """A user's own network with its choices, as the run keeps them."""
    changes = (answer.details or {}).get("options") if one is answer.best else None
    try:
        svg = draw_choices(run.header["network"]["choices"], one.architecture, changes)
    except (ArchwrightError, LookupError, TypeError, ValueError):  # somebody else's
        return ""
    note = "What is filled was chosen."
    note += " Beside other options: what taking one would change, as predicted." if changes else ""
    return f'<div class="drawing">{svg}</div><p class="soft">{note}</p>'


def _thinned(text: str) -> str:
    """How many channels of each group of layers stay in a thinned network."""
    try:
        widths = Width(text).widths
    except (ValueError, AttributeError):  # somebody else's
        return ""
    rows = [(name, float(count), f"{count} channel{'s' * (count != 1)}", True) for name, count in widths.items()]
    return bars(rows, max(row[1] for row in rows)) if rows else ""


def _note(text: str) -> str:
    return "".join(f"<p>{escape(line)}</p>" for line in text.splitlines() if line.strip())


def search_section(run: Run, story: Story, answer: Answer | None = None) -> str:
    """Evaluations so far, and the trainings epoch by epoch, as HTML.

    Args:
        run: whose evaluations are drawn.
        story: what its events tell, with the losses of its trainings.
        answer: of a finished run: its networks' trainings are called by their limits.
    """
    body = ""
    if len(story.evaluations.points) > 1:
        series = {"each evaluation": story.evaluations.points, "best so far": story.best.points}
        own = bool(run.configuration.get("evaluate"))
        body += lines("evaluations", series, "evaluation", "score" if own else "accuracy (%)")
    losses = {name: curve.points for name, curve in story.trainings.items()}
    if any(len(points) > 1 for points in losses.values()):
        note = f'<p class="soft">{story.hidden:,} earlier trainings are not drawn.</p>' if story.hidden else ""
        body += _curves("training loss by epoch", losses, "epoch") + note
    known = {str((one.details or {}).get("network")): limits_text(one) for one in (answer.models if answer else ())}
    titles = {name: f"{name} (limit {known[name]})" if known.get(name) else name for name in story.parts}
    parts = {titles[name]: curve.points for name, curve in story.parts.items()}
    if any(len(points) > 1 for points in parts.values()):
        body += _curves("training loss of every training", parts, "part of the training (%)")
    return section("The search", body)


def _curves(title: str, losses: Mapping[str, Sequence[tuple[float, float]]], x_label: str) -> str:
    """The losses of all trainings; of many the latest are named, the earlier ones stay thin in the background."""
    names = list(losses)
    latest = {name: losses[name] for name in names[-SERIES:]}
    earlier = [losses[name] for name in names[:-SERIES]]
    return f"<h3>{escape(title.capitalize())}</h3>{lines(title, latest, x_label, 'training loss', earlier)}"


def diagnostics_section(story: Story) -> str:
    """What a differentiable search says of itself each epoch."""
    body = ""
    for title, curves, unit in (
        ("entropy of the decisions", story.entropies, "entropy (nats)"),
        ("share of skip connections", story.skip_shares, "skip share"),
    ):
        series = {name: curve.points for name, curve in curves.items()}
        if any(len(points) > 1 for points in series.values()):
            body += lines(title, series, "epoch", unit)
    return section("Diagnostics", body)


def _pictures(run: Run) -> str:
    """Plots among the artifacts: in the page where they are small, else linked."""
    found, room = [], LARGEST_PAGE // 2
    for path in sorted((run.folder / "artifacts").glob("*")):
        if path.suffix not in (".png", ".svg") or not path.is_file() or path.is_symlink():
            continue
        size, name = path.stat().st_size, path.stem.replace("-", " ").replace("_", " ")
        if path.name in DRAWN or size > min(LARGEST_PICTURE, room):
            found.append(f"<p>{_link(f'artifacts/{path.name}', name)}</p>")
            continue
        room -= size
        kind = "png" if path.suffix == ".png" else "svg+xml"
        data = base64.b64encode(path.read_bytes()).decode()
        words = escape(f"{name}: {WORDS.get(path.name, 'a plot of this run')}")
        found.append(
            f'<figure class="drawing"><img class="plot" alt="{words}" src="data:image/{kind};base64,{data}">'
            f"<figcaption>{escape(name)}</figcaption></figure>"
        )
    return section("Plots", "".join(found))


def times_section(run: Run, story: Story, now: float | None = None) -> str:
    """Seconds of every stage, over all sessions, as HTML.

    Args:
        run: with its plan.
        story: what its events tell.
        now: until when a stage under way counts; it does not by default.
    """
    spent = story.seconds(now)
    titles = {one["name"]: one["title"] for one in run.header.get("plan", [])}
    most = max(spent.values(), default=0.0)
    rows = [(titles.get(name, name), seconds, duration(seconds), False) for name, seconds in spent.items()]
    return section("Time", bars(rows, most) if rows else "")


def _asked(run: Run) -> str:
    """Command, settings, versions and machine."""
    header = run.header
    settings = {key: value for key, value in run.configuration.items() if value not in (None, {}, "", False)}
    tables = {
        "Settings": settings,
        "Versions": header.get("versions", {}),
        "Machine": header.get("machine", {}),
        "Data": {"fingerprint": header.get("fingerprint") or "none"},
    }
    body = _command(run)
    for name, values in tables.items():
        rows = "".join(
            f'<tr><th scope="row">{escape(str(key))}</th><td><code>{escape(str(value))}</code></td></tr>'
            for key, value in values.items()
        )
        body += f'<details><summary>{name}</summary><div class="wide"><table>{rows}</table></div></details>'
    where = f"{header.get('created', '')}, {run.folder.resolve()}"
    return section("Asked", f'<p class="soft">{escape(where)}</p>{body}')


def _command(run: Run) -> str:
    """What asks for the same again, where a command can."""
    named = only_in_memory(run.configuration)
    if named:
        own = escape(", ".join(named))
        return f"<p>Asked by a program, with objects of its own ({own}): no command asks for the same.</p>"
    return f"<pre><code>{escape(command_of(run.configuration))}</code></pre>"
