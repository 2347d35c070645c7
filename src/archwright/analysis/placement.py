"""Where a cell stands among all cells of its space: the distribution of width and depth over random cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.analysis.variants import random_connections
from archwright.runs.files import Json
from archwright.spaces.base import Architecture
from archwright.spaces.cells import Cell, CellPair
from archwright.spaces.nasbench201 import Cell201, all_operations, cell_of
from archwright.spaces.topology import CellTopology, cell201_topology, cell_topology, topology_of

SAMPLE = 10_000
"""Random cells behind a distribution; NAS-Bench-201 is counted whole."""


@dataclass(frozen=True)
class Placement:
    """A cell among the cells of its space.

    Attributes:
        topology: of the cell itself.
        widths: (n,) of the others.
        depths: (n,) of the others.
        whole: whether they are all cells of the space rather than a sample.
    """

    topology: CellTopology
    widths: NDArray[np.float64]
    depths: NDArray[np.int64]
    whole: bool

    @property
    def wider_than(self) -> float:
        """Part of the others that are narrower."""
        return float((self.widths < self.topology.width).mean())

    @property
    def shallower_than(self) -> float:
        """Part of the others that are deeper."""
        return float((self.depths > self.topology.depth).mean())

    def to_json(self) -> dict[str, Json]:
        """The cell's place, and the mean of the others."""
        return {
            **self.topology.to_json(),
            "wider_than": round(self.wider_than, 4),
            "shallower_than": round(self.shallower_than, 4),
            "mean_width": round(float(self.widths.mean()), 4),
            "mean_depth": round(float(self.depths.mean()), 4),
            "largest_width": float(self.widths.max()),
            "least_depth": int(self.depths[self.depths > 0].min()),
            "cells": len(self.widths),
            "whole_space": self.whole,
        }


def placements(architecture: Architecture, seed: int = 0, sample: int = SAMPLE) -> dict[str, Placement]:
    """The place of each cell of an architecture, by the cell's name; empty where it is not made of cells.

    A DARTS-style cell is compared with ``sample`` cells of its nodes and edges whose sources are drawn uniformly (the
    space of its connections), a NAS-Bench-201 cell with all 15,625.

    Args:
        architecture: whose cells are placed.
        seed: of the draws.
        sample: number of cells to compare with.
    """
    if isinstance(architecture, CellPair):
        rng = np.random.default_rng(seed)
        cells = {"normal": architecture.normal, "reduce": architecture.reduce}
        return {name: _among_variants(cell, rng, sample) for name, cell in cells.items()}
    if isinstance(architecture, Cell201):
        found = [cell201_topology(cell_of(row)) for row in all_operations().tolist()]
        return {"cell": _placement(topology_of(architecture)["cell"], found, whole=True)}
    return {}


def _among_variants(cell: Cell, rng: np.random.Generator, sample: int) -> Placement:
    others = [cell_topology(random_connections(cell, rng)) for _ in range(sample)]
    return _placement(cell_topology(cell), others, whole=False)


def _placement(topology: CellTopology, others: list[CellTopology], whole: bool) -> Placement:
    widths = np.array([one.width for one in others], dtype=np.float64)
    depths = np.array([one.depth for one in others], dtype=np.int64)
    return Placement(topology, widths, depths, whole)


def plot_placement(axis: Any, name: str, placement: Placement) -> None:
    """Width against depth of the others, larger where there are more of them, and the cell as a star.

    Args:
        axis: of matplotlib, drawn into.
        name: of the cell, for the title.
        placement: as of :func:`placements`.
    """
    counts: dict[tuple[float, int], int] = {}
    for key in zip(placement.widths.tolist(), placement.depths.tolist(), strict=True):
        counts[key] = counts.get(key, 0) + 1
    widths, depths = zip(*counts, strict=True)
    share = np.array(list(counts.values())) / len(placement.widths)
    axis.scatter(widths, depths, s=20 + 900 * share, alpha=0.5, label="random cells")
    topology = placement.topology
    axis.scatter([topology.width], [topology.depth], marker="*", s=160, color="tab:red", label="this cell")
    axis.set_xlabel("width (c)")
    axis.set_ylabel("depth")
    axis.set_title(f"{name}: among {len(placement.widths):,} cells", fontsize=9)
    axis.legend(fontsize=8)
