"""Thinning a network: what goes, what stays, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import archwright as aw
from archwright.costs.clock import ROUNDS
from archwright.costs.measure import Timing
from archwright.errors import InfeasibleError, InputError
from archwright.methods.rarts_width import Shrinking
from archwright.methods.width_removal import least_count, removal_order
from archwright.models import load_model
from archwright.search.limited import time_again
from archwright.spaces.counting import count_network
from archwright.spaces.width import Width
from archwright.training import Position

TINY: dict[str, Any] = {
    "network": "helpers.own_networks:plain",
    "data": "random:classes=3,size=8,channels=1,count=160",
    "search_epochs": 1,
    "search_batch": 32,
    "final_epochs": 1,
    "timing": False,
    "compare": False,
}


def thin(folder: Path, **changes: Any) -> Any:
    return aw.search("rarts-width", run=folder, **{**TINY, **changes})


# --- pieces ----------------------------------------------------------------------------------------------------------


def test_channels_go_by_rising_importance_and_floors_hold() -> None:
    importance = np.array([0.1, 0.2, 0.3, 0.9, 0.05, 0.5])
    group_of = np.array([0, 0, 0, 1, 1, 1])
    assert removal_order(importance, group_of, np.array([1, 1])) == [4, 0, 1, 5]
    assert removal_order(importance, group_of, np.array([2, 3])) == [0]


def test_scores_move_by_the_proximal_map_of_the_l1_norm() -> None:
    score = torch.tensor([0.5, -0.5, 0.01], requires_grad=True)
    sgd = torch.optim.SGD([score], lr=0.1)
    Shrinking([score], sgd, lambda _: 0.1, l1=0.2).descend([torch.tensor([1.0, 0.0, 0.0])], Position.at(0, 1, 1))
    assert score.tolist() == pytest.approx([0.38, -0.48, 0.0])
    Shrinking([score], sgd, lambda _: 0.1, gain=torch.tensor([2.0, 1.0, 1.0])).descend(
        [torch.tensor([1.0, 1.0, 0.0])], Position.at(0, 1, 1)
    )
    assert score.tolist() == pytest.approx([0.18, -0.58, 0.0])


@pytest.mark.parametrize("wanted", [0, 1, 5, 9, 10])
def test_the_least_count_is_found(wanted: int) -> None:
    assert least_count(0, 10, lambda n: n >= wanted) == wanted
    assert least_count(3, 10, lambda n: n >= wanted) == max(3, wanted)


# --- the planted experiment ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimiser", ["rarts", "slimming"])
def test_channels_that_are_noise_by_construction_are_lost_and_no_others(optimiser: str, tmp_path: Path) -> None:
    settings = {"data": "digits", "search_epochs": 3, "l1": 0.01, "layers": "body.second", "search_augment": False}
    found = thin(tmp_path, network="helpers.own_networks:HalfNoise", optimiser=optimiser, ratio=0.5, **settings)
    assert Width(found.best.architecture).channels["body.second"] == [0, 1, 2, 3]


# --- whole searches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimiser", ["rarts", "slimming", "darts-1", "darts-2", "random"])
def test_every_optimiser_removes_the_asked_share(optimiser: str, tmp_path: Path) -> None:
    found = thin(tmp_path / "a", optimiser=optimiser, ratio=0.5)
    assert found.details["before"]["channels"] == 8
    assert found.details["after"]["channels"] == 4
    assert found.details["removed_share"] == 0.5
    model = load_model(tmp_path / "a")
    counted = count_network(model.network, model.scale)
    assert (counted.params, counted.macs) == (found.best.params, found.best.macs)
    assert found.best.macs < found.details["before"]["macs"]
    assert found.best.onnx == "artifacts/best.onnx"


def test_before_and_after_other_shares_of_one_search_and_what_a_loaded_model_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = thin(tmp_path / "a", ratio=0.25, compare=True)
    assert set(first.beside) == {"unpruned"}
    assert first.beside["unpruned"].params == first.details["before"]["params"]
    assert (tmp_path / "a" / "artifacts" / "unpruned.onnx").is_file()
    second = thin(tmp_path / "b", ratio=0.5, search_from=str(tmp_path / "a"))
    kept, fewer = (set(Width(one.best.architecture).channels["body.2"]) for one in (first, second))
    assert fewer < kept
    model = load_model(tmp_path / "b")
    assert "Importing helpers.own_networks:plain, which the model in" in capsys.readouterr().err
    thinned = model.network.body[2]
    assert (thinned.out_channels, model.network.body[6].in_features) == (4, 4)
    with pytest.raises(InputError, match=r"with trained scores of helpers\.own_networks:make on the same images"):
        thin(tmp_path / "c", network="helpers.own_networks:make", ratio=0.5, search_from=str(tmp_path / "a"))


def test_a_learned_share_loses_the_channels_of_score_zero(tmp_path: Path) -> None:
    found = thin(tmp_path, l1=20.0, keep=0.3)  # a pull that no gradient withstands
    assert found.details["after"]["channels"] == 3  # 30 % of 8, rounded up
    assert any("would have kept fewer than 30% of their channels" in text for text in found.insights)


def test_limits_are_met_after_removal(tmp_path: Path) -> None:
    whole = thin(tmp_path / "a", ratio=0.01).details["before"]
    limits = {"params": 0.8 * whole["params"], "macs": 0.6 * whole["macs"], "channels": 6}
    after = thin(tmp_path / "b", limits=limits).details["after"]
    assert all(after[name] <= limit for name, limit in limits.items())
    cost = thin(tmp_path / "c", limits={"channels": 6}).details["after"]
    assert cost["channels"] == 6  # no more is removed than the limit asks for
    with pytest.raises(InfeasibleError, match=r"no architecture meets params <= 10\. Reachable: params from"):
        thin(tmp_path / "d", limits={"params": 10.0})
    assert not (tmp_path / "d").exists()


class ChannelWatch:
    """Instead of a stopwatch: a millisecond for each of a network's inner channels."""

    slow_after: int | None = None
    """Rounds, of all networks together, after which everything takes twice as long."""
    rounds = 0

    def __init__(self, network: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
        self.timing, self.ms = timing, float(network.body[2].out_channels)

    def times_ms(self, repeats: int) -> NDArray[np.float64]:
        """The same for every call of a round."""
        type(self).rounds += 1
        slow = self.slow_after is not None and self.rounds > self.slow_after
        return np.full(repeats, self.ms * (2 if slow else 1))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[ChannelWatch]:
    class Watch(ChannelWatch):
        """Of this test alone."""

    monkeypatch.setattr("archwright.costs.clock.Stopwatch", Watch)
    return Watch


def test_a_latency_limit_is_verified_by_the_clock(tmp_path: Path, clock: type[ChannelWatch]) -> None:
    found = thin(tmp_path / "a", timing=True, limits={"latency_ms": 5.2})
    assert (found.best.latency_ms, found.details["before"]["latency_ms"]) == (5.0, 8.0)
    assert thin(tmp_path / "margin", timing=True, limits={"latency_ms": 5.1}).best.latency_ms == 4.0
    with pytest.raises(InfeasibleError, match=r"latency_ms from 1 to 8 .timed here."):
        thin(tmp_path / "b", timing=True, limits={"latency_ms": 0.5})
    (again,) = time_again(tmp_path / "a", 2)
    assert (again.limit_ms, again.medians_ms, again.within) == (5.2, [5.0, 5.0], True)


def test_times_are_divided_by_the_slowdown_of_the_machine(tmp_path: Path, clock: type[ChannelWatch]) -> None:
    clock.slow_after = 2 * ROUNDS  # of the whole and of the thinnest network
    found = thin(tmp_path, timing=True, ratio=0.5)
    assert found.best.latency_ms == 4.0
    assert found.details["before"]["latency_ms"] == 8.0


def test_networks_are_not_timed_again_where_they_were_not_timed(tmp_path: Path) -> None:
    thin(tmp_path, ratio=0.5)
    with pytest.raises(InputError, match="models with a latency limit"):
        time_again(tmp_path)


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "how much to remove: --ratio, --l1 or a limit"),
        ({"ratio": 0.0}, "ratio: Input should be greater than 0"),
        ({"ratio": 1.0}, "ratio: Input should be less than 1"),
        ({"ratio": 0.95, "keep": 0.2}, "a ratio of at most 0.75: 20% of each layer's channels stay, got 0.95"),
        ({"ratio": 0.5, "layers": "body.0"}, "'body.0', the first layer, which sees the image, whose channels stay"),
        ({"ratio": 0.5, "layers": "body.6"}, "'body.6', the classifier, whose channels stay"),
        ({"ratio": 0.5, "layers": "body.7"}, "layers with channels that may go .body.2., got 'body.7'"),
        ({"ratio": 0.5, "network": "helpers.own_networks:one_layer"}, "with channels to remove"),
        ({"ratio": 0.5, "network": "helpers.own_networks:Cut"}, "module 'body"),
        ({"ratio": 0.5, "network": "helpers.own_networks:Mixing"}, "channels of 'body.second' cannot be removed"),
        ({"ratio": 0.5, "space": "nasbench201"}, "--space with the method"),
        ({"l1": 0.1, "optimiser": "random"}, "which trains no scores"),
        ({"limits": {"latency_ms": 1.0}}, "--timing beside a limit on latency_ms"),
        ({"limits": {"memory_bytes": 1.0}}, "memory_bytes"),
        ({"ratio": 0.5, "search_from": "nowhere"}, "nowhere"),
        ({"ratio": 0.5, "recipe": "darts"}, "without drop-path"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_done(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        thin(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_function_of_the_program_itself_will_do(tmp_path: Path) -> None:
    def mine(classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes)
        )

    found = thin(tmp_path, network=mine, ratio=0.5)
    assert found.details["after"]["channels"] == 2
    assert found.best.load().network.body[1].out_channels == 2
