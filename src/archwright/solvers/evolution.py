"""Evolutionary search on the staged problem, with the settings of the papers, vectorised over the population.

A genome has one gene a block for its configuration, S * D in all, then one a stage for its depth; genes beyond the
depth are carried along. A child outside the limit is drawn again a few times, then replaced by its parent.
"""

from __future__ import annotations

import time

import numpy as np

from archwright.solvers.lagrange import relax
from archwright.solvers.problem import Floats, Ints, Solution, StagedChoice, StagedProblem

REDRAWS = 2


def solve(
    problem: StagedProblem,
    resource: str,
    limit: float,
    seed: int = 0,
    population: int = 100,
    iterations: int = 500,
    parent_ratio: float = 0.25,
    mutation_ratio: float = 0.5,
    mutation_probability: float = 0.1,
) -> Solution:
    """The best architecture within the limit after some generations.

    Each generation keeps the best ``parent_ratio`` of the population and adds ``population`` children:
    ``mutation_ratio`` of them mutants of one parent, the rest crossovers of two.

    Args:
        problem: with one width a stage.
        resource: name of the one that is limited.
        limit: most of it.
        seed: of the draws.
        population: architectures of the first generation, and children of each.
        iterations: generations.
        parent_ratio: share of the population that is kept.
        mutation_ratio: share of the children that are mutants.
        mutation_probability: of each gene of a mutant.
    """
    start = time.perf_counter()
    problem.check_single("evolution")
    bound = relax(problem, resource, limit).bound
    rng = np.random.default_rng(seed)
    genomes = _Genomes(problem, resource, limit)
    parents = max(1, round(population * parent_ratio))
    mutants = round(population * mutation_ratio)

    current, fitness = genomes.first(population, rng)
    for _ in range(iterations):
        elite = np.argpartition(-fitness, min(parents, len(fitness)) - 1)[:parents]
        current, fitness = current[elite], fitness[elite]
        first, second = rng.integers(0, len(current), (2, population))
        children, child_fitness = current[first], fitness[first]
        missing = np.arange(population)
        for _ in range(REDRAWS):
            alone = np.searchsorted(missing, mutants)  # the first children are mutants of one parent
            drawn = children[missing]
            drawn[:alone] = genomes.mutate(drawn[:alone], mutation_probability, rng)
            drawn[alone:] = genomes.cross(drawn[alone:], current[second[missing[alone:]]], rng)
            values, costs = genomes.evaluate(drawn)
            within = costs <= genomes.limit
            children[missing[within]], child_fitness[missing[within]] = drawn[within], values[within]
            missing = missing[~within]
            if not len(missing):
                break
        current = np.concatenate([current, children])
        fitness = np.concatenate([fitness, child_fitness])
    choice = genomes.choice(current[int(fitness.argmax())])
    return problem.solution(choice, bound, time.perf_counter() - start, "evolution")


class _Genomes:
    """Genomes (n, S*D + S) of one problem: how to draw, change and evaluate them quickly."""

    def __init__(self, problem: StagedProblem, resource: str, limit: float) -> None:
        stages, blocks, configurations = problem.shape
        self.problem, self.resource = problem, resource
        self.limit = limit - 1e-12 * abs(limit)  # sums here differ from the problem's own by rounding errors
        self.blocks = stages * blocks
        self.depths = [np.array(allowed) for allowed in problem.depths]  # what each value of a depth gene stands for
        self.sizes = np.array([configurations] * self.blocks + [len(allowed) for allowed in self.depths])
        self.offsets = np.concatenate([[0], self.sizes.cumsum()[:-1]])
        value = [problem.block_values.ravel()]
        cost = [problem.block_costs[resource].ravel()]
        for stage, allowed in enumerate(self.depths):
            value.append(problem.depth_values[stage, allowed - 1])
            cost.append(problem.depth_costs[resource][stage, allowed - 1])
        self.table = np.concatenate(value) + 1j * np.concatenate(cost)  # one look-up for both
        self.present = np.concatenate([np.arange(blocks) < allowed[:, None] for allowed in self.depths])
        self.present_offsets = self.offsets[self.blocks :] - self.blocks * configurations

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        drawn: Ints = (rng.random((count, len(self.sizes))) * self.sizes).astype(np.int64)
        return drawn

    def first(self, count: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Random genomes within the limit; where they are too rare, the cheapest genome fills up."""
        genomes = np.repeat(self._cheapest()[None], count, axis=0)
        missing = np.arange(count)
        for _ in range(REDRAWS):
            drawn = self.draw(len(missing), rng)
            within = self.evaluate(drawn)[1] <= self.limit
            genomes[missing[within]] = drawn[within]
            missing = missing[~within]
        return genomes, self.evaluate(genomes)[0]

    def mutate(self, genomes: Ints, probability: float, rng: np.random.Generator) -> Ints:
        """Each gene drawn anew with the given probability; one random number decides and draws."""
        chance = rng.random(genomes.shape) / probability
        return np.where(chance < 1.0, (chance * self.sizes).astype(np.int64), genomes)

    def cross(self, genomes: Ints, others: Ints, rng: np.random.Generator) -> Ints:
        """Each gene from either parent."""
        return np.where(rng.random(genomes.shape) < 0.5, genomes, others)

    def evaluate(self, genomes: Ints) -> tuple[Floats, Floats]:
        """Values (n,) and costs (n,)."""
        parts = self.table[self.offsets + genomes]
        present = self.present[self.present_offsets + genomes[:, self.blocks :]].reshape(len(genomes), self.blocks)
        totals = np.einsum("nb,nb->n", parts[:, : self.blocks], present) + parts[:, self.blocks :].sum(1)
        return totals.real + self.problem.fixed_value, totals.imag + self.problem.fixed_costs[self.resource]

    def choice(self, genome: Ints) -> StagedChoice:
        """The architecture of one genome (S*D + S,)."""
        depths = [allowed[gene] for allowed, gene in zip(self.depths, genome[self.blocks :], strict=True)]
        return StagedChoice.masked(depths, genome[: self.blocks].reshape(self.problem.shape[:2]))

    def _cheapest(self) -> Ints:
        cheapest = self.problem.cheapest(self.resource)
        genes = [int(np.searchsorted(own, depth)) for own, depth in zip(self.depths, cheapest.depths, strict=True)]
        return np.concatenate([np.maximum(cheapest.configurations, 0).ravel(), genes])
