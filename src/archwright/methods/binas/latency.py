"""Latencies of networks that BINAS promises: timed here, corrected for what else the machine does, within their limit.

A network is timed in several rounds and the middle one counts. Its median must be a little below the limit, so that it
is within it when it is timed again. Other work on the machine slows every network alike: the quickest one is timed
beside it, and all times are divided by what became of that one's median since the table was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from archwright.costs.measure import Latency, Stopwatch, Timing
from archwright.costs.tables import LatencyTable
from archwright.errors import InfeasibleError
from archwright.runs.progress import Progress
from archwright.runs.stop import Stop
from archwright.search.values import StageResult
from archwright.solvers.problem import Solution
from archwright.spaces.base import Architecture
from archwright.spaces.staged import StagedSpace

ROUNDS = 3
MARGIN = 0.97
"""The part of a limit that the median of a chosen network may take."""
LARGEST_STEP = 0.9
"""A step down asks for a network that is predicted quicker by a tenth at most: one slow moment must not cost more."""
MOST_STEPS = 30
WORTH_SAYING = 1.25
"""A slowdown of the machine by more than this is said."""
BUSY = 1.3
"""Rounds of one network that differ by more than this are of a machine too busy to time."""
BUSY_ROUNDS = 7


class Timed(StageResult):
    """Milliseconds of one call here: median, tenth and ninetieth percentile.

    Attributes:
        slowdown: of the machine since the table was made, that they were divided by (1: none).
        raw_median_ms: what the clock showed.
    """

    median_ms: float
    low_ms: float
    high_ms: float
    slowdown: float
    raw_median_ms: float

    def within(self, limit: float) -> bool:
        """Whether it keeps the limit, with the margin."""
        return self.median_ms <= MARGIN * limit


@dataclass
class Clock:
    """Times networks of ``space`` in the way ``table`` was measured.

    Attributes:
        reference_ms: median of the lightest network when the table was made.
    """

    space: StagedSpace[Any]
    table: LatencyTable
    reference_ms: float
    progress: Progress
    stop: Stop

    def latency_of(self, architecture: Architecture) -> Latency:
        """As the clock shows it."""
        if architecture == self.space.lightest():
            return middle_round(self._reference)
        return latency_of(self.space, architecture, self.table)

    @cached_property
    def _reference(self) -> Stopwatch:
        """Of the lightest network, which is timed before every other."""
        return stopwatch(self.space, self.space.lightest(), self.table.timing)

    def time(self, architecture: Architecture) -> Timed:
        """Its latency, less the slowdown of the machine."""
        slowdown = max(1.0, self.latency_of(self.space.lightest()).median_ms / self.reference_ms)
        if slowdown > WORTH_SAYING:
            self.progress.say(
                f"The machine is {slowdown:.1f} times slower than when the table was made; times are divided by that."
            )
        shown = self.latency_of(architecture)
        corrected = {name: value / slowdown for name, value in asdict(shown).items()}
        return Timed(**corrected, slowdown=slowdown, raw_median_ms=shown.median_ms)

    def time_within(self, architecture: Architecture, limit: float) -> Timed:
        """The same; of a network that seems too slow the quicker of two, as other work only adds time."""
        timed = self.time(architecture)
        return timed if timed.within(limit) else min(timed, self.time(architecture), key=lambda one: one.median_ms)

    def step_down(
        self, solve: Callable[[dict[str, float]], Solution], limits: dict[str, float], least_ms: float
    ) -> tuple[Solution, Timed, int]:
        """The best network that keeps the limit here, its latency, and how often a quicker one had to be taken.

        Args:
            solve: the best network within limits, by prediction.
            limits: what is asked for; without one on ``latency_ms`` the first network is taken.
            least_ms: what the quickest network is predicted to take.
        """
        limit, tightened = limits.get("latency_ms", np.inf), dict(limits)
        for steps in range(MOST_STEPS):
            self.stop.check()
            solution = solve(tightened)
            timed = self.time_within(self.space.from_choice(solution.choice), limit)
            if timed.within(limit):
                return solution, timed, steps
            predicted = solution.costs["latency_ms"]
            if predicted <= least_ms:
                break
            wanted = predicted * max(LARGEST_STEP, MARGIN * limit / timed.median_ms)
            tightened["latency_ms"] = max(least_ms, min(wanted, float(np.nextafter(predicted, 0.0))))
        raise InfeasibleError(
            f"no network with latency_ms <= {limit:g} was found: the last one tried was predicted to take "
            f"{predicted:.3g} ms and took {timed.median_ms:.3g} ms. The quickest one is predicted to take "
            f"{least_ms:.3g} ms. Raise the limit, or resume on a quieter machine (--remeasure makes the table anew)."
        )


def limit_above(limit_sets: Iterable[Mapping[str, float]], latency_ms: float) -> float:
    """The tightest limit that a network of this latency was thought to keep; infinite where there is none."""
    limits = [one["latency_ms"] for one in limit_sets if "latency_ms" in one]
    return min((one for one in limits if one >= latency_ms), default=np.inf)


def latency_of(space: StagedSpace[Any], architecture: Architecture, table: LatencyTable) -> Latency:
    """On this device, in the way the table was measured; of several rounds the middle one."""
    return middle_round(stopwatch(space, architecture, table.timing))


def middle_round(watch: Stopwatch) -> Latency:
    """The round of middle median."""
    return sorted(_rounds(watch, ROUNDS), key=lambda one: one.median_ms)[ROUNDS // 2]


def quickest_round(space: StagedSpace[Any], architecture: Architecture, timing: Timing) -> Latency:
    """The round of least median, as in tables: other work on the machine only adds time."""
    return min(_rounds(stopwatch(space, architecture, timing), ROUNDS), key=lambda one: one.median_ms)


def stopwatch(space: StagedSpace[Any], architecture: Architecture, timing: Timing) -> Stopwatch:
    """Of one network; to be kept for all its rounds, as an ONNX export takes longer than these."""
    scale = space.scale
    return Stopwatch(
        space.build(architecture, scale), (scale.image_channels, scale.image_size, scale.image_size), timing
    )


def _rounds(watch: Stopwatch, rounds: int) -> list[Latency]:
    return [Latency.of(watch.times_ms(watch.timing.repeats)) for _ in range(rounds)]


def say_if_busy(space: StagedSpace[Any], timing: Timing, progress: Progress) -> bool:
    """Time the lightest network a few times; where the rounds differ much, say that limits will mean little."""
    medians = [one.median_ms for one in _rounds(stopwatch(space, space.lightest(), timing), BUSY_ROUNDS)]
    low, high = np.quantile(medians, (0.0, 0.8)).tolist()
    if high <= BUSY * low:
        return False
    progress.say(
        f"Warning: this machine is too busy to time: the same network takes {low:.3g} to {high:.3g} ms. The latencies "
        "below may be wrong by as much. Wait until it is quiet, or measure again later with: "
        "archwright runs resume RUN --remeasure"
    )
    return True
