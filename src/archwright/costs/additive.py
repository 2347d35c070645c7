"""Costs of a staged space in additive form: one number a (stage, block, configuration), by widths where these vary.

That is the form the solvers take: the cost of an architecture is a fixed part plus the sum over its present blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from archwright.errors import InputError
from archwright.solvers.problem import StagedProblem
from archwright.spaces.staged import BYTES_PER_NUMBER, Part, StagedSpace

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StagedCosts:
    """Costs by resource, in the shapes that ``StagedProblem`` takes.

    Attributes:
        block_costs: (S, D, C), or (S, W, W, D, C) in a space of several widths.
        fixed_costs: of what is not searched.
        depth_costs: (S, W, D), of the end of the network, which depends on the last stage's width; a resource for which
            it does not is left out.
    """

    block_costs: Mapping[str, Floats]
    fixed_costs: Mapping[str, float]
    depth_costs: Mapping[str, Floats] = field(default_factory=dict)

    def __or__(self, other: StagedCosts) -> StagedCosts:
        """The resources of both."""
        both = set(self.block_costs) & set(other.block_costs)
        if both:
            raise InputError("different resources to join", f"{sorted(both)} twice")
        return StagedCosts(
            {**self.block_costs, **other.block_costs},
            {**self.fixed_costs, **other.fixed_costs},
            {**self.depth_costs, **other.depth_costs},
        )

    def problem(
        self,
        space: StagedSpace[Any],
        block_values: ArrayLike | None = None,
        depth_values: ArrayLike | None = None,
        width_values: ArrayLike | None = None,
        fixed_value: float = 0.0,
    ) -> StagedProblem:
        """The problem of ``space`` with these costs; values left out are zero, which is enough for ranges.

        Args:
            space: whose costs these are.
            block_values: (S, D, C), or (S, W, W, D, C).
            depth_values: (S, D), or (S, W, D).
            width_values: (S, W), added to all depths.
            fixed_value: of every network.
        """
        stages, blocks, _ = space.shape
        depths = np.zeros((stages, blocks)) if depth_values is None else np.asarray(depth_values, float)
        if width_values is not None and space.most_widths > 1:
            by_width = np.asarray(width_values, float)[:, :, None]
            depths = by_width + (depths[:, None] if depths.ndim == 2 else depths)
        return StagedProblem(
            np.zeros(space.shape) if block_values is None else np.asarray(block_values, float),
            self.block_costs,
            depths,
            self.depth_costs,
            space.stage_depths,
            fixed_value,
            self.fixed_costs,
            tuple(map(len, space.widths)),
            space.allowed,
        )


def staged_costs(space: StagedSpace[Any], resource: str, cost: Callable[[Part], float]) -> StagedCosts:
    """One resource of every block of a space, in additive form; equal parts are asked for once.

    Args:
        space: whose parts they are.
        resource: name of the result's tables, ``latency_ms`` say.
        cost: of one part, in the resource's unit.
    """
    known: dict[str, float] = {}

    def of(part: Part) -> float:
        key = str(part)
        if key not in known:
            known[key] = cost(part)
        return known[key]

    (stages, blocks, configurations), widest = space.shape, space.most_widths
    table = np.zeros((stages, widest, widest, blocks, configurations))
    for stage, block, configuration, before, width in space.places():
        entry = of(space.part(stage, block, configuration, before, width))
        # Only a first block meets the width before; to the others it makes no difference.
        table[stage, before if block == 0 else slice(None), width, block, configuration] = entry
    start = space.start()
    fixed = of(start) if start is not None else 0.0
    if widest == 1:
        return StagedCosts({resource: table[:, 0, 0]}, {resource: fixed + of(space.end())})
    ends = np.zeros((stages, widest, blocks))
    for width in range(len(space.widths[-1])):
        ends[-1, width] = of(space.end(width))
    return StagedCosts({resource: table}, {resource: fixed}, {resource: ends})


def counted_costs(space: StagedSpace[Any]) -> StagedCosts:
    """``params``, ``macs`` (of one image) and ``memory_bytes`` (see ``StagedSpace.memory_bytes``) by formula."""
    return (
        staged_costs(space, "params", lambda part: part.cost().params)
        | staged_costs(space, "macs", lambda part: part.cost().macs)
        | staged_costs(
            space, "memory_bytes", lambda part: BYTES_PER_NUMBER * (part.cost().params + part.activation_elements())
        )
    )
