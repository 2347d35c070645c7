"""What pages gather of a run in one pass, against the same over all events at once."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archwright.errors import RunError
from archwright.report.page import run_page
from archwright.report.story import MOST_LINES, MOST_POINTS, MOST_TRAININGS, Curve, Reader, Story
from archwright.runs.run import Run

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "h"])
STAGES = st.sampled_from(["search", "train", "answer"])
EVENTS = st.lists(
    st.one_of(
        st.fixed_dictionaries({"kind": st.sampled_from(["started", "interrupted", "finished", "said"])}),
        st.fixed_dictionaries({"kind": st.just("stage"), "name": STAGES, "title": st.just("t")}),
        st.fixed_dictionaries(
            {"kind": st.just("epoch"), "stage": STAGES, "architecture": NAMES, "loss": st.floats(0, 9)}
        ),
    ),
    max_size=80,
)


def numbered(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With rising times, and epochs that count up within a training."""
    epochs: dict[str, int] = {}
    found = []
    for time, event in enumerate(events):
        one = {**event, "time": float(time)}
        if event["kind"] == "epoch":
            key = f"{event['stage']} {event['architecture']}"
            epochs[key] = epochs.get(key, -1) + 1
            one["epoch"] = epochs[key]
        found.append(one)
    return found


def naive_seconds(events: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    ends = [n for n, event in enumerate(events) if event["kind"] in ("stage", "interrupted", "finished", "started")]
    spent: dict[str, float] = {}
    for begin, end in pairwise(ends):
        if events[begin]["kind"] == "stage":
            name = events[begin]["name"]
            spent[name] = spent.get(name, 0.0) + events[end]["time"] - events[begin]["time"]
    return spent


def naive_trainings(events: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event["kind"] == "epoch":
            name = f"{event['stage']} {event['architecture']}"
            found.setdefault(name, []).append((event["epoch"] + 1, event["loss"]))
    return found


@given(EVENTS)
def test_one_pass_gives_what_all_events_at_once_give(drawn: list[dict[str, Any]]) -> None:
    events, story = numbered(drawn), Story()
    for event in events:
        story.add(event)
    every = naive_trainings(events)
    assert {name: curve.points for name, curve in story.trainings.items()} == dict(
        list(every.items())[-MOST_TRAININGS:]
    )
    assert story.hidden == max(0, len(every) - MOST_TRAININGS)
    assert story.seconds() == pytest.approx(naive_seconds(events))
    assert story.stage == next((event["name"] for event in reversed(events) if event["kind"] == "stage"), None)
    assert list(story.last) == events[-MOST_LINES:]


@given(st.integers(1, 5000))
def test_a_long_curve_keeps_its_shape_and_both_ends(count: int) -> None:
    curve = Curve()
    for x in range(count):
        curve.add(x, x * x)
    points = curve.points
    assert points[0] == (0, 0)
    assert points[-1] == (count - 1, (count - 1) ** 2)
    assert len(points) == count or MOST_POINTS / 2 <= len(points) <= MOST_POINTS + 1
    assert all(y == x * x for x, y in points)
    steps = {b[0] - a[0] for a, b in pairwise(points[:-1])}
    assert len(steps) <= 1


def test_epochs_told_again_after_a_kill_are_drawn_once() -> None:
    curve = Curve()
    for x in (1, 2, 3, 2, 3, 4):
        curve.add(x, 10 * x)
    assert curve.points == [(1, 10), (2, 20), (3, 30), (4, 40)]


def test_diagnostics_and_evaluations(tmp_path: Path) -> None:
    story = Story()
    for epoch in range(3):
        cells = {"normal": {"entropy": 1.0 - epoch / 4, "skip_share": epoch / 4}}
        story.add({"time": 0, "kind": "epoch", "epoch": epoch, "cells": cells})
    for accuracy in (50, None, 40, "x", 70):
        story.add_evaluation({"accuracy": accuracy})
    assert story.entropies["normal"].points == [(1, 1.0), (2, 0.75), (3, 0.5)]
    assert story.skip_shares["normal"].points == [(1, 0), (2, 0.25), (3, 0.5)]
    assert story.evaluations.points == [(1, 50), (2, 40), (3, 70)]
    assert story.best.points == [(1, 50), (2, 50), (3, 70)]


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "stage"},
        {"kind": "stage", "name": ["x"]},
        {"kind": "epoch", "epoch": "3", "loss": 1.0},
        {"kind": "epoch", "epoch": 3, "loss": None},
        {"kind": "epoch", "epoch": True, "loss": 1.0},
        {"kind": "diagnostics", "epoch": 1, "cells": [1]},
        {"kind": "diagnostics", "epoch": 1, "cells": {"a": 3, "b": {"entropy": {}}}},
        {"kind": "diagnostics"},
    ],
)
def test_odd_events_of_somebody_else_are_passed_over(event: dict[str, Any]) -> None:
    story = Story()
    story.add({"time": 1.0, **event})
    assert not story.trainings
    assert not story.entropies
    assert story.seconds(5.0) == {}


# --- read on ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"method": "random", "space": "nasbench201", "seed": 1}, {})


def test_a_reader_reads_on_and_nothing_twice(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(run)
    assert list(reader.read().last) == []
    items = run.items("search")
    for number in range(3):
        run.event("noted", number=number)
        items.record(str(number), {"accuracy": number})
        story = reader.read()
        assert [event["number"] for event in story.last] == list(range(number + 1))
        assert len(story.evaluations.points) == number + 1
    monkeypatch.setattr("archwright.runs.files.JsonLines._read", lambda *_: 1 / 0)
    assert len(reader.read().last) == 3


def test_a_reader_begins_anew_where_a_file_was_replaced_or_cut(run: Run) -> None:
    reader = Reader(run)
    for number in range(3):
        run.event("noted", number=number)
    reader.read()
    log = run.folder / "events.jsonl"
    first = log.read_text().splitlines(keepends=True)[0]
    log.write_text(first)
    assert [event["number"] for event in reader.read().last] == [0]
    log.rename(run.folder / "old.jsonl")
    assert list(reader.read().last) == []
    run.event("noted", number=7)
    assert [event["number"] for event in reader.read().last] == [7]


def test_a_torn_line_waits_and_a_damaged_one_is_named_again_and_again(run: Run) -> None:
    reader = Reader(run)
    run.event("noted", number=0)
    with (run.folder / "events.jsonl").open("a") as log:
        log.write('{"time": 1, "kind": "no')
        log.flush()
        assert len(reader.read().last) == 1
        log.write('ted"}\nrubbish\n')
    for _ in range(2):
        with pytest.raises(RunError, match="line 3"):
            reader.read()


def test_the_page_of_a_long_run_takes_no_more_memory_than_of_a_short_one(run: Run) -> None:
    def most(events: int) -> int:
        with (run.folder / "events.jsonl").open("w") as log:
            for number in range(events):
                epoch = {"kind": "epoch", "stage": "search", "architecture": f"cell {number // 6}", "loss": 1.0}
                log.write(json.dumps({"time": number, **epoch, "epoch": number % 6, "text": "x" * 200}) + "\n")
        tracemalloc.start()
        text = run_page(run)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert "training loss by epoch" in text
        return peak

    most(100)
    assert most(20_000) - most(1000) < 2_000_000  # the names of trainings that were seen; the events have 7 MB
