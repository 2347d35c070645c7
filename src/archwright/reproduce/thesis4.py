"""Chapter 4 of the thesis at a scale that one core can do: why wide and shallow cells are chosen.

Networks are 5 cells of 8 channels at 16 px on the CIFAR-10 subset, trained for a few epochs without regularisation. A
trained cell is one work item that is kept, so that a killed study continues and figures of the same trainings share
them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from archwright.analysis.convergence import CellStudy, plot_curves, study_cell
from archwright.analysis.landscape import Landscape, plot_landscapes
from archwright.analysis.linear_cells import check_theorems
from archwright.analysis.variants import adapted, distinct_variants, random_connections, random_operations
from archwright.data.request import load_data
from archwright.execution.base import Item, run_items
from archwright.reproduce.base import Outcome, Row, Settings, needs
from archwright.runs.files import Json
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.spaces.base import Scale
from archwright.spaces.cells import Cell, CellPair
from archwright.spaces.gallery import GALLERY
from archwright.spaces.topology import cell_topology

CHANNELS, CELLS, IMAGE_SIZE, IMAGES, EPOCHS, LR = 8, 5, 16, 1000, 8, 0.025
SCALE_TEXT = f"{CELLS} cells of {CHANNELS} channels at {IMAGE_SIZE} px, {IMAGES} train images, {EPOCHS} epochs"
GRID, VARIANCE_GRID, SPAN = 11, 5, 1.0
"""Points a side of the landscape and of the gradient's variance (the thesis: 51)."""
SEEDS = 3
LINEAR_CELLS = 1000
"""Random cells that theorems 4.3 and 4.4 are checked on."""
NAMES = {"nasnet-a": "NASNet", "amoebanet-a": "AmoebaNet", "enas": "ENAS", "darts-v2": "DARTS", "snas": "SNAS"}
WIDTH_DEPTH = {"darts-v2": (3.5, 3), "enas": (5.0, 2), "amoebanet-a": (4.0, 4), "nasnet-a": (5.0, 2)}
"""Base cells of Table 4.2."""
TABLE_4_1 = {
    "nasnet-a": ((2.65, 2.80), (4.29, 4.32)),
    "amoebanet-a": ((2.76, 2.91), (3.60, 3.60)),
    "enas": ((2.64, 2.76), (4.32, 4.32)),
    "darts-v2": ((2.67, 2.73), (3.83, 3.90)),
    "snas": ((2.88, 2.69), (3.14, 3.19)),
}
"""CIFAR-10 error in percent and millions of parameters, original and adapted; the auxiliary head is counted."""
TABLE_4_3 = {"darts-v2": 3.35, "enas": 3.86, "amoebanet-a": 3.15, "nasnet-a": 3.83}
CONVOLUTIONS = ("sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5")
OPERATIONS = (*CONVOLUTIONS, "skip_connect", "avg_pool_3x3", "max_pool_3x3")
"""Candidates for variants of operations: those of DARTS without ``none``."""


@dataclass(frozen=True)
class Named:
    """A cell with the label it has in tables: width and depth of its normal cell are part of it."""

    label: str
    pair: CellPair

    @classmethod
    def of(cls, name: str, pair: CellPair) -> Named:
        """``pair`` labelled ``name (width, depth)`` by its normal cell."""
        topology = cell_topology(pair.normal)
        return cls(f"{name} ({topology.width:g}c, {topology.depth})", pair)


def connection_variants(name: str, count: int, seed: int = 0) -> list[CellPair]:
    """Variants of the connections of both cells of a gallery entry, by the normal cell from narrow to wide.

    Args:
        name: of the entry.
        count: number of variants.
        seed: of the draws.
    """
    pair, rng = GALLERY[name], np.random.default_rng(seed)
    cells = distinct_variants(pair.normal, random_connections, count, rng)
    return [CellPair(cell, random_connections(pair.reduce, rng)) for cell in cells]


def operation_variants(name: str, count: int, seed: int = 0) -> list[CellPair]:
    """Variants of the operations of both cells of a gallery entry.

    Args:
        name: of the entry.
        count: number of variants.
        seed: of the draws.
    """
    pair, rng = GALLERY[name], np.random.default_rng(seed)
    change = partial(random_operations, operations=OPERATIONS)
    return [CellPair(cell, change(pair.reduce, rng)) for cell in distinct_variants(pair.normal, change, count, rng)]


def spread_of(pairs: Sequence[CellPair], count: int) -> list[CellPair]:
    """``count`` of ``pairs`` at equal distances in their order, the first and the last among them."""
    return [pairs[i] for i in np.linspace(0, len(pairs) - 1, count).round().astype(int)]


def darts_family() -> list[Named]:
    """DARTS' cell and three random variants of its connections, C_1 to C_3, all from wide to narrow."""
    variants = spread_of(connection_variants("darts-v2", 13), 3)[::-1]
    family = [Named.of("DARTS", GALLERY["darts-v2"]), *(Named.of(f"C{n}", p) for n, p in enumerate(variants, 1))]
    return sorted(family, key=lambda one: cell_topology(one.pair.normal).width, reverse=True)


# --- studies ---------------------------------------------------------------------------------------------------------


def base_study(settings: Settings) -> CellStudy:
    """What all studies here share."""
    data = replace(settings.images(), image_size=IMAGE_SIZE)
    loaded = load_data(data)
    scale = Scale(CHANNELS, CELLS, loaded.classes, loaded.image_size, loaded.image_channels)
    return CellStudy(data, "", scale.to_dict(), LR, EPOCHS, 0, IMAGES, span=SPAN)


def run_studies(settings: Settings, studies: Mapping[str, CellStudy]) -> dict[str, Json]:
    """Results by the studies' keys; each is kept under everything that decides it and never done twice.

    Args:
        settings: cache, executor and progress.
        studies: by any keys.
    """
    items = {key: Item(_digest(study), study.to_json()) for key, study in studies.items()}
    log = ItemLog(settings.cache / "cell-studies.jsonl")
    unique = list({item.key: item for item in items.values()}.values())
    with settings.progress.task("training cells", len(unique), sum(item.key in log.done for item in unique)) as bar:
        found = run_items(settings.executor, study_cell, unique, log, Stop(), bar)
    return {key: found[item.key] for key, item in items.items()}


def _digest(study: CellStudy) -> str:
    return hashlib.sha256(json.dumps([study.to_json(), load_data(study.data).fingerprint]).encode()).hexdigest()[:24]


def over_seeds(
    settings: Settings, cells: Sequence[Named], default_seeds: int = SEEDS, **changes: object
) -> dict[str, list[Json]]:
    """Studies of every cell with every seed, by the cell's label.

    Args:
        settings: seeds, images, cache, executor and progress.
        cells: what is studied.
        default_seeds: number of seeds where the settings say none.
        changes: fields of the study with other values.
    """
    seeds, base = range(settings.seeds or default_seeds), base_study(settings)
    wanted = {
        f"{cell.label} {seed}": replace(base, cells=str(cell.pair), seed=seed, **changes)  # type: ignore[arg-type]
        for cell in cells
        for seed in seeds
    }
    found = run_studies(settings, wanted)
    return {cell.label: [found[f"{cell.label} {seed}"] for seed in seeds] for cell in cells}


def _rows(found: Mapping[str, Sequence[Json]], quantities: Mapping[str, str]) -> list[Row]:
    """A row a cell and quantity, ``{key: unit}``, over its runs; runs without a number (diverged) are left out."""
    rows = []
    for key, unit in quantities.items():
        for label, runs in found.items():
            values = [run[key] for run in runs if run[key] is not None]
            rows.append(
                Row.of(f"{key.replace('_', ' ')} {label}", unit, None, values)
                if values
                else Row(f"{key.replace('_', ' ')} {label}", unit, None, None)
            )
    return rows


def _accuracy_rows(found: Mapping[str, Sequence[Json]]) -> list[Row]:
    ends = {label: [run["accuracy"][-1] for run in runs] for label, runs in found.items()}
    return [Row.of(f"test accuracy {label}", "%", None, values) for label, values in ends.items()]


def _curves(found: Mapping[str, Sequence[Json]]) -> dict[str, dict[str, list[list[float]]]]:
    return {label: {key: [run[key] for run in runs] for key in ("loss", "accuracy")} for label, runs in found.items()}


def _agreement(found: Mapping[str, Sequence[Json]], key: str, what: str) -> str:
    """One sentence: whether the values rise from the widest to the narrowest cell, seed by seed."""
    rising, pairs = 0, 0
    labels = list(found)
    for runs in zip(*(found[label] for label in labels), strict=True):
        values = [run[key] for run in runs]
        for first in range(len(values)):
            for second in range(first + 1, len(values)):
                if values[first] is not None and values[second] is not None:
                    pairs += 1
                    rising += values[first] < values[second]
    return f"{what} is lower for the wider cell in {rising} of {pairs} pairs of the same seed (the thesis: in all)"


# --- tables ----------------------------------------------------------------------------------------------------------


@needs()
def table_4_1(settings: Settings) -> Outcome:
    """Original and adapted cells: parameters of the paper's network (exact), test error of small ones."""
    cells = [
        Named(f"{NAMES[name]} {kind}", pair)
        for name in TABLE_4_1
        for kind, pair in (("original", GALLERY[name]), ("adapted", adapted(GALLERY[name])))
    ]
    found = over_seeds(settings, cells)
    rows = []
    for name, (errors, params) in TABLE_4_1.items():
        for place, kind in enumerate(("original", "adapted")):
            label = f"{NAMES[name]} {kind}"
            counted = _paper_params(GALLERY[name] if kind == "original" else adapted(GALLERY[name]))
            rows.append(Row.of(f"params {label}", "M", params[place], [counted]))
            small = [100 - run["accuracy"][-1] for run in found[label]]
            rows.append(Row.of(f"error {label}", "%", errors[place], small))
    notes = [
        "Parameters are those of the paper's network (20 cells, 36 channels, auxiliary head).",
        "Errors are of small networks after a few epochs, so only their order can be compared with the paper's.",
        settings.images_note(),
    ]
    return Outcome(SCALE_TEXT, rows, notes)


def _paper_params(pair: CellPair) -> float:
    from archwright.spaces.cells import build_cells

    network = build_cells(pair, Scale(channels=36, cells=20, auxiliary=True))
    return sum(weight.numel() for weight in network.parameters()) / 1e6


@needs(images=False)
def table_4_2(settings: Settings) -> Outcome:
    """Width and depth of published cells and of 13 random variants of their connections."""
    rows = []
    for name, (width, depth) in WIDTH_DEPTH.items():
        base = cell_topology(GALLERY[name].normal)
        rows.append(Row.of(f"{NAMES[name]} width", "c", width, [base.width]))
        rows.append(Row.of(f"{NAMES[name]} depth", "connections", depth, [float(base.depth)]))
        for number, pair in enumerate(connection_variants(name, 13), 1):
            variant = cell_topology(pair.normal)
            rows.append(Row.of(f"{NAMES[name]} C{number} width", "c", None, [variant.width]))
            rows.append(Row.of(f"{NAMES[name]} C{number} depth", "connections", None, [float(variant.depth)]))
    notes = ["The thesis' variants are other random draws: only the base cells can be compared."]
    for name, paper in TABLE_4_3.items():
        params = [_millions(pair) for pair in operation_variants(name, 10)]
        notes.append(
            f"Table 4.3, {NAMES[name]}: {_millions(GALLERY[name]):.2f} M parameters (paper {paper}); 10 variants of "
            f"the operations {min(params):.2f} to {max(params):.2f} M."
        )
    return Outcome("by definition", rows, notes)


@needs(images=False)
def theorems_4_3_3(settings: Settings) -> Outcome:
    """How often random linear cells break the bounds of theorems 4.3 and 4.4, and by how much."""
    found = [check_theorems(LINEAR_CELLS, seed) for seed in range(settings.seeds or 1)]
    rows = []
    for label, field, paper in (
        ("theorem 4.3", "printed_43", 0.0),
        ("theorem 4.3 corrected", "corrected_43", None),
        ("theorem 4.4", "theorem_44", 0.0),
    ):
        unit, broken = f"of {found[0].checks:,} checks", [float(getattr(one, f"{field}_broken")) for one in found]
        rows.append(Row.of(f"{label}: broken", unit, paper, broken))
        worst = [getattr(one, f"{field}_worst") for one in found]
        rows.append(Row.of(f"{label}: largest value / bound", "ratio", None, worst))
    notes = ["Lambda is the spectral norm. The corrected bound is in archwright.analysis.linear_cells."]
    return Outcome(f"{LINEAR_CELLS:,} random linear cells of 3 nodes of 3 numbers", rows, notes)


def _millions(pair: CellPair) -> float:
    from archwright.spaces.cells import cost_cells

    return cost_cells(pair, Scale(channels=36, cells=20)).params / 1e6


# --- figures ---------------------------------------------------------------------------------------------------------


def family_studies(settings: Settings) -> dict[str, list[Json]]:
    """The trainings and surroundings that figures 4.3, 4.5, 4.6 and 4.7 share."""
    return over_seeds(settings, darts_family(), grid=GRID, variance_grid=VARIANCE_GRID)


@needs()
def figure_4_3(settings: Settings) -> Outcome:
    """Convergence of DARTS' cell and random variants of its connections."""
    found = family_studies(settings)
    rows = _rows(found, {"area": "mean test loss"}) + _accuracy_rows(found)
    notes = [_agreement(found, "area", "the area under the test loss"), settings.images_note()]
    return Outcome(SCALE_TEXT, rows, notes, lambda path: plot_curves(_curves(found), path))


@needs()
def figure_4_4(settings: Settings) -> Outcome:
    """The same under a tenth and ten times the learning rate."""
    family = darts_family()
    cells = [family[0], family[1], family[3]]
    by_rate = {lr: over_seeds(settings, cells, lr=lr) for lr in (0.0025, 0.25)}
    found = {f"{label} lr {lr:g}": runs for lr, part in by_rate.items() for label, runs in part.items()}
    rows = _rows(found, {"area": "mean test loss"}) + _accuracy_rows(found)
    notes = [_agreement(part, "area", f"lr {lr:g}: the area under the test loss") for lr, part in by_rate.items()]
    return Outcome(SCALE_TEXT, rows, [*notes, settings.images_note()], lambda path: plot_curves(_curves(found), path))


@needs()
def figure_4_5(settings: Settings) -> Outcome:
    """Convergence of DARTS' cell and random variants of its operations: the connections decide more."""
    variants = operation_variants("darts-v2", 3)
    cells = [Named("DARTS", GALLERY["darts-v2"]), *(Named(f"operations {n}", p) for n, p in enumerate(variants, 1))]
    found = over_seeds(settings, cells)
    connected = family_studies(settings)
    rows = _rows(found, {"area": "mean test loss"}) + _accuracy_rows(found)
    for what, part in (("operations", found), ("connections", connected)):
        means = [np.mean([run["area"] for run in runs]) for runs in part.values()]
        rows.append(Row.of(f"spread of the area over {what}", "mean test loss", None, [float(np.ptp(means))]))
    notes = [
        "The thesis: other operations converge nearly alike, other connections do not; the two spreads compare them.",
        settings.images_note(),
    ]
    return Outcome(SCALE_TEXT, rows, notes, lambda path: plot_curves(_curves(found), path))


@needs()
def figure_4_6(settings: Settings) -> Outcome:
    """Loss landscapes of DARTS' cell and random variants of its connections."""
    found = family_studies(settings)
    rows = _rows(found, {"sharpness": "largest Hessian eigenvalue", "share_under_double": "share of the grid"})
    notes = [
        _agreement(found, "sharpness", "the largest Hessian eigenvalue"),
        f"Share of the {GRID} x {GRID} grid on [-{SPAN:g}, {SPAN:g}] whose loss is at most twice that at the centre.",
        "Batch norms keep the running statistics of the end weights.",
        settings.images_note(),
    ]
    return Outcome(SCALE_TEXT, rows, notes, partial(_plot_grids, found, "landscape", "test loss", False))


@needs()
def figure_4_7(settings: Settings) -> Outcome:
    """Gradient variance around the end weights of the same networks."""
    found = family_studies(settings)
    rows = _rows(found, {"variance_here": "variance at the end weights", "median_variance": "median over the grid"})
    notes = [
        _agreement(found, "variance_here", "the gradient's variance at the end weights"),
        _agreement(found, "median_variance", "its median over the grid"),
        f"{VARIANCE_GRID} x {VARIANCE_GRID} points, gradients of 128 single images; the plot shows the square root.",
        settings.images_note(),
    ]
    return Outcome(SCALE_TEXT, rows, notes, partial(_plot_grids, found, "variance", "deviation of the gradient", True))


def _plot_grids(found: Mapping[str, Sequence[Json]], key: str, what: str, root: bool, path: Path) -> None:
    first = {label: Landscape.from_json(runs[0][key]) for label, runs in found.items() if key in runs[0]}
    plot_landscapes(first, path, what, root)


def widest_and_deepest() -> dict[str, CellPair]:
    """WIDE and DEEP of Table 7.2: four nodes of separable convolutions in the DARTS space."""
    wide = _chain([(0, 1)] * 4)
    deep = _chain([(0, 1), (1, 2), (2, 3), (3, 4)])
    return {"WIDE": CellPair(wide, wide), "DEEP": CellPair(deep, deep)}


def _chain(sources: Sequence[tuple[int, int]]) -> Cell:
    return Cell(tuple(tuple(("sep_conv_3x3", source) for source in pair) for pair in sources), (2, 3, 4, 5))
