"""Chapter 6 of the thesis: the trace norm of the tangent kernel, its approximations, and NASI.

The studies run on samples of the three NAS-Bench-1Shot1 spaces (and, for the agnosticism, of NAS-Bench-201) with small
networks; accuracies are looked up in the NAS-Bench-101 table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from archwright.data.request import DataRequest
from archwright.proxies.engine import ScoreRequest
from archwright.reproduce.base import Outcome, Settings, needs
from archwright.reproduce.correlations import RANK, pearson
from archwright.reproduce.networks import SmallScale, cell_scores, cell_traces, trace_of_201
from archwright.reproduce.thesis7_studies import Collected, sample_201
from archwright.spaces.nasbench1shot1 import NASBENCH1SHOT1_1, NASBENCH1SHOT1_2, NASBENCH1SHOT1_3, NasBench1Shot1
from archwright.spaces.nasbench101 import Cell101
from archwright.tables import nasbench101

SPACES: Mapping[str, NasBench1Shot1] = {"S1": NASBENCH1SHOT1_1, "S2": NASBENCH1SHOT1_2, "S3": NASBENCH1SHOT1_3}
SAMPLE_6_5, SAMPLE_6_7, SAMPLE_FIGURE_6_1, SAMPLE_FIGURE_6_1_201 = 100, 40, 60, 500
"""Architectures a space."""
SCALE_6_5 = SmallScale(channels=16, cells=3, image_size=16, batch_size=64)
SCALE_6_7 = SmallScale(channels=8, cells=1, image_size=8, batch_size=128)
SCALE_FIGURE_6_1 = SmallScale(channels=8, cells=1, image_size=8, batch_size=64)
SCALE_FIGURE_6_1_201 = SmallScale(channels=16, cells=1, image_size=4, batch_size=64)
"""Traces of 4 channels depend on the draw of the weights too much to compare anything else."""

TABLE_6_5: dict[str, dict[str, tuple[float, float, float]]] = {
    "Spearman": {
        "snip": (-0.49, -0.62, -0.79), "grasp": (0.41, 0.54, 0.17), "synflow": (-0.52, -0.45, -0.53),
        "naswot": (0.21, 0.32, 0.54), "nasi (conditioned)": (0.62, 0.74, 0.76),
    },
    "Kendall": {
        "snip": (-0.39, -0.49, -0.63), "grasp": (0.33, 0.42, 0.15), "synflow": (-0.42, -0.40, -0.47),
        "naswot": (0.16, 0.24, 0.44), "nasi (conditioned)": (0.44, 0.53, 0.53),
    },
}  # fmt: skip
"""By metric, in spaces 1 to 3."""

TABLE_6_7: dict[str, tuple[float, ...]] = {
    "S1": (0.74, 0.80, 0.84, 0.83, 0.85, 0.86, 0.88),
    "S2": (0.82, 0.87, 0.90, 0.89, 0.91, 0.91, 0.92),
    "S3": (0.66, 0.74, 0.81, 0.79, 0.82, 0.84, 0.87),
}
"""Correlation with the exact trace norm of the columns :data:`APPROXIMATIONS`."""
APPROXIMATIONS = ("4", "8", "16", "32", "64", "128", "sum")


def sample_1shot1(space: NasBench1Shot1, count: int) -> list[Cell101]:
    """``count`` architectures of ``space``, uniformly; the same ones every time."""
    rng = np.random.default_rng(0)
    return [space.sample(rng) for _ in range(count)]


def in_words(scale: SmallScale, count: int, draws: int) -> str:
    """A study on NAS-Bench-1Shot1 in words: ``scale``, ``count`` of architectures a space, ``draws``."""
    return f"{count} random architectures a space of NAS-Bench-1Shot1: {scale}; {draws} draws"


# --- training-free metrics on NAS-Bench-1Shot1 -----------------------------------------------------------------------


def feasible(trace: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which architectures obey trace < nu (eq. 6.3), with nu the mean trace (eq. 6.14)."""
    below: NDArray[np.bool_] = trace < trace.mean()
    return below


@needs("nb101")
def table_6_5(settings: Settings) -> Outcome:
    """Correlation of training-free metrics with CIFAR-10 test accuracy on the three NAS-Bench-1Shot1 spaces."""
    draws = settings.seeds or 1
    table = nasbench101.load_compact()
    metrics = ("snip", "grasp", "synflow", "naswot")
    found = Collected()
    for place, (name, space) in enumerate(SPACES.items()):
        cells = sample_1shot1(space, SAMPLE_6_5)
        accuracy = np.array([table.accuracy(cell, "cifar10", 108, "test") for cell in cells])
        for seed in range(draws):
            request = SCALE_6_5.request(settings, metrics, seed)
            scores = cell_scores(settings, cells, request)
            trace = cell_traces(settings, cells, request, [str(request.batch_size)])[:, 0]
            below = feasible(trace)
            predicted = {metric: (scores[metric], accuracy) for metric in metrics}
            predicted["nasi (conditioned)"] = (trace[below], accuracy[below])
            predicted["nasi (all)"] = (trace, accuracy)
            for (metric, (values, truth)), (kind, correlation) in product(predicted.items(), RANK.items()):
                paper = TABLE_6_5[kind][metric][place] if metric in TABLE_6_5[kind] else None
                found.add(f"{name} C10 {metric} {kind}", kind, paper, correlation(values, truth))
    notes = [
        settings.images_note(),
        "nasi is the mini-batch trace of eq. 6.7",
        "'conditioned' keeps traces below nu (eq. 6.3), which is their mean (eq. 6.14); 'all' keeps every architecture",
    ]
    return Outcome(in_words(SCALE_6_5, SAMPLE_6_5, draws), found.rows(), notes)


# --- approximations of the trace norm --------------------------------------------------------------------------------


@needs()
def table_6_7(settings: Settings) -> Outcome:
    """Pearson correlation of the exact trace norm with its mini-batch and sum-of-samples approximations."""
    draws = settings.seeds or 1
    found = Collected()
    for (name, space), seed in product(SPACES.items(), range(draws)):
        cells = sample_1shot1(space, SAMPLE_6_7)
        request = SCALE_6_7.request(settings, (), seed)
        exact, *others = cell_traces(settings, cells, request, ["exact", *APPROXIMATIONS]).T
        for column, paper, trace in zip(APPROXIMATIONS, TABLE_6_7[name], others, strict=True):
            word = "sum of samples" if column == "sum" else f"batch {column}"
            found.add(f"{name} trace by {word}", "Pearson", paper, pearson(trace, exact))
    notes = [
        settings.images_note(),
        f"exact: one backward pass for each of {SCALE_6_7.batch_size} examples, in train mode",
        "a mini-batch of b examples is the first b of those",
    ]
    return Outcome(in_words(SCALE_6_7, SAMPLE_6_7, draws), found.rows(), notes)


@needs()
def figure_6_1(settings: Settings) -> Outcome:
    """Pearson correlation of mini-batch traces (eq. 6.7) with true and random labels, and with true and random data."""
    draws = settings.seeds or 1
    found = Collected()
    for seed in range(draws):
        request = SCALE_FIGURE_6_1.request(settings, (), seed)
        columns = [str(request.batch_size)]
        for name, space in SPACES.items():
            cells = sample_1shot1(space, SAMPLE_FIGURE_6_1)
            traces = {key: cell_traces(settings, cells, one, columns)[:, 0] for key, one in variants(request).items()}
            _add_agreement(found, name, traces)
        sample = sample_201(SAMPLE_FIGURE_6_1_201)
        requests = variants(SCALE_FIGURE_6_1_201.request(settings, (), seed))
        traces = {key: trace_of_201(settings, sample.cells, one)[sample.member] for key, one in requests.items()}
        _add_agreement(found, "NB201", traces)
    notes = [
        settings.images_note(),
        "the thesis says 'about 1' for random labels and 'above .9' for random data, shown as 1 and .9",
        "random data are Gaussian images with random labels; the weights are the same throughout",
    ]
    shot1 = in_words(SCALE_FIGURE_6_1, SAMPLE_FIGURE_6_1, draws)
    nb201 = f"{SAMPLE_FIGURE_6_1_201} of NAS-Bench-201: {SCALE_FIGURE_6_1_201}"
    return Outcome(f"{shot1}; {nb201}", found.rows(), notes)


def variants(request: ScoreRequest) -> dict[str, ScoreRequest]:
    """The request as it is, with random labels, and with Gaussian images of its size."""
    noise = DataRequest(f"random:classes=10,size={request.image_size},channels=3,count=4096,seed=1", 0)
    return {"true": request, "labels": replace(request, labels="random"), "data": replace(request, data=noise)}


def _add_agreement(found: Collected, space: str, traces: Mapping[str, NDArray[np.float64]]) -> None:
    """Rows of one space: random labels and random data against the true ones."""
    for kind, paper in (("labels", 1.0), ("data", 0.9)):
        stated = paper if space in SPACES else None
        found.add(f"{space} trace, random {kind}", "Pearson", stated, pearson(traces["true"], traces[kind]))
