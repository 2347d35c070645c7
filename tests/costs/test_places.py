"""Places of networks: sizes and starts, and back from what a run keeps."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter

from archwright.costs.places import ByPlace, Place, pixels, place_of, said, start_of


@pytest.mark.parametrize(
    ("size", "start", "place", "words"),
    [(96, "", 96, "96 px"), (112, "a-b", "a-b-112", "112 px (a-b)")],
)
def test_a_place_is_a_size_and_a_start(size: int, start: str, place: Place, words: str) -> None:
    assert place_of(size, start) == place
    assert (pixels(place), start_of(place), said(place)) == (size, start, words)


def test_numbers_by_place_come_back_from_json() -> None:
    kept: dict[Place, float] = {96: 1.0, "a-b-112": 2.0}
    assert TypeAdapter(ByPlace).validate_python(json.loads(json.dumps(kept))) == kept
