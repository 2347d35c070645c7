"""JSON that we read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archwright.strict import MOST_LEVELS, parse_json


@pytest.mark.parametrize("as_bytes", [False, True])
@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a": ', "}")])
def test_what_is_nested_too_deeply_is_refused_however_deep(begin: str, end: str, as_bytes: bool) -> None:
    for levels in (MOST_LEVELS, MOST_LEVELS + 1, 900, 100_000):
        text = begin * levels + "1" + end * levels
        given_text = text.encode() if as_bytes else text
        if levels == MOST_LEVELS:
            assert parse_json(given_text)
            continue
        with pytest.raises(ValueError, match="too deeply"):
            parse_json(given_text)


def test_many_lists_beside_each_other_are_not_deep() -> None:
    value = [[[number]] for number in range(1000)]
    assert parse_json(json.dumps(value)) == value


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_is_read_as_the_standard_library_does(value: object) -> None:
    assert parse_json(json.dumps(value)) == value
