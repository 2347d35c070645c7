"""Ridge regression with its penalty chosen by leaving one row out, which costs one decomposition."""

from __future__ import annotations

import numpy as np

from archwright.solvers.problem import Floats

RIDGES = np.concatenate([[1e-10], np.geomspace(0.01, 1e5, 29)])
"""The first is as good as none, for measurements without noise; the last leaves nothing but the mean."""


def leave_one_out_errors(x: Floats, y: Floats, ridges: Floats) -> Floats:
    """Mean squared leave-one-out error of each of ``ridges``, (R,), for rows ``x`` (n, N) and targets ``y`` (n,).

    The residual of a row left out is its residual divided by 1 - h, h the diagonal of the matrix from y to the
    predictions, here 1/n for the constant + sum_j u_j^2 s_j^2 / (s_j^2 + ridge). A fit that goes through a row whatever
    its target is (h = 1) says nothing about it, and counts as infinitely bad.
    """
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    kept = s[:, None] ** 2 / (s[:, None] ** 2 + ridges)
    centred = y - y.mean()
    residuals = centred[:, None] - u @ (kept * (u.T @ centred)[:, None])
    left = 1 - (1 / len(y) + u**2 @ kept)
    free = (left > 1e-8).all(0)
    errors: Floats = np.where(free, ((residuals / np.where(left > 1e-8, left, 1.0)) ** 2).mean(0), np.inf)
    return errors


def leave_one_out_ridge(x: Floats, y: Floats, ridges: Floats = RIDGES) -> float:
    """The one of ``ridges`` (R,) of least squared leave-one-out error for rows ``x`` (n, N) and targets ``y`` (n,)."""
    return float(ridges[leave_one_out_errors(x, y, ridges).argmin()])


def ridge_weights(x: Floats, y: Floats, ridge: float) -> Floats:
    """Argmin_w |y - mean - (x - mean) w|^2 + ridge |w|^2, (N,).

    Args:
        x: rows (n, N).
        y: targets (n,).
        ridge: penalty; for 0 the weights of least norm are taken.
    """
    x, y = x - x.mean(0), y - y.mean()
    if ridge == 0:
        return np.asarray(np.linalg.lstsq(x, y)[0])
    if len(x) < x.shape[1]:  # the same in the smaller of the two spaces
        return np.asarray(x.T @ np.linalg.solve(x @ x.T + ridge * np.eye(len(x)), y))
    return np.asarray(np.linalg.solve(x.T @ x + ridge * np.eye(x.shape[1]), x.T @ y))
