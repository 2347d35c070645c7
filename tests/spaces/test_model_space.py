"""Choices inside a user's own network: values, refusals, the supernet, stages and limits."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import archwright as aw
from archwright.costs.additive import counted_costs
from archwright.errors import InputError
from archwright.solvers import milp, pareto
from archwright.spaces.base import Scale
from archwright.spaces.model_stages import ModelStages
from archwright.supernets.model import load_by_key
from archwright.testing import check_method, check_space
from helpers.choice_networks import (
    MADE,
    BadShape,
    Hidden,
    InItself,
    Large,
    Loaded,
    NeverCalled,
    OnlyLarge,
    Shared,
    Tiny,
)
from helpers.latency_tables import steady_clock

SCALE = Scale(4, 1, classes=3, image_size=8, image_channels=1)
EXAMPLES = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "own_network.py"))
DATA = "random:classes=3,size=8,channels=1,count=60"


@pytest.fixture(scope="module")
def space() -> aw.ModelSpace:
    return aw.ModelSpace(Tiny)


def test_the_space_keeps_the_contract(space: aw.ModelSpace) -> None:
    check_space(space, samples=5)


def test_large_options_are_made_only_where_they_are_taken() -> None:
    space = aw.ModelSpace(Large)
    written, large = space.enumerated() or ()
    space.check_scale(SCALE)  # without memory
    assert set(MADE) == {"meta"}
    MADE.clear()
    assert space.build(written, SCALE).body.head.in_features == 4
    assert MADE == []
    space.build(large, SCALE)
    assert MADE == ["cpu"]


def test_weights_that_a_network_comes_with_are_seen() -> None:
    assert aw.ModelSpace(Loaded).comes_with_weights(SCALE)
    assert not aw.ModelSpace(Tiny).comes_with_weights(SCALE)
    first, second = (aw.ModelSpace(Loaded).supernet(SCALE).network.stem.weight for _ in range(2))
    assert torch.equal(first, second)


def test_weights_are_taken_by_key_of_the_network_before_and_after_it_had_choices(space: aw.ModelSpace) -> None:
    plain = space.build(space.as_written(), SCALE).body.state_dict()
    whole = space.supernet(SCALE).network
    taken, count = load_by_key(whole, plain)
    assert 0 < taken < count
    assert torch.equal(whole.a.parts[0][0].weight, plain["a.0.weight"])
    assert torch.equal(whole.stage.blocks[1][0].weight, plain["stage.1.0.weight"])
    other = space.supernet(SCALE).network
    assert load_by_key(other, whole.state_dict()) == (count, count)
    assert torch.equal(other.a.parts[1][1].parts[1][0].weight, whole.a.parts[1][1].parts[1][0].weight)


def test_the_outline_is_in_the_order_of_calls(space: aw.ModelSpace) -> None:
    outline = space.outline(SCALE)
    assert [one["decision"] for one in outline] == ["a", "stage", "extra", "pick"]
    assert [one["kind"] for one in outline] == ["Choice", "Depth", "Optional", "Inputs"]
    assert outline[0]["shape"] == "4 x 3 x 3"
    assert outline[0]["inside"]["inner"][0]["options"] == ["one", "three"]


def test_size_counts_what_is_different(space: aw.ModelSpace) -> None:
    every = list(space.enumerated() or ())
    assert len(every) == len(set(every)) == space.size == (1 + 2) * 3 * 2 * 2
    assert str(space.as_written()) == '{"a": "plain", "stage": "2", "extra": "layer", "pick": "after"}'


def test_what_is_built_has_no_choices_left_and_is_the_network_as_written(space: aw.ModelSpace) -> None:
    torch.manual_seed(0)
    written = Tiny(3).eval()
    torch.manual_seed(0)
    built = space.build(space.as_written(), SCALE).eval()
    x = torch.randn(2, 1, 8, 8)
    assert torch.equal(written(x), built(x))
    left = {type(one).__name__ for one in built.modules() if type(one).__module__ == "archwright.nn"}
    assert left == {"Taken"}


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (BadShape, "expected 4 x 3 x 3 from 'wide' of the choice 'a', as from its first option, got 8 x 3 x 3"),
        (NeverCalled, "unused never called"),
        (OnlyLarge, "images of 1 x 8 x 8"),
        (InItself, "'a' in itself"),
        (Hidden, "one of one, three in a list or dict of Python"),
        (lambda classes: torch.nn.Linear(8, classes), "none"),
    ],
)
def test_what_cannot_work_is_refused_before_there_is_a_folder(network: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        aw.search("random", space=aw.ModelSpace(network), data=DATA, run=tmp_path / "run", evaluations=2)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("network", [Tiny, EXAMPLES["Net"], EXAMPLES["Mobile"], EXAMPLES["Transformer"], Shared])
def test_the_front_of_all_networks_is_that_of_brute_force(network: type[nn.Module]) -> None:
    """Costs of random milliseconds as well as counted ones, up to 1,764 networks, and HiGHS at several limits."""
    space, rng = aw.ModelSpace(network), np.random.default_rng(0)
    stages = ModelStages(space, SCALE.changed(channels=space.scales["small"].channels))
    costs = counted_costs(stages)
    problem = costs.problem(stages, rng.random(stages.shape), rng.random(stages.shape[:2]))
    every = list(space.enumerated() or ())
    choices = [stages.to_choice(one) for one in every]
    assert len(every) == space.size <= 2000
    assert [stages.from_choice(one) for one in choices] == every
    values = [(problem.cost(one, "macs"), float(problem.evaluate(one)[0])) for one in choices]
    front, best = [], -np.inf
    for cost, value in sorted(values, key=lambda pair: (pair[0], -pair[1])):
        if value > best:
            front.append((cost, value))
            best = value
    found = pareto.front(problem, "macs")
    assert np.allclose(np.stack([found.costs, found.values], 1), front)
    for limit, _ in front[:: max(1, len(front) // 4)]:
        assert milp.solve(problem, {"macs": limit}).value == pytest.approx(max(v for c, v in values if c <= limit))
    for number in rng.choice(len(every), 12):
        counted = space.cost(every[number], stages.scale)
        assert problem.cost(choices[number], "params") == counted.params
        assert problem.cost(choices[number], "macs") == counted.macs


GRADIENTS = {"search_epochs": 1, "search_batch": 16}
SHARED = {"supernet_epochs": 1, "supernet_batch": 32, "measurements": 4, "images": 16}
METHODS = {
    "evolution": {"population": 2, "sample": 1},
    "nasi": {"steps": 2, "nu_samples": 2, "proxy_channels": 4, "proxy_batch": 8},
    "hnas": {"pool": 4, "replicates": 1, "probes": 2, "proxy_size": 8, "proxy_batch": 8},
    "nesbs": {
        "size": 2,
        "candidates": 1,
        "delta": 1.0,
        "svgd_steps": 10,
        "supernet_epochs": 1,
        "posterior_epochs": 1,
        "supernet_batch": 40,
    },
    **dict.fromkeys(("darts", "gdas", "rarts", "drnas", "oles"), GRADIENTS),
    "conas": {**SHARED, "measurements": 8, "probability": 0.8, "threshold": 9.0, "rounds": 1},
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_search_it(name: str) -> None:
    own = {"space": "model:helpers.choice_networks:Tiny", "data": DATA, "channels": 4, "cells": None, "batch_size": 16}
    check_method(name, kills=1, **own, **METHODS[name])


def test_exact_limits_inside_it() -> None:
    own = {"space": "model:helpers.choice_networks:Tiny", "data": DATA, "channels": 4, "cells": None, "batch_size": 16}
    with steady_clock():
        check_method("binas", kills=2, **own)
