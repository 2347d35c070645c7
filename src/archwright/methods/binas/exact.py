"""What the strategies with a supernet choose by: the exact front of a predictor, and what is measured around a limit.

Predictor and latency are additive over a network's stages, so all undominated networks are one pass
(:mod:`archwright.solvers.pareto`); limits on several resources go to an integer program. What is predicted best is not
always best: the networks just within a limit, and those of the rounds that measured best, are compared by what they do
on validation images, and the best one is built and timed. While it is over the limit, the choice steps down.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.costs.device_table import DeviceTable
from archwright.runs.files import write_json
from archwright.search.answer import Candidate
from archwright.search.context import Context
from archwright.search.values import StageResult
from archwright.solvers import milp, pareto
from archwright.solvers.problem import Solution, StagedProblem
from archwright.spaces.staged import StagedSpace

AROUND = 4
"""Networks of the front just within a limit, and of the rounds, that are measured before one is chosen."""
FRONT_SHOWN = 50
"""Points of the front in the answer; all of them are in ``artifacts/front.json``."""
SHARE_OF_ROUNDS = 1 / 3
"""Part of the measurements that is spent in rounds."""
SHARES_OF_RANGE = (0.25, 0.5)
"""Where between the fastest and the slowest network the limits are that a search without limits gets."""


class RoundsResult(StageResult):
    """Networks that the rounds measured, in order, and rows of outcomes that they took."""

    networks: list[str]
    rows: int


class FrontResult(StageResult):
    """How many networks the exact front has, and some of them from end to end."""

    points: int
    front: list[Candidate]


class ChosenNetwork(StageResult):
    """The network that is tuned for one set of limits."""

    limits: dict[str, float]
    architecture: str
    predicted_accuracy: float
    solver: str


class VerifyResult(StageResult):
    """One network for every set of limits."""

    chosen: list[ChosenNetwork]


def solve_within(problem: StagedProblem, limits: Mapping[str, float]) -> Solution:
    """The best choice within all limits: from the exact front for one resource, else by the integer program.

    Args:
        problem: values and costs.
        limits: by resource, one or more.
    """
    if len(limits) == 1:
        ((name, limit),) = limits.items()
        return pareto.solve(problem, name, limit)
    return milp.solve(problem, dict(limits))


@dataclass(frozen=True)
class ExactChoice:
    """Chooses the network of every limit.

    Attributes:
        context: of the search.
        table: of what networks cost, with the limits.
        size: the place of the table: an image size in pixels a side.
        space: of the networks.
        problem: the predictor's terms against all costs.
        percent: accuracies in percent of the predictor's sums.
        loss: cross entropy of a network on the validation images, measured once.
        measured: networks of the rounds, the most accurate first.
    """

    context: Context
    table: DeviceTable
    size: int
    space: StagedSpace[Any]
    problem: StagedProblem
    percent: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    loss: Callable[[str], float]
    measured: Sequence[str]

    def solve(self) -> FrontResult:
        """The whole front, kept in the run; limits that cannot be met together are said now."""
        begin = time.perf_counter()
        front = pareto.front(self.problem, "latency_ms")
        seconds = time.perf_counter() - begin
        choices, percent = front.choices(), self.percent(front.values)
        points: list[dict[str, Any]] = [
            {"architecture": str(self.space.from_choice(choices[i])), "predicted_accuracy": value, "latency_ms": cost}
            for i, (value, cost) in enumerate(zip(percent.tolist(), front.costs.tolist(), strict=True))
        ]
        write_json(self.context.run.artifact("front.json"), points)
        self.context.progress.say(f"Exact front: {len(front)} networks in {1000 * seconds:.0f} ms.")
        for limits in self.table.limit_sets:
            solve_within(self.problem, limits)
        shown = np.unique(np.linspace(0, len(points) - 1, FRONT_SHOWN).round().astype(int))
        return FrontResult(points=len(points), front=[Candidate(**points[i]) for i in shown])

    def verify(self) -> VerifyResult:
        """The chosen network of every limit; where it is timed, one that keeps it."""
        log, found = self.context.run.items("verify"), []
        with self.context.progress.task("timing the chosen networks", len(self.table.limit_sets)) as bar:
            for limits in self.table.limit_sets:
                key = json.dumps(limits)
                if key not in log.done:
                    log.record(key, self.choose(limits).model_dump(mode="json"))
                found.append(ChosenNetwork.model_validate(log.done[key]))
                bar.advance()
        return VerifyResult(chosen=found)

    def choose(self, limits: dict[str, float]) -> ChosenNetwork:
        """The best network within the limits, as timed here.

        Args:
            limits: by resource.
        """
        solution = self.table.fitting(self.size, self.best, limits)
        return ChosenNetwork(
            limits=limits,
            architecture=str(self.space.from_choice(solution.choice)),
            predicted_accuracy=float(self.percent(np.array(solution.value))),
            solver=solution.solver,
        )

    def best(self, limits: Mapping[str, float]) -> Solution:
        """Of the networks that are predicted or were measured best within the limits the one of least cross entropy.

        Args:
            limits: by resource.
        """
        best = solve_within(self.problem, limits)
        if len(limits) > 1:  # there is no front of several resources
            return best
        ((name, limit),) = limits.items()
        front = pareto.front(self.problem, name)
        near = front.choices(np.flatnonzero(front.costs <= limit)[-AROUND:])
        choices = [near[number] for number in range(len(near))]
        seen = [self.space.to_choice(self.space.parse(text)) for text in self.measured]
        choices += [choice for choice in seen if self.problem.cost(choice, name) <= limit][:AROUND]
        found = {str(self.space.from_choice(best.choice)): best}
        for choice in choices:
            one = self.problem.solution(choice, float(self.problem.evaluate(choice)[0]), best.seconds, best.solver)
            if one.costs[name] <= limit:
                found.setdefault(str(self.space.from_choice(choice)), one)
        return min(found.items(), key=lambda item: self.loss(item[0]))[1]
