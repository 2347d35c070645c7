"""Latencies that BINAS promises: steps down of a tenth at most, a margin below the limit, and a busy machine said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from archwright.costs.measure import Latency, Timing
from archwright.methods.binas import latency
from archwright.methods.binas.latency import MARGIN, Clock, limit_above, say_if_busy
from archwright.methods.binas.tables import with_room
from archwright.runs.progress import Progress
from archwright.runs.stop import Stop
from archwright.solvers.problem import Solution
from helpers.binas_plans import space_of, table_of

SPACE = space_of()
TABLE = table_of(SPACE)
PROBLEM = TABLE.costs(SPACE).problem(SPACE)
DRAWN = PROBLEM.sample(3000, np.random.default_rng(0))
COSTS = PROBLEM.evaluate(DRAWN)[1]["latency_ms"]


def slowest(limits: dict[str, float]) -> Solution:
    """The slowest of some networks within the limit, so that it is used up."""
    place = int(np.where(limits["latency_ms"] >= COSTS, COSTS, -np.inf).argmax())
    return PROBLEM.solution(DRAWN[place], 0.0, 0.0, "drawn")


def clock(factor: float, lightest: float = 1.0) -> Clock:
    """Of a device where networks take ``factor`` times what the table says."""
    least = float(TABLE.predict(SPACE, [SPACE.lightest()])[0])
    made = Clock(SPACE, TABLE, least, Progress(), Stop())

    def latency_of(architecture: Any) -> Latency:
        times = lightest if architecture == SPACE.lightest() else factor
        ms = times * float(TABLE.predict(SPACE, [architecture])[0])
        return Latency(ms, 0.9 * ms, 1.5 * ms)

    made.latency_of = latency_of  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.5])
def test_the_first_network_that_keeps_the_limit_is_taken(factor: float) -> None:
    least, most = PROBLEM.cost_range("latency_ms")
    limit = (least + most) / 2
    solution, timed, steps = clock(factor).step_down(slowest, {"latency_ms": limit}, least)
    assert timed.median_ms <= MARGIN * limit
    assert timed.median_ms == pytest.approx(factor * solution.costs["latency_ms"])
    assert solution.costs["latency_ms"] >= 0.85 * MARGIN * limit / factor  # no more is given up than must be
    assert steps >= (factor > 1) + (factor > 1.2)  # at least two for half as much again


def test_one_slow_moment_costs_nothing() -> None:
    least, most = PROBLEM.cost_range("latency_ms")
    made, calls = clock(1.0), [0]
    steady = made.latency_of

    def slow_once(architecture: Any) -> Latency:
        shown = steady(architecture)
        if architecture == SPACE.lightest():
            return shown
        calls[0] += 1
        return Latency(*[9 * shown.median_ms] * 3) if calls[0] == 1 else shown

    made.latency_of = slow_once  # type: ignore[method-assign]
    limit = most / MARGIN
    solution, timed, steps = made.step_down(slowest, {"latency_ms": limit}, least)
    assert (steps, calls[0]) == (0, 2)
    assert timed.median_ms == pytest.approx(solution.costs["latency_ms"])


def test_the_reference_is_made_ready_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Watch:
        timing = Timing(repeats=3)

        def __init__(self, module: Any, *_: Any) -> None:
            made.append(module)

        def times_ms(self, repeats: int) -> Any:
            return np.full(repeats, 2.0)

    monkeypatch.setattr(latency, "Stopwatch", Watch)
    timing = Clock(SPACE, TABLE, 1.0, Progress(), Stop())
    assert [timing.time(SPACE.heaviest()).median_ms for _ in range(3)] == [1.0] * 3
    assert len(made) == 1 + 3


def test_the_spread_is_divided_by_the_slowdown_of_the_median_alone() -> None:
    heaviest = SPACE.heaviest()
    timed = clock(2.0, lightest=2.0).time(heaviest)
    expected = float(TABLE.predict(SPACE, [heaviest])[0])
    assert timed.slowdown == pytest.approx(2.0)
    assert (timed.median_ms, timed.high_ms) == pytest.approx((expected, 1.5 * expected))
    assert timed.raw_median_ms == pytest.approx(2 * expected)


@pytest.mark.parametrize(
    ("medians", "busy"), [((1.0, 1.1, 1.05, 1.0, 1.2, 1.1, 9.0), False), ((1, 2, 3, 1, 2, 3, 2), True)]
)
def test_a_busy_machine_is_said(medians: tuple[float, ...], busy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    class Lines(Progress):
        def say(self, text: str) -> None:
            said.append(text)

    rounds = [Latency(ms, ms, ms) for ms in medians]
    monkeypatch.setattr(latency, "_rounds", lambda *_: rounds)
    assert say_if_busy(SPACE, Timing(), Lines()) is busy
    assert any("--remeasure" in line for line in said) is busy


def test_limits_of_our_own_choice_leave_room_for_what_was_timed() -> None:
    assert with_room([1.0, 2.0], None) == [1.0, 2.0]
    assert with_room([1.0, 2.0], 0.5) == [1.0, 2.0]
    assert with_room([1.0, 2.0], 1.0) == [1.25, 2.5]
    assert with_room([], 1.0) == []


def test_a_network_is_held_to_the_tightest_limit_that_it_was_thought_to_keep() -> None:
    sets = [{"latency_ms": 2.0, "params": 1e5}, {"latency_ms": 1.0, "params": 1e5}, {"latency_ms": 4.0}]
    assert [limit_above(sets, latency) for latency in (0.5, 1.0, 1.5, 4.5)] == [1.0, 1.0, 2.0, float("inf")]
    assert limit_above([{"params": 1e5}], 0.5) == float("inf")
