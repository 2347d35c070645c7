"""What a minute of fine-tuning can be: published weights tuned on few images, each arm one change of a base.

    python benchmarks/tuning_arms.py --kept FOLDER [--data photos|cifar|fashion] [--size 96] [--seeds 1]
        [--only ARM ...] [--times] [--json]

The base is what a search from published weights does with its whole network: a logistic regression on frozen features
for the classifier, then five passes of AdamW at .0003 falling by a cosine, batches of 32, label smoothing .1, flips and
crops, norms that keep their statistics. An arm is written ``base;passes=10;lr=0.0001``. ``photos`` are 360 training
images in four classes and 800 to test on, ``cifar`` 1,600 in ten classes and 2,000, both of the CIFAR-10 subset,
``fashion`` 1,000 of Fashion-MNIST and 2,000: images as the weights have seen, more of them, and unlike what they have
seen. Finished rows are kept in FOLDER/tuned.jsonl. ``--times`` prints how long a step of each arm takes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from torch import nn

from archwright.data import Augmentation, Batches, ImageData
from archwright.data.request import DataRequest, load_data
from archwright.errors import InputError, unknown_name
from archwright.methods.binas.around import fit_head
from archwright.pretrained import DEFAULT, load_start
from archwright.spaces.mbconv_network import MbConvNetwork
from archwright.training.evaluation import evaluate
from archwright.training.losses import classification_loss
from archwright.training.plain import freeze_norms
from training_arms import CIFAR


@dataclass(frozen=True)
class Arm:
    """One way to tune the network; what is not said is as in a search.

    Attributes:
        passes: over the training images.
        lr: of AdamW, for the last layers, and
        layer: what part of it each stage before another has of that one's: 1 for the same rate everywhere.
        decay: of the weights.
        smoothing: of labels.
        augment: as of ``--augment``, or ``off``.
        average: decay of a moving average of the weights; 0 for none.
        precision: float32, or bfloat16 by autocast.
        batch: images a step.
        norms: whether batch norms keep the statistics they came with.
    """

    passes: float = 5.0
    lr: float = 3e-4
    layer: float = 1.0
    decay: float = 0.01
    smoothing: float = 0.1
    augment: str = "crop=8,flip"
    average: float = 0.0
    precision: str = "float32"
    batch: int = 32
    norms: bool = True


BASE = Arm()
ARMS = (
    *("base", "base;passes=0", "base;passes=10", "base;passes=20", "base;lr=0.0001", "base;lr=0.001"),
    *("base;layer=0.7", "base;layer=0.7;lr=0.001", "base;average=0.95", "base;augment=off"),
    *(
        "base;augment=zoom=0.6,flip",
        "base;augment=zoom=0.6,colour=0.4,flip",
        "base;batch=16",
        "base;precision=bfloat16",
    ),
)
TIMED_STEPS = 3


def chosen(labels: np.ndarray, first: int, count: int, classes: int) -> np.ndarray:
    """Numbers of ``count`` images of each of the first ``classes``, from the one numbered ``first`` of it on."""
    return np.concatenate([np.flatnonzero(labels == one)[first : first + count] for one in range(classes)])


def archive(name: str, kept: Path) -> Path:
    """A file with the training and test images of a data set."""
    path = kept / f"{name}.npz"
    if path.is_file():
        return path
    if name == "fashion":
        whole = load_data(DataRequest("fashion-mnist", 0))
        parts = {part: getattr(whole, part) for part in ("train", "test")}
        rows = {"train": chosen(parts["train"].labels, 0, 100, 10), "test": np.arange(2000)}
        found = {}
        for part, own in rows.items():
            pixels = parts[part].pixels(own)
            found[f"x_{part}"] = np.asarray(pixels).reshape(len(own), *np.asarray(pixels).shape[1:])
            found[f"y_{part}"] = parts[part].labels[own]
        np.savez(path, **found)
        return path
    with np.load(CIFAR) as data:
        x, y, x_test, y_test = data["x_train"], data["y_train"].ravel(), data["x_test"], data["y_test"].ravel()
    if name == "photos":
        train, test = chosen(y, 0, 90, 4), chosen(y, 150, 200, 4)
        np.savez(path, x_train=x[train], y_train=y[train], x_test=x[test], y_test=y[test])
    else:
        train = chosen(y, 0, 160, 10)
        np.savez(path, x_train=x[train], y_train=y[train], x_test=x_test, y_test=y_test)
    return path


@lru_cache(maxsize=1)
def images(name: str, size: int, kept: Path) -> ImageData:
    """At one size, normalised as the weights were trained."""
    data, start = load_data(DataRequest(f"npz:{archive(name, kept)}", 0, size)), load_start(DEFAULT).start
    how = replace(data.preprocessing, image_channels=3, mean=start.mean, std=start.std, turned=start.turned)
    return replace(data, preprocessing=how)


@torch.no_grad()
def features(network: MbConvNetwork, data: ImageData, part: Any) -> tuple[np.ndarray, np.ndarray]:
    """What the classifier gets, (n, width), and labels (n,)."""
    network.eval()
    body = nn.Sequential(network.start, network.blocks, *list(network.end)[:-1])
    found = [
        (body(x.contiguous(memory_format=torch.channels_last)).numpy(), own.numpy())
        for x, own in Batches(data, part, 32, shuffle=False, drop_last=False)
    ]
    return np.concatenate([x for x, _ in found]), np.concatenate([own for _, own in found])


def groups(network: MbConvNetwork, arm: Arm) -> list[dict[str, Any]]:
    """Parameters with their rates: the classifier and the last layers, then block by block backwards."""
    blocks = list(network.blocks)
    parts = [network.end, *reversed(blocks), network.start]
    depth = len(blocks)
    return [
        {"params": list(one.parameters()), "factor": arm.layer ** (number * 7 / depth)}
        for number, one in enumerate(parts)
        if list(one.parameters())
    ]


class Tuning:
    """A training of one network by an arm."""

    def __init__(self, arm: Arm, data: ImageData, seed: int, network: MbConvNetwork) -> None:
        self.arm, self.network = arm, network.to(memory_format=torch.channels_last)
        augment = None if arm.augment == "off" else Augmentation.parse(arm.augment)
        self.batches = Batches(data, "train", arm.batch, seed=seed, augment=augment)
        self.optimizer = torch.optim.AdamW(groups(network, arm), lr=arm.lr, weight_decay=arm.decay)

    def step(self, index: int, part: float) -> None:
        """One update where ``part`` of the steps is done."""
        arm = self.arm
        x, labels = self.batches.get(*divmod(index, len(self.batches)))
        self.network.train()
        if arm.norms:
            freeze_norms(self.network)
        rate = arm.lr * min(part / 0.1 + 0.01, 1.0) * (1 + math.cos(math.pi * part)) / 2
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group["factor"]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arm.precision == "bfloat16"):
            logits = self.network(x.contiguous(memory_format=torch.channels_last))
        loss = classification_loss(logits.float(), labels, label_smoothing=arm.smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def run(self, steps: int) -> None:
        """All steps, and the average where the arm has one."""
        average = None
        for index in range(steps):
            self.step(index, index / steps)
            if self.arm.average:
                values = [one.detach() for one in self.network.parameters()]
                average = [one.clone() for one in values] if average is None else average
                torch._foreach_lerp_(average, values, 1 - self.arm.average)
        if average is not None:
            with torch.no_grad():
                torch._foreach_copy_(list(self.network.parameters()), average)


def row(name: str, size: int, word: str, arm: Arm, seed: int, kept: Path) -> dict[str, Any]:
    """Tune and test one network."""
    data, weights = images(name, size, kept), load_start(DEFAULT)
    torch.manual_seed(seed)
    network = weights.network(data.classes, size)
    fit_head(network, *features(network, data, "train"), *features(network, data, "validation"))
    tuning = Tuning(arm, data, seed, network)
    steps = round(arm.passes * len(data.train) / arm.batch)
    begin = time.process_time()
    tuning.run(steps)
    spent = time.process_time() - begin
    network.eval()
    measured = {
        part: evaluate(network, Batches(data, part, 32, shuffle=False, drop_last=False))
        for part in ("validation", "test")
    }
    return {
        "data": name,
        "size": size,
        "arm": word,
        "seed": seed,
        **{part: one.percent for part, one in measured.items()},
        "test_loss": measured["test"].loss,
        "steps": steps,
        "cpu_seconds": spent,
    }


def parsed(word: str) -> Arm:
    """The arm of a word: ``base``, and after semicolons what is changed."""
    first, *changed = word.split(";")
    if first != "base":
        raise InputError("an arm that begins with base", repr(word), "Write base;passes=10;lr=0.0001.")
    changes: dict[str, Any] = {}
    for change in changed:
        key, _, value = change.partition("=")
        if key not in Arm.__dataclass_fields__:
            raise unknown_name("setting of an arm", key, Arm.__dataclass_fields__)
        kind = type(getattr(BASE, key))
        changes[key] = value == "True" if kind is bool else kind(value)
    return replace(BASE, **changes)


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """All finished rows."""
    for line in path.read_text().splitlines() if path.is_file() else []:
        yield json.loads(line)


def tuned(name: str, size: int, wanted: Mapping[str, Arm], seeds: int, kept: Path) -> Iterator[dict[str, Any]]:
    """A row for every arm and seed; those that are not kept yet are trained and kept."""
    path = kept / "tuned.jsonl"
    done = {(one["data"], one["size"], one["arm"], one["seed"]): one for one in rows(path)}
    for seed, (word, arm) in itertools.product(range(seeds), wanted.items()):
        key = (name, size, word, seed)
        if key not in done:
            done[key] = row(name, size, word, arm, seed, kept)
            with path.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
        one = done[key]
        print(
            f"{name} {size} px {word} seed {seed}: validation {one['validation']:.2f}, test {one['test']:.2f} % "
            f"({one['test_loss']:.3f}); {one['steps']} steps, {one['cpu_seconds']:.0f} s",
            file=sys.stderr,
            flush=True,
        )
        yield one


def step_times(name: str, size: int, wanted: Mapping[str, Arm], kept: Path) -> list[dict[str, Any]]:
    """Milliseconds of a step of each arm, the quickest of rounds taken in turn."""
    data, weights = images(name, size, kept), load_start(DEFAULT)
    tunings = {word: Tuning(arm, data, 0, weights.network(data.classes, size)) for word, arm in wanted.items()}
    least = dict.fromkeys(wanted, math.inf)
    for _ in range(4):
        for word, one in tunings.items():
            begin = time.process_time()
            for index in range(TIMED_STEPS):
                one.step(index, 0.5)
            least[word] = min(least[word], 1000 * (time.process_time() - begin) / TIMED_STEPS)
    return [{"arm": word, "step_ms": ms} for word, ms in least.items()]


def summary(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the seeds with their standard errors."""
    results = []
    for word in dict.fromkeys(one["arm"] for one in found):
        own = [one["test"] for one in found if one["arm"] == word]
        error = stdev(own) / math.sqrt(len(own)) if len(own) > 1 else None
        results.append({"label": word, "value": fmean(own), "unit": "%", "error": error, "seeds": len(own)})
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("photos", "cifar", "fashion"), default="photos")
    parser.add_argument("--size", type=int, default=96, help="of the images, in pixels")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="arms such as 'base;passes=10', by default those of ARMS")
    parser.add_argument("--kept", type=Path, required=True, help="folder of finished rows")
    parser.add_argument("--times", action="store_true", help="train nothing: print how long a step of each arm takes")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.kept.mkdir(parents=True, exist_ok=True)
    wanted = {word: parsed(word) for word in options.only or ARMS}
    if options.times:
        found = step_times(options.data, options.size, wanted, options.kept)
        for one in found:
            print(f"{one['arm']}: {one['step_ms']:.1f} ms", file=sys.stderr)
        results = [{"label": one["arm"], "value": one["step_ms"], "unit": "ms"} for one in found]
    else:
        results = summary(list(tuned(options.data, options.size, wanted, options.seeds, options.kept)))
    if options.json:
        print(json.dumps({"benchmark": "tuning_arms", "results": results, "ratios": []}))


if __name__ == "__main__":
    main()
