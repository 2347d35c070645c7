"""SVGD-RD in the DARTS space: 1,000 iterations for 10 particles of 28 slots x 7 operations, on one core.

    python benchmarks/svgd.py --json

Beside it the same update with every kernel entry in a Python loop.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from archwright.solvers.svgd import ArchitectureDensity, median_bandwidth, sample, tempered

PARTICLES, SLOTS, OPERATIONS, STEPS, REPEATS = 10, 28, 7, 1000, 5


def looped(density: ArchitectureDensity, x: np.ndarray, steps: int, delta: float) -> np.ndarray:
    velocity = np.zeros_like(x)
    for _ in range(steps):
        h, gradients, direction = median_bandwidth(x), density.gradient(x), np.zeros_like(x)
        for i in range(len(x)):
            for j in range(len(x)):
                apart = x[i] - x[j]
                k = np.exp(-(apart @ apart) / h)
                direction[i] += k * gradients[j] + (1 + delta) * 2 / h * apart * k
        velocity = 0.9 * velocity + direction / len(x)
        x = x + 0.1 * velocity
    return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    density = ArchitectureDensity(tempered(rng.standard_normal((SLOTS, OPERATIONS)), 1.0))
    start = rng.standard_normal((PARTICLES, density.size))
    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        found = sample(density.gradient, start, delta=0.5, steps=STEPS)
        times.append(time.perf_counter() - begin)
    few = STEPS // 20
    begin = time.perf_counter()
    slow = looped(density, start.copy(), few, 0.5)
    loop_seconds = (time.perf_counter() - begin) * STEPS / few
    assert np.allclose(slow, sample(density.gradient, start, delta=0.5, steps=few))
    assert np.isfinite(found).all()
    ours = float(np.median(times))
    report = {
        "benchmark": "svgd",
        "results": [{"label": "svgd-rd-1000", "value": round(ours, 4), "unit": "s"}],
        "ratios": [{"label": "loop/ours", "value": round(loop_seconds / ours, 1)}],
    }
    print(json.dumps(report, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
