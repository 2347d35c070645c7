"""What a minute of training can be: one network a row, each arm one change of a base, from scratch on one thread.

    python benchmarks/training_arms.py --kept FOLDER [--data fashion|cifar16|cifar32|digits] [--seconds 60] [--seeds 1]
        [--only ARM ...] [--times] [--json]

The base is a plain network of four convolutions by stochastic gradient descent whose rate falls linearly. A row has as
many steps as its seconds allow: the arm's step and the base's are timed in turn in the processor's time, and the base's
own step, timed once, is kept in FOLDER, so that other work on the machine makes no arm longer or shorter. Finished rows
are kept in FOLDER/rows.jsonl and not trained again. Choose by ``validation``; ``test`` is there to report.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.costs.measure import Timing, measure
from archwright.data import Augmentation, Batches, ImageData
from archwright.data.request import DataRequest, load_data
from archwright.errors import InputError, unknown_name
from archwright.spaces.compact import Compact, CompactArchitecture, CompactBlock
from archwright.spaces.compact_network import CompactNetwork
from archwright.spaces.compact_scale import CompactScale, Configuration
from archwright.supernets.grow import grow
from archwright.supernets.shrink import shrink
from archwright.training.evaluation import evaluate, recalibrate
from archwright.training.losses import classification_loss

CIFAR = Path(os.environ.get("ARCHWRIGHT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "cifar10_10k2k.npz"
DATA: dict[str, DataRequest] = {
    "fashion": DataRequest("fashion-mnist", 0),
    "cifar16": DataRequest(f"npz:{CIFAR}", 0, 16),
    "cifar32": DataRequest(f"npz:{CIFAR}", 0, 32),
    "digits": DataRequest("digits", 0),
}
KINDS = {"": "cn_k3", "b": "bb_k3", "e": "er_k3_e2", "i": "ir_k3_e3", "k": "cn_k5"}
"""Letters before a width in the short form of a network: plain, basic, fused, inverted, plain with a 5x5 kernel."""
TIMED_STEPS, ROUNDS = 3, 16
"""Steps of a timed round, and rounds; the quickest one counts, as other work only adds time."""
COSTS = ("network", "batch", "augment", "sizes", "pool", "precision", "channels_last", "fused", "teacher")
"""What decides how long a step takes: arms that agree in these have as many steps."""
RECALIBRATED = 60
"""Batches from which averaged weights get their batch-norm statistics."""


@dataclass(frozen=True)
class Arm:
    """One way to train one network; what is not said is as in the base.

    Attributes:
        network: widths of its blocks, with ``/2`` after one that has a stride and a letter of KINDS before it.
        schedule: linear, cosine, cycle (a climb, then a cosine) or steady (constant, then linear over ``fall``).
        climb: part of the steps over which the rate rises from 0.
        fall: part of the steps at the end of a steady schedule over which it falls.
        augment: as of ``--augment``, or ``off``.
        clean: part of the steps at the end without augmentation.
        average: decay of a moving average of the weights; 0 for none.
        tail: part of the steps at the end whose weights are averaged evenly; 0 for none.
        sizes: sides of the images, of equal parts of the steps each, the last being the data's own; empty for that.
        pool: how the last maps are averaged: adaptive, or by a window of their size.
        precision: of the arithmetic: float32, or bfloat16 by autocast.
        fused: whether the optimiser's update is one kernel.
        decay: of the weights, and
        norm_decay: of norms and biases as a multiple of it.
        norm_momentum: of the batch norms' running statistics.
        before: a smaller network that is trained steadily first and grows into this one, and
        teacher: a larger one that is trained first, and whose answers this one learns, for
        share: of the time.
        distilled: how much of the label the teacher's answer replaces.
        temperature: of both answers in that.
        cut: whether the network begins with the strongest channels of its teacher, which it is inside, and
        tuned: its rate then, as a multiple of ``lr``, by which the teacher learns.
    """

    network: str = "16/2 32 64/2 64"
    batch: int = 64
    lr: float = 0.15
    schedule: str = "linear"
    climb: float = 0.0
    fall: float = 0.25
    momentum: float = 0.9
    nesterov: bool = True
    decay: float = 5e-4
    norm_decay: float = 1.0
    smoothing: float = 0.1
    augment: str = "flip"
    clean: float = 0.0
    average: float = 0.0
    tail: float = 0.0
    sizes: tuple[int, ...] = ()
    pool: str = "adaptive"
    precision: str = "float32"
    channels_last: bool = True
    fused: bool = False
    norm_momentum: float = 0.1
    before: str = ""
    teacher: str = ""
    share: float = 0.5
    distilled: float = 0.7
    temperature: float = 1.0
    cut: bool = False
    tuned: float = 1.0


BASE = Arm()
QUICK = replace(BASE, pool="window", precision="bfloat16", climb=0.05)
FIRST: dict[tuple[Any, ...], nn.Module] = {}
"""Networks that others grew from or learnt from in this process."""
STARTS = {"base": BASE, "quick": QUICK}
ARMS = (
    *("base", "base;pool=window", "base;channels_last=False", "quick"),
    *("quick;lr=0.05", "quick;lr=0.4", "quick;schedule=cosine", "quick;schedule=cycle", "quick;schedule=steady"),
    *("quick;batch=32;lr=0.075", "quick;batch=128;lr=0.3", "quick;decay=0.0001", "quick;decay=0.002"),
    *("quick;average=0.99", "quick;tail=0.2", "quick;smoothing=0", "quick;nesterov=False", "quick;fused=True"),
    *("quick;augment=off", "quick;augment=crop=2,flip", "quick;augment=flip,cutout=7", "quick;sizes=20-28"),
    *("quick;network=32/2 64/2 128", "quick;network=32/2 48 64/2 96", "quick;network=16/2 32 32 64/2 64 64"),
)
"""What is trained without ``--only``: one change each."""


def rate(arm: Arm, part: float) -> float:
    """The learning rate where ``part`` of the steps is done."""
    climb = 0.3 if arm.schedule == "cycle" else arm.climb
    if part < climb:
        return arm.lr * max(part, 0.01 * climb) / climb
    left = (1 - part) / (1 - climb)
    if arm.schedule == "linear":
        return arm.lr * left
    if arm.schedule == "steady":
        return arm.lr * min(1.0, (1 - part) / arm.fall)
    return arm.lr * (1 - math.cos(math.pi * left)) / 2


# --- networks ---------------------------------------------------------------------------------------------------------


def architecture(text: str) -> CompactArchitecture:
    """From the short form; a new stage begins where the width changes or a block has a stride."""
    stages: list[list[CompactBlock]] = []
    for word in text.split():
        letter = word[0] if word[0].isalpha() else ""
        width, _, stride = word.removeprefix(letter).partition("/")
        block = CompactBlock(Configuration.parse(KINDS[letter]), int(stride or 1), int(width))
        if stages and stages[-1][-1].channels == block.channels and block.stride == 1:
            stages[-1].append(block)
        else:
            stages.append([block])
    return CompactArchitecture(tuple(map(tuple, stages)))


def space(one: CompactArchitecture, data: ImageData) -> Compact:
    """A space whose networks have the strides of ``one`` and suit the images."""
    strides = tuple(blocks[0].stride for blocks in one.stages)
    shape = {"image_size": data.image_size, "image_channels": data.image_channels, "classes": data.classes}
    return Compact(CompactScale(stage_strides=strides, stage_factors=(1,) * len(strides), **shape))  # type: ignore[arg-type]


def build(text: str, data: ImageData, seed: int) -> CompactNetwork:
    """The network of the short form ``text`` with the initial weights of ``seed``."""
    one = architecture(text)
    own = space(one, data)
    torch.manual_seed(seed)
    return cast(CompactNetwork, own.build(one, own.scale))


class WindowMean(nn.Module):
    """The mean of each map by a pooling window of its size, whose gradient keeps the memory format of the maps."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) to (B, C, 1, 1)."""
        return F.avg_pool2d(x, x.shape[-2:])


def prepared(network: CompactNetwork, arm: Arm) -> CompactNetwork:
    """With the arm's pooling, norms and memory format."""
    network.end[0] = WindowMean() if arm.pool == "window" else nn.AdaptiveAvgPool2d(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = arm.norm_momentum
    return network.to(memory_format=torch.channels_last) if arm.channels_last else network  # type: ignore[call-overload]


# --- training ---------------------------------------------------------------------------------------------------------


class Training:
    """Everything that the steps of one network need; ``step`` may be called as often as one likes."""

    def __init__(
        self, arm: Arm, data: ImageData, seed: int, network: CompactNetwork, teacher: nn.Module | None = None
    ) -> None:
        self.arm, self.teacher = arm, teacher
        self.network = prepared(network, arm).train()
        self.batches = Batches(data, "train", min(arm.batch, len(data.train)), seed=seed)
        self.augment = None if arm.augment == "off" else Augmentation.parse(arm.augment)
        weights = [one for one in self.network.parameters() if one.ndim > 1]
        others = [one for one in self.network.parameters() if one.ndim < 2]
        groups: list[dict[str, Any]] = [{"params": weights}]
        groups.append({"params": others, "weight_decay": arm.decay * arm.norm_decay})
        self.optimizer = torch.optim.SGD(
            groups, arm.lr, arm.momentum, weight_decay=arm.decay, nesterov=arm.nesterov, fused=arm.fused
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """Of the forward pass."""
        half = self.arm.precision == "bfloat16"
        return torch.autocast("cpu", dtype=torch.bfloat16) if half else nullcontext()

    def images(self, index: int, part: float) -> tuple[Tensor, Tensor]:
        """Batch ``index`` as the network sees it where ``part`` of the steps is done."""
        arm = self.arm
        self.batches.augment = None if part >= 1 - arm.clean else self.augment
        images, labels = self.batches.get(*divmod(index, len(self.batches)))
        if arm.sizes:
            size = arm.sizes[min(int(part * len(arm.sizes)), len(arm.sizes) - 1)]
            if size != images.shape[-1]:
                images = F.interpolate(images, (size, size), mode="area")
        return images.contiguous(memory_format=torch.channels_last) if arm.channels_last else images, labels

    def step(self, index: int, part: float) -> None:
        """One update."""
        arm = self.arm
        images, labels = self.images(index, part)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(arm, part)
        soft = None
        with self.autocast():
            if self.teacher is not None:
                with torch.no_grad():
                    soft = self.teacher(images).float()
            logits = self.network(images).float()
        weight = 0.0 if soft is None else arm.distilled
        loss = classification_loss(
            logits,
            labels,
            label_smoothing=arm.smoothing,
            teacher_logits=soft,
            distill_weight=weight,
            distill_temperature=arm.temperature,
        )
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    def run(self, steps: int) -> None:
        """All steps, and the average where the arm has one."""
        arm, average, taken = self.arm, None, 0
        first = math.floor((1 - arm.tail) * steps) if arm.tail else 0
        for index in range(steps):
            self.step(index, index / steps)
            if (arm.average or arm.tail) and index >= first:
                values = [one.detach() for one in self.network.parameters()]
                taken += 1
                if average is None:
                    average = [one.clone() for one in values]
                share = 1 / taken if arm.tail else max(1 - arm.average, 9 / (9 + taken))
                torch._foreach_lerp_(average, values, share)
        if average is not None:
            with torch.no_grad():
                torch._foreach_copy_(list(self.network.parameters()), average)
            self.batches.augment = self.augment
            recalibrate(self.network, self.batches, RECALIBRATED)


def parts_of_steps(arm: Arm) -> list[float]:
    """Where in a training steps of each image size happen."""
    count = max(1, len(arm.sizes))
    return [(number + 0.5) / count for number in range(count)]


def timed_ms(arm: Arm, data: ImageData) -> Callable[[], float]:
    """A function that times some steps of a training of ``arm``: milliseconds of one, by the processor's clock."""
    teacher = prepared(build(arm.teacher, data, 0), arm).eval() if arm.teacher else None
    training = Training(arm, data, 0, build(arm.network, data, 0), teacher)
    for part in parts_of_steps(arm):
        training.step(0, part)
        training.step(1, part)

    def call() -> float:
        total = 0.0
        for part in parts_of_steps(arm):
            begin = time.process_time()
            for index in range(TIMED_STEPS):
                training.step(index, part)
            total += time.process_time() - begin
        return 1000 * total / TIMED_STEPS / len(parts_of_steps(arm))

    return call


def relative_step(arm: Arm, data: ImageData) -> tuple[float, float]:
    """How long a step of ``arm`` takes as a multiple of the base's, timed in turn, and the base's in ms."""
    one, base = timed_ms(arm, data), timed_ms(BASE, data)
    pairs = [(one(), base()) for _ in range(ROUNDS)]
    mine, other = (min(times) for times in zip(*pairs, strict=True))
    return mine / other, other


class StepTimes:
    """Of arms on one data set, each timed once and kept in a file."""

    def __init__(self, data: ImageData, path: Path) -> None:
        self.data, self.path = data, path
        self.known: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}

    def of(self, arm: Arm) -> float:
        """Milliseconds of a step as if the machine were as it was when the base was timed."""
        base = self._kept("base", lambda: relative_step(BASE, self.data)[1])
        key = json.dumps([getattr(arm, name) for name in COSTS])
        return base * self._kept(key, lambda: relative_step(arm, self.data)[0])

    def _kept(self, key: str, timed: Callable[[], float]) -> float:
        if key not in self.known:
            self.known[key] = timed()
            self.path.write_text(json.dumps(self.known, indent=1))
        return self.known[key]


def train_arm(
    arm: Arm, data: ImageData, seed: int, seconds: float, times: StepTimes
) -> tuple[nn.Module, dict[str, Any]]:
    """The network of ``arm`` after ``seconds``, and what was done."""
    teacher: nn.Module | None = None
    network = build(arm.network, data, seed)
    if arm.before or arm.teacher:
        other = replace(arm, network=arm.before or arm.teacher, before="", teacher="", cut=False, tuned=1.0)
        other = replace(other, distilled=BASE.distilled, temperature=BASE.temperature)
        if arm.before:
            other = replace(other, schedule="steady", fall=1e-9)
        key = (other, id(data), seed, arm.share * seconds)
        if key not in FIRST:  # several arms may have learnt from the same one
            FIRST[key] = train_arm(other, data, seed, arm.share * seconds, times)[0]
        trained = copy.deepcopy(FIRST[key])
        seconds *= 1 - arm.share
        if arm.before:
            network = grown(cast(CompactNetwork, trained), arm, data, seed)
        else:
            teacher = trained.eval()
        if arm.cut:
            network, arm = cut_out(cast(CompactNetwork, trained), arm, data), replace(arm, lr=arm.tuned * arm.lr)
    step_ms = times.of(arm)
    steps = max(1, round(1000 * seconds / step_ms))
    training = Training(arm, data, seed, network, teacher)
    begin = time.process_time()
    training.run(steps)
    passes = steps * training.batches.batch_size / len(training.batches.indices)
    record = {"steps": steps, "step_ms": step_ms, "passes": passes}
    return training.network, {**record, "cpu_seconds": time.process_time() - begin}


def cut_out(larger: CompactNetwork, arm: Arm, data: ImageData) -> CompactNetwork:
    """A network of the arm's shape with the strongest channels of ``larger``, its teacher."""
    old, new = architecture(arm.teacher), architecture(arm.network)
    return shrink(larger, old, new, space(new, data))


def grown(smaller: CompactNetwork, arm: Arm, data: ImageData, seed: int) -> CompactNetwork:
    """A network of the arm's shape that computes what ``smaller`` does."""
    old, new = architecture(arm.before), architecture(arm.network)
    images, _ = Batches(data, "train", 64, seed=seed).get(0, 0)
    return grow(smaller, old, new, space(new, data), seed, images)


# --- rows -------------------------------------------------------------------------------------------------------------


def rows(kept: Path) -> Iterator[dict[str, Any]]:
    """All finished rows; a line that was cut off by a kill is left out."""
    path = kept / "rows.jsonl"
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            continue


def step_times(data_name: str, kept: Path) -> StepTimes:
    """Of a data set, as far as they are known."""
    return StepTimes(load_data(DATA[data_name]), kept / f"steps-{data_name}.json")


def row(data_name: str, name: str, arm: Arm, seed: int, seconds: float, kept: Path) -> dict[str, Any]:
    """Train and test one network."""
    data = load_data(DATA[data_name])
    network, done = train_arm(arm, data, seed, seconds, step_times(data_name, kept))
    measured = {
        part: evaluate(network, Batches(data, part, 250, shuffle=False, drop_last=False))
        for part in ("validation", "test")
    }
    shape = (data.image_channels, data.image_size, data.image_size)
    latency = measure(copy.deepcopy(network), shape, Timing(repeats=200))
    return {
        "data": data_name,
        "arm": name,
        "seconds": seconds,
        "seed": seed,
        **{part: one.percent for part, one in measured.items()},
        "validation_loss": measured["validation"].loss,
        "latency_ms": latency.median_ms,
        "least_latency_ms": latency.low_ms,
        "params": sum(one.numel() for one in network.parameters()),
        "network": arm.network,
        **done,
    }


def sentence(one: dict[str, Any]) -> str:
    """A row for people."""
    return (
        f"{one['data']} {one['seconds']:g} s {one['arm']} seed {one['seed']}: validation {one['validation']:.2f}, "
        f"test {one['test']:.2f} %; {one['passes']:.1f} passes, steps of {one['step_ms']:.2f} ms, "
        f"{one['cpu_seconds']:.0f} s, latency {one['latency_ms']:.3f} ms"
    )


def summary(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means over the seeds with their standard errors, in the order of the rows."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in found:
        groups.setdefault((one["data"], one["seconds"], one["arm"]), []).append(one)
    results = []
    for (data, seconds, arm), own in groups.items():
        values = {key: [one[key] for one in own] for key in ("validation", "test", "passes", "latency_ms")}
        error = stdev(values["test"]) / math.sqrt(len(own)) if len(own) > 1 else None
        means = {key: fmean(numbers) for key, numbers in values.items()}
        results.append({"data": data, "seconds": seconds, "arm": arm, "seeds": len(own), **means, "error": error})
    return results


def parsed(word: str) -> Arm:
    """The arm of a word: ``base`` or ``quick``, and after semicolons what is changed."""
    first, *changed = word.split(";")
    if first not in STARTS:
        raise InputError(f"an arm that begins with {' or '.join(STARTS)}", repr(word), "Write quick;lr=0.3;batch=128.")
    changes: dict[str, Any] = {}
    for change in changed:
        key, _, value = change.partition("=")
        if key not in Arm.__dataclass_fields__:
            raise unknown_name("setting of an arm", key, Arm.__dataclass_fields__)
        kind = type(getattr(BASE, key))
        if kind is tuple:
            changes[key] = tuple(int(number) for number in value.split("-"))
        else:
            changes[key] = value == "True" if kind is bool else kind(value)
    if "before" in changes and "teacher" in changes:
        raise InputError("a network that this one grows from (before) or learns from (teacher)", repr(word))
    idle = {"cut", "distilled", "temperature"} & set(changes) if "teacher" not in changes else set()
    idle |= {"tuned"} & set(changes) if not changes.get("cut") else set()
    idle |= {"share"} & set(changes) if not {"before", "teacher"} & set(changes) else set()
    if idle:
        raise InputError(
            "settings that do something (teacher= for cut, distilled, temperature)", ", ".join(sorted(idle))
        )
    return replace(STARTS[first], **changes)


def trained(
    data_name: str, wanted: Mapping[str, Arm], seconds: float, seeds: int, kept: Path
) -> Iterator[dict[str, Any]]:
    """A row for every arm and seed; those that are not kept yet are trained and kept."""
    done = {(one["data"], one["arm"], one["seconds"], one["seed"]): one for one in rows(kept)}
    for seed, (name, arm) in itertools.product(range(seeds), wanted.items()):
        key = (data_name, name, seconds, seed)
        if key not in done:
            done[key] = row(data_name, name, arm, seed, seconds, kept)
            with (kept / "rows.jsonl").open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
        print(sentence(done[key]), file=sys.stderr, flush=True)
        yield done[key]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=DATA, default="fashion")
    parser.add_argument("--seconds", type=float, default=60.0, help="of training, in the processor's time")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--only", nargs="*", help="arms such as 'quick;lr=0.3', by default those of ARMS")
    parser.add_argument("--kept", type=Path, required=True, help="folder of finished rows")
    parser.add_argument("--times", action="store_true", help="train nothing: print how long a step of each arm takes")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line of stdout")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.kept.mkdir(parents=True, exist_ok=True)
    wanted = {name: parsed(name) for name in options.only or ARMS}
    if options.times:
        times = step_times(options.data, options.kept)
        found = [{"data": options.data, "arm": name, "step_ms": times.of(arm)} for name, arm in wanted.items()]
        results = found
        for one in found:
            print(f"{one['data']} {one['arm']}: {one['step_ms']:.2f} ms", file=sys.stderr)
    else:
        found = list(trained(options.data, wanted, options.seconds, options.seeds, options.kept))
        results = summary(found)
    if options.json:
        print(json.dumps({"benchmark": "training_arms", "results": results, "rows": found}))


if __name__ == "__main__":
    main()
