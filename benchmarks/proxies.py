"""Scores the whole NAS-Bench-201 space with grad, snip, trace and kappa on two cores, against a loop over modules, and
random cells of the DARTS space stacked against the same loop on one core.

``python benchmarks/proxies.py --json`` prints one JSON object as the last line of stdout; ``--repeats`` and
``--sample`` trade time for steadiness. Images are CIFAR-10 where the shared data are there, else noise: speed does not
depend on them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from archwright.execution.base import Item, make_executor
from archwright.proxies.score import find_proxies, score
from archwright.proxies.stacked import ProxyScale, score_stacked
from archwright.proxies.stacked_cells import score_stacked_cells
from archwright.runs.stop import Stop
from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201, Cell201, all_operations, canonical_index
from archwright.tables.locate import shared_data

METRICS = ("grad", "snip", "trace", "kappa")
CHANNELS = 4
# 4 px is the default stand-in for NAS-Bench-201: it ranks better than 8 px (docs/training-free.md) and costs a third.
VARIANTS = {
    "nb201-space": {"pixels": 4, "cells": 3, "batch": 64},
    "nb201-space-batch32": {"pixels": 4, "cells": 3, "batch": 32},
    "nb201-space-8px": {"pixels": 8, "cells": 3, "batch": 64},
    "nb201-space-8px-batch32": {"pixels": 8, "cells": 3, "batch": 32},
}
DARTS_SCALES = {
    "darts": Scale(channels=CHANNELS, cells=3, image_size=8),
    "darts-8-channels-5-cells": Scale(channels=8, cells=5, image_size=8),  # of `reproduce proxies-darts`
}


@cache
def images(pixels: int, batch: int) -> tuple[Tensor, Tensor]:
    """A batch (m, 3, pixels, pixels) and its labels."""
    rng = np.random.default_rng(0)
    path = shared_data("cifar10_10k2k.npz")
    if path is None:
        x = torch.from_numpy(rng.standard_normal((batch, 3, pixels, pixels), dtype=np.float32))
        return x, torch.arange(batch) % 10
    with np.load(path) as data:
        chosen = rng.choice(len(data["x_train"]), batch, replace=False)
        x = torch.from_numpy(data["x_train"][chosen]).permute(0, 3, 1, 2).float()
        y = torch.from_numpy(data["y_train"][chosen]).long()
    x = torch.nn.functional.avg_pool2d(x, 32 // pixels)
    return (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True), y


def score_some(payload: dict, stop: Stop) -> dict:
    """Work item: the scores of some rows of the table of all cells."""
    x, y = images(payload["pixels"], payload["batch"])
    scale = ProxyScale(CHANNELS, payload["cells"])
    rows = all_operations()[payload["rows"]]
    found = score_stacked(rows, x, y, find_proxies(payload["metrics"]), scale=scale)
    return {name: values.tolist() for name, values in found.items()}


def seconds_for_space(variant: dict, workers: int) -> float:
    """Wall-clock seconds from the table of cells to a score for each of the 15,625, start of the workers included."""
    start = time.perf_counter()
    canonical = canonical_index()
    classes = np.unique(canonical)
    parts = np.array_split(classes, 16 * workers)
    items = [Item(str(i), {**variant, "metrics": list(METRICS), "rows": part.tolist()}) for i, part in enumerate(parts)]
    work = import_module(Path(__file__).stem).score_some  # by its module's name: workers cannot import a script's own
    results = dict(make_executor("processes", workers).run(work, items, Stop()))
    whole = np.full((len(canonical), len(METRICS)), np.nan)
    for i, part in enumerate(parts):
        whole[part] = np.array([results[str(i)][name] for name in METRICS]).T
    whole = whole[canonical]
    if np.isnan(whole).any():
        raise SystemExit("some architecture has no score")
    return time.perf_counter() - start


def seconds_per_module(variant: dict, sample: int) -> float:
    """Seconds for one architecture scored as an `nn.Module` of its own, mean over a random sample."""
    x, y = images(variant["pixels"], variant["batch"])
    scale = Scale(channels=CHANNELS, cells=variant["cells"], image_size=variant["pixels"])
    rows = all_operations()[np.random.default_rng(1).choice(15_625, sample + 2, replace=False)]
    taken = []
    for row in rows.tolist():
        start = time.perf_counter()
        score(NASBENCH201.build(Cell201(tuple(row)), scale), (x, y), METRICS)
        taken.append(time.perf_counter() - start)
    return statistics.mean(taken[2:])


def darts_seconds(scale: Scale, sample: int, repeats: int) -> tuple[float, float]:
    """Seconds a cell of the DARTS space, stacked and as a module of its own; medians over ``repeats``."""
    rng = np.random.default_rng(0)
    pairs = [DARTS.sample(rng) for _ in range(48)]
    x, y = images(scale.image_size, 32)
    stacked, naive = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        score_stacked_cells(pairs, x, y, find_proxies(METRICS), scale=scale)
        stacked.append((time.perf_counter() - start) / len(pairs))
        start = time.perf_counter()
        for pair in pairs[:sample]:
            score(DARTS.build(pair, scale), (x, y), METRICS)
        naive.append((time.perf_counter() - start) / len(pairs[:sample]))
    return statistics.median(stacked), statistics.median(naive)


def flops_for_space(variant: dict) -> float:
    """Floating-point operations the classes need: forward, two input gradients, two weight gradients, the kernel."""
    rows = all_operations()[np.unique(canonical_index())]
    x, y = images(variant["pixels"], 2)
    scale = ProxyScale(CHANNELS, variant["cells"])
    counts = score_stacked(rows[::20], x, y, find_proxies(["params", "macs", "grad"]), scale=scale)
    m = variant["batch"]
    return 20 * float((2 * 5 * m * counts["macs"] + 2 * m * m * counts["params"]).sum())


def peak_flops() -> float:
    """Floating-point operations a second of one core in a large matrix product, best of several."""
    a = torch.randn(1024, 1024)
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * 1024**3 / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--repeats", type=int, default=3, help="runs over the space; the median counts")
    parser.add_argument("--sample", type=int, default=40, help="architectures the loop over modules scores")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    log = sys.stderr if arguments.json else sys.stdout
    results, ratios = [], []
    peak = peak_flops()
    for label, variant in VARIANTS.items():
        runs = [seconds_for_space(variant, arguments.workers) for _ in range(arguments.repeats)]
        ours = statistics.median(runs)
        naive = seconds_per_module(variant, arguments.sample) * 15_625 / arguments.workers
        share = flops_for_space(variant) / ours / (peak * arguments.workers)
        classes = len(np.unique(canonical_index()))
        results += [
            {"label": label, "value": ours, "unit": "s"},
            {"label": f"{label} slowest run", "value": max(runs), "unit": "s"},
            {"label": f"{label} architectures", "value": 15_625 / ours, "unit": "1/s"},
            {"label": f"{label} networks run", "value": classes / ours, "unit": "1/s"},
            {"label": f"{label} naive loop, extrapolated", "value": naive, "unit": "s"},
            {"label": f"{label} share of peak", "value": 100 * share, "unit": "%"},
        ]
        suffix = "" if label == "nb201-space" else f" {label}"
        ratios += [
            {"label": f"naive-loop/ours{suffix}", "value": naive / ours},
            {"label": f"naive-loop/ours per network run{suffix}", "value": naive / ours * classes / 15_625},
        ]
        for entry in results[-6:]:
            print(f"{entry['label']}: {entry['value']:.1f} {entry['unit']}", file=log, flush=True)
    for label, scale in DARTS_SCALES.items():
        stacked, naive = darts_seconds(scale, arguments.sample, arguments.repeats)
        results += [
            {"label": f"{label} cell, stacked", "value": 1000 * stacked, "unit": "ms"},
            {"label": f"{label} cell, naive loop", "value": 1000 * naive, "unit": "ms"},
        ]
        ratios.append({"label": f"naive-loop/ours {label}", "value": naive / stacked})
        print(f"{label} cell: stacked {1000 * stacked:.1f} ms, naive loop {1000 * naive:.1f} ms", file=log, flush=True)
    if arguments.json:
        print(json.dumps({"benchmark": "proxies", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
