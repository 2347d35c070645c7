"""The Lasso for matrices with far more columns than are ever needed at once.

    min_u ||y - A u||_2^2 + lambda ||u||_1        (CoNAS, eq. 2.3)

**Factors.** There is no 1/2 before the square: scikit-learn's ``alpha`` is lambda / (2 m); the authors' code has the
1/2, so that its lambda counts twice ours (alpha = lambda / m).

**How.** Working sets (as in celer): coordinate descent (scikit-learn's) on a few columns, then A^T r over all of them
says whether any other is needed and how far from the optimum we are (duality gap). Only the products of
:class:`Columns` are asked of A, so it need not exist.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import lasso_path

from archwright.errors import InputError

Floats = NDArray[np.float64]


class Columns(Protocol):
    """What the solver asks of A (m, F)."""

    shape: tuple[int, int]

    def correlate(self, r: Floats) -> Floats:
        """A^T r of a vector r (m,): (F,)."""

    def columns(self, indices: NDArray[np.intp]) -> Floats:
        """Some columns, (m, k), each contiguous in memory."""


@dataclass(frozen=True, eq=False)
class LassoSolution:
    """Where and how well the Lasso ended.

    Args:
        indices: (k,) columns with a coefficient, rising.
        coefficients: (k,) of them.
        gap: objective less the dual bound: the optimum is no further away.
        objective: ||y - A u||^2 + lambda ||u||_1.
        residual: (m,) y - A u.
    """

    indices: NDArray[np.intp]
    coefficients: Floats
    gap: float
    objective: float
    residual: Floats


def lasso(
    A: Columns,
    y: Floats,
    lam: float,
    *,
    tolerance: float = 1e-5,
    start: LassoSolution | None = None,
    max_rounds: int = 50,
) -> LassoSolution:
    """Minimise ||y - A u||^2 + lam ||u||_1 until the duality gap is below ``tolerance`` ||y||^2.

    Args:
        A: (m, F), products only.
        y: (m,).
        lam: above 0.
        tolerance: of the gap, relative to ||y||^2.
        start: a solution for a nearby lambda.
        max_rounds: working sets at most; the gap of the last one is in the answer.
    """
    if not lam > 0:
        raise InputError("a Lasso parameter lambda above 0", f"{lam:g}")
    y = np.asarray(y, dtype=np.float64)
    norm2 = float(y @ y)
    known = start.indices if start is not None else np.zeros(0, dtype=np.intp)
    u = dict(zip(known.tolist(), start.coefficients.tolist(), strict=True)) if start is not None else {}
    residual = y - A.columns(known) @ start.coefficients if start is not None else y
    size = max(64, 2 * len(u))
    solution = _state(A, y, lam, u, residual)[0]
    for _ in range(max_rounds):
        solution, correlations = _state(A, y, lam, u, residual)
        if solution.gap <= tolerance * norm2:
            break
        # the coefficients of now and the columns that correlate most with what is left; a Lasso has at most m
        # coefficients, so more columns than 1.5 m only cost time
        priority = np.abs(correlations)
        priority[solution.indices] = np.inf
        size = min(max(size, 2 * len(solution.indices)), int(1.5 * len(y)) + 1, len(priority))
        working = np.sort(np.argpartition(-priority, size - 1)[:size])
        matrix = A.columns(working)
        before = np.array([u.get(index, 0.0) for index in working.tolist()])
        # no more precision than the working set deserves
        inner = max(0.03 * solution.gap / norm2, 0.3 * tolerance)
        values = _descend(matrix, y, lam, before, inner)
        u = {int(index): float(v) for index, v in zip(working, values, strict=True) if v != 0.0}
        used = values != 0
        residual = y - matrix[:, used] @ values[used]
        size *= 2
    return solution


def _state(A: Columns, y: Floats, lam: float, u: dict[int, float], residual: Floats) -> tuple[LassoSolution, Floats]:
    """The solution so far with its gap, and A^T r (F,).

    Half the objective, 1/2 ||r||^2 + lam/2 ||u||_1, has the dual 1/2 ||y||^2 - 1/2 ||y - theta||^2 over
    ||A^T theta||_inf <= lam/2; theta is the residual scaled to fit.
    """
    correlations = A.correlate(residual)
    peak = float(np.abs(correlations).max(initial=0.0))
    theta = residual * min(1.0, 0.5 * lam / peak) if peak > 0 else residual
    indices = np.array(sorted(u), dtype=np.intp)
    coefficients = np.array([u[int(index)] for index in indices])
    objective = float(residual @ residual) + lam * float(np.abs(coefficients).sum())
    dual = float(y @ y) - float((y - theta) @ (y - theta))
    return LassoSolution(indices, coefficients, max(objective - dual, 0.0), objective, residual), correlations


def _descend(matrix: Floats, y: Floats, lam: float, before: Floats, tolerance: float) -> Floats:
    """Coordinate descent on a few columns from ``before``; the caller checks the gap, so no warning is due."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        _, found, _ = lasso_path(
            matrix,
            y,
            alphas=[lam / (2 * len(y))],
            coef_init=before,
            tol=tolerance,
            max_iter=2000,
            copy_X=False,
            # the Gram matrix pays while it is much smaller than the columns
            precompute="auto" if matrix.shape[1] <= 1000 else False,
        )
    values: Floats = found[:, 0]
    return values


def largest_lambda(A: Columns, y: Floats) -> float:
    """The least lambda at which every coefficient is zero: 2 ||A^T y||_inf, of columns ``A`` (m, F) and ``y`` (m,)."""
    return 2.0 * float(np.abs(A.correlate(np.asarray(y, dtype=np.float64))).max(initial=0.0))


def path(A: Columns, y: Floats, lams: Sequence[float], **options: Any) -> list[LassoSolution]:
    """Solutions for falling penalties, each started from the one before.

    Args:
        A: columns (m, F).
        y: values (m,).
        lams: penalties, falling.
        options: further ones of :func:`lasso`.
    """
    solutions: list[LassoSolution] = []
    for lam in lams:
        solutions.append(lasso(A, y, lam, start=solutions[-1] if solutions else None, **options))
    return solutions
