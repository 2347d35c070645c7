"""Measure where it pays: rounds of networks that a predictor's posterior proposes, with a new fit after each.

A pool of random networks says what design decisions are worth on average; the best network within a limit is none of
them. So the last part of a budget is spent in rounds. For every network of a round the predictor's terms are drawn from
their posterior (Thompson sampling), the exact optimum of that draw within a limit is solved for, and it, or a network
one decision away from it, is measured. All measurements together give the next fit. What is chosen in the end is the
best of *everything* measured, which asks nothing of the predictor.

A Gaussian process of what the additive terms leave over (``residuals=True``) knows of interactions: then the network of
a round is the one that ridge and process together draw highest, among that optimum and all that are one decision away.

Proposals are functions of what was measured, the seed and the number of the round: whoever keeps measurements goes on
after a kill and ends with the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Protocol

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular

from archwright.errors import InputError
from archwright.predictors.hierarchical import HierarchicalFit, TermPosterior, fit_hierarchical
from archwright.predictors.staged import StagedEstimate
from archwright.solvers.problem import Floats, Solution, StagedChoice, StagedProblem

Measure = Callable[[StagedChoice], Sequence[float]]
"""Outcomes of one network in percent: one or several, each as reliable as a row of the pool."""

LENGTHS = (1.0, 2.0, 4.0, 8.0)
NOISES = (0.05, 0.2, 0.5, 1.0, 3.0)
"""Of the process of residuals: decisions over which it forgets, and the noise of a row over the process' variance."""
TRIES = 20
"""Draws that a round makes for a network before it gives up finding one that was not measured."""


class Field(Protocol):
    """The networks that may be measured, and the limits that one is wanted for."""

    @property
    def limits(self) -> int:
        """How many limits there are."""

    def solve(self, estimate: StagedEstimate, number: int) -> StagedChoice:
        """The best network by ``estimate`` within limit ``number``."""

    def changes(self, choice: StagedChoice, number: int) -> StagedChoice:
        """The networks (n) one decision away from ``choice`` that keep limit ``number``."""


@dataclass(frozen=True)
class StagedField:
    """The networks of a staged problem.

    Attributes:
        problem: with the costs; its values are not looked at.
        limit_sets: limits by resource, one set for each network that is wanted.
        solver: the best choice of a problem within limits.
    """

    problem: StagedProblem
    limit_sets: Sequence[Mapping[str, float]]
    solver: Callable[[StagedProblem, dict[str, float]], Solution]

    @property
    def limits(self) -> int:
        """How many sets there are."""
        return len(self.limit_sets)

    def solve(self, estimate: StagedEstimate, number: int) -> StagedChoice:
        """The best network by ``estimate`` within limit ``number``, exactly, by the solver."""
        depths = estimate.depth_values
        if estimate.width_values.size:
            depths = estimate.width_values[:, :, None] + depths[:, None]
        drawn = replace(self.problem, block_values=estimate.block_values, depth_values=depths)
        return self.solver(drawn, dict(self.limit_sets[number])).choice

    def changes(self, choice: StagedChoice, number: int) -> StagedChoice:
        """Those of ``choice`` with one configuration, depth or width changed that keep limit ``number``."""
        others = StagedChoice.stack(list(single_changes(self.problem, choice)))
        costs = self.problem.evaluate(others)[1]
        kept = np.all([costs[name] <= limit for name, limit in self.limit_sets[number].items()], axis=0)
        return others[np.flatnonzero(kept)]


def single_changes(problem: StagedProblem, choice: StagedChoice) -> Iterator[StagedChoice]:
    """The choices one decision away; a stage that gets deeper repeats the configuration of its last block.

    Args:
        problem: says what is allowed.
        choice: one of its choices.
    """
    allowed = problem.allowed_configurations
    for stage, depth in enumerate(choice.depths.tolist()):
        for block in range(depth):
            for other in np.flatnonzero(allowed[stage, block]).tolist():
                if other != choice.configurations[stage, block]:
                    yield _with(choice, stage, {block: other})
        last = int(choice.configurations[stage, depth - 1])
        for deeper in problem.depths[stage]:
            if deeper != depth:
                new = range(depth, deeper)
                filled = {b: last if allowed[stage, b, last] else int(allowed[stage, b].argmax()) for b in new}
                yield _with(choice, stage, filled, deeper)
        for width in range(problem.widths[stage]):
            if width != choice.widths[stage]:
                widths = choice.widths.copy()
                widths[stage] = width
                yield StagedChoice(choice.depths, choice.configurations, widths)


def _with(choice: StagedChoice, stage: int, blocks: Mapping[int, int], depth: int | None = None) -> StagedChoice:
    depths, configurations = choice.depths.copy(), choice.configurations.copy()
    for block, configuration in blocks.items():
        configurations[stage, block] = configuration
    if depth is not None:
        depths[stage] = depth
    return StagedChoice.masked(depths, configurations, choice.widths)


@dataclass(frozen=True)
class RoundSettings:
    """How the last part of a budget is spent.

    Attributes:
        networks: that are measured in all rounds together.
        rounds: with a fit before each.
        residuals: whether a Gaussian process of the ridge's residuals has a say.
        seed: of all draws.
    """

    networks: int
    rounds: int
    residuals: bool = True
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.networks < 1:
            raise InputError("at least one round of one network", f"{self.rounds} rounds, {self.networks} networks")


@dataclass(frozen=True, eq=False)
class Measured:
    """Rows of measurements: networks (n) and outcomes in percent (n,)."""

    choices: StagedChoice
    accuracy: Floats

    def with_rows(self, choice: StagedChoice, outcomes: Sequence[float]) -> Measured:
        """The ``outcomes`` of one network, ``choice``, more."""
        more = StagedChoice.stack([choice] * len(outcomes))
        joined = [np.concatenate([getattr(self.choices, name), getattr(more, name)]) for name in _FIELDS]
        return Measured(StagedChoice(*joined), np.concatenate([self.accuracy, np.asarray(outcomes, float)]))


_FIELDS = ("depths", "configurations", "widths")


def key_of(choice: StagedChoice) -> bytes:
    """What tells one choice from another."""
    return b"".join(np.ascontiguousarray(getattr(choice, name)).tobytes() for name in _FIELDS)


def measure_in_rounds(
    measure: Measure, pool: Measured, field: Field, attributes: Floats, settings: RoundSettings, num_widths: int = 1
) -> tuple[Measured, list[StagedChoice]]:
    """Everything that is known after the rounds: the pool's rows and the new ones; and the new networks in order.

    Args:
        measure: asked for each network of a round; it keeps what it finds if a kill must not cost it.
        pool: rows of random networks.
        field: what may be measured, and the limits.
        attributes: (C, A) of :func:`archwright.predictors.hierarchical.attributes_of`.
        settings: how many networks, in how many rounds, and the seed.
        num_widths: W.
    """
    known, proposed = pool, []
    seen = {key_of(pool.choices[i]) for i in range(len(pool.choices))}
    shares = np.array_split(np.arange(settings.networks), settings.rounds)
    for number, share in enumerate(shares):
        proposals = list(_proposals(known, seen, field, attributes, settings, num_widths, number, len(share)))
        for choice in proposals:  # all of a round are proposed before any of it is measured
            known = known.with_rows(choice, measure(choice))
            proposed.append(choice)
    return known, proposed


def _proposals(
    known: Measured,
    seen: set[bytes],
    field: Field,
    attributes: Floats,
    settings: RoundSettings,
    num_widths: int,
    number: int,
    count: int,
) -> Iterator[StagedChoice]:
    """New networks of one round, one limit after the other; fewer where draws lead to nothing new."""
    if not count:
        return
    fit = fit_hierarchical(known.choices, known.accuracy, attributes, num_widths)
    posterior = TermPosterior.of(fit, known.choices, known.accuracy, attributes, num_widths)
    process = Residuals.of(known, fit, len(attributes), num_widths) if settings.residuals else None
    for place in range(count):
        rng = np.random.default_rng([settings.seed, number, place])
        for _ in range(TRIES):
            estimate = posterior.draw(rng)
            best = field.solve(estimate, place % field.limits)
            choice = _one_of(best, field, place, seen, estimate, process, rng)
            if choice is not None:
                seen.add(key_of(choice))
                yield choice
                break


def _one_of(
    best: StagedChoice,
    field: Field,
    place: int,
    seen: set[bytes],
    estimate: StagedEstimate,
    process: Residuals | None,
    rng: np.random.Generator,
) -> StagedChoice | None:
    """The optimum of a draw, or a network one decision away from it; None where all were measured."""
    around = field.changes(best, place % field.limits)
    candidates = [best, *(around[i] for i in range(len(around)))]
    new = [one for one in candidates if key_of(one) not in seen]
    if not new:
        return None
    if process is None:  # the optimum itself and a change of it by turns
        return new[0] if place % 2 == 0 or len(new) == 1 else new[1 + int(rng.integers(len(new) - 1))]
    together = StagedChoice.stack(new)
    return new[int((estimate.predict(together) + process.draw(together, rng)).argmax())]


@dataclass(frozen=True, eq=False)
class Residuals:
    """A Gaussian process of what the additive terms leave over: covariance v exp(-h / length), h decisions apart.

    Attributes:
        x: one-hot rows (m, N) of the different networks.
        solved: K^-1 r of their mean residuals r, (m,).
        lower: Cholesky factor of K, (m, m).
        variance: v.
        length: in decisions.
        shape: (C, W) of the one-hot rows.
        log_likelihood: of the residuals, without its constant.
    """

    x: Floats
    solved: Floats
    lower: Floats
    variance: float
    length: float
    shape: tuple[int, int]
    log_likelihood: float

    @classmethod
    def of(cls, known: Measured, fit: HierarchicalFit, num_configurations: int, num_widths: int = 1) -> Residuals:
        """The most likely process of a grid; a network that was measured several times has less noise.

        Args:
            known: measurements.
            fit: whose residuals they are.
            num_configurations: C.
            num_widths: W.
        """
        shape = num_configurations, num_widths
        rows = known.choices.one_hot(*shape)
        x, member, counts = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
        residual = fit.target(known.accuracy) - fit.estimate.predict(known.choices)
        mean, total = np.bincount(member.ravel(), residual) / counts, max(float(residual.var()), 1e-12)
        alike = {length: np.exp(-_apart(x, x) / length) for length in LENGTHS}
        found = []
        for length, noise in product(LENGTHS, NOISES):
            variance = total / (1 + noise)
            lower: Floats = cholesky(variance * alike[length] + np.diag(variance * noise / counts), lower=True)
            solved = cho_solve((lower, True), mean)
            likelihood = float(-0.5 * mean @ solved - np.log(np.diag(lower)).sum())
            found.append(cls(x, solved, lower, variance, length, shape, likelihood))
        return max(found, key=lambda one: one.log_likelihood)

    def predict(self, choices: StagedChoice) -> tuple[Floats, Floats]:
        """Mean and standard deviation (k,) at ``choices`` (k), in the units of the fit's target."""
        cross = self.variance * np.exp(-_apart(self.x, choices.one_hot(*self.shape)) / self.length)
        explained = (solve_triangular(self.lower, cross, lower=True) ** 2).sum(0)
        return cross.T @ self.solved, np.sqrt(np.maximum(self.variance - explained, 1e-12 * self.variance))

    def draw(self, choices: StagedChoice, rng: np.random.Generator) -> Floats:
        """One draw by ``rng`` at each of ``choices`` (k,), as if they were independent."""
        mean, deviation = self.predict(choices)
        return mean + deviation * rng.standard_normal(len(mean))


def _apart(first: Floats, second: Floats) -> Floats:
    """Decisions, (n, k), in which one-hot rows (n, N) and (k, N) differ; half of one where only one has a block."""
    ones = first.sum(1)[:, None] + second.sum(1)
    apart: Floats = (ones - 2 * first @ second.T) / 2
    return apart
