"""The choices of a user's network: what they are called, which hang together, and how many architectures they allow.

Nothing here knows a space: networks and the modules of :mod:`archwright.nn` are all that is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from torch import nn

from archwright.nn import Guide, Searched, Zero, outermost
from archwright.spaces.operations import Zero as ZeroOperation

NOTHING = (Zero, ZeroOperation)
"""Modules that give zeros."""


def inside(choice: Searched) -> list[Searched]:
    """All choices in the options of ``choice``."""
    found: list[Searched] = []
    for _, part in choice.inner():
        for _, one in outermost(part):
            found += [one, *inside(one)]
    return found


def named(network: nn.Module, picks: Mapping[str, str] | None = None) -> dict[str, Searched]:
    """All choices by their place, each with the name of its decision: the user's, or its place.

    Args:
        network: whose choices are given their names; options that are made later are made now.
        picks: options by decision; nothing inside other options is looked at, or made.
    """
    found: dict[str, Searched] = {}

    def walk(module: nn.Module, place: str) -> None:
        for here, one in outermost(module, place):
            if any(known is one for known in found.values()):
                continue
            one.decision = one.name or here or "choice"
            found[here or "choice"] = one
            for name, part in one.inner(None if picks is None else picks[one.decision]):
                walk(part, f"{here}.{name}" if here else name)

    walk(network, "")
    return found


def count(places: Sequence[Searched], picks: Mapping[str, str]) -> int:
    """How many different architectures the choices ``places`` have, some decisions being made in ``picks``."""
    return prod(_count_group(group, picks) for group in groups(places, picks))


def _count_group(group: list[Searched], picks: Mapping[str, str]) -> int:
    first, rest = group[0], group[1:]
    options = [picks[first.decision]] if first.decision in picks else first.options
    return sum(count([*rest, *_inside_option(first, option)], {**picks, first.decision: option}) for option in options)


def _inside_option(choice: Searched, option: str) -> list[Searched]:
    return [one for _, module in choice.inner(option) for _, one in outermost(module)]


def groups(places: Sequence[Searched], picks: Mapping[str, str]) -> list[list[Searched]]:
    """The choices ``places`` in parts that have no decision in common but those made in ``picks``."""
    found: list[tuple[set[str], list[Searched]]] = []
    for one in places:
        names = {other.decision for other in (one, *inside(one))} - set(picks)
        joined, members, others = set(names), [], []
        for known, group in found:
            if known & names:
                joined |= known
                members += group
            else:
                others.append((known, group))
        found = [*others, (joined, [*members, one])]
    return [group for _, group in found]


def combinations(places: Sequence[Searched], picks: dict[str, str]) -> Iterator[dict[str, str]]:
    """All different options by decision that ``places`` have beside ``picks``; only reached ones are named."""
    if not places:
        yield picks
        return
    first, rest = places[0], list(places[1:])
    options = [picks[first.decision]] if first.decision in picks else first.options
    for option in options:
        yield from combinations([*_inside_option(first, option), *rest], {**picks, first.decision: option})


def without_in_place(network: nn.Module) -> None:
    """Let no module of ``network`` work in place: it would change what other options are given."""
    for module in network.modules():
        if getattr(module, "inplace", False) is True:
            module.inplace = False  # type: ignore[assignment]


class guided:
    """Inside, ``guide`` decides for the choices."""

    def __init__(self, choices: Iterable[Searched], guide: Guide) -> None:
        self.choices, self.guide = list(choices), guide

    def __enter__(self) -> None:
        for one in self.choices:
            one.guide = self.guide

    def __exit__(self, *_error: object) -> None:
        for one in self.choices:
            one.guide = None
