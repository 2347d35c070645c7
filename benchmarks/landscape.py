"""A loss landscape against the plain double loop: one thread each, the same images in memory, one run.

    python benchmarks/landscape.py --json            # 51 x 51 points, 1,000 images, NAS-Bench-201 at 8 channels, 16 px

The plain side copies the weights of a point into the network and runs the images through it in eval mode, contiguous,
in batches of 250 as an evaluation would; it is timed on a few of the points, in turn with ours. The whole landscape
(``landscape-51``) is by two threads that share its rows. Beside them stands what the multiply-accumulates take
at the rate of a matrix product: the least that any exact way needs.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.analysis.landscape import grid_steps, loss_landscape, random_directions
from archwright.data import Batches
from archwright.data.request import DataRequest, load_data
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.tables.locate import shared_data

CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
SCALE = Scale(channels=8, cells=1, image_size=16)
ROUNDS = 5


def images_of(count: int) -> tuple[Tensor, Tensor]:
    path = shared_data("cifar10_10k2k.npz")
    spec = f"npz:{path}" if path else "random:classes=10,size=16,channels=3,count=4096"
    data = load_data(DataRequest(spec, 0, 16))
    return Batches(data, "train", count, seed=0).get(0, 0)


@torch.no_grad()
def plain(
    network: nn.Module, x: Tensor, y: Tensor, directions: tuple[dict[str, Tensor], ...], steps: np.ndarray
) -> np.ndarray:
    own = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    found = np.empty((len(steps), len(steps)))
    network.eval()
    for i, a in enumerate(steps):
        for j, b in enumerate(steps):
            for name, weight in network.named_parameters():
                weight.copy_(own[name] + a * directions[0][name] + b * directions[1][name])
            losses = [
                F.cross_entropy(network(x[s : s + 250]), y[s : s + 250], reduction="sum") for s in range(0, len(x), 250)
            ]
            found[i, j] = float(torch.stack(losses).sum()) / len(x)
    for name, weight in network.named_parameters():
        weight.copy_(own[name])
    return found


def macs_a_second(size: int = 512, repeats: int = 30) -> float:
    """Multiply-accumulates a second of a matrix product here: what no convolution by the same sums goes beyond."""
    a, times = torch.randn(size, size), []
    for _ in range(repeats):
        begin = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - begin)
    return float(size**3 / min(times))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="the ratio only, without the whole 51 x 51 landscape")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = NASBENCH201.build(NASBENCH201.parse(CELL), SCALE)
    x, y = images_of(1000)
    directions = random_directions(network, 0)
    few = grid_steps(3, 1.0)
    times: dict[str, list[float]] = {"plain": [], "ours": []}
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        slow = plain(network, x, y, directions, few)
        middle = time.perf_counter()
        fast = loss_landscape(network, x, y, directions, few).values
        times["plain"].append(middle - begin)
        times["ours"].append(time.perf_counter() - middle)
    assert np.allclose(slow, fast, rtol=1e-3)
    point = {name: float(np.median(values[1:])) / few.size**2 for name, values in times.items()}  # the first warms up
    results = [
        {"label": f"{name} a point", "value": round(1000 * value, 2), "unit": "ms"} for name, value in point.items()
    ]
    bound = 1000 * len(x) * NASBENCH201.cost(NASBENCH201.parse(CELL), SCALE).macs / macs_a_second()
    results.append({"label": "a point at the matrix product's rate", "value": round(bound, 2), "unit": "ms"})
    if not options.quick:
        begin = time.perf_counter()
        loss_landscape(network, x, y, directions, grid_steps(51, 1.0), workers=2)
        results.append({"label": "landscape-51", "value": round(time.perf_counter() - begin, 1), "unit": "s"})
    ratios = [{"label": "plain/ours", "value": round(point["plain"] / point["ours"], 2)}]
    print(
        json.dumps({"benchmark": "landscape", "results": results, "ratios": ratios}, indent=None if options.json else 2)
    )


if __name__ == "__main__":
    main()
