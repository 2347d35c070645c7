"""Where the networks of a search live: an image size, and the weights that they start from where there are several.

A place is the size in pixels a side; among several starts it is the text ``START-SIZE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator

Place = int | str


def place_of(size: int, start: str = "") -> Place:
    """The place of networks on images of ``size`` px that begin with the weights ``start``; "" where one start is."""
    return f"{start}-{size}" if start else size


def pixels(place: Place) -> int:
    """The image size of ``place``, in pixels a side."""
    return place if isinstance(place, int) else int(place.rpartition("-")[2])


def start_of(place: Place) -> str:
    """The name of its weights; empty where there is one start only."""
    return "" if isinstance(place, int) else place.rpartition("-")[0]


def said(place: Place) -> str:
    """For people: ``96 px``, or ``96 px (efficientnet-lite1)``."""
    start = start_of(place)
    return f"{pixels(place)} px ({start})" if start else f"{place} px"


def _read(given: Mapping[Place, Any]) -> dict[Place, Any]:
    """As JSON has it, where the keys of an object are texts."""
    return {int(key) if str(key).isdigit() else key: value for key, value in given.items()}


ByPlace = Annotated[dict[Place, float], BeforeValidator(_read)]
"""A number a place, as a field of what a run keeps."""
