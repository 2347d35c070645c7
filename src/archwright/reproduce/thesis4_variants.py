"""Chapter 4 on all of its cells: thirteen variants of the connections and ten of the operations of four base cells.

Figures 4.3 to 4.25 show four curves a panel; every variant of Tables 4.2 and 4.3 is trained here, on two sets of images
and what the panels suggest becomes a number: the rank correlation, over a cell and its variants, of width (and depth)
with the area under the test loss, the last accuracy, the flatness of the landscape and the gradient's variance, with an
interval by resampling the variants; and how far the area spreads over operations and over connections.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from archwright.analysis.convergence import CellStudy
from archwright.data.request import DataRequest, load_data
from archwright.errors import unknown_name
from archwright.reproduce import thesis4
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.reproduce.supernet_order import ranks
from archwright.reproduce.thesis4 import NAMES, WIDTH_DEPTH, Named, connection_variants, operation_variants
from archwright.runs.files import Json
from archwright.spaces.base import Scale
from archwright.spaces.gallery import GALLERY
from archwright.spaces.topology import cell_topology

CONNECTIONS, OPERATIONS = 13, 10
"""Variants, as in Tables 4.2 and 4.3."""
SECOND = "fashion-mnist"
"""Images beside those of the other studies."""
GRID, VARIANCE_GRID = 7, 3
RESAMPLES = 1000
MEASURED = {
    "area": "area under the test loss",
    "last": "last accuracy",
    "share_under_double": "flatness (share of the grid under twice the loss)",
    "median_variance": "gradient variance",
}
"""What is related to width and depth, by the key of a study; ``last`` is the last of its accuracies."""


def family_of(name: str) -> tuple[list[Named], list[Named]]:
    """A base cell with its variants of the connections, and with those of the operations.

    Args:
        name: of the base cell in the gallery.
    """
    base = Named.of(NAMES[name], GALLERY[name])
    connected = [Named.of(f"C{n}", pair) for n, pair in enumerate(connection_variants(name, CONNECTIONS), 1)]
    operated = [Named(f"O{n}", pair) for n, pair in enumerate(operation_variants(name, OPERATIONS), 1)]
    return [base, *connected], [base, *operated]


def study_on(data: DataRequest) -> CellStudy:
    """What all trainings on ``data`` share, at the size of the other studies."""
    asked = replace(data, image_size=thesis4.IMAGE_SIZE)
    loaded = load_data(asked)
    scale = Scale(thesis4.CHANNELS, thesis4.CELLS, loaded.classes, loaded.image_size, loaded.image_channels)
    own = CellStudy(asked, "", scale.to_dict(), thesis4.LR, thesis4.EPOCHS, 0, thesis4.IMAGES, span=thesis4.SPAN)
    return replace(own, grid=GRID, variance_grid=VARIANCE_GRID)


def value_of(run: Json, key: str) -> float:
    """A number of a study; NaN where a diverged training has none.

    Args:
        run: what the study returned.
        key: of the number; ``last`` is the last accuracy.
    """
    found = run["accuracy"][-1] if key == "last" else run[key]
    return float("nan") if found is None else float(found)


def related(values: NDArray[np.float64], shape: NDArray[np.float64]) -> tuple[float, float, float]:
    """Rank correlation of ``values`` with ``shape`` over cells, and its 90 % interval by resampling the cells.

    Args:
        values: (seeds, cells); those of a cell are averaged.
        shape: width or depth, (cells,).
    """
    mean = values.mean(axis=0)
    known = np.isfinite(mean)
    mean, shape, rng = mean[known], shape[known], np.random.default_rng(0)
    draws = [rng.integers(len(mean), size=len(mean)) for _ in range(RESAMPLES)]
    low, high = np.quantile([ranks(mean[some], shape[some]) for some in draws], (0.05, 0.95))
    return ranks(mean, shape), float(low), float(high)


def family_rows(
    label: str, connected: Sequence[Named], operated: Sequence[Named], found: dict[str, list[Json]]
) -> tuple[list[Row], list[str]]:
    """Rows and intervals of one base cell on one set of images.

    Args:
        label: of both.
        connected: the base cell and its variants of the connections.
        operated: the same of the operations.
        found: studies by the label of the cell, one a seed.
    """
    topologies = [cell_topology(one.pair.normal) for one in connected]
    shapes = {
        "width": np.array([float(one.width) for one in topologies]),
        "depth": np.array([float(one.depth) for one in topologies]),
    }
    rows, notes = [], []
    for (key, what), (shape, numbers) in ((m, s) for m in MEASURED.items() for s in shapes.items()):
        values = np.array([[value_of(run, key) for run in found[one.label]] for one in connected]).T
        correlation, low, high = related(values, numbers)
        rows.append(Row(f"{label}: {what} with {shape}", "Spearman", None, correlation))
        notes.append(
            f"{label}: {what} with {shape} {correlation:+.2f}, 90 % of resampled variants {low:.2f} to {high:.2f}"
        )
    for kind, cells in (("connections", connected), ("operations", operated)):
        means = [float(np.mean([run["area"] for run in found[one.label]])) for one in cells]
        rows.append(
            Row(f"{label}: deviation of the area over {kind}", "mean test loss", None, float(np.std(means, ddof=1)))
        )
    ends = {one.label: [run["accuracy"][-1] for run in found[one.label]] for one in [*connected, *operated[1:]]}
    rows += [Row.of(f"{label}: accuracy {cell}", "%", None, values) for cell, values in ends.items()]
    return rows, notes


@needs()
def variants_4(settings: Settings) -> Outcome:
    """Width and depth beside convergence, accuracy, flatness and variance, for all variants of four base cells."""
    if settings.only is not None and settings.only not in WIDTH_DEPTH:
        raise unknown_name("base cell", settings.only, tuple(WIDTH_DEPTH))
    names = tuple(WIDTH_DEPTH) if settings.only is None else (settings.only,)
    images = {"CIFAR-10": settings.images()} if settings.data is None else {settings.data: settings.images()}
    bases = {key: study_on(one) for key, one in {**images, SECOND: DataRequest(SECOND, 0)}.items()}
    seeds = range(settings.seeds or 1)
    rows, notes = list[Row](), list[str]()
    for name in names:
        connected, operated = family_of(name)
        for key, base in bases.items():
            cells = {one.label: one for one in [*connected, *operated]}
            wanted = {
                f"{label} {seed}": replace(base, cells=str(one.pair), seed=seed)
                for label, one in cells.items()
                for seed in seeds
            }
            done = thesis4.run_studies(settings, wanted)
            found = {label: [done[f"{label} {seed}"] for seed in seeds] for label in cells}
            more, intervals = family_rows(f"{NAMES[name]} on {key}", connected, operated, found)
            rows, notes = [*rows, *more], [*notes, *intervals]
    notes += [
        "the thesis: wider cells converge faster, to flatter places with less variance; operations matter little",
        f"{CONNECTIONS} variants of the connections (C), {OPERATIONS} of the operations (O); not the thesis' draws",
        settings.images_note(),
    ]
    return Outcome(f"{thesis4.SCALE_TEXT}; {len(seeds)} seed(s)", rows, notes)
