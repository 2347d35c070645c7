"""Which of several points are better than others in everything: fronts and crowding, for objectives to be maximised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def dominated_by(values: Floats) -> NDArray[np.bool_]:
    """Whether point i is dominated by point j: no better in anything and worse in something, (n, n).

    Args:
        values: (n, m), higher is better; minus infinity throughout for what failed.
    """
    no_better = (values[:, None, :] <= values[None, :, :]).all(2)
    worse = (values[:, None, :] < values[None, :, :]).any(2)
    return np.asarray(no_better & worse)


def undominated(values: Floats) -> Ints:
    """Numbers of the points that no other one dominates, in their order; equal points are all among them.

    Args:
        values: (n, m), higher is better.
    """
    return np.flatnonzero(~dominated_by(values).any(1)) if len(values) else np.zeros(0, np.int64)


def ranks(values: Floats) -> Ints:
    """The front that each point is on, (n,): 0 for the undominated ones, 1 for those that are without these, and so on.

    Args:
        values: (n, m), higher is better.
    """
    found, left = np.full(len(values), -1), np.arange(len(values))
    dominated, rank = dominated_by(values), 0
    while len(left):
        front = left[~dominated[np.ix_(left, left)].any(1)]
        found[front] = rank
        left, rank = np.setdiff1d(left, front), rank + 1
    return found


def crowding(values: Floats) -> Floats:
    """How far the neighbours of each point on one front are (Deb et al., 2002), (n,); infinite at the ends.

    Args:
        values: (n, m), finite.
    """
    found = np.zeros(len(values))
    for column in values.T:
        order = np.argsort(column, kind="stable")
        spread = column[order[-1]] - column[order[0]]
        found[order[[0, -1]]] = np.inf
        if spread > 0 and len(order) > 2:
            found[order[1:-1]] += (column[order[2:]] - column[order[:-2]]) / spread
    return found
