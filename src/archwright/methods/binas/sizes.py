"""Image size as a decision of BINAS: the networks around a pretrained one at several sizes, with one latency table.

Which sizes are looked at: those that the images allow, less those whose lightest network is too slow for every limit,
and less those that are too small: where the whole network at a larger size keeps the tightest limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from archwright.costs.additive import counted_costs
from archwright.costs.limits import Reachable
from archwright.costs.measure import Timing
from archwright.costs.tables import FEWEST_NETWORKS, LatencyTable, measure_table, parts
from archwright.costs.tables import ROUNDS as TABLE_ROUNDS
from archwright.methods.binas.latency import MARGIN, Clock, latency_of, quickest_round, say_if_busy
from archwright.methods.binas.options import BinasOptions
from archwright.methods.binas.tables import TableResult, measured_here, timing_of, with_room
from archwright.pretrained import Start
from archwright.search.context import Context
from archwright.solvers.problem import StagedProblem
from archwright.spaces.mbconv import MbConv

SIZES = (48, 64, 96, 128, 160)
ENLARGED, ALWAYS = 4 / 3, 128
"""Images are enlarged to so many times their own size at most, but to so many pixels in any case: details that
pretrained filters look for have the size they have in photographs of 224 px."""
TIGHTER = 0.5
"""A search without limits gets the latency of the whole network at the largest size, and so many times that."""


class SizedResult(TableResult):
    """What is known when the latency table is made.

    Attributes:
        sizes: that are searched.
        references_ms: by size, of the lightest network, where it was timed here.
    """

    sizes: list[int]
    references_ms: dict[int, float]


def sizes_for(own: int, asked: int | None) -> tuple[int, ...]:
    """Sizes to look at for images of ``own`` px; the one that was ``asked`` for, if any."""
    if asked is not None:
        return (asked,)
    return tuple(size for size in SIZES if size <= max(ALWAYS, ENLARGED * own))


def searched(
    lightest_ms: Mapping[int, float], whole_ms: Mapping[int, float], loosest_ms: float, tightest_ms: float
) -> list[int]:
    """Those sizes, by the milliseconds of the lightest and of the whole network at each, that are worth a look."""
    quick_enough = [size for size, ms in lightest_ms.items() if ms <= loosest_ms]
    comfortable = [size for size in quick_enough if whole_ms[size] <= MARGIN * tightest_ms]
    return [size for size in quick_enough if size >= max(comfortable, default=0)] or [min(lightest_ms)]


@dataclass
class SizedTables:
    """Latencies and limits of one search over several sizes.

    Attributes:
        own_size: of the images.
    """

    context: Context
    options: BinasOptions
    start: Start
    classes: int
    own_size: int
    _clocks: dict[int, Clock] = field(default_factory=dict)

    @property
    def timing(self) -> Timing:
        """How latencies are measured."""
        return timing_of(self.options, self.context)

    @property
    def allowed(self) -> tuple[int, ...]:
        """Sizes that the images allow."""
        return sizes_for(self.own_size, self.context.configuration.image_size)

    def space(self, size: int) -> MbConv:
        """The networks at one size."""
        return self.start.space(self.classes, size)

    def check(self) -> None:
        """Refuse limits that no network meets, among those whose costs are known already."""
        run = self.context.run
        if run.header and run.stage_result("table") is not None:
            self._check_limits({size: self.costs(size) for size in self.result.sizes})
        else:
            self._check_limits(
                {size: counted_costs(self.space(size)).problem(self.space(size)) for size in self.allowed}
            )

    def _check_limits(self, problems: Mapping[int, StagedProblem]) -> None:
        ranges: dict[str, tuple[float, float]] = {}
        for problem in problems.values():
            for name in problem.resources:
                low, high = problem.cost_range(name)
                least, most = ranges.get(name, (low, high))
                ranges[name] = min(low, least), max(high, most)
        Reachable(ranges, "exact").check(self.context.configuration.limit_sets)

    # --- the stage ---

    def make(self) -> SizedResult:
        """The stage ``table``: which sizes, the latency table, the reachable range and the limits, said aloud."""
        context = self.context
        busy = say_if_busy(self.space(self.allowed[0]), self.timing, context.progress)
        lightest, whole = self.ends()
        chosen = [] if context.configuration.limits else self._chosen(lightest, whole)
        limits = [one["latency_ms"] for one in context.configuration.limit_sets if "latency_ms" in one] or chosen
        sizes = searched(lightest, whole, max(limits), min(limits)) if limits else list(self.allowed)
        return self.made(sizes, chosen, busy=busy)

    def made(self, sizes: list[int], chosen: list[float], *, busy: bool) -> SizedResult:
        """The same for given sizes; ``chosen`` are limits that the user did not give."""
        context, table = self.context, self._measured(sizes)
        table.save(context.run.artifact("latency.json"))
        problems = {size: self._problem(size, table) for size in sizes}
        self._check_limits(problems)
        ranges = [problem.cost_range("latency_ms") for problem in problems.values()]
        least, most = min(low for low, _ in ranges), max(high for _, high in ranges)
        where = f"{table.provenance.device} ({table.provenance.backend}, {table.provenance.threads} thread(s))"
        shown = ", ".join(f"{size} px" for size in sizes)
        context.progress.say(f"Networks at {shown} take {least:.3g} to {most:.3g} ms on {where}.")
        self._say_enlarged(sizes)
        if chosen:
            said = " and ".join(f"{limit:.3g} ms" for limit in chosen)
            context.progress.say(f"No limit was given (--latency-ms): {said} are taken.")
        timed = self.options.verify
        references = {n: latency_of(self.space(n), self.space(n).lightest(), table).median_ms for n in sizes if timed}
        return SizedResult(
            least_ms=least,
            most_ms=most,
            device=where,
            busy=busy,
            chosen_limits_ms=chosen,
            reference_ms=min(references.values(), default=None),
            sizes=sizes,
            references_ms=references,
        )

    def ends(self) -> tuple[dict[int, float], dict[int, float]]:
        """Milliseconds of the lightest and of the whole network at every allowed size; timed once."""
        log = self.context.run.items("sizes")
        with self.context.progress.task("image sizes", len(self.allowed), len(log.done)) as bar:
            for size in self.allowed:
                if str(size) not in log.done:
                    self.context.stop.check()
                    space = self.space(size)
                    ends = (space.lightest(), space.heaviest())
                    log.record(str(size), [quickest_round(space, end, self.timing).median_ms for end in ends])
                    bar.advance()
        return tuple({size: float(log.done[str(size)][end]) for size in self.allowed} for end in (0, 1))  # type: ignore[return-value]

    def _chosen(self, lightest: Mapping[int, float], whole: Mapping[int, float]) -> list[float]:
        loosest = whole[max(whole)] / MARGIN
        return with_room([round(TIGHTER * loosest, 4), round(loosest, 4)], min(lightest.values()))

    def _measured(self, sizes: list[int]) -> LatencyTable:
        """One table for all sizes; an interrupted measurement goes on."""
        context, spaces = self.context, [self.space(size) for size in sizes]
        count = sum(len(parts(space)) + 2 for space in spaces) + FEWEST_NETWORKS
        with context.progress.task("latency table", TABLE_ROUNDS * count) as bar:

            def progress(done: int, total: int) -> None:
                context.stop.check()  # every finished measurement is in the log
                bar.advance()

            log, seed = context.run.folder / "items" / "table.jsonl", context.configuration.seed
            return measure_table(spaces, self.timing, log=log, seed=seed, progress=progress)

    def _say_enlarged(self, sizes: list[int]) -> None:
        larger = [size for size in sizes if size > self.own_size]
        if larger:
            self.context.progress.say(
                f"The images have {self.own_size} px; at {' and '.join(map(str, larger))} px they are enlarged."
            )

    # --- after it ---

    @property
    def result(self) -> SizedResult:
        """What the stage ``table`` returned."""
        return SizedResult.model_validate(self.context.run.stage_result("table"))

    @cached_property
    def latency(self) -> LatencyTable:
        """The run's own copy."""
        return LatencyTable.load(self.context.run.artifact("latency.json"))

    def _problem(self, size: int, table: LatencyTable, *values: Any) -> StagedProblem:
        space = self.space(size)
        return (counted_costs(space) | table.costs(space)).problem(space, *values)

    def costs(self, size: int, *values: Any) -> StagedProblem:
        """All resources at one size; ``values`` of blocks and of depths, and a fixed one, are zero by default."""
        return self._problem(size, self.latency, *values)

    @property
    def limit_sets(self) -> list[dict[str, float]]:
        """What is asked for, one model each."""
        given = self.context.configuration
        return given.limit_sets if given.limits else [{"latency_ms": one} for one in self.result.chosen_limits_ms]

    @property
    def clock(self) -> Clock | None:
        """Of the largest size: whether anything is timed here."""
        return self.clock_at(self.result.sizes[-1])

    def clock_at(self, size: int) -> Clock | None:
        """Times networks of one size here; None where nothing is to be timed."""
        reference = self.result.references_ms.get(size)
        if reference is None or not measured_here(self.latency):
            return None
        if size not in self._clocks:
            context = self.context
            self._clocks[size] = Clock(self.space(size), self.latency, reference, context.progress, context.stop)
        return self._clocks[size]
