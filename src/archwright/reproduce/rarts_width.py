"""RARTS' tables 5 and 6, the width search, at a scale that one core can do.

Every arm is an ordinary run in a folder of its own: a killed reproduction continues where it stopped, and more seeds
only add runs. One search serves both shares.

The text counts a channel at every layer that reads it, 11,856 in ResNet-164, of which its 40 % are 30 % of the work; a
stream's channels can only go together, and counted so there are 4,480, of which 40 % are more than half of the work. So
all arms keep the same multiply-accumulates here, those of the text, and both counts are rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from archwright.methods.width_answer import UNPRUNED
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.runs.files import atomic_file
from archwright.search.answer import Answer, Candidate
from archwright.spaces.base import Scale
from archwright.spaces.width import WidthSpace

DEFAULT_SEEDS = 3
SHARES = {"40 %": 0.7, "60 %": 0.55}
"""The text's shares of channels that go, and the multiply-accumulates that stay: of the first it says 30 % go, of the
second nothing; 45 % is what Network Slimming reports of it."""
ARMS = {
    "random": "random",
    "Network Slimming": "slimming",
    "DARTS-1": "darts",
    "DARTS-2": "darts-2",
    "RARTS": "rarts",
}
"""Labels and scores."""
LEARNED = {"DARTS-1": "darts", "DARTS-2": "darts-2", "RARTS": "rarts"}
"""Those of table 6, whose share is learned."""
LEARNED_L1 = 3e-5
"""Pull of the scores of table 6."""
IMAGES = 5000
"""Of the train part, a fifth of them for validation."""
SETTINGS: dict[str, Any] = {"image_size": 16, "threads": 1, "timing": False, "beside": False}


@dataclass(frozen=True)
class Table:
    """What is thinned and how long, and the paper's errors: of our rows, and of rows that are not measured here."""

    network: str
    channels: int | None
    what: str
    search_epochs: int
    final_epochs: int
    batch: int
    paper: dict[str, float]
    only_paper: dict[str, float]
    papers_setting: str

    def settings(self, data: str, seed: int) -> dict[str, Any]:
        """Settings of a run; the learning rate of the weights is the paper's at 64 images a step and falls with fewer.

        Args:
            data: name of the images.
            seed: of the run.
        """
        return {
            **SETTINGS,
            "network": self.network,
            "channels": self.channels,
            "data": data,
            "seed": seed,
            "search_epochs": self.search_epochs,
            "final_epochs": self.final_epochs,
            "search_batch": self.batch,
            "batch_size": self.batch,
            "w_lr": 0.1 * self.batch / 64,
        }


TABLE_5 = Table(
    "resnet20",
    8,
    "ResNet-20 of half width",
    search_epochs=8,
    final_epochs=6,
    batch=32,
    paper={
        "unpruned": 5.42,
        "Network Slimming 40 %": 5.08,
        "RARTS 40 %": 4.58,
        "Network Slimming 60 %": 5.27,
        "RARTS 60 %": 4.90,
    },
    only_paper={
        "CIFAR-10 TAS": 6.00,
        "CIFAR-100 unpruned": 23.37,
        "CIFAR-100 TAS": 22.24,
        "CIFAR-100 Network Slimming 40 %": 22.87,
        "CIFAR-100 RARTS 40 %": 22.64,
        "CIFAR-100 Network Slimming 60 %": 23.91,
        "CIFAR-100 RARTS 60 %": 23.26,
    },
    papers_setting="The paper: ResNet-164 on 50,000 images at 32 px, 160 epochs.",
)
TABLE_6 = Table(
    "mobilenetv2",
    8,
    "MobileNetV2 of width .25",
    search_epochs=6,
    final_epochs=4,
    batch=64,
    paper={},
    only_paper={
        "ImageNet-R unpruned": 12.3,
        "ImageNet-R random, 71.2 %": 12.0,
        "ImageNet-R DARTS-1, 69.0 %": 10.1,
        "ImageNet-R DARTS-2, 72.6 %": 9.8,
        "ImageNet-R RARTS, 71.2 %": 8.2,
    },
    papers_setting="The paper: MobileNetV2 on 20 classes of ImageNet, the share learned by l1, as here.",
)


@needs()
def rarts_5(settings: Settings) -> Outcome:
    """Test errors of ResNet-20 with the multiply-accumulates of 40 and 60 % of the text's channels removed."""
    table, data, seeds = TABLE_5, _images(settings), range(settings.seeds or DEFAULT_SEEDS)
    found: dict[str, list[Candidate]] = {}
    unpruned = []
    for seed in seeds:
        for label, scores in ARMS.items():
            options = {"scores": scores, "keep_macs": tuple(SHARES.values()), "compare": scores == "random"}
            answer = _arm(table, settings, data, seed, options)
            for share, model in zip(sorted(SHARES, reverse=True), answer.models, strict=True):
                found.setdefault(f"{label} {share}", []).append(model)
            unpruned += _unpruned(answer)
            settings.progress.say(f"{label} seed {seed}: {[_error(one) for one in answer.models]} % error")
    rows = [Row.of("unpruned", "% error", table.paper.get("unpruned"), unpruned)]
    labels = [f"{arm} {share}" for share in SHARES for arm in ARMS]
    rows += [Row.of(one, "% error", table.paper.get(one), list(map(_error, found[one]))) for one in labels]
    rows += [_channel_row(f"{label}: channels left", models) for label, models in found.items()]
    return _outcome(table, settings, [*rows, *counts_of_resnet_164()], len(seeds))


@needs()
def rarts_6(settings: Settings) -> Outcome:
    """Test errors of MobileNetV2 where l1 learns how many channels go; random channels go in RARTS' number."""
    table, data, seeds = TABLE_6, _images(settings), range(settings.seeds or DEFAULT_SEEDS)
    found: dict[str, list[Candidate]] = {}
    unpruned = []
    for seed in seeds:
        for label, scores in LEARNED.items():
            answer = _arm(table, settings, data, seed, {"scores": scores, "l1": LEARNED_L1, "compare": False})
            found.setdefault(label, []).append(answer.best)
            settings.progress.say(f"{label} seed {seed}: {_error(answer.best):.2f} % error")
        left = _channels(found["RARTS"][-1])
        options = {"scores": "random", "limits": {"channels": float(left)}, "compare": True}
        answer = _arm(table, settings, data, seed, options)
        found.setdefault("random", []).append(answer.best)
        unpruned += _unpruned(answer)
    rows = [Row.of("unpruned", "% error", None, unpruned)]
    rows += [Row.of(label, "% error", None, [_error(one) for one in models]) for label, models in found.items()]
    rows += [_channel_row(f"{label}: channels left", models) for label, models in found.items()]
    return _outcome(table, settings, rows, len(seeds))


def _outcome(table: Table, settings: Settings, rows: list[Row], seeds: int) -> Outcome:
    rows += [Row(label, "% error", paper, None) for label, paper in table.only_paper.items()]
    notes = [
        settings.images_note(),
        f"{table.search_epochs} epochs of search, {table.final_epochs} of fine-tuning; unpruned: as many in all.",
        table.papers_setting,
        "Unpruned and random train on all images at once, as Network Slimming does; DARTS and RARTS on two halves.",
        "A step takes half of its batch from each half: all arms have as many steps and images.",
    ]
    scale = f"{table.what}, 16 px, {IMAGES} images of which a fifth for validation, {seeds} seeds"
    return Outcome(scale, rows, notes)


def counts_of_resnet_164() -> list[Row]:
    """Channels of ResNet-164 that may go: a stream's once, and at every convolution that reads them."""
    space = WidthSpace("resnet164", Scale(16, 1))
    once = sum(group.channels for group in space.structure.groups)
    with torch.device("meta"):
        network = space.whole()
    read = sum(
        module.num_features
        for name, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d) and name != "last_norm"
    )
    return [
        Row("ResNet-164: channels, a stream's once", "channels", None, float(once)),
        Row("ResNet-164: channels, by the convolutions that read them", "channels", None, float(read)),
    ]


def _arm(table: Table, settings: Settings, data: str, seed: int, options: dict[str, Any]) -> Answer:
    """One search with its removals and fine-tunings.

    Args:
        table: what is thinned, and how long.
        settings: of the reproduction.
        data: name of the images.
        seed: of the run.
        options: of the arm.
    """
    return finished(
        settings.folder / f"{options['scores']}-{seed}", "rarts-width", **table.settings(data, seed), **options
    )


def _unpruned(answer: Answer) -> list[float]:
    """The error of the whole network, where it was fine-tuned beside."""
    return [100 - one.accuracy for name, one in answer.beside.items() if name == UNPRUNED]


def _channels(one: Candidate) -> int:
    return int((one.details or {})["channels"])


def _channel_row(label: str, models: Sequence[Candidate]) -> Row:
    return Row.of(label, "channels", None, [float(_channels(one)) for one in models])


def _error(one: Candidate) -> float:
    assert one.accuracy is not None
    return 100 - one.accuracy


def _images(settings: Settings) -> str:
    """A file with the first of the images, whose parts are named in it; what is no such file is taken as it is."""
    images = settings.images()
    if images.source.kind != "npz":
        return images.spec
    path = settings.folder / "images.npz"
    if not path.exists():
        with np.load(Path(images.source.argument)) as arrays:
            kept = {name: arrays[name][:IMAGES] if "train" in name else arrays[name] for name in arrays.files}
        with atomic_file(path) as file:
            np.savez(file, **kept)
    return f"npz:{path}"
