"""RARTS' tables 5 and 6, the width search, at a scale that one core can do.

Every arm is an ordinary run in a folder of its own: a killed reproduction continues where it stopped, and more seeds
only add runs. One search serves both shares of removed channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.runs.files import atomic_file
from archwright.search.answer import Answer

DEFAULT_SEEDS = 3
RATIOS = (0.4, 0.6)
ARMS = {
    "random": "random",
    "Network Slimming": "slimming",
    "DARTS-1": "darts-1",
    "DARTS-2": "darts-2",
    "RARTS": "rarts",
}
"""Labels and what trains the scores."""
IMAGES = 5000
"""Of the train part, a fifth of them for validation."""
SETTINGS: dict[str, Any] = {"image_size": 16, "threads": 1, "timing": False}


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
    papers_setting="The paper: MobileNetV2 on 20 classes of ImageNet, the share learned by l1; ours are fixed shares.",
)


@needs()
def rarts_5(settings: Settings) -> Outcome:
    """Test errors of ResNet-20 with 40 and 60 % of its channels removed."""
    return _table(TABLE_5, settings)


@needs()
def rarts_6(settings: Settings) -> Outcome:
    """Test errors of MobileNetV2 with 40 and 60 % of its channels removed."""
    return _table(TABLE_6, settings)


def _table(table: Table, settings: Settings) -> Outcome:
    data, seeds = _images(settings), range(settings.seeds or DEFAULT_SEEDS)
    found: dict[str, list[Answer]] = {}
    unpruned = []
    for seed in seeds:
        for label, optimiser in ARMS.items():
            for answer, ratio in zip(_arm(table, settings, data, optimiser, seed), RATIOS, strict=True):
                found.setdefault(f"{label} {100 * ratio:.0f} %", []).append(answer)
                unpruned += [100 - one.accuracy for one in answer.beside.values()]
                settings.progress.say(f"{label} {ratio:.0%} seed {seed}: {_error(answer):.2f} % error")
    rows = [Row.of("unpruned", "% error", table.paper.get("unpruned"), unpruned)]
    for label in (f"{arm} {100 * ratio:.0f} %" for ratio in RATIOS for arm in ARMS):
        rows += [Row.of(label, "% error", table.paper.get(label), [_error(one) for one in found[label]])]
    for label, answers in found.items():
        left = [100 * one.details["after"]["macs"] / one.details["before"]["macs"] for one in answers]
        rows.append(Row.of(f"{label}: MACs left", "%", None, left))
    rows += _latency_rows(table, settings, data)
    rows += [Row(label, "% error", paper, None) for label, paper in table.only_paper.items()]
    notes = [
        settings.images_note(),
        f"{table.search_epochs} epochs of search, {table.final_epochs} of fine-tuning; unpruned: as many in all.",
        table.papers_setting,
        "Unpruned and random train on all images at once, as Network Slimming does; DARTS and RARTS on two halves.",
        "A step takes half of its batch from each half: all arms have as many steps and images.",
    ]
    scale = f"{table.what}, 16 px, {IMAGES} images of which a fifth for validation, {len(seeds)} seeds"
    return Outcome(scale, rows, notes)


def _arm(table: Table, settings: Settings, data: str, optimiser: str, seed: int) -> list[Answer]:
    """One search, and a removal and fine-tuning for each share; with random also the unpruned network."""
    given = table.settings(data, seed)
    answers: list[Answer] = []
    for ratio in reversed(RATIOS):
        folder = settings.folder / f"{optimiser}-{seed}-{100 * ratio:.0f}"
        source = {"search_from": answers[0].run} if answers else {}
        compare = optimiser == "random" and ratio == RATIOS[0]
        options: dict[str, Any] = {"optimiser": optimiser, "ratio": ratio, "compare": compare, **source}
        answers.append(finished(folder, "rarts-width", **given, **options))
    return answers[::-1]


def _latency_rows(table: Table, settings: Settings, data: str) -> list[Row]:
    """Milliseconds of one image, before and after, timed here on the first seed's networks of RARTS."""
    rows = []
    for ratio in RATIOS:
        source = settings.folder / f"rarts-0-{100 * max(RATIOS):.0f}"
        given = table.settings(data, 0)
        given |= {"timing": True, "compare": False, "final_epochs": 1, "ratio": ratio, "search_from": str(source)}
        folder = settings.folder / f"timed-{100 * ratio:.0f}"
        details = finished(folder, "rarts-width", **given).details
        before, after = details["before"]["latency_ms"], details["after"]["latency_ms"]
        rows.append(Row.of(f"RARTS {100 * ratio:.0f} %: latency left", "%", None, [100 * after / before]))
    return rows


def _error(answer: Answer) -> float:
    assert answer.best.accuracy is not None
    return 100 - answer.best.accuracy


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
