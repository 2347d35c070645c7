"""What choices inside a user's network cost: NAS-Bench-201 written with ``aw.nn.Choice`` beside our supernet of cells.

``python benchmarks/own_network.py --json`` prints one JSON object as the last line of stdout. Both have the same
weights and take turns in one process with one thread; a step is a loss with the gradients of all weights that have one.
Ratios are medians of the ratio of one turn: ``softmax`` (all options, with gradients of their weights), ``one-hot``
(one option) and ``mask`` (half of them). Times are CPU seconds of this process, which others disturb least.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import archwright as aw
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import EDGES, NASBENCH201

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.choice_networks import NasBench201, load_from_cells

SCALE = Scale(channels=16, cells=2, image_size=32)
BATCH = 64
KINDS = ("softmax", "one-hot", "mask")


def steps_of(kind: str, seed: int) -> dict[str, Callable[[], None]]:
    """A step of either supernet, on equal weights and images.

    Args:
        kind: of the weights of options.
        seed: of weights, images and what is on.
    """
    torch.manual_seed(seed)
    cells = NASBENCH201.supernet(SCALE).to(memory_format=torch.channels_last)
    own = aw.ModelSpace(NasBench201).supernet(SCALE)
    load_from_cells(own, cells)
    own.to(memory_format=torch.channels_last)
    shape = (BATCH, SCALE.image_channels, SCALE.image_size, SCALE.image_size)
    images = torch.randn(shape).contiguous(memory_format=torch.channels_last)
    labels, rng = torch.arange(BATCH) % SCALE.classes, np.random.default_rng(seed)
    alpha = torch.zeros(6, 5, requires_grad=kind == "softmax")
    on = np.eye(5, dtype=bool)[rng.integers(1, 5, 6)] if kind == "one-hot" else rng.random((6, 5)) < 0.5
    names = [f"{source}>{target}" for source, target in EDGES]

    def step(network: Any, name: str) -> None:
        weights = alpha.softmax(-1) if kind == "softmax" else torch.from_numpy(on).float()
        rows = {one: weights[row : row + 1] for row, one in enumerate(names)}
        loss = F.cross_entropy(network(images, {"cell": weights} if name == "cells" else rows), labels)
        loss.backward()
        network.zero_grad(set_to_none=True)

    networks = {"cells": cells.train(), "own": own.train()}
    return {name: lambda network=network, name=name: step(network, name) for name, network in networks.items()}


def timed(kind: str, repeats: int) -> tuple[dict[str, float], float]:
    """Median CPU milliseconds of either side, and the median of the ratios of one turn.

    Args:
        kind: of the weights of options.
        repeats: turns; one-hots and masks are others in each of several parts of them.
    """
    times: dict[str, list[float]] = {"cells": [], "own": []}
    for seed in range(1 if kind == "softmax" else 4):
        steps = steps_of(kind, seed)
        for turn in range(repeats + 2):
            for name in sorted(steps, reverse=bool(turn % 2)):
                begin = time.process_time()
                steps[name]()
                if turn > 1:
                    times[name].append(1000 * (time.process_time() - begin))
    ratios = [own / cells for own, cells in zip(times["own"], times["cells"], strict=True)]
    return {name: statistics.median(taken) for name, taken in times.items()}, statistics.median(ratios)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--repeats", type=int, default=15, help="turns of each side; the median counts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    log = sys.stderr if arguments.json else sys.stdout
    results, ratios = [], []
    for kind in KINDS:
        medians, ratio = timed(kind, arguments.repeats)
        results += [{"label": f"{kind} {name}", "value": value, "unit": "ms"} for name, value in medians.items()]
        ratios.append({"label": kind, "value": ratio})
        shown = ", ".join(f"{name} {value:.1f} ms" for name, value in medians.items())
        print(f"{kind}: {shown}, ratio {ratio:.3f}", file=log)
    if arguments.json:
        print(json.dumps({"benchmark": "own_network", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
