"""Cells by name: a published one, a genotype, or the best of a run; and a network of any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from archwright.errors import InputError
from archwright.runs.run import find_run, resume_command
from archwright.spaces.base import Architecture, Network, Scale, Space
from archwright.spaces.cells import CellPair, build_cells, cost_cells, parse_cell_pair
from archwright.spaces.gallery import GALLERY
from archwright.spaces.nasbench201 import NASBENCH201, Cell201
from archwright.spaces.operations import Cost
from archwright.spaces.published import published_cell
from archwright.spaces.registry import spaces


@dataclass(frozen=True)
class NamedCell:
    """An architecture made of cells, and what to call it."""

    label: str
    architecture: CellPair | Cell201


def find_cell(text: str) -> NamedCell:
    """What ``text`` says: a name of the gallery (``DARTS_V2``), a genotype, or a run (a folder, a name or ``last``)."""
    name = published_cell(text)
    if name is not None:
        return NamedCell(name, GALLERY[name])
    if text.lstrip().startswith(("{", "|")):
        return NamedCell("cell", parse_architecture(text))
    try:
        run = find_run(text)
    except InputError as error:
        known = ", ".join(sorted(GALLERY))
        raise InputError(f"a published cell ({known}), a genotype or a run", repr(text)) from error
    answer = run.stage_result("answer")
    if answer is None:
        raise InputError("a finished run", f"{run.folder} ({run.status()})", resume_command(run.folder))
    space: Space[Any] = spaces.get(run.configuration["space"])
    found = space.parse(answer["best"]["architecture"])
    return NamedCell(run.folder.name, _checked(found))


def parse_architecture(text: str) -> CellPair | Cell201:
    """A NAS-Bench-201 string or the JSON of two cells."""
    return NASBENCH201.parse(text.strip()) if text.lstrip().startswith("|") else parse_cell_pair(text)


def _checked(architecture: Architecture) -> CellPair | Cell201:
    if not isinstance(architecture, CellPair | Cell201):
        raise InputError("an architecture made of cells", type(architecture).__name__, "Only cells can be analysed.")
    return architecture


def build_network(architecture: CellPair | Cell201, scale: Scale) -> Network:
    """A freshly initialised network of the cells of ``architecture`` at ``scale``."""
    return (
        build_cells(architecture, scale)
        if isinstance(architecture, CellPair)
        else NASBENCH201.build(architecture, scale)
    )


def count_cost(architecture: CellPair | Cell201, scale: Scale) -> Cost:
    """Parameters and multiply-accumulates of :func:`build_network` of ``architecture`` at ``scale``."""
    return (
        cost_cells(architecture, scale) if isinstance(architecture, CellPair) else NASBENCH201.cost(architecture, scale)
    )
