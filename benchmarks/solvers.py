"""Every solver on a synthetic problem of real size, and on one ten times as large: time, gap, limit met.

    python benchmarks/solvers.py --json

The problem is ``synthetic_problem(seed=0)``: values in accuracy points, latencies in ms; 5 stages (240 + 15 binary
decisions), then 50. Limits are evenly spaced between 5 % and 95 % of the reachable range. The exact solver and HiGHS
have no randomness: their runs are repeated for the time. SCIP, where installed, solves the bilinear program once a
limit, for ``--scip-seconds`` at most, and on the large problem at every fifth limit. ``exact-front-widths`` is
``synthetic_widths_problem(seed=0)``, 3 widths a stage, compared with HiGHS at 100 limits; ``solve-50-worst`` and
``solve-100-worst`` are the slowest of 50 single limits at 50 and 100 stages.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from archwright.solvers import Solution, StagedProblem, evolution, frank_wolfe, milp, pareto, quadratic
from archwright.solvers.synthetic import synthetic_problem, synthetic_widths_problem

RESOURCE = "latency_ms"
Solver = Callable[[float, int], Solution]


@dataclass(frozen=True)
class Row:
    """One run of one solver at one limit."""

    limit: float
    seconds: float
    gap: float
    met: bool


def front_seconds(problem: StagedProblem, repeats: int) -> tuple[float, pareto.Front]:
    """Median time of the whole exact front, and the front."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        front = pareto.front(problem, RESOURCE)
        times.append(time.perf_counter() - start)
    return median(times), front


def measure(solver: Solver, limits: list[float], optimum: dict[float, float], seeds: int) -> list[Row]:
    """Run a solver at every limit with every seed; gap is the optimum less the value."""
    rows = []
    for limit in limits:
        for seed in range(seeds):
            solution = solver(limit, seed)
            met = solution.costs[RESOURCE] <= limit
            rows.append(Row(limit, solution.seconds, optimum[limit] - solution.value, met))
    return rows


def run(stages: int, limit_count: int, seeds: int, scip_seconds: float) -> tuple[float, int, dict[str, list[Row]]]:
    """Seconds and points of the whole front, and all rows by solver."""
    problem = synthetic_problem(0, stages=stages)
    low, high = problem.cost_range(RESOURCE)
    limits = [float(limit) for limit in low + np.linspace(0.05, 0.95, limit_count) * (high - low)]
    seconds, front = front_seconds(problem, repeats=7 if stages <= 5 else 1)
    optimum = {limit: float(problem.evaluate(front.best(limit))[0]) for limit in limits}
    solvers: dict[str, Solver] = {
        "exact": lambda limit, _: pareto.solve(problem, RESOURCE, limit),
        "HiGHS": lambda limit, _: milp.solve(problem, {RESOURCE: limit}),
        "BCFW": lambda limit, seed: frank_wolfe.solve(problem, RESOURCE, limit, seed),
        "evolution": lambda limit, seed: evolution.solve(problem, RESOURCE, limit, seed),
    }
    rows = {name: measure(solver, limits, optimum, seeds) for name, solver in solvers.items()}
    if importlib.util.find_spec("pyscipopt"):
        some = limits if stages <= 5 else limits[::5]

        def scip(limit: float, _: int) -> Solution:
            return quadratic.solve(problem, {RESOURCE: limit}, time_limit=scip_seconds)

        rows["SCIP"] = measure(scip, some, optimum, 1)
    return seconds, len(front), rows


def widths_front(limit_count: int = 100) -> tuple[float, int, float]:
    """With 3 widths a stage: seconds and points of the whole front, and its largest distance to HiGHS at the limits."""
    problem = synthetic_widths_problem(0)
    seconds, front = front_seconds(problem, repeats=7)
    low, high = problem.cost_range(RESOURCE)
    distances = []
    for limit in np.random.default_rng(0).uniform(low, high, limit_count):
        ours = float(problem.evaluate(front.best(float(limit)))[0])
        distances.append(abs(ours - milp.solve(problem, {RESOURCE: float(limit)}).value))
    return seconds, len(front), max(distances)


def worst_ms(stages: int, limit_count: int = 50) -> float:
    """The slowest single limit of ``limit_count`` over nearly the whole range, in milliseconds."""
    problem = synthetic_problem(0, stages=stages)
    low, high = problem.cost_range(RESOURCE)
    limits = low + np.linspace(0.02, 0.98, limit_count) * (high - low)
    return 1000 * max(pareto.solve(problem, RESOURCE, float(limit)).seconds for limit in limits)


def show(console: Console, stages: int, seconds: float, points: int, rows: dict[str, list[Row]]) -> None:
    title = f"{stages} stages; the whole exact front: {points} points in {1000 * seconds:.1f} ms"
    table = Table("solver", "runs", "median ms", "median gap", "worst gap", "limit met", title=title)
    for name, own in rows.items():
        gaps = [row.gap for row in own]
        table.add_row(
            name, str(len(own)), f"{1000 * median(row.seconds for row in own):.1f}", f"{median(gaps):.3f}",
            f"{max(gaps):.3f}", f"{100 * np.mean([row.met for row in own]):.0f} %",
        )  # fmt: skip
    console.print(table)


def summary(stages: int, seconds: float, rows: dict[str, list[Row]]) -> list[dict[str, object]]:
    """The results of one problem size; those of the larger one carry the number of stages."""
    suffix = "" if stages == 5 else f"-{stages}-stages"
    results: list[dict[str, object]] = [{"label": f"exact-front{suffix}", "value": 1000 * seconds, "unit": "ms"}]
    for name, own in rows.items():
        mean_gap = float(np.mean([row.gap for row in own]))
        results.append({"label": f"{name.lower()}-gap{suffix}", "value": mean_gap, "unit": "points"})
        milliseconds = 1000 * median(row.seconds for row in own)
        results.append({"label": f"{name.lower()}-time{suffix}", "value": milliseconds, "unit": "ms"})
    return results


def time_ratios(seconds: float, rows: list[Row]) -> list[dict[str, object]]:
    """Evolution's time for one limit over the exact front's for all of them, by limit."""
    by_limit: dict[float, list[float]] = {}
    for row in rows:
        by_limit.setdefault(row.limit, []).append(row.seconds / seconds)
    ratios = {limit: median(own) for limit, own in by_limit.items()}
    each = [{"label": f"evolution/exact at {limit:.2f} ms", "value": ratio} for limit, ratio in ratios.items()]
    return [{"label": "evolution/exact", "value": median(ratios.values())}, *each]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    parser.add_argument("--limits", type=int, default=20, help="of every solver; five times as many with widths")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--scip-seconds", type=float, default=10.0)
    options = parser.parse_args()
    console = Console(file=sys.stderr)
    results: list[dict[str, object]] = []
    ratios: list[dict[str, object]] = []
    for stages in (5, 50):
        seconds, points, rows = run(stages, options.limits, options.seeds, options.scip_seconds)
        show(console, stages, seconds, points, rows)
        results += summary(stages, seconds, rows)
        if stages == 5:
            ratios = time_ratios(seconds, rows["evolution"])
    compared = 5 * options.limits
    seconds, points, distance = widths_front(compared)
    console.print(
        f"3 widths a stage: {points} points in {1000 * seconds:.0f} ms, {distance:.1e} from HiGHS at {compared} limits"
    )
    results.append({"label": "exact-front-widths", "value": 1000 * seconds, "unit": "ms"})
    results.append({"label": "exact-front-widths-to-highs", "value": distance, "unit": "points"})
    for stages in (50, 100):
        worst = worst_ms(stages)
        console.print(f"{stages} stages, the slowest of 50 single limits: {worst:.0f} ms")
        results.append({"label": f"solve-{stages}-worst", "value": worst, "unit": "ms"})
    if options.json:
        print(json.dumps({"benchmark": "solvers", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
