"""Ensembles for NESBS: how they are drawn, and how they score with the weights of one supernet.

``svgd-rd`` draws them by SVGD with regularised diversity, whose delta is the best of a grid or searched for by Optuna;
``mc`` and ``uniform`` draw members independently; ``nes-rs`` and ``deep`` choose from a random pool.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from archwright.data import Batches
from archwright.errors import InfeasibleError, InputError
from archwright.runs import checkpoints
from archwright.runs.checkpoints import Checkpoints
from archwright.search.answer import ScoredEnsemble
from archwright.search.context import Context
from archwright.search.method import Options
from archwright.solvers.svgd import Floats, average_test_error, ensemble_error, pairwise_disagreement
from archwright.spaces.base import Architecture
from archwright.spaces.supernet_space import SupernetSpace
from archwright.supernets.base import Supernet
from archwright.supernets.measure import BATCH, predict
from archwright.supernets.posterior import Sampler

SamplerName = Literal["svgd-rd", "mc", "uniform", "nes-rs", "deep"]
DELTAS = (-0.75, -0.5, 0.0, 0.5, 1.0)
"""Grid of delta; at -1 particles climb to the same mode, and below, where the thesis goes, they attract each other."""
TRIES = {"svgd-rd": 20}
MOST_TRIES = 500
"""How many ensembles are drawn for one that can be used; SVGD-RD takes longer than a draw."""


class DrawOptions(Options):
    """How ensembles are drawn."""

    size: int = Field(3, ge=2, description="members of the ensemble")
    sampler: SamplerName = Field(
        "svgd-rd", description="how ensembles are drawn; deep: one architecture, trained several times"
    )
    candidates: int = Field(5, ge=1, description="ensembles that are scored (svgd-rd: for each delta)")
    delta: float | None = Field(None, description="diversity of svgd-rd; by default it is searched for")
    delta_search: Literal["grid", "optuna"] = Field(
        "grid", description="how delta is searched for: at -0.75, -0.5, 0, 0.5 and 1, or by Optuna in between"
    )
    svgd_steps: int = Field(1000, ge=1, description="iterations of svgd-rd")
    temperature: float = Field(1.0, gt=0, description="temperature of the posterior when ensembles are drawn")
    pool: int = Field(12, ge=2, description="random architectures that nes-rs and deep choose from")


@dataclass
class Inherited:
    """Class probabilities (images, classes) of architectures with the supernet's weights, each computed once.

    Attributes:
        supernet: trained.
        batches: what to predict, the same whenever iterated over.
        seen: called after each network.
        store: where predictions are kept in case of a kill.
    """

    supernet: Supernet
    batches: Batches
    seen: Callable[[], None] = lambda: None
    store: Checkpoints | None = None

    def __post_init__(self) -> None:
        kept = self.store.latest() if self.store is not None else None
        self.known: dict[str, Floats] = {} if kept is None else kept[1]
        self._saved = time.monotonic()

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Of the images, (images,)."""
        return np.concatenate([labels.cpu().numpy() for _, labels in self.batches])

    def of(self, architecture: Architecture) -> Floats:
        """Class probabilities (images, classes) of one architecture."""
        text = str(architecture)
        if text not in self.known:
            weights = self.supernet.one_hot(architecture, self.batches.device)
            self.known[text] = predict(self.supernet, weights, self.batches, BATCH)
            if self.store is not None and time.monotonic() - self._saved > checkpoints.SECONDS:
                self.store.save(len(self.known), self.known)
                self._saved = time.monotonic()
            self.seen()
        return self.known[text]

    def score(self, members: Sequence[Architecture], delta: float | None = None) -> ScoredEnsemble:
        """An ensemble by the mean of its members' probabilities.

        Args:
            members: of the ensemble.
            delta: of the SVGD-RD that drew it, for the record; None for other draws.
        """
        parts = [self.of(member) for member in members]
        return ScoredEnsemble(
            architectures=[str(member) for member in members],
            delta=delta,
            loss=mean_loss(parts, self.labels),
            error=ensemble_error(parts, self.labels),
            ate=average_test_error(parts, self.labels),
            ppd=pairwise_disagreement(parts),
        )


def mean_loss(probabilities: Sequence[Floats], labels: NDArray[np.int64]) -> float:
    """Mean cross entropy, in nats, of an ensemble.

    Args:
        probabilities: of each member, (images, classes) each, which are averaged.
        labels: (images,).
    """
    mean = np.mean(np.stack(probabilities), axis=0)[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(mean, 1e-12)).mean())


def greedy(
    pool: Sequence[Architecture], size: int, loss: Callable[[list[Architecture]], float]
) -> list[Architecture] | None:
    """NES-RS' forward selection without replacement: always the one that lowers the loss of the ensemble most.

    Args:
        pool: to choose from.
        size: members to choose; None is returned where the pool has no so many that go together.
        loss: of an ensemble; infinite for what must not be.
    """
    chosen: list[Architecture] = []
    while len(chosen) < size:
        rest = [one for one in pool if one not in chosen]
        losses = [loss([*chosen, one]) for one in rest]
        if not rest or not np.isfinite(min(losses)):
            return None
        chosen.append(rest[int(np.argmin(losses))])
    return chosen


class EnsembleSearch:
    """Draws ensembles and scores them with inherited weights.

    Args:
        context: of the search: its randomness, its stop and its limits.
        options: how ensembles are drawn.
        sampler: of architectures.
        inherited: predictions with the supernet's weights.
        fits: whether members are within the limits together.
    """

    def __init__(
        self,
        context: Context,
        options: DrawOptions,
        sampler: Sampler,
        inherited: Inherited,
        fits: Callable[[Sequence[Architecture]], bool],
    ) -> None:
        self.context, self.options, self.sampler = context, options, sampler
        self.inherited, self.fits = inherited, fits
        self.left_out = 0
        self.over_limits = 0

    def from_sampler(self) -> list[ScoredEnsemble]:
        """T ensembles (for each delta)."""
        o = self.options
        grid: tuple[float | None, ...] = (None,)
        if o.sampler == "svgd-rd":
            grid = DELTAS if o.delta is None else (o.delta,)
        if o.sampler == "svgd-rd" and o.delta_search == "optuna":
            found = self._by_optuna()
        else:
            pairs = itertools.product(enumerate(grid), range(o.candidates))
            found = [self._scored(delta, (number, candidate)) for (number, delta), candidate in pairs]
        usable = [one for one in found if one is not None]
        if not usable:
            raise self._nothing()
        return usable

    def _scored(self, delta: float | None, place: tuple[int, int]) -> ScoredEnsemble | None:
        self.context.stop.check()
        members = self._one(delta, place)
        return None if members is None else self.inherited.score(members, delta)

    def _by_optuna(self) -> list[ScoredEnsemble | None]:
        """As many ensembles as the grid has, each at the delta that Optuna's tree-structured Parzen estimator asks for.

        Draws and scores are functions of the place in the order, so that a resumed search asks the same.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = int(self.context.rng("delta").integers(2**31))
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
        found: list[ScoredEnsemble | None] = []
        for number in range(self.options.candidates * len(DELTAS)):
            trial = study.ask()
            one = self._scored(trial.suggest_float("delta", min(DELTAS), max(DELTAS)), (0, number))
            found.append(one)
            if one is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, one.loss)
        return found

    def _one(self, delta: float | None, place: tuple[int, int]) -> list[Architecture] | None:
        """The first drawn ensemble of different members within the limits."""
        o, sampler = self.options, self.sampler
        for attempt in range(TRIES.get(o.sampler, MOST_TRIES)):
            rng = self.context.rng("ensemble", *place, attempt)
            if delta is None:
                members = distinct(sampler.space, (sampler.monte_carlo(rng) for _ in range(MOST_TRIES)), o.size)
            else:
                drawn = sampler.particles(o.size, rng, delta=delta, steps=o.svgd_steps)
                members = distinct(sampler.space, iter(drawn), o.size)
            if len(members) == o.size and self.fits(members):
                return members
            self.over_limits += len(members) == o.size
            self.left_out += 1
        return None

    def _nothing(self) -> Exception:
        if self.over_limits:
            limits = self.context.configuration.limits
            return InfeasibleError(
                f"none of {self.left_out} drawn ensembles of {self.options.size} meets {limits} in the sum of its "
                "members. Raise the limit, or lower --size."
            )
        return InputError(
            f"ensembles of {self.options.size} different architectures",
            f"draws that all fall on fewer ({self.left_out} tried)",
            "Raise --delta (above -1 particles repel each other) or --temperature, or lower --size.",
        )

    def from_pool(self) -> list[ScoredEnsemble]:
        """NES-RS' ensemble, or the pool's best architecture n times."""
        o, rng, uniform = self.options, self.context.rng("pool"), Sampler(self.sampler.space)
        pool = distinct(uniform.space, (uniform.monte_carlo(rng) for _ in range(MOST_TRIES * o.pool)), o.pool)
        if o.sampler == "deep":
            alone = [[one] * o.size for one in pool if self.fits([one] * o.size)]
            return [self.inherited.score(one) for one in alone] or self._refuse()

        def loss(members: list[Architecture]) -> float:
            if not self.fits(members):
                self.over_limits += 1
                return float("inf")
            return mean_loss([self.inherited.of(one) for one in members], self.inherited.labels)

        chosen = greedy(pool, o.size, loss)
        return self._refuse() if chosen is None else [self.inherited.score(chosen)]

    def _refuse(self) -> list[ScoredEnsemble]:
        limits, size = self.context.configuration.limits, self.options.size
        raise InfeasibleError(
            f"no ensemble of {size} out of a pool of {self.options.pool} meets {limits} in the sum of its members. "
            "Raise the limit or --pool, or lower --size."
        )


def distinct(space: SupernetSpace[Any], drawn: Iterator[Architecture], count: int) -> list[Architecture]:
    """The first ``count`` of ``drawn`` that differ in ``space`` also up to isomorphism; fewer if there are no more."""
    found: dict[str, Architecture] = {}
    for one in drawn:
        found.setdefault(str(space.canonical(one)), one)
        if len(found) == count:
            break
    return list(found.values())
