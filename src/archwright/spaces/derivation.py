"""From weights on every operation to one discrete architecture, as each space's own paper does it.

- NAS-Bench-201: the strongest operation of every edge. The paper's searches leave ``none`` out (as DARTS does): its
  weight grows for reasons of scale, not of merit.
- DARTS: the strongest operation other than ``none`` of every edge; each node keeps the two edges where it is strongest.
- NAS-Bench-1Shot1: the strongest operation of every vertex, and the strongest parents in the number the space fixes.

:func:`perturbation_scores` (Wang et al., 2021) replaces the weights by what the network loses without an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces import darts
from archwright.spaces.base import Architecture, Space
from archwright.spaces.darts import Darts
from archwright.spaces.nasbench1shot1 import NasBench1Shot1
from archwright.spaces.nasbench201 import NasBench201

Scores = Mapping[str, NDArray[np.floating[Any]]]
Masks = dict[str, NDArray[np.bool_]]


def derive(space: Space[Any], weights: Scores) -> Architecture:
    """The architecture of the largest ``weights`` (shapes of ``space.decisions``); of equals, the first."""
    arrays = {name: np.asarray(weights[name], dtype=np.float64) for name in space.decisions}
    if isinstance(space, NasBench1Shot1):
        return space.strongest(arrays)
    if isinstance(space, NasBench201):
        return space.decode({"cell": _strongest_operations(space, arrays["cell"])})
    if isinstance(space, Darts):
        return space.decode({name: _two_edges_a_node(space, array) for name, array in arrays.items()})
    raise InputError("a space with a cell supernet (nasbench201, darts, nasbench1shot1-1 to -3)", repr(space.name))


def operation_decisions(space: Space[Any]) -> list[str]:
    """The decisions whose columns are the space's operations (others choose parents)."""
    links = space.links if isinstance(space, NasBench1Shot1) else {}
    return [name for name in space.decisions if name not in links]


def strongest_columns(space: Space[Any], weights: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    """Column of the strongest operation other than ``none`` in each row, (rows,)."""
    allowed = np.array([name != "none" for name in space.operations])
    columns: NDArray[np.intp] = np.where(allowed, weights, -np.inf).argmax(axis=1)
    return columns


def _strongest_operations(space: Space[Any], weights: NDArray[np.float64]) -> NDArray[np.int8]:
    return np.eye(weights.shape[1], dtype=np.int8)[strongest_columns(space, weights)]


def _two_edges_a_node(space: Space[Any], weights: NDArray[np.float64]) -> NDArray[np.int8]:
    """0/1 rows of the kept edges: per node, the two whose best operation is strongest."""
    chosen = _strongest_operations(space, weights)
    strength = np.take_along_axis(weights, strongest_columns(space, weights)[:, None], axis=1)[:, 0]
    for node in darts.CONCAT:
        rows = [row for row, (_, target) in enumerate(darts.EDGES) if target == node]
        for row in sorted(rows, key=lambda row: -strength[row])[2:]:
            chosen[row] = 0
    return chosen


def perturbation_scores(
    space: Space[Any], loss_of: Callable[[Masks], float], rng: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Scores for :func:`derive`: how much the loss rises when a choice is taken away.

    Rows of operations are settled one after another in random order: each keeps the operation that is missed most, and
    the others of that row stay off from then on. Where edges compete (DARTS, the parents of NAS-Bench-1Shot1), an
    edge's score is the rise of the loss without it, taken after all operations are settled. Unlike the paper there is
    no fine-tuning between two decisions.

    Args:
        space: where the choices come from.
        loss_of: validation loss of the supernet with only these operations on.
        rng: of the order.
    """
    on: Masks = {name: np.ones(shape, dtype=bool) for name, shape in space.decisions.items()}
    scores = {name: np.full(shape, -np.inf) for name, shape in space.decisions.items()}
    candidates = [column for column, name in enumerate(space.operations) if name != "none"]
    slots = [(name, row) for name in operation_decisions(space) for row in range(space.decisions[name][0])]
    chosen: dict[tuple[str, int], int] = {}
    for index in rng.permutation(len(slots)):
        name, row = slots[int(index)]
        losses = [_loss_without(on, loss_of, name, row, [column]) for column in candidates]
        chosen[name, row] = candidates[int(np.argmax(losses))]
        on[name][row] = False
        on[name][row, chosen[name, row]] = True
    for name, row in slots:
        competes = isinstance(space, Darts)
        scores[name][row, chosen[name, row]] = (
            _loss_without(on, loss_of, name, row, [chosen[name, row]]) if competes else 0.0
        )
    for name in set(space.decisions) - set(operation_decisions(space)):
        parents = range(space.decisions[name][1])
        scores[name][0] = [_loss_without(on, loss_of, name, 0, [parent]) for parent in parents]
    return scores


def _loss_without(on: Masks, loss_of: Callable[[Masks], float], name: str, row: int, columns: list[int]) -> float:
    fewer = {other: mask.copy() for other, mask in on.items()}
    fewer[name][row, columns] = False
    return loss_of(fewer)
