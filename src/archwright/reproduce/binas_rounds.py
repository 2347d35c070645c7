"""Measuring in rounds against one pool, evolution and chance, on tables of trained networks (no text has this table).

Every arm may look at the same number of networks for ten limits together, and names one network for each limit. Its
regret is how far that network is below the best of the table within the limit. On NAS-Bench-201 a look is one training
(the first seed), while regrets are of means over seeds; costs are a phone's latency, then parameters. On NAS-Bench-101
a look is the table's mean, and the cost is the number of parameters.

Both spaces are written as staged choices of one block a stage: a stage is an edge of NAS-Bench-201 with five
operations, or in NAS-Bench-101 one of 21 possible edges (there or not) or of five vertices (operation, or unused).

The last table is made here, of the supernet of ``binas-2``: every stage at its least or greatest depth, of its lightest
or heaviest block, which are few enough to measure all of them. A look is the accuracy on half of the validation images,
regrets are of all images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.costs.device_table import LATENCY_FILE
from archwright.costs.tables import LatencyTable
from archwright.errors import unknown_name
from archwright.methods.binas import Binas
from archwright.methods.binas.supernet import Supernet, SupernetWork
from archwright.predictors.hierarchical import attributes_of, fit_hierarchical
from archwright.predictors.rounds import Measured, RoundSettings, measure_in_rounds
from archwright.predictors.staged import StagedEstimate
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.binas import finished_search, search_scale
from archwright.runs import disk
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.solvers.problem import StagedChoice
from archwright.spaces.nasbench201 import NAMES, all_operations
from archwright.tables import nasbench101, nasbench201

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LIMITS = 10
QUANTILES = np.linspace(0.05, 0.95, LIMITS)
"""Of the table's costs: the limits."""
BUDGETS = (100, 200, 300)
DRAWS = 10
AROUND = 4
"""Networks that are measured around each limit after one pool, as in the paper's plan."""
ROUNDS = 5
AT_RANDOM = 2 / 3
"""Part of the measurements that rounds, and evolution, begin with."""
TOURNAMENT = 10
DEVICE = "pixel3"
DEPTHS = BLOCKS = (0, -1)
"""Of the supernet: which of the depths, and of the blocks by rising size, a stage may have."""


@dataclass(frozen=True)
class Table:
    """All networks of a benchmark.

    Attributes:
        configurations: of every stage, (n, S).
        measured: what a look shows, percent, (n,).
        true: what regrets are of, percent, (n,).
        cost: (n,).
        kinds: of each configuration number, what it is.
    """

    configurations: Ints
    measured: Floats
    true: Floats
    cost: Floats
    kinds: tuple[str, ...]

    def __post_init__(self) -> None:
        base = np.int64(len(self.kinds)) ** np.arange(self.configurations.shape[1], dtype=np.int64)
        codes = self.configurations @ base
        order = np.argsort(codes)
        object.__setattr__(self, "_base", base)
        object.__setattr__(self, "_sorted", (codes[order], order))

    def __len__(self) -> int:
        return len(self.cost)

    @property
    def attributes(self) -> Floats:
        """One-hot kinds, (C, C)."""
        return attributes_of([(kind,) for kind in self.kinds])

    @property
    def limits(self) -> Floats:
        """The costs that networks are wanted within, (L,)."""
        found: Floats = np.quantile(self.cost, QUANTILES)
        return found

    def choices(self, rows: Ints) -> StagedChoice:
        """The networks of ``rows`` (k,), or the one of a single row."""
        chosen = self.configurations[rows][..., None]
        return StagedChoice(np.ones(chosen.shape[:-1], np.int64), chosen)

    def rows_of(self, configurations: Ints) -> Ints:
        """The row of each of (k, S) configurations; -1 where the table has none."""
        codes, order = self._sorted  # type: ignore[attr-defined]
        asked = configurations @ self._base  # type: ignore[attr-defined]
        place = np.minimum(np.searchsorted(codes, asked), len(codes) - 1)
        found: Ints = np.where(codes[place] == asked, order[place], -1)
        return found

    def predictions(self, estimate: StagedEstimate) -> Floats:
        """What an estimate says of all networks, (n,)."""
        values = estimate.block_values[:, 0]
        found = np.zeros(len(self))
        for stage, own in enumerate(self.configurations.T):
            found += values[stage, own]
        return found

    def neighbours(self, row: int) -> Ints:
        """Rows of the networks that differ in one stage."""
        stages = self.configurations.shape[1]
        others = np.repeat(self.configurations[row][None], stages * len(self.kinds), axis=0)
        places = np.repeat(np.arange(stages), len(self.kinds))
        others[np.arange(len(others)), places] = np.tile(np.arange(len(self.kinds)), stages)
        found: Ints = np.unique(self.rows_of(others))
        near: Ints = found[(found >= 0) & (found != row)]
        return near


@dataclass(frozen=True)
class TableField:
    """The networks of a table, for rounds: every optimum is found by looking at all predictions."""

    table: Table

    @property
    def limits(self) -> int:
        """How many there are."""
        return LIMITS

    def solve(self, estimate: StagedEstimate, number: int) -> StagedChoice:
        """The highest prediction within the limit.

        Args:
            estimate: that predicts.
            number: of the limit.
        """
        within = self.table.cost <= self.table.limits[number]
        return self.table.choices(np.int64(np.where(within, self.table.predictions(estimate), -np.inf).argmax()))  # type: ignore[arg-type]

    def changes(self, choice: StagedChoice, number: int) -> StagedChoice:
        """Networks of the table that differ in one stage and keep the limit.

        Args:
            choice: whose neighbours they are.
            number: of the limit.
        """
        row = int(self.table.rows_of(choice.configurations[None, :, 0])[0])
        near = self.table.neighbours(row)
        return self.table.choices(near[self.table.cost[near] <= self.table.limits[number]])


# --- arms: the row that each names for every limit, (L,) --------------------------------------------------------------


def best_seen(table: Table, rows: Ints) -> Ints:
    """For every limit the best of ``rows`` by what was measured; the cheapest where none keeps it.

    Args:
        table: of networks.
        rows: numbers of those that were measured, (k,).
    """
    within = table.cost[rows] <= table.limits[:, None]
    best = np.where(within, table.measured[rows], -np.inf).argmax(1)
    cheapest = rows[table.cost[rows].argmin()]
    found: Ints = np.where(within.any(1), rows[best], cheapest)
    return found


def random_arm(table: Table, budget: int, rng: np.random.Generator) -> Ints:
    """The best of random networks.

    Args:
        table: of networks.
        budget: looks.
        rng: of the draws.
    """
    return best_seen(table, rng.choice(len(table), budget, replace=False))


def predicted(table: Table, rows: Ints) -> Floats:
    """Predictions of all networks, (n,), by the hierarchical ridge on the log error of ``rows``.

    Args:
        table: of networks.
        rows: numbers of those that were measured, (k,).
    """
    fit = fit_hierarchical(table.choices(rows), table.measured[rows], table.attributes)
    return table.predictions(fit.estimate)


def pool_arm(table: Table, budget: int, rng: np.random.Generator) -> Ints:
    """One random pool; what is predicted best within each limit is taken unseen.

    Args:
        table: of networks.
        budget: looks.
        rng: of the draws.
    """
    values = predicted(table, rng.choice(len(table), budget, replace=False))
    found: Ints = np.where(table.cost <= table.limits[:, None], values, -np.inf).argmax(1)
    return found


def verified_arm(table: Table, budget: int, rng: np.random.Generator) -> Ints:
    """One pool, then the few that are predicted best within each limit are measured: the paper's plan, no rounds.

    Args:
        table: of networks.
        budget: looks.
        rng: of the draws.
    """
    rows = rng.choice(len(table), budget - AROUND * LIMITS, replace=False)
    values = predicted(table, rows)
    found = [rows]
    for limit in table.limits:
        within = np.flatnonzero(table.cost <= limit)
        found.append(within[np.argsort(-values[within], kind="stable")[:AROUND]])
    return best_seen(table, np.concatenate(found))


def evolution_arm(table: Table, budget: int, rng: np.random.Generator) -> Ints:
    """Random networks, then single changes of tournament winners within one limit after the other.

    Args:
        table: of networks.
        budget: looks.
        rng: of the draws.
    """
    seen = [int(row) for row in rng.choice(len(table), round(AT_RANDOM * budget), replace=False)]
    known = set(seen)
    for number in range(budget - len(seen)):
        limit = table.limits[number % LIMITS]
        within = np.array([row for row in seen if table.cost[row] <= limit] or seen)
        drawn = rng.choice(within, min(TOURNAMENT, len(within)), replace=False)
        parents = drawn[np.argsort(-table.measured[drawn])]
        new: list[int] = []
        for parent in parents:  # the best whose neighbours are not all known
            near = table.neighbours(int(parent))
            new = [int(row) for row in near if row not in known and table.cost[row] <= limit]
            if new:
                break
        seen.append(int(rng.choice(new)) if new else int(rng.integers(len(table))))
        known.add(seen[-1])
    return best_seen(table, np.array(seen))


def rounds_arm(residuals: bool) -> Callable[[Table, int, np.random.Generator], Ints]:
    """Two thirds at random, then rounds; with or without a process of the residuals."""

    def arm(table: Table, budget: int, rng: np.random.Generator) -> Ints:
        first = rng.choice(len(table), round(AT_RANDOM * budget), replace=False)
        seed = int(rng.integers(2**31))
        settings = RoundSettings(budget - len(first), ROUNDS, residuals, seed)
        pool = Measured(table.choices(first), table.measured[first])

        def measure(choice: StagedChoice) -> list[float]:
            return [float(table.measured[table.rows_of(choice.configurations[None, :, 0])[0]])]

        known, _ = measure_in_rounds(measure, pool, TableField(table), table.attributes, settings)
        return best_seen(table, table.rows_of(known.choices.configurations[:, :, 0]))

    return arm


ARMS: Mapping[str, Callable[[Table, int, np.random.Generator], Ints]] = {
    "random": random_arm,
    "one pool": pool_arm,
    "one pool, verified": verified_arm,
    "evolution": evolution_arm,
    "rounds": rounds_arm(False),
    "rounds and residuals": rounds_arm(True),
}


def regret(table: Table, rows: Ints) -> float:
    """Mean over the limits of how far the named networks (L,) are below the best; a limit broken counts as 100.

    Args:
        table: of networks.
        rows: numbers of the named ones, (L,).
    """
    best = np.where(table.cost <= table.limits[:, None], table.true, -np.inf).max(1)
    lost = np.where(table.cost[rows] <= table.limits, best - table.true[rows], 100.0)
    return float(lost.mean())


# --- the tables -------------------------------------------------------------------------------------------------------


def table_201(cost: str) -> Table:
    """NAS-Bench-201 on CIFAR-10; ``cost`` is ``latency`` of the phone, or ``params``."""
    table = nasbench201.load_compact()
    seeds = table.column("c10_test_200_seeds")
    measured = seeds[np.arange(len(seeds)), np.isfinite(seeds).argmax(1)]
    costs = table.latencies_ms(DEVICE) if cost == "latency" else table.column("c10_params")
    true = table.accuracies("cifar10", 200, "test")
    operations = all_operations().astype(np.int64)
    return Table(operations, measured.astype(float), true, costs.astype(float), tuple(NAMES))


def table_101() -> Table:
    """NAS-Bench-101: an edge is there or not, a vertex is unused or one of three operations."""
    table = nasbench101.load_compact()
    edges, operations = table.graphs()
    pairs = list(combinations(range(7), 2))
    there = np.stack([edges[:, a, b] for a, b in pairs], axis=1).astype(np.int64)
    used = np.asarray(edges.any(axis=1))[:, 1:6]
    vertices = np.where(used, operations.astype(np.int64) + 3, 2)
    kinds = ("no edge", "edge", "unused", "conv1x1", "conv3x3", "maxpool3x3")
    accuracy = table.test_accuracy
    return Table(np.concatenate([there, vertices], axis=1), accuracy, accuracy, table.params.astype(float), kinds)


MAKERS: Mapping[str, Callable[[], Table]] = {
    "nb201-latency": lambda: table_201("latency"),
    "nb201-params": lambda: table_201("params"),
    "nb101-params": table_101,
}


def table_of_supernet(work: SupernetWork, folder: Path, progress: Progress) -> Table:
    """Sub-networks whose stages are shallow or deep, of light or heavy blocks, measured and timed.

    Args:
        work: of the finished search whose supernet it is.
        folder: where what is measured is kept.
        progress: where a bar is shown.
    """
    space = work.space
    by_size = sorted(range(len(space.configurations)), key=space.configurations.__getitem__)
    kinds = [(space.depths[depth], by_size[block]) for block in BLOCKS for depth in DEPTHS]
    table = np.array(list(product(range(len(kinds)), repeat=space.stages)), dtype=np.int64)
    chosen = StagedChoice.stack([_choice([kinds[kind] for kind in row], space.most_blocks) for row in table])
    log = ItemLog(folder / "subnetworks.jsonl")
    with progress.task("measuring sub-networks", len(table), len(log.done)) as bar:
        for number in range(len(table)):
            if str(number) not in log.done:
                work.context.stop.check()
                correct = work.outcome(chosen[number]).correct
                log.record(str(number), [100 * float(own.mean()) for own in (correct[::2], correct)])
                bar.advance()
    measured, true = np.array([log.done[str(number)] for number in range(len(table))], dtype=float).T
    latencies = LatencyTable.load(work.context.run.folder / "artifacts" / LATENCY_FILE).costs(space).problem(space)
    cost = latencies.evaluate(chosen)[1]["latency_ms"]
    return Table(table, measured, true, cost, tuple(f"{depth} of {space.configurations[one]}" for depth, one in kinds))


def _choice(stages: list[tuple[int, int]], most_blocks: int) -> StagedChoice:
    """Depth and configuration of every stage as a choice."""
    depths = np.array([depth for depth, _ in stages])
    return StagedChoice.masked(depths, np.repeat([[one] for _, one in stages], most_blocks, axis=1))


@needs()
def binas_rounds_supernet(settings: Settings) -> Outcome:
    """The same on sub-networks of the supernet of ``binas-2``."""
    answer = finished_search(settings)
    method = reopened(Run.open(answer.folder), Stop(), Progress())
    assert isinstance(method, Binas)
    assert isinstance(method.strategy, Supernet)
    work = method.strategy.work
    own = replace(settings, folder=settings.folder / answer.folder.name)
    disk.make_folder(own.folder)
    draws, name = settings.seeds or DRAWS, "supernet"
    rows = regrets(own, {name: lambda: table_of_supernet(work, own.folder, own.progress)}, draws)
    notes = [
        f"{LIMITS} limits a search (quantiles .05 to .95 of the latency), {draws} draws; the deviation is over draws",
        "every stage has its least or greatest depth and its lightest or heaviest block; all these are measured",
        "a look is the accuracy on half of the validation images, regrets are of all of them; latencies by the table",
    ]
    return Outcome(search_scale(settings, answer), rows, notes)


@needs("nb201", "nb101", images=False)
def binas_rounds(settings: Settings) -> Outcome:
    """Regret of every arm by measurements, on every table; kept number by number."""
    draws = settings.seeds or DRAWS
    if settings.only is not None and settings.only not in MAKERS:
        raise unknown_name("table", settings.only, MAKERS)
    names = [settings.only] if settings.only else list(MAKERS)
    notes = [
        f"{LIMITS} limits a search (quantiles .05 to .95 of the cost), {draws} draws; the deviation is over draws",
        f"latencies of {DEVICE} are known for every cell here; on a device the choice is timed",
        "a look on NAS-Bench-201 is one training, regrets are of means over seeds; on NAS-Bench-101 both are the mean",
        "NAS-Bench-101: the 21 + 5 decisions depend on how vertices are numbered, and costs are not additive",
        "no text has this table; binas-rounds-supernet has the supernet of binas-2",
    ]
    rows = regrets(settings, {name: MAKERS[name] for name in names}, draws)
    return Outcome(f"tables of trained networks, {draws} draws", rows, notes)


def regrets(settings: Settings, makers: Mapping[str, Callable[[], Table]], draws: int) -> list[Row]:
    """A row for every table, budget and arm; every draw is kept in the study's folder.

    Args:
        settings: folder and progress.
        makers: of the tables, called where something of theirs is not known yet.
        draws: of every arm.
    """
    log, rows = ItemLog(settings.folder / "regrets.jsonl"), []
    with settings.progress.task("searches", len(makers) * len(BUDGETS) * len(ARMS) * draws) as bar:
        for name, make in makers.items():
            table = None
            for budget in BUDGETS:
                for label, arm in ARMS.items():
                    values = []
                    for draw in range(draws):
                        key = f"{name}:{budget}:{label}:{draw}"
                        if key not in log.done:
                            table = table or make()
                            rng = np.random.default_rng([draw, budget])
                            log.record(key, regret(table, arm(table, budget, rng)))
                        values.append(float(log.done[key]))
                        bar.advance()
                    rows.append(Row.of(f"{name}, {budget} measured, {label}", "points of regret", None, values))
    return rows
