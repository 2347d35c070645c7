"""Upper limits on what a network may cost: the one list of resources, and the one check that limits can be met.

A limit that nothing meets is an :class:`InfeasibleError` with the reachable range, before any expensive work. The range
is exact where the space can be gone through or its costs add up over its decisions; elsewhere it is of a sample, and
the message says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from archwright.errors import InfeasibleError, InputError, unknown_name

if TYPE_CHECKING:
    from archwright.spaces.base import Architecture, Space

Costs = Mapping[str, float]
"""A number for each resource that is known of a network."""
Limits = Mapping[str, float]
"""Upper limits by resource."""


class Resource(NamedTuple):
    """What can be limited: the unit its numbers are printed with, and what it is."""

    unit: str
    meaning: str


RESOURCES = {
    "params": Resource("parameters", "parameters"),
    "macs": Resource("multiply-accumulates", "multiply-accumulates"),
    "latency_ms": Resource("ms", "latency in milliseconds"),
    "channels": Resource("channels", "channels that stay in layers that may lose some"),
    "memory_bytes": Resource("bytes", "weights and activations of one image in bytes"),
}
MOST_ENUMERATED = 30_000
"""Architectures of a space that are all looked at."""
SAMPLED = 500
"""Random architectures among which one that meets the limits is looked for first."""
STARTS = 100
"""Random architectures that the cheapest and the dearest one are walked to from."""


def said_limits(limits: Limits) -> str:
    """``0.35 ms``, for people."""
    return ", ".join(f"{limit:.4g} {RESOURCES[name].unit}" for name, limit in limits.items())


def met(limits: Limits, costs: Costs) -> bool:
    """Whether ``costs`` are within all ``limits``."""
    return all(costs[name] <= limit for name, limit in limits.items())


@dataclass(frozen=True)
class Reachable:
    """Which costs the architectures of a space have.

    Attributes:
        ranges: least and greatest cost of each resource that is known; limits on others are not judged yet.
        how: what the ranges were found from.
        costs: of the architectures looked at; empty where only the ranges are known.
    """

    ranges: Mapping[str, tuple[float, float]]
    how: str
    costs: Sequence[Costs] = ()

    def check(self, limit_sets: Sequence[Limits]) -> None:
        """Refuse limits that are no numbers, of unknown resources, or that no architecture meets."""
        for limits in limit_sets:
            check_numbers(limits)
            known = {name: limit for name, limit in limits.items() if name in self.ranges}
            too_low = any(limit < self.ranges[name][0] for name, limit in known.items())
            if too_low or (known and self.costs and not any(met(known, costs) for costs in self.costs)):
                raise self._refusal(known)

    def _refusal(self, limits: Limits) -> InfeasibleError:
        asked = ", ".join(f"{name} <= {limit:.6g}" for name, limit in limits.items())
        ranges = ", ".join(f"{n} from {low:.6g} to {high:.6g}" for n, (low, high) in self.ranges.items() if n in limits)
        together = " together" if all(limit >= self.ranges[name][0] for name, limit in limits.items()) else ""
        return InfeasibleError(
            f"no architecture meets {asked}{together}. Reachable: {ranges} ({self.how}). Raise the limit."
        )


def check_numbers(limits: Limits) -> None:
    """Refuse limits of unknown resources and limits that are no numbers."""
    for name, limit in limits.items():
        if name not in RESOURCES:
            raise unknown_name("limit", name, RESOURCES)
        if not isfinite(limit):
            raise InputError(f"a number as limit of {name}", str(limit))


CostOf = Callable[["Architecture"], Costs]


def check_reachable(space: Space[Any], cost_of: CostOf, limit_sets: Sequence[Limits], rng: np.random.Generator) -> None:
    """Refuse limits that no architecture of ``space`` meets; mostly a few random ones show that some do.

    Args:
        space: of the architectures.
        cost_of: what an architecture takes of each resource that is limited.
        limit_sets: limits by resource; each set must be met by some architecture.
        rng: draws the architectures that are looked at.
    """
    waiting = list(limit_sets)
    for limits in waiting:
        check_numbers(limits)
    for _ in range(SAMPLED):
        drawn = space.sample(rng)
        if waiting and space.is_connected(drawn):
            costs = cost_of(drawn)
            waiting = [limits for limits in waiting if not met(limits, costs)]
        if not waiting:
            return
    reachable(space, cost_of, waiting, rng).check(waiting)


def reachable(space: Space[Any], cost_of: CostOf, limit_sets: Sequence[Limits], rng: np.random.Generator) -> Reachable:
    """The costs of ``space`` as far as ``limit_sets`` ask for them.

    Where the space is too large to go through, walks go from random architectures to the best neighbour while it is
    better. Where costs add up over the decisions (``space.additive_costs``) they end at the least and the greatest
    cost there is.

    Args:
        space: of the architectures.
        cost_of: what an architecture takes of each resource that is limited.
        limit_sets: limits by resource; a walk goes towards each set of several that nothing met so far.
        rng: draws the architectures that walks start from.
    """
    names = list(dict.fromkeys(name for limits in limit_sets for name in limits))
    if space.size <= MOST_ENUMERATED and (everything := space.enumerated()) is not None:
        all_costs = [cost_of(one) for one in everything if space.is_connected(one)]
        return Reachable(_ranges(names, all_costs), f"all {len(all_costs):,} connected architectures", all_costs)
    drawn = [one for one in (space.sample(rng) for _ in range(STARTS)) if space.is_connected(one)]
    costs: list[Costs] = [cost_of(one) for one in drawn]

    def walk(badness: Callable[[Costs], float]) -> Costs:
        start = int(np.argmin([badness(one) for one in costs[: len(drawn)]]))
        return _walk(space, drawn[start], cost_of, badness)[1]

    for name in names:
        costs += [walk(itemgetter(name)), walk(partial(_minus, name))]
    for limits in limit_sets:
        if len(limits) > 1 and not any(met(limits, one) for one in costs):
            costs.append(walk(partial(_excess, limits)))
    looked_at = f"walks from {len(drawn)} random architectures; others may lie outside"
    return Reachable(_ranges(names, costs), "exact" if space.additive_costs else looked_at, costs)


def walk_within(space: Space[Any], start: Architecture, cost_of: CostOf, limits: Limits) -> Architecture | None:
    """An architecture within limits on the way from one to that which misses them least; None if there is none.

    Args:
        space: whose neighbours are walked.
        start: where the walk begins.
        cost_of: what an architecture takes of each resource that is limited.
        limits: by resource.
    """
    found, costs = _walk(space, start, cost_of, lambda one: max(1.0, _excess(limits, one)))
    return found if met(limits, costs) else None


def _walk(
    space: Space[Any], start: Architecture, cost_of: CostOf, badness: Callable[[Costs], float]
) -> tuple[Architecture, Costs]:
    """From ``start`` to the best neighbour while that is better; where it ends."""
    place, costs = start, cost_of(start)
    while True:
        around = [(one, cost_of(one)) for one in space.neighbours(place) if space.is_connected(one)]
        best = min(around, key=lambda pair: badness(pair[1]), default=(place, costs))
        if badness(best[1]) >= badness(costs):
            return place, costs
        place, costs = best


def _minus(name: str, costs: Costs) -> float:
    return -costs[name]


def _excess(limits: Limits, costs: Costs) -> float:
    """How often the limit that is missed most goes into its cost."""
    return max(costs[name] / limit if limit > 0 else inf for name, limit in limits.items())


def _ranges(names: Sequence[str], costs: Sequence[Costs]) -> dict[str, tuple[float, float]]:
    return {name: (min(one[name] for one in costs), max(one[name] for one in costs)) for name in names}
