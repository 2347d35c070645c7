"""What width, depth and kind of block are worth: random compact networks, each trained for as long, and a fit on them.

    python benchmarks/worth.py --kept FOLDER --data cifar16|cifar32|fashion [--networks 20] [--seconds 25] [--fit]

Networks are drawn evenly by their latency and trained by the recipe of the fast strategy for equal seconds, both by
formula, so that a row is the same on any machine. ``--fit`` trains nothing: it prints the ridge regression of the log
odds of the validation accuracy over all kept rows, data sets centred: gains by a doubled width of each stage, by a
further block in it and by its kind. The constants of ``methods/binas/thin.py`` come from it.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from archwright.data import Augmentation, Batches, Steps
from archwright.data.request import load_data
from archwright.spaces.compact import SCALES, Compact, CompactArchitecture
from archwright.training import Recipe, evaluate, train
from training_arms import DATA

LATENCIES_MS, BLOCK_MS, MEGA_MS = (0.15, 0.5), 0.035, 0.022
"""Range of the networks, and what a convolution and a million multiply-accumulates take on one thread, about."""
STEP_MS = (4.9, 1.36)
"""A step of 64 images in bfloat16: fixed, and for each million multiply-accumulates of an image. Measured once on a
quiet machine (training_arms.py --times), so that a row has the same steps on any."""
CONVOLUTIONS = {"cn": 1, "bb": 2, "er": 2, "ir": 3}
FEATURES = ("width 1", "width 2", "width 3", "block 1", "block 2", "block 3", "bb", "er", "ir", "log2 steps")


def main() -> None:
    """Train what is missing, or fit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kept", type=Path, required=True)
    three_stages = sorted(name for name in DATA if name != "digits")  # as many as there are features of widths
    parser.add_argument("--data", choices=three_stages, default="fashion")
    parser.add_argument("--networks", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--fit", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.fit:
        fit([json.loads(line) for line in (asked.kept / "worth.jsonl").read_text().splitlines()])
        return
    asked.kept.mkdir(parents=True, exist_ok=True)
    path = asked.kept / "worth.jsonl"
    done = path.read_text().splitlines() if path.is_file() else []
    known = {(row["data"], row["number"], row["seconds"]) for row in map(json.loads, done)}
    for number in range(asked.networks):
        if (asked.data, number, asked.seconds) not in known:
            row = trained(asked.data, number, asked.seconds)
            with path.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row, flush=True)


def space_of(data: Any) -> Compact:
    """The compact space at the data's size."""
    size = data.image_size
    name = "compact-16" if size < 24 else "compact-32"
    return Compact(SCALES[name].changed(image_size=size, image_channels=data.image_channels, classes=data.classes))


def trained(name: str, number: int, seconds: float) -> dict[str, Any]:
    """One random network after its seconds."""
    data = load_data(DATA[name])
    space, rng = space_of(data), np.random.default_rng(number)
    low, high = (
        LATENCIES_MS[0] + (LATENCIES_MS[1] - LATENCIES_MS[0]) * part / 5 for part in (number % 5, number % 5 + 1)
    )
    while True:
        architecture = drawn(space, rng)
        latency = latency_ms(space, architecture)
        if low <= latency <= high:
            break
    recipe = Recipe(
        epochs=1,
        warmup_epochs=0.05,
        schedule="linear",
        lr=0.15,
        batch_size=64,
        label_smoothing=0.1,
        precision="bfloat16",
    )
    augment = None if name == "fashion" else Augmentation(crop=data.image_size // 8, flip=True)
    torch.manual_seed(number)
    network = space.build(architecture, space.scale)
    batches = Batches(data, "train", 64, seed=number, augment=augment)
    mega = space.cost(architecture, space.scale).macs / 1e6
    steps = round(1000 * seconds / (STEP_MS[0] + STEP_MS[1] * mega))
    train(network, Steps(batches, steps), recipe, seed=number)
    found = evaluate(network, Batches(data, "validation", 256, shuffle=False, drop_last=False))
    return {
        "data": name,
        "number": number,
        "seconds": seconds,
        "architecture": str(architecture),
        "widths": [stage[0].channels for stage in architecture.stages],
        "depths": [len(stage) for stage in architecture.stages],
        "kinds": [block.configuration.kind for stage in architecture.stages for block in stage],
        "latency_ms": latency,
        "steps": steps,
        "validation": found.percent,
        "count": found.count,
    }


def latency_ms(space: Compact, architecture: CompactArchitecture) -> float:
    """About, by convolutions and multiply-accumulates."""
    blocks = [block for stage in architecture.stages for block in stage]
    convolutions = sum(CONVOLUTIONS[block.configuration.kind] for block in blocks)
    return 0.03 + BLOCK_MS * convolutions + MEGA_MS * space.cost(architecture, space.scale).macs / 1e6


def drawn(space: Compact, rng: np.random.Generator) -> CompactArchitecture:
    """Uniform in widths and depths; half of the networks of plain blocks alone."""
    network = space.sample(rng)
    if rng.random() < 0.5:
        return network
    choice = space.to_choice(network)
    plain = next(number for number, one in enumerate(space.configurations) if one.kind == "cn")
    configurations = np.where(choice.configurations >= 0, plain, choice.configurations)
    return space.from_choice(type(choice)(choice.depths, configurations, choice.widths))


def fit(rows: list[dict[str, Any]]) -> None:
    """Print the gains in log odds."""
    names = sorted({row["data"] for row in rows})
    features, values = [], []
    for row in rows:
        kinds = row["kinds"]
        first = row["widths"]
        features.append(
            [math.log2(width) for width in first]
            + [depth - 1 for depth in row["depths"]]
            + [kinds.count(kind) for kind in ("bb", "er", "ir")]
            + [math.log2(row["steps"])]
        )
        right = min(row["validation"], 100 - 50 / row["count"]) / 100
        values.append(math.log(right / (1 - right)))
    for name in (*names, "all"):
        chosen = np.array([name in (row["data"], "all") for row in rows])
        x, y = np.array(features)[chosen], np.array(values)[chosen]
        group = np.array([row["data"] for row in rows])[chosen]
        for one in set(group):
            x[group == one] -= x[group == one].mean(0)
            y[group == one] = (y[group == one] - y[group == one].mean()) / y[group == one].std()
        solved = np.linalg.solve(x.T @ x + 0.5 * np.eye(x.shape[1]), x.T @ y)
        print(name, len(y), {feature: round(float(gain), 2) for feature, gain in zip(FEATURES, solved, strict=True)})
        print("   explained", round(1 - float(((y - x @ solved) ** 2).sum() / (y**2).sum()), 2))


if __name__ == "__main__":
    main()
