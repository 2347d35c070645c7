"""Recover a function of +-1 bits as a sparse polynomial from few values (CoNAS: compressive sensing).

A sub-graph is a string of bits, 1 where an (edge, operation) pair is on and -1 where it is off; its loss is a function
of them. :func:`recover` fits parities of degree up to d by the Lasso (eq. 2.3), keeps the s largest coefficients and
says how far to trust them; :func:`search_by_rounds` minimises, fixes what was found and looks again at the rest
(restriction, Definition 2.2). Nothing here knows networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from math import comb, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.solvers.lasso import Floats, LassoSolution, largest_lambda, lasso, path
from archwright.solvers.polynomial import Minimum, Monomial, Polynomial, minimise

DENSE_ENTRIES = 4_000_000
"""A is made whole where it has at most this many entries (32 MB); beyond, only its products are."""


def feature_count(n: int, degree: int) -> int:
    """Number of monomials of ``n`` bits and at most ``degree``: 19,307 for 196 bits and degree 2."""
    return sum(comb(n, size) for size in range(degree + 1))


class ParityFeatures:
    """The graph-sampling matrix A (m, F) of eq. 2.2: parities of degree 0 to d at m bit strings.

    Columns are ordered by degree, then lexicographically; column 0 is the constant.

    Args:
        x: (m, n) of +-1.
        degree: d, at least 1.
        free: the bits that may occur, rising; all by default (restriction leaves out those that are fixed).
        dense: whether to hold A; by its size where None.
        centred: take each column's mean over the strings away. A centred y then needs no constant, whatever the strings
            were drawn from; column 0 is zero.
    """

    def __init__(
        self,
        x: NDArray[Any],
        degree: int,
        free: NDArray[np.intp] | None = None,
        dense: bool | None = None,
        centred: bool = False,
    ) -> None:
        x = np.asarray(x)
        if x.ndim != 2 or not np.isin(x, (-1, 1)).all():
            raise InputError("bit strings (m, n) of -1 and 1", f"shape {x.shape} with other values")
        if degree < 1:
            raise InputError("a degree of at least 1", str(degree))
        self.free = np.arange(x.shape[1]) if free is None else np.asarray(free, dtype=np.intp)
        self.x: Floats = x[:, self.free].astype(np.float64)
        self.degree, self.n, self.centred = degree, x.shape[1], centred
        self.shape = (len(x), feature_count(len(self.free), degree))
        self.dense = self.shape[0] * self.shape[1] <= DENSE_ENTRIES if dense is None else dense

    @cached_property
    def monomials(self) -> list[Monomial]:
        """The bits of every column, by their numbers among all n."""
        bits = self.free.tolist()
        return [monomial for size in range(self.degree + 1) for monomial in combinations(bits, size)]

    @cached_property
    def matrix(self) -> Floats:
        """A itself, (m, F)."""
        return self.columns(np.arange(self.shape[1]))

    @cached_property
    def _places(self) -> list[NDArray[np.intp]]:
        """For each degree, the bits of its columns as places in ``x``, (columns, degree)."""
        number = len(self.free)
        tables = []
        for size in range(self.degree + 1):
            if size == 2:  # the usual case, without Python tuples
                tables.append(np.stack(np.triu_indices(number, 1), axis=1))
            else:
                found = np.array(list(combinations(range(number), size)), dtype=np.intp)
                tables.append(found.reshape(comb(number, size), size))
        return tables

    def columns(self, indices: NDArray[np.intp]) -> Floats:
        """The columns ``indices``, (m, k), each contiguous in memory."""
        found = np.ones((len(indices), len(self.x)))
        first = 0
        for size, places in enumerate(self._places):
            here = np.flatnonzero((indices >= first) & (indices < first + len(places)))
            chosen = places[indices[here] - first]
            first += len(places)
            if size and len(here):
                product = self._rows[chosen[:, 0]]
                for factor in range(1, size):
                    product *= self._rows[chosen[:, factor]]
                found[here] = product
        if self.centred:
            found -= self.means[indices][:, None]
        return found.T

    @cached_property
    def means(self) -> Floats:
        """The mean of every parity over the strings, (F,)."""
        return self._parities(np.ones(len(self.x))) / len(self.x)

    @cached_property
    def _rows(self) -> Floats:
        """(bits, m): whole rows are copied several times faster than columns."""
        return np.ascontiguousarray(self.x.T)

    def correlate(self, r: Floats) -> Floats:
        """A^T r, (F,), in m n^d operations without A: X^T diag(r) X holds the correlations of all pairs."""
        r = np.asarray(r, dtype=np.float64)
        if self.dense:
            return self.matrix.T @ r
        found = self._parities(r)
        return found - self.means * r.sum() if self.centred else found

    def _parities(self, r: Floats) -> Floats:
        """Sums of r over the strings, signed by every parity, (F,)."""
        return np.concatenate([self._correlate(size, self.x, r) for size in range(self.degree + 1)])

    def _correlate(self, size: int, x: Floats, r: Floats) -> Floats:
        if size == 0:
            return np.array([r.sum()])
        if size == 1:
            return r @ x
        if size == 2:
            pairs: Floats = (x.T @ (r[:, None] * x))[np.triu_indices(x.shape[1], 1)]
            return pairs
        rest = [self._correlate(size - 1, x[:, bit + 1 :], r * x[:, bit]) for bit in range(x.shape[1] - size + 1)]
        return np.concatenate(rest) if rest else np.zeros(0)

    def product(self, u: Floats) -> Floats:
        """A u, (m,), from the columns with a coefficient."""
        used = np.flatnonzero(u)
        return self.columns(used) @ u[used]


@dataclass(frozen=True)
class RecoverySettings:
    """How a polynomial is recovered.

    Args:
        degree: d.
        sparsity: s, how many coefficients are kept; the constant, which decides nothing, is not counted.
        lam: lambda of eq. 2.3 (no 1/2 before the square), or None to choose it by cross-validation.
        refit: fit the kept coefficients again by least squares; the Lasso shrinks them.
        cap: lambda is at most this part of the largest useful one (2 ||A^T y||_inf, where nothing is left); 1 leaves a
            given lambda as it is.
        folds: of the cross-validation.
    """

    degree: int = 2
    sparsity: int = 12
    lam: float | None = 10.0
    refit: bool = True
    cap: float = 1.0
    folds: int = 5


@dataclass(frozen=True)
class Diagnostics:
    """How far a recovered polynomial can be trusted.

    Args:
        samples: m.
        features: columns of A.
        lam: the lambda used.
        nonzero: coefficients of the Lasso that are not zero, the constant aside.
        kept: s, or fewer where the Lasso has fewer.
        residual: share of the variance of the losses that the kept polynomial does not explain, on the measurements.
        coherence: largest |correlation| of a kept column and any other one; random signs give about
            ``coherence_expected``, and 1 means that the measurements cannot tell two of them apart.
        coherence_expected: sqrt(2 ln(F) / m).
        samples_needed: s d ln n, below which no method can recover every such polynomial (Appendix A.3).
        samples_sufficient: Theorem 2.4 with delta = sqrt(2) - 1 and the constant, which it leaves open, as 1.
        gap: duality gap of the Lasso relative to ||y||^2.
    """

    samples: int
    features: int
    lam: float
    nonzero: int
    kept: int
    residual: float
    coherence: float
    coherence_expected: float
    samples_needed: int
    samples_sufficient: int
    gap: float

    def as_dict(self) -> dict[str, Any]:
        """The fields as a dictionary, for reports."""
        return asdict(self)

    @property
    def warning(self) -> str:
        """What to say where nothing was found or there are too few measurements; empty else."""
        if not self.kept:
            return f"lambda = {self.lam:g} leaves no coefficient. Give a smaller one, or measure more sub-graphs."
        if self.samples >= self.samples_needed:
            return ""
        return (
            f"{self.samples:,} measurements are fewer than the {self.samples_needed:,} (s d ln n) that {self.kept} "
            f"coefficients of {self.features:,} need; Theorem 2.4 asks for {self.samples_sufficient:,}. "
            "Measure more sub-graphs, or keep fewer coefficients."
        )


@dataclass(frozen=True, eq=False)
class Recovery:
    """A recovered polynomial (the kept terms and the constant) and how far to trust it."""

    polynomial: Polynomial
    diagnostics: Diagnostics


def samples_needed(sparsity: int, degree: int, n: int) -> int:
    """Samples below which recovery must fail, s d ln n: the order of the lower bound of bounded orthonormal systems.

    Args:
        sparsity: s, terms of the polynomial.
        degree: d of the polynomial.
        n: number of bits.
    """
    return int(np.ceil(sparsity * degree * log(max(n, 2))))


def samples_sufficient(sparsity: int, degree: int, n: int, delta: float = sqrt(2) - 1) -> int:
    """Theorem 2.4 with its constant taken as 1: log^2(1/delta) delta^-2 s log^2(s/delta) d log n.

    Args:
        sparsity: s, terms of the polynomial.
        degree: d of the polynomial.
        n: number of bits.
        delta: restricted-isometry constant that is to be reached.
    """
    s = max(sparsity, 1)
    return int(np.ceil(log(1 / delta) ** 2 / delta**2 * s * log(s / delta) ** 2 * degree * log(max(n, 2))))


def recover(
    x: NDArray[Any], y: NDArray[Any], settings: RecoverySettings, free: NDArray[np.intp] | None = None
) -> Recovery:
    """The sparse polynomial behind values at bit strings.

    The values and the columns are centred, which leaves the constant out of the penalty: a loss is far from zero, and
    shrinking its mean would only spoil the other coefficients. It also serves strings whose bits are on more rarely
    than off.

    Args:
        x: bit strings of -1 and +1, (m, n).
        y: values, (m,), finite and not all equal.
        settings: degree, sparsity and penalty.
        free: bits that may be in the support; None for all.
    """
    y = np.asarray(y, dtype=np.float64)
    A = ParityFeatures(x, settings.degree, free, centred=True)
    if len(y) != A.shape[0] or len(y) < 2 or not np.isfinite(y).all():
        raise InputError(f"{A.shape[0]} finite values, at least 2", f"{len(y)} values of which {np.isnan(y).sum()} NaN")
    if np.ptp(y) <= 1e-12 * np.abs(y).max(initial=0.0):
        raise InputError(
            "losses that differ between sub-graphs", f"{len(y)} equal ones ({y[0]:g})", "Nothing can be learned here."
        )
    mean = float(y.mean())
    centred = y - mean
    lam = choose_lambda(A, centred, settings.folds) if settings.lam is None else settings.lam
    if settings.cap < 1:
        lam = min(lam, settings.cap * largest_lambda(A, centred))
    solution = lasso(A, centred, lam)
    order = [k for k in np.argsort(-np.abs(solution.coefficients), kind="stable") if solution.indices[k] != 0]
    kept = np.array(order[: settings.sparsity], dtype=np.intp)
    indices = solution.indices[kept]
    columns = A.columns(indices)
    if settings.refit:
        design = np.column_stack([np.ones(len(y)), columns])
        constant, *values = np.linalg.lstsq(design, y, rcond=None)[0].tolist()
    else:
        values = solution.coefficients[kept].tolist()
        constant = mean
    constant -= float(A.means[indices] @ np.array(values))  # the columns were centred
    terms = {A.monomials[int(i)]: float(v) for i, v in zip(indices, values, strict=True)}
    polynomial = Polynomial(A.n, {(): float(constant), **terms})
    return Recovery(polynomial, _diagnose(A, y, lam, solution, indices, polynomial(np.asarray(x))))


def _diagnose(
    A: ParityFeatures, y: Floats, lam: float, solution: LassoSolution, indices: NDArray[np.intp], fitted: Floats
) -> Diagnostics:
    m, features = A.shape
    norms = np.sqrt(np.maximum(m * (1 - A.means**2), 1e-9))  # of centred columns of +-1; constant ones correlate by 0
    coherence = 0.0
    for index in indices:
        overlap = np.abs(A.correlate(A.columns(np.array([index]))[:, 0])) / (norms * norms[index])
        overlap[index] = 0.0
        coherence = max(coherence, float(overlap.max()))
    centred = y - y.mean()
    number = len(A.free)
    return Diagnostics(
        samples=m,
        features=features,
        lam=float(lam),
        nonzero=int((solution.indices != 0).sum()),
        kept=len(indices),
        residual=float(((y - fitted) ** 2).sum() / (centred @ centred)),
        coherence=coherence,
        coherence_expected=sqrt(2 * log(features) / m),
        samples_needed=samples_needed(len(indices), A.degree, number),
        samples_sufficient=samples_sufficient(len(indices), A.degree, number),
        gap=solution.gap / float(centred @ centred),
    )


def choose_lambda(A: ParityFeatures, y: Floats, folds: int = 5, number: int = 20, smallest: float = 1e-2) -> float:
    """The lambda with the least squared error on left-out values.

    A fold's training part is smaller than the whole, so its lambda is smaller in proportion (equal lambda / m).

    Args:
        A: features of m measurements.
        y: their values, (m,), centred.
        folds: parts that are left out in turn.
        number: of lambdas that are tried, evenly spaced by their logarithms.
        smallest: the last of them, as a share of the largest useful one.
    """
    m = A.shape[0]
    if m < folds:
        raise InputError(f"at least {folds} measurements for {folds} folds", str(m), "Give lambda instead.")
    lams = np.maximum(largest_lambda(A, y), 1e-12) * np.geomspace(1.0, smallest, number)
    errors = np.zeros(number)
    fold = np.arange(m) % folds
    for left_out in range(folds):
        train = fold != left_out
        part = ParityFeatures(A.x[train], A.degree, centred=True)
        rest = ParityFeatures(A.x[~train], A.degree)
        share, mean = float(train.mean()), float(y[train].mean())
        for k, found in enumerate(path(part, y[train] - mean, (lams * share).tolist(), tolerance=1e-4)):
            predicted = mean + (rest.columns(found.indices) - part.means[found.indices]) @ found.coefficients
            errors[k] += float(((y[~train] - predicted) ** 2).sum())
    return float(lams[int(errors.argmin())])


@dataclass(frozen=True, eq=False)
class Measurements:
    """Losses of bit strings, cleaned.

    Args:
        x: (m, n) of +-1, each string once.
        y: (m,) finite losses, at most the threshold.
        dropped: how many were not finite, above the threshold, or repeated another one (those are averaged).
    """

    x: NDArray[np.int8]
    y: Floats
    dropped: dict[str, int]


def clean(x: NDArray[Any], y: NDArray[Any], threshold: float | None = None) -> Measurements:
    """Drop losses that are not finite or too high, and average those of equal bit strings.

    Args:
        x: bit strings, (m, n).
        y: losses, (m,).
        threshold: highest loss that is kept; None keeps all finite ones.
    """
    x, y = np.asarray(x, dtype=np.int8), np.asarray(y, dtype=np.float64)
    finite = np.isfinite(y)
    if not finite.any():
        raise InputError("finite losses", f"{len(y)} NaN or infinite ones", "Train the supernet at a lower rate.")
    low = finite & (y <= threshold) if threshold is not None else finite
    if threshold is not None and low.sum() < 2:
        raise InputError(
            f"at least two losses of at most the threshold {threshold:g}",
            f"{int(finite.sum())}, the lowest {y[finite].min():.3f}",
            "Raise the threshold or train the supernet longer.",
        )
    distinct, which = np.unique(x[low], axis=0, return_inverse=True)
    which = which.reshape(-1)
    means = np.bincount(which, y[low]) / np.bincount(which)
    dropped = {
        "not_finite": int((~finite).sum()),
        "above_threshold": int((finite & ~low).sum()),
        "duplicates": int(low.sum()) - len(distinct),
    }
    return Measurements(distinct, means, dropped)


@dataclass(frozen=True, eq=False)
class Round:
    """One recovery and its minimum; ``fixed`` holds the bits known before it."""

    fixed: dict[int, int]
    measurements: Measurements
    recovery: Recovery
    minimum: Minimum


Measure = Callable[[int, Mapping[int, int]], tuple[NDArray[Any], NDArray[Any]]]
"""From the number of the round and the fixed bits: strings (m, n) that hold them, and losses (m,)."""


def search_by_rounds(
    measure: Measure,
    n: int,
    settings: RecoverySettings,
    rounds: int = 1,
    enough: Callable[[NDArray[np.int8]], bool] = lambda x: False,
    threshold: float | None = None,
) -> list[Round]:
    """Recover, minimise, fix the bits of the support, and again on the rest (restriction).

    It ends after ``rounds``, when ``enough`` is content with the bits found, or when none is left. Bits that no round
    found are off in the last round's minimum.

    Args:
        measure: bit strings (m, n) and losses (m,) of a round, from its number and the bits that are fixed by then.
        n: number of bits.
        settings: of each recovery.
        rounds: at most so many.
        enough: whether the bits found so far, (n,), will do.
        threshold: highest loss that is kept; None keeps all finite ones.
    """
    fixed: dict[int, int] = {}
    done: list[Round] = []
    for number in range(rounds):
        free = np.array([bit for bit in range(n) if bit not in fixed], dtype=np.intp)
        if not len(free):
            break
        measurements = clean(*measure(number, fixed), threshold)
        recovery = recover(measurements.x, measurements.y, settings, free)
        minimum = minimise(recovery.polynomial)
        x = minimum.x.copy()
        x[list(fixed)] = list(fixed.values())
        minimum = Minimum(x, minimum.value, minimum.solver, minimum.gap)
        done.append(Round(dict(fixed), measurements, recovery, minimum))
        fixed |= {bit: int(x[bit]) for bit in recovery.polynomial.bits}
        if enough(x):
            break
    return done
