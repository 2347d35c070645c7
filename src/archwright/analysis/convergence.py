"""How fast a cell's network trains, and what the loss looks like where it ends (thesis, section 4.3).

A study is one work item: a network of the cell is trained without regularisation, its loss and accuracy on the test
part are taken after every epoch, and around the end weights the landscape, the gradient's variance and the sharpness
are measured. Payloads are JSON, so that studies run here, in processes or on other machines, and are kept one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from archwright.analysis.landscape import grid_steps, loss_landscape, random_directions, variance_landscape
from archwright.analysis.named import build_network, parse_architecture
from archwright.analysis.sharpness import largest_curvature
from archwright.data import Augmentation, Batches, ImageData
from archwright.data.request import DataRequest, load_data
from archwright.errors import DivergedError
from archwright.runs.files import Json, save_figure
from archwright.runs.stop import Stop
from archwright.spaces.base import Scale
from archwright.training import Recipe, evaluate, train

DIVERGED_LOSS = 10.0
"""Stands for the test loss of a training that diverged, in its remaining epochs."""


@dataclass(frozen=True)
class CellStudy:
    """One training of one cell and what is measured at its end.

    Attributes:
        cells: the architecture's text: a pair of DARTS-style cells, or a NAS-Bench-201 cell.
        lr: its learning rate; momentum .9, a cosine to 0, weight decay 3e-4 and batch 80 as in appendix A.1.3.
        images: of the train and the test part each that are used.
        grid: points a side of the landscape; 0 measures no landscape.
        landscape_images: test images behind a point of the landscape.
        variance_grid: points a side of the gradient's variance; 0 measures none.
        variance_images: images behind a variance.
    """

    data: DataRequest
    cells: str
    scale: dict[str, Any]
    lr: float
    epochs: int
    seed: int
    images: int = 2000
    grid: int = 0
    span: float = 1.0
    landscape_images: int = 500
    variance_grid: int = 0
    variance_images: int = 128

    def to_json(self) -> Json:
        """The payload of a work item."""
        return asdict(self)

    @classmethod
    def from_json(cls, payload: Json) -> CellStudy:
        """A study as :meth:`to_json` wrote it."""
        return cls(**{**payload, "data": DataRequest(**payload["data"])})

    @property
    def recipe(self) -> Recipe:
        """No regularisation but the weight decay (appendix A.1.4)."""
        return Recipe(epochs=self.epochs, batch_size=80, lr=self.lr, weight_decay=3e-4)


def study_cell(payload: Json, stop: Stop) -> Json:
    """Work item: curves of the test loss and accuracy, and the surroundings of the end weights.

    Args:
        payload: a :class:`CellStudy` as JSON.
        stop: asked between two steps of the training.
    """
    study = CellStudy.from_json(payload)
    data = load_data(study.data)
    network, curves = _trained(study, data, stop)
    found: dict[str, Json] = {**curves, "area": float(np.mean(curves["loss"]))}
    if study.grid or study.variance_grid:
        found |= _surroundings(study, network, data)
    return found


def _trained(study: CellStudy, data: ImageData, stop: Stop) -> tuple[nn.Module, dict[str, list[float]]]:
    """The network after training, and the test loss and accuracy (percent) after every epoch.

    A training that diverges is a result here: its further epochs count as :data:`DIVERGED_LOSS` and chance.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(study.seed)
        network = build_network(parse_architecture(study.cells), Scale(**study.scale))
    chosen = np.arange(min(study.images, len(data.train)))
    batches = Batches(
        data, "train", study.recipe.batch_size, seed=study.seed, indices=chosen, augment=Augmentation.default_for(data)
    )
    test = list(_test_batches(study, data))
    losses: list[float] = []
    accuracies: list[float] = []

    def on_epoch(_epoch: int, _metrics: dict[str, float]) -> None:
        accuracy = evaluate(network, test)
        losses.append(min(accuracy.loss, DIVERGED_LOSS))
        accuracies.append(accuracy.percent)

    try:
        train(network, batches, study.recipe, seed=study.seed, stop=stop, on_epoch=on_epoch)
    except DivergedError:
        missing = study.epochs - len(losses)
        losses += missing * [DIVERGED_LOSS]
        accuracies += missing * [100 / data.classes]
    return network, {"loss": losses, "accuracy": accuracies}


def _test_batches(study: CellStudy, data: ImageData) -> Batches:
    chosen = np.arange(min(study.images, len(data.test)))
    return Batches(data, "test", 250, shuffle=False, drop_last=False, indices=chosen)


def _surroundings(study: CellStudy, network: nn.Module, data: ImageData) -> dict[str, Json]:
    """Landscape, gradient variance and largest curvature on the test images; null where the weights diverged."""
    parts = list(_test_batches(study, data))
    images, labels = torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])
    if not all(bool(weight.isfinite().all()) for weight in network.parameters()):
        return {"share_under_double": None, "variance_here": None, "median_variance": None, "sharpness": None}
    directions = random_directions(network, study.seed)
    found: dict[str, Json] = {}
    if study.grid:
        landscape = loss_landscape(
            network,
            images[: study.landscape_images],
            labels[: study.landscape_images],
            directions,
            grid_steps(study.grid, study.span),
        )
        found["landscape"] = landscape.to_json()
        found["share_under_double"] = landscape.share_under(2 * landscape.centre)
    few_images, few_labels = images[: study.variance_images], labels[: study.variance_images]
    if study.variance_grid:
        steps = grid_steps(study.variance_grid, study.span)
        variance = variance_landscape(network, few_images, few_labels, directions, steps)
        found["variance"] = variance.to_json()
        found["variance_here"] = variance.centre
        found["median_variance"] = float(np.median(variance.values))  # far from w it grows without bound
    curvature = largest_curvature(network, few_images, few_labels, seed=study.seed)
    found["sharpness"] = curvature if np.isfinite(curvature) else None
    return found


def plot_curves(curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], path: Path) -> None:
    """Test loss and accuracy by epoch, one line a cell: the mean over its runs, with their range.

    Args:
        curves: by label, ``{"loss": runs x epochs, "accuracy": runs x epochs}``.
        path: of the image.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for label, runs in curves.items():
        for axis, name in zip(axes, ("loss", "accuracy"), strict=True):
            values = np.array(runs[name])
            epochs = np.arange(1, values.shape[1] + 1)
            (line,) = axis.plot(epochs, values.mean(0), label=label)
            axis.fill_between(epochs, values.min(0), values.max(0), alpha=0.15, color=line.get_color())
    for axis, name in zip(axes, ("test loss", "test accuracy (%)"), strict=True):
        axis.set_xlabel("epoch")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=7)
    save_figure(figure, path)
    plt.close(figure)
