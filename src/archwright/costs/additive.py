"""Costs of the mbconv space in additive form: one number a (stage, block, configuration), and a fixed part.

That is the form the solvers take: the cost of an architecture is the fixed part plus the sum over its present blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces.mbconv import MbConv
from archwright.spaces.mbconv_network import BYTES_PER_NUMBER, BlockGeometry, end_cost, fixed_elements, start_cost

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StagedCosts:
    """Per resource the blocks' costs (S, D, C) and the cost of what is not searched; fields of ``StagedProblem``."""

    block_costs: Mapping[str, Floats]
    fixed_costs: Mapping[str, float]

    def __or__(self, other: StagedCosts) -> StagedCosts:
        """The resources of both."""
        both = set(self.block_costs) & set(other.block_costs)
        if both:
            raise InputError("different resources to join", f"{sorted(both)} twice")
        return StagedCosts({**self.block_costs, **other.block_costs}, {**self.fixed_costs, **other.fixed_costs})


def block_table(space: MbConv, cost: Callable[[BlockGeometry], float]) -> Floats:
    """``cost`` of every block, (S, D, C); equal blocks are asked for once."""
    shape = (space.stages, space.most_blocks, len(space.configurations))
    known: dict[BlockGeometry, float] = {}
    table = np.empty(shape)
    for place in np.ndindex(shape):
        geometry = space.geometry(*place)
        if geometry not in known:
            known[geometry] = cost(geometry)
        table[place] = known[geometry]
    return table


def counted_costs(space: MbConv) -> StagedCosts:
    """``params``, ``macs`` (of one image) and ``memory_bytes`` (see ``MbConv.memory_bytes``) by formula."""
    scale = space.scale
    size = space.heaviest().geometries(scale)[-1][-1].out_size
    fixed = start_cost(scale) + end_cost(scale, scale.stage_channels[-1], size)
    return StagedCosts(
        {
            "params": block_table(space, lambda block: block.cost().params),
            "macs": block_table(space, lambda block: block.cost().macs),
            "memory_bytes": block_table(
                space, lambda block: BYTES_PER_NUMBER * (block.cost().params + block.activation_elements())
            ),
        },
        {
            "params": float(fixed.params),
            "macs": float(fixed.macs),
            "memory_bytes": float(BYTES_PER_NUMBER * (fixed.params + fixed_elements(scale, size))),
        },
    )
