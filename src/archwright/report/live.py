"""What the dashboard says of runs at this moment, as JSON: read from their files, without any lock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from archwright.errors import ArchwrightError
from archwright.imports import file_of
from archwright.report.columns import accuracy_text, latency_text
from archwright.report.folders import every_run
from archwright.report.front import front_chart
from archwright.report.page import diagnostics_section, search_section, times_section, title_of
from archwright.report.parts import REPORT, duration, section
from archwright.report.story import Story
from archwright.runs.files import Json, read_json
from archwright.runs.progress import FILE as PROGRESS
from archwright.runs.progress import said_seconds, seconds_left
from archwright.runs.run import Run
from archwright.runs.telling import told
from archwright.search.answer import RESULT, Answer, Candidate
from archwright.search.configuration import ASK_AND_TELL, foreign, imports
from archwright.search.tried import read_tried

MOST_RUNS = 200
"""The newest ones are listed."""
UNREADABLE = (ArchwrightError, OSError, LookupError, TypeError, ValueError, AttributeError)
"""What reading a damaged run may raise; its header is checked, the rest of it is somebody's files."""


def overview(root: Path) -> dict[str, Json]:
    """The runs, newest first."""
    rows = [_row(name, run) for (name, run), _ in zip(every_run(root), range(MOST_RUNS), strict=False)]
    return {"runs": rows}


def _row(name: str, run: Run | str) -> dict[str, Json]:
    """What the list shows of a run, and what it is sorted and searched by."""
    if isinstance(run, str):
        return {"name": name, "status": "damaged", "title": name, "result": run}
    try:
        best = _best(run)
        return {
            "name": name,
            "status": run.status(),
            "title": title_of(run.configuration),
            "result": _result(best),
            "method": str(run.configuration["method"]),
            "created": str(run.header["created"]),
            "accuracy": None if best is None else best.accuracy,
            "latency_ms": None if best is None else best.latency_ms,
            "note": run.note,
        }
    except UNREADABLE as error:
        return {"name": name, "status": "damaged", "title": name, "result": str(error)}


def _best(run: Run) -> Candidate | None:
    """The answer of a finished run."""
    return Answer.read(run.folder).best if (run.folder / RESULT).exists() else None


def _result(best: Candidate | None) -> str:
    """How good and how quick, as short as it can be; a user's own score has no unit that we know."""
    if best is None:
        return ""
    accuracy = accuracy_text(best).partition(" (")[0]
    return ", ".join(filter(None, (accuracy, latency_text(best.latency_ms))))


def detail(run: Run, story: Story) -> dict[str, Json]:
    """Everything about one run, as JSON: stages, bars, charts as HTML, log, and what can be done with it.

    Args:
        run: finished or not.
        story: what its events tell.
    """
    status = run.status()
    study = run.configuration.get("evaluate") == ASK_AND_TELL
    return {
        "name": run.folder.name,
        "status": status,
        "title": title_of(run.configuration),
        "result": _result(_best(run)),
        "note": run.note,
        "can_delete": status != "running",
        "created": str(run.header["created"]).replace("T", " "),
        "stages": _stages(run, story, status),
        "bars": _bars(run) if status == "running" else [],
        "charts": _charts(run, story, status),
        "log": [told(event) for event in story.last],
        "report": REPORT,
        "stopping": status == "running" and run.stop_file.exists(),
        "can_stop": status == "running" and not study,
        "can_resume": status == "stopped" and not study,
        "imports": executed(run.configuration),
    }


def _charts(run: Run, story: Story, status: str) -> str:
    """The front of a finished run; what was trained and evaluated so far; the time of every stage, in all of them."""
    finished = status == "finished" and (run.folder / RESULT).exists()
    answer = Answer.read(run.folder) if finished else None
    front = section("Accuracy and cost", front_chart(answer, read_tried(run.folder))) if answer is not None else ""
    now = time.time() if status == "running" else None
    return front + search_section(run, story, answer) + diagnostics_section(story) + times_section(run, story, now)


def executed(configuration: Mapping[str, Json]) -> list[str]:
    """What a resumed run would run that is not ours: files, pickles of a benchmark, answers of a cluster."""
    return [*map(file_of, imports(configuration)), *foreign(configuration)]


def _stages(run: Run, story: Story, status: str) -> list[dict[str, Json]]:
    """Each stage of the run: done, at work or to do."""
    spent, current = story.seconds(time.time() if status == "running" else None), story.stage
    rows = []
    for one in run.header.get("plan", []):
        name = one["name"]
        done = status == "finished" or run.stage_result(name) is not None
        at_work = status == "running" and name == current
        state = "done" if done else "at work" if at_work else "begun" if name == current else "to do"
        rows.append(
            {"title": str(one["title"]), "state": state, "time": duration(spent[name]) if name in spent else ""}
        )
    return rows


def _bars(run: Run) -> list[dict[str, Json]]:
    """The bars of the process at work, with the time left."""
    found: list[dict[str, Json]] = []
    with suppress(*UNREADABLE):  # it is replaced or gone at any moment
        for bar in read_json(run.folder / PROGRESS)["bars"]:
            done, total = float(bar["done"]), float(bar["total"])
            seconds = seconds_left(done - float(bar["before"]), total - done, time.time() - bar["begun"])
            left = "" if seconds is None else f"about {said_seconds(seconds)} left"
            texts = [f"{done:,.0f} of {total:,.0f}", left, str(bar["note"])]
            found.append(
                {
                    "title": str(bar["title"]),
                    "share": min(1.0, done / total) if total > 0 else 0.0,
                    "text": ", ".join(text for text in texts if text),
                }
            )
    return found
