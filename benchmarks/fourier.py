"""Recovery and minimisation of sparse Boolean polynomials, beside generic Lasso solvers.

    python benchmarks/fourier.py --json

``recovery-196``: 12 planted terms of degree 2 on 196 bits, 3,000 values with noise, lambda = 10: the Lasso over 19,307
columns, the 12 largest coefficients, the refit, the diagnostics and the exact minimum. scikit-learn and celer solve the
same Lasso on the whole matrix (float32). The hard case has so much noise (.3) that most of 3,000 coefficients are not
zero. At 60 bits and 600 values, cvxpy with Clarabel solves the same Lasso. Phase transition: share of planted
polynomials found from m noiseless values; ``--plot FILE`` draws it.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from archwright.solvers.fourier import ParityFeatures, RecoverySettings, recover
from archwright.solvers.lasso import lasso
from archwright.solvers.polynomial import Polynomial, minimise


def planted(seed: int, n: int, s: int) -> Polynomial:
    """S random terms of degree 1 or 2, |coefficient| in [.5, 1.5]."""
    rng = np.random.default_rng(seed)
    monomials = [*((i,) for i in range(n)), *combinations(range(n), 2)]
    chosen = rng.choice(len(monomials), s, replace=False)
    values = rng.choice([-1, 1], s) * rng.uniform(0.5, 1.5, s)
    return Polynomial(n, {monomials[int(k)]: float(v) for k, v in zip(chosen, values, strict=True)})


def problem(seed: int, n: int, m: int, s: int, noise: float) -> tuple[np.ndarray, np.ndarray, Polynomial]:
    rng = np.random.default_rng(1000 + seed)
    truth, x = planted(seed, n, s), rng.choice([-1, 1], size=(m, n))
    return x, truth(x) + noise * rng.normal(size=m), truth


def timed(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer = work()
        times.append(time.perf_counter() - start)
    return median(times), answer


def recovery(noise: float, repeats: int) -> tuple[float, bool]:
    """Seconds of the whole recovery at full size, and whether the planted terms were found."""
    x, y, truth = problem(0, 196, 3000, 12, noise)

    def work() -> Polynomial:
        found = recover(x, y, RecoverySettings(sparsity=12, lam=10.0)).polynomial
        minimise(found)
        return found

    seconds, found = timed(work, repeats)
    return seconds, set(found.terms) - {()} == set(truth.terms)


def others(noise: float) -> dict[str, float]:
    """Seconds of the Lasso alone on the dense matrix, making it included."""
    x, y, _ = problem(0, 196, 3000, 12, noise)
    centred = (y - y.mean()).astype(np.float32)

    def fit(make: Callable[[], Any]) -> float:
        start = time.perf_counter()
        matrix = np.asfortranarray(ParityFeatures(x, 2).matrix, dtype=np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            make().fit(matrix, centred)
        return time.perf_counter() - start

    from sklearn.linear_model import Lasso

    alpha, tolerance = 10.0 / (2 * len(y)), 1e-5
    found = {"scikit-learn": fit(lambda: Lasso(alpha=alpha, fit_intercept=False, tol=tolerance, max_iter=5000))}
    try:
        from celer import Lasso as Celer
    except ImportError:
        return found
    found["celer"] = fit(lambda: Celer(alpha=alpha, fit_intercept=False, tol=tolerance))
    return found


def against_conic(repeats: int) -> tuple[float, float, bool]:
    """Seconds of ours and of Clarabel at n = 60, m = 600, and whether the supports agree."""
    import cvxpy

    x, y, _ = problem(0, 60, 600, 10, 0.1)
    features, centred, lam = ParityFeatures(x, 2), y - y.mean(), 10.0
    ours, solution = timed(lambda: lasso(ParityFeatures(x, 2), centred, lam, tolerance=1e-8), repeats)
    u = cvxpy.Variable(features.shape[1])
    objective = cvxpy.sum_squares(centred - features.matrix @ u) + lam * cvxpy.norm1(u)
    start = time.perf_counter()
    cvxpy.Problem(cvxpy.Minimize(objective)).solve(solver=cvxpy.CLARABEL)
    conic = time.perf_counter() - start
    # an interior point leaves small numbers where the optimum has zeros
    support = set(np.flatnonzero(np.abs(u.value) > 1e-5).tolist())
    agreed = {int(i) for i, v in zip(solution.indices, solution.coefficients, strict=True) if abs(v) > 1e-5}
    return ours, conic, support == agreed


def phase_transition(runs: int) -> dict[int, float]:
    """Share of planted 10-term polynomials on 60 bits found exactly from m noiseless values."""
    shares = {}
    for m in (40, 50, 60, 70, 82, 95, 110, 130):
        hits = 0
        for seed in range(runs):
            x, y, truth = problem(seed, 60, m, 10, 0.0)
            found = recover(x, y, RecoverySettings(sparsity=10, lam=0.5)).polynomial
            hits += set(found.terms) - {()} == set(truth.terms)
        shares[m] = hits / runs
    return shares


def draw(shares: dict[int, float], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(list(shares), list(shares.values()), marker="o")
    axes.axvline(82, linestyle=":", color="grey", label="s d ln n = 82")
    axes.set(xlabel="noiseless values m", ylabel="share recovered", title="10 terms of degree 2 on 60 bits")
    axes.legend()
    figure.savefig(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", type=int, default=10, help="polynomials at each m of the phase transition")
    parser.add_argument("--plot", type=Path, help="draw the phase transition into this file (.svg, .png)")
    options = parser.parse_args()
    console = Console(file=sys.stderr)
    table = Table("what", "value", "unit", title="sparse Fourier recovery")
    rows: list[tuple[str, float, str]] = []
    for label, noise in (("recovery-196", 0.05), ("recovery-196-noisy", 0.3)):
        seconds, found = recovery(noise, options.repeats)
        rows += [(label, seconds, "s"), (f"{label}-found", float(found), "share")]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append(("peak-memory", peak, "MB"))
    for name, seconds in others(0.05).items():
        rows.append((f"lasso-196-{name}", seconds, "s"))
    ours, conic, same = against_conic(options.repeats)
    rows += [("lasso-60", ours, "s"), ("lasso-60-conic", conic, "s"), ("lasso-60-same-support", float(same), "share")]
    shares = phase_transition(options.runs)
    rows += [(f"found-from-{m}", share, "share") for m, share in shares.items()]
    if options.plot:
        draw(shares, options.plot)
    for label, value, unit in rows:
        table.add_row(label, f"{value:.4g}", unit)
    console.print(table)
    if options.json:
        results = [{"label": label, "value": value, "unit": unit} for label, value, unit in rows]
        ratios = [{"label": "conic/ours", "value": conic / ours}]
        print(json.dumps({"benchmark": "fourier", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
