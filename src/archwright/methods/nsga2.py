"""NSGA-II (Deb et al., 2002): the front of several objectives, by evolution that keeps what is undominated and apart.

Objectives are numbers that a user's function returns, the accuracy of a trained network, and counted costs. Departures:
a generation is ``batch`` children (one by default), and parents are the best of everything that was evaluated, so the
search is a function of its history and can be resumed anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from archwright.errors import InfeasibleError, InputError
from archwright.search.evaluator import Evaluated
from archwright.search.method import Options
from archwright.search.objectives import HOW
from archwright.search.proposals import ProposalOptions, ProposalSearch, feasible_sample, feasible_start
from archwright.search.task import Task
from archwright.solvers.dominance import crowding, ranks
from archwright.spaces.base import Architecture


class Nsga2Options(ProposalOptions):
    """What NSGA-II is asked beside what every search by proposals is."""

    evaluations: int = Field(100, ge=1, description="architectures to evaluate, the first population included")
    population: int = Field(20, ge=2, description="architectures that parents are drawn from: the best so far")
    crossover: float = Field(0.9, ge=0, le=1, description="share of children that have two parents")
    batch: int = Field(1, ge=1, description="children made from the same parents (evaluated side by side)")


class Nsga2(ProposalSearch):
    """Parents win tournaments of two by their front, then by how far their neighbours on it are."""

    name = "nsga2"
    remembers, needs_objectives = False, True
    Options: ClassVar[type[Options]] = Nsga2Options
    options: Nsga2Options

    @classmethod
    def completed(cls, task: Task) -> dict[str, object]:
        """Also accuracy against multiply-accumulates; a function of the user's must come with its objectives."""
        asked = task.configuration
        if asked.evaluate is not None and asked.objectives is None:
            raise InputError("--objectives beside --evaluate with the method 'nsga2'", "none", HOW)
        return {**super().completed(task), "objectives": ("accuracy", "-macs")}

    @property
    def batch(self) -> int:
        """How many children are made from the same parents."""
        return self.options.batch

    def propose(self, history: Sequence[Evaluated], number: int) -> Architecture:
        """Random while the first population fills; then a mutated child of two winners.

        Args:
            history: what was evaluated, oldest first.
            number: of the proposal, from 0; seeds the draws.
        """
        space, rng, o = self.context.task.space, self.context.rng("nsga2", number), self.options
        good = [one for one in history if np.isfinite(one.objectives).all() and one.objectives]
        if number < o.population or not good:
            return feasible_start(self.context, rng)
        parents = best_of(good, o.population)

        def child() -> Architecture:
            first, second = (_winner(parents, rng) for _ in range(2))
            mixed = space.crossover(first, second, rng) if rng.random() < o.crossover else first
            mutant: Architecture = space.mutate(mixed, rng)
            return mutant

        try:
            return feasible_sample(self.context, child, tries=1000)
        except InfeasibleError:
            return feasible_start(self.context, rng)


def best_of(history: Sequence[Evaluated], count: int) -> list[Evaluated]:
    """The ``count`` best by front and crowding, the best first; an architecture counts once.

    Args:
        history: with finite objectives.
        count: how many at most.
    """
    each = list({one.architecture: one for one in history}.values())
    values = np.array([one.objectives for one in each])
    fronts, apart = ranks(values), np.zeros(len(each))
    for rank in range(int(fronts.max()) + 1):
        own = np.flatnonzero(fronts == rank)
        apart[own] = crowding(values[own])
    order = np.lexsort((-apart, fronts))
    return [each[number] for number in order[:count]]


def _winner(parents: Sequence[Evaluated], rng: np.random.Generator) -> Architecture:
    """The better of two parents drawn by chance: that which comes first."""
    drawn = rng.integers(len(parents), size=2)
    return parents[int(drawn.min())].architecture
