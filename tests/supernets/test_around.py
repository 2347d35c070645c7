"""A supernet around a trained network: the same function, and norms of narrower blocks by their known moments."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from archwright.spaces.mbconv import SCALES, MbConv
from archwright.spaces.mbconv_network import InvertedResidual, MbConvNetwork
from archwright.supernets.around import supernet_around

SPACE = MbConv(
    SCALES["mbconv-8"].changed(
        stage_widths=(24, 40),
        stage_strides=(1, 2),
        activations=("relu6", "relu6"),
        depths=(1, 2),
        expansions=(2, 6),
        squeeze_excite=(False,),
        stage_depths=(2, 1),
        stage_kernels=(5, 3),
        full_stages=1,
        last_widths=(32,),
        norm_eps=1e-3,
    )
)


@pytest.fixture(scope="module")
def network() -> MbConvNetwork:
    """With weights, norms and statistics that are not trivial."""
    torch.manual_seed(0)
    built = SPACE.build(SPACE.heaviest(), SPACE.scale)
    assert isinstance(built, MbConvNetwork)
    for module in built.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
            module.running_mean.normal_(std=0.2)
            module.running_var.uniform_(0.02, 0.2)
    return built.eval()


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_the_heaviest_sub_network_is_the_network(network: MbConvNetwork, images: torch.Tensor) -> None:
    supernet = supernet_around(network, SPACE, images)
    other = torch.randn(5, 1, 12, 12, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        assert torch.allclose(supernet(other, SPACE.to_choice(SPACE.heaviest())), network(other), atol=1e-5)
        assert torch.allclose(supernet.cut_out(SPACE.heaviest()).eval()(other), network(other), atol=1e-5)


def test_narrower_blocks_keep_the_strongest_channels_and_the_moments(
    network: MbConvNetwork, images: torch.Tensor
) -> None:
    supernet = supernet_around(network, SPACE, images)
    narrow = SPACE.parse(_narrow_last())
    cut = supernet.cut_out(narrow).eval()
    whole, part = network.blocks[-1], cut.blocks[-1]
    assert isinstance(whole, InvertedResidual)
    assert isinstance(part, InvertedResidual)
    with torch.no_grad():
        x = network.blocks[:-1](network.start(images))
        ours, theirs = part(x), whole(x)
        inner = whole.expand_activation(whole.expand_norm(whole.expand(x)))
        inner = whole.depthwise_activation(whole.depthwise_norm(whole.depthwise(inner)))
        strength = inner.abs().mean((0, 2, 3)) * whole.project.weight.abs().sum((0, 2, 3))
    for moment in (torch.mean, torch.std):
        assert torch.allclose(moment(ours, (0, 2, 3)), moment(theirs, (0, 2, 3)), atol=2e-3)
    kept = {tuple(np.round(row, 5)) for row in part.expand.weight.flatten(1).tolist()}
    best = whole.expand.weight[strength.topk(len(kept)).indices].flatten(1).tolist()
    assert kept == {tuple(np.round(row, 5)) for row in best}


def _narrow_last() -> str:
    before, last = str(SPACE.heaviest()).rsplit("/", 1)
    return f"{before}/{last.replace('_e6_', '_e2_')}"
