"""PC-DARTS, DrNAS, SmoothDARTS and OLES: each against a hand calculation or an oracle, and the options they share."""

import json

import numpy as np
import pytest
import torch

import archwright as aw
from archwright.errors import InputError
from archwright.methods.darts import projected
from archwright.methods.darts_cures import (
    DrNas,
    PcDarts,
    SmoothDarts,
    StoppedOperations,
    _moved,
    concentrations,
    normalised_edges,
    unmoved,
)
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.runs.stop import Stop
from archwright.search.engine import reopened
from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.cell import CellSupernet
from archwright.training import Position

TINY = {
    "data": "random:classes=3,size=8,channels=1,count=160", "channels": 4, "cells": 1, "search_epochs": 2,
    "search_batch": 32, "epochs": 1, "final_epochs": 1,
}  # fmt: skip
SCALE = Scale(4, 1, 3, 8, 1)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cures")
    changes = {"pc-darts": {"partial_channels": 2}, "drnas": {}, "smooth-darts": {}, "oles": {"window": 1}}
    return {name: aw.search(name, run=folder / name, **TINY, **own) for name, own in changes.items()}


def method_of(found):
    return reopened(Run.open(found.folder), Stop(), Progress())


def epochs_of(found):
    lines = (found.folder / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event for event in events if event["kind"] == "epoch" and event["stage"] == "search"]


@pytest.mark.parametrize("name", ["pc-darts", "drnas", "smooth-darts", "oles"])
def test_a_search_ends_with_a_trained_cell_and_diagnostics(runs, name):
    NASBENCH201.parse(runs[name].best.architecture)
    assert runs[name].best.accuracy is not None
    assert len(epochs_of(runs[name])) == 2


# --- PC-DARTS ---


def test_edges_into_a_node_share_a_softmax():
    values = torch.tensor([0.3, -1.0, 0.5, 2.0, 0.0, 1.0])
    found = normalised_edges(values, [1, 2, 2, 3, 3, 3])
    for rows in ([0], [1, 2], [3, 4, 5]):
        assert torch.allclose(found[rows], values[rows].softmax(dim=0))


def test_a_node_of_weighted_edges_is_the_weighted_sum_of_partial_mixtures():
    torch.manual_seed(0)
    supernet = CellSupernet(NASBENCH201, SCALE, partial=2)
    alpha, edges = torch.randn(6, 5).softmax(dim=1), torch.rand(6)
    x = torch.randn(2, 1, 8, 8)
    one = torch.zeros(6, 5)
    one[:, NASBENCH201.operations.index("none")] = 1.0  # nothing but what passes by
    weighted, plain = supernet(x, {"cell": one * edges[:, None]}), supernet(x, {"cell": one})
    assert not torch.allclose(weighted, plain)
    whole = alpha * edges[:, None]
    cell = next(m for m in supernet.modules() if type(m).__name__ == "MixedCell")
    value = torch.randn(2, 4, 8, 8)
    on = np.ones((6, 5), dtype=bool)
    first = torch.zeros(6, 5)
    first[0] = whole[0]  # only the edge from node 0 to node 1, and the last node's from it as a skip
    skip = NASBENCH201.operations.index("skip_connect")
    alone = cell(value, first + 0, on)
    doubled = cell(value, 2 * first, on)
    assert torch.allclose(alone, torch.zeros_like(alone))  # nothing leads on from node 1
    first[4, skip] = 1.0
    doubled_first = first.clone()
    doubled_first[0] *= 2
    alone, doubled = cell(value, first, on), cell(value, doubled_first, on)
    assert torch.allclose(doubled, 2 * alone, atol=1e-5)


def test_alpha_stays_put_during_the_warm_up(tmp_path):
    found = aw.search("pc-darts", run=tmp_path / "run", **{**TINY, "warm_up": 0.5, "partial_channels": 2})
    first, last = (one["cells"]["cell"]["entropy"] for one in epochs_of(found))
    method = method_of(found)
    assert isinstance(method, PcDarts)
    start = method.strengths(method.make_alpha().get(detached=True))["cell"]
    assert first == pytest.approx(float(-(start * start.log()).sum(dim=1).mean()), abs=1e-5)
    assert last != first


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"partial_channels": 3}, "divisible by 3"),
        ({"space": "nasbench1shot1-1"}, "operations on edges"),
        ({"space": "darts", "cells": 3, "channels": 8, "partial_channels": 4}, "channels"),
    ],
)
def test_what_partial_channels_cannot_be(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        aw.search("pc-darts", run=tmp_path / "run", **{**TINY, **settings})
    assert not (tmp_path / "run").exists()


# --- DrNAS ---


def test_draws_have_the_mean_that_the_cell_is_read_off(runs):
    method = method_of(runs["drnas"])
    assert isinstance(method, DrNas)
    alphas = {"cell": torch.tensor([[0.5, -0.5, 2.0, 0.0, -3.0]]).repeat(4000, 1)}
    torch.manual_seed(0)
    drawn, active = method.relax(alphas, Position.at(0, 1, 1))
    assert active is None
    assert torch.allclose(drawn["cell"].sum(dim=1), torch.ones(4000), atol=1e-5)
    assert torch.allclose(drawn["cell"].mean(dim=0), method.strengths(alphas)["cell"][0], atol=0.02)
    expected = [1.5, np.exp(-0.5), 3.0, 1.0, np.exp(-3)]
    assert torch.allclose(concentrations(alphas)["cell"][0], torch.tensor(expected).float(), atol=1e-6)


# --- SmoothDARTS ---


def test_the_perturbation_grows_and_stays_within_reach(runs):
    method = method_of(runs["smooth-darts"])
    assert isinstance(method, SmoothDarts)
    assert method.reach(Position.at(0, 10, 1)) == pytest.approx(0.03)
    assert method.reach(Position.at(10, 10, 1)) == pytest.approx(0.3)
    weights = {"cell": torch.full((6, 5), 0.2)}
    moved = _moved(weights, {"cell": torch.full((6, 5), 0.0).index_fill(1, torch.tensor([0]), -0.5)})["cell"]
    assert torch.allclose(moved.sum(dim=1), torch.ones(6))
    assert float(moved[:, 0].max()) < 1e-5
    assert torch.allclose(moved[:, 1:], torch.full((6, 4), 0.25), atol=1e-5)


def test_the_adversary_raises_the_loss_more_than_chance(runs):
    method = method_of(runs["smooth-darts"])
    torch.manual_seed(0)
    network, batch = method.make_network(), method.problem().train.get(0, 0)
    weights = {"cell": torch.full((6, 5), 0.2)}
    from archwright.methods.darts import supernet_loss

    def loss(off):
        with torch.no_grad():
            return float(supernet_loss(network, _moved(weights, off), batch, None))

    worst = method._worst(network, weights, batch, 0.1)
    assert float(worst["cell"].abs().max()) <= 0.1 + 1e-6
    chance = [loss({"cell": torch.empty(6, 5).uniform_(-0.1, 0.1)}) for _ in range(10)]
    assert loss(worst) > max(chance)


# --- OLES ---


def test_every_parameter_of_an_operation_is_counted_once():
    for space, cells in ((NASBENCH201, 1), (DARTS, 3)):
        network = CellSupernet(space, Scale(4, cells, 3, 8, 1))
        seen = [(id(weight), weight.numel()) for weight, _, _ in network.operation_weights()]
        inside = {
            id(p): p.numel()
            for name, module in network.named_modules()
            if name.endswith("parallel")
            for p in module.parameters()
        }
        assert dict(seen) == inside
        assert len(seen) == len(inside)


def test_operations_whose_gradients_disagree_stop_and_stay(runs):
    torch.manual_seed(0)
    network = CellSupernet(NASBENCH201, SCALE)
    weights = list(network.parameters())
    stopped = StoppedOperations(network, weights, least=0.3, window=2)
    first = [torch.randn_like(weight) for weight in weights]
    second = [gradient.clone() for gradient in first]
    place, rows, numbers = stopped.parts[0]
    second[place].reshape(rows, -1)[0] *= -1  # the first edge of this operation points the other way
    stopped.compare(first, second)
    assert not stopped.off.any()  # the window is not over
    stopped.compare(first, second)
    expected = torch.zeros_like(stopped.off)
    expected[numbers[0]] = True
    assert torch.equal(stopped.off, expected)
    silent = stopped.silenced(first)
    assert not silent[place].reshape(rows, -1)[0].any()
    assert torch.equal(silent[place].reshape(rows, -1)[1:], first[place].reshape(rows, -1)[1:])
    before = [weight.detach().clone() for weight in weights]
    with unmoved(stopped, weights), torch.no_grad():
        for weight in weights:
            weight.add_(1.0)
    assert torch.equal(weights[place].reshape(rows, -1)[0], before[place].reshape(rows, -1)[0])
    assert torch.equal(weights[place].reshape(rows, -1)[1:], before[place].reshape(rows, -1)[1:] + 1)
    again = StoppedOperations(network, weights, least=0.3, window=2)
    again.load_state_dict(stopped.state_dict())
    assert torch.equal(again.off, stopped.off)


def test_the_share_of_stopped_operations_is_reported(runs):
    shares = [one["stopped"] for one in epochs_of(runs["oles"])]
    assert 0 <= shares[0] <= shares[-1] <= 1


# --- what all share ---


def test_a_settled_edge_is_its_operation_alone_as_published():
    weights = {"cell": torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]])}
    on = {"cell": np.array([[False, True, False], [True, False, True]])}
    assert projected(weights, on, ["cell"])["cell"].tolist() == [
        [0.0, 1.0, 0.0],
        pytest.approx([0.1, 0.1, 0.8]),
    ]


@pytest.mark.parametrize("selection", ["perturbation", "perturbation-soft"])
def test_both_perturbation_selections_end_with_a_cell(tmp_path, selection):
    found = aw.search("darts", run=tmp_path / "run", **{**TINY, "search_epochs": 1}, selection=selection)
    NASBENCH201.parse(found.best.architecture)


def test_a_search_ends_at_the_share_of_skips_that_was_given(tmp_path, monkeypatch):
    from archwright.methods import darts

    honest = darts.cell_state

    def skips(space, weights):
        state = honest(space, weights)
        state["cell"]["skip_share"] = 0.5
        return state

    monkeypatch.setattr(darts, "cell_state", skips)
    found = aw.search("darts", run=tmp_path / "run", **{**TINY, "search_epochs": 3}, stop_skips=0.5)
    assert len(epochs_of(found)) == 1
    longer = aw.search("darts", run=tmp_path / "longer", **{**TINY, "search_epochs": 3}, stop_skips=0.6)
    assert len(epochs_of(longer)) == 3


def test_a_search_on_some_of_the_images(tmp_path, runs):
    with pytest.raises(InputError, match="at most 48 images of each half"):
        aw.search("darts", run=tmp_path / "run", **TINY, search_images=1000)
    method = reopened(
        Run.open(runs["oles"].folder), Stop(), Progress(),
        options={**Run.open(runs["oles"].folder).configuration["options"], "search_images": 40},
    )  # fmt: skip
    train, validation = method.halves()
    assert len(train) == len(validation) == 40
    assert not set(train) & set(validation)
