"""BINAS' figure 3 on the supernet of ``binas-2``: how well predictors rank, by the validation epochs that they cost.

Networks that are ranked are those of the search (``rank_networks``), measured on all validation images with batch-norm
statistics of their own. What predictors are made from:

- *multi-path*: every image of an epoch through a sub-network of its own, all terms from one pool. Images that share a
  batch share no sub-network, so norms go by the supernet's averages;
- *single-path*: every batch through one sub-network, by the same averages;
- *single-path, own*: the pool of the search, a sub-network a batch, each with statistics of its own, outcomes corrected
  for how hard their images are. What is solved is made from this one;
- *whole networks*: an epoch each, to which predictors are fitted. They are networks of the same list: folds of it are
  predicted by a fit to (some of) the others.

Beside it figure 8 (the appendix' figure 11): Algorithm 2 on the same networks, by how many components it has.
Every epoch that is measured is a work item of the study and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from archwright.data import Batches
from archwright.methods.binas import Binas
from archwright.methods.binas.supernet import POOL_IMAGES, Supernet, SupernetWork
from archwright.predictors.comparison import compare_predictors
from archwright.predictors.hierarchical import attributes_of, fit_hierarchical
from archwright.predictors.staged import fit_quadratic, pool_estimates
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.binas import finished_search, plot_curves, search_scale
from archwright.runs import disk
from archwright.runs.progress import Progress
from archwright.runs.run import ItemLog, Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.solvers import StagedChoice
from archwright.supernets.elastic import deal
from archwright.supernets.measure import RUNNING, measure_subnetwork

Floats = NDArray[np.float64]
Paths = Literal["multi", "single"]
Curves = dict[str, dict[int, float]]
"""By predictor: Kendall's tau by the validation epochs that were spent."""
EPOCHS = (30, 60, 120, 240)
"""Validation epochs that are spent; of whole networks, how many there are to fit to."""
COMPONENTS = (1, 5, 20, 60, 120, 180, 240)
"""Ranks of the quadratic predictor."""
FOLDS = 5
HALF_AN_IMAGE = 50.0
"""No error at all on a batch counts as so many percent of an image."""


@dataclass(frozen=True)
class Measuring:
    """Outcomes of random sub-networks on the validation images of a finished search.

    Attributes:
        work: of the search.
        folder: of what is measured.
        progress: where a bar is shown.
    """

    work: SupernetWork
    folder: Path
    progress: Progress

    @cached_property
    def batches(self) -> Batches:
        """Passes over the validation images, each in its own order; as many images a batch as in the search's pool."""
        context = self.work.context
        size, seed = min(POOL_IMAGES, len(context.task.data.validation)), context.configuration.seed
        return Batches(context.task.data, "validation", size, seed=seed, device=context.device.name)

    def rows(self, paths: Paths, epochs: int) -> tuple[StagedChoice, Floats]:
        """Sub-networks and what they had right in percent: a row an image, or one a batch of a single sub-network.

        Args:
            paths: whether images of a batch have one sub-network or each its own.
            epochs: passes over the validation images.
        """
        log, choices, outcomes = ItemLog(self.folder / f"{paths}-path.jsonl"), list[StagedChoice](), list[Floats]()
        with self.progress.task(f"{paths}-path epochs", epochs, min(epochs, len(log.done))) as bar:
            for epoch in range(epochs):
                dealt = [self._dealt(paths, epoch, number) for number in range(len(self.batches))]
                if str(epoch) not in log.done:
                    log.record(str(epoch), self._measured(dealt, epoch))
                    bar.advance()
                right = 100.0 * np.array([int(one) for one in log.done[str(epoch)]])
                choices += dealt
                outcomes.append(right if paths == "multi" else right.reshape(len(dealt), -1).mean(1))
        depths = np.concatenate([np.atleast_2d(one.depths) for one in choices])
        configurations = np.concatenate([one.configurations.reshape(-1, *self.shape) for one in choices])
        return StagedChoice(depths, configurations), np.concatenate(outcomes)

    @property
    def shape(self) -> tuple[int, int]:
        """Stages, and blocks of each."""
        return self.work.space.stages, self.work.space.most_blocks

    def _dealt(self, paths: Paths, epoch: int, number: int) -> StagedChoice:
        """The sub-networks of a batch: one for every image, or one."""
        rng, scale = self.work.context.rng(f"{paths}-path", epoch, number), self.work.space.scale
        return deal(self.batches.batch_size, rng, scale) if paths == "multi" else deal(1, rng, scale)[0]

    def _measured(self, dealt: Sequence[StagedChoice], epoch: int) -> str:
        """A digit an image: 1 where its sub-network was right."""
        right = []
        for number, choice in enumerate(dealt):
            self.work.context.stop.check()
            images = [self.batches.get(epoch, number)]
            right += measure_subnetwork(self.work.trained, choice, images, RUNNING).correct.astype(int).tolist()
        return "".join(map(str, right))


@needs()
def binas_fig3_supernet(settings: Settings) -> Outcome:
    """Kendall's tau of every predictor on the supernet of ``binas-2``, by validation epochs spent."""
    answer = finished_search(settings)
    method = reopened(Run.open(answer.folder), Stop(), Progress())
    assert isinstance(method, Binas)
    assert isinstance(method.strategy, Supernet)
    work = method.strategy.work
    disk.make_folder(settings.folder)
    measuring = Measuring(work, settings.folder, settings.progress)
    networks, halves = work.ranked
    curves = {**estimated(measuring, networks, halves.mean(1)), **fitted(work, networks, halves.mean(1))}
    rows = [
        Row(f"{name}, {epochs} epochs", "Kendall tau", None, tau)
        for name, curve in curves.items()
        for epochs, tau in curve.items()
    ]
    rows += by_components(networks, halves.mean(1), len(work.space.configurations))
    agreement = _tau(halves[:, 0], halves[:, 1])
    rows.append(Row("two halves of the images", "Kendall tau", None, agreement))
    notes = [
        f"{len(networks)} networks ranked, each on all {len(work.context.task.data.validation):,} validation images",
        "the paper prints curves, no numbers: from 256 epochs on its estimator is as good as fits to whole networks",
        "single- and multi-path by the supernet's averages of batch norm; 'own' means statistics of each sub-network",
        "fits to whole networks: four fifths of the networks, or as many of them as there are epochs, predict the rest",
        "components: of Algorithm 2, fitted to four fifths of the networks (figure 8, where 1,500 of 3,000 are best)",
    ]
    return Outcome(search_scale(settings, answer), rows, notes, lambda path: plot_curves(curves, path))


def estimated(measuring: Measuring, networks: StagedChoice, accuracy: Floats) -> Curves:
    """Estimates from pools of rows.

    Args:
        measuring: measures single and multiple paths.
        networks: n, that are ranked.
        accuracy: of them, (n,), in percent.
    """
    work, curves = measuring.work, Curves()
    configurations = work.space.configurations
    pools = {f"{paths}-path": measuring.rows(paths, EPOCHS[-1]) for paths in ("multi", "single")}
    pools["single-path, own"] = work.pool
    for name, (choices, outcomes) in pools.items():
        batch = measuring.batches.batch_size if name == "multi-path" else 1
        counts = {epochs: epochs * len(measuring.batches) * batch for epochs in EPOCHS}
        counts = {epochs: count for epochs, count in counts.items() if count <= len(choices)}
        for how, centred in (("eq. 3", False), ("centred", True)):
            curves[f"{name}, {how}"] = {
                epochs: _tau(
                    pool_estimates(choices[:count], outcomes[:count], centred, len(configurations)).predict(networks),
                    accuracy,
                )
                for epochs, count in counts.items()
            }
        if name == "single-path, own":
            finite = np.clip(outcomes, 0.0, 100.0 - HALF_AN_IMAGE / measuring.batches.batch_size)
            attributes = attributes_of(configurations)
            curves[f"{name}, hierarchical (what is solved)"] = {
                epochs: _tau(fit_hierarchical(choices[:count], finite[:count], attributes).predict(networks), accuracy)
                for epochs, count in counts.items()
            }
    return curves


def fitted(work: SupernetWork, networks: StagedChoice, accuracy: Floats) -> Curves:
    """Fits to some of the networks, each of which cost an epoch, that predict others of them.

    Args:
        work: of the search.
        networks: n, that are ranked.
        accuracy: of them, (n,), in percent.
    """
    curves, configurations = Curves(), work.space.configurations
    for epochs in EPOCHS:
        if epochs <= len(networks) * 4 // 5:
            found = compare_predictors(
                networks, accuracy, len(configurations), attributes=attributes_of(configurations), most=epochs
            )
            for name, measures in found.items():
                curves.setdefault(f"whole networks, {name}", {})[epochs] = measures["kendall"]
    return curves


def by_components(networks: StagedChoice, accuracy: Floats, configurations: int) -> list[Row]:
    """The quadratic predictor by its rank: how it ranks networks that its fit has not seen, and squared errors.

    Args:
        networks: n of them.
        accuracy: of them, (n,), in percent.
        configurations: that a block may have.
    """
    x, rows = networks.one_hot(configurations), list[Row]()
    fold = np.random.default_rng(0).permutation(len(x)) % FOLDS
    for rank in (one for one in COMPONENTS if one < (fold != 0).sum()):
        unseen, errors = np.empty(len(x)), list[float]()
        for part in range(FOLDS):
            fit = fit_quadratic(x[fold != part], accuracy[fold != part], rank)
            unseen[fold == part] = fit.predict(x[fold == part])
            errors.append(float(((fit.predict(x) - accuracy)[fold != part] ** 2).mean()))
        label, squares = f"{rank} components", (unseen - accuracy) ** 2
        rows.append(Row(label, "Kendall tau", None, _tau(unseen, accuracy)))
        rows.append(Row(f"{label}: squared error, unseen networks", "points^2", None, float(squares.mean())))
        rows.append(Row(f"{label}: squared error, its own networks", "points^2", None, float(np.mean(errors))))
    return rows


def _tau(predicted: Floats, accuracy: Floats) -> float:
    """Kendall's tau; 0 where all are the same."""
    return float(kendalltau(predicted, accuracy).statistic) if np.ptp(predicted) and np.ptp(accuracy) else 0.0
