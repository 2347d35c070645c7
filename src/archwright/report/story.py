"""What pages show of a run's events and evaluations, gathered in one pass, so that a long run takes no more memory.

A page that is shown again and again reads on from where it was (:class:`Reader`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from math import inf, isfinite

from archwright.runs.files import Json, Place
from archwright.runs.run import Run

MOST_LINES = 400
"""Of the log, the last ones."""
MOST_TRAININGS = 40
"""Trainings whose losses are kept: the latest ones."""
MOST_POINTS = 800
"""Of one curve; where there are more, every second one goes."""

Point = tuple[float, float]


class Curve:
    """Points of rising x, thinned out evenly where there are many; a repeated x begins anew from there."""

    def __init__(self) -> None:
        self._points: list[Point] = []
        self._last: Point | None = None
        self._every = 1
        self._skipped = 0

    def add(self, x: float, y: float) -> None:
        """Take one more point (``x``, ``y``); where ``x`` does not rise, points from there on are dropped first."""
        if self._last is not None and x <= self._last[0]:  # after a kill, epochs are told again
            self._points = [point for point in self._points if point[0] < x]
            self._skipped = 0
        self._last = (x, y)
        if self._skipped == 0:
            self._points.append(self._last)
            if len(self._points) > MOST_POINTS:
                self._points, self._every = self._points[::2], 2 * self._every
        self._skipped = (self._skipped + 1) % self._every

    @property
    def points(self) -> list[Point]:
        """From the first to the last."""
        if self._last is None or self._points[-1] == self._last:
            return list(self._points)
        return [*self._points, self._last]


class Story:
    """What happened so far."""

    def __init__(self) -> None:
        self.last: deque[Mapping[str, Json]] = deque(maxlen=MOST_LINES)
        """The last events."""
        self.stage: str | None = None
        """The stage that was begun last."""
        self.trainings: dict[str, Curve] = {}
        """Loss by epoch of the latest trainings, by stage and what is trained."""
        self.parts: dict[str, Curve] = {}
        """Loss by percent of the training, of trainings whose steps are counted, by name."""
        self.entropies: dict[str, Curve] = {}
        """Entropy of the decisions by epoch, by cell."""
        self.skip_shares: dict[str, Curve] = {}
        """Share of skip connections by epoch, by cell."""
        self.evaluations, self.best = Curve(), Curve()
        """What each evaluation gave, by its number, and the best until then."""
        self._spent: dict[str, float] = {}
        self._current, self._since = "", 0.0
        self._known: set[int] = set()
        self._evaluated, self._highest = 0, -inf

    @property
    def hidden(self) -> int:
        """Trainings that are not among the latest."""
        return len(self._known) - len(self.trainings)

    def seconds(self, now: float | None = None) -> dict[str, float]:
        """Of each stage, over all sessions; one under way counts until ``now``, where that is given."""
        spent = dict(self._spent)
        if self._current and now is not None:
            spent[self._current] = spent.get(self._current, 0.0) + max(0.0, now - self._since)
        return spent

    def add(self, event: Mapping[str, Json]) -> None:
        """One more event; what is not as we write it (it may be somebody else's) is passed over."""
        self.last.append(event)
        kind = event["kind"]
        if kind in ("stage", "interrupted", "finished", "started"):
            self._turn(event)
        elif kind == "epoch":
            self._train(event)
        elif kind == "part":
            self._advance(event)
        if "cells" in event:
            self._diagnose(event)

    def add_evaluation(self, result: Json) -> None:
        """One more finished evaluation."""
        accuracy = _number(result.get("accuracy")) if isinstance(result, dict) else None
        if accuracy is not None:
            self._evaluated, self._highest = self._evaluated + 1, max(self._highest, accuracy)
            self.evaluations.add(self._evaluated, accuracy)
            self.best.add(self._evaluated, self._highest)

    def _turn(self, event: Mapping[str, Json]) -> None:
        if self._current:
            self._spent[self._current] = self._spent.get(self._current, 0.0) + event["time"] - self._since
        self._current, self._since = "", event["time"]
        name = event.get("name")
        if event["kind"] == "stage" and isinstance(name, str):
            self._current = self.stage = name

    def _train(self, event: Mapping[str, Json]) -> None:
        epoch, loss = _number(event.get("epoch")), _number(event.get("loss"))
        if epoch is None or loss is None:
            return
        which = [value for key, value in event.items() if isinstance(value, str) and key not in ("kind", "stage")]
        name = " ".join([str(event.get("stage", "")), *which])
        if name not in self.trainings:
            if hash(name) in self._known:
                return
            self._known.add(hash(name))
            self.trainings[name] = Curve()
            if len(self.trainings) > MOST_TRAININGS:
                del self.trainings[next(iter(self.trainings))]
        self.trainings[name].add(epoch + 1, loss)

    def _advance(self, event: Mapping[str, Json]) -> None:
        percent, loss, name = _number(event.get("percent")), _number(event.get("loss")), event.get("training")
        if percent is not None and loss is not None and isinstance(name, str):
            self.parts.setdefault(name, Curve()).add(percent, loss)
            if len(self.parts) > MOST_TRAININGS:
                del self.parts[next(iter(self.parts))]

    def _diagnose(self, event: Mapping[str, Json]) -> None:
        epoch, cells = _number(event.get("epoch")), event.get("cells")
        if epoch is None or not isinstance(cells, dict):
            return
        for name, state in cells.items():
            for kind, curves in (("entropy", self.entropies), ("skip_share", self.skip_shares)):
                value = _number(state.get(kind)) if isinstance(state, dict) else None
                if value is not None:
                    curves.setdefault(name, Curve()).add(epoch + 1, value)


def _number(value: Json) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) else None


class Reader:
    """The story of one run, read on from where it was left.

    Attributes:
        lock: for those who share it: hold it while reading and while using what was read.
    """

    def __init__(self, run: Run) -> None:
        self.run, self.lock = run, threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._story = Story()
        self._places = {"events.jsonl": Place(), "items/search.jsonl": Place()}
        self._files: dict[str, int] = {}

    def read(self) -> Story:
        """All until now; anew where a file was replaced."""
        if any(self._is_another(name) for name in self._places):
            self._begin()
        events, items = self._places
        for event, place in self.run.events_after(self._places[events]):
            self._story.add(event)
            self._places[events] = place
        for result, place in self.run.results_after("search", self._places[items]):
            self._story.add_evaluation(result)
            self._places[items] = place
        return self._story

    def _is_another(self, name: str) -> bool:
        """Whether a log is not the file that was read from before, or has lost something since."""
        place = self._places[name]
        try:
            found = (self.run.folder / name).stat()
        except FileNotFoundError:
            return place.bytes > 0
        known = self._files.setdefault(name, found.st_ino)
        return known != found.st_ino or found.st_size < place.bytes
