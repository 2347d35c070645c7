"""The correlations of the tables, by the name that the tables give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from archwright.reproduce.thesis7 import spearman

Correlation = Callable[[NDArray[np.float64], NDArray[np.float64]], float]


def pearson(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Linear correlation of the samples ``first`` (n,) and ``second`` (n,)."""
    return float(np.corrcoef(first, second)[0, 1])


def kendall(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Kendall's tau-b of ``first`` (n,) and ``second`` (n,): concordant less discordant pairs, corrected for ties."""
    return float(kendalltau(first, second).statistic)


RANK: Mapping[str, Correlation] = {"Spearman": spearman, "Kendall": kendall}
"""Of predictions with accuracies."""
ALL: Mapping[str, Correlation] = {"Pearson": pearson, **RANK}
"""Of metrics with each other."""
