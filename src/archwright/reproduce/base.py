"""The papers' tables beside ours: what a reproduction is given, what it returns, and how it is shown.

A reproduction is a function ``(settings) -> Outcome`` registered under its id. It declares what it reads, which is
looked for before it starts, and says at which scale it ran and where it differs from the paper; scores are cached, so
that a second run, or another table of the same scores, is quick.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from archwright.data.request import DataRequest, load_data
from archwright.errors import InputError
from archwright.execution.base import Executor, make_executor
from archwright.registry import Entry, Registry
from archwright.runs.files import Json, save_figure, write_json
from archwright.runs.progress import Progress
from archwright.runs.run import runs_root
from archwright.runs.stop import raise_on_signals
from archwright.tables.base import load_benchmark
from archwright.tables.locate import shared_data

_THESIS4 = "archwright.reproduce.thesis4"
_THESIS5 = "archwright.reproduce.thesis5"
_THESIS6, _THESIS7 = "archwright.reproduce.thesis6", "archwright.reproduce.thesis7"
_SHOT1, _DARTS6 = "archwright.reproduce.thesis6_shot1", "archwright.reproduce.thesis6_darts"
_STUDIES7 = "archwright.reproduce.thesis7_studies"

reproductions = Registry(
    "reproduction",
    Entry("binas-2", "archwright.reproduce.binas:binas_2", "rank correlations of the BINAS predictor and its parts"),
    Entry("binas-4", "archwright.reproduce.binas:binas_4", "sizes of the published HardCoRe and BINAS networks"),
    Entry(
        "binas-compare",
        "archwright.reproduce.binas_compare:binas_compare",
        "BINAS beside uniform, random, evolved and longer trained networks (--only digits, fashion, ...)",
    ),
    Entry("binas-fig3", "archwright.reproduce.binas:binas_fig3", "estimators against the validation epochs they spend"),
    Entry(
        "binas-fig3-supernet",
        "archwright.reproduce.binas_estimators:binas_fig3_supernet",
        "the same on the supernet of binas-2: single and multiple paths, fits to whole networks",
    ),
    Entry("binas-fig4", "archwright.reproduce.binas:binas_fig4", "solvers over limits and seeds"),
    Entry("binas-fig6", "archwright.reproduce.binas:binas_fig6", "what each design decision is worth"),
    Entry(
        "binas-limits",
        "archwright.reproduce.binas_limits:binas_limits",
        "a supernet beside one training a limit, for up to 30 limits (--only mbconv, compact)",
    ),
    Entry(
        "binas-pretrained",
        "archwright.reproduce.binas_pretrained:binas_pretrained",
        "BINAS from pretrained weights beside fixed resolutions, frozen features, scratch (--only photos, cifar)",
    ),
    Entry(
        "binas-rounds",
        "archwright.reproduce.binas_rounds:binas_rounds",
        "measuring in rounds beside one pool, evolution and chance (--only nb201-latency, nb201-params, nb101-params)",
    ),
    Entry(
        "binas-rounds-supernet",
        "archwright.reproduce.binas_rounds:binas_rounds_supernet",
        "the same on all shallow or deep, light or heavy sub-networks of the supernet of binas-2",
    ),
    Entry(
        "binas-precision",
        "archwright.reproduce.binas_precision:binas_precision",
        "BINAS with and without int8 beside whole networks in float and int8 (--only photos, cifar)",
    ),
    Entry("conas-1", "archwright.reproduce.conas:conas_1", "CoNAS in the DARTS space: free cell and two inputs a node"),
    Entry("conas-2", "archwright.reproduce.conas:conas_2", "CoNAS and RSPS on NAS-Bench-201, one supernet"),
    Entry(
        "conas-6", "archwright.reproduce.conas:conas_6", "how far CoNAS' solution moves with lambda, and its test error"
    ),
    Entry(
        "conas-a4",
        "archwright.reproduce.conas_order:conas_a4",
        "one-shot losses against real accuracies of 500 DARTS cells",
    ),
    Entry(
        "own-network",
        "archwright.reproduce.own_network:own_network",
        "exact limits in an own network beside evolution, random, the network as written (--only digits, cifar32)",
    ),
    Entry("proxies-201", "archwright.reproduce.proxies:proxies_201", "all training-free scores on NAS-Bench-201"),
    Entry("proxies-darts", "archwright.reproduce.proxies:proxies_darts", "all training-free scores on 500 DARTS cells"),
    Entry("rarts-fig1", "archwright.reproduce.rarts:rarts_fig1", "the solvable model: where each method ends"),
    Entry(
        "rarts-1",
        "archwright.reproduce.rarts_darts:rarts_1",
        "cells of DARTS, RARTS and chance in the DARTS space, trained",
    ),
    Entry("rarts-3", "archwright.reproduce.rarts_darts:rarts_3", "the same cells on Fashion-MNIST"),
    Entry(
        "rarts-2",
        "archwright.reproduce.rarts:rarts_2",
        "RARTS by the weight of latency, rate, decay and batch, beside random cells",
    ),
    Entry(
        "rarts-4",
        "archwright.reproduce.rarts:rarts_4",
        "differentiable searches where DARTS collapses",
    ),
    Entry(
        "rarts-4-large",
        "archwright.reproduce.rarts:rarts_4_large",
        "the same with many images",
    ),
    Entry(
        "rarts-collapse",
        "archwright.reproduce.rarts:rarts_collapse",
        "when DARTS collapses: skips by images",
    ),
    Entry(
        "rarts-5", "archwright.reproduce.rarts_width:rarts_5", "ResNet-20 with the work of 40 and 60 % fewer channels"
    ),
    Entry(
        "rarts-6", "archwright.reproduce.rarts_width:rarts_6", "MobileNetV2 with a learned share of its channels gone"
    ),
    Entry(
        "rarts-parts",
        "archwright.reproduce.rarts_parts:rarts_parts",
        "what RARTS' weights and what its channels are worth, from a network that has converged",
    ),
    Entry(
        "thin",
        "archwright.reproduce.thin:thin",
        "thinning networks that have learned: scores, uniform widths, a smaller size (--only photos4, photos6, cifar)",
    ),
    Entry("thesis-7.3", f"{_THESIS7}:table_7_3", "HNAS and baselines on NAS-Bench-201, test accuracy"),
    Entry(
        "thesis-7.5", f"{_THESIS7}:table_7_5", "training-free metrics against NAS-Bench-201 accuracies, four scenarios"
    ),
    Entry("thesis-7.13", f"{_THESIS7}:table_7_13", "HNAS with every metric on NAS-Bench-201"),
    Entry(
        "thesis-6.1",
        "archwright.reproduce.thesis6_search:table_6_1",
        "NASI and training-free baselines on NAS-Bench-201",
    ),
    Entry(
        "thesis-6.1-kappa",
        "archwright.reproduce.nasi_kappa:table_6_1_kappa",
        "what the condition number and connection-wise scores add to NASI, ImageNet16-120 in view",
    ),
    Entry("thesis-6.2", f"{_DARTS6}:table_6_2", "NASI in the DARTS space, end to end, beside random cells"),
    Entry(
        "thesis-darts-searches",
        "archwright.reproduce.darts_searches:darts_searches",
        "NASI's and HNAS' scores as searches on 500 DARTS cells with real accuracies",
    ),
    Entry("thesis-6.4", f"{_SHOT1}:table_6_4", "NASI with random labels and random images"),
    Entry("thesis-6.6", f"{_SHOT1}:table_6_6", "NASI on NAS-Bench-1Shot1 by the width of its supernet"),
    Entry("thesis-6.8", f"{_SHOT1}:table_6_8", "NASI on NAS-Bench-1Shot1 by its batch"),
    Entry("thesis-fig6.6", f"{_SHOT1}:figure_6_6", "NASI on NAS-Bench-1Shot1 by its constraint and its penalty"),
    Entry("thesis-fig6.2", f"{_SHOT1}:figure_6_2", "NASI and DARTS on NAS-Bench-1Shot1 by their budget"),
    Entry("thesis-7.7", f"{_DARTS6}:table_7_7", "HNAS in the DARTS space, end to end, beside NASI and random cells"),
    Entry(
        "thesis-7.12",
        f"{_STUDIES7}:table_7_12",
        "table 7.6 of knas, fisher, synflow and naswot",
    ),
    Entry("thesis-fig7.3", "archwright.reproduce.thesis7_budget:figure_7_3", "HNAS and baselines by evaluations spent"),
    Entry(
        "thesis-fig7.4", "archwright.reproduce.thesis_bins:figure_7_4", "NAS-Bench-201 errors by bins of each metric"
    ),
    Entry(
        "thesis-fig7.5",
        "archwright.reproduce.thesis7_budget:figure_7_5",
        "how well HNAS' objective orders all cells, by evaluations spent",
    ),
    Entry(
        "thesis-fig6.3", "archwright.reproduce.thesis_bins:figure_6_3", "NAS-Bench-1Shot1 errors by bins of the trace"
    ),
    Entry("thesis-6.5", f"{_THESIS6}:table_6_5", "training-free metrics against accuracies on NAS-Bench-1Shot1"),
    Entry("thesis-6.7", f"{_THESIS6}:table_6_7", "approximations of the kernel's trace norm against the exact one"),
    Entry("thesis-fig6.1", f"{_THESIS6}:figure_6_1", "traces with random labels and random data against true ones"),
    Entry("thesis-7.1", f"{_STUDIES7}:table_7_1", "metrics against accuracies, NAS-Bench-101 (sample) and 201"),
    Entry("thesis-7.4", f"{_STUDIES7}:table_7_4", "training-free metrics against each other"),
    Entry("thesis-7.6", f"{_STUDIES7}:table_7_6", "metrics on one set of images, accuracies on another"),
    Entry("thesis-7.9", f"{_STUDIES7}:table_7_9", "metrics by initialisation"),
    Entry("thesis-7.10", f"{_STUDIES7}:table_7_10", "metrics and kappa by batch size"),
    Entry("thesis-7.11", f"{_STUDIES7}:table_7_11", "metrics and kappa by width"),
    Entry("thesis-7.2", "archwright.reproduce.thesis7_topology:table_7_2", "width, depth, trace, kappa of known cells"),
    Entry("thesis-4.1", f"{_THESIS4}:table_4_1", "published cells and their widest adaptations: parameters, error"),
    Entry("thesis-4.2", f"{_THESIS4}:table_4_2", "width and depth of published cells and their random variants"),
    Entry(
        "thesis-4-variants",
        f"{_THESIS4}_variants:variants_4",
        "all variants of four base cells on two sets of images (--only darts-v2, enas, amoebanet-a, nasnet-a)",
    ),
    Entry("thesis-4.3.3", f"{_THESIS4}:theorems_4_3_3", "theorems 4.3 and 4.4 on random linear cells, one corrected"),
    Entry("thesis-fig4.3", f"{_THESIS4}:figure_4_3", "convergence of DARTS' cell and variants of its connections"),
    Entry("thesis-fig4.4", f"{_THESIS4}:figure_4_4", "the same under other learning rates"),
    Entry("thesis-fig4.5", f"{_THESIS4}:figure_4_5", "convergence of variants of the operations"),
    Entry("thesis-fig4.6", f"{_THESIS4}:figure_4_6", "loss landscapes and sharpness of DARTS' cell and variants"),
    Entry("thesis-fig4.7", f"{_THESIS4}:figure_4_7", "gradient variance around the same networks"),
    Entry("thesis-5.1", f"{_THESIS5}:table_5_1", "ensembles of three on NAS-Bench-201, trained from scratch"),
    Entry("thesis-5.4", f"{_THESIS5}:table_5_4", "attack one member, defend with the ensemble"),
    Entry("thesis-5.5", f"{_THESIS5}:table_5_5", "errors of members and their disagreement"),
    Entry("thesis-5.6", f"{_THESIS5}_estimates:table_5_6", "estimated against true errors of ensembles"),
    Entry(
        "thesis-5.6-supernet",
        "archwright.reproduce.supernet_order:supernet_order",
        "whether supernets order 200 cells as NAS-Bench-201 does: steps, norms, paths (--only uniform, fair)",
    ),
    Entry("thesis-5.7", f"{_THESIS5}:table_5_7", "post-training and best-response posteriors"),
    Entry("thesis-fig5.2", f"{_THESIS5}:figure_5_2", "SVGD-RD on a mixture of Gaussians: distance by delta"),
    Entry("thesis-fig5.3", f"{_THESIS5}:figure_5_3", "ensemble searches against their budget, inherited weights"),
    Entry("thesis-fig5.5", f"{_THESIS5}:figure_5_5", "the most likely architecture of two posteriors beside the best"),
    Entry("thesis-fig5.6", f"{_THESIS5}:figure_5_6", "Monte Carlo and SVGD-RD by the posterior's temperature"),
    Entry("thesis-fig5.7", f"{_THESIS5}:figure_5_7", "SVGD-RD by delta and temperature"),
)


@dataclass(frozen=True)
class Row:
    """One number of a table: the paper's (None where the text gives none) and ours, over seeds."""

    label: str
    unit: str
    paper: float | None
    ours: float | None
    ours_std: float | None = None

    @classmethod
    def of(cls, label: str, unit: str, paper: float | None, values: Sequence[float]) -> Row:
        """A row with mean and standard deviation; the deviation of one value is None.

        Args:
            label: of the row.
            unit: of its numbers.
            paper: the number that was published, if any.
            values: ours, one a seed or draw.
        """
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        return cls(label, unit, paper, float(np.mean(values)), deviation)


@dataclass
class Outcome:
    """What a reproduction found; ``scale`` says in words at which size it ran."""

    scale: str
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    plot: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Settings:
    """What a reproduction may use.

    Attributes:
        folder: where it keeps its results, plots and runs.
        seeds: how many seeds or draws; None for the table's own default.
        data: spec of the images; None for the CIFAR-10 subset in the data folder, else noise.
        only: the part of a reproduction of several data sets that is asked for; None for all.
        architectures: how many of a table's architectures a study looks at; None for all.
    """

    folder: Path
    seeds: int | None = None
    data: str | None = None
    workers: int = 1
    progress: Progress = field(default_factory=Progress)
    only: str | None = None
    architectures: int | None = None

    @cached_property
    def executor(self) -> Executor:
        """Where work items run; :func:`reproduce` closes it."""
        return make_executor("processes", self.workers) if self.workers > 1 else make_executor("here")

    @property
    def cache(self) -> Path:
        """Scores shared by all reproductions."""
        return self.folder.parent / "scores"

    def images(self) -> DataRequest:
        """The images: as asked, else the CIFAR-10 subset, else Gaussian noise."""
        if self.data is not None:
            return DataRequest(self.data, 0)
        path = shared_data("cifar10_10k2k.npz")
        return DataRequest(f"npz:{path}" if path else "random:classes=10,size=16,channels=3,count=4096", 0)

    def images_note(self) -> str:
        """Which images those are, in words."""
        images = self.images()
        return (
            "images: Gaussian noise (no CIFAR-10 here)"
            if images.source.kind == "random"
            else f"images: {Path(images.spec).name}"
        )


Study = Callable[[Settings], Outcome]


@dataclass(frozen=True)
class Needs:
    """What a study reads: images (those of its settings) and tables by registered name."""

    tables: tuple[str, ...] = ()
    images: bool = True

    def check(self, settings: Settings) -> None:
        """Refuse, before any work, what is not there or cannot be read."""
        for table in self.tables:
            load_benchmark(table)
        if self.images:
            load_data(settings.images())
        elif settings.data is not None:
            raise InputError("no --data for a study without images", repr(settings.data))


DECLARED: dict[Study, Needs] = {}
"""What each study declared by :func:`needs`."""


def needs(*tables: str, images: bool = True) -> Callable[[Study], Study]:
    """Declare what a study reads: every registered one has this decorator, and a test says which one has not.

    Args:
        tables: benchmarks that must be there.
        images: whether it reads images.
    """

    def declare(study: Study) -> Study:
        DECLARED[study] = Needs(tables, images)
        return study

    return declare


SEVERAL = (
    "binas-compare",
    "binas-limits",
    "binas-precision",
    "binas-pretrained",
    "binas-rounds",
    "own-network",
    "thesis-4-variants",
    "thesis-5.6-supernet",
    "thin",
)
"""Reproductions of several data sets."""


SAMPLED = ("conas-a4", "proxies-201", "proxies-darts", "thesis-5.6-supernet", "thesis-darts-searches")
"""Reproductions that can look at some of a table's architectures only."""


def reproduce(name: str, settings: Settings) -> dict[str, Json]:
    """Run one reproduction, write ``result.json`` and ``plot.png`` in its folder, and return its JSON.

    Ctrl-C or a termination signal ends it, and its workers, at once: items and runs are recorded as they are finished.

    Args:
        name: of the reproduction.
        settings: folder, seeds, images, executor and progress.
    """
    study: Study = reproductions.get(name)
    if settings.only is not None and name not in SEVERAL:
        raise InputError(f"--only with a reproduction of several data sets ({', '.join(SEVERAL)})", name)
    if settings.architectures is not None and name not in SAMPLED:
        raise InputError(f"--architectures with {', '.join(SAMPLED)}", name)
    DECLARED.get(study, Needs()).check(settings)
    begin = time.perf_counter()
    with raise_on_signals("what is finished is kept, and the same command goes on"), settings.executor:
        outcome = study(settings)
    result: dict[str, Json] = {
        "id": name,
        "scale": outcome.scale,
        "seconds": round(time.perf_counter() - begin, 1),
        "rows": [asdict(row) for row in outcome.rows],
        "notes": outcome.notes,
    }
    write_json(settings.folder / "result.json", result)
    (outcome.plot or (lambda path: plot_rows(outcome.rows, name, path)))(settings.folder / "plot.png")
    return result


def folder_of(name: str) -> Path:
    """Where the results of a reproduction are kept."""
    return runs_root() / "reproduce" / name


def plot_rows(rows: Sequence[Row], title: str, path: Path) -> None:
    """Ours (with deviation) and the paper's number for every row, as points on one line a row, grouped by unit.

    Args:
        rows: of the table.
        title: of the picture.
        path: of the image.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    units = list(dict.fromkeys(row.unit for row in rows))
    heights = [sum(row.unit == unit for row in rows) for unit in units]
    shape: dict[str, Any] = {"height_ratios": [h + 1 for h in heights]}
    figure, axes = plt.subplots(
        len(units), 1, figsize=(9, 1.2 + 0.24 * (sum(heights) + len(units))), gridspec_kw=shape, squeeze=False
    )
    for unit, axis in zip(units, axes[:, 0], strict=True):
        shown = [row for row in rows if row.unit == unit]
        for place, row in enumerate(reversed(shown)):
            if row.ours is not None:
                axis.errorbar(
                    row.ours, place, xerr=row.ours_std or 0, fmt="o", color="tab:blue", markersize=4, capsize=2
                )
            if row.paper is not None:
                axis.plot(row.paper, place, "x", color="tab:red", markersize=5)
        axis.set_yticks(range(len(shown)), [row.label for row in reversed(shown)], fontsize=7)
        axis.set_xlabel(unit, fontsize=8)
        axis.tick_params(axis="x", labelsize=7)
        axis.grid(axis="x", alpha=0.3)
        axis.set_ylim(-0.7, len(shown) - 0.3)
    figure.suptitle(f"{title}: ours (blue, with deviation) and the paper's (red cross)", fontsize=9)
    figure.tight_layout()
    save_figure(figure, path)
    plt.close(figure)
