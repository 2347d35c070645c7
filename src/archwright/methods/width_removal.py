"""Which channels stay: the widths of all groups at once, exactly, then the best channels of each.

A group of channels keeps its k best. What that is worth adds up over groups; what it costs adds up too, as long as one
does not go far from a network that is known. So the widths within a limit are a multiple-choice knapsack: one width a
group, the highest worth, the cost within the limit. It is solved exactly (:mod:`archwright.solvers`), around a network
that keeps the limit with the same share of every group, then around what was found, as long as the worth rises. What
the chosen widths really cost is counted by formula, or timed, and held to the limit.

Where a score says nothing of a loss (:attr:`~archwright.methods.width_scores.Score.by_resource`), every channel has the
same price: those of the lowest scores go, as many as the limit asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from archwright.costs.layers import NetworkTimes
from archwright.costs.limits import met
from archwright.errors import InfeasibleError
from archwright.solvers import milp, pareto
from archwright.solvers.problem import Solution, StagedChoice, StagedProblem
from archwright.spaces.width import Width, WidthSpace
from archwright.supernets.scored import Scores

Floats = NDArray[np.float64]
Shape = tuple[int, ...]
"""How many channels of each scored group stay."""

HALF_STEP = 8
"""Outputs that processors with steps of sixteen take nearly as well."""
MOST_OPTIONS = 24
"""Widths of a group that are looked at; of wide groups every second or third step."""
ROUNDS = 4
"""Problems that are solved, each around the answer of the one before."""
BISECTIONS = 12
"""Of the budget, until what a choice really costs is as near below the limit as it can be."""
LOOSEST = 2.0
"""Times the limit that a budget may be, where the sum of single savings says too much of the cost."""
CHANNELS = "channels"


@dataclass(frozen=True)
class Chosen:
    """Widths within limits.

    Attributes:
        width: the channels that stay.
        value: what they are worth.
        costs: of the network, by resource; a latency is predicted.
        bound: no choice of widths is worth more at the same cost, as costs add up around it.
        gap: bound less value.
    """

    width: Width
    shape: Shape
    value: float
    costs: Mapping[str, float]
    bound: float
    gap: float


def widths_of(channels: int, members: int, least: int, step: int) -> list[int]:
    """Widths that a group may have, rising: on the steps of the device, and all its channels.

    Args:
        channels: that it has.
        members: outputs of a layer that go with each.
        least: that stay.
        step: outputs of a step; of a group with fewer than four of them half a step, of a narrow one less.
    """
    if step > HALF_STEP and 4 * step > channels * members:
        step = HALF_STEP
    while step > 1 and 2 * step > channels * members:
        step //= 2
    found = [one for one in range(least, channels) if one * members % step == 0]
    thinned = found[:: -(-len(found) // MOST_OPTIONS) or 1]
    return [*thinned, channels] if thinned else sorted({least, channels})


@dataclass
class Removal:
    """Chooses widths of the network of ``space``.

    Attributes:
        space: of the network.
        scores: the groups that may lose channels.
        values: worth of every channel, (total,).
        by_resource: whether channels are weighed against what they cost.
        keep: least share of a group that stays.
        step: outputs of a step of the device; 1 for any width.
        times: of its layers, where a latency is predicted.
    """

    space: WidthSpace
    scores: Scores
    values: Floats
    by_resource: bool = True
    keep: float = 0.2
    step: int = 1
    times: NetworkTimes | None = None

    # --- the choices ---

    @cached_property
    def least(self) -> list[int]:
        """How many channels of each group stay at least."""
        return [max(1, int(np.ceil(self.keep * group.channels - 1e-9))) for group in self.scores.groups]

    @cached_property
    def options(self) -> list[list[int]]:
        """Widths that each group may have, rising."""
        return [
            widths_of(group.channels, len(group.members[0]), least, self.step)
            for group, least in zip(self.scores.groups, self.least, strict=True)
        ]

    @cached_property
    def order(self) -> list[NDArray[np.int64]]:
        """Channels of each group, the best first."""
        return [np.argsort(-self.scores.of_group(one, self.values), kind="stable") for one in self.scores.groups]

    @cached_property
    def worth(self) -> list[Floats]:
        """Of each group: what its k best channels are worth together, k = 0, 1, ..."""
        return [
            np.concatenate([[0.0], np.cumsum(self.scores.of_group(group, self.values)[order])])
            for group, order in zip(self.scores.groups, self.order, strict=True)
        ]

    def value(self, shape: Shape) -> float:
        """What the best channels of these widths are worth."""
        return float(sum(own[k] for own, k in zip(self.worth, shape, strict=True)))

    def kept(self, shape: Sequence[int]) -> Width:
        """The architecture of these widths: the best channels of each group."""
        mask = np.zeros(self.scores.total, dtype=np.int8)
        for group, order, k in zip(self.scores.groups, self.order, shape, strict=True):
            mask[self.scores.offsets[group.name] + order[:k]] = 1
        return self.scores.kept(mask)

    @property
    def thinnest(self) -> Shape:
        """The least width of every group."""
        return tuple(one[0] for one in self.options)

    @property
    def full(self) -> Shape:
        """The widths of the whole network."""
        return tuple(one[-1] for one in self.options)

    # --- costs ---

    def costs(self, shape: Sequence[int]) -> dict[str, float]:
        """Parameters, multiply-accumulates and channels by formula, and the latency that is predicted."""
        stays = {group.name: order[:k] for group, order, k in zip(self.scores.groups, self.order, shape, strict=True)}
        return self.costs_of({**self._everything, **stays})

    @cached_property
    def _everything(self) -> dict[str, NDArray[np.int64]]:
        return {group.name: np.arange(group.channels) for group in self.space.structure.groups}

    def costs_of(self, channels: Mapping[str, Sequence[int] | NDArray[np.int64]]) -> dict[str, float]:
        """The same of the channels that stay, by group."""
        cost = self.space.structure.cost(channels)
        count = sum(map(len, channels.values()))
        found: dict[str, float] = {"params": cost.params, "macs": cost.macs, CHANNELS: count}
        if self.times is not None:
            found["latency_ms"] = self.times.latency_ms(self.space.structure.widths(channels))
        return found

    def check(self, limits: Mapping[str, float]) -> None:
        """Refuse limits below what the least widths cost."""
        least, whole = self.costs(self.thinnest), self.costs(self.full)
        low = [name for name, limit in limits.items() if name in least and least[name] > limit]
        if low:
            asked = ", ".join(f"{name} <= {limits[name]:.6g}" for name in low)
            ranges = ", ".join(f"{name} from {least[name]:.6g} to {whole[name]:.6g}" for name in low)
            steps = f", on steps of {self.step}" if self.step > 1 else ""
            raise InfeasibleError(
                f"no architecture meets {asked}. Reachable: {ranges} ({self.keep:.0%} of each group's channels stay"
                f"{steps}). Raise the limit, or lower --keep{' or --step' if steps else ''}."
            )

    # --- solving ---

    def best(self, limits: Mapping[str, float]) -> Chosen:
        """The widths of highest worth within ``limits``, by resource."""
        self.check(limits)
        if met(limits, self.costs(self.full)):
            return self._chosen(self.full, self.value(self.full))
        if not self.by_resource:
            return self._within(self._counted(), {CHANNELS: 0.0}, limits)
        centre, best = self.uniform(limits).shape, None
        for _ in range(ROUNDS):
            tables, base = self._around(centre, limits)
            found = self._within(tables, base, limits)
            if best is not None and found.value <= best.value:
                break
            best, centre = found, found.shape
        assert best is not None
        return best

    def uniform(self, limits: Mapping[str, float]) -> Chosen:
        """The same share of every group, as large as the limits allow: what one would take without scores."""
        self.check(limits)
        low, high, found = 0.0, 1.0, self.thinnest
        for share in (1.0, *[None] * BISECTIONS):
            tried = (low + high) / 2 if share is None else share
            shape = tuple(
                max([k for k in options if k <= tried * options[-1] + 1e-9], default=options[0])
                for options in self.options
            )
            if met(limits, self.costs(shape)):
                low, found = tried, shape
                if share is not None:
                    break
            else:
                high = tried
        for number, options in enumerate(self.options):  # what rounding to steps has left over
            wider = [k for k in options if k > found[number]][:1]
            tried_shape = (*found[:number], *(wider or [found[number]]), *found[number + 1 :])
            found = tried_shape if met(limits, self.costs(tried_shape)) else found
        return self._chosen(found, self.value(found))

    def _chosen(self, shape: Shape, bound: float) -> Chosen:
        value = self.value(shape)
        return Chosen(self.kept(shape), shape, value, self.costs(shape), max(bound, value), max(0.0, bound - value))

    def _around(self, centre: Shape, limits: Mapping[str, float]) -> tuple[dict[str, list[Floats]], dict[str, float]]:
        """What each width of each group adds to the cost of ``centre``, and that cost, of the limited resources."""
        base = self.costs(centre)
        tables: dict[str, list[Floats]] = {name: [] for name in limits}
        for number, options in enumerate(self.options):
            changed = [self.costs((*centre[:number], k, *centre[number + 1 :])) for k in options]
            for name, table in tables.items():
                table.append(np.array([one[name] - base[name] for one in changed]))
        return tables, base

    def _counted(self) -> dict[str, list[Floats]]:
        """A table of costs in which every channel costs one."""
        return {CHANNELS: [np.array(options, dtype=float) for options in self.options]}

    def _within(
        self, tables: Mapping[str, list[Floats]], base: Mapping[str, float], limits: Mapping[str, float]
    ) -> Chosen:
        """The best choice by additive ``tables`` whose real costs keep the limits, by bisection of the budget.

        Args:
            tables: by resource, for each group what each of its widths adds.
            base: what is added to, by resource.
            limits: on the real costs.
        """
        least = {name: base[name] + sum(one.min() for one in own) for name, own in tables.items()}
        most = {name: base[name] + sum(one.max() for one in own) for name, own in tables.items()}
        ends = {name: LOOSEST * limits[name] if name in limits else most[name] for name in tables}
        best = self._chosen(self.thinnest, self.value(self.thinnest))
        low, high = 0.0, 1.0
        for _ in range(BISECTIONS):
            part = (low + high) / 2
            budget = {name: least[name] + part * max(0.0, ends[name] - least[name]) for name in tables}
            solution = self._solved(tables, base, budget)
            shape = tuple(options[k] for options, k in zip(self.options, chosen_items(solution.choice), strict=True))
            if met(limits, self.costs(shape)):
                low = part
                found = self._chosen(shape, solution.bound)
                best = max(best, found, key=lambda one: one.value)
            else:
                high = part
        return best

    def _solved(
        self, tables: Mapping[str, list[Floats]], base: Mapping[str, float], budget: Mapping[str, float]
    ) -> Solution:
        """The exact answer of one multiple-choice knapsack.

        Args:
            tables: by resource, for each group what each of its widths adds.
            base: what is added to, by resource.
            budget: on the sums.
        """
        worth = [own[options] for own, options in zip(self.worth, self.options, strict=True)]
        problem, offsets = knapsack(worth, tables)
        room = {name: budget[name] - base[name] - offsets[name] for name in tables}
        if len(room) == 1:
            (name,) = room
            return pareto.solve(problem, name, max(room[name], 0.0))
        return milp.solve(problem, {name: max(one, 0.0) for name, one in room.items()})


def knapsack(worth: Sequence[Floats], tables: Mapping[str, Sequence[Floats]]) -> tuple[StagedProblem, dict[str, float]]:
    """Choose one item of each group: a staged problem of one block a stage, and what was taken off every cost.

    Costs are counted from the least of their group on, so that none is negative.

    Args:
        worth: for each group that of its items.
        tables: by resource, for each group the costs of its items.
    """
    groups, most = len(worth), max(map(len, worth))

    def padded(rows: Sequence[Floats]) -> Floats:
        found = np.zeros((groups, 1, most))
        for row, own in zip(found[:, 0], rows, strict=True):
            row[: len(own)] = own
        return found

    offsets = {name: float(sum(own.min() for own in rows)) for name, rows in tables.items()}
    allowed = padded([np.ones(len(own)) for own in worth]).astype(bool)
    costs = {name: padded([own - own.min() for own in rows]) for name, rows in tables.items()}
    problem = StagedProblem(
        padded(worth), costs, np.zeros((groups, 1)), {}, ((1,),) * groups, 0.0, {}, allowed_configurations=allowed
    )
    return problem, offsets


def chosen_items(choice: StagedChoice) -> list[int]:
    """The item of each group that a solution of :func:`knapsack` takes."""
    return [int(one) for one in choice.configurations[:, 0]]


def in_units_of_groups(values: NDArray[Any], sizes: Sequence[int]) -> Floats:
    """Scores in units of their group's mean.

    A layer that is followed by a batch norm does not see a factor common to all its inputs, so the level of a group's
    trained scores says nothing; within a group they compete.

    Args:
        values: scores, group after group.
        sizes: channels of each group.
    """
    groups = np.split(np.asarray(values, dtype=float), np.cumsum(sizes)[:-1])
    return np.concatenate([own / max(float(own.mean()), 1e-12) for own in groups])
