"""The registered spaces, and spaces by other texts; listing the registered ones imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from archwright.errors import InputError
from archwright.references import SpaceRef, refer, resolve
from archwright.registry import Entry, Registry

if TYPE_CHECKING:
    from archwright.spaces.base import Space

spaces = Registry(
    "space",
    Entry("nasbench201", "archwright.spaces.nasbench201:NASBENCH201", "6 edges x 5 operations, 15,625 cells"),
    Entry(
        "nasbench1shot1-1", "archwright.spaces.nasbench1shot1:NASBENCH1SHOT1_1", "4 vertices with operations, space 1"
    ),
    Entry(
        "nasbench1shot1-2", "archwright.spaces.nasbench1shot1:NASBENCH1SHOT1_2", "4 vertices with operations, space 2"
    ),
    Entry(
        "nasbench1shot1-3", "archwright.spaces.nasbench1shot1:NASBENCH1SHOT1_3", "5 vertices with operations, space 3"
    ),
    Entry("mbconv", "archwright.spaces.mbconv:MBCONV", "mobile networks: 5 stages of 2 to 4 blocks, 12 configurations"),
    Entry(
        "compact",
        "archwright.spaces.compact:COMPACT",
        "small images: 3 stages of 1 to 3 blocks, 4 kinds, 4 widths a stage",
    ),
    Entry("darts", "archwright.spaces.darts:DARTS", "normal and reduction cell, 4 nodes x 2 inputs x 7 operations"),
    Entry(
        "darts-free",
        "archwright.spaces.darts_free:DARTS_FREE",
        "DARTS cells with any number of operations on every edge",
    ),
    Entry("published", "archwright.spaces.published:PUBLISHED", "published cells by name, and others in their form"),
)


def find_space(text: str) -> Space[Any]:
    """The space that ``text`` names: registered, ``choices:{...}``, ``width:NETWORK``, ``model:OBJECT``, ``OBJECT``."""
    from archwright.spaces.base import Space
    from archwright.spaces.choice_space import ChoiceSpace
    from archwright.spaces.model_space import ModelSpace
    from archwright.spaces.width import WidthSpace

    named = SpaceRef.parse(text)
    if named.kind == "choices":
        return ChoiceSpace.from_spec(named)
    if named.kind == "model":
        return ModelSpace.from_spec(named)
    if named.kind == "width":
        return WidthSpace(named.argument)
    found = resolve(text, "space") if named.kind == "object" else spaces.get(text)
    if isinstance(found, type) and issubclass(found, Space):
        found = found()
    if not isinstance(found, Space):
        raise InputError("a space", f"{type(found).__name__} at {text}", "See archwright.spaces.base.Space.")
    return found


def name_space(space: Space[Any]) -> str:
    """A text by which :func:`find_space` finds ``space``."""
    from archwright.spaces.choice_space import ChoiceSpace
    from archwright.spaces.model_space import ModelSpace

    if space.name in spaces and spaces.get(space.name) is space:
        return str(space.name)
    spec = space.spec if isinstance(space, ChoiceSpace | ModelSpace) else None
    return spec if spec is not None else refer(space)
