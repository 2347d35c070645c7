"""What a space with a supernet says of itself, so that every method on supernets searches it: the one contract.

A supernet is ``supernet(x, weights, active=None)`` with one weight tensor (rows, columns) for each decision
(:meth:`SupernetSpace.supernet` makes it, see :mod:`archwright.supernets.base`). From what follows, searches find one
architecture:

- *decisions* (of every space) have one row of weights for each place that something is chosen for;
- :meth:`~SupernetSpace.columns` names what a decision chooses among, :meth:`~SupernetSpace.candidates` the columns that
  may be chosen (all but ``none``), :meth:`~SupernetSpace.skips` those that pass their input on as it is;
- :attr:`~SupernetSpace.links` names the decisions that choose inputs instead of operations,
  :attr:`~SupernetSpace.picks` how many of a row are chosen;
- :meth:`~SupernetSpace.derive` makes the architecture of the largest weights;
  :meth:`~SupernetSpace.perturbation_scores` gives it what the network misses instead (Wang et al., 2021);
- :attr:`~SupernetSpace.draws` are the independent rows a search samples from, :meth:`~SupernetSpace.weights_of` a
  sample as weights of the supernet, and :meth:`~SupernetSpace.derive_draws` the architecture of the largest entries.

Nothing here knows cells: these are :mod:`archwright.spaces.cell_space`, a user's own network is
:mod:`archwright.spaces.model_space`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from archwright.errors import InputError
from archwright.spaces.base import A, Scale, Space
from archwright.spaces.operations import Cost

if TYPE_CHECKING:
    from archwright.supernets.base import Supernet

DecisionScores = Mapping[str, NDArray[np.floating[Any]]]
Masks = dict[str, NDArray[np.bool_]]


@dataclass(frozen=True)
class DrawnRows:
    """Rows a search draws from independently: ``picks`` ones in each of ``rows`` rows of ``columns``.

    ``allowed`` are the columns that may be drawn.
    """

    rows: int
    columns: int
    allowed: tuple[int, ...]
    picks: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (rows, columns) of what is drawn."""
        return self.rows, self.columns


class SupernetSpace(Space[A]):
    """A space with a supernet; see the module's text."""

    fewest_cells: ClassVar[int] = 1
    """The least ``scale.cells`` with which every kind of cell occurs."""
    edges_compete: ClassVar[bool] = False
    """Whether a node keeps only some of its edges, so that edges, too, are compared by their weights."""

    # --- what a space must say ---

    @abstractmethod
    def supernet(self, scale: Scale, **options: Any) -> Supernet:
        """A fresh supernet of all architectures.

        Args:
            scale: of the network.
            options: of the kind of supernet, such as ``partial`` (one in so many channels goes through the operations)
                and ``downsample`` (``strided`` or ``pooled``); a space without a choice refuses what it cannot do.
        """

    @abstractmethod
    def columns(self, decision: str) -> tuple[str, ...]:
        """What each column of ``decision`` stands for."""

    @abstractmethod
    def check_partial(self, channels: int, partial: int) -> None:
        """Refuse partial channels that the supernet cannot have.

        Args:
            channels: of the supernet.
            partial: one in so many channels goes through the operations; 1 for all.
        """

    # --- what it may say ---

    def candidates(self, decision: str) -> NDArray[np.intp]:
        """Columns of ``decision`` that may be chosen: all but ``none``."""
        return np.array([column for column, name in enumerate(self.columns(decision)) if name != "none"])

    def skips(self, decision: str) -> tuple[int, ...]:
        """Columns of ``decision`` that pass their input on as it is."""
        return tuple(column for column, name in enumerate(self.columns(decision)) if name == "skip_connect")

    def place(self, decision: str, row: int) -> str:
        """Where row number ``row`` of ``decision`` chooses, for people."""
        return decision if self.decisions[decision][0] == 1 else f"{decision} {row + 1}"

    def reported(self) -> dict[str, list[str]]:
        """Decisions whose rows are looked at together when a search reports of itself, by a name for people."""
        return {name: [name] for name in self.decisions}

    def supernet_cost(self, scale: Scale) -> Cost:
        """At most what a supernet at ``scale`` has: every candidate everywhere."""
        one = self.cost(self.sample(np.random.default_rng(0)), scale)
        most = max(columns for _, columns in self.decisions.values())
        return Cost(one.params * most, one.macs * most)

    @property
    def supernet_name(self) -> str:
        """Spaces of the same one have the same supernet, so that a trained one serves them all."""
        return self.name

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
    def draws(self) -> dict[str, DrawnRows]:
        """The independent choices of a sample: here the decisions themselves."""
        picks = self.picks
        return {
            name: DrawnRows(rows, columns, tuple(self.candidates(name).tolist()), picks[name])
            for name, (rows, columns) in self.decisions.items()
        }

    def weights_of(self, drawn: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The supernet's weights (shapes of :attr:`decisions`) of a sample (shapes of :attr:`draws`)."""
        return dict(drawn)

    def derive_draws(self, scores: DecisionScores) -> A:
        """The architecture of the largest ``scores`` (shapes of :attr:`draws`)."""
        return self.derive(scores)

    # --- what follows ---

    @property
    def operation_decisions(self) -> list[str]:
        """The decisions that choose operations."""
        return [name for name in self.decisions if name not in self.links]

    def strongest_columns(self, decision: str, weights: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
        """Column of the strongest candidate in each row.

        Args:
            decision: its name.
            weights: of its choices, (rows, columns).
        """
        candidates = self.candidates(decision)
        columns: NDArray[np.intp] = candidates[np.asarray(weights)[:, candidates].argmax(axis=1)]
        return columns

    def strongest_rows(self, decision: str, weights: NDArray[np.floating[Any]]) -> NDArray[np.int8]:
        """0/1 rows of the largest weights of one decision, as many a row as it picks.

        Args:
            decision: its name.
            weights: of its choices, (rows, columns).
        """
        chosen = np.zeros(weights.shape, dtype=np.int8)
        allowed = self.candidates(decision)
        order = np.argsort(-weights[:, allowed], axis=1, kind="stable")[:, : self.picks[decision]]
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
            candidates = self.candidates(name)
            losses = [_loss_without(on, loss_of, name, row, int(column)) for column in candidates]
            chosen[name, row] = int(candidates[np.argmax(losses)])
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


def as_supernet_space(space: Space[Any]) -> SupernetSpace[Any]:
    """``space`` if it has a supernet; an :class:`InputError` that says so if not."""
    if isinstance(space, SupernetSpace):
        return space
    raise InputError(
        "a space with a supernet: nasbench201, darts, nasbench1shot1-1 to -3, a CellSpace of your own, or your own "
        "network with choices in it (model:FILE.py:OBJECT)",
        f"the space {space.name!r}, which has none",
    )
