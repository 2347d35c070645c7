"""Images per second of training: DARTS and NAS-Bench-201 networks, their supernets, one-hot against all operations.

``python benchmarks/training.py [--json]``. Contiguous and channels-last memory are compared in one run, interleaved,
median of repeats; one thread.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.spaces.base import Scale, Space
from archwright.spaces.darts import DARTS
from archwright.spaces.gallery import GALLERY
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.cell import CellSupernet

BATCH = 64
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


def step(module: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor, y: Tensor) -> None:
    module.zero_grad(set_to_none=True)
    F.cross_entropy(forward(x), y).backward()


def cases(memory: torch.memory_format) -> dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]]:
    """Each network with its forward function."""
    torch.manual_seed(0)
    cell = NASBENCH201.parse(
        "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_1x1~1|+|skip_connect~0|nor_conv_1x1~1|avg_pool_3x3~2|"
    )
    spaces: list[tuple[Space, Scale, object]] = [
        (NASBENCH201, Scale(channels=16, cells=1, image_size=16), cell),
        (DARTS, Scale(channels=8, cells=5, image_size=16, pool_norm=True), GALLERY["darts-v2"]),
    ]
    found: dict[str, tuple[nn.Module, Callable[[Tensor], Tensor]]] = {}
    for space, scale, architecture in spaces:
        network = space.build(architecture, scale).to(memory_format=memory).train()
        supernet = CellSupernet(space, scale).to(memory_format=memory).train()
        alone = supernet.one_hot(architecture)
        soft = {name: torch.softmax(torch.randn(shape), -1).requires_grad_() for name, shape in space.decisions.items()}
        found[f"{space.name} network"] = (network, network)
        found[f"{space.name} supernet, one-hot"] = (supernet, lambda x, s=supernet, w=alone: s(x, w))
        found[f"{space.name} supernet, all"] = (supernet, lambda x, s=supernet, w=soft: s(x, w))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    y = torch.randint(10, (BATCH,))
    times: dict[tuple[str, str], list[float]] = {}
    networks = {name: cases(memory) for name, memory in FORMATS.items()}
    for repeat in range(arguments.repeats + 1):
        for name, memory in FORMATS.items():
            x = torch.randn(BATCH, 3, 16, 16).to(memory_format=memory)
            for label, (module, forward) in networks[name].items():
                begin = time.perf_counter()
                step(module, forward, x, y)
                if repeat:  # the first is a warm-up
                    times.setdefault((label, name), []).append(time.perf_counter() - begin)
    rate = {key: BATCH / statistics.median(values) for key, values in times.items()}
    results = [{"label": f"{k}, {f}", "value": round(v, 1), "unit": "images/s"} for (k, f), v in rate.items()]
    ratios = []
    for label in networks["contiguous"]:
        value = rate[label, "channels_last"] / rate[label, "contiguous"]
        ratios.append({"label": f"{label}: channels_last/contiguous", "value": round(value, 3)})
    for space in ("nasbench201", "darts"):
        for name in FORMATS:
            value = rate[f"{space} supernet, one-hot", name] / rate[f"{space} supernet, all", name]
            ratios.append({"label": f"{space} supernet, {name}: one-hot/all", "value": round(value, 3)})
    for row in results:
        print(f"{row['label']:<50} {row['value']:>9} {row['unit']}", file=sys.stderr)
    for row in ratios:
        print(f"{row['label']:<60} {row['value']:>7}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"benchmark": "training", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
