"""What BINAS knows before it trains anything: latencies of all blocks here, their training steps, and the limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from archwright.costs.additive import StagedCosts, counted_costs
from archwright.costs.limits import Reachable
from archwright.costs.measure import Timing, device_name
from archwright.costs.tables import FEWEST_NETWORKS, LatencyTable, measure_table, parts
from archwright.costs.tables import ROUNDS as TABLE_ROUNDS
from archwright.errors import InputError
from archwright.methods.binas.latency import Clock, latency_of, say_if_busy
from archwright.methods.binas.options import BinasOptions
from archwright.search.context import Context
from archwright.search.values import StageResult
from archwright.spaces.staged import StagedSpace

ROOM = 1.25
"""How far the tightest limit of our own choice is above the lightest network's time."""


class TableResult(StageResult):
    """What is known when the latency table is made.

    Attributes:
        least_ms: of the quickest network; ``most_ms`` of the slowest one.
        device: what the latencies are of.
        busy: whether the machine was too busy to time.
        chosen_limits_ms: latency limits of a search that was given none.
        reference_ms: of the lightest network, where it was timed here.
    """

    least_ms: float
    most_ms: float
    device: str
    busy: bool
    chosen_limits_ms: list[float]
    reference_ms: float | None


@dataclass
class Tables:
    """Tables and limits of one search.

    Attributes:
        choose_limits: the latencies in milliseconds that a search without limits gets, of the finished latency table.
    """

    context: Context
    options: BinasOptions
    space: StagedSpace[Any]
    choose_limits: Callable[[LatencyTable], list[float]]

    @property
    def timing(self) -> Timing:
        """How latencies are measured."""
        return timing_of(self.options, self.context)

    @cached_property
    def counted(self) -> StagedCosts:
        """What is known without measuring."""
        return counted_costs(self.space)

    def check(self) -> None:
        """Refuse limits that no network meets, among those whose costs are known already."""
        costs = self.counted
        if self.context.run.header and self.context.run.stage_result("table") is not None:
            costs |= self.latency.costs(self.space)
        elif self.options.latency_table is not None:
            costs |= self._given().costs(self.space)
        self.check_limits(costs)

    def check_limits(self, costs: StagedCosts) -> None:
        """Refuse limits that no network meets, among those whose costs are given."""
        problem = costs.problem(self.space)
        ranges = {name: problem.cost_range(name) for name in problem.resources}
        Reachable(ranges, "exact").check(self.context.configuration.limit_sets)

    def _given(self) -> LatencyTable:
        table = LatencyTable.load(Path(self.options.latency_table or ""))
        table.check(self.space)
        if table.provenance.training:
            raise InputError("a table of latencies", "one of training steps")
        return table

    def measured(self, timing: Timing, what: str, name: str, networks: int) -> LatencyTable:
        """A table measured here, corrected by so many networks; an interrupted measurement goes on."""
        context = self.context
        total = TABLE_ROUNDS * (len(parts(self.space)) + (networks and networks + 2))
        with context.progress.task(what, total) as bar:

            def progress(done: int, total: int) -> None:
                context.stop.check()  # every finished measurement is in the log
                bar.advance()

            log = context.run.folder / "items" / f"{name}.jsonl"
            seed = context.configuration.seed
            return measure_table(self.space, timing, log=log, networks=networks, seed=seed, progress=progress)

    def make(self) -> TableResult:
        """The stage ``table``: the latency table, with the reachable range and the limits said aloud."""
        context, given = self.context, self.options.latency_table is not None
        busy = False if given else say_if_busy(self.space, self.timing, context.progress)
        table = self._given() if given else self.measured(self.timing, "latency table", "table", FEWEST_NETWORKS)
        table.save(context.run.artifact("latency.json"))
        costs = table.costs(self.space)
        self.check_limits(costs)
        least, most = costs.problem(self.space).cost_range("latency_ms")
        where = f"{table.provenance.device} ({table.provenance.backend}, {table.provenance.threads} thread(s))"
        context.progress.say(f"Networks of this space take {least:.3g} to {most:.3g} ms on {where}.")
        timed = self.options.verify and measured_here(table)
        reference = latency_of(self.space, self.space.lightest(), table).median_ms if timed else None
        chosen = [] if context.configuration.limits else with_room(self.choose_limits(table), reference)
        if chosen:
            said = " and ".join(f"{limit:.3g} ms" for limit in chosen)
            context.progress.say(f"No limit was given (--latency-ms): {said} are taken.")
        for limit in (one.get("latency_ms", 0.0) for one in context.configuration.limit_sets):
            if limit > most:
                context.progress.say(f"The limit {limit:g} ms is above the slowest network's {most:.3g} ms.")
        return TableResult(
            least_ms=least,
            most_ms=most,
            device=where,
            busy=busy,
            chosen_limits_ms=chosen,
            reference_ms=reference,
        )

    # --- after the stage ---

    @property
    def latency(self) -> LatencyTable:
        """The run's own copy, which everything after the stage ``table`` goes by."""
        return LatencyTable.load(self.context.run.artifact("latency.json"))

    @property
    def result(self) -> TableResult:
        """What the stage ``table`` returned."""
        return TableResult.model_validate(self.context.run.stage_result("table"))

    @property
    def costs(self) -> StagedCosts:
        """All resources that limits may be on."""
        return self.counted | self.latency.costs(self.space)

    @property
    def limit_sets(self) -> list[dict[str, float]]:
        """What is asked for, one model each."""
        given = self.context.configuration
        if given.limits:
            return given.limit_sets
        return [{"latency_ms": limit} for limit in self.result.chosen_limits_ms]

    @cached_property
    def clock(self) -> Clock | None:
        """Times networks here; None where nothing is to be timed, or the table is of another device."""
        table, reference = self.latency, self.result.reference_ms
        if not self.options.verify:  # also where the table is of a run that timed
            return None
        if reference is None or not measured_here(table):
            self.context.progress.say(f"The table is of {table.provenance.device!r}: nothing is timed here.")
            return None
        return Clock(self.space, table, reference, self.context.progress, self.context.stop)


def timing_of(options: BinasOptions, context: Context) -> Timing:
    """How latencies are measured, by the options."""
    processor = context.device.name if options.backend == "eager" else "cpu"
    return Timing(options.backend, options.latency_threads, repeats=options.latency_repeats, processor=processor)


def with_room(limits_ms: list[float], lightest_ms: float | None) -> list[float]:
    """Limits of our own choice, raised together until the lightest network, as timed here, keeps the tightest one.

    A table's sums are off by some percent, and by more on a busy machine: what nobody asked for must not fail by that.
    """
    if not limits_ms or lightest_ms is None:
        return limits_ms
    factor = max(1.0, ROOM * lightest_ms / min(limits_ms))
    return [round(factor * limit, 4) for limit in limits_ms]


def measured_here(table: LatencyTable) -> bool:
    """Whether this machine has the device of ``table``."""
    return table.provenance.device == device_name(table.provenance.processor)
