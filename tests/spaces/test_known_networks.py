"""Sizes of the networks as they are published."""

from __future__ import annotations

import pytest
import torch

from archwright.spaces.base import Scale
from archwright.spaces.counting import count_network
from archwright.spaces.known_networks import NETWORKS, build_known

PUBLISHED = {
    "resnet20": (Scale(16, 1), 272_474),
    "resnet56": (Scale(16, 1), 855_770),
    "resnet164": (Scale(16, 1), 1_703_258),  # 1.70 M
    "mobilenetv2": (Scale(32, 1, classes=1000, image_size=224), 3_504_872),  # 3.50 M
    "vgg16": (Scale(64, 1), 14_728_266),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_are_the_published_ones(name: str) -> None:
    scale, params = PUBLISHED[name]
    assert sum(one.numel() for one in build_known(name, scale).parameters()) == params


def test_mobilenetv2_has_its_published_300_million_multiply_accumulates() -> None:
    scale = PUBLISHED["mobilenetv2"][0]
    assert count_network(build_known("mobilenetv2", scale), scale).macs == pytest.approx(300e6, rel=0.01)


@pytest.mark.parametrize("name", NETWORKS)
def test_small_images_and_widths(name: str) -> None:
    scale = Scale(8, 1, classes=3, image_size=8, image_channels=1)
    with torch.no_grad():
        assert build_known(name, scale)(torch.randn(2, 1, 8, 8)).shape == (2, 3)
