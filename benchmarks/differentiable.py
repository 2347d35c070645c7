"""Time and memory of one step of each differentiable search, and of the supernet against one written plainly.

``python benchmarks/differentiable.py --json`` prints one JSON object as the last line of stdout. All sides run in turn
in one process with one thread; the median counts. Speed does not depend on the images, which are noise. Times are CPU
seconds of this process (``time.process_time``), which other processes disturb least.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.methods.darts import first_order_step, second_order_step, softmax, supernet_loss
from archwright.methods.rarts import fused_rarts_step, rarts_step
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import EDGES, NAMES, NASBENCH201, Skeleton201
from archwright.spaces.operations import OPERATIONS
from archwright.supernets.cell import CellSupernet
from archwright.supernets.parallel import set_statistics
from archwright.training import Position
from archwright.training.bilevel import ArchitectureParameters, Problem, Variable, WeightCopy

SCALE = Scale(channels=8, cells=1, image_size=16)
BATCH = 64
METHODS = ("darts1", "darts2", "rarts", "rarts-fused")


class Noise:
    """The same batch of noise at every position."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (BATCH, SCALE.image_channels, SCALE.image_size, SCALE.image_size)
        images = torch.randn(shape, generator=generator).contiguous(memory_format=torch.channels_last)
        self.batch = images, torch.arange(BATCH) % SCALE.classes

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Images and labels."""
        return self.batch

    def __len__(self) -> int:
        return 1


class PlainCell(nn.Module):
    """The mixed cell as it is usually written: every operation of every edge is a module of its own."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.edges = nn.ModuleList(
            nn.ModuleList(OPERATIONS[name].build(channels, channels, 1, affine=False) for name in NAMES) for _ in EDGES
        )

    def forward(self, x: Tensor, weights: dict[str, Tensor], active: None) -> Tensor:
        """(B, C, H, W) to the same shape."""
        nodes: list[Tensor | None] = [x, None, None, None]
        for row, (source, target) in enumerate(EDGES):
            pairs = zip(weights["cell"][row], self.edges[row], strict=True)
            mixed = sum(weight * operation(nodes[source]) for weight, operation in pairs)
            nodes[target] = mixed if nodes[target] is None else nodes[target] + mixed
        return nodes[3]


def make_copy(network: nn.Module) -> WeightCopy:
    weights = list(network.parameters())
    sgd = torch.optim.SGD(weights, lr=0.025, momentum=0.9, weight_decay=3e-4)
    return WeightCopy(network, Variable(weights, sgd, lambda _: 0.025, clip=5.0))


def make_search(method: str) -> tuple[Problem, Callable[[int], None]]:
    """The problem of one method and its step, as the search builds them."""
    alpha = ArchitectureParameters({"cell": 1e-3 * torch.randn(6, 5)})
    parameters = list(alpha.parameters())
    adam = torch.optim.Adam(parameters, lr=3e-4, betas=(0.5, 0.999), weight_decay=1e-3)

    def objective(network: nn.Module, alphas: dict[str, Tensor], batch: tuple[Tensor, Tensor], _: Position) -> Tensor:
        return supernet_loss(network, softmax(alphas), batch, None)

    problem = Problem(objective, Noise(0), Noise(1), alpha, Variable(parameters, adam, lambda _: 3e-4))
    w = make_copy(CellSupernet(NASBENCH201, SCALE).to(memory_format=torch.channels_last))
    if method == "darts1":
        step = first_order_step(problem, w)
    elif method == "darts2":
        step = second_order_step(problem, w, None)
    else:
        make = rarts_step if method == "rarts" else fused_rarts_step
        step = make(problem, w, make_copy(copy.deepcopy(w.network)), 1.0, 0.1)
    return problem, lambda index: step(Position.at(index, 1_000_000, 1))


def make_supernet_steps() -> dict[str, Callable[[int], None]]:
    """Loss and all gradients of one batch: our supernet, and the plain one in both memory formats."""
    plain = set_statistics(Skeleton201(SCALE, PlainCell), "batch")
    networks = {
        "ours": CellSupernet(NASBENCH201, SCALE).to(memory_format=torch.channels_last),
        "plain": copy.deepcopy(plain).to(memory_format=torch.channels_last),
        "plain-contiguous": plain,
    }
    images, labels = Noise(0).batch
    alpha = torch.zeros(6, 5, requires_grad=True)

    def make(network: nn.Module, x: Tensor) -> Callable[[int], None]:
        def step(_index: int) -> None:
            loss = F.cross_entropy(network(x, {"cell": alpha.softmax(-1)}, None), labels)
            torch.autograd.grad(loss, [*network.parameters(), alpha], allow_unused=True)

        return step

    return {
        name: make(network, images.contiguous() if name == "plain-contiguous" else images)
        for name, network in networks.items()
    }


def median_times(steps: dict[str, Callable[[int], None]], repeats: int) -> dict[str, float]:
    """Median CPU milliseconds of each, taken in turn."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(repeats + 2):
        for name, step in steps.items():
            begin = time.process_time()
            step(index)
            times[name].append(1000 * (time.process_time() - begin))
    return {name: statistics.median(taken[2:]) for name, taken in times.items()}


def peak_bytes(method: str) -> int:
    """Bytes that a search needs at its peak beyond the imported libraries, in a process of its own."""
    found = subprocess.run(
        [sys.executable, __file__, "--memory-of", method], capture_output=True, text=True, check=True
    )
    return int(found.stdout.split()[-1])


def memory(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))


def print_memory(method: str) -> None:
    """The growth of the peak of resident memory over five steps; one plain convolution first loads the kernels."""
    F.conv2d(torch.randn(1, 3, 8, 8, requires_grad=True), torch.randn(4, 3, 3, 3)).sum().backward()
    before = memory("VmRSS")
    _, step = make_search(method)
    for index in range(5):
        step(index)
    print(memory("VmHWM") - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--repeats", type=int, default=20, help="steps of each side; the median counts")
    parser.add_argument("--memory-of", choices=METHODS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.memory_of:
        print_memory(arguments.memory_of)
        return
    log = sys.stderr if arguments.json else sys.stdout
    searches = {method: make_search(method) for method in METHODS}
    times = median_times({method: step for method, (_, step) in searches.items()}, arguments.repeats)
    plain = median_times(make_supernet_steps(), arguments.repeats)
    peaks = {method: peak_bytes(method) for method in ("darts1", "rarts")}
    results = [{"label": f"step {method}", "value": value, "unit": "ms"} for method, value in times.items()]
    results += [
        {"label": f"passes {method}", "value": problem.passes / (arguments.repeats + 2), "unit": "1"}
        for method, (problem, _) in searches.items()
    ]
    results += [{"label": f"supernet {name}", "value": value, "unit": "ms"} for name, value in plain.items()]
    results += [
        {"label": f"peak memory {name}", "value": value / 2**20, "unit": "MiB"} for name, value in peaks.items()
    ]
    pairs = [("rarts", "darts2"), ("rarts", "darts1"), ("rarts-fused", "darts2"), ("rarts-fused", "darts1")]
    ratios = [{"label": f"{one}/{other}", "value": times[one] / times[other]} for one, other in pairs]
    ratios += [
        {"label": "plain/ours", "value": plain["plain"] / plain["ours"]},
        {"label": "plain-contiguous/ours", "value": plain["plain-contiguous"] / plain["ours"]},
        {"label": "memory:rarts/darts1", "value": peaks["rarts"] / peaks["darts1"]},
    ]
    for entry in results:
        print(f"{entry['label']}: {entry['value']:.2f} {entry['unit']}", file=log)
    for entry in ratios:
        print(f"{entry['label']}: {entry['value']:.3f}", file=log)
    if arguments.json:
        print(json.dumps({"benchmark": "differentiable", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
