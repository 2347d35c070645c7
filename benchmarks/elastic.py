"""What a multi-path training step of the elastic supernet costs beside a step of the heaviest network.

    python benchmarks/elastic.py [--json] [--repeats 9] [--batch 96]

A step is the forward and backward pass of one batch; both sides are channels_last, run in turn in one process on one
thread, and the median is taken. The first steps, in which the CPU library compiles its kernels, do not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from archwright.spaces.mbconv import SCALES, MbConv
from archwright.supernets.elastic import ElasticSupernet, deal

WARM_UP = 6


def steps(space: MbConv, batch: int) -> dict[str, Callable[[], Tensor]]:
    """Forward passes to compare, by name."""
    scale = space.scale
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    network = space.build(space.heaviest(), scale).to(memory_format=torch.channels_last)
    supernet = ElasticSupernet(space)
    heaviest = space.to_choice(space.heaviest())
    images = torch.randn(batch, scale.image_channels, scale.image_size, scale.image_size)
    images = images.contiguous(memory_format=torch.channels_last)
    return {
        "heaviest": lambda: network(images),
        "heaviest-path": lambda: supernet(images, heaviest),
        "multi-path": lambda: supernet(images, deal(batch, rng, scale)),
    }


def median_ms(forwards: dict[str, Callable[[], Tensor]], repeats: int) -> dict[str, float]:
    """Median milliseconds of a step of each, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in forwards}
    for _ in range(WARM_UP + repeats):
        for name, forward in forwards.items():
            start = time.perf_counter()
            forward().logsumexp(dim=1).mean().backward()
            times[name].append(1e3 * (time.perf_counter() - start))
    return {name: statistics.median(values[WARM_UP:]) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--batch", type=int, default=96)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results, ratios = [], []
    for pixels in (32, 8):
        medians = median_ms(steps(MbConv(SCALES[f"mbconv-{pixels}"]), arguments.batch), arguments.repeats)
        for name, value in medians.items():
            results.append({"label": f"{name}-{pixels}px", "value": round(value, 2), "unit": "ms"})
        shares = {name: medians[name] / medians["heaviest"] for name in ("multi-path", "heaviest-path")}
        ratios += [{"label": f"{name}/heaviest-{pixels}px", "value": round(v, 3)} for name, v in shares.items()]
    for row in results:
        print(f"{row['label']:>24} {row['value']:>10} {row['unit']}", file=sys.stderr)
    for row in ratios:
        print(f"{row['label']:>30} {row['value']:>6}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"benchmark": "elastic", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
