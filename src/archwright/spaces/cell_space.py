"""What a cell space says of itself, so that supernets and their searches serve any of them, yours too.

A cell space is a skeleton of cells (:meth:`CellSpace.skeleton`), each described by a pattern: operations on edges
(:class:`EdgeCell`) or on vertices (:class:`VertexCell`). From the pattern a supernet makes its mixed cells; from what
follows, searches find one architecture:

- *decisions* (of every space) have one row of weights for each place an operation, or a link, is chosen for;
- :attr:`~CellSpace.links` names the decisions that choose inputs instead of operations, :attr:`~CellSpace.picks` how
  many of a row are chosen;
- :meth:`~CellSpace.derive` makes the architecture of the largest weights; :meth:`~CellSpace.perturbation_scores` gives
  it what the network misses instead (Wang et al., 2021);
- :attr:`~CellSpace.choices` are the independent rows a search samples from, :meth:`~CellSpace.weights_of` a sample as
  weights of the supernet, and :meth:`~CellSpace.derive_choices` the architecture of the largest entries.

A space whose edges each carry one operation needs to write only its skeleton: the rest has defaults. The operations of
patterns are named in :data:`archwright.spaces.operations.OPERATIONS`. Nothing here knows a supernet.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.spaces.base import A, Network, Scale, Space
from archwright.spaces.operations import Operation

DecisionScores = Mapping[str, NDArray[np.floating[Any]]]
Masks = dict[str, NDArray[np.bool_]]


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


@dataclass(frozen=True)
class DrawnRows:
    """Rows a search draws from independently: ``picks`` ones in each of ``rows`` rows of ``columns``.

    ``operations`` says whether the columns are the space's operations (else they are inputs of a node).
    """

    rows: int
    columns: int
    picks: int = 1
    operations: bool = True

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (rows, columns) of what is drawn."""
        return self.rows, self.columns


class CellSpace(Space[A]):
    """A space of cells in a skeleton; see the module's text."""

    fewest_channels: ClassVar[int] = 1
    """That an operation of a supernet with partial channels may see."""
    fewest_cells: ClassVar[int] = 1
    """The least ``scale.cells`` with which every kind of cell occurs."""
    edges_compete: ClassVar[bool] = False
    """Whether a node keeps only some of its edges, so that edges, too, are compared by their weights."""

    # --- what a space must, and what it may, say ---

    @property
    def supernet_name(self) -> str:
        """Spaces of the same one have the same supernet, so that a trained one serves them all."""
        return self.name

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

    def supernet_scale(self, scale: Scale) -> Scale:
        """The scale of the supernet in a search whose final networks have ``scale``."""
        return scale.changed(auxiliary=False)

    @property
    def links(self) -> Mapping[str, int]:
        """The decisions that choose inputs rather than operations, and the vertex each is about."""
        return {}

    @property
    def picks(self) -> dict[str, int]:
        """How many ones a row of each decision holds."""
        return dict.fromkeys(self.decisions, 1)

    def derive(self, weights: DecisionScores) -> A:
        """The architecture of the largest ``weights`` (shapes of :attr:`decisions`); of equals, the first.

        The strongest operation of every row, never ``none`` (its weight grows for reasons of scale, not of merit), and
        of every link the strongest in the number the space fixes.
        """
        chosen = {name: self.strongest_rows(name, np.asarray(weights[name])) for name in self.decisions}
        return self.decode(chosen)

    def of_subgraph(self, on: Masks, scores: DecisionScores, rng: np.random.Generator | None) -> A:
        """The architecture of a sub-graph in which any number of operations is on (CoNAS).

        Here :meth:`derive` with what is on before what is off, and by ``scores`` among equals.

        Args:
            on: shapes of :attr:`decisions`.
            scores: what each operation or link is worth, of the same shapes.
            rng: draws among what is on, in spaces that choose at random; None takes the largest score.
        """
        span = 1.0 + max(float(np.ptp(scores[name])) for name in self.decisions)
        return self.derive({name: np.asarray(scores[name]) + span * on[name] for name in self.decisions})

    @property
    def choices(self) -> dict[str, DrawnRows]:
        """The independent choices of a sample: here the decisions themselves."""
        picks, links = self.picks, self.links
        return {
            name: DrawnRows(rows, columns, picks[name], name not in links)
            for name, (rows, columns) in self.decisions.items()
        }

    def weights_of(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The supernet's weights (shapes of :attr:`decisions`) of a sample (shapes of :attr:`choices`)."""
        return dict(drawn)

    def derive_choices(self, scores: DecisionScores) -> A:
        """The architecture of the largest ``scores`` (shapes of :attr:`choices`)."""
        return self.derive(scores)

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

    @property
    def operation_decisions(self) -> list[str]:
        """The decisions whose columns are the space's operations."""
        return [name for name in self.decisions if name not in self.links]

    @property
    def candidates(self) -> NDArray[np.intp]:
        """Columns of the operations that may be chosen: all but ``none``."""
        return np.array([column for column, name in enumerate(self.operations) if name != "none"])

    def strongest_columns(self, weights: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
        """Column of the strongest operation other than ``none`` in each row of ``weights`` (rows, operations)."""
        candidates = self.candidates
        columns: NDArray[np.intp] = candidates[np.asarray(weights)[:, candidates].argmax(axis=1)]
        return columns

    def strongest_rows(self, name: str, weights: NDArray[np.floating[Any]]) -> NDArray[np.int8]:
        """0/1 rows of the largest weights of one decision, as many a row as it picks.

        Args:
            name: of the decision.
            weights: of its choices, (rows, columns).
        """
        chosen = np.zeros(weights.shape, dtype=np.int8)
        allowed = np.arange(weights.shape[1]) if name in self.links else self.candidates
        order = np.argsort(-weights[:, allowed], axis=1, kind="stable")[:, : self.picks[name]]
        np.put_along_axis(chosen, allowed[order], 1, axis=1)
        return chosen

    def perturbation_scores(
        self, loss_of: Callable[[Masks], float], rng: np.random.Generator
    ) -> dict[str, NDArray[np.float64]]:
        """Scores for :meth:`derive`: how much the loss rises when a choice is taken away.

        Rows of operations are settled one after another in random order: each keeps the operation that is missed most,
        and the others of that row stay off from then on. Where edges or links compete, their score is the loss without
        them, taken after all operations are settled. Unlike the paper there is no fine-tuning between two decisions.

        Args:
            loss_of: validation loss of the supernet with only these operations on.
            rng: of the order.
        """
        on: Masks = {name: np.ones(shape, dtype=bool) for name, shape in self.decisions.items()}
        scores = {name: np.full(shape, -np.inf) for name, shape in self.decisions.items()}
        slots = [(name, row) for name in self.operation_decisions for row in range(self.decisions[name][0])]
        chosen: dict[tuple[str, int], int] = {}
        for index in rng.permutation(len(slots)):
            name, row = slots[int(index)]
            losses = [_loss_without(on, loss_of, name, row, int(column)) for column in self.candidates]
            chosen[name, row] = int(self.candidates[np.argmax(losses)])
            on[name][row] = False
            on[name][row, chosen[name, row]] = True
        for (name, row), column in chosen.items():
            scores[name][row, column] = _loss_without(on, loss_of, name, row, column) if self.edges_compete else 0.0
        for name in self.links:
            for row, column in np.ndindex(self.decisions[name]):
                scores[name][row, column] = _loss_without(on, loss_of, name, row, column)
        return scores


def _loss_without(on: Masks, loss_of: Callable[[Masks], float], name: str, row: int, column: int) -> float:
    fewer = {other: mask.copy() for other, mask in on.items()}
    fewer[name][row, column] = False
    return loss_of(fewer)


def as_cell_space(space: Space[Any]) -> CellSpace[Any]:
    """``space`` if it is a cell space; an :class:`InputError` that says so if not."""
    if isinstance(space, CellSpace):
        return space
    raise InputError(
        "a cell space (nasbench201, darts, nasbench1shot1-1 to -3, or a CellSpace of your own)",
        f"the space {space.name!r}, which has no cell supernet",
    )
