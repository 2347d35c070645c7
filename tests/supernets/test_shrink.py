"""Smaller compact networks inside trained larger ones: exact where nothing that counts is lost, refused elsewhere."""

from __future__ import annotations

import pytest
import torch

from archwright.errors import InputError
from archwright.spaces.compact import Compact, CompactScale
from archwright.spaces.compact_network import CompactNetwork
from archwright.supernets.grow import grow
from archwright.supernets.shrink import shrink

SPACE = Compact(
    CompactScale(
        image_size=12,
        image_channels=2,
        classes=3,
        channels=8,
        stage_factors=(1, 2),
        stage_strides=(1, 2),
        width_choices=(1.0, 2.0, 3.0),
        depths=(1, 2),
        configurations=("cn_k3", "bb_k3", "er_k3_e2", "ir_k3_e3", "cn_k5"),
    )
)
IMAGES = torch.randn(5, 2, 12, 12, generator=torch.Generator().manual_seed(0))
PAIRS = [
    ("cn_r1_k3_s1_c8/cn_r1_k3_s2_c16", "cn_r1_k3_s1_c16/cn_r1_k3_s2_c32"),
    ("cn_r1_k3_s1_c8/bb_r1_k3_s2_c16", "cn_r1_k3_s1_c24/bb_r1_k3_s2_c48|bb_r1_k3_s1_c48"),
    ("cn_r1_k3_s1_c8/er_r1_k3_s2_e2_c16", "cn_r1_k3_s1_c16/er_r1_k3_s2_e2_c32|er_r1_k3_s1_e2_c32"),
    ("cn_r1_k3_s1_c8|ir_r1_k3_s1_e3_c8/cn_r1_k3_s2_c16", "cn_r1_k3_s1_c16|ir_r1_k3_s1_e3_c16/cn_r1_k3_s2_c16"),
]


def trained(text: str, seed: int = 0) -> CompactNetwork:
    """As after a training: norms with weights and statistics of their own."""
    torch.manual_seed(seed)
    network = SPACE.build(SPACE.parse(text), SPACE.scale)
    assert isinstance(network, CompactNetwork)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.3)
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 1.5)
    return network.eval()


@pytest.mark.parametrize(("small", "large"), PAIRS)
def test_what_a_network_grew_by_can_be_taken_away_again(small: str, large: str) -> None:
    before = trained(small)
    smaller, larger = SPACE.parse(small), SPACE.parse(large)
    grown = grow(before, smaller, larger, SPACE, seed=1)
    again = shrink(grown, larger, smaller, SPACE)  # nothing reads the new channels, so that these count nothing
    with torch.no_grad():
        assert torch.allclose(again.eval()(IMAGES), before(IMAGES), atol=1e-5)


@pytest.mark.parametrize(("small", "large"), PAIRS)
def test_the_whole_network_stays_what_it_is(small: str, large: str) -> None:
    network, architecture = trained(large), SPACE.parse(large)
    same = shrink(network, architecture, architecture, SPACE)
    with torch.no_grad():
        assert torch.allclose(same.eval()(IMAGES), network(IMAGES), atol=1e-6)


def test_channels_without_weight_go_first_and_the_rest_computes_the_same() -> None:
    large, small = SPACE.parse(PAIRS[0][1]), SPACE.parse(PAIRS[0][0])
    network = trained(PAIRS[0][1])
    dead = [torch.randperm(16)[:8], torch.randperm(32)[:16]]
    with torch.no_grad():
        for stage, places in zip(network.stages, dead, strict=True):
            (block,) = stage.children()
            block.norm.weight[places] = 0.0
            block.norm.bias[places] = 0.0
        thin = shrink(network, large, small, SPACE).eval()
        assert torch.allclose(thin(IMAGES), network(IMAGES), atol=1e-5)


def test_other_kinds_are_refused() -> None:
    large, other = SPACE.parse(PAIRS[0][1]), SPACE.parse(PAIRS[1][0])
    with pytest.raises(InputError, match="smaller architecture"):
        shrink(trained(PAIRS[0][1]), large, other, SPACE)
