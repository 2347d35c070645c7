"""What a cell space says of itself, so that supernets and their searches serve any of them, yours too.

A cell space is a skeleton of cells (:meth:`CellSpace.skeleton`), each described by a pattern: operations on edges
(:class:`EdgeCell`) or on vertices (:class:`VertexCell`). From the pattern a supernet makes its mixed cells; how
searches find one architecture is the contract of :mod:`archwright.spaces.supernet_space`.

A space whose edges each carry one operation needs to write only its skeleton: the rest has defaults. The operations of
patterns are named in :data:`archwright.spaces.operations.OPERATIONS`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from torch import nn

from archwright.errors import InputError
from archwright.spaces.base import A, Network, Scale, Space
from archwright.spaces.operations import Operation
from archwright.spaces.supernet_space import SupernetSpace

if TYPE_CHECKING:
    from archwright.supernets.base import Supernet


@dataclass(frozen=True)
class EdgeCell:
    """A cell whose edges carry operations; a node is the sum of its incoming edges.

    Attributes:
        decision: name of the decision whose rows are the edges.
        edges: (source, target) of each row; input nodes are numbered first.
        inputs: number of input nodes.
        join: ``last`` gives the last node out, ``concat`` all nodes that are not inputs, side by side.
        reduction: whether edges that leave an input node halve the image.
    """

    decision: str
    edges: tuple[tuple[int, int], ...]
    inputs: int = 1
    join: Literal["last", "concat"] = "last"
    reduction: bool = False


@dataclass(frozen=True)
class VertexCell:
    """A cell whose vertices carry operations and choose their parents, as in NAS-Bench-101.

    Attributes:
        operations: candidates of every vertex.
        projection: what the cell's input goes through on its way to a vertex or the output.
        links: the vertex that each decision on parents is about; a vertex without one takes all earlier ones.
        vertices: with an operation; the output is vertex ``vertices + 1``.
    """

    operations: tuple[Operation, ...]
    projection: Operation
    links: Mapping[str, int]
    vertices: int


MakeCell: TypeAlias = Callable[[EdgeCell | VertexCell, int, int], nn.Module]
"""From a pattern, the channels of the cell's input and those of its nodes, the cell."""


class CellSpace(SupernetSpace[A]):
    """A space of cells in a skeleton; see the module's text."""

    fewest_channels: ClassVar[int] = 1
    """That an operation of a supernet with partial channels may see."""

    # --- what a space must, and what it may, say ---

    @abstractmethod
    def skeleton(self, scale: Scale, make_cell: MakeCell, affine: bool = True) -> Network:
        """The network around the cells; its ``forward(x, *arguments)`` hands the arguments on to every cell.

        For :class:`EdgeCell` patterns ``build`` must give the same skeleton with a stand-alone cell at every place,
        whose ``edges`` list one module for each operation of :meth:`kept`, in that order.

        Args:
            scale: of the network.
            make_cell: called once for each place.
            affine: whether batch norms that belong to a cell's inputs have trainable parameters.
        """

    def supernet(self, scale: Scale, **options: Any) -> Supernet:
        """Mixed cells in the skeleton.

        Args:
            scale: of the network.
            options: further arguments of :class:`~archwright.supernets.cell.CellSupernet`.
        """
        from archwright.supernets.cell import CellSupernet  # which is made of cell spaces

        return CellSupernet(self, scale, **options)

    def columns(self, decision: str) -> tuple[str, ...]:
        """The space's operations, or the inputs of the link ``decision``."""
        if decision in self.links:
            return tuple(f"from {column}" for column in range(self.decisions[decision][1]))
        return self.operations

    def place(self, decision: str, row: int) -> str:
        """``normal 0>2`` for an edge, the number of a vertex, or the link itself.

        Args:
            decision: its name.
            row: in it.
        """
        if decision in self.links:
            return decision
        ends = self._edges.get(decision)
        return f"{decision} {row + 1}" if ends is None else f"{decision} {ends[row][0]}>{ends[row][1]}"

    @cached_property
    def _edges(self) -> dict[str, tuple[tuple[int, int], ...]]:
        """(source, target) of every row of the decisions on edges, as the skeleton's patterns say."""
        found: dict[str, tuple[tuple[int, int], ...]] = {}

        def look(pattern: EdgeCell | VertexCell, _before: int, _channels: int) -> nn.Module:
            if isinstance(pattern, EdgeCell):
                found[pattern.decision] = pattern.edges
            return nn.Identity()

        with torch.device("meta"):
            self.skeleton(self.scales["small"], look)
        return found

    def kept(self, architecture: A) -> dict[str, list[tuple[int, str]]]:
        """For each decision on edges, (row, operation) of every module of a stand-alone cell, in its order."""
        encoding = self.encode(architecture)
        return {
            name: [(int(row), self.operations[column]) for row, column in np.argwhere(encoding[name])]
            for name in self.operation_decisions
        }

    # --- what follows ---

    def check_partial(self, channels: int, partial: int) -> None:
        """Refuse partial channels that do not divide ``channels``, or leave an operation too few.

        Args:
            channels: of the first cell.
            partial: one in so many channels goes through the operations.
        """
        least = self.fewest_channels * partial
        if channels % partial or channels < least:
            raise InputError(
                f"at least {least} channels, divisible by {partial} (--partial-channels), in the space {self.name!r}",
                str(channels),
            )


def as_cell_space(space: Space[Any]) -> CellSpace[Any]:
    """``space`` if it is a cell space; an :class:`InputError` that says so if not."""
    if isinstance(space, CellSpace):
        return space
    raise InputError(
        "a cell space (nasbench201, darts, nasbench1shot1-1 to -3, or a CellSpace of your own)",
        f"the space {space.name!r}, which has no cell supernet",
    )
