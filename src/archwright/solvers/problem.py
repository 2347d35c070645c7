"""The staged problem every solver takes: choose a depth per stage and a configuration per block, under limits.

Letters: S stages, D blocks at most in a stage, C configurations of a block. One-hot beta^s_d says that stage s has
depth d, one-hot alpha^s_{b,c} that its block b has configuration c; a block counts when its stage is at least that
deep (eqs. 3 to 5 of BINAS):

    value = fixed + sum_s sum_d beta^s_d v^s_d + sum_s sum_{b <= d_s} sum_c alpha^s_{b,c} v^s_{b,c}

and every resource (``latency_ms``, ``params``, ...) has a cost of the same form. Depth d is column d - 1.

Where a stage also chooses one of W widths, terms depend on them: v^s_{b,c} becomes v^s_{v,w,b,c} with the width v of
the stage before and the stage's own w, and v^s_d becomes v^s_{w,d}. (Only a stage's first block meets v.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archwright.errors import InfeasibleError, InputError, unknown_name
from archwright.solvers.chain import best_choice

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
        widths: (..., S), the number of each stage's width; zeros where there is only one.
    """

    depths: Ints
    configurations: Ints
    widths: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __post_init__(self) -> None:
        if not self.widths.size:
            object.__setattr__(self, "widths", np.zeros_like(self.depths))

    @classmethod
    def masked(cls, depths: ArrayLike, configurations: ArrayLike, widths: ArrayLike | None = None) -> StagedChoice:
        """Depths and a configuration for every block, with those beyond the depth set to ``ABSENT``.

        Args:
            depths: (..., S).
            configurations: (..., S, D).
            widths: (..., S); None for the first of each stage.
        """
        depths, configurations = np.asarray(depths, np.int64), np.asarray(configurations, np.int64)
        present = np.arange(configurations.shape[-1]) < depths[..., None]
        chosen = np.zeros_like(depths) if widths is None else np.asarray(widths, np.int64)
        return cls(depths, np.where(present, configurations, ABSENT), chosen)

    @classmethod
    def stack(cls, choices: Sequence[StagedChoice]) -> StagedChoice:
        """An array of single choices."""
        return cls(
            np.stack([one.depths for one in choices]),
            np.stack([one.configurations for one in choices]),
            np.stack([one.widths for one in choices]),
        )

    def __getitem__(self, index: int | slice | Ints) -> StagedChoice:
        """Entries of an array of choices."""
        return StagedChoice(self.depths[index], self.configurations[index], self.widths[index])

    def __len__(self) -> int:
        if self.depths.ndim < 2:
            raise TypeError("one choice has no length; only an array of choices has")
        return len(self.depths)

    def one_hot(self, num_configurations: int, num_widths: int = 1) -> Floats:
        """The vector x = (alpha, beta), (..., S*D*C + S*D), with alpha zero for absent blocks.

        With several widths their one-hot entries, S*W, come last.

        Args:
            num_configurations: C.
            num_widths: W; 1 leaves widths out.
        """
        lead, (_, most) = self.depths.shape[:-1], self.configurations.shape[-2:]
        alpha = self.configurations[..., None] == np.arange(num_configurations)
        beta = self.depths[..., None] == np.arange(1, most + 1)
        parts = [alpha.reshape(*lead, -1), beta.reshape(*lead, -1)]
        if num_widths > 1:
            parts.append((self.widths[..., None] == np.arange(num_widths)).reshape(*lead, -1))
        return np.concatenate(parts, axis=-1).astype(float)


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

    Without a choice of widths block tables are (S, D, C) and depth tables (S, D). With W widths at most they are
    (S, W, W, D, C), by the width before and the stage's own, and (S, W, D); tables of the smaller shapes are taken
    too, and then do not depend on the widths. The first stage has no width before it, which counts as number 0.

    Args:
        block_values: of the blocks.
        block_costs: per resource, not negative.
        depth_values: of the depths.
        depth_costs: per resource, not negative; a resource left out has none.
        depths: per stage the allowed depths, each within 1..D.
        fixed_value: value of the parts that are not searched.
        fixed_costs: per resource the cost of those parts; a resource left out has none. An intercept fitted to
            measurements may be negative, so only the whole architecture's cost must not be.
        widths: per stage how many widths it has; empty where all have one.
        allowed_configurations: (S, D, C), which configurations a block may have; all by default. A stage with fewer
            configurations than another is one whose last ones are not allowed.
    """

    block_values: Floats
    block_costs: Mapping[str, Floats]
    depth_values: Floats
    depth_costs: Mapping[str, Floats]
    depths: tuple[tuple[int, ...], ...]
    fixed_value: float
    fixed_costs: Mapping[str, float]
    widths: tuple[int, ...] = ()
    allowed_configurations: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, bool))

    def __post_init__(self) -> None:
        block_values = np.asarray(self.block_values, float)
        if block_values.ndim not in (3, 5) or 0 in block_values.shape:
            raise InputError("block_values of shape (stages, blocks, configurations)", f"shape {block_values.shape}")
        if not self.block_costs:
            raise InputError("at least one resource in block_costs", "none")
        for name in [*self.depth_costs, *self.fixed_costs]:
            if name not in self.block_costs:
                raise unknown_name("resource", name, self.block_costs)
        stages, blocks, configurations = block_values.shape[0], *block_values.shape[-2:]
        widths = _widths(tuple(map(int, self.widths)) or (1,) * stages, stages)
        many = (max(widths),) if max(widths) > 1 else ()
        shape, by_depth = (stages, *many * 2, blocks, configurations), (stages, *many, blocks)
        zeros = np.zeros(by_depth)
        assign = object.__setattr__  # frozen for users; here the arrays are put into one form
        assign(self, "widths", widths)
        axes = len(many)
        assign(self, "block_values", _table("block_values", block_values, shape, 2 * axes))
        assign(self, "depth_values", _table("depth_values", self.depth_values, by_depth, axes))
        assign(self, "fixed_value", float(_table("fixed_value", self.fixed_value, ())))
        tables = {n: _cost(f"{n} of a block", given, shape, 2 * axes) for n, given in self.block_costs.items()}
        assign(self, "block_costs", tables)
        tables = {n: _cost(f"{n} of a depth", self.depth_costs.get(n, zeros), by_depth, axes) for n in tables}
        assign(self, "depth_costs", tables)
        fixed = {name: float(_table(f"fixed {name}", self.fixed_costs.get(name, 0.0), ())) for name in tables}
        assign(self, "fixed_costs", fixed)
        assign(self, "depths", _allowed_depths(self.depths, stages, blocks))
        allowed = self.allowed_configurations if np.size(self.allowed_configurations) else np.ones(self.shape, bool)
        assign(self, "allowed_configurations", _allowed_configurations(allowed, self.depths, self.shape))
        for name in tables:
            if self.cost_range(name)[0] < 0:
                raise InputError(f"{name} of every architecture to be at least 0", f"{self.cost_range(name)[0]:.6g}")

    @property
    def resources(self) -> tuple[str, ...]:
        """Names of the resources."""
        return tuple(self.block_costs)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Stages, blocks of a stage and configurations of a block: (S, D, C)."""
        return self.block_values.shape[0], self.block_values.shape[-2], self.block_values.shape[-1]

    def tables(self, resource: str | None = None) -> tuple[Floats, Floats]:
        """Block and depth costs of a resource, or the values, always by width: (S, W, W, D, C) and (S, W, D)."""
        blocks = self.block_values if resource is None else self.block_costs[resource]
        depths = self.depth_values if resource is None else self.depth_costs[resource]
        return (blocks[:, None, None], depths[:, None]) if blocks.ndim == 3 else (blocks, depths)

    @cached_property
    def allowed(self) -> NDArray[np.bool_]:
        """(S, D): whether stage s may have depth d."""
        mask = np.zeros(self.shape[:2], bool)
        for stage, depths in enumerate(self.depths):
            mask[stage, np.array(depths) - 1] = True
        return mask

    def evaluate(self, choices: StagedChoice) -> tuple[Floats, dict[str, Floats]]:
        """Value (...) and per resource cost (...) of one choice or an array of them."""
        self._check(choices)
        value = self.fixed_value + self.by_stage(choices).sum(-1)
        costs = {name: self.fixed_costs[name] + self.by_stage(choices, name).sum(-1) for name in self.resources}
        return value, costs

    def cost(self, choice: StagedChoice, resource: str) -> float:
        """What one ``choice`` takes of ``resource``, summed as :meth:`evaluate` sums."""
        return float(self.fixed_costs[resource] + self.by_stage(choice, resource).sum(-1))

    def by_stage(self, choices: StagedChoice, resource: str | None = None) -> Floats:
        """What each stage of ``choices`` (...) takes of ``resource`` or, without one, is worth: (..., S)."""
        blocks, depths = self.tables(resource)
        stage, chosen, width = np.arange(len(blocks)), choices.configurations, choices.widths
        before = np.concatenate([np.zeros_like(width[..., :1]), width[..., :-1]], axis=-1)
        place = stage[:, None], before[..., None], width[..., None], np.arange(chosen.shape[-1])
        present = np.where(chosen >= 0, blocks[(*place, np.maximum(chosen, 0))], 0.0)
        total: Floats = depths[stage, width, choices.depths - 1] + present.sum(-1)
        return total

    def cost_range(self, resource: str) -> tuple[float, float]:
        """The least and the greatest cost an architecture can have."""
        if resource not in self.block_costs:
            raise unknown_name("resource", resource, self.block_costs)
        blocks, depths = self.tables(resource)
        dearest, _ = best_choice(self, blocks, depths)
        # Summed as `evaluate` sums, so that a limit of exactly the least cost can be met.
        return self.cost(self.cheapest(resource), resource), self.cost(dearest, resource)

    def cheapest(self, resource: str) -> StagedChoice:
        """An architecture of least cost."""
        blocks, depths = self.tables(resource)
        return best_choice(self, -blocks, -depths)[0]

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

    def check_single(self, solver: str) -> None:
        """Refuse several widths or forbidden configurations, which not every solver knows."""
        if max(self.widths) > 1 or not self.allowed_configurations.all():
            raise InputError(
                f"one width a stage and all configurations everywhere for {solver}",
                f"widths {self.widths}",
                "Use the exact solver (pareto) or HiGHS (milp).",
            )

    def sample(self, count: int, rng: np.random.Generator) -> StagedChoice:
        """``count`` uniformly random choices by ``rng``: depths, widths (count, S) and configurations (count, S, D)."""
        depths = np.stack([rng.choice(allowed, count) for allowed in self.depths], axis=1)
        options = np.maximum(self.allowed_configurations.sum(-1), 1)  # a block that no depth reaches may have none
        drawn = rng.integers(0, options, (count, *options.shape))
        in_order = np.argsort(~self.allowed_configurations, axis=-1, kind="stable")  # the allowed ones first
        chosen = np.take_along_axis(in_order[None], drawn[..., None], -1)[..., 0]
        return StagedChoice.masked(depths, chosen, rng.integers(0, self.widths, depths.shape))

    def solution(self, choice: StagedChoice, bound: float, seconds: float, solver: str) -> Solution:
        """The result for a choice, evaluated afresh.

        Args:
            choice: what was found.
            bound: no architecture within the limits is worth more; lifted to the value where rounding puts it below.
            seconds: that it took.
            solver: its name.
        """
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
        if choices.widths.shape != depths.shape or not ((choices.widths >= 0) & (choices.widths < self.widths)).all():
            raise InputError(f"widths of numbers below {self.widths}", f"{np.unique(choices.widths).tolist()}")
        present = np.arange(blocks) < depths[..., None]
        if not np.where(present, (chosen >= 0) & (chosen < configurations), chosen == ABSENT).all():
            raise InputError(
                f"configurations 0..{configurations - 1} up to the depth and {ABSENT} beyond it", "other numbers"
            )
        allowed = self.allowed_configurations[np.arange(stages)[:, None], np.arange(blocks), np.maximum(chosen, 0)]
        if not (allowed | ~present).all():
            raise InputError("configurations that are allowed where they are", "others")


def _by_width(name: str, table: Floats) -> None:
    """Refuse a block table in which others than first blocks depend on the width before."""
    if (table[:, :, :, 1:] != table[:, :1, :, 1:]).any():
        raise InputError(f"{name} of later blocks to be the same for all widths before", "numbers that differ")


def _table(name: str, numbers: ArrayLike, shape: tuple[int, ...], width_axes: int = 0) -> Floats:
    """Finite numbers of ``shape``; without its ``width_axes`` axes after the first they are the same for all widths."""
    table = np.array(numbers, dtype=float)
    if width_axes and table.shape == (shape[0], *shape[1 + width_axes :]):
        table = np.broadcast_to(np.expand_dims(table, tuple(range(1, 1 + width_axes))), shape)
    if table.shape != shape:
        raise InputError(f"{name} of shape {shape}", f"shape {table.shape}")
    if not np.isfinite(table).all():
        raise InputError(f"finite numbers in {name}", "NaN or infinity")
    if width_axes == 2:
        _by_width(name, table)
    table.setflags(write=False)
    return table


def _cost(name: str, numbers: ArrayLike, shape: tuple[int, ...], width_axes: int) -> Floats:
    table = _table(name, numbers, shape, width_axes)
    if (table < 0).any():
        raise InputError(f"{name} at least 0", f"{table.min():.6g}", "Measure again; a cost cannot be negative.")
    return table


def _widths(widths: tuple[int, ...], stages: int) -> tuple[int, ...]:
    if len(widths) != stages or min(widths) < 1:
        raise InputError(f"for each of {stages} stages the number of its widths, at least 1", f"{widths}")
    return widths


def _allowed_configurations(
    given: NDArray[np.bool_], depths: tuple[tuple[int, ...], ...], shape: tuple[int, int, int]
) -> NDArray[np.bool_]:
    allowed = np.array(given, dtype=bool)
    if allowed.shape != shape:
        raise InputError(f"allowed_configurations of shape {shape}", f"shape {allowed.shape}")
    if not all(stage[: own[-1]].any(-1).all() for stage, own in zip(allowed, depths, strict=True)):
        raise InputError("an allowed configuration for every block", "a block without one")
    allowed.setflags(write=False)
    return allowed


def _allowed_depths(depths: tuple[tuple[int, ...], ...], stages: int, blocks: int) -> tuple[tuple[int, ...], ...]:
    allowed = tuple(tuple(sorted({int(depth) for depth in stage})) for stage in depths)
    if len(allowed) != stages or not all(stage and stage[0] >= 1 and stage[-1] <= blocks for stage in allowed):
        raise InputError(f"for each of {stages} stages the allowed depths within 1..{blocks}", f"{depths}")
    return allowed
