from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from archwright.errors import InputError
from archwright.search.engine import search
from archwright.spaces.choice_space import ChoiceSpace, Combination
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.operations import Cost
from archwright.spaces.ranges import Integer, Real
from archwright.spaces.registry import find_space, name_space
from archwright.testing import check_space

CHOICES = {"depth": range(2, 5), "width": np.array([4, 8]), "kind": ["plain", "deep"], "skip": [True, None, [1, 2.5]]}


def build(choice: Combination, scale) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(scale.image_channels, choice["width"], 3, padding=1)]
    for _ in range(choice["depth"]):
        layers += [nn.BatchNorm2d(choice["width"]), nn.ReLU(), nn.Conv2d(choice["width"], choice["width"], 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(choice["width"], scale.classes))


def test_contract() -> None:
    check_space(ChoiceSpace(CHOICES))


def test_contract_with_networks() -> None:
    check_space(ChoiceSpace(CHOICES, build=build))


def test_size_and_members_by_brute_force() -> None:
    space = ChoiceSpace(CHOICES)
    assert space.size == 3 * 2 * 2 * 3
    members = list(space.enumerated())
    assert len(set(members)) == space.size
    assert all(space.parse(str(one)) == one for one in members)
    assert {space.sample(np.random.default_rng(i)) for i in range(500)} == set(members)
    assert [dict(one)["kind"] for one in members[:4]] == ["plain", "plain", "plain", "deep"]
    assert len(space.neighbours(members[0])) == 2 + 1 + 1 + 2


def test_an_architecture_reads_like_a_dict() -> None:
    choice = ChoiceSpace(CHOICES).parse('{"skip": [1, 2.5], "kind": "deep", "width": 8, "depth": 3}')
    assert dict(choice) == {"depth": 3, "width": 8, "kind": "deep", "skip": [1, 2.5]}
    assert json.loads(str(choice)) == dict(choice)
    assert len({choice, ChoiceSpace(CHOICES).parse(str(choice))}) == 1


@pytest.mark.parametrize("values", [[1, True], [1, 1.0], [0.0, False], [2, 3, 2]])
def test_values_that_python_holds_to_be_equal_are_refused(values: list[object]) -> None:
    with pytest.raises(InputError, match="different values for 'a'"):
        ChoiceSpace({"a": values})


def test_a_value_keeps_its_kind() -> None:
    space = ChoiceSpace({"a": [True, 2, 3.0]})
    assert [type(space.parse(f'{{"a": {text}}}')["a"]) for text in ("true", "2", "3.0")] == [bool, int, float]


def test_cost_is_counted() -> None:
    space = ChoiceSpace(
        {"width": [3, 5]},
        build=lambda choice, scale: nn.Sequential(
            nn.Conv2d(scale.image_channels, choice["width"], 3, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(choice["width"], scale.classes),
        ),
    )
    scale = space.scales["small"].changed(image_size=6, image_channels=1, classes=2)
    expected = Cost(5 * 9 + 5 + 5 * 2 + 2, 36 * 9 * 5 + 10)
    state = torch.get_rng_state()
    assert space.cost(space.parse('{"width": 5}'), scale) == expected
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"a": []},
        {"a": [1]},
        {"a": "xy"},
        {"a": 3},
        {"a": [1, 1]},
        {"a": [float("nan"), 1]},
        {"a": [object(), 1]},
        {1: [1, 2]},
        [1, 2],
    ],
)
def test_bad_choices_are_refused(choices) -> None:
    with pytest.raises(InputError):
        ChoiceSpace(choices)


@pytest.mark.parametrize(
    "text", ['{"a": 3}', '{"a": 1}', '{"a": 1, "b": 2, "c": 3}', "[1]", '{"a": true, "b": 1}', "{"]
)
def test_bad_text_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        ChoiceSpace({"a": [1, 2], "b": [1, 2]}).parse(text)


def test_a_build_that_makes_no_module_is_refused() -> None:
    space = ChoiceSpace({"a": [1, 2]}, build=lambda choice, scale: None)
    with pytest.raises(InputError, match="NoneType"):
        space.build(space.parse('{"a": 1}'), space.scales["small"])


def test_spaces_are_found_by_text(tmp_path: Path) -> None:
    space = ChoiceSpace({"a": [1, 2], "b": ["x", "y"]})
    again = find_space(name_space(space))
    assert isinstance(again, ChoiceSpace)
    assert again.choices == space.choices
    (tmp_path / "space.json").write_text('{"a": [1, 2], "b": ["x", "y"]}')
    assert find_space(f"choices:{tmp_path}/space.json").size == 4
    assert find_space("nasbench201") is NASBENCH201
    assert name_space(NASBENCH201) == "nasbench201"
    assert find_space("archwright.spaces.nasbench201:NASBENCH201") is NASBENCH201
    assert find_space("archwright.spaces.nasbench201:NasBench201").name == "nasbench201"
    own = ChoiceSpace({"a": [1, 2]}, build=build)
    assert find_space(name_space(own)) is own


@pytest.mark.parametrize(
    "text", ["nasbench2", "json:dumps", "choices:", "choices:{", "choices:[1]", "choices:no.json", "x:y"]
)
def test_other_texts_are_no_space(text: str) -> None:
    with pytest.raises(InputError):
        find_space(text)


# --- ranges ---

RANGES = {
    "lr": Real(1e-4, 1e-1, log=True),
    "width": Integer(8, 24),
    "many": Integer(1, 10**6, log=True),
    "kind": ["a", "b"],
}


def test_contract_with_ranges() -> None:
    check_space(ChoiceSpace(RANGES))


def test_levels_are_even_and_hold_both_ends() -> None:
    lr = np.array(Real(1e-4, 1e-1, log=True).levels)
    assert (lr[0], lr[-1], len(lr)) == (1e-4, 1e-1, 1001)
    assert np.diff(np.log(lr)) == pytest.approx(np.log(1e3) / 1000, rel=0.02)
    assert Integer(8, 24).levels == list(range(8, 25))
    many = Integer(1, 10**6, log=True).levels
    assert (many[0], many[-1]) == (1, 10**6)
    assert all(isinstance(one, int) for one in many)
    assert np.diff(Real(-1.0, 1.0).levels) == pytest.approx(0.002)


def test_a_number_between_levels_is_the_nearest_and_the_text_is_its_own() -> None:
    space = ChoiceSpace(RANGES)
    found = space.parse('{"lr": 0.00123, "width": 9, "many": 77, "kind": "a"}')
    assert found["lr"] == pytest.approx(0.00123, rel=0.004)
    assert space.parse(str(found)) == found
    for wrong in ('"lr": 1.0', '"lr": true', '"lr": "x"'):
        with pytest.raises(InputError, match=r"a number from 0\.0001 to 0\.1"):
            space.parse(f'{{{wrong}, "width": 9, "many": 77, "kind": "a"}}')
    with pytest.raises(InputError, match="an integer from 8 to 24"):
        space.parse('{"lr": 0.01, "width": 9.5, "many": 77, "kind": "a"}')


def test_ranges_are_texts_too() -> None:
    space = ChoiceSpace(RANGES)
    again = find_space(space.spec)
    assert again.choices == space.choices
    assert len(space.spec) < 200
    for wrong in (
        '{"real": [1, 2, 3]}',
        '{"real": [1, 0]}',
        '{"integer": [1, 2.5]}',
        '{"real": [0, 1], "log": true}',
        '{"from": 1}',
    ):
        with pytest.raises(InputError):
            find_space(f'choices:{{"x": {wrong}}}')


def test_a_search_finds_the_best_of_a_range() -> None:
    """The optimum is known: x = 0.3, n = 40."""
    space = ChoiceSpace({"x": Real(0.0, 1.0), "n": Integer(1, 100)})
    found = search(
        "evolution", space=space, evaluate=lambda one: -abs(one["x"] - 0.3) - abs(one["n"] - 40) / 100, evaluations=400
    )
    assert found.best.accuracy > -0.05
