"""RARTS' table 5 taken apart: what its *weights* and what its *channels* are worth, from a network that has converged.

One ResNet-20 is trained to its end. From it RARTS (fused and as written) and Network Slimming train weights and scores;
Taylor and chance order its channels as it is. Then every set of weights loses the channels of every order, down to the
same multiply-accumulates, is tested as it is, fine-tuned by SGD with two learning rates, and tested again. Seeds are
paired: arms of a seed share their searches and the order of their images. Every fine-tuning is one work item, kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from archwright.data import Batches
from archwright.execution.base import Item, run_items
from archwright.methods.rarts_width import RartsWidth
from archwright.methods.width_subject import Scored
from archwright.reproduce.arms import mean_gain
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.searches import finished
from archwright.reproduce.thin_networks import RESNET_RECIPE, kept_precision, trained_resnet
from archwright.runs import disk
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.files import Json
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.search.jobs import measure
from archwright.training import train

SOURCES: Mapping[str, Mapping[str, Any]] = {
    "taylor": {"scores": "taylor"},
    "random": {"scores": "random"},
    "slimming": {"scores": "slimming"},
    "rarts": {"scores": "rarts"},
    "rarts-unfused": {"scores": "rarts", "fused": False},
}
"""Runs that weights and orders of channels come from."""
WEIGHTS = {"given": "taylor", "RARTS": "rarts", "RARTS unfused": "rarts-unfused"}
"""Sets of weights and the run that has them; one pass leaves those of the given network as they are."""
CHANNELS = {"RARTS": "rarts", "Network Slimming": "slimming", "Taylor": "taylor", "random": "random"}
"""Orders of the channels and the run that has them."""
KEEP_MACS = 0.6
RATES = (0.005, 0.05)
SEARCH_EPOCHS, TUNE_EPOCHS, SEEDS = 3, 3, 5
Found = dict[tuple[str, str, float], NDArray[np.float64]]
"""By weights, channels and learning rate: accuracies in percent before and after fine-tuning, (seeds, 2)."""


def source_of(settings: Settings, name: str, data: str, network: str, seed: int) -> Path:
    """The folder of one finished run of weights and scores; searched if it is not there yet.

    Args:
        settings: folder and progress.
        name: of the run.
        data: the images.
        network: file of the given network.
        seed: of the run.
    """
    own = dict(SOURCES[name])
    if own["scores"] not in ("taylor", "random"):
        own["search_epochs"] = SEARCH_EPOCHS
    own["amp"] = kept_precision(settings.folder) == "bfloat16"
    given = {"data": data, "network": network, "seed": seed, "threads": 1, "keep_macs": (KEEP_MACS,), "tune_steps": 1}
    folder = settings.folder / "searches" / f"{name}-{seed}-{kept_precision(settings.folder)}"
    finished(
        folder, "rarts-width", settings.progress, **given, **own, timing=False, beside=False, compare=False, onnx=False
    )
    return folder


def opened(folder: str) -> RartsWidth:
    """The method of a finished run."""
    method = reopened(Run.open(Path(folder)), Stop(), Progress())
    assert isinstance(method, RartsWidth)
    return method


def joined(weights: RartsWidth, channels: RartsWidth, keep_macs: float) -> nn.Module:
    """The network with the weights of one run and the best channels by another's scores.

    Args:
        weights: run of the weights, trained scores multiplied in.
        channels: run of the scores.
        keep_macs: share of the multiply-accumulates that stays.
    """
    removal = channels.removal(channels.result("search", Scored).worth, None)
    chosen = removal.best({"macs": keep_macs * channels.subject.whole_costs["macs"]})
    return weights.subject.space.removed(weights.subject.scored_network(), chosen.width)


def tuned_arm(payload: Json, stop: Stop) -> Json:
    """Work item: one set of weights without one choice of channels, tested, fine-tuned and tested again.

    Args:
        payload: folders of both runs, learning rate, precision, seed and folder of its checkpoints.
        stop: looked at between steps.
    """
    weights, channels = opened(payload["weights"]), opened(payload["channels"])
    network, data = joined(weights, channels, payload["keep_macs"]), weights.subject.data
    before = measure(network, data, "test", "cpu").percent
    # The rates of the text are of SGD.
    recipe = RESNET_RECIPE.changed(lr=payload["rate"], epochs=payload["epochs"], precision=payload["precision"])
    augment = weights.context.task.augmentation_of(data, cutout=0)
    batches = Batches(data, "train", recipe.batch_size, seed=payload["seed"], augment=augment)
    kept = Checkpoints(Path(payload["folder"]))
    train(network, batches, recipe, seed=payload["seed"], checkpoints=kept, stop=stop)
    kept.clear()
    return {"before": before, "after": measure(network, data, "test", "cpu").percent}


def measured_arms(settings: Settings, seeds: int) -> Found:
    """All arms of all seeds.

    Args:
        settings: folder, images, executor and progress.
        seeds: number of them.
    """
    data = settings.images().spec
    disk.make_folder(settings.folder)
    network = str(trained_resnet(settings.folder, data))
    items: dict[tuple[str, str, float, int], Item] = {}
    precision = kept_precision(settings.folder)
    for seed in range(seeds):
        folders = {name: str(source_of(settings, name, data, network, seed)) for name in SOURCES}
        for weights, channels, rate in product(WEIGHTS, CHANNELS, RATES):
            key = f"{weights} weights, {channels} channels, SGD at {rate:g} in {precision}, seed {seed}"
            payload = {"weights": folders[WEIGHTS[weights]], "channels": folders[CHANNELS[channels]], "seed": seed}
            payload |= {"rate": rate, "keep_macs": KEEP_MACS, "epochs": TUNE_EPOCHS}
            payload |= {"precision": precision}
            payload |= {"folder": str(settings.folder / "checkpoints" / key.replace(" ", "-").replace(",", ""))}
            items[weights, channels, rate, seed] = Item(key, payload)
    log, asked = ItemLog(settings.folder / "finished.jsonl"), list(items.values())
    with settings.progress.task("fine-tunings", len(asked), sum(one.key in log.done for one in asked)) as bar:
        done = run_items(settings.executor, tuned_arm, asked, log, Stop(), bar)

    def values(*arm: Any) -> NDArray[np.float64]:
        own = [done[items[(*arm, seed)].key] for seed in range(seeds)]
        return np.array([[one["before"], one["after"]] for one in own])

    return {arm: values(*arm) for arm in product(WEIGHTS, CHANNELS, RATES)}


def over_arms(
    found: Found, rate: float, place: int, weights: str | None = None, channels: str | None = None
) -> NDArray[np.float64]:
    """Mean accuracy of every seed over the arms with these weights and channels, (seeds,).

    Args:
        found: accuracies of all arms.
        rate: learning rate of the fine-tuning.
        place: 0 before it, 1 after it.
        weights: name of the weights; all by default.
        channels: name of the order of channels; all by default.
    """
    arms = product([weights] if weights else WEIGHTS, [channels] if channels else CHANNELS)
    mean: NDArray[np.float64] = np.stack([found[w, c, rate][:, place] for w, c in arms]).mean(axis=0)
    return mean


def parts(found: Found) -> list[str]:
    """What the weights and what the channels are worth, the other averaged over, paired by seed.

    Args:
        found: accuracies of all arms.
    """
    notes = []
    for how, rate, place in (("before fine-tuning", RATES[0], 0), *((f"tuned at {one:g}", one, 1) for one in RATES)):
        for name in [one for one in WEIGHTS if one != "given"]:
            gain = over_arms(found, rate, place, weights=name) - over_arms(found, rate, place, weights="given")
            notes.append(f"{how}: {name} weights {mean_gain(gain)} points beside the given ones, mean over channels")
        for name in [one for one in CHANNELS if one != "random"]:
            gain = over_arms(found, rate, place, channels=name) - over_arms(found, rate, place, channels="random")
            notes.append(f"{how}: {name} channels {mean_gain(gain)} points beside random ones, mean over weights")
    return notes


@needs()
def rarts_parts(settings: Settings) -> Outcome:
    """Test accuracy before and after fine-tuning of every set of weights without every choice of channels."""
    seeds = settings.seeds or SEEDS
    found = measured_arms(settings, seeds)
    rows = []
    for (weights, channels, rate), values in found.items():
        label = f"{weights} weights, {channels} channels"
        if rate == RATES[0]:
            rows.append(Row.of(f"{label}, before", "% on test", None, values[:, 0].tolist()))
        rows.append(Row.of(f"{label}, tuned at {rate:g}", "% on test", None, values[:, 1].tolist()))
    notes = [
        settings.images_note(),
        *parts(found),
        f"{SEARCH_EPOCHS} epochs of trained scores, {TUNE_EPOCHS} of fine-tuning; Taylor and random train no weights",
        f"trained in {kept_precision(settings.folder)}, which is the quicker here; tested in float32",
        "after ±: standard error over seeds, which share the given network",
    ]
    return Outcome(f"ResNet-20 after 60 epochs, {100 * KEEP_MACS:.0f} % of the MACs stay, {seeds} seeds", rows, notes)
