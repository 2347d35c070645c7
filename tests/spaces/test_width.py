"""Thinned networks: values, counts, and channels that can go."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.counting import count_network
from archwright.spaces.known_networks import NETWORKS
from archwright.spaces.registry import find_space
from archwright.spaces.width import Width, WidthSpace
from archwright.supernets.scored import Scores, broken_groups, removal_error
from archwright.testing import check_space

SMALL = Scale(8, 1, classes=3, image_size=8, image_channels=1)
OWN = Scale(1, 1, classes=3, image_size=8, image_channels=1)


def space_of(network: str) -> WidthSpace:
    return WidthSpace(network, SMALL if network in NETWORKS else OWN)


def randomised(network: torch.nn.Module) -> torch.nn.Module:
    """Batch norms as after some training: what a constant channel would pass on is not zero."""
    generator = torch.Generator().manual_seed(3)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor in (module.weight.data, module.bias.data, module.running_mean):
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
            module.running_var.uniform_(0.5, 2.0, generator=generator)
    return network


def test_the_text_has_ranges_and_parses_back() -> None:
    width = Width.of({"a": [0, 1, 2, 7], "b": [4]})
    assert str(width) == '{"a": "0-2,7", "b": "4"}'
    assert width.channels == {"a": [0, 1, 2, 7], "b": [4]}
    assert width.count == 5


def test_the_space_keeps_the_contract() -> None:
    space = space_of("helpers.own_networks:plain")
    space.scales = {"small": OWN}
    check_space(space, samples=2)


NAMES = [*NETWORKS, "helpers.own_networks:make", "helpers.own_networks:plain"]


@pytest.mark.parametrize("name", NAMES)
def test_zero_scores_can_be_removed_and_counts_are_analytic(name: str) -> None:
    """Also inside residual sums, and where batch norms turn a zero into something else."""
    space = space_of(name)
    network = randomised(space.whole())
    width = space.sample(np.random.default_rng(1))
    assert removal_error(space, network, width.channels) < 1e-5
    assert count_network(space.build(width, space.scale), space.scale) == space.cost(width, space.scale)
    assert count_network(space.whole(), space.scale) == space.cost(space.full, space.scale)


def test_a_score_multiplies_the_feature_map_which_equals_scaling_the_kernel() -> None:
    space = space_of("helpers.own_networks:plain")
    network, images = space.whole().eval(), torch.randn(2, 1, 8, 8)
    scores = Scores(space.structure)
    values = torch.rand(scores.total)
    body = network.body
    with torch.no_grad():
        by_map = body[6](body[5](body[4](values.view(1, -1, 1, 1) * body[3](body[2](body[1](body[0](images)))))))
        assert torch.allclose(scores.logits(network, values, images), by_map, atol=1e-6)
        body[2].weight.mul_(values.view(-1, 1, 1, 1))  # scores are positive: they pass through the ReLU
        body[2].bias.mul_(values)
        assert torch.allclose(network(images), by_map, atol=1e-6)


def test_folded_scores_are_the_same_function() -> None:
    space = space_of("resnet20")
    network, images, scores = space.whole().eval(), torch.randn(2, 1, 8, 8), Scores(space.structure)
    values = torch.randn(scores.total)
    with torch.no_grad():
        before = scores.logits(network, values, images)
        scores.fold(network, values)
        assert torch.allclose(network(images), before, rtol=1e-4, atol=1e-5)


def test_groups_of_a_residual_network_by_hand() -> None:
    """ResNet-20: nine inner layers and the streams of the second and third stage; the first stream is the stem's."""
    sizes = space_of("resnet20").sizes
    assert list(sizes.values()) == [8, 8, 8, 16, 16, 16, 16, 32, 32, 32, 32]
    assert "stem" not in sizes


def test_a_grouped_convolution_loses_the_same_from_every_group() -> None:
    space = space_of("helpers.own_networks:make")
    assert space.sizes["body.grouped"] == 3  # 12 outputs in 4 groups
    assert space.sizes["body.conv1"] == 2  # its reader has 8 inputs in 4 groups
    grouped = space.build(
        Width.of({**space.full.channels, "body.grouped": [0, 2], "body.conv1": [1]}), OWN
    ).body.grouped
    assert (grouped.in_channels, grouped.out_channels, grouped.groups) == (4, 8, 4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("helpers.own_networks:one_layer", "channels to remove beside its first layer .body.0. and its classifier"),
        ("helpers.own_networks:Cut", "module 'body.(first|middle)' cannot be .no gradient comes back"),
        ("helpers.own_networks:Failing", "module 'body.wrong' cannot be"),
        (
            "helpers.own_networks:no_network",
            "a torch module from your function helpers.own_networks:no_network, got str",
        ),
        ("helpers.own_networks:nothing", "an object 'nothing'"),
        ("resnet21", "a network among resnet20"),
    ],
)
def test_networks_that_cannot_be_thinned(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _ = space_of(name).structure


def test_other_outputs_than_classes_are_refused() -> None:
    with pytest.raises(InputError, match=r"logits of shape \(1, 5\).*\(1, 3\)"):
        _ = WidthSpace("helpers.own_networks:three_outputs", OWN.changed(classes=5)).structure


def test_a_layer_that_mixes_channels_is_found_out() -> None:
    space = space_of("helpers.own_networks:Mixing")
    assert broken_groups(space, space.whole()) == ["body.second"]
    assert broken_groups(space_of("helpers.own_networks:make"), space_of("helpers.own_networks:make").whole()) == []


@pytest.mark.parametrize(
    "text", ["{}", "[]", "x", '{"body.2": ""}', '{"body.2": "0-9"}', '{"body.2": "3,1"}', '{"other": "0"}']
)
def test_wrong_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        space_of("helpers.own_networks:plain").parse(text)


def test_a_space_is_found_by_its_text() -> None:
    space = find_space("width:mobilenetv2")
    assert (space.name, space.scales["paper"].channels) == ("width:mobilenetv2", 32)
    with pytest.raises(InputError, match="no --channels with your own"):
        find_space("width:helpers.own_networks:plain").check_scale(OWN.changed(channels=4))
