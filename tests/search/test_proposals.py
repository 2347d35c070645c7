"""How a search asks for accuracies: batches, repeats, and the end of a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import archwright.search.evaluator
from archwright.device import Device
from archwright.errors import InfeasibleError, Interrupted
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.search.evaluator import Evaluated, Evaluator
from archwright.search.proposals import evaluate_proposals, feasible_sample
from archwright.spaces.nasbench201 import NASBENCH201, Cell201

CELLS = [Cell201((3, 3, 3, 3, 3, last)) for last in range(5)]


class Table:
    """Stands for a benchmark: accuracy is the last edge's operation."""

    name, space, datasets, devices = "fake", "nasbench201", ("cifar10",), ()
    search_protocol = ("validation", 12)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    made = Context(
        Configuration(method="random", benchmark="fake"), Run.create(tmp_path / "run", {}, {}), Device("cpu", 1)
    )
    made.task.__dict__["table"] = Table()
    monkeypatch.setattr(archwright.search.evaluator, "look_up", look_up)
    return made


def look_up(payload: Any, stop: Stop) -> Any:
    return {"accuracy": float(NASBENCH201.parse(payload["architecture"]).operations[-1])}


def in_turn(history: Sequence[Evaluated], number: int) -> Cell201:
    return CELLS[number % len(CELLS)]


def test_the_past_grows_by_batches(context: Context) -> None:
    seen: list[tuple[int, int]] = []

    def propose(history: Sequence[Evaluated], number: int) -> Cell201:
        seen.append((len(history), number))
        return CELLS[number]

    history = evaluate_proposals(context, "search", propose, 5, batch=2)
    assert seen == [(0, 0), (0, 1), (2, 2), (2, 3), (4, 4)]
    assert [one.accuracy for one in history] == [0, 1, 2, 3, 4]


def test_equal_architectures_are_evaluated_once_and_counted_each_time(context: Context) -> None:
    history = evaluate_proposals(context, "search", in_turn, 12, batch=3)
    assert [one.accuracy for one in history] == [n % 5 for n in range(12)]
    assert len(context.run.items("search").done) == 5
    assert Evaluator(context, "search")([CELLS[4], CELLS[0], CELLS[4]]) == [4, 0, 4]


class StopAfter(Stop):
    """The time budget ends when ``count`` evaluations are on disk."""

    def __init__(self, run: Run, count: int) -> None:
        super().__init__()
        self.run, self.count = run, count

    @property
    def out_of_time(self) -> bool:
        return len(self.run.items("search").done) >= self.count


@pytest.mark.parametrize("done", [0, 1, 3, 4])
def test_the_end_of_a_session_interrupts_and_the_next_one_goes_on(context: Context, done: int) -> None:
    """A search that ended early instead would answer otherwise than one that was never stopped."""
    context.stop = StopAfter(context.run, done)
    with pytest.raises(Interrupted):
        evaluate_proposals(context, "search", in_turn, 5, batch=4)
    assert len(context.run.items("search").done) == done
    context.stop = Stop()
    history = evaluate_proposals(context, "search", in_turn, 5, batch=4)
    assert [one.accuracy for one in history] == list(range(5))


def test_a_signal_interrupts_whatever_is_done(context: Context) -> None:
    context.stop = StopAfter(context.run, 3)
    context.stop._signal = "Ctrl-C"
    with pytest.raises(Interrupted, match="Ctrl-C"):
        evaluate_proposals(context, "search", in_turn, 5)


def test_a_feasible_sample_is_connected(context: Context) -> None:
    draws = iter([Cell201((0,) * 6), Cell201((1, 0, 0, 0, 0, 0)), CELLS[2]])
    assert feasible_sample(context, lambda: next(draws)) == CELLS[2]
    with pytest.raises(InfeasibleError, match="connectedness"):
        feasible_sample(context, lambda: Cell201((0,) * 6), tries=10)


def test_random_numbers_depend_on_seed_purpose_and_numbers_only(context: Context) -> None:
    def draw(*key: Any) -> float:
        return float(context.rng(*key).random())

    assert draw("a", 1) == draw("a", 1)
    assert len({draw("a", 1), draw("a", 2), draw("b", 1), draw("a")}) == 4
    assert np.random.default_rng(0).random() != draw("a")
