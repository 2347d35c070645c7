"""Which kind of block gives most accuracy in a given training time: uniform networks of compact, and of mbconv.

    python benchmarks/families.py [--data digits] [--image-size N] [--seconds 20] [--json]

Every network is trained for the same CPU time on one thread, with the same recipe (SGD with Nesterov momentum, warm-up,
cosine to zero, label smoothing, flips and crops where the data have them), and tested on the validation part; latencies
are medians of single images. The seeds' mean is printed. The default widths of the space were chosen with this.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F

from archwright.costs.measure import Timing, measure
from archwright.data.augmentation import Augmentation
from archwright.data.batches import Batches
from archwright.data.image_data import ImageData
from archwright.data.request import DataRequest, load_data
from archwright.solvers.problem import StagedChoice
from archwright.spaces.base import Network
from archwright.spaces.compact import Compact
from archwright.spaces.compact import scale_for as compact_scale
from archwright.spaces.mbconv import MbConv
from archwright.spaces.mbconv import scale_for as mbconv_scale
from archwright.spaces.staged import StagedSpace

LEARNING_RATE, BATCH = 0.1, 64


def networks(data: ImageData) -> dict[str, tuple[StagedSpace[Any], Any]]:
    """Uniform networks by name: one block a stage of each kind at two widths, two plain ones, the lightest mbconv."""
    shape = data.image_size, data.classes, data.image_channels
    space = Compact(compact_scale(*shape))
    found: dict[str, tuple[StagedSpace[Any], Any]] = {}
    for number, kind in enumerate(space.scale.configurations):
        for width in (0, 2):
            rows = [[0 if stage == 0 else number] * space.most_blocks for stage in range(space.stages)]
            choice = StagedChoice.masked([1] * space.stages, rows, [width] * space.stages)
            architecture = space.from_choice(choice)
            found[f"{kind} width {space.widths[0][width]}"] = space, architecture
    found[f"2 x cn_k3 width {space.widths[0][0]}"] = space, space.plain(2, 0)
    mobile = MbConv(mbconv_scale(*shape).changed(width=0.25))
    return {**found, "mbconv width .25": (mobile, mobile.lightest())}


def train(network: Network, data: ImageData, seconds: float, seed: int) -> float:
    """Percent right on the validation part after ``seconds`` of CPU time."""
    batches = Batches(data, "train", min(BATCH, len(data.train)), seed=seed, augment=Augmentation.default_for(data))
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4)
    network.train()
    begin, step = time.process_time(), 0
    while (part := (time.process_time() - begin) / seconds) < 1:
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, 0.05 + part / 0.1) * (1 + math.cos(math.pi * part)) / 2
        images, labels = batches.get(*divmod(step, len(batches)))
        optimizer.zero_grad()
        logits = network(images.contiguous(memory_format=torch.channels_last))
        F.cross_entropy(logits, labels, label_smoothing=0.1).backward()
        optimizer.step()
        step += 1
    network.eval()
    tested = Batches(data, "validation", 256, shuffle=False, drop_last=False)
    with torch.inference_mode():
        right = [float((network(images).argmax(1) == labels).sum()) for images, labels in tested]
    return 100 * sum(right) / len(data.validation)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--image-size", type=int)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="parts of names; by default all networks")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load_data(DataRequest(options.data, 0, options.image_size))
    shape, results = (data.image_channels, data.image_size, data.image_size), []
    for name, (space, architecture) in networks(data).items():
        if options.only and not any(part in name for part in options.only):
            continue
        accuracies = []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            network = space.build(architecture, space.scale).to(memory_format=torch.channels_last)
            accuracies.append(train(network, data, options.seconds, seed))
        latency_ms = measure(network, shape, Timing()).median_ms
        print(f"{name}: {mean(accuracies):.1f} %, {latency_ms:.3f} ms", file=sys.stderr, flush=True)
        results.append({"label": f"{name} accuracy", "value": mean(accuracies), "unit": "percent"})
        results.append({"label": f"{name} latency", "value": latency_ms, "unit": "ms"})
    if options.json:
        print(json.dumps({"benchmark": "families", "results": results, "ratios": []}))


if __name__ == "__main__":
    main()
