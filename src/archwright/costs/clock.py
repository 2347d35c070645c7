"""Whether a network keeps a latency limit here: the one place that decides it, whoever searches.

A network is timed in several rounds and the middle one counts. Its median must be a little below the limit, so that it
is within it when it is timed again. Other work on the machine slows every network alike: a reference network is timed
before each, and all times are divided by what became of its median since it was timed first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np
from torch import nn

from archwright.costs.measure import Latency, Stopwatch, Timing
from archwright.errors import InfeasibleError
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.runs.values import StageResult
from archwright.spaces.base import Scale

ROUNDS = 3
SHORTER = 5
"""A quick round has so many times fewer calls, and there are so many times more of them."""
MARGIN = 0.97
"""The part of a limit that the median of a chosen network may take."""
LARGEST_STEP = 0.9
"""A step down asks for a network that is predicted quicker by a tenth at most: one slow moment must not cost more."""
MOST_STEPS = 30
STEPS_UP, USED = 3, 0.93
"""How often a slower network is tried where less than so much of a limit is used."""
PAUSES = (0.5, 1.0, 2.0)
"""Seconds of waiting before the quickest network is timed again, where it seems too slow: a busy spell may pass."""
WORTH_SAYING = 1.25
"""A slowdown of the machine by more than this is said."""
BUSY = 1.3
"""Rounds of one network that differ by more than this are of a machine too busy to time."""
BUSY_ROUNDS = 7

N = TypeVar("N")
"""What a network is to the searching method: an architecture, a width, the members of an ensemble."""


class Predicted(Protocol):
    """Something proposed whose latency is predicted."""

    @property
    def costs(self) -> Mapping[str, float]:
        """By resource; ``latency_ms`` is among them."""

    @property
    def value(self) -> float:
        """What it is thought to be worth."""


P = TypeVar("P", bound=Predicted)


class Timed(StageResult):
    """Milliseconds of one call here: median, tenth and ninetieth percentile.

    Attributes:
        slowdown: of the machine since the reference was timed first, that they were divided by (1: none).
        raw_median_ms: what the clock showed.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    slowdown: float
    raw_median_ms: float

    def within(self, limit: float) -> bool:
        """Whether it keeps the limit in milliseconds, with the margin."""
        return self.median_ms <= MARGIN * limit


@dataclass
class Clock(Generic[N]):
    """Times networks, and says which keep a limit.

    Attributes:
        watch: a stopwatch of a network, made ready once for all its rounds.
        reference: the network that is timed before every other one.
        reference_ms: its median when it was timed first.
        progress: where a slow machine is said.
        stop: asked before every network that is tried.
        log: of a run, in which times are kept; a resumed search goes by the same.
        key: of a network in it.
    """

    watch: Callable[[N], Stopwatch]
    reference: N
    reference_ms: float
    progress: Progress
    stop: Stop
    log: ItemLog
    key: Callable[[N], str] = str

    @cached_property
    def _reference(self) -> Stopwatch:
        return self.watch(self.reference)

    def time(self, network: N) -> Timed:
        """Its latency, less the slowdown of the machine: the lesser of before and after, as a slow moment may pass."""
        slowdown = self._slowdown()
        shown = middle_round(self._reference if network == self.reference else self.watch(network))
        if slowdown > WORTH_SAYING:
            slowdown = min(slowdown, self._slowdown())
        if slowdown > WORTH_SAYING:
            self.progress.say(
                f"The machine is {slowdown:.1f} times slower than when it was timed first; times are divided by that."
            )
        corrected = {name: value / slowdown for name, value in asdict(shown).items()}
        return Timed(**corrected, slowdown=slowdown, raw_median_ms=shown.median_ms)

    def _slowdown(self) -> float:
        """How many times slower than first the reference is now, at least 1."""
        return max(1.0, middle_round(self._reference).median_ms / self.reference_ms)

    def time_within(self, network: N, limit: float, patient: bool = False) -> Timed:
        """As :meth:`time`, but of a network that seems too slow the quicker of two, as other work only adds time.

        Args:
            network: what is timed.
            limit: in milliseconds; a median above it, less the margin, is taken twice.
            patient: whether it is taken more often, after pauses: where nothing quicker is left to try.
        """
        timed = self.time(network)
        for pause in (0.0, *(PAUSES if patient else ())):
            if timed.within(limit):
                break
            self.stop.check()
            time.sleep(pause)
            timed = min(timed, self.time(network), key=lambda one: one.median_ms)
        return timed

    def timed(self, network: N, limit: float = np.inf) -> Timed:
        """The latency of ``network`` that the run keeps; where it has none, timed now and held to ``limit`` ms."""
        key = self.key(network)
        if key not in self.log.done:
            self.stop.check()
            self.log.record(key, self.time_within(network, limit).model_dump())
        return Timed.model_validate(self.log.done[key])

    def step_down(
        self,
        solve: Callable[[dict[str, float]], P],
        network: Callable[[P], N],
        limits: Mapping[str, float],
        least_ms: float,
    ) -> tuple[P, Timed, int]:
        """The best network that keeps the limit here, its latency, and how often a quicker one had to be taken.

        Its latency is kept. Networks on the way are timed anew each time: one slow moment must not count for ever.
        Where the clock says that much of the limit is left, slower ones are tried.

        Args:
            solve: the best proposal within limits, by prediction.
            network: of a proposal.
            limits: what is asked for; without one on ``latency_ms`` the first proposal is taken.
            least_ms: what the quickest network is predicted to take.
        """
        limit, tightened = limits.get("latency_ms", np.inf), dict(limits)
        for steps in range(MOST_STEPS):
            self.stop.check()
            found = solve(tightened)
            predicted = found.costs["latency_ms"]
            timed = self.time_within(network(found), limit, patient=predicted <= least_ms)
            if timed.within(limit):
                found, timed = self._step_up(solve, network, limits, found, timed)
                if self.key(network(found)) not in self.log.done:
                    self.log.record(self.key(network(found)), timed.model_dump())
                return found, timed, steps
            if predicted <= least_ms:
                break
            wanted = predicted * max(LARGEST_STEP, MARGIN * limit / timed.median_ms)
            tightened["latency_ms"] = max(least_ms, min(wanted, float(np.nextafter(predicted, 0.0))))
        raise InfeasibleError(
            f"no network with latency_ms <= {limit:g} was found: the last one tried was predicted to take "
            f"{predicted:.3g} ms and took {timed.median_ms:.3g} ms. The quickest one is predicted to take "
            f"{least_ms:.3g} ms. Raise the limit, or resume on a quieter machine (--remeasure makes the table anew)."
        )

    def _step_up(
        self,
        solve: Callable[[dict[str, float]], P],
        network: Callable[[P], N],
        limits: Mapping[str, float],
        found: P,
        timed: Timed,
    ) -> tuple[P, Timed]:
        """A better network that is predicted to break the limit and keeps it; ``found`` where there is none.

        Only where the machine is not slower than it was: a correction could make a network quicker than it is.

        Args:
            solve: as in :meth:`step_down`, ``network`` and ``limits`` too.
            network: of a proposal.
            limits: what is asked for.
            found: what keeps the limit.
            timed: its latency.
        """
        limit = limits.get("latency_ms", np.inf)
        for _ in range(STEPS_UP):
            if timed.median_ms > USED * MARGIN * limit or timed.slowdown > WORTH_SAYING or np.isinf(limit):
                break
            better = solve({**limits, "latency_ms": found.costs["latency_ms"] * MARGIN * limit / timed.median_ms})
            if better.value <= found.value:
                break
            again = self.time_within(network(better), limit)
            if not again.within(limit) or again.slowdown > WORTH_SAYING:
                break
            found, timed = better, again
        return found, timed


def limit_above(limit_sets: Iterable[Mapping[str, float]], latency_ms: float) -> float:
    """The tightest limit in milliseconds that a network was thought to keep; infinite where there is none.

    Args:
        limit_sets: limits by resource, one set an answer; those without ``latency_ms`` do not count.
        latency_ms: of the network, by prediction.
    """
    limits = [one["latency_ms"] for one in limit_sets if "latency_ms" in one]
    return min((one for one in limits if one >= latency_ms), default=np.inf)


def middle_round(watch: Stopwatch) -> Latency:
    """The round of middle median."""
    return sorted(_rounds(watch, ROUNDS), key=lambda one: one.median_ms)[ROUNDS // 2]


def quickest_round(watch: Stopwatch) -> Latency:
    """The round of least median, of many short ones as in tables: other work on the machine only adds time."""
    calls = -(-watch.timing.repeats // SHORTER)
    return min(_rounds(watch, SHORTER * ROUNDS, calls), key=lambda one: one.median_ms)


def _rounds(watch: Stopwatch, rounds: int, calls: int | None = None) -> list[Latency]:
    return [Latency.of(watch.times_ms(calls or watch.timing.repeats)) for _ in range(rounds)]


def say_if_busy(watch: Stopwatch, progress: Progress) -> bool:
    """Time a network a few times; whether the rounds differ so much that limits will mean little.

    Args:
        watch: of the network.
        progress: where a busy machine is said.
    """
    medians = [one.median_ms for one in _rounds(watch, BUSY_ROUNDS)]
    low, high = np.quantile(medians, (0.0, 0.8)).tolist()
    if high <= BUSY * low:
        return False
    progress.say(
        f"Warning: this machine is too busy to time: the same network takes {low:.3g} to {high:.3g} ms. The latencies "
        "below may be wrong by as much. Wait until it is quiet, or measure again later with: "
        "archwright runs resume RUN --remeasure"
    )
    return True


def stopwatch(module: nn.Module | bytes, scale: Scale, timing: Timing) -> Stopwatch:
    """A stopwatch of one network; to be kept for all its rounds, as an ONNX export takes longer than these.

    Args:
        module: the network, or its ONNX file.
        scale: channels and pixels a side of its images.
        timing: how it is measured.
    """
    return Stopwatch(module, (scale.image_channels, scale.image_size, scale.image_size), timing)
