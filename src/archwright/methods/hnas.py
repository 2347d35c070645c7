"""HNAS (thesis, chapter 7): training-free scores, boosted by a few real evaluations.

An architecture's score combines a metric M and the condition number kappa of its tangent kernel, eq. 7.7:

    kappa / M + mu * F(M^2 - nu),   F(x) = x^(2t)   (``penalty="square"``; ``"absolute"`` is the authors' code, |x|^t)

and the lowest score is chosen. What mu and nu should be is not known beforehand: Bayesian optimisation chooses them by
the validation accuracy of the architecture each pair selects. Evaluated architectures leave the pool, and the best
evaluated one is the answer.

Both parameters are searched on scales of the metric itself, so that every metric fits: nu is the square of a quantile
of M, and mu multiplies F in units of the median of kappa / M over the median of F.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from archwright.predictors.gaussian_process import expected_improvement, fit
from archwright.proxies.combinations import COMBINATIONS, combined, parts_of
from archwright.proxies.score import Scores
from archwright.search.evaluator import Evaluated
from archwright.search.method import Options, Stage
from archwright.search.proposals import ProposalOptions, ProposalSearch
from archwright.search.scoring import NOISE, ScoreOptions, check_scoring, make_pool, score_pool, scoring_seconds
from archwright.search.values import Choice, StageResult
from archwright.spaces.base import Architecture

Penalty = Literal["square", "absolute"]


class HnasOptions(ScoreOptions, ProposalOptions):
    """Options of HNAS, beside those of scores and of proposals."""

    metric: str = Field("trace", description="training-free metric M, or a combination (az-nas, consensus, paths)")
    evaluations: int = Field(20, ge=1, description="architectures to evaluate for real")
    penalty: Penalty = Field("square", description="function F of eq. 7.7: square, or absolute as in the authors' code")
    exponent: float = Field(1.0, ge=0.25, le=8, description="t of eq. 7.7: F is raised to this power")
    probes: int = Field(5, ge=0, description="first evaluations, with nu on a grid and mu in the middle")


@dataclass(frozen=True)
class Objective:
    """Eq. 7.7 over a pool: M (A,) and kappa (A,), both positive."""

    metric: NDArray[np.float64]
    kappa: NDArray[np.float64]
    penalty: Penalty = "square"
    exponent: float = 1.0

    def parameters(self, log_mu: float, quantile: float) -> tuple[float, float]:
        """(mu, nu): nu the squared ``quantile`` of M, mu ``10**log_mu`` in units that make both terms alike."""
        nu = float(np.quantile(self.metric, quantile)) ** 2
        unit = np.median(self.kappa / self.metric) / max(float(np.median(self._distance(nu))), 1e-300)
        return float(10.0**log_mu * unit), nu

    def values(self, log_mu: float, quantile: float) -> NDArray[np.float64]:
        """The score of every architecture, (A,); lower is better.

        Args:
            log_mu: log10 of mu, in the units of :meth:`parameters`.
            quantile: of M, whose square is nu; 0 to 1.
        """
        mu, nu = self.parameters(log_mu, quantile)
        return self.kappa / self.metric + mu * self._distance(nu)

    def _distance(self, nu: float) -> NDArray[np.float64]:
        x = self.metric**2 - nu
        return np.abs(x) ** (self.exponent * (2 if self.penalty == "square" else 1))


ROOTED = ("knas",)
"""Metrics that are scored without the root that the text takes (eq. D.11): ranks are the same, eq. 7.7 is not."""


def make_objective(scores: Scores, metric: str, penalty: Penalty, exponent: float = 1.0) -> Objective:
    """The objective of a scored pool.

    M is a positive scale divided by its median, inverted where a lower score is better; zero (a disconnected network)
    becomes the smallest positive number that keeps M^2 and 1/M finite. A metric that has negative values is no scale
    and enters by its rank, the best highest.

    Args:
        scores: of the pool, with ``kappa``.
        metric: name of M.
        penalty: F of eq. 7.7.
        exponent: its power t.
    """
    values, direction = scores[metric], scores.direction(metric)
    if metric in ROOTED:
        values = np.sqrt(values)
    if (values < 0).any():
        m = ((direction * values).argsort().argsort() + 1) / len(values)
    else:
        scaled = np.maximum(values / np.median(values), 1e-12)
        m = scaled if direction > 0 else 1 / scaled
    return Objective(m, scores["kappa"], penalty, exponent)


LOG_MU = (-4.0, 2.0)
"""Range of log10 mu: from "kappa / M alone" to "M near nu alone"."""
QUANTILES = (0.5, 1.0)
"""Range of nu as a quantile of M: the optimum of a useful metric lies in the upper half of a space."""


GRID = (61, 41)
"""Values of log10 mu and of nu's quantile among which a proposal is chosen."""


def propose_parameters(
    past: Sequence[tuple[float, float, float]], number: int, seed: int, probes: int
) -> tuple[float, float]:
    """(log10 mu, quantile of nu) to try next; a function of the arguments alone.

    The first ``probes`` lie on a grid of quantiles. Afterwards a Gaussian process of the past says where the largest
    improvement is expected; among equals the seed and the number choose.

    Args:
        past: (log10 mu, quantile, accuracy) of what was evaluated.
        number: of the proposal, from 0.
        seed: of the search.
        probes: proposals before the Gaussian process is asked.
    """
    middle = sum(LOG_MU) / 2
    low, high = QUANTILES
    if number < probes:
        return middle, low + (high - low) * (number + 0.5) / probes
    rng = np.random.default_rng([seed, number])
    box = np.array([LOG_MU, QUANTILES])
    if not past:
        drawn = rng.uniform(box[:, 0], box[:, 1])
        return float(drawn[0]), float(drawn[1])
    axes = np.meshgrid(*[np.linspace(0, 1, count) for count in GRID], indexing="ij")
    grid = np.stack([axis.ravel() for axis in axes], axis=1)
    seen = np.array(past)
    process = fit((seen[:, :2] - box[:, 0]) / (box[:, 1] - box[:, 0]), seen[:, 2])
    gain = expected_improvement(process, grid)
    best = grid[rng.choice(np.flatnonzero(gain >= gain.max() * (1 - 1e-9)))]
    chosen = box[:, 0] + best * (box[:, 1] - box[:, 0])
    return float(chosen[0]), float(chosen[1])


class BoostedPool:
    """Proposals over a scored pool: parameters by Bayesian optimisation, then the best one not yet proposed."""

    def __init__(self, pool: Sequence[Architecture], objective: Objective, seed: int, probes: int) -> None:
        self.pool, self.objective, self.seed, self.probes = pool, objective, seed, probes
        self.tried: dict[Architecture, tuple[float, float]] = {}
        """The parameters that each architecture was proposed by."""

    def propose(self, history: Sequence[Evaluated], number: int) -> Architecture:
        """The architecture to evaluate next.

        Args:
            history: evaluations so far; failed ones teach nothing.
            number: of the evaluation, from 0.
        """
        past = [(*self.tried[one.architecture], one.accuracy) for one in history if isfinite(one.accuracy)]
        log_mu, quantile = propose_parameters(past, number, self.seed, self.probes)
        order = np.argsort(self.objective.values(log_mu, quantile), kind="stable")
        left = (self.pool[int(index)] for index in order)
        chosen = next((one for one in left if one not in self.tried), self.pool[int(order[0])])
        self.tried.setdefault(chosen, (log_mu, quantile))
        return chosen


class ScoredPool(StageResult):
    """How many architectures have scores, which, and of what images."""

    pool: int
    metric: str
    replicates: int
    images: str = ""


class Boosted(Choice):
    """The choice, the parameters that found it, and all tried: (log10 mu, quantile of nu, accuracy or None)."""

    mu: float
    nu: float
    tried: list[tuple[float, float, float | None]]


class Hnas(ProposalSearch):
    """Score a pool, then let Bayesian optimisation choose how to weigh the scores."""

    name = "hnas"
    Options: ClassVar[type[Options]] = HnasOptions
    options: HnasOptions

    def check(self) -> None:
        """Also refuses an unknown metric, and a space that cannot be scored."""
        super().check()
        check_scoring(self.context, self.options, self.metrics)

    def search_stages(self) -> list[Stage]:
        """The stage ``score``, that scores the pool, and the stage ``search``."""
        return [Stage("score", "score the pool", self._score), *super().search_stages()]

    @property
    def metric(self) -> str:
        """What is scored as M; grasp by its absolute value (eq. 7.3), which is a scale."""
        return "grasp-abs" if self.options.metric == "grasp" else self.options.metric

    @property
    def metrics(self) -> tuple[str, ...]:
        """M, or what it is a combination of, and kappa."""
        return tuple(dict.fromkeys((*parts_of(self.metric), "kappa")))

    @cached_property
    def pool(self) -> list[Architecture]:
        """What is scored and chosen from."""
        return make_pool(self.context, self.options)

    def estimate_seconds(self) -> float | None:
        """Also the scores, unless an earlier run has left them."""
        rest = super().estimate_seconds()
        return None if rest is None else rest + scoring_seconds(self.context, self.options, self.pool, self.metrics)

    @cached_property
    def boosted(self) -> BoostedPool:
        """The scored pool; scores that are in the run, or left by another one, are not computed again."""
        context, options, pool = self.context, self.options, self.pool
        scores = score_pool(context, options, pool, self.metrics, "score")
        if self.metric in COMBINATIONS:
            scores = combined(scores, self.metric)
        objective = make_objective(scores, self.metric, options.penalty, options.exponent)
        return BoostedPool(pool, objective, context.configuration.seed, options.probes)

    def _score(self) -> ScoredPool:
        data = self.context.configuration.data
        images = NOISE if data is None else str(data)
        if data is None:
            self.context.progress.say(f"The scores are of {images}: no --data.")
        return ScoredPool(
            pool=len(self.boosted.pool), metric=self.metric, replicates=self.options.replicates, images=images
        )

    @property
    def count(self) -> int:
        """No more than there are to choose from."""
        return min(self.options.evaluations, len(self.pool))

    def propose(self, history: Sequence[Evaluated], number: int) -> Architecture:
        """The best of the pool by the parameters that Bayesian optimisation proposes."""
        return self.boosted.propose(history, number)

    def conclude(self, history: Sequence[Evaluated], best: Evaluated) -> Boosted:
        """Also the parameters that chose the best one, and all that were tried."""
        tried = self.boosted.tried
        mu, nu = self.boosted.objective.parameters(*tried[best.architecture])
        seen = [(*tried[one.architecture], one.accuracy if isfinite(one.accuracy) else None) for one in history]
        return Boosted(**dict(super().conclude(history, best)), mu=mu, nu=nu, tried=seen)
