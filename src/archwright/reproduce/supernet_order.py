"""Does a supernet order single cells as training them does? Table 5.6 with n = 1, on cells whose accuracies are known.

Every item trains one supernet of chapter 5's scale for so many steps, by one path a step, and measures the same cells
of NAS-Bench-201 with its weights; the true order is the table's (200 epochs, CIFAR-10 test). Arms are the steps, how
paths are drawn (``uniform``, or ``fair``: every operation of an edge once in as many steps as there are operations) and
what batch norms go by. Cross entropy and right or wrong are kept for the two halves of the images, whose agreement says
how much of an estimate is noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from archwright.data import Batches, ImageData
from archwright.data.augmentation import find_augmentation
from archwright.data.request import DataRequest, load_data
from archwright.data.shards import Shard
from archwright.errors import unknown_name
from archwright.execution.base import Item, run_items
from archwright.methods.nesbs_ensembles import distinct
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.thesis7 import spearman
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.files import Json
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import NASBENCH201, Cell201
from archwright.supernets.base import Supernet
from archwright.supernets.measure import BATCH, Norms, measure_subnetwork, recalibrated
from archwright.supernets.posterior import Sampler
from archwright.supernets.train import SharedTraining, new_supernet
from archwright.tables.nasbench201 import load_compact
from archwright.training import Position, drive
from archwright.training.schedule import make_schedule

Floats = NDArray[np.float64]

CHANNELS, CELLS, IMAGE_SIZE, BATCH_SIZE, RATE, WEIGHT_DECAY = 8, 1, 16, 128, 0.1, 3e-4
EPOCHS = (5, 21, 81)
"""Passes over the training images: 310, 1,302 and 5,022 steps on 8,000 of them."""
JUDGED = 200
"""Cells that are measured, drawn uniformly from those without ``none``."""
RECALIBRATED = 512
"""Training images that give each cell its own statistics."""
SAMPLINGS = ("uniform", "fair")
NORMS = ("batch", "recalibrated")
SEEDS = 3
RESAMPLES = 1000
FREE = ("skip_connect", "avg_pool_3x3")
"""Operations without weights."""
PAPER = {"cross entropy": 0.65}
"""The thesis' Spearman of n = 1."""


@dataclass(frozen=True)
class Measured:
    """Cross entropy and accuracy (percent) of the cells on each half of the images, (2, cells) each."""

    losses: Floats
    accuracies: Floats

    @classmethod
    def of(cls, found: Json) -> Measured:
        """From what an item returned of one norm policy."""
        return cls(np.array(found["losses"]), np.array(found["accuracies"]))


def judged_cells(count: int) -> list[Cell201]:
    """``count`` different cells without ``none``, the same ones every time."""
    rng, uniform = np.random.default_rng(0), Sampler(NASBENCH201)
    found = distinct(NASBENCH201, (uniform.monte_carlo(rng) for _ in range(20 * count)), count)
    return [one for one in found if isinstance(one, Cell201)]


def drawn_path(sampling: str, seed: int, index: int) -> Cell201:
    """The path of a step, a function of its number.

    Args:
        sampling: ``uniform``, or ``fair``: a permutation of the operations on every edge, one of them a step.
        seed: of the training.
        index: of the step.
    """
    candidates = NASBENCH201.candidates("cell")
    if sampling == "uniform":
        cell = Sampler(NASBENCH201).monte_carlo(np.random.default_rng([seed, 0, index]))
        assert isinstance(cell, Cell201)
        return cell
    turn, place = divmod(index, len(candidates))
    rng = np.random.default_rng([seed, 1, turn])
    weights = np.zeros(NASBENCH201.decisions["cell"])
    for row in weights:
        row[rng.permutation(candidates)[place]] = 1.0
    return NASBENCH201.derive({"cell": weights})


def trained_supernet(data: ImageData, sampling: str, epochs: int, seed: int, folder: Path, stop: Stop) -> Supernet:
    """A supernet after so many passes over the training images; killed, it goes on.

    Args:
        data: images at the size of the study.
        sampling: of its paths.
        epochs: passes.
        seed: of weights, order and paths.
        folder: of its checkpoints.
        stop: looked at before every step.
    """
    scale = Scale(CHANNELS, CELLS, data.classes, data.image_size, data.image_channels)
    supernet = new_supernet(NASBENCH201, NASBENCH201.supernet_scale(scale), seed=seed, device="cpu")
    batches = Batches(
        data, "train", min(BATCH_SIZE, len(data.train)), seed=seed, augment=find_augmentation("default", data)
    )

    def path(position: Position, _images: int, _shard: Shard) -> dict[str, Tensor]:
        return supernet.one_hot(drawn_path(sampling, seed, position.index))

    sgd = torch.optim.SGD(supernet.parameters(), RATE, 0.9, weight_decay=WEIGHT_DECAY)
    training = SharedTraining(supernet, batches, path, sgd, make_schedule("cosine", RATE))
    kept = Checkpoints(folder)
    drive(
        training.step,
        training.state,
        epochs=epochs,
        steps_per_epoch=len(batches),
        seed=seed,
        checkpoints=kept,
        stop=stop,
    )
    return supernet.requires_grad_(False)


def measured_supernet(payload: Json, stop: Stop) -> Json:
    """Work item: train one supernet, and measure the cells by every norm policy.

    Args:
        payload: images, arm, seed, number of cells and folder.
        stop: looked at between steps.
    """
    data = load_data(DataRequest(payload["data"], 0, IMAGE_SIZE))
    folder = Path(payload["folder"])
    supernet = trained_supernet(data, payload["sampling"], payload["epochs"], payload["seed"], folder, stop)
    seen = Batches(data, "train", 256, seed=1)
    policies: dict[str, Norms] = {"batch": BATCH, "recalibrated": recalibrated(seen, RECALIBRATED)}
    found: dict[str, Json] = {
        "steps": payload["epochs"] * len(Batches(data, "train", min(BATCH_SIZE, len(data.train))))
    }
    test = list(Batches(data, "test", 250, drop_last=False))
    for name in NORMS:
        halves = []
        for cell in judged_cells(payload["cells"]):
            stop.check()
            outcome = measure_subnetwork(supernet, supernet.one_hot(cell), test, policies[name])
            halves.append([(outcome.losses[h::2].mean(), 100 * outcome.correct[h::2].mean()) for h in (0, 1)])
        losses, accuracies = np.array(halves).transpose(2, 1, 0)
        found[name] = {"losses": losses.round(6).tolist(), "accuracies": accuracies.tolist()}
    Checkpoints(folder).clear()
    return found


def ranks(values: Floats, truth: Floats) -> float:
    """Rank correlation of ``values`` (n,) with ``truth`` (n,); 0 where one of them is constant and orders nothing."""
    alike = len(np.unique(values)) < 2 or len(np.unique(truth)) < 2
    return 0.0 if alike else spearman(values, truth)


def reliability(halves: Floats) -> float:
    """Rank correlation of what two halves of the images say, (2, cells)."""
    return ranks(halves[0], halves[1])


def interval(values: Floats, truth: Floats) -> tuple[float, float]:
    """The middle 95 % of the rank correlation over resampled cells.

    Args:
        values: (supernets, cells); the mean correlation over supernets is resampled.
        truth: (cells,).
    """
    rng = np.random.default_rng(0)
    found = []
    for _ in range(RESAMPLES):
        some = rng.integers(len(truth), size=len(truth))
        found.append(np.mean([ranks(one[some], truth[some]) for one in values]))
    low, high = np.quantile(found, (0.025, 0.975))
    return float(low), float(high)


@needs("nb201")
def supernet_order(settings: Settings) -> Outcome:
    """Rank correlation of cells' cross entropy in a supernet with their accuracy in the table, arm by arm."""
    if settings.only is not None and settings.only not in SAMPLINGS:
        raise unknown_name("paths", settings.only, SAMPLINGS)
    samplings = SAMPLINGS if settings.only is None else (settings.only,)
    seeds, cells = settings.seeds or SEEDS, judged_cells(settings.architectures or JUDGED)
    items: dict[tuple[str, int, int], Item] = {}
    for sampling, epochs, seed in product(samplings, EPOCHS, range(seeds)):
        key = f"{sampling}, {epochs} epochs, {len(cells)} cells, seed {seed}"
        payload = {"data": settings.images().spec, "sampling": sampling, "epochs": epochs, "seed": seed}
        folder = settings.folder / "checkpoints" / f"{sampling}-{epochs}-{seed}"
        payload |= {"cells": len(cells), "folder": str(folder)}
        items[sampling, epochs, seed] = Item(key, payload, settings.images().needs)
    log, asked = ItemLog(settings.folder / "finished.jsonl"), list(items.values())
    with settings.progress.task("supernets", len(asked), sum(item.key in log.done for item in asked)) as bar:
        done = run_items(settings.executor, measured_supernet, asked, log, Stop(), bar)
    by_arm = {
        (sampling, epochs): [done[items[sampling, epochs, seed].key] for seed in range(seeds)]
        for sampling, epochs in product(samplings, EPOCHS)
    }
    rows, notes = order_rows(by_arm, cells)
    scale = (
        f"{CHANNELS} channels, {CELLS} cell a stage, {IMAGE_SIZE} px, batch {BATCH_SIZE}; {len(cells)} cells, "
        f"{seeds} supernets an arm"
    )
    notes += [
        settings.images_note(),
        "truth: the NAS-Bench-201 table, CIFAR-10 test after 200 epochs; deviations are between supernets",
        "the thesis has .65 for n = 1 (Spearman, estimated and true errors in the DARTS space)",
        "halves agree: rank correlation of two halves of the images; a low one is noise of the measurement",
    ]
    return Outcome(scale, rows, notes)


def order_rows(by_arm: Mapping[tuple[str, int], list[Json]], cells: list[Cell201]) -> tuple[list[Row], list[str]]:
    """Rows and intervals of all arms, and the parameter count beside.

    Args:
        by_arm: what the items of each sampling and number of epochs returned, one a seed.
        cells: those that were measured.
    """
    table = load_compact()
    where = np.array([one.index for one in cells])
    truth = table.accuracies("cifar10", 200, "test")[where]
    free = np.array([sum(str(one).count(name) for name in FREE) for one in cells], dtype=float)
    sized = table.column("c10_params")[where].astype(float)
    rows, notes = [Row("parameters alone", "Spearman", None, ranks(sized, truth))], []
    for (sampling, _), found in by_arm.items():
        for norms in NORMS:
            label = f"{sampling} paths, {found[0]['steps']:,} steps, {norms} norms"
            several = [Measured.of(one[norms]) for one in found]
            values = -np.stack([one.losses.mean(0) for one in several])
            right = np.stack([one.accuracies.mean(0) for one in several])
            kinds = {
                "cross entropy": [ranks(one, truth) for one in values],
                "right or wrong": [ranks(one, truth) for one in right],
                "mean of all supernets": [ranks(values.mean(0), truth)],
                "with operations that have no weights": [ranks(one, free) for one in values],
                "halves agree, cross entropy": [reliability(one.losses) for one in several],
                "halves agree, right or wrong": [reliability(one.accuracies) for one in several],
            }
            rows += [Row.of(f"{label}: {kind}", "Spearman", PAPER.get(kind), over) for kind, over in kinds.items()]
            low, high = interval(values, truth)
            notes.append(f"{label}: 95 % of resampled cells {low:.2f} to {high:.2f}")
    return rows, notes
