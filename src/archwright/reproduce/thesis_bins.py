"""Figures 6.3 and 7.4 of the thesis: test errors by bins of a training-free score.

Both say that neither the least nor the largest score is best: errors fall up to some score and rise beyond it. Here
that is three numbers a score: the mean error of the first bin, of the best one and of the last one, each bin with as
many architectures. Figure 7.4 adds what the condition number says among architectures of one bin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from archwright.reproduce.base import Outcome, Settings, needs
from archwright.reproduce.networks import cell_traces
from archwright.reproduce.thesis6 import SCALE_FIGURE_6_1, SPACES, in_words, sample_1shot1
from archwright.reproduce.thesis7 import METRICS, PROXY_SCALE, classes, space_scores, spearman
from archwright.reproduce.thesis7_studies import Collected
from archwright.runs.files import save_figure
from archwright.tables import nasbench101, nasbench201

Values = NDArray[np.float64]

BINS_6_3, SAMPLE_6_3 = 10, 400
"""Bins, and architectures of each space."""
BINS_7_4 = 20


@dataclass(frozen=True)
class Binned:
    """Errors of architectures in bins of rising score.

    Attributes:
        score: mean of each bin, (bins,).
        mean: error of each bin in percent, (bins,).
        deviation: of the errors within each bin, (bins,).
        least: error in each bin, (bins,).
        members: numbers of each bin's architectures.
    """

    score: Values
    mean: Values
    deviation: Values
    least: Values
    members: tuple[NDArray[np.int64], ...]


def binned(score: Values, error: Values, bins: int) -> Binned:
    """Bins of as many architectures each, to one; equal scores may be parted.

    Args:
        score: of every architecture, (n,).
        error: of every architecture in percent, (n,).
        bins: how many.
    """
    members = tuple(np.array_split(np.argsort(score, kind="stable"), bins))
    errors = [error[own] for own in members]
    return Binned(
        score=np.array([score[own].mean() for own in members]),
        mean=np.array([own.mean() for own in errors]),
        deviation=np.array([own.std() for own in errors]),
        least=np.array([own.min() for own in errors]),
        members=members,
    )


def add_ends(found: Collected, label: str, bins: Binned) -> None:
    """Rows of the best bin's place and of the first, the best and the last bin's error.

    Args:
        found: rows so far.
        label: of the score.
        bins: of it.
    """
    best = int(bins.mean.argmin())
    found.add(f"{label} best bin of {len(bins.mean)}", "number", None, best + 1)
    found.add(f"{label} first bin", "% test error", None, float(bins.mean[0]))
    found.add(f"{label} best bin", "% test error", None, float(bins.mean[best]))
    found.add(f"{label} last bin", "% test error", None, float(bins.mean[-1]))


@needs("nb101")
def figure_6_3(settings: Settings) -> Outcome:
    """Test error by bins of the mini-batch trace (eq. 6.7) in the three spaces of NAS-Bench-1Shot1."""
    draws, table, found, shown = settings.seeds or 3, nasbench101.load_compact(), Collected(), dict[str, Binned]()
    for name, space in SPACES.items():
        cells = sample_1shot1(space, SAMPLE_6_3)
        error = 100 - np.array([table.accuracy(cell, "cifar10", 108, "test") for cell in cells])
        for seed in range(draws):
            request = SCALE_FIGURE_6_1.request(settings, (), seed)
            trace = cell_traces(settings, cells, request, [str(request.batch_size)])[:, 0]
            bins = binned(trace, error, BINS_6_3)
            add_ends(found, f"{name} trace", bins)
            found.add(f"{name} trace with error", "Spearman", None, spearman(trace, error))
            shown.setdefault(f"{name}, trace", bins)
    notes = [
        settings.images_note(),
        f"{BINS_6_3} bins of {SAMPLE_6_3 // BINS_6_3} architectures each; the thesis shows curves, no numbers",
        "the thesis: errors fall to a minimum and rise beyond it, so the last bin is worse than the best one",
    ]
    scale = in_words(SCALE_FIGURE_6_1, SAMPLE_6_3, draws)
    return Outcome(scale, found.rows(), notes, plot=lambda path: plot_bins(shown, path))


@needs("nb201")
def figure_7_4(settings: Settings) -> Outcome:
    """Test error by bins of each metric on NAS-Bench-201, and kappa's correlation with it within the bins."""
    draws, table, found, shown = settings.seeds or 3, nasbench201.load_compact(), Collected(), dict[str, Binned]()
    _, member = classes()
    error = 100 - table.accuracies("cifar10", 200, "test")
    for seed in range(draws):
        scores = space_scores(settings, seed)
        kappa = scores["kappa"][member]
        for metric in METRICS:
            bins = binned(scores[metric][member], error, BINS_7_4)
            add_ends(found, metric, bins)
            within = np.array([spearman(kappa[own], error[own]) for own in bins.members if np.ptp(kappa[own])])
            found.add(f"{metric}: kappa with error within a bin", "Spearman", None, float(within.mean()))
            found.add(f"{metric}: bins where it is above 0", "share", None, float((within > 0).mean()))
            shown.setdefault(metric, bins)
    notes = [
        settings.images_note(),
        f"all 15,625 cells in {BINS_7_4} bins of as many each; the thesis shows curves, no numbers",
        "the thesis: each metric has a best value, below and above which errors rise, and a smaller kappa is better",
    ]
    scale = f"{PROXY_SCALE}; {draws} draws"
    return Outcome(scale, found.rows(), notes, plot=lambda path: plot_bins(shown, path))


def plot_bins(panels: Mapping[str, Binned], path: Path) -> None:
    """A panel a score: mean error of each bin, half a deviation around it, and the least error of all.

    Args:
        panels: bins by what they are of.
        path: of the image.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter

    figure = Figure(figsize=(3.2 * len(panels), 3.2), layout="constrained")
    for axis, (label, bins) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        axis.errorbar(bins.score, bins.mean, yerr=0.5 * bins.deviation, marker="o", markersize=3, capsize=2)
        axis.axhline(bins.least.min(), color="tab:red", linewidth=1)
        axis.set_xlabel(label)
        axis.set_xscale("log" if bins.score.min() > 0 else "linear")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_ylim(top=min(axis.get_ylim()[1], 3 * float(np.median(bins.mean))))
        axis.grid(alpha=0.3)
    figure.axes[0].set_ylabel("CIFAR-10 test error, %")
    save_figure(figure, path)
