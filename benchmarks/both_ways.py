"""Two limits, one time: a small network cut from a large one, a large one grown from a small one, or each alone.

    python benchmarks/both_ways.py --kept FOLDER --data fashion|cifar32 [--seconds 100] [--seeds 1]

The large network gets six tenths of the seconds, the small one four tenths; ``all`` is the small network alone with all
of them. Seconds become steps by formula (worth.py), with the teacher's forward pass where there is one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from archwright.data import Augmentation, Batches, ImageData, Steps
from archwright.data.request import load_data
from archwright.spaces.compact import Compact, CompactArchitecture
from archwright.supernets.grow import grow
from archwright.supernets.shrink import shrink
from archwright.training import Recipe, evaluate, train
from training_arms import DATA
from worth import STEP_MS, space_of

LARGE, SMALL = 0.6, 0.4


class Trial:
    """Trainings on one data set with one seed."""

    def __init__(self, name: str, seed: int) -> None:
        self.data: ImageData = load_data(DATA[name])
        self.space: Compact = space_of(self.data)
        self.seed = seed
        size = self.data.image_size
        self.augment = None if name == "fashion" else Augmentation(crop=size // 8, flip=name != "digits")
        blocks = "cn_r1_k3_s2_c16/cn_r1_k3_s2_c32/cn_r1_k3_s1_c64|cn_r1_k3_s1_c64"
        self.small = self.space.parse(blocks)
        self.large = self.space.parse(
            "cn_r1_k3_s2_c24/cn_r1_k3_s2_c48|cn_r1_k3_s1_c48/cn_r1_k3_s1_c96|cn_r1_k3_s1_c96|cn_r1_k3_s1_c96"
        )

    def new(self, architecture: CompactArchitecture) -> Any:
        """With initial weights of the seed."""
        torch.manual_seed(self.seed)
        return self.space.build(architecture, self.space.scale)

    def train(self, network: nn.Module, seconds: float, rate: float = 1.0, teacher: nn.Module | None = None) -> int:
        """In place; returns the steps."""
        recipe = Recipe(
            epochs=1,
            warmup_epochs=0.05,
            schedule="linear",
            lr=0.15 * rate,
            batch_size=64,
            label_smoothing=0.1,
            precision="bfloat16",
            distill_weight=0.5 if teacher is not None else 0.0,
        )
        batches = Batches(self.data, "train", 64, seed=self.seed, augment=self.augment)
        mega = self._mega(network) + (self._mega(teacher) / 3 if teacher is not None else 0.0)
        steps = max(2, round(1000 * seconds / (STEP_MS[0] + STEP_MS[1] * mega)))
        train(network, Steps(batches, steps), recipe, seed=self.seed, teacher=teacher)
        return steps

    def _mega(self, network: nn.Module) -> float:
        """Millions of multiply-accumulates of an image."""
        params = sum(parameter.numel() for parameter in network.parameters())
        costs = [self.space.cost(one, self.space.scale) for one in (self.small, self.large)]
        return next(cost.macs for cost in costs if cost.params == params) / 1e6

    def accuracies(self, network: nn.Module) -> list[float]:
        """On validation and test, in percent."""
        parts = ("validation", "test")
        return [
            evaluate(network, Batches(self.data, part, 256, shuffle=False, drop_last=False)).percent for part in parts
        ]


def row(trial: Trial, way: str, seconds: float) -> dict[str, Any]:
    """One way to spend the seconds."""
    found: dict[str, Any] = {}

    def keep(name: str, network: nn.Module, steps: int) -> None:
        found[name] = [*trial.accuracies(network), steps]

    if way == "all":
        small = trial.new(trial.small)
        keep("small", small, trial.train(small, seconds))
        return found
    first, second = ("large", "small") if way != "grow" else ("small", "large")
    share = {"large": LARGE * seconds, "small": SMALL * seconds}
    shape = {"large": trial.large, "small": trial.small}
    one = trial.new(shape[first])
    keep(first, one, trial.train(one, share[first]))
    if way == "shrink":
        other = shrink(one, trial.large, trial.small, trial.space)
        keep(second, other, trial.train(other, share[second], 0.5, one))
    elif way == "taught":
        other = trial.new(trial.small)
        keep(second, other, trial.train(other, share[second], 1.0, one))
    elif way == "grow":
        images = next(iter(Batches(trial.data, "train", 256, seed=trial.seed)))[0]
        other = grow(one, trial.small, trial.large, trial.space, trial.seed, images)
        keep(second, other, trial.train(other, share[second], 0.5))
    else:
        other = trial.new(trial.small)
        keep(second, other, trial.train(other, share[second]))
    return found


def main() -> None:
    """All ways that are not kept yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kept", type=Path, required=True)
    parser.add_argument("--data", choices=sorted(DATA), default="fashion")
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--seeds", type=int, default=1)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    asked.kept.mkdir(parents=True, exist_ok=True)
    path = asked.kept / "both_ways.jsonl"
    lines = path.read_text().splitlines() if path.is_file() else []
    known = {(one["data"], one["way"], one["seconds"], one["seed"]) for one in map(json.loads, lines)}
    for seed in range(asked.seeds):
        trial = Trial(asked.data, seed)
        for way in ("shrink", "taught", "grow", "alone", "all"):
            if (asked.data, way, asked.seconds, seed) in known:
                continue
            one = {"data": asked.data, "way": way, "seconds": asked.seconds, "seed": seed}
            one |= row(trial, way, asked.seconds)
            with path.open("a") as file:
                file.write(json.dumps(one) + "\n")
            print(one, flush=True)


if __name__ == "__main__":
    main()
