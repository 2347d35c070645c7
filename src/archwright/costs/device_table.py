"""What a search under limits knows of a device: latencies of its networks at one or several image sizes, and limits.

The stage that makes the table says which sizes are worth a look, the reachable range and the limits. Everything after
it goes by the run's own copy: predicted costs of a network, and its measured latency, which is timed once and kept.

Of several sizes those are looked at whose lightest network is quick enough for the loosest limit, less those that are
too small: where the whole network at a larger size keeps the tightest limit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from archwright.costs.additive import StagedCosts, counted_costs
from archwright.costs.clock import (
    MARGIN,
    Clock,
    Timed,
    limit_above,
    middle_round,
    quickest_round,
    say_if_busy,
    stopwatch,
)
from archwright.costs.limits import Reachable
from archwright.costs.measure import Stopwatch, Timing, device_name
from archwright.costs.tables import (
    FEWEST_NETWORKS,
    LatencyTable,
    Provenance,
    geometries,
    measure_table,
    parts,
    some_of_each_kind,
)
from archwright.costs.tables import ROUNDS as TABLE_ROUNDS
from archwright.errors import InputError, RunError
from archwright.runs.files import read_json, write_json
from archwright.runs.progress import Progress
from archwright.runs.run import Run, runs_root
from archwright.runs.stop import Stop
from archwright.runs.values import StageResult
from archwright.solvers.problem import Solution, StagedProblem
from archwright.spaces.base import Architecture
from archwright.spaces.staged import StagedSpace

ROOM = 1.25
"""How far the tightest limit of our own choice is above the lightest network's time."""
MOST_PARTS = 80
"""Parts of networks that are timed, about, where the time for a table is bounded; the others follow from them."""
STILL_HOLDS = 0.15
"""Median relative error of some networks up to which a kept table is taken again."""
LATENCY_FILE = "latency.json"
"""The run's own copy of the table, among its artifacts."""
TIMED_ITEMS = ("table", "sizes", "timed")
"""Logs of the run that hold milliseconds of this device, which are forgotten when they are to be measured anew."""

Limits = Mapping[str, float]


class TableResult(StageResult):
    """What is known when the latency table is made.

    Attributes:
        least_ms: of the quickest network; ``most_ms`` of the slowest one.
        device: what the latencies are of, for people.
        busy: whether the machine was too busy to time.
        chosen_limits_ms: latency limits of a search that was given none.
        sizes: image sizes that are searched, the smallest first.
        references_ms: by size, of the lightest network, where it was timed here.
    """

    least_ms: float
    most_ms: float
    device: str
    busy: bool
    chosen_limits_ms: list[float]
    sizes: list[int]
    references_ms: dict[int, float]


class KeptTable(BaseModel):
    """A table that an earlier search on this machine measured.

    Attributes:
        table: of latencies.
        checks_ms: what a few whole networks took when it was measured.
    """

    table: LatencyTable
    checks_ms: list[float] = Field(min_length=1)


class Place(Protocol):
    """Where a search works. It is asked each time: limits are checked before there is a run folder."""

    @property
    def run(self) -> Run:
        """That keeps the table and what is timed."""

    @property
    def progress(self) -> Progress:
        """Where people read what is found."""

    @property
    def stop(self) -> Stop:
        """Asked before every measurement."""


@dataclass
class DeviceTable:
    """Latencies and limits of one search.

    Attributes:
        place: where it works.
        spaces: of the networks by image size, the smallest first: all sizes that the images allow.
        given_limits: what is asked for, one answer each; empty where the table is to choose.
        timing: how latencies are measured.
        seed: of the random networks that correct the table.
        given: file of a table measured before, here or on another device.
        verify: whether networks are timed here.
        seconds: that measuring may take, about, where not every block needs to be timed; None times all of them.
    """

    place: Place
    spaces: Mapping[int, StagedSpace[Any]]
    given_limits: list[dict[str, float]]
    timing: Timing
    seed: int
    given: Path | None = None
    verify: bool = True
    seconds: float | None = None
    _clocks: dict[int, Clock[Architecture]] = field(default_factory=dict)
    _problems: dict[int, StagedProblem] = field(default_factory=dict)

    @property
    def run(self) -> Run:
        """That keeps the table and what is timed."""
        return self.place.run

    # --- before the stage ---

    def check(self) -> None:
        """Refuse limits that no network meets, among those whose costs are known already."""
        if self.run.header and self.run.stage_result("table") is not None:
            problems = {size: self.problem(size) for size in self.result.sizes}
        else:
            known = None if self.given is None else self._given()
            problems = {size: self._costs(size, known).problem(space) for size, space in self.spaces.items()}
        self._check_limits(problems)

    def _check_limits(self, problems: Mapping[int, StagedProblem]) -> None:
        Reachable(_ranges(problems), "exact").check(self.given_limits)

    def _given(self) -> LatencyTable:
        table = LatencyTable.load(self.given or Path())
        for space in self.spaces.values():
            table.check(space)
        if table.provenance.training:
            raise InputError("a table of latencies", "one of training steps")
        return table

    def _costs(self, size: int, table: LatencyTable | None) -> StagedCosts:
        """What is counted, and latencies by ``table`` where there is one."""
        counted = counted_costs(self.spaces[size])
        return counted if table is None else counted | table.costs(self.spaces[size])

    # --- the stage ---

    def make(self, choose_limits: Callable[[], list[float]]) -> TableResult:
        """The stage ``table``: sizes, latency table, reachable range and limits, said aloud.

        Args:
            choose_limits: milliseconds for a search that was given no limits; it may ask for :meth:`ends`, and where
                there is one size only for the finished table.
        """
        busy = self.given is None and say_if_busy(self.watch(min(self.spaces)), self.place.progress)
        return self.made(self._searched(choose_limits), choose_limits, busy=busy)

    def made(self, sizes: list[int], choose_limits: Callable[[], list[float]], *, busy: bool = False) -> TableResult:
        """The stage ``table`` for sizes that are chosen already; else as :meth:`make`.

        Args:
            sizes: of the images, in pixels a side, that are measured.
            choose_limits: gives limits in milliseconds; asked only where none are given.
            busy: whether the machine was found too busy to time, for the record.
        """
        table = self._given() if self.given is not None else self._measured_latencies(sizes)
        table.save(self.run.artifact(LATENCY_FILE))
        problems = {size: self._costs(size, table).problem(self.spaces[size]) for size in sizes}
        self._check_limits(problems)
        least, most = _ranges(problems)["latency_ms"]
        device = f"{table.provenance.device} ({table.provenance.backend}, {table.provenance.threads} thread(s))"
        references = self._references(sizes, table)
        # Neither a busy moment nor an error of the table is a reason for limits far off, or that nothing keeps.
        lightest = min((min(max(ms, least), ROOM * least) for ms in references.values()), default=None)
        chosen = [] if self.given_limits else with_room(choose_limits(), lightest)
        self._say(sizes, (least, most), device, chosen)
        return TableResult(
            least_ms=least,
            most_ms=most,
            device=device,
            busy=busy,
            chosen_limits_ms=chosen,
            sizes=sizes,
            references_ms=references,
        )

    def _say(self, sizes: list[int], reach: tuple[float, float], device: str, chosen: list[float]) -> None:
        least, most = reach
        which = "of this space" if len(self.spaces) == 1 else f"at {', '.join(f'{size} px' for size in sizes)}"
        self.place.progress.say(f"Networks {which} take {least:.3g} to {most:.3g} ms on {device}.")
        if chosen:
            said = " and ".join(f"{limit:.3g} ms" for limit in chosen)
            self.place.progress.say(f"No limit was given (--latency-ms): {said} are taken.")
        for limit in (one.get("latency_ms", 0.0) for one in self.given_limits):
            if limit > most:
                self.place.progress.say(f"The limit {limit:g} ms is above the slowest network's {most:.3g} ms.")

    def _searched(self, choose_limits: Callable[[], list[float]]) -> list[int]:
        """Sizes that are worth a look."""
        if len(self.spaces) == 1:
            return list(self.spaces)
        given = [one["latency_ms"] for one in self.given_limits if "latency_ms" in one]
        limits = given if self.given_limits else choose_limits()
        return searched(*self.ends(), max(limits), min(limits)) if limits else list(self.spaces)

    def ends(self) -> tuple[dict[int, float], dict[int, float]]:
        """Milliseconds of the lightest and of the heaviest network at every size, by size; timed once."""
        log = self.run.items("sizes")
        with self.place.progress.task("image sizes", len(self.spaces), len(log.done)) as bar:
            for size, space in self.spaces.items():
                if str(size) not in log.done:
                    self.place.stop.check()
                    ends = (space.lightest(), space.heaviest())
                    log.record(str(size), [quickest_round(self.watch(size, end)).median_ms for end in ends])
                    bar.advance()
        lightest, heaviest = ({size: float(log.done[str(size)][end]) for size in self.spaces} for end in (0, 1))
        return lightest, heaviest

    def _measured_latencies(self, sizes: list[int]) -> LatencyTable:
        """The table that an earlier search on this machine kept, where it still holds; else one measured now."""
        path, say, now = self.kept(sizes), self.place.progress.say, self._checked(sizes)
        known = _readable(path)
        if known is not None and float(np.median(np.abs(np.array(now) / known.checks_ms - 1))) <= STILL_HOLDS:
            say(f"Latencies are those of an earlier search ({path}); --remeasure takes new ones.")
            return known.table
        if known is not None:
            say("The latency table of an earlier search no longer holds here: it is measured anew.")
        table = self.measured(self.timing, "latency table", "table", FEWEST_NETWORKS, sizes)
        write_json(path, KeptTable(table=table, checks_ms=now).model_dump())
        return table

    def kept(self, sizes: list[int] | None = None) -> Path:
        """Where a table of these networks, timed in this way on this machine by these versions, is kept."""
        keys = sorted(key for size in sizes or self.result.sizes for key in parts(self.spaces[size]))
        facts = json.dumps([Provenance.here(self.timing).model_dump(), keys], sort_keys=True)
        return runs_root() / ".latencies" / f"{hashlib.sha256(facts.encode()).hexdigest()[:24]}.json"

    def _checked(self, sizes: list[int]) -> list[float]:
        """Milliseconds of the same few whole networks each time, by which a kept table is known to hold."""
        networks = []
        for size in (sizes[0], sizes[-1]):
            space = self.spaces[size]
            networks += [(size, space.lightest()), (size, space.sample(np.random.default_rng(0)))]
        return [quickest_round(self.watch(size, one)).median_ms for size, one in networks]

    def measured(
        self, timing: Timing, what: str, log: str, networks: int, sizes: list[int] | None = None
    ) -> LatencyTable:
        """A table of the parts of networks measured here; an interrupted measurement goes on.

        Args:
            timing: how, and of what: predictions or training steps.
            what: for the progress bar.
            log: of the run, that keeps single measurements.
            networks: whole networks that correct it; 0 for none.
            sizes: of the images; all by default.
        """
        spaces = [self.spaces[size] for size in sizes or self.spaces]
        most = None if self.seconds is None else MOST_PARTS
        known = {key: part for space in spaces for key, part in geometries(space).items()}
        timed = len(known) if most is None else len(some_of_each_kind(known, most))
        with self.place.progress.task(what, TABLE_ROUNDS * (timed + (networks and networks + 2 * len(spaces)))) as bar:

            def progress(done: int, total: int) -> None:
                self.place.stop.check()  # every finished measurement is in the log
                bar.advance()

            path = self.run.folder / "items" / f"{log}.jsonl"
            return measure_table(
                spaces,
                timing,
                log=path,
                networks=networks,
                seed=self.seed,
                progress=progress,
                most_parts=most,
                seconds=self.seconds,
            )

    def _references(self, sizes: list[int], table: LatencyTable) -> dict[int, float]:
        """Milliseconds of the lightest network at each size, where networks are timed here."""
        if not self.verify:
            return {}
        if not measured_here(table):
            self.place.progress.say(f"The table is of {table.provenance.device!r}: nothing is timed here.")
            return {}
        return {size: middle_round(self.watch(size, timing=table.timing)).median_ms for size in sizes}

    def watch(self, size: int, architecture: Architecture | None = None, timing: Timing | None = None) -> Stopwatch:
        """A stopwatch of a network at an image size.

        Args:
            size: of the images, in pixels a side.
            architecture: of the network; None for the lightest one.
            timing: how it is measured; None for :attr:`timing`.
        """
        space = self.spaces[size]
        network = space.build(space.lightest() if architecture is None else architecture, space.scale)
        return stopwatch(network, space.scale, timing or self.timing)

    # --- after the stage ---

    @cached_property
    def latency(self) -> LatencyTable:
        """The run's own copy, which everything after the stage goes by."""
        return LatencyTable.load(self.run.artifact(LATENCY_FILE))

    @property
    def result(self) -> TableResult:
        """What the stage returned."""
        return TableResult.model_validate(self.run.stage_result("table"))

    @property
    def limit_sets(self) -> list[dict[str, float]]:
        """What is asked for, one answer each."""
        return self.given_limits or [{"latency_ms": limit} for limit in self.result.chosen_limits_ms]

    def costs(self, size: int) -> StagedCosts:
        """All resources that limits may be on, at one image size."""
        return self._costs(size, self.latency)

    def problem(self, size: int) -> StagedProblem:
        """Costs of every network at one image size; values are zero."""
        if size not in self._problems:
            self._problems[size] = self.costs(size).problem(self.spaces[size])
        return self._problems[size]

    def predicted(self, size: int, architecture: Architecture) -> dict[str, float]:
        """What the network of ``architecture`` takes of every resource at ``size`` pixels a side, by the table."""
        costs = self.problem(size).evaluate(self.spaces[size].to_choice(architecture))[1]
        return {name: float(cost) for name, cost in costs.items()}

    def clock(self, size: int) -> Clock[Architecture] | None:
        """Times networks at one image size here; None where nothing is to be timed, or the table is of elsewhere."""
        reference = self.result.references_ms.get(size)
        if not self.verify or reference is None or not measured_here(self.latency):
            return None
        if size not in self._clocks:
            self._clocks[size] = Clock(
                lambda architecture: self.watch(size, architecture, self.latency.timing),
                self.spaces[size].lightest(),
                reference,
                self.place.progress,
                self.place.stop,
                self.run.items("timed"),
                lambda architecture: f"{size} {architecture}",
            )
        return self._clocks[size]

    def timed(self, size: int, architecture: Architecture, limit: float | None = None) -> Timed | None:
        """A network's latency here, timed once and kept; None where nothing is timed.

        Args:
            size: of the images.
            architecture: of the network.
            limit: in milliseconds, which it is held to; by default the tightest that it is predicted to keep.
        """
        clock = self.clock(size)
        if clock is None:
            return None
        if limit is None:
            limit = limit_above(self.limit_sets, self.predicted(size, architecture)["latency_ms"])
        return clock.timed(architecture, limit)

    def known(self, size: int, architecture: Architecture) -> dict[str, float]:
        """What a network takes of every resource: its latency as it was timed here, else by the table.

        Args:
            size: of the images, in pixels a side.
            architecture: of the network.
        """
        timed, predicted = self.timed(size, architecture), self.predicted(size, architecture)
        return predicted if timed is None else {**predicted, "latency_ms": timed.median_ms}

    def fitting(self, size: int, solve: Callable[[dict[str, float]], Solution], limits: Limits) -> Solution:
        """What ``solve`` finds within the limits; where networks are timed, stepped down until it keeps them here.

        Args:
            size: of the images.
            solve: the best network within limits, by prediction; infeasible ones are its error.
            limits: what is asked for.
        """
        clock, space = self.clock(size), self.spaces[size]
        if clock is None:
            return solve(dict(limits))
        least = self.problem(size).cost_range("latency_ms")[0]
        return clock.step_down(solve, lambda one: space.from_choice(one.choice), limits, least)[0]


def _ranges(problems: Mapping[int, StagedProblem]) -> dict[str, tuple[float, float]]:
    """The least and the most of every resource over all sizes."""
    found: dict[str, tuple[float, float]] = {}
    for problem in problems.values():
        for name in problem.resources:
            low, high = problem.cost_range(name)
            least, most = found.get(name, (low, high))
            found[name] = min(low, least), max(high, most)
    return found


def _readable(path: Path) -> KeptTable | None:
    """A kept table; None where there is none, or a damaged one."""
    try:
        return KeptTable.model_validate(read_json(path)) if path.is_file() else None
    except (RunError, ValidationError):
        return None


def searched(
    lightest_ms: Mapping[int, float], whole_ms: Mapping[int, float], loosest_ms: float, tightest_ms: float
) -> list[int]:
    """Image sizes that are worth a look, by the milliseconds of the lightest and of the whole network at each.

    Args:
        lightest_ms: by size; ``whole_ms`` the same of the whole network.
        whole_ms: by size.
        loosest_ms: the loosest of the limits.
        tightest_ms: the tightest of the limits.
    """
    quick_enough = [size for size, ms in lightest_ms.items() if ms <= loosest_ms]
    comfortable = [size for size in quick_enough if whole_ms[size] <= MARGIN * tightest_ms]
    return [size for size in quick_enough if size >= max(comfortable, default=0)] or [min(lightest_ms)]


def with_room(limits_ms: list[float], lightest_ms: float | None) -> list[float]:
    """Limits of our own choice, moved up until the lightest network, as timed here, keeps the tightest one.

    A table's sums are off by some percent, and by more on a busy machine: what nobody asked for must not fail by that.
    The loosest one stays where the others have room below it; else all are raised together.

    Args:
        limits_ms: milliseconds, as they were chosen.
        lightest_ms: median of the lightest network; None where nothing is timed here, which leaves the limits alone.
    """
    if not limits_ms or lightest_ms is None:
        return limits_ms
    if ROOM * lightest_ms <= min(limits_ms):
        return [round(limit, 4) for limit in limits_ms]
    low, least, most = ROOM * lightest_ms, min(limits_ms), max(limits_ms)
    if most < ROOM * low:
        return [round(low / least * limit, 4) for limit in limits_ms]
    return [round(low + (limit - least) * (most - low) / (most - least), 4) for limit in limits_ms]


def measured_here(table: LatencyTable) -> bool:
    """Whether this machine has the device of ``table``."""
    return table.provenance.device == device_name(table.provenance.processor)
