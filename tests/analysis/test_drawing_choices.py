"""Drawings of own networks: well-formed, escaped, what is chosen is filled and what is not there is not looked into."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from archwright.analysis.drawing_choices import CHOSEN, draw_choices
from archwright.errors import InputError

INNER = {"kind": "Choice", "decision": "stage.0", "options": ["<3>", "5"], "inside": {"<3>": [], "5": []}}
OTHER = {**INNER, "decision": "stage.1"}
OUTLINE = [
    {"kind": "Depth", "decision": "stage", "options": ["2", "1"], "inside": {"0": [INNER], "1": [OTHER]}},
    {"kind": "Optional", "decision": "extra", "options": ["layer", "skip"], "inside": {"layer": [], "skip": []}},
]
TEXT = '{"stage": "1", "stage.0": "<3>", "extra": "skip"}'


def test_what_is_chosen_is_filled_and_other_options_say_what_they_would_change() -> None:
    tree = ElementTree.fromstring(draw_choices(OUTLINE, TEXT, {"stage.0": {"5": [0.5, 0.0002]}}))
    spaces = "{http://www.w3.org/2000/svg}"
    filled = [
        group.findtext(f"{spaces}text")
        for group in tree.iter(f"{spaces}g")
        if (box := group.find(f"{spaces}rect")) is not None and box.get("fill") == CHOSEN[0]
    ]
    assert filled == ["block 1", "<3>", "skip"]
    shown = [text.text for text in tree.iter(f"{spaces}text")]
    assert "stage: 1 of 2" in shown
    assert "+0.50 %, +0.2 \N{MICRO SIGN}s" in shown
    assert "stage.1" not in shown


@pytest.mark.parametrize("text", ["nonsense", "[1]", "3"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="choices of a network"):
        draw_choices(OUTLINE, text)
