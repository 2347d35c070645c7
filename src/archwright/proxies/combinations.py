"""Scores of a pool made of several metrics: by ranks, which need no common scale.

AZ-NAS (Lee and Ham, CVPR 2024) sums the logarithms of relative ranks, so that an architecture must be good by every
metric: one that is last by one of them cannot make up for it by the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from archwright.proxies.score import Scores

COMBINATIONS: dict[str, tuple[str, ...]] = {
    "az-nas": ("expressivity", "progressivity", "trainability", "macs"),
    "consensus": ("jacob_cov", "swap", "trainability", "macs", "params"),
    "paths": ("synflow", "macs"),
}
"""By name, the metrics that are joined. ``consensus`` (for NAS-Bench-201) and ``paths`` (for DARTS-style cells, of one
cell alone) are ours: see ``docs/training-free.md`` for how they were chosen."""


def parts_of(metric: str) -> tuple[str, ...]:
    """The metrics to score for ``metric``: its parts, or itself."""
    return COMBINATIONS.get(metric, (metric,))


def joined_ranks(scores: Scores, metrics: Sequence[str]) -> NDArray[np.float64]:
    """Sum over ``metrics`` of log(rank / A) in ``scores``, the best of A having rank A and ties their mean: (A,)."""
    total = np.zeros(len(scores.values))
    for metric in metrics:
        total += np.log(rankdata(scores.direction(metric) * scores[metric]) / len(total))
    return total


def combined(scores: Scores, name: str) -> Scores:
    """The combination ``name`` of ``scores`` as a positive scale, exp of :func:`joined_ranks`, beside kappa."""
    values = np.stack([np.exp(joined_ranks(scores, COMBINATIONS[name])), scores["kappa"]], axis=1)
    return Scores((name, "kappa"), np.array([1, -1]), values, np.full_like(values, np.nan))


def regularised(swap: NDArray[np.float64], params: NDArray[np.float64]) -> NDArray[np.float64]:
    """SWAP's score times its Gaussian in the size, exp(-(params - mu)^2 / sigma), (A,).

    SWAP leaves mu and sigma to the user, who steers the size of the answer by them. To rank a pool mu is its largest
    network and sigma twice the variance of the sizes, so that larger networks are preferred as far as sizes spread.

    Args:
        swap: the score, (A,).
        params: parameters of each network, (A,).
    """
    spread = 2 * params.var()
    return swap * np.exp(-((params - params.max()) ** 2) / spread) if spread > 0 else swap
