"""A cell space of a third party's in supernet, derivation and searches, with nothing but the contract between them."""

import numpy as np
import pytest
import torch

import archwright as aw
from archwright.errors import InputError
from archwright.registry import Entry
from archwright.spaces.cell_space import as_cell_space
from archwright.spaces.choice_space import ChoiceSpace
from archwright.spaces.darts import DARTS
from archwright.spaces.mbconv import MBCONV
from archwright.spaces.nasbench1shot1 import NASBENCH1SHOT1_2
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.registry import spaces
from archwright.supernets.cell import CellSupernet
from archwright.testing import check_space
from helpers.triangle_space import TRIANGLE

SMALL = {"data": "digits", "epochs": 1, "final_epochs": 1, "cells": 1, "channels": 4}
SEARCHES = {
    "darts": {"search_epochs": 1, "search_batch": 256},
    "rarts": {"search_epochs": 1, "search_batch": 256, "selection": "perturbation"},
    "nasi": {"steps": 2, "nu_samples": 2, "proxy_batch": 16},
    "hnas": {"evaluations": 2, "replicates": 1, "proxy_batch": 8},
}


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(spaces.entries, "triangle", Entry("triangle", "helpers.triangle_space:TRIANGLE", "a plug-in"))


def test_a_third_party_s_space_keeps_the_contract():
    check_space(TRIANGLE)


@pytest.mark.parametrize("method", SEARCHES)
def test_a_third_party_s_space_is_searched(method, registered):
    result = aw.search(method, space="triangle", **SMALL, **SEARCHES[method])
    assert TRIANGLE.is_connected(TRIANGLE.parse(result.best.architecture))


@pytest.mark.parametrize("space", [TRIANGLE, NASBENCH201, DARTS, NASBENCH1SHOT1_2], ids=lambda space: space.name)
def test_the_weights_of_an_architecture_derive_it(space):
    rng = np.random.default_rng(0)
    weights = {name: rng.random(shape) for name, shape in space.decisions.items()}
    chosen = space.derive(weights)  # random weights lead to some architecture without `none`
    encoded = {name: array.astype(float) for name, array in space.encode(chosen).items()}
    assert space.derive(encoded) == chosen
    assert not any(operation == "none" for kept in space.kept(chosen).values() for _, operation in kept)


def test_derive_against_its_definition_on_every_link_and_operation():
    space, rng = NASBENCH1SHOT1_2, np.random.default_rng(3)
    weights = {name: rng.random(shape) for name, shape in space.decisions.items()}
    chosen = space.derive(weights)
    for vertex, row in enumerate(weights["operation"]):
        assert chosen.operations[vertex] == row.argmax()
    for name, vertex in space.links.items():
        best = sorted(range(vertex), key=lambda parent: -weights[name][0, parent])[: space.picks[name]]
        assert chosen.parents[vertex - 1] == tuple(sorted(best))


@pytest.mark.parametrize("space", [TRIANGLE, NASBENCH201, DARTS], ids=lambda space: space.name)
def test_an_inherited_network_computes_what_the_supernet_does(space):
    torch.manual_seed(0)
    scale = space.scales["small"].changed(channels=4, image_size=8, cells=space.fewest_cells)
    supernet = CellSupernet(space, scale).double()
    x = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    rng = np.random.default_rng(1)
    for _ in range(3):
        architecture = space.sample(rng)
        weights = {name: value.double() for name, value in supernet.one_hot(architecture).items()}
        with torch.no_grad():
            ours = supernet.inherit(architecture).double().train()(x)
            assert torch.allclose(ours, supernet(x, weights), atol=1e-9)


def test_a_space_without_networks_has_none_to_score():
    with pytest.raises(InputError, match="builds none"):
        ChoiceSpace({"depth": [2, 3]}).proxy_scale(4, 1, 10, 8, 3)


def test_other_spaces_are_refused_before_a_folder_exists(tmp_path):
    with pytest.raises(InputError, match="cell space"):
        as_cell_space(MBCONV)
    for method, words in (
        ("darts", "space with a supernet"),
        ("nasi", "space with a supernet"),
        ("hnas", "training-free"),
    ):
        with pytest.raises(InputError, match=words):
            aw.search(method, space="mbconv", data="digits", scale="mbconv-8", run=tmp_path / method)
        assert not (tmp_path / method).exists()
