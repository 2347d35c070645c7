"""Bilevel search where everything can be computed: trajectories on losses with known gradients, and a solvable model.

The solvable model (RARTS, section III-D) has one weight and one architecture parameter,

    L_v(w, a) = a w - 2 a + 1,    L_t(w, a) = w^2 - 2 a w + a^2 = (w - a)^2,

so that w*(a) = a and the bilevel problem min_a L_v(w*(a), a) has its solution at (a, w) = (1, 1). First-order DARTS and
MiLeNAS end at the spurious (2, 2), second-order DARTS at a = w = 2 / (1 + 2 xi), RARTS at :func:`rarts_equilibrium`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.runs.files import save_figure

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class BilevelLosses:
    """L_t and L_v of weights (n,) and architecture parameters (m,), with their gradients.

    ``train_mixed(w, a, v)`` is d/da <grad_w L_t(w, a), v>, (m,): the mixed second derivative times a vector.
    """

    train: Callable[[Vector, Vector], float]
    train_w: Callable[[Vector, Vector], Vector]
    train_a: Callable[[Vector, Vector], Vector]
    train_mixed: Callable[[Vector, Vector, Vector], Vector]
    validation: Callable[[Vector, Vector], float]
    validation_w: Callable[[Vector, Vector], Vector]
    validation_a: Callable[[Vector, Vector], Vector]


SOLVABLE = BilevelLosses(
    train=lambda w, a: float(((w - a) ** 2).sum()),
    train_w=lambda w, a: 2 * (w - a),
    train_a=lambda w, a: 2 * (a - w),
    train_mixed=lambda w, a, v: -2 * v,
    validation=lambda w, a: float((a * w - 2 * a + 1).sum()),
    validation_w=lambda w, a: a,
    validation_a=lambda w, a: w - 2,
)
"""The model of section III-D."""


def quadratic_losses(
    train: Vector, train_linear: Vector, validation: Vector, validation_linear: Vector, n: int
) -> BilevelLosses:
    """Losses z Q z / 2 + b z of z = (w, a) stacked.

    Args:
        train: Q of the training loss, (n+m, n+m), symmetric.
        train_linear: b of the training loss, (n+m,).
        validation: Q of the validation loss, (n+m, n+m), symmetric.
        validation_linear: b of the validation loss, (n+m,).
        n: length of w; the m entries after it are a.
    """

    def parts(Q: Vector, b: Vector) -> tuple[Any, Any]:
        def value(w: Vector, a: Vector) -> float:
            z = np.concatenate([w, a])
            return float(z @ Q @ z / 2 + b @ z)

        def gradient(w: Vector, a: Vector) -> Vector:
            return np.asarray(Q @ np.concatenate([w, a]) + b)

        return value, gradient

    t_value, t_gradient = parts(train, train_linear)
    v_value, v_gradient = parts(validation, validation_linear)
    return BilevelLosses(
        train=t_value,
        train_w=lambda w, a: t_gradient(w, a)[:n],
        train_a=lambda w, a: t_gradient(w, a)[n:],
        train_mixed=lambda w, a, v: np.asarray(train[n:, :n] @ v),
        validation=v_value,
        validation_w=lambda w, a: v_gradient(w, a)[:n],
        validation_a=lambda w, a: v_gradient(w, a)[n:],
    )


@dataclass(frozen=True)
class Trajectory:
    """Every iterate, the start first: ``a`` (steps + 1, m), ``w`` and ``y`` (steps + 1, n); y = w with one copy.

    ``lagrangian`` (steps + 1,) is L_v(y, a) + lam L_t(w, a) + beta/2 |y - w|^2, with lam = 1 where a method has none.
    """

    a: Vector
    w: Vector
    y: Vector
    lagrangian: Vector

    @property
    def end(self) -> tuple[Vector, Vector, Vector]:
        """The last (a, w, y)."""
        return self.a[-1], self.w[-1], self.y[-1]


State = tuple[Vector, Vector, Vector]


def _iterate(
    step: Callable[[State], State], start: State, steps: int, losses: BilevelLosses, lam: float, beta: float
) -> Trajectory:
    states = [start]
    for _ in range(steps):
        states.append(step(states[-1]))
    a, w, y = (np.stack(part) for part in zip(*states, strict=True))
    values = [lagrangian(losses, *state, lam, beta) for state in states]
    return Trajectory(a, w, y, np.array(values))


def lagrangian(losses: BilevelLosses, a: Vector, w: Vector, y: Vector, lam: float, beta: float) -> float:
    """Eq. (4): L_v(y, a) + lam L_t(w, a) + beta/2 |y - w|^2.

    Args:
        losses: L_t and L_v.
        a: architecture parameters, (m,).
        w: weights that see the training loss, (n,).
        y: their relaxed copy, which sees the validation loss, (n,).
        lam: weight of the training loss.
        beta: weight of the distance between the copies.
    """
    return losses.validation(y, a) + lam * losses.train(w, a) + beta / 2 * float(((y - w) ** 2).sum())


def darts_trajectory(
    losses: BilevelLosses = SOLVABLE,
    a: Any = 2.0,
    w: Any = -2.0,
    *,
    xi: float = 0.0,
    lr: float = 0.01,
    steps: int = 5000,
) -> Trajectory:
    """DARTS: alpha by the gradient of L_v(w - xi grad_w L_t(w, a), a), exactly, then w.

    Args:
        losses: with their gradients.
        a: where the architecture parameters start, a number or (m,).
        w: where the weights start, a number or (n,).
        xi: step of the look-ahead; 0 is first order.
        lr: step of both updates.
        steps: number of updates.
    """

    def step(state: State) -> State:
        a, w, _ = state
        ahead = w - xi * losses.train_w(w, a)
        gradient = losses.validation_a(ahead, a) - xi * losses.train_mixed(w, a, losses.validation_w(ahead, a))
        a = a - lr * gradient
        w = w - lr * losses.train_w(w, a)
        return a, w, w

    return _iterate(step, _start(a, w, w), steps, losses, 1.0, 0.0)


def milenas_trajectory(
    losses: BilevelLosses = SOLVABLE, a: Any = 2.0, w: Any = -2.0, *, lr: float = 0.01, steps: int = 5000
) -> Trajectory:
    """MiLeNAS, eq. (3): w by the training loss, then alpha by the sum of both losses.

    Args:
        losses: with their gradients.
        a: where the architecture parameters start, a number or (m,).
        w: where the weights start, a number or (n,).
        lr: step of both updates.
        steps: number of updates.
    """

    def step(state: State) -> State:
        a, w, _ = state
        w = w - lr * losses.train_w(w, a)
        a = a - lr * (losses.train_a(w, a) + losses.validation_a(w, a))
        return a, w, w

    return _iterate(step, _start(a, w, w), steps, losses, 1.0, 0.0)


def rarts_trajectory(
    losses: BilevelLosses = SOLVABLE,
    a: Any = 2.0,
    w: Any = -2.0,
    y: Any = 0.0,
    *,
    lam: float = 15.0,
    beta: float = 15.0,
    lr: float = 0.01,
    steps: int = 5000,
) -> Trajectory:
    """RARTS, eq. (7), Gauss-Seidel: w, then y, then alpha, each with the newest values of the others.

    Args:
        losses: with their gradients.
        a: where the architecture parameters start, a number or (m,).
        w: where the weights start, a number or (n,).
        y: where the relaxed copy of the weights starts, a number or (n,).
        lam: weight of the training loss.
        beta: weight of the distance between w and y.
        lr: step of all updates.
        steps: number of updates.
    """

    def step(state: State) -> State:
        a, w, y = state
        w = w - lr * (lam * losses.train_w(w, a) + beta * (w - y))
        y = y - lr * (losses.validation_w(y, a) + beta * (y - w))
        a = a - lr * (lam * losses.train_a(w, a) + losses.validation_a(y, a))
        return a, w, y

    return _iterate(step, _start(a, w, y), steps, losses, lam, beta)


def _start(*values: Any) -> State:
    a, w, y = (np.atleast_1d(np.asarray(value, dtype=np.float64)) for value in values)
    return a, w, y


def coercivity_warning(lam: float, beta: float) -> str:
    """A sentence if the Lagrangian of the solvable model is not coercive at (``lam``, ``beta``); else empty.

    Its Hessian is positive definite exactly when 4 lam beta > 2 lam + beta; only then Theorem 1 promises convergence.
    """
    if lam > 0 and beta > 0 and 4 * lam * beta > 2 * lam + beta:
        return ""
    return (
        f"Warning: lambda = {lam:g} and beta = {beta:g} are outside the coercive region of the solvable model "
        f"(4*lambda*beta > 2*lambda + beta, here {4 * lam * beta:g} against {2 * lam + beta:g}): "
        "the Lagrangian has no lower bound and the iterates may run away. Take larger values."
    )


def rarts_equilibrium(lam: float, beta: float) -> tuple[float, float, float]:
    """(a, w, y) that solves (13) to (15) at ``lam`` and ``beta``, where RARTS ends on the solvable model.

    a = 4 lam beta / (4 lam beta - 2 lam - beta), w = a (1 - 1 / (2 lam)), y = 2 - a.
    """
    denominator = 4 * lam * beta - 2 * lam - beta
    if lam <= 0 or beta <= 0 or denominator == 0:
        raise InputError("lambda and beta above 0 with 4*lambda*beta other than 2*lambda + beta", f"{lam:g}, {beta:g}")
    a = 4 * lam * beta / denominator
    return a, a * (1 - 1 / (2 * lam)), 2 - a


def plot_fig1(path: Path, steps: int = 3000) -> dict[str, tuple[float, float]]:
    """Fig. 1: learning curves in the (a, w) plane, saved as an image; returns the end (a, w) of each curve by label.

    Left: beta = 10, y0 = 0, several lambda. Middle: lambda = 10, y0 = 0, several beta. Right: both 10, several y0. The
    paper prints the fixed values but not the varied ones; those here are ours.

    Args:
        path: of the image.
        steps: updates of every curve.
    """
    from matplotlib.figure import Figure

    panels = {
        "lambda (beta = 10, y0 = 0)": [{"lam": lam, "beta": 10.0, "y": 0.0} for lam in (2.0, 5.0, 10.0)],
        "beta (lambda = 10, y0 = 0)": [{"lam": 10.0, "beta": beta, "y": 0.0} for beta in (2.0, 5.0, 10.0)],
        "y0 (lambda = beta = 10)": [{"lam": 10.0, "beta": 10.0, "y": y} for y in (-2.0, 0.0, 2.0)],
    }
    figure = Figure(figsize=(13, 4.3), layout="constrained")
    ends: dict[str, tuple[float, float]] = {}
    baseline = darts_trajectory(steps=steps)
    ends["darts-1"] = (float(baseline.a[-1, 0]), float(baseline.w[-1, 0]))
    for axis, (title, settings) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        axis.plot(baseline.a, baseline.w, "k--", label="DARTS-1")
        for one in settings:
            found = rarts_trajectory(**one, steps=steps)  # type: ignore[arg-type]
            label = f"RARTS lambda={one['lam']:g} beta={one['beta']:g} y0={one['y']:g}"
            axis.plot(found.a, found.w, label=label)
            ends[label] = (float(found.a[-1, 0]), float(found.w[-1, 0]))
        axis.plot([1], [1], "r*", markersize=12, label="minimum (1, 1)")
        axis.set(title=f"Varying {title}", xlabel="alpha", ylabel="w")
        axis.legend(fontsize=7)
    save_figure(figure, path, dpi=120)
    return ends
