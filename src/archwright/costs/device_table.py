"""What a search under limits knows of a device: latencies of its networks at one or several image sizes, and limits.

The stage that makes the table says which sizes are worth a look, the reachable range and the limits. Everything after
it goes by the run's own copy: predicted costs of a network, and its measured latency, which is timed once and kept.

Of several sizes those are looked at whose lightest network is quick enough for the loosest limit, less those that are
too small: where the whole network at a larger size keeps the tightest limit. Some of them are timed block by block.
Latencies between these are interpolated; the whole network is timed at every such size before it counts, and corrects
what was interpolated there. Steps are of 16 px, and of 8 px where a limit falls into a gap between two of these.

Networks of several starts are in one table: a *place* is a size and a start (:mod:`archwright.costs.places`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from archwright.costs.additive import StagedCosts, counted_costs
from archwright.costs.backends import PRECISIONS, find_backend
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
from archwright.costs.limits import Reachable, met
from archwright.costs.measure import Stopwatch, Timing, device_name
from archwright.costs.places import ByPlace, Place, pixels, said, start_of
from archwright.costs.tables import (
    FEWEST_NETWORKS,
    LatencyTable,
    Provenance,
    adjusted,
    between,
    geometries,
    measure_table,
    parts,
    some_of_each_kind,
)
from archwright.costs.tables import ROUNDS as TABLE_ROUNDS
from archwright.errors import InputError, RunError
from archwright.quantise import Precision
from archwright.runs.files import read_json, write_json
from archwright.runs.progress import Progress
from archwright.runs.run import Run, runs_root
from archwright.runs.stop import Stop
from archwright.runs.values import StageResult
from archwright.solvers.problem import Solution, StagedProblem
from archwright.spaces.base import Architecture
from archwright.spaces.staged import StagedSpace

ROOM, APART = 1.1, 1.25
"""How far the tightest limit of our own choice is above the quickest network's time, and the loosest above that."""
MOST_PARTS = 80
"""Parts of networks that are timed, about, where the time for a table is bounded; the others follow from them."""
STILL_HOLDS = 0.15
"""Median relative error of some networks up to which a kept table is taken again."""
FORM = 3
"""Of kept tables: one more with every change in how tables are fitted, so that older ones are not taken again."""
LATENCY_FILE = "latency.json"
"""The run's own copy of the table, among its artifacts."""
TIMED_ITEMS = ("table", "table-int8", "sizes", "between", "timed")
"""Logs of the run that hold milliseconds of this device, which are forgotten when they are to be measured anew."""

STEP = 16
"""Pixels between image sizes; half of it where a limit falls into a gap."""
GAP = 0.9
"""Part of a limit that the whole network at the largest size within it leaves unused where there is a gap above it."""
MOST_MEASURED = 4
"""Image sizes of one start whose blocks are timed; the others are between them."""

ELSEWHERE = {"device": "machine", "threads": "number of threads", "versions": "version of what computes"}
"""Facts of a kept table by which it is of no use here, in words."""
FLOAT: Precision = "fp32"
SLOWER = 1.0
"""Where int8 networks take at least so many times what float ones take, it is said."""

Limits = Mapping[str, float]


def latency_file(precision: Precision = FLOAT) -> str:
    """The run's own copy of the table of a precision, among its artifacts."""
    return LATENCY_FILE if precision == FLOAT else f"latency-{precision}.json"


class TableResult(StageResult):
    """What is known when the latency table is made.

    Attributes:
        least_ms: of the quickest network; ``most_ms`` of the slowest one.
        device: whose latencies these are, in words.
        busy: whether the machine was too busy to time.
        chosen_limits_ms: latency limits of a search that was given none.
        sizes: places that are searched, the smallest image size first.
        measured: those of them whose blocks were timed.
        references_ms: by place, of the lightest network, where it was timed here.
    """

    least_ms: float
    most_ms: float
    device: str
    busy: bool
    chosen_limits_ms: list[float]
    sizes: list[Place]
    measured: list[Place]
    references_ms: ByPlace


class KeptTable(BaseModel):
    """A table that an earlier search on this machine measured.

    Attributes:
        table: of latencies.
        checks_ms: what a few whole networks took when it was measured.
    """

    table: LatencyTable
    checks_ms: list[float] = Field(min_length=1)


class Workplace(Protocol):
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
        spaces: of the networks by place, the smallest image size first: all sizes that the images allow.
        given_limits: what is asked for, one answer each; empty where the table is to choose.
        timing: how latencies are measured.
        seed: of the random networks that correct the table.
        given: file of a table measured before, here or on another device.
        verify: whether networks are timed here.
        seconds: that measuring may take, about, where not every block needs to be timed; None times all of them.
        precisions: that networks are timed in, float first.
        between: places whose blocks are not timed; what they take is interpolated.
        least_share: of the whole network's latency, that networks at a place must be able to have within a limit.
    """

    place: Workplace
    spaces: Mapping[Any, StagedSpace[Any]]
    given_limits: list[dict[str, float]]
    timing: Timing
    seed: int
    given: Path | None = None
    verify: bool = True
    seconds: float | None = None
    precisions: tuple[Precision, ...] = (FLOAT,)
    between: Collection[Place] = ()
    least_share: float = 0.0
    _clocks: dict[tuple[Place, Precision], Clock[Architecture]] = field(default_factory=dict)
    _problems: dict[tuple[Place, Precision], StagedProblem] = field(default_factory=dict)
    _tables: dict[Precision, LatencyTable] = field(default_factory=dict)

    @property
    def run(self) -> Run:
        """That keeps the table and what is timed."""
        return self.place.run

    # --- before the stage ---

    def check(self) -> None:
        """Refuse limits that no network meets, among those whose costs are known already."""
        if self.run.header and self.run.stage_result("table") is not None:
            problems = [self.problem(size, one) for size in self.result.sizes for one in self.timed_in]
        else:
            known = None if self.given is None else self._given()
            problems = [self._costs(size, known).problem(space) for size, space in self.spaces.items()]
        self._check_limits(problems)

    def _check_limits(self, problems: Sequence[StagedProblem]) -> None:
        Reachable(_ranges(problems), "exact").check(self.given_limits)

    def _given(self) -> LatencyTable:
        table = LatencyTable.load(self.given or Path())
        for space in self.spaces.values():
            table.check(space)
        if table.provenance.training:
            raise InputError("a table of latencies", "one of training steps")
        return table

    def _costs(self, size: Place, table: LatencyTable | None) -> StagedCosts:
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
        busy = self.given is None and say_if_busy(self.watch(next(iter(self.spaces))), self.place.progress)
        return self.made(self._searched(choose_limits), choose_limits, busy=busy)

    def made(
        self, measured: list[Place], choose_limits: Callable[[], list[float]], *, busy: bool = False
    ) -> TableResult:
        """The stage ``table`` for places that are chosen already; else as :meth:`make`.

        Args:
            measured: places whose blocks are timed; those of :attr:`between` that lie between them are added.
            choose_limits: gives limits in milliseconds; asked only where none are given.
            busy: whether the machine was found too busy to time, for the record.
        """
        sizes = list(measured)
        tables = {one: self._measured_latencies(sizes, one) for one in self.precisions if self.given is None}
        tables = tables or {FLOAT: self._given()}
        limits = self._latency_limits() or (choose_limits() if self.between else [])
        if limits and self.between:
            sizes = self._between(measured, tables, limits)
        for precision, one in tables.items():
            one.save(self.run.artifact(latency_file(precision)))
        self._tables = dict(tables)
        table = tables[FLOAT]
        problems = [self._costs(size, one).problem(self.spaces[size]) for size in sizes for one in tables.values()]
        self._check_limits(problems)
        least, most = _ranges(problems)["latency_ms"]
        device = said_device(table)
        self._say_precisions(sizes, tables)
        references = self._references(sizes, table)
        chosen = [] if self.given_limits else with_room(choose_limits(), self._quickest_ms(table, references))
        self._say(sizes, (least, most), device, chosen)
        return TableResult(
            least_ms=least,
            most_ms=most,
            device=device,
            busy=busy,
            chosen_limits_ms=chosen,
            sizes=sizes,
            measured=measured,
            references_ms=references,
        )

    def _quickest_ms(self, table: LatencyTable, places: Collection[Place]) -> float | None:
        """Of the quickest network, in its quickest moment: neither a busy spell nor an error of the table moves limits.

        Args:
            table: of latencies.
            places: where networks are timed here.
        """
        problems = {place: self._costs(place, table).problem(self.spaces[place]) for place in places}
        if not problems:
            return None
        place = min(problems, key=lambda one: problems[one].cost_range("latency_ms")[0])
        space, problem = self.spaces[place], problems[place]
        networks = {space.lightest(), space.from_choice(problem.cheapest("latency_ms"))}
        timed = min(quickest_round(self.watch(place, one)).median_ms for one in networks)
        return max(timed, problem.cost_range("latency_ms")[0])

    def _latency_limits(self) -> list[float]:
        return [one["latency_ms"] for one in self.given_limits if "latency_ms" in one]

    def _say(self, sizes: list[Place], reach: tuple[float, float], device: str, chosen: list[float]) -> None:
        least, most = reach
        which = "of this space" if len(self.spaces) == 1 else f"at {', '.join(map(said, sizes))}"
        self.place.progress.say(f"Networks {which} take {least:.3g} to {most:.3g} ms on {device}.")
        if chosen:
            limits = " and ".join(f"{limit:.3g}" for limit in chosen[-2:])
            limits = ", ".join([*(f"{limit:.3g}" for limit in chosen[:-2]), limits])
            self.place.progress.say(f"No limit was given (--latency-ms): {limits} ms are taken.")
        for limit in (one.get("latency_ms", 0.0) for one in self.given_limits):
            if limit > most:
                self.place.progress.say(f"The limit {limit:g} ms is above the slowest network's {most:.3g} ms.")

    def _say_precisions(self, sizes: list[Place], tables: Mapping[Precision, LatencyTable]) -> None:
        """What other precisions than float gain here, by the lightest and the heaviest network of the middle size."""
        space = self.spaces[sizes[len(sizes) // 2]]
        ends = [space.lightest(), space.heaviest()]
        whole = tables[FLOAT].predict(space, ends)
        for precision, table in tables.items():
            if precision != FLOAT:
                shares = table.predict(space, ends) / whole
                slow = " This processor has no fast int8: float will be taken." if shares.min() >= SLOWER else ""
                times = f"{shares[0]:.2f} and {shares[1]:.2f} times what they take in float"
                self.place.progress.say(f"In {precision} the smallest and the largest network take {times}.{slow}")

    def _searched(self, choose_limits: Callable[[], list[float]]) -> list[Place]:
        """Places that are worth a look and are timed; those between them are not."""
        if len(self._anchors) == 1:
            return self._anchors
        limits = self._latency_limits() if self.given_limits else choose_limits()
        if not limits:
            return self._anchors
        found, (lightest, whole) = list[Place](), self.ends()
        for start in dict.fromkeys(map(start_of, self._anchors)):
            own = {pixels(place): place for place in self._anchors if start_of(place) == start}
            quickest, slowest = ({size: ms[place] for size, place in own.items()} for ms in (lightest, whole))
            sizes = searched(quickest, slowest, max(limits), min(limits))
            larger = [size for size in own if size > sizes[-1]]
            if self.between and larger and slowest[sizes[-1]] <= max(limits):
                sizes.append(larger[0])  # whole networks may fit between the two
            found += [own[size] for size in some_of(sizes)]
        return sorted(found, key=pixels)

    @property
    def _anchors(self) -> list[Place]:
        return [place for place in self.spaces if place not in self.between]

    def ends(self) -> tuple[dict[Place, float], dict[Place, float]]:
        """Milliseconds of the lightest and of the heaviest network at every place, less those between; timed once."""
        log, anchors = self.run.items("sizes"), self._anchors
        with self.place.progress.task("image sizes", len(anchors), len(log.done)) as bar:
            for place in anchors:
                if str(place) not in log.done:
                    self.place.stop.check()
                    space = self.spaces[place]
                    ends = (space.lightest(), space.heaviest())
                    log.record(str(place), [quickest_round(self.watch(place, end)).median_ms for end in ends])
                    bar.advance()
        lightest, heaviest = ({place: float(log.done[str(place)][end]) for place in anchors} for end in (0, 1))
        return lightest, heaviest

    # --- sizes between those that are measured ---

    def _between(
        self, measured: list[Place], tables: dict[Precision, LatencyTable], limits: Sequence[float]
    ) -> list[Place]:
        """All places that are searched, and ``tables`` with what was interpolated and verified in place."""
        errors, sizes = list[float](), list(measured)
        steps = [place for place in self.spaces if pixels(place) % STEP == 0 or place in measured]
        halves = [place for place in self.spaces if place not in steps]
        for place in (one for one in steps if one not in measured):
            sizes += self._added(place, sizes, tables, max(limits), errors)
        for place in halves:
            if any(self._in_gap(place, sizes, table, limit) for table in tables.values() for limit in limits):
                sizes += self._added(place, sizes, tables, max(limits), errors)
        if errors:
            more, said_errors = len(sizes) - len(measured), f"{100 * min(errors):+.0f} to {100 * max(errors):+.0f} %"
            self.place.progress.say(
                f"Latencies at {more} more image size{'s' * (more != 1)} are interpolated; timed networks differ by "
                f"{said_errors}, which is corrected."
            )
        worth = [place for place in sizes if place == sizes[0] or self._reachable(place, tables, max(limits))]
        return sorted(worth, key=lambda place: (pixels(place), list(self.spaces).index(place)))

    def _neighbours(self, place: Place, known: Sequence[Place]) -> tuple[Place, Place] | None:
        """The next smaller and the next larger of the known places of the same start; None at the ends."""
        own = sorted((one for one in known if start_of(one) == start_of(place)), key=pixels)
        below = [one for one in own if pixels(one) < pixels(place)]
        above = [one for one in own if pixels(one) > pixels(place)]
        return (below[-1], above[0]) if below and above else None

    def _added(
        self,
        place: Place,
        known: Sequence[Place],
        tables: dict[Precision, LatencyTable],
        loosest_ms: float,
        errors: list[float],
    ) -> list[Place]:
        """``place`` with its entries in ``tables``, verified by its whole network; nothing where it is of no use."""
        around = self._neighbours(place, known)
        if around is None:
            return []
        space, below, above = (self.spaces[one] for one in (place, *around))
        filled = {precision: between(table, space, below, above) for precision, table in tables.items()}
        if not self._reachable(place, filled, loosest_ms):
            return []
        for precision, table in filled.items():
            whole_ms = self._whole_ms(place, precision)
            errors.append(whole_ms / float(table.predict(space, [space.heaviest()])[0]) - 1)
            own = set(table.entries) - set(tables[precision].entries)
            tables[precision] = adjusted(table, space, own, space.heaviest(), whole_ms)
        return [place]

    def _whole_ms(self, place: Place, precision: Precision) -> float:
        """Milliseconds of the whole network at a place that was not measured; timed once."""
        log, key = self.run.items("between"), f"{precision} {place}"
        if key not in log.done:
            self.place.stop.check()
            watch = self.watch(place, self.spaces[place].heaviest(), self.timing_in(precision))
            log.record(key, quickest_round(watch).median_ms)
        return float(log.done[key])

    def _reachable(self, place: Place, tables: Mapping[Precision, LatencyTable], loosest_ms: float) -> bool:
        """Whether a network that is not too thin may keep the loosest limit at a place."""
        space = self.spaces[place]
        whole = [float(table.predict(space, [space.heaviest()])[0]) for table in tables.values()]
        return self.least_share * min(whole) <= loosest_ms

    def _in_gap(self, place: Place, known: Sequence[Place], table: LatencyTable, limit_ms: float) -> bool:
        """Whether a limit falls between the sizes around ``place``, and leaves room for this one."""
        around = self._neighbours(place, known)
        if around is None:
            return False
        spaces = [self.spaces[one] for one in (*around, place)]
        filled = between(table, spaces[2], spaces[0], spaces[1])
        below, above, own = (float(filled.predict(space, [space.heaviest()])[0]) for space in spaces)
        return below < GAP * MARGIN * limit_ms and own <= MARGIN * limit_ms < above

    def timing_in(self, precision: Precision) -> Timing:
        """How networks of a precision are timed."""
        return replace(self.timing, dtype=PRECISIONS[precision])  # type: ignore[arg-type]

    def _measured_latencies(self, sizes: list[Place], precision: Precision) -> LatencyTable:
        """The table that an earlier search on this machine kept, where it still holds; else one measured now."""
        timing = self.timing_in(precision)
        path, say, now = self.kept(sizes, precision), self.place.progress.say, self._checked(sizes, timing)
        known = _readable(path)
        if known is not None and float(np.median(np.abs(np.array(now) / known.checks_ms - 1))) <= STILL_HOLDS:
            say(f"Latencies are those of an earlier search ({path}); --remeasure takes new ones.")
            return known.table
        if known is not None:
            say("The latency table of an earlier search no longer holds here: it is measured anew.")
        elif other := self._of_elsewhere(path.parent, sizes, timing):
            say(f"The latency table of an earlier search is of another {other}: it is measured anew.")
        log, what = (
            ("table", "latency table") if precision == FLOAT else (f"table-{precision}", f"{precision} latencies")
        )
        table = self.measured(timing, what, log, FEWEST_NETWORKS, sizes)
        write_json(path, KeptTable(table=table, checks_ms=now).model_dump())
        return table

    def kept(self, sizes: list[Place] | None = None, precision: Precision = FLOAT) -> Path:
        """Where a table of these networks, timed in this way on this machine by these versions, is kept.

        Args:
            sizes: places; those that were measured by default.
            precision: of the networks.
        """
        keys = sorted(key for size in sizes or self.result.measured for key in parts(self.spaces[size]))
        facts = json.dumps([FORM, Provenance.here(self.timing_in(precision)).model_dump(), keys], sort_keys=True)
        return runs_root() / ".latencies" / f"{hashlib.sha256(facts.encode()).hexdigest()[:24]}.json"

    def _of_elsewhere(self, folder: Path, sizes: list[Place], timing: Timing) -> str:
        """In what a kept table of the same networks differs from one made now; empty where there is no such table."""
        here, wanted = Provenance.here(timing), {key for size in sizes for key in parts(self.spaces[size])}
        for kept in filter(None, map(_readable, sorted(folder.glob("*.json")))):
            own = kept.table.provenance
            differs = [name for name in ELSEWHERE if getattr(own, name) != getattr(here, name)]
            alike = own.model_copy(update={name: getattr(here, name) for name in differs}) == here
            if differs and alike and wanted <= set(kept.table.entries):
                return " and ".join(ELSEWHERE[name] for name in differs)
        return ""

    def _checked(self, sizes: list[Place], timing: Timing) -> list[float]:
        """Milliseconds of the same few whole networks each time, by which a kept table is known to hold."""
        networks = []
        for size in (sizes[0], sizes[-1]):
            space = self.spaces[size]
            networks += [(size, space.lightest()), (size, space.sample(np.random.default_rng(0)))]
        return [quickest_round(self.watch(size, one, timing)).median_ms for size, one in networks]

    def measured(
        self, timing: Timing, what: str, log: str, networks: int, sizes: list[Place] | None = None
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

    def _references(self, sizes: list[Place], table: LatencyTable) -> dict[Place, float]:
        """Milliseconds of the lightest network at each size, where networks are timed here."""
        if not self.verify:
            return {}
        if not measured_here(table):
            self.place.progress.say(f"The table is of {table.provenance.device!r}: nothing is timed here.")
            return {}
        return {size: middle_round(self.watch(size, timing=table.timing)).median_ms for size in sizes}

    def watch(self, size: Place, architecture: Architecture | None = None, timing: Timing | None = None) -> Stopwatch:
        """A stopwatch of a network at an image size.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
            architecture: of the network; None for the lightest one.
            timing: how it is measured; None for :attr:`timing`.
        """
        space = self.spaces[size]
        network = space.build(space.lightest() if architecture is None else architecture, space.scale)
        return stopwatch(network, space.scale, timing or self.timing)

    # --- after the stage ---

    @property
    def latency(self) -> LatencyTable:
        """The run's own copy of the float table, which everything after the stage goes by."""
        return self.latencies(FLOAT)

    def latencies(self, precision: Precision) -> LatencyTable:
        """The run's own copy of the table of a precision."""
        if precision not in self._tables:
            self._tables[precision] = LatencyTable.load(self.run.artifact(latency_file(precision)))
        return self._tables[precision]

    @property
    def timed_in(self) -> tuple[Precision, ...]:
        """Precisions that the run has a table of, float first."""
        return tuple(one for one in self.precisions if self.run.artifact(latency_file(one)).is_file())

    @property
    def result(self) -> TableResult:
        """What the stage returned."""
        return TableResult.model_validate(self.run.stage_result("table"))

    @property
    def limit_sets(self) -> list[dict[str, float]]:
        """What is asked for, one answer each."""
        return self.given_limits or [{"latency_ms": limit} for limit in self.result.chosen_limits_ms]

    def costs(self, size: Place, precision: Precision = FLOAT) -> StagedCosts:
        """All resources that limits may be on, at one image size.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
            precision: of the networks.
        """
        return self._costs(size, self.latencies(precision))

    def problem(self, size: Place, precision: Precision = FLOAT) -> StagedProblem:
        """Costs of every network at one image size; values are zero.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
            precision: of the networks.
        """
        if (size, precision) not in self._problems:
            self._problems[size, precision] = self.costs(size, precision).problem(self.spaces[size])
        return self._problems[size, precision]

    def predicted(self, size: Place, architecture: Architecture, precision: Precision = FLOAT) -> dict[str, float]:
        """What a network takes of every resource, by the table.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
            architecture: of the network.
            precision: that it is computed in.
        """
        costs = self.problem(size, precision).evaluate(self.spaces[size].to_choice(architecture))[1]
        return {name: float(cost) for name, cost in costs.items()}

    def clock(self, size: Place, precision: Precision = FLOAT) -> Clock[Architecture] | None:
        """Times networks here; None where nothing is to be timed, or the table is of elsewhere.

        The reference that tells how busy the machine is, is the lightest network in float, whatever is timed.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
            precision: of the networks.
        """
        reference, table = self.result.references_ms.get(size), self.latencies(precision)
        if not self.verify or reference is None or not measured_here(table):
            return None
        lightest, name = self.spaces[size].lightest(), "" if precision == FLOAT else f"{precision} "
        if (size, precision) not in self._clocks:
            self._clocks[size, precision] = Clock(
                lambda architecture: self.watch(size, architecture, table.timing),
                lightest,
                reference if precision == FLOAT else middle_round(self.watch(size, lightest, table.timing)).median_ms,
                self.place.progress,
                self.place.stop,
                self.run.items("timed"),
                lambda architecture: f"{name}{size} {architecture}",
            )
        return self._clocks[size, precision]

    def timed(
        self, size: Place, architecture: Architecture, limit: float | None = None, precision: Precision = FLOAT
    ) -> Timed | None:
        """A network's latency here, timed once and kept; None where nothing is timed.

        Args:
            size: of the images.
            architecture: of the network.
            limit: in milliseconds, which it is held to; by default the tightest that it is predicted to keep.
            precision: that it is computed in.
        """
        clock = self.clock(size, precision)
        if clock is None:
            return None
        if limit is None:
            limit = limit_above(self.limit_sets, self.predicted(size, architecture, precision)["latency_ms"])
        return clock.timed(architecture, limit)

    def known(self, size: Place, architecture: Architecture, precision: Precision = FLOAT) -> dict[str, float]:
        """What a network takes of every resource: its latency as it was timed here, else by the table.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
            architecture: of the network.
            precision: that it is computed in.
        """
        timed = self.timed(size, architecture, precision=precision)
        predicted = self.predicted(size, architecture, precision)
        return predicted if timed is None else {**predicted, "latency_ms": timed.median_ms}

    def keeps(
        self, size: Place, architecture: Architecture, limits: Limits, precision: Precision = FLOAT, margin: bool = True
    ) -> bool:
        """Whether a network keeps limits; a latency that was timed here with the clock's margin.

        Args:
            size: the place: an image size in pixels a side, with a start where there are several.
            architecture: of the network.
            limits: what is asked for.
            precision: that it is computed in.
            margin: whether to ask for the margin.
        """
        held = dict(limits)
        if margin and "latency_ms" in held and self.clock(size, precision) is not None:
            held["latency_ms"] *= MARGIN
        return met(held, self.known(size, architecture, precision))

    def fitting(
        self,
        size: Place,
        solve: Callable[[dict[str, float]], Solution],
        limits: Limits,
        precision: Precision = FLOAT,
    ) -> Solution:
        """What ``solve`` finds within the limits; where networks are timed, stepped down until it keeps them here.

        Args:
            size: of the images.
            solve: the best network within limits, by prediction; infeasible ones are its error.
            limits: what is asked for.
            precision: of the networks, whose costs ``solve`` goes by.
        """
        clock, space = self.clock(size, precision), self.spaces[size]
        if clock is None:
            return solve(dict(limits))
        least = self.problem(size, precision).cost_range("latency_ms")[0]
        return clock.step_down(solve, lambda one: space.from_choice(one.choice), limits, least)[0]


def said_device(table: LatencyTable) -> str:
    """What the latencies of a table are of, in words: "AMD EPYC, as ONNX on this machine, one thread"."""
    how = table.provenance
    threads = "one thread" if how.threads == 1 else f"{how.threads} threads"
    return f"{how.device}, {find_backend(how.backend).words}, {threads}"


def _ranges(problems: Sequence[StagedProblem]) -> dict[str, tuple[float, float]]:
    """The least and the most of every resource over all sizes."""
    found: dict[str, tuple[float, float]] = {}
    for problem in problems:
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


def some_of(sizes: Sequence[int]) -> list[int]:
    """At most :data:`MOST_MEASURED` of ``sizes``, the smallest, the largest, and others by even ratios."""
    if len(sizes) <= MOST_MEASURED:
        return list(sizes)
    wanted = np.geomspace(sizes[0], sizes[-1], MOST_MEASURED)
    return sorted({min(sizes, key=lambda size: abs(np.log(size / one))) for one in wanted.tolist()})


def with_room(limits_ms: list[float], quickest_ms: float | None) -> list[float]:
    """Limits of our own choice, moved up until the quickest network, as timed here, keeps the tightest one.

    A table's sums are off by some percent, and by more on a busy machine: what nobody asked for must not fail by that.
    The loosest one stays where the others have room below it; else it is a little above the tightest one, and not in
    proportion, which would be far above what is compared with.

    Args:
        limits_ms: milliseconds, as they were chosen.
        quickest_ms: median of the quickest network; None where nothing is timed here, which leaves the limits alone.
    """
    if not limits_ms or quickest_ms is None:
        return limits_ms
    if ROOM * quickest_ms <= min(limits_ms):
        return [round(limit, 4) for limit in limits_ms]
    low, least, most = ROOM * quickest_ms, min(limits_ms), max(limits_ms)
    if most == least:
        return [round(low, 4)] * len(limits_ms)
    high = max(most, APART * low)
    return [round(low + (limit - least) * (high - low) / (most - least), 4) for limit in limits_ms]


def measured_here(table: LatencyTable) -> bool:
    """Whether this machine has the device of ``table``."""
    return table.provenance.device == device_name(table.provenance.processor)
