"""Published cells, and any other pair of cells in their form: with five nodes, and operations beyond those of DARTS.

As a set to search in there are only the published ones; networks are built of every pair.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces.base import Encoding, Network, Scale, Space
from archwright.spaces.cells import CellPair, build_cells, cost_cells, parse_cell_pair, reaches_output
from archwright.spaces.darts import Darts
from archwright.spaces.gallery import GALLERY
from archwright.spaces.operations import OPERATIONS, Cost

CELLS = tuple(GALLERY.values())
ALIASES = {"darts": "darts-v2", "nasnet": "nasnet-a", "amoebanet": "amoebanet-a"}


def published_cell(text: str) -> str | None:
    """The name in the gallery that ``text`` means (``DARTS_V2``); None where there is none."""
    name = text.strip().lower().replace("_", "-")
    name = ALIASES.get(name, name)
    return name if name in GALLERY else None


class Published(Space[CellPair]):
    """The cells of the gallery; others of their form are read and built, too."""

    name = "published"
    operations = tuple(OPERATIONS)
    scales: ClassVar[Mapping[str, Scale]] = Darts.scales

    @property
    def size(self) -> int:
        """How many pairs are in the gallery."""
        return len(CELLS)

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """Which of the published pairs it is."""
        return {"cells": (1, len(CELLS))}

    def sample(self, rng: np.random.Generator) -> CellPair:
        """Any pair of the gallery, uniformly."""
        return CELLS[int(rng.integers(len(CELLS)))]

    def parse(self, text: str) -> CellPair:
        """The name of a published pair of cells, or the JSON of any."""
        name = published_cell(text)
        return GALLERY[name] if name is not None else parse_cell_pair(text)

    def encode(self, architecture: CellPair) -> Encoding:
        """(1, 6): which one it is; a pair that is not of the gallery has no code."""
        if architecture not in CELLS:
            raise InputError(f"published cells ({', '.join(GALLERY)})", "others", "They can be built, but not encoded.")
        return {"cells": np.array([[one == architecture for one in CELLS]], dtype=np.int8)}

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> CellPair:
        """The published pair of a code."""
        row = self.check_encoding(encoding)["cells"][0]
        if row.sum() != 1:
            raise InputError("exactly one of the published cells", f"{int(row.sum())}")
        return CELLS[int(row.argmax())]

    def neighbours(self, architecture: CellPair) -> list[CellPair]:
        """All the other published pairs."""
        return [one for one in CELLS if one != architecture]

    def crossover(self, first: CellPair, second: CellPair, rng: np.random.Generator) -> CellPair:
        """One of both parents, as cells of different forms do not mix."""
        return (first, second)[int(rng.integers(2))]

    def canonical(self, architecture: CellPair) -> CellPair:
        """Itself: no two published ones are the same function."""
        return architecture

    def is_connected(self, architecture: CellPair) -> bool:
        """Whether both cells lead from their inputs to their outputs."""
        return reaches_output(architecture.normal) and reaches_output(architecture.reduce)

    def build(self, architecture: CellPair, scale: Scale) -> Network:
        """The evaluation network of DARTS with these cells."""
        self.check_scale(scale)
        return build_cells(architecture, scale)

    def cost(self, architecture: CellPair, scale: Scale) -> Cost:
        """Counted by formula, auxiliary head left out."""
        self.check_scale(scale)
        return cost_cells(architecture, scale)

    def check_scale(self, scale: Scale) -> None:
        """As in the space of DARTS: so many channels and cells at least."""
        super().check_scale(scale)
        if scale.channels < Darts.fewest_channels or scale.cells < Darts.fewest_cells:
            least = f"at least {Darts.fewest_channels} channels and {Darts.fewest_cells} cells in the {self.name} space"
            raise InputError(least, f"{scale.channels} and {scale.cells}")


PUBLISHED = Published()
