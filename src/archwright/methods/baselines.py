"""The searches every other one is measured against: random, and regularised evolution (Real et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice
from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from archwright.errors import InfeasibleError
from archwright.search.evaluator import Evaluated
from archwright.search.method import Options
from archwright.search.proposals import ProposalOptions, ProposalSearch, feasible_sample, feasible_start
from archwright.spaces.base import Architecture


class EvolutionOptions(ProposalOptions):
    """Options of regularised evolution."""

    evaluations: int = Field(100, ge=1, description="architectures to evaluate, the first population included")
    population: int = Field(20, ge=2, description="architectures that are alive: the youngest")
    sample: int = Field(
        10, ge=1, description="architectures that are drawn for a tournament; the best of them is the parent"
    )
    batch: int = Field(1, ge=1, description="children made from the same population (evaluated side by side)")

    @model_validator(mode="after")
    def _sample_fits(self) -> EvolutionOptions:
        if self.sample > self.population:
            raise ValueError(f"--sample ({self.sample}) cannot be larger than --population ({self.population})")
        return self


class RandomSearch(ProposalSearch):
    """Distinct random architectures; the best evaluated one is the answer."""

    name = "random"
    remembers = False

    @property
    def batch(self) -> int:
        """All at once: no proposal depends on another."""
        return 4 * self.context.executor.workers

    def propose(self, history: Sequence[Evaluated], number: int) -> Architecture:
        """The ``number``-th of a sequence of distinct random architectures, whatever the ``history`` is."""
        sequence = self._sequence
        while len(sequence) <= number:
            try:
                sequence.append(feasible_sample(self.context, self._draw_new))
            except InfeasibleError:
                if not sequence:
                    sequence.append(feasible_start(self.context, self._rng))
                # Fewer meet the limits than evaluations were asked for: they repeat, which costs nothing.
                sequence.extend(islice(cycle(tuple(sequence)), self.options.evaluations))
            self._seen.add(sequence[-1])
        return sequence[number]

    def _draw_new(self) -> Architecture:
        while True:
            architecture: Architecture = self.context.task.space.sample(self._rng)
            if architecture not in self._seen or len(self._seen) >= self.context.task.space.size // 2:
                return architecture

    def check(self) -> None:
        """Also prepares the sequence."""
        super().check()
        self._rng: np.random.Generator = self.context.rng("random search")
        self._sequence: list[Architecture] = []
        self._seen: set[Architecture] = set()


class Evolution(ProposalSearch):
    """Regularised evolution: the ``population`` youngest are alive; a child is a mutation of a tournament's winner."""

    name = "evolution"
    remembers = False
    Options: ClassVar[type[Options]] = EvolutionOptions
    options: EvolutionOptions

    @property
    def batch(self) -> int:
        """Children made from the same population."""
        return self.options.batch

    def propose(self, history: Sequence[Evaluated], number: int) -> Architecture:
        """Random while the first population fills; then mutate the fittest of a random sample of the youngest.

        Args:
            history: what was evaluated, oldest first.
            number: of the proposal, from 0; seeds the draws.
        """
        space, rng = self.context.task.space, self.context.rng("evolution", number)
        if number < self.options.population or not history:
            return feasible_start(self.context, rng)
        alive = history[-self.options.population :]
        drawn = rng.choice(len(alive), size=min(self.options.sample, len(alive)), replace=False)
        parent = max((alive[int(i)] for i in drawn), key=lambda one: one.accuracy)
        try:
            return feasible_sample(self.context, lambda: space.mutate(parent.architecture, rng), tries=1000)
        except InfeasibleError:  # no neighbour of the parent meets the limits
            return feasible_start(self.context, rng)
