"""Thinning a network: what goes, what stays, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import archwright as aw
from archwright.costs.layers import LayerTimes, NetworkTimes
from archwright.costs.measure import Timing
from archwright.errors import InfeasibleError, InputError
from archwright.methods import rarts_width
from archwright.methods.rarts_width import Shrinking
from archwright.methods.width_answer import Telling
from archwright.models import load_model
from archwright.search.answer import Candidate
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
    "beside": False,
}
LEARNED: dict[str, Any] = {
    "network": "helpers.trained_networks:learned",
    "data": "digits",
    "tune_steps": 3,
    "timing": False,
    "compare": False,
    "beside": False,
}
"""A network that comes with weights."""


def thin(folder: Path, **changes: Any) -> Any:
    return aw.search("rarts-width", run=folder, **{**TINY, **changes})


def thin_given(folder: Path, **changes: Any) -> Any:
    return aw.search("rarts-width", run=folder, **{**LEARNED, **changes})


# --- pieces ----------------------------------------------------------------------------------------------------------


def test_scores_move_by_the_proximal_map_of_the_l1_norm() -> None:
    score = torch.tensor([0.5, -0.5, 0.01], requires_grad=True)
    sgd = torch.optim.SGD([score], lr=0.1)
    Shrinking([score], sgd, lambda _: 0.1, l1=0.2).descend([torch.tensor([1.0, 0.0, 0.0])], Position.at(0, 1, 1))
    assert score.tolist() == pytest.approx([0.38, -0.48, 0.0])
    Shrinking([score], sgd, lambda _: 0.1, gain=torch.tensor([2.0, 1.0, 1.0])).descend(
        [torch.tensor([1.0, 1.0, 0.0])], Position.at(0, 1, 1)
    )
    assert score.tolist() == pytest.approx([0.18, -0.58, 0.0])


def test_the_pull_is_that_of_l1_inside_the_momentum() -> None:
    """Without other gradients a score falls as fast as by l1 inside the gradient, as Network Slimming has it."""
    inside, outside = (torch.tensor([1.0], requires_grad=True) for _ in range(2))
    slimming = torch.optim.SGD([inside], lr=0.1, momentum=0.9)
    own = Shrinking(
        [outside], torch.optim.SGD([outside], lr=0.1, momentum=0.9), lambda _: 0.1, l1=1e-3, pull=1 / (1 - 0.9)
    )
    for step in range(300):
        inside.grad = 1e-3 * inside.detach().sign()
        slimming.step()
        own.descend([torch.zeros(1)], Position.at(step, 300, 1))
    assert 1 - float(outside) == pytest.approx(1 - float(inside), rel=0.05)


# --- the planted experiment ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", ["rarts", "slimming", "taylor", "fisher"])
def test_channels_that_are_noise_by_construction_are_lost_and_no_others(scores: str, tmp_path: Path) -> None:
    settings = {"data": "digits", "search_epochs": 3, "layers": "body.second", "search_augment": False}
    found = thin(tmp_path, network="helpers.own_networks:HalfNoise", scores=scores, keep_channels=0.5, **settings)
    assert Width(found.best.architecture).channels["body.second"] == [0, 1, 2, 3]


# --- from scratch ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "scores", ["rarts", "slimming", "darts", "darts-2", "random", "fisher", "l1", "rarts-taylor", "rarts-images"]
)
def test_every_score_keeps_the_asked_share_of_a_network_from_scratch(scores: str, tmp_path: Path) -> None:
    found = thin(tmp_path / "a", scores=scores, keep_channels=0.5)
    assert found.before.details["channels"] == 8
    assert found.best.details["channels"] == 4
    assert found.details["from_scratch"]
    model = load_model(tmp_path / "a")
    counted = count_network(model.network, model.scale)
    assert (counted.params, counted.macs) == (found.best.params, found.best.macs)
    assert found.best.macs < found.before.macs
    assert found.best.onnx == "artifacts/model-1.onnx"


def test_several_shares_of_one_search_and_scores_that_another_takes(tmp_path: Path) -> None:
    first = thin(tmp_path / "a", keep_channels=(0.75, 0.5), compare=True)
    assert [one.details["channels"] for one in first.models] == [4, 6]  # the tightest first
    assert first.beside["unpruned"].params == first.before.params
    assert (tmp_path / "a" / "artifacts" / "unpruned.onnx").is_file()
    fewer, kept = (set(Width(one.architecture).channels["body.2"]) for one in first.models)
    assert fewer < kept
    second = thin(
        tmp_path / "b", keep_channels=0.5, search_from=str(tmp_path / "a"), search_epochs=None, search_batch=None
    )
    assert second.best.architecture == first.models[0].architecture
    model = load_model(tmp_path / "b")
    assert (model.network.body[2].out_channels, model.network.body[6].in_features) == (4, 4)
    with pytest.raises(InputError, match=r"with trained scores of helpers\.own_networks:make on the same images"):
        thin(
            tmp_path / "c",
            network="helpers.own_networks:make",
            keep_channels=0.5,
            search_from=str(tmp_path / "a"),
            search_epochs=None,
            search_batch=None,
        )


def test_a_learned_share_loses_the_channels_of_score_zero(tmp_path: Path) -> None:
    found = thin(tmp_path, l1=20.0, keep=0.3)  # a pull that no gradient withstands
    assert found.best.details["channels"] == 3  # 30 % of 8, rounded up
    assert thin(tmp_path / "none", l1=1e-9).best.details["channels"] == 8


def test_limits_are_met_after_removal(tmp_path: Path) -> None:
    whole = thin(tmp_path / "a", keep_channels=0.9).before
    limits = {"params": 0.8 * whole.params, "macs": 0.6 * whole.macs, "channels": 6}
    best = thin(tmp_path / "b", limits=limits).best
    assert (best.params <= limits["params"], best.macs <= limits["macs"], best.details["channels"] <= 6) == (True,) * 3
    assert thin(tmp_path / "c", limits={"channels": 6}).best.details["channels"] == 6  # no more goes than is asked for
    with pytest.raises(InfeasibleError, match=r"no architecture meets params <= 10\. Reachable: params from"):
        thin(tmp_path / "d", limits={"params": 10.0})
    assert not (tmp_path / "d").exists()


# --- a network with weights ------------------------------------------------------------------------------------------


def test_a_given_network_is_tested_first_and_keeps_what_it_knew(tmp_path: Path) -> None:
    found = thin_given(tmp_path / "a", keep_macs=(0.7, 0.5))
    assert found.details["scores"] == "fisher"
    assert found.before.accuracy > 80
    assert found.before.details["preprocessing"]["mean"] == [0.25]
    assert found.before.epochs == 0
    assert found.models[-1].accuracy > found.before.accuracy - 10
    assert [one.macs <= share * found.before.macs for one, share in zip(found.models, (0.5, 0.7), strict=True)] == [
        True
    ] * 2
    assert found.front[-1].validation_accuracy == found.before.validation_accuracy
    assert list(found.to_json())[:6] == ["format", "method", "space", "data", "seed", "before"]
    random = thin_given(tmp_path / "b", keep_macs=0.5, scores="random")
    assert found.models[0].accuracy > random.best.accuracy
    model = load_model(tmp_path / "a")
    assert model.preprocessing.mean == (0.25,)
    images = torch.randn(3, 1, 8, 8)
    session = onnxruntime.InferenceSession(tmp_path / "a" / "artifacts" / "best.onnx")
    (logits,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    with torch.no_grad():
        answers = model.network.eval()(images)
    wanted = answers if np.allclose(logits, answers.numpy(), atol=1e-4) else answers.softmax(1)
    assert np.allclose(logits, wanted.numpy(), atol=1e-4)


def test_a_model_of_ours_is_thinned_with_its_preprocessing_and_again(tmp_path: Path) -> None:
    first = thin_given(tmp_path / "a", keep_macs=0.7)
    again = thin_given(tmp_path / "b", network=str(tmp_path / "a"), keep_macs=0.6)
    assert again.before.accuracy == first.best.accuracy
    assert again.before.details["preprocessing"]["mean"] == [0.25]
    assert again.before.macs == first.best.macs
    assert (
        load_model(tmp_path / "b").network.body[2].out_channels
        < load_model(tmp_path / "a").network.body[2].out_channels
    )


def test_more_steps_or_a_teacher_change_the_weights(tmp_path: Path) -> None:
    weights = []
    for number, changes in enumerate(({}, {"distill": 0.5}, {"tune_steps": 4})):
        found = thin_given(tmp_path / str(number), keep_macs=0.6, **changes)
        weights.append(found.best.load(allow_import=True).network.body[2].weight)
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_options_say_how_the_network_sees_images(tmp_path: Path) -> None:
    found = thin_given(tmp_path / "a", keep_macs=0.7, mean="0.1", std=(0.5,))
    assert found.before.details["preprocessing"]["mean"] == [0.1]
    with pytest.raises(InputError, match=r"an accuracy near 95 % .*--image-size, --order, --mean"):
        thin_given(tmp_path / "b", keep_macs=0.7, mean="30", std="9", accuracy=95)
    assert not (tmp_path / "b").exists()
    assert thin_given(tmp_path / "c", keep_macs=0.7, accuracy=90).before.accuracy > 80


def test_uniform_widths_keep_the_same_share_everywhere(tmp_path: Path) -> None:
    best = thin_given(tmp_path, keep_channels=0.5, uniform=True).best
    assert list(Width(best.architecture).widths.values()) == [8, 8]


# --- latency ---------------------------------------------------------------------------------------------------------


class ChannelWatch:
    """Instead of a stopwatch: a millisecond for each of a network's inner channels."""

    def __init__(self, network: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
        pixels = shape[-1]
        self.timing, self.ms = timing, float(network.body[2].out_channels) * pixels / 8

    def times_ms(self, repeats: int) -> NDArray[np.float64]:
        """The same for every call of a round."""
        return np.full(repeats, self.ms)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks and layers take a millisecond a channel, on steps of two."""

    def times(kinds: Any, least: Any, step: int, timing: Timing, advance: Any) -> NetworkTimes:
        one = LayerTimes(inputs=[1], outputs=[1, 16], ms=[[1.0, 16.0]])
        return NetworkTimes(step=step, tables=[one], layers={"body.2": 0})

    monkeypatch.setattr("archwright.costs.clock.Stopwatch", ChannelWatch)
    monkeypatch.setattr(rarts_width, "time_layers", times)
    monkeypatch.setattr(rarts_width, "step_of", lambda *_: 2)


@pytest.mark.usefixtures("clock")
def test_a_latency_limit_is_verified_by_the_clock(tmp_path: Path) -> None:
    found = thin_given(tmp_path / "a", timing=True, limits={"latency_ms": [7.0, 12.4]})
    assert [one.latency_ms for one in found.models] == [6.0, 12.0]
    assert found.before.latency_ms == 16.0
    assert found.details["step"] == 2
    with pytest.raises(InfeasibleError, match=r"latency_ms from 4 to 16 .timed here."):
        thin_given(tmp_path / "b", timing=True, limits={"latency_ms": 0.5})
    again = time_again(tmp_path / "a", 2)
    assert [(one.limit_ms, one.within) for one in again] == [(7.0, True), (12.4, True)]


@pytest.mark.usefixtures("clock")
def test_a_limit_is_used_where_predictions_say_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice what the clock says: widths go by the clock all the same."""
    monkeypatch.setattr(NetworkTimes, "fitted", lambda self, whole, thin: self.model_copy(update={"slope": 2.0}))
    found = thin_given(tmp_path, timing=True, limits={"latency_ms": 12.4})
    assert (found.best.latency_ms, found.best.predicted_latency_ms) == (12.0, 24.0)


@pytest.mark.usefixtures("clock")
def test_a_slow_moment_is_not_what_all_is_compared_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is ten times slower until the layers are timed."""
    slow, real, steady = [10.0], ChannelWatch.times_ms, rarts_width.time_layers
    monkeypatch.setattr(ChannelWatch, "times_ms", lambda self, repeats: slow[0] * real(self, repeats))

    def quiet_after(*arguments: Any) -> NetworkTimes:
        slow[0] = 1.0
        return steady(*arguments)

    monkeypatch.setattr(rarts_width, "time_layers", quiet_after)
    found = thin_given(tmp_path, timing=True, keep_macs=0.5)
    assert found.before.latency_ms == 16.0


@pytest.mark.usefixtures("clock")
def test_further_limits_train_only_what_they_need(tmp_path: Path) -> None:
    first = thin_given(tmp_path, timing=True, limits={"latency_ms": 12.4})
    more = aw.resume(tmp_path, latency_ms=[7.0])
    assert [one.latency_ms for one in more.models] == [6.0, 12.0]
    assert more.models[1].model == first.best.model
    assert more.models[1].accuracy == first.best.accuracy
    assert more.models[0].model != first.best.model


@pytest.mark.usefixtures("clock")
def test_a_smaller_size_is_tried_beside_where_the_network_takes_one(tmp_path: Path) -> None:
    found = thin_given(
        tmp_path,
        timing=True,
        compare=True,
        limits={"latency_ms": 40.0},
        image_size=24,
        network="helpers.trained_networks:learned",
    )
    assert found.beside["whole at 16 px"].latency_ms == 32.0
    assert found.models[0].details["as_quick_at"] == 16
    assert found.before.latency_ms == 48.0


@pytest.mark.parametrize(("whole", "said"), [(90.0, True), (80.5, False)])
def test_a_smaller_size_that_is_better_is_said_to_be(whole: float, said: bool) -> None:
    one = Candidate(architecture="{}", validation_accuracy=80.0, latency_ms=0.2)
    tuned = SimpleNamespace(smaller=[None, (48, "w")], kept={"w": SimpleNamespace(validation_accuracy=whole)})
    found = Telling(None, {})._verdict([one, one], tuned)  # type: ignore[arg-type]
    assert (found is not None) == said
    if found is not None:
        assert "images of 48 px, which is as quick, has 90.0 % on validation where this one has 80.0 %" in found
        assert "archwright search binas --pretrained" in found


def test_networks_are_not_timed_again_where_they_were_not_timed(tmp_path: Path) -> None:
    thin(tmp_path, keep_channels=0.5)
    with pytest.raises(InputError, match="models with a latency limit"):
        time_again(tmp_path)


def test_int8_stands_beside(tmp_path: Path) -> None:
    found = thin_given(tmp_path, keep_macs=0.6, precision="int8")
    beside = found.best.details["int8"]
    assert beside["validation_accuracy"] > 50
    assert (tmp_path / beside["onnx"]).is_file()


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "how much stays: --keep-macs, --keep-channels, --keep-params, a limit or --l1"),
        ({"keep_channels": 0.0}, "shares above 0 and below 1 are expected .got 0.0."),
        ({"keep_channels": (0.5, 0.5)}, "each share is to be given once"),
        (
            {"keep_channels": 0.5, "limits": {"channels": 4.0}},
            "one of --keep-channels and a limit on channels, got both",
        ),
        ({"keep_channels": 0.5, "layers": "body.0"}, "'body.0', the first layer, which sees the image, whose channels"),
        ({"keep_channels": 0.5, "layers": "body.6"}, "'body.6', the classifier, whose channels stay"),
        ({"keep_channels": 0.5, "layers": "body.7"}, "layers with channels that may go .body.2., got 'body.7'"),
        ({"keep_channels": 0.5, "network": "helpers.own_networks:one_layer"}, "with channels to remove"),
        ({"keep_channels": 0.5, "network": "helpers.own_networks:Cut"}, "module 'body"),
        (
            {"keep_channels": 0.5, "network": "helpers.own_networks:Mixing"},
            "channels of 'body.second' cannot be removed",
        ),
        ({"keep_channels": 0.5, "network": "nowhere.safetensors"}, "a network among resnet20"),
        ({"keep_channels": 0.5, "space": "nasbench201"}, "--space with the method"),
        ({"keep_channels": 0.5, "scores": "magic"}, "magic"),
        ({"keep_channels": 0.5, "l1": 0.1, "scores": "random"}, "--l1 with a score that is not trained"),
        ({"keep_channels": 0.5, "accuracy": 90}, "--accuracy of a network with weights"),
        ({"keep_channels": 0.5, "tune_steps": 5}, "one of --tune-steps and --final-epochs"),
        ({"limits": {"latency_ms": 1.0}}, "--timing beside a limit on latency_ms"),
        ({"limits": {"memory_bytes": 1.0}}, "memory_bytes"),
        ({"keep_channels": 0.5, "search_from": "nowhere", "search_epochs": None, "search_batch": None}, "nowhere"),
        ({"keep_channels": 0.5, "recipe": "darts"}, "without drop-path"),
        ({"keep_channels": 0.5, "preprocessing": "mars"}, "preprocessing among imagenet"),
        ({"keep_channels": 0.5, "order": "BGR"}, "colour images with the order BGR"),
        ({"keep_channels": 0.5, "mean": (0.1, 0.2)}, "one mean and one std for each of 1 channels"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_done(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        thin(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"search_epochs": 2}, "--search-epochs where nothing is trained before the removal"),
        ({"l1": 0.1}, "--l1 where nothing is trained"),
        (
            {"network": "helpers.trained_networks:not_finite"},
            "finite weights in .*not_finite, got NaN .* in body.2.weight",
        ),
        ({"network": "helpers.trained_networks:scripted"}, "a compiled ScriptModule"),
        ({"network": "helpers.trained_networks:odd_words"}, "preprocessing of .*odd_words.*'colour'"),
    ],
)
def test_given_networks_that_cannot_be_thinned(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        thin_given(tmp_path / "run", keep_macs=0.5, **changes)
    assert not (tmp_path / "run").exists()


def test_a_network_at_chance_is_suspected(tmp_path: Path) -> None:
    said: list[str] = []

    class Told(aw.runs.progress.Progress):  # type: ignore[name-defined]
        def say(self, text: str) -> None:
            said.append(text)

    thin_given(tmp_path, keep_macs=0.5, network="helpers.trained_networks:ignorant", progress=Told())
    assert any(
        "The network knows nothing of these images, or is not shown them as it was trained" in one for one in said
    )


def test_a_group_that_cannot_go_is_named_and_left_whole(tmp_path: Path) -> None:
    found = thin(tmp_path, network="helpers.trained_networks:half_mixing", keep_channels=0.5)
    assert list(found.details["left_whole"]) == ["body.first", "body.mixed"]
    assert json.loads(found.best.architecture)["body.mixed"] == "0-5"


def test_a_function_of_the_program_itself_will_do(tmp_path: Path) -> None:
    def mine(classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.Conv2d(2, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes)
        )

    found = thin(tmp_path, network=mine, keep_channels=0.5)
    assert found.best.details["channels"] == 2
    assert found.best.load().network.body[1].out_channels == 2


def test_a_transformer_loses_heads_and_hidden_numbers(tmp_path: Path) -> None:
    found = thin(tmp_path, network="examples/small_vit.py:build", keep_macs=0.6)
    widths = Width(found.best.architecture).widths
    assert set(widths) == {f"body.layers.{n}.{part}" for n in (0, 1) for part in ("self_attn.query", "linear1")}
    model = load_model(tmp_path, allow_import=True)
    assert model.network.body.layers[0].self_attn.heads == widths["body.layers.0.self_attn.query"]
    assert count_network(model.network, model.scale).macs == found.best.macs <= 0.6 * found.before.macs
