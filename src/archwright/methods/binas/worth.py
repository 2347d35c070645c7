"""What networks are thought to be worth before any is trained, and which of them are looked at: integer programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InfeasibleError
from archwright.solvers import StagedProblem, milp
from archwright.solvers.problem import Solution, StagedChoice
from archwright.spaces.staged import StagedSpace

BASE = 1
"""Width number that other widths are compared with: the choice 1.0 of compact scales."""
NARROW, DEEPER, LAST_DEEPER = 0.25, (0.0, 0.3, 0.45), (0.0, 1.2, 1.6)
"""What a stage loses by its width (this, divided by the width as a part of the base) and gains by its depth, the last
one most, in points of accuracy, about, before anything is measured: see the networks in docs/training.md."""
KIND_WORTH = {"bb": 0.1, "er": 0.0, "ir": -0.1}
"""What a block of a kind is thought to be worth beside a plain one: basic, fused and inverted residual."""
TOO_DEAR = 1.5
"""What must not be chosen costs so many times what the dearest network does."""
RAISED = 1.5
"""A bound on multiply-accumulates within which nothing keeps the limits is raised by this factor."""
MACS = "macs"

Limits = Mapping[str, float]


def best_within(problem: StagedProblem, most_macs: float, limits: Limits) -> Solution:
    """The most valuable network within limits that has no more multiply-accumulates than the time is enough for.

    Where the least that keeps the limits has more, the bound is raised until there is one.

    Args:
        problem: values and costs, ``macs`` among these.
        most_macs: of one image.
        limits: by resource; infeasible ones are the solver's error.
    """
    least, most = problem.cost_range(MACS)
    bound = max(least, most_macs)
    while bound < most:
        try:
            return milp.solve(problem, {MACS: bound, **limits})
        except InfeasibleError:
            bound *= RAISED
    return milp.solve(problem, limits)


def worth(space: StagedSpace[Any], problem: StagedProblem) -> StagedProblem:
    """``problem`` of ``space`` with what networks are thought to be worth before any is measured.

    The value of a stage falls with one over its width, so that none is much narrower than the others; a depth and a
    block's kind have a term each: a second convolution in the last stage gains several times what one in the others
    does. Only the order of networks counts.
    """
    stages, blocks, _ = space.shape
    by_width = np.zeros((stages, space.most_widths, blocks))
    for stage, widths in enumerate(space.widths):
        deeper = np.resize(LAST_DEEPER if stage == stages - 1 else DEEPER, blocks)
        for number, width in enumerate(widths):
            base = widths[min(BASE, len(widths) - 1)]
            by_width[stage, number] = deeper - NARROW * base / width
    kinds = [KIND_WORTH.get(getattr(one, "kind", ""), 0.0) for one in space.configurations]
    block_values = np.broadcast_to(np.array(kinds), space.shape)
    depth_values = by_width if space.most_widths > 1 else by_width[:, 0]
    return replace(problem, block_values=block_values, depth_values=depth_values, fixed_value=0.0)


def inside(space: StagedSpace[Any], problem: StagedProblem, larger: StagedChoice) -> StagedProblem:
    """``problem`` of ``space`` for what is contained in ``larger``: its kinds of block, at most as wide and as deep."""
    known = zip(problem.depths, larger.depths.tolist(), strict=True)
    depths = [tuple(own for own in allowed if own <= depth) for allowed, depth in known]
    widths = [range(width + 1) for width in larger.widths.tolist()]
    return _with_blocks_of(space, problem, larger, depths, widths)


def containing(space: StagedSpace[Any], problem: StagedProblem, smaller: StagedChoice) -> StagedProblem:
    """``problem`` of ``space`` for what contains ``smaller``: its blocks, at least as wide, and more behind them."""
    known = zip(problem.depths, smaller.depths.tolist(), strict=True)
    depths = [tuple(own for own in allowed if own >= depth) for allowed, depth in known]
    widths = [range(width, len(own)) for width, own in zip(smaller.widths.tolist(), space.widths, strict=True)]
    return _with_blocks_of(space, problem, smaller, depths, widths)


def no_wider(space: StagedSpace[Any], problem: StagedProblem, width: int) -> StagedProblem:
    """``problem`` of ``space`` for networks whose stages have width numbers up to ``width``."""
    return replace(problem, depth_costs=_only(space, problem, [range(width + 1)] * len(space.widths)))


def _with_blocks_of(
    space: StagedSpace[Any],
    problem: StagedProblem,
    choice: StagedChoice,
    depths: Sequence[tuple[int, ...]],
    widths: Sequence[range],
) -> StagedProblem:
    """The same for networks with the kinds of block of ``choice`` where it has any, and with some depths and widths."""
    allowed = problem.allowed_configurations.copy()
    for stage, depth in enumerate(choice.depths.tolist()):
        allowed[stage, :depth] = np.arange(allowed.shape[-1]) == choice.configurations[stage, :depth, None]
    costs = _only(space, problem, widths)
    return replace(problem, depths=tuple(depths), allowed_configurations=allowed, depth_costs=costs)


def _only(space: StagedSpace[Any], problem: StagedProblem, widths: Sequence[range]) -> dict[str, NDArray[np.float64]]:
    """The costs of depths where only some widths of each stage are allowed: others are too dear."""
    costs = {name: table.copy() for name, table in problem.depth_costs.items()}
    for name, table in costs.items() if space.most_widths > 1 else ():
        dearest = problem.cost_range(name)[1]
        for stage, own in enumerate(widths):
            others = [number for number in range(space.most_widths) if number not in own]
            table[stage, others] = TOO_DEAR * dearest
    return costs
