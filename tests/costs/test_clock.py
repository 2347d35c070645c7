"""Latencies that are promised: steps down of a tenth at most, a margin below the limit, and a busy machine said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from archwright.costs.clock import BUSY_ROUNDS, MARGIN, PAUSES, ROUNDS, Clock, limit_above, say_if_busy, stopwatch
from archwright.costs.measure import Stopwatch, Timing
from archwright.errors import InfeasibleError, Interrupted
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.solvers.problem import Solution
from helpers.binas_plans import space_of, table_of
from helpers.latency_tables import SpreadWatch
from helpers.told import Told

SPACE = space_of()
TABLE = table_of(SPACE)
PROBLEM = TABLE.costs(SPACE).problem(SPACE)
DRAWN = PROBLEM.sample(3000, np.random.default_rng(0))
# Without the lightest: it is the clock's reference here, whose time tests set apart from the others'.
DRAWN = DRAWN[[SPACE.from_choice(DRAWN[n]) != SPACE.lightest() for n in range(len(DRAWN))]]
COSTS = PROBLEM.evaluate(DRAWN)[1]["latency_ms"]
LEAST, MOST = PROBLEM.cost_range("latency_ms")


def slowest(limits: dict[str, float]) -> Solution:
    """The slowest of some networks within the limit, so that it is used up."""
    place = int(np.where(limits["latency_ms"] >= COSTS, COSTS, -np.inf).argmax())
    return PROBLEM.solution(DRAWN[place], 0.0, 0.0, "drawn")


def network(one: Solution) -> Any:
    return SPACE.from_choice(one.choice)


def predicted(architecture: Any) -> float:
    return float(TABLE.predict(SPACE, [architecture])[0])


def device(factor: float, lightest: float = 1.0) -> Callable[[Any], Any]:
    """Stopwatches of a device where networks take ``factor`` times what the table says, the lightest ``lightest``."""
    return lambda one: SpreadWatch((lightest if one == SPACE.lightest() else factor) * predicted(one))


@pytest.fixture(autouse=True)
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were waited, without waiting."""
    seconds: list[float] = []
    monkeypatch.setattr("archwright.costs.clock.time.sleep", seconds.append)
    return seconds


@pytest.fixture
def clock(tmp_path: Path) -> Callable[..., Clock[Any]]:
    """A clock over the lightest network, as it was timed when the table was made."""

    def made(watch: Callable[[Any], Any], stop: Stop | None = None, progress: Progress | None = None) -> Clock[Any]:
        log = ItemLog(tmp_path / "timed.jsonl")
        return Clock(watch, SPACE.lightest(), LEAST, progress or Progress(), stop or Stop(), log)

    return made


@pytest.mark.parametrize("factor", [1.0, 1.1, 1.5])
def test_the_first_network_that_keeps_the_limit_is_taken(factor: float, clock: Callable[..., Clock[Any]]) -> None:
    limit = (LEAST + MOST) / 2
    solution, timed, steps = clock(device(factor)).step_down(slowest, network, {"latency_ms": limit}, LEAST)
    assert timed.median_ms <= MARGIN * limit
    assert timed.median_ms == pytest.approx(factor * solution.costs["latency_ms"])
    assert solution.costs["latency_ms"] >= 0.85 * MARGIN * limit / factor  # no more is given up than must be
    assert steps >= (factor > 1) + (factor > 1.2)  # at least two for half as much again


@pytest.mark.parametrize(("factor", "reference"), [(0.6, 1.0), (0.6, 2.0)])
def test_what_is_left_of_a_limit_is_used_unless_the_machine_is_slower_now(
    factor: float, reference: float, clock: Callable[..., Clock[Any]]
) -> None:
    """Networks take .6 of what the table says; in a busy moment as much more as the one that says how busy it is."""

    def best(limits: dict[str, float]) -> Solution:
        found = slowest(limits)
        return replace(found, value=found.costs["latency_ms"])

    limit = LEAST + (MOST - LEAST) / 3
    made = clock(device(factor * reference, lightest=reference))
    solution, timed, steps = made.step_down(best, network, {"latency_ms": limit}, LEAST)
    assert steps == 0
    assert timed.median_ms <= MARGIN * limit
    assert timed.median_ms == pytest.approx(factor * predicted(network(solution)))
    assert made.log.done == {str(network(solution)): timed.model_dump()}
    assert (timed.median_ms >= 0.9 * MARGIN * limit) == (reference == 1.0)


def test_a_limit_that_nothing_keeps_is_said_with_what_was_tried(clock: Callable[..., Clock[Any]]) -> None:
    made = clock(device(9.0))
    with pytest.raises(InfeasibleError, match=f"{LEAST:.3g} ms. Raise the limit, or resume on a quieter machine"):
        made.step_down(slowest, network, {"latency_ms": 2 * LEAST}, LEAST)
    assert not made.log.done


def test_without_a_limit_on_latency_the_first_proposal_is_taken(clock: Callable[..., Clock[Any]]) -> None:
    heaviest = PROBLEM.solution(SPACE.to_choice(SPACE.heaviest()), 0.0, 0.0, "asked")
    found, timed, steps = clock(device(9.0)).step_down(lambda _: heaviest, network, {"params": 1.0}, LEAST)
    assert (found, steps) == (heaviest, 0)
    assert timed.median_ms == pytest.approx(9 * MOST)


def test_one_slow_moment_costs_nothing(clock: Callable[..., Clock[Any]]) -> None:
    times: list[int] = []

    def slow_once(one: Any) -> Any:
        if one == SPACE.lightest():
            return SpreadWatch(LEAST)
        times.append(1)
        return SpreadWatch((9 if len(times) == 1 else 1) * predicted(one))

    solution, timed, steps = clock(slow_once).step_down(slowest, network, {"latency_ms": MOST / MARGIN}, LEAST)
    assert (steps, len(times)) == (0, 2)
    assert timed.median_ms == pytest.approx(solution.costs["latency_ms"])


def test_before_a_limit_is_refused_the_quickest_network_is_timed_after_pauses(
    clock: Callable[..., Clock[Any]], waited: list[float]
) -> None:
    watches = iter([SpreadWatch(9 * LEAST)] * 4 + [SpreadWatch(LEAST)])
    least = PROBLEM.solution(DRAWN[COSTS.argmin()], 0.0, 0.0, "drawn")
    made = clock(lambda one: SpreadWatch(LEAST) if one == SPACE.lightest() else next(watches))
    found, timed, steps = made.step_down(lambda _: least, network, {"latency_ms": 2 * LEAST}, float(COSTS.min()))
    assert (found, timed.median_ms, steps) == (least, LEAST, 0)
    assert waited == [0, *PAUSES]


def test_the_reference_is_made_ready_once(clock: Callable[..., Clock[Any]]) -> None:
    made: list[Any] = []

    def watch(one: Any) -> Any:
        made.append(one)
        return SpreadWatch(2 * LEAST)

    timing = clock(watch)
    assert [timing.time(SPACE.heaviest()).median_ms for _ in range(3)] == pytest.approx([LEAST] * 3)
    assert made == [SPACE.lightest()] + [SPACE.heaviest()] * 3
    assert timing.time(SPACE.lightest()).median_ms == pytest.approx(LEAST)
    assert len(made) == 4


def test_the_middle_of_the_rounds_counts(clock: Callable[..., Clock[Any]]) -> None:
    rounds = (5.0, 1.0, 2.0)
    assert len(rounds) == ROUNDS
    timed = clock(lambda one: SpreadWatch(LEAST) if one == SPACE.lightest() else SpreadWatch(*rounds)).time(
        SPACE.heaviest()
    )
    assert (timed.median_ms, timed.slowdown) == (2.0, 1.0)


def test_the_spread_is_divided_by_the_slowdown_of_the_median_alone(clock: Callable[..., Clock[Any]]) -> None:
    heaviest, said = SPACE.heaviest(), Told()
    timed = clock(device(2.0, lightest=2.0), progress=said).time(heaviest)
    expected = predicted(heaviest)
    assert timed.slowdown == pytest.approx(2.0)
    assert (timed.median_ms, timed.high_ms) == pytest.approx((expected, 1.5 * expected))
    assert timed.raw_median_ms == pytest.approx(2 * expected)
    assert "2.0 times slower" in said.lines[0]


def test_a_slow_moment_of_the_reference_alone_makes_no_network_quicker(clock: Callable[..., Clock[Any]]) -> None:
    slow_first = SpreadWatch(*[3 * LEAST] * ROUNDS, *[LEAST] * ROUNDS)
    made = clock(lambda one: slow_first if one == SPACE.lightest() else SpreadWatch(MOST))
    timed = made.time(SPACE.heaviest())
    assert (timed.slowdown, timed.median_ms) == pytest.approx((1.0, MOST))


def test_a_latency_is_timed_once_and_kept(clock: Callable[..., Clock[Any]]) -> None:
    heaviest = SPACE.heaviest()
    first = clock(device(1.0)).timed(heaviest)
    assert first.median_ms == pytest.approx(MOST)
    assert clock(device(3.0)).timed(heaviest) == first  # of a resumed search
    made = clock(device(3.0))
    assert made.time(heaviest).median_ms == pytest.approx(3 * MOST)


def test_what_a_step_down_ends_with_is_kept_and_nothing_on_the_way(clock: Callable[..., Clock[Any]]) -> None:
    made = clock(device(1.5))
    solution, timed, steps = made.step_down(slowest, network, {"latency_ms": (LEAST + MOST) / 2}, LEAST)
    assert steps > 0
    assert made.log.done == {str(network(solution)): timed.model_dump()}
    assert made.timed(network(solution)) == timed


def test_a_network_that_seems_too_slow_is_timed_twice(clock: Callable[..., Clock[Any]]) -> None:
    slow_first = iter((9.0, 1.0, 9.0))
    made = clock(lambda one: SpreadWatch(LEAST if one == SPACE.lightest() else next(slow_first)))
    assert made.timed(SPACE.heaviest(), limit=2.0).median_ms == 1.0
    assert made.time(SPACE.heaviest()).median_ms == 9.0


def test_a_stop_is_seen_before_anything_is_timed(clock: Callable[..., Clock[Any]]) -> None:
    made = clock(device(1.0), stop=Stop(minutes=0))
    with pytest.raises(Interrupted):
        made.timed(SPACE.heaviest())
    with pytest.raises(Interrupted):
        made.step_down(slowest, network, {"latency_ms": MOST}, LEAST)
    assert not made.log.done


@pytest.mark.parametrize(
    ("medians", "busy"), [((1.0, 1.1, 1.05, 1.0, 1.2, 1.1, 9.0), False), ((1, 2, 3, 1, 2, 3, 2), True)]
)
def test_a_busy_machine_is_said(medians: tuple[float, ...], busy: bool) -> None:
    said = Told()
    assert len(medians) == BUSY_ROUNDS
    watch: Any = SpreadWatch(*medians)
    assert say_if_busy(watch, said) is busy
    assert any("--remeasure" in line for line in said.lines) is busy


def test_a_network_is_held_to_the_tightest_limit_that_it_was_thought_to_keep() -> None:
    sets = [{"latency_ms": 2.0, "params": 1e5}, {"latency_ms": 1.0, "params": 1e5}, {"latency_ms": 4.0}]
    assert [limit_above(sets, latency) for latency in (0.5, 1.0, 1.5, 4.5)] == [1.0, 1.0, 2.0, float("inf")]
    assert limit_above([{"params": 1e5}], 0.5) == float("inf")


def test_a_real_network_is_timed_at_its_scale() -> None:
    watch = stopwatch(SPACE.build(SPACE.lightest(), SPACE.scale), SPACE.scale, Timing(warm_up=0, repeats=2))
    assert isinstance(watch, Stopwatch)
    assert watch.shape == (1, 8, 8)
    assert (watch.times_ms(2) > 0).all()
