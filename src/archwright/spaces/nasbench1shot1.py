"""NAS-Bench-1Shot1: three spaces of NAS-Bench-101 cells in which every vertex has a fixed number of parents.

Parents of vertices 1, 2, ... and of the output: space 1 has (1, 2, 2, 2; 2), space 2 (1, 1, 2, 2; 3) and space 3
(1, 1, 1, 2, 2; 2). Each vertex carries one of three operations. A vertex nobody takes as a parent is a "loose end" and
is pruned, as is all that only leads to it, so many architectures are the same network.

**How many.** :attr:`NasBench1Shot1.size` counts every choice: parents times 3 ** vertices, 14,580 / 29,160 / 1,312,200.
The published numbers are 6,240 / 29,160 / 363,648. The first and the third count an operation only at vertices with a
child (by that rule space 2 would have 16,632), the second counts all; we count all three alike. Up to pruning and the
numbering of vertices there are 2,685 / 7,773 / 55,854 networks, all of them in NAS-Bench-101.

**Weight sharing.** The published supernet differs from NAS-Bench-101's networks: every vertex has all of the stage's
channels, and the output joins whole vertices instead of dividing its channels among them; see
:mod:`archwright.supernets.node_cell`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import combinations, product
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from archwright.errors import InputError
from archwright.spaces.base import Encoding, Network, Scale
from archwright.spaces.cell_space import CellSpace, MakeCell, VertexCell
from archwright.spaces.nasbench101 import (
    NAMES,
    OPERATIONS_101,
    PROJECTION,
    Cell101,
    Skeleton101,
    build_network,
    graph_hashes,
    network_cost,
    parse_cell101,
    without_dead,
)
from archwright.spaces.operations import Cost


class NasBench1Shot1(CellSpace[Cell101]):
    """What the three spaces share; they differ in :attr:`parents` alone."""

    operations = NAMES
    parents: ClassVar[tuple[int, ...]]
    """Number of parents of vertices 1 to n and, last, of the output."""
    scales: ClassVar[Mapping[str, Scale]] = {
        "paper": Scale(channels=128, cells=3),
        "search": Scale(channels=16, cells=3),
        "small": Scale(channels=8, cells=1),
    }

    @property
    def vertices(self) -> int:
        """Number of vertices with an operation."""
        return len(self.parents) - 1

    @property
    def size(self) -> int:
        """Parents of every vertex and of the output, times operations."""
        return int(prod(len(choices) for choices in self._parent_choices) * len(NAMES) ** self.vertices)

    def enumerated(self) -> Iterator[Cell101]:
        """In the order of :meth:`at`."""
        return map(self.at, range(self.size))

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """``operation``: one row a vertex. ``inputs_v`` and ``output``: one row over the possible parents.

        A row of the last two holds as many ones as there are parents (:attr:`picks`). Vertices whose parents leave no
        choice have no such decision.
        """
        return {"operation": (self.vertices, len(NAMES)), **{name: (1, v) for name, v in self.links.items()}}

    @property
    def links(self) -> dict[str, int]:
        """The decisions that choose parents rather than operations, and the vertex each is about."""
        return self._links

    @cached_property
    def _links(self) -> dict[str, int]:
        output = len(self.parents)
        free = [vertex for vertex, count in enumerate(self.parents, 1) if count < vertex]
        return {"output" if vertex == output else f"inputs_{vertex}": vertex for vertex in free}

    @property
    def picks(self) -> dict[str, int]:
        """How many ones a row of each decision holds."""
        return {"operation": 1, **{name: self.parents[vertex - 1] for name, vertex in self.links.items()}}

    @cached_property
    def _parent_choices(self) -> list[list[tuple[int, ...]]]:
        """For each vertex and the output, its possible sets of parents in lexicographic order."""
        return [list(combinations(range(vertex), count)) for vertex, count in enumerate(self.parents, 1)]

    def at(self, index: int) -> Cell101:
        """The architecture number ``index`` of the lexicographic order: parents vertex by vertex, then operations."""
        radices = [len(choices) for choices in self._parent_choices] + [len(NAMES)] * self.vertices
        digits = [int(digit) for digit in np.unravel_index(index, radices)]
        parents = tuple(choices[digit] for choices, digit in zip(self._parent_choices, digits, strict=False))
        return Cell101(tuple(digits[len(parents) :]), parents)

    def index(self, architecture: Cell101) -> int:
        """The number by which :meth:`at` gives this architecture."""
        radices = [len(choices) for choices in self._parent_choices] + [len(NAMES)] * self.vertices
        pairs = zip(self._parent_choices, architecture.parents, strict=True)
        digits = [choices.index(parents) for choices, parents in pairs] + list(architecture.operations)
        return int(np.ravel_multi_index(digits, radices))

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """Hash (size,) of every architecture in the order of :meth:`at`; equal for equal networks."""
        grid = np.indices((len(NAMES),) * self.vertices, dtype=np.uint8).reshape(self.vertices, -1).T
        graphs = np.stack([Cell101((0,) * self.vertices, p).edges() for p in product(*self._parent_choices)])
        # graphs that differ only in what is pruned are hashed once: 876 of the 5,400 of space 3
        distinct, which = np.unique(without_dead(graphs), axis=0, return_inverse=True)
        edges = np.repeat(distinct, len(grid), axis=0)
        table = graph_hashes(edges, np.tile(grid, (len(distinct), 1))).reshape(len(distinct), len(grid))
        return table[which.reshape(-1)].reshape(-1)

    @cached_property
    def _first_of_class(self) -> NDArray[np.int64]:
        """For each architecture, the index of the first one with the same network, (size,)."""
        _, first, which = np.unique(self.hashes, return_index=True, return_inverse=True)
        return first[which].astype(np.int64)

    def sample(self, rng: np.random.Generator) -> Cell101:
        """Parents and operations, uniformly."""
        return self.at(int(rng.integers(self.size)))

    def check(self, architecture: Cell101) -> Cell101:
        """``architecture`` if it is of this space; an :class:`InputError` that says where it is not."""
        counts = tuple(len(parents) for parents in architecture.parents)
        if counts != self.parents:
            raise InputError(f"a cell of {self.name} with {self.parents} parents", f"{counts} in {architecture}")
        return architecture

    def parse(self, text: str) -> Cell101:
        """Read the JSON form and check that it is of this space."""
        return self.check(parse_cell101(text))

    def encode(self, architecture: Cell101) -> Encoding:
        """One 1 a row of ``operation``, a 1 for each parent elsewhere."""
        encoding: Encoding = {"operation": np.eye(len(NAMES), dtype=np.int8)[list(architecture.operations)]}
        for name, vertex in self.links.items():
            row = np.zeros((1, vertex), dtype=np.int8)
            row[0, list(architecture.parents[vertex - 1])] = 1
            encoding[name] = row
        return encoding

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> Cell101:
        """The cell whose :meth:`encode` this is; anything else is refused."""
        arrays = self.check_encoding(encoding)
        for name, count in self.picks.items():
            sums = arrays[name].sum(axis=1)
            if not (sums == count).all():
                raise InputError(f"{count} ones in every row of {name!r}", f"{sums.tolist()}")
        parents = [tuple(range(count)) for count in self.parents]
        for name, vertex in self.links.items():
            parents[vertex - 1] = tuple(int(p) for p in np.flatnonzero(arrays[name][0]))
        operations = arrays["operation"].argmax(axis=1)
        return Cell101(tuple(int(o) for o in operations), tuple(parents))

    def neighbours(self, architecture: Cell101) -> list[Cell101]:
        """Another operation at one vertex, or one parent of one vertex exchanged for another."""
        found = []
        for vertex, current in enumerate(architecture.operations):
            for other in set(range(len(NAMES))) - {current}:
                operations = (*architecture.operations[:vertex], other, *architecture.operations[vertex + 1 :])
                found.append(Cell101(operations, architecture.parents))
        for row, (choices, chosen) in enumerate(zip(self._parent_choices, architecture.parents, strict=True)):
            for other_parents in choices:
                if len(set(chosen) - set(other_parents)) == 1:
                    parents = (*architecture.parents[:row], other_parents, *architecture.parents[row + 1 :])
                    found.append(Cell101(architecture.operations, parents))
        return found

    def crossover(self, first: Cell101, second: Cell101, rng: np.random.Generator) -> Cell101:
        """Each vertex' operation, and each vertex' parents, from either architecture."""
        pick = rng.integers(2, size=2 * self.vertices + 1).tolist()
        operations = zip(first.operations, second.operations, strict=True)
        parents = zip(first.parents, second.parents, strict=True)
        return Cell101(
            tuple(pair[p] for pair, p in zip(operations, pick, strict=False)),
            tuple(pair[p] for pair, p in zip(parents, pick[self.vertices :], strict=True)),
        )

    def canonical(self, architecture: Cell101) -> Cell101:
        """The first architecture, in the order of :meth:`at`, with the same pruned graph up to numbering.

        Such networks are equal but for the odd channels: where the output's channels do not divide evenly, which
        vertex gets one more depends on the numbering.
        """
        return self.at(int(self._first_of_class[self.index(architecture)]))

    def is_connected(self, architecture: Cell101) -> bool:
        """Always: every vertex has a parent, so every path backwards ends at the input."""
        return True

    def check_scale(self, scale: Scale) -> None:
        """As for every space; there is no ImageNet stem in NAS-Bench-101."""
        super().check_scale(scale)
        if scale.stem != "plain":
            raise InputError(f"the plain stem for {self.name}", f"stem={scale.stem!r}")

    def build(self, architecture: Cell101, scale: Scale) -> Network:
        """The network NAS-Bench-101 trained (at ``paper`` scale)."""
        self.check_scale(scale)
        return build_network(architecture, scale)

    def cost(self, architecture: Cell101, scale: Scale) -> Cost:
        """Of the pruned cell in the skeleton."""
        self.check_scale(scale)
        return network_cost(architecture, scale)

    def skeleton(self, scale: Scale, make_cell: MakeCell, affine: bool = True) -> Network:
        """Cells that give the projected input and all vertices out, side by side; see the module's text."""
        return Skeleton101(
            scale, lambda before, channels: make_cell(self.pattern, before, channels), blocks=self.vertices + 1
        )

    @property
    def pattern(self) -> VertexCell:
        """The cell of the supernet."""
        return VertexCell(OPERATIONS_101, PROJECTION, self.links, self.vertices)


class NasBench1Shot1Space1(NasBench1Shot1):
    """Four vertices, nine edges: two parents wherever possible."""

    name = "nasbench1shot1-1"
    parents = (1, 2, 2, 2, 2)


class NasBench1Shot1Space2(NasBench1Shot1):
    """Four vertices, nine edges: three of them into the output."""

    name = "nasbench1shot1-2"
    parents = (1, 1, 2, 2, 3)


class NasBench1Shot1Space3(NasBench1Shot1):
    """Five vertices, nine edges."""

    name = "nasbench1shot1-3"
    parents = (1, 1, 1, 2, 2, 2)


NASBENCH1SHOT1_1 = NasBench1Shot1Space1()
NASBENCH1SHOT1_2 = NasBench1Shot1Space2()
NASBENCH1SHOT1_3 = NasBench1Shot1Space3()
SPACES: Mapping[str, NasBench1Shot1] = {
    space.name: space for space in (NASBENCH1SHOT1_1, NASBENCH1SHOT1_2, NASBENCH1SHOT1_3)
}
"""The three spaces by name."""
