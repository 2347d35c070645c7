"""What a step of the width search costs, per image, against plain training of the same network.

``python benchmarks/width.py --json`` prints one JSON object as the last line of stdout. All sides run in turn in one
process with one thread; the median counts. Times are CPU seconds of this process, which other processes disturb least.
A step of RARTS sees a batch of each half, twice the images of a plain step.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.methods.darts import first_order_step, second_order_step
from archwright.methods.rarts import fused_rarts_step, rarts_step
from archwright.methods.rarts_width import Shrinking
from archwright.methods.width_scores import joint_step
from archwright.spaces.base import Scale
from archwright.spaces.width import WidthSpace
from archwright.supernets.scored import Scores
from archwright.training import Position
from archwright.training.bilevel import ArchitectureParameters, Problem, Variable, WeightCopy

NETWORKS = {"resnet20": Scale(16, 1, image_size=16), "mobilenetv2": Scale(8, 1, image_size=16)}
BATCH = 64
HALVES = {"plain": 1, "slimming": 1, "darts-1": 2, "darts-2": 2, "rarts": 2, "rarts-fused": 2}
"""Batches of images that a step sees."""


class Noise:
    """The same batch of noise at every position."""

    def __init__(self, scale: Scale, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        images = torch.randn(BATCH, 3, scale.image_size, scale.image_size, generator=generator)
        self.batch = images.contiguous(memory_format=torch.channels_last), torch.arange(BATCH) % scale.classes

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Images and labels."""
        return self.batch

    def __len__(self) -> int:
        return 1


def make_copy(network: nn.Module) -> WeightCopy:
    weights = list(network.parameters())
    sgd = torch.optim.SGD(weights, lr=0.1, momentum=0.9, weight_decay=1e-4)
    return WeightCopy(network, Variable(weights, sgd, lambda _: 0.01, clip=5.0))


def make_step(name: str, space: WidthSpace) -> Callable[[Position], object]:
    """The step of one side, as the search builds it."""
    w = make_copy(space.whole().to(memory_format=torch.channels_last).train())
    if name == "plain":
        return plain_step(w, Noise(space.scale, 0))
    scores = Scores(space.structure)
    alpha = ArchitectureParameters({"scores": torch.ones(scores.total)})
    parameters = list(alpha.parameters())
    moved = Shrinking(parameters, torch.optim.SGD(parameters, lr=0.1, momentum=0.9), lambda _: 0.01, 5.0, 1e-4)

    def objective(network: nn.Module, alphas: dict[str, Tensor], batch: tuple[Tensor, Tensor], _: Position) -> Tensor:
        return F.cross_entropy(scores.logits(network, alphas["scores"], batch[0]), batch[1])

    problem = Problem(objective, Noise(space.scale, 0), Noise(space.scale, 1), alpha, moved)
    if name == "slimming":
        return joint_step(problem, w)
    if name == "darts-1":
        return first_order_step(problem, w)
    if name == "darts-2":
        return second_order_step(problem, w, None)
    make = rarts_step if name == "rarts" else fused_rarts_step
    return make(problem, w, make_copy(copy.deepcopy(w.network)), 1.0, 0.1)


def plain_step(w: WeightCopy, batches: Noise) -> Callable[[Position], object]:
    def step(position: Position) -> None:
        images, labels = batches.get(0, 0)
        loss = F.cross_entropy(w.network(images), labels)
        w.variable.descend(torch.autograd.grad(loss, w.weights), position)

    return step


def milliseconds_an_image(network: str, repeats: int) -> dict[str, float]:
    """Median CPU time of each side, taken in turn."""
    space = WidthSpace(network, NETWORKS[network])
    steps = {name: make_step(name, space) for name in HALVES}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(repeats + 1):
        for name, step in steps.items():
            begin = time.process_time()
            step(Position.at(index, 1_000_000, 1))
            times[name].append(1000 * (time.process_time() - begin) / (BATCH * HALVES[name]))
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--repeats", type=int, default=15, help="steps of each side; the median counts")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    log = sys.stderr if arguments.json else sys.stdout
    results, ratios = [], []
    for network in NETWORKS:
        times = milliseconds_an_image(network, arguments.repeats)
        results += [{"label": f"{network} {name}", "value": ms, "unit": "ms/image"} for name, ms in times.items()]
        ratios += [
            {"label": f"{network} {name}/plain", "value": ms / times["plain"]}
            for name, ms in times.items()
            if name != "plain"
        ]
    for entry in results:
        print(f"{entry['label']}: {entry['value']:.3f} {entry['unit']}", file=log)
    for entry in ratios:
        print(f"{entry['label']}: {entry['value']:.3f}", file=log)
    if arguments.json:
        print(json.dumps({"benchmark": "width", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
