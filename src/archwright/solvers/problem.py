"""The staged problem every solver takes: choose a depth per stage and a configuration per block, under limits.

Letters: S stages, D blocks at most in a stage, C configurations of a block. One-hot beta^s_d says that stage s has
depth d, one-hot alpha^s_{b,c} that its block b has configuration c; a block counts when its stage is at least that
deep (eqs. 3 to 5 of BINAS):

    value = fixed + sum_s sum_d beta^s_d v^s_d + sum_s sum_{b <= d_s} sum_c alpha^s_{b,c} v^s_{b,c}

and every resource (``latency_ms``, ``params``, ...) has a cost of the same form. Depth d is column d - 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archwright.errors import InfeasibleError, InputError, unknown_name

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ABSENT = -1
"""The configuration of a block that its stage is too shallow to have."""


@dataclass(frozen=True, eq=False)
class StagedChoice:
    """One architecture, or an array of them, as integers.

    Args:
        depths: (..., S), the number of blocks in each stage.
        configurations: (..., S, D), each block's configuration, ``ABSENT`` (-1) beyond the depth.
    """

    depths: Ints
    configurations: Ints

    @classmethod
    def masked(cls, depths: ArrayLike, configurations: ArrayLike) -> StagedChoice:
        """Depths and a configuration for every block, with those beyond the depth set to ``ABSENT``."""
        depths, configurations = np.asarray(depths, np.int64), np.asarray(configurations, np.int64)
        present = np.arange(configurations.shape[-1]) < depths[..., None]
        return cls(depths, np.where(present, configurations, ABSENT))

    def __getitem__(self, index: int | slice | Ints) -> StagedChoice:
        """Entries of an array of choices."""
        return StagedChoice(self.depths[index], self.configurations[index])

    def __len__(self) -> int:
        if self.depths.ndim < 2:
            raise TypeError("one choice has no length; only an array of choices has")
        return len(self.depths)

    def one_hot(self, num_configurations: int) -> Floats:
        """The vector x = (alpha, beta), (..., S*D*C + S*D), with alpha zero for absent blocks."""
        lead, (_, most) = self.depths.shape[:-1], self.configurations.shape[-2:]
        alpha = self.configurations[..., None] == np.arange(num_configurations)
        beta = self.depths[..., None] == np.arange(1, most + 1)
        return np.concatenate([alpha.reshape(*lead, -1), beta.reshape(*lead, -1)], axis=-1).astype(float)


@dataclass(frozen=True)
class Solution:
    """What every solver returns.

    Args:
        choice: the architecture, which meets the limits.
        value: its objective.
        costs: what it takes of every resource.
        bound: no architecture within the limits is better than this.
        gap: bound - value; zero for an exact answer.
        seconds: wall-clock time of the solver.
        solver: its name.
    """

    choice: StagedChoice
    value: float
    costs: dict[str, float]
    bound: float
    gap: float
    seconds: float
    solver: str


@dataclass(frozen=True, eq=False)
class StagedProblem:
    """Values and costs of every decision (see the module's formula).

    Args:
        block_values: (S, D, C).
        block_costs: per resource (S, D, C), not negative.
        depth_values: (S, D).
        depth_costs: per resource (S, D), not negative; a resource left out has none.
        depths: per stage the allowed depths, each within 1..D.
        fixed_value: value of the parts that are not searched.
        fixed_costs: per resource the cost of those parts; a resource left out has none. An intercept fitted to
            measurements may be negative, so only the whole architecture's cost must not be.
    """

    block_values: Floats
    block_costs: Mapping[str, Floats]
    depth_values: Floats
    depth_costs: Mapping[str, Floats]
    depths: tuple[tuple[int, ...], ...]
    fixed_value: float
    fixed_costs: Mapping[str, float]

    def __post_init__(self) -> None:
        block_values = np.asarray(self.block_values, float)
        if block_values.ndim != 3 or 0 in block_values.shape:
            raise InputError("block_values of shape (stages, blocks, configurations)", f"shape {block_values.shape}")
        if not self.block_costs:
            raise InputError("at least one resource in block_costs", "none")
        for name in [*self.depth_costs, *self.fixed_costs]:
            if name not in self.block_costs:
                raise unknown_name("resource", name, self.block_costs)
        shape, by_depth = block_values.shape, block_values.shape[:2]
        zeros = np.zeros(by_depth)
        assign = object.__setattr__  # frozen for users; here the arrays are put into one form
        assign(self, "block_values", _table("block_values", block_values, shape))
        assign(self, "depth_values", _table("depth_values", self.depth_values, by_depth))
        assign(self, "fixed_value", float(_table("fixed_value", self.fixed_value, ())))
        tables = {name: _cost(f"{name} of a block", self.block_costs[name], shape) for name in self.block_costs}
        assign(self, "block_costs", tables)
        tables = {name: _cost(f"{name} of a depth", self.depth_costs.get(name, zeros), by_depth) for name in tables}
        assign(self, "depth_costs", tables)
        fixed = {name: float(_table(f"fixed {name}", self.fixed_costs.get(name, 0.0), ())) for name in tables}
        assign(self, "fixed_costs", fixed)
        assign(self, "depths", _allowed_depths(self.depths, *by_depth))
        for name in tables:
            if self.cost_range(name)[0] < 0:
                raise InputError(f"{name} of every architecture to be at least 0", f"{self.cost_range(name)[0]:.6g}")

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources."""
        return tuple(self.block_costs)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(S, D, C)."""
        stages, blocks, configurations = self.block_values.shape
        return stages, blocks, configurations

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """(S, D): whether stage s may have depth d."""
        mask = np.zeros(self.block_values.shape[:2], bool)
        for stage, depths in enumerate(self.depths):
            mask[stage, np.array(depths) - 1] = True
        return mask

    def evaluate(self, choices: StagedChoice) -> tuple[Floats, dict[str, Floats]]:
        """Value (...) and per resource cost (...) of one choice or an array of them."""
        self._check(choices)
        value = self.fixed_value + _total(self.block_values, self.depth_values, choices)
        costs = {
            name: self.fixed_costs[name] + _total(self.block_costs[name], self.depth_costs[name], choices)
            for name in self.resources
        }
        return value, costs

    def cost_range(self, resource: str) -> tuple[float, float]:
        """The least and the greatest cost an architecture can have."""
        if resource not in self.block_costs:
            raise unknown_name("resource", resource, self.block_costs)
        blocks, depths = self.block_costs[resource], self.depth_costs[resource]
        most = np.where(self.allowed, depths + blocks.max(-1).cumsum(-1), -np.inf).argmax(-1) + 1
        dearest = StagedChoice.masked(most, blocks.argmax(-1))
        # Summed as `evaluate` sums, so that a limit of exactly the least cost can be met.
        low, high = (float(_total(blocks, depths, end)) for end in (self.cheapest(resource), dearest))
        return self.fixed_costs[resource] + low, self.fixed_costs[resource] + high

    def cheapest(self, resource: str) -> StagedChoice:
        """An architecture of least cost."""
        blocks, depths = self.block_costs[resource], self.depth_costs[resource]
        least = np.where(self.allowed, depths + blocks.min(-1).cumsum(-1), np.inf).argmin(-1) + 1
        return StagedChoice.masked(least, blocks.argmin(-1))

    def check_limits(self, limits: Mapping[str, float]) -> None:
        """Raise where a limit is not a number, names no resource, or is below the reachable minimum."""
        for name, limit in limits.items():
            least, most = self.cost_range(name)
            if np.isnan(limit):
                raise InputError(f"a number as limit of {name}", "NaN")
            if limit < least:
                raise InfeasibleError(
                    f"no architecture has {name} <= {limit:.6g}: reachable are {least:.6g} to {most:.6g}. "
                    f"Ask for at least {least:.6g}."
                )

    def sample(self, count: int, rng: np.random.Generator) -> StagedChoice:
        """``count`` uniformly random choices: (count, S) depths and (count, S, D) configurations."""
        stages, blocks, configurations = self.shape
        depths = np.stack([rng.choice(allowed, count) for allowed in self.depths], axis=1)
        return StagedChoice.masked(depths, rng.integers(0, configurations, (count, stages, blocks)))

    def solution(self, choice: StagedChoice, bound: float, seconds: float, solver: str) -> Solution:
        """The result for ``choice``, evaluated afresh; a bound below the value by rounding error is lifted to it."""
        value, costs = self.evaluate(choice)
        bound = max(float(bound), float(value))
        floats = {name: float(cost) for name, cost in costs.items()}
        return Solution(choice, float(value), floats, bound, bound - float(value), seconds, solver)

    def _check(self, choices: StagedChoice) -> None:
        stages, blocks, configurations = self.shape
        depths, chosen = choices.depths, choices.configurations
        if depths.shape[-1:] != (stages,) or chosen.shape != (*depths.shape, blocks):
            raise InputError(
                f"depths (..., {stages}) and configurations (..., {stages}, {blocks})",
                f"shapes {depths.shape} and {chosen.shape}",
            )
        inside = (depths >= 1) & (depths <= blocks)
        if not inside.all() or not self.allowed[np.arange(stages), depths - 1].all():
            raise InputError(f"depths among {self.depths}", f"{np.unique(depths).tolist()} in some stage")
        present = np.arange(blocks) < depths[..., None]
        if not np.where(present, (chosen >= 0) & (chosen < configurations), chosen == ABSENT).all():
            raise InputError(
                f"configurations 0..{configurations - 1} up to the depth and {ABSENT} beyond it", "other numbers"
            )


def _total(blocks: Floats, depths: Floats, choices: StagedChoice) -> Floats:
    """Sum over the chosen depths and present blocks, (...)."""
    stage = np.arange(blocks.shape[0])
    chosen = choices.configurations
    per_block = blocks[stage[:, None], np.arange(blocks.shape[1]), np.maximum(chosen, 0)]
    total: Floats = depths[stage, choices.depths - 1].sum(-1) + np.where(chosen >= 0, per_block, 0.0).sum((-2, -1))
    return total


def _table(name: str, numbers: ArrayLike, shape: tuple[int, ...]) -> Floats:
    table = np.array(numbers, dtype=float)
    if table.shape != shape:
        raise InputError(f"{name} of shape {shape}", f"shape {table.shape}")
    if not np.isfinite(table).all():
        raise InputError(f"finite numbers in {name}", "NaN or infinity")
    table.setflags(write=False)
    return table


def _cost(name: str, numbers: ArrayLike, shape: tuple[int, ...]) -> Floats:
    table = _table(name, numbers, shape)
    if (table < 0).any():
        raise InputError(f"{name} at least 0", f"{table.min():.6g}", "Measure again; a cost cannot be negative.")
    return table


def _allowed_depths(depths: tuple[tuple[int, ...], ...], stages: int, blocks: int) -> tuple[tuple[int, ...], ...]:
    allowed = tuple(tuple(sorted({int(depth) for depth in stage})) for stage in depths)
    if len(allowed) != stages or not all(stage and stage[0] >= 1 and stage[-1] <= blocks for stage in allowed):
        raise InputError(f"for each of {stages} stages the allowed depths within 1..{blocks}", f"{depths}")
    return allowed
