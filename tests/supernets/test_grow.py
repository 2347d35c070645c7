"""Grown networks compute the same as the small ones they come from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.spaces.compact import SCALES, Compact, CompactArchitecture
from archwright.spaces.compact_network import CompactNetwork
from archwright.supernets.grow import contains, grow

SPACE = Compact(
    SCALES["compact-8"].changed(
        stage_strides=(1, 2, 2),
        stage_factors=(1, 2, 4),
        channels=8,
        width_choices=(1.0, 2.0, 3.0),
        configurations=("cn_k3", "cn_k5", "bb_k3", "bb_k5", "er_k3_e2", "er_k5_e3", "ir_k3_e2", "ir_k5_e3"),
    )
)
SMALL = "cn_r1_k3_s1_c8/{}_c16/{}_c32"
PAIRS = [
    # (first blocks of the last two stages, the same larger, an added block)
    ("cn_r1_k3_s2", "cn_r1_k5_s2", "cn_r1_k3_s1"),
    ("bb_r1_k3_s2", "bb_r1_k5_s2", "bb_r1_k3_s1"),
    ("er_r1_k3_s2_e2", "er_r1_k5_s2_e3", "er_r1_k3_s1_e2"),
    ("ir_r1_k3_s2_e2", "ir_r1_k5_s2_e3", "ir_r1_k3_s1_e2"),
]


def trained_like(architecture: CompactArchitecture) -> CompactNetwork:
    """A network whose norms have seen something, so that a statistic that is copied wrongly shows."""
    torch.manual_seed(0)
    network = SPACE.build(architecture, SPACE.scale)
    assert isinstance(network, CompactNetwork)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.0, 0.3)
            nn.init.normal_(module.running_mean, 0.0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return network.eval()


def images(count: int = 6) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize(("small", "large", "added"), PAIRS)
def test_growing_keeps_the_function(small: str, large: str, added: str) -> None:
    old = SPACE.parse(SMALL.format(small, small))
    network, x = trained_like(old), images()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    for new in (
        SPACE.parse(str(old).replace("_c16", "_c48")),  # wider
        SPACE.parse(str(old).replace("/", f"|{added}_c8/", 1) + f"|{added}_c32|{added}_c32"),  # deeper
        SPACE.parse(f"cn_r1_k5_s1_c24/{large}_c48|{added}_c48/{large}_c96|{added}_c96"),  # all at once
    ):
        grown = grow(network, old, new, SPACE, 1)
        with torch.no_grad():
            torch.testing.assert_close(grown(x), network(x), rtol=1e-5, atol=1e-5)
        assert sum(p.numel() for p in grown.parameters()) == SPACE.cost(new, SPACE.scale).params
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize(("small", "large", "added"), PAIRS)
def test_with_images_training_goes_on_too(small: str, large: str, added: str) -> None:
    """In training mode norms use the batch: copies have the same statistics, and added plain blocks undo theirs."""
    old = SPACE.parse(SMALL.format(small, small))
    new = SPACE.parse(f"cn_r1_k3_s1_c24|cn_r1_k3_s1_c24/{large}_c48|{added}_c48/{large}_c96|cn_r1_k3_s1_c96")
    network, x = trained_like(old).train(), images(400)  # running variances are a thousandth above a batch's own
    with torch.no_grad():
        for _ in range(100):  # until the running statistics are those of these images
            network(x)
    grown = grow(network, old, new, SPACE, 1, images=x)
    assert grown.training
    with torch.no_grad():
        torch.testing.assert_close(grown(x), network(x), rtol=1e-2, atol=1e-2)


def test_new_channels_learn_at_once() -> None:
    old = SPACE.parse(SMALL.format("cn_r1_k3_s2", "bb_r1_k3_s2"))
    new = SPACE.parse(str(old).replace("_c8", "_c16"))
    grown = grow(trained_like(old).train(), old, new, SPACE, 1)
    nn.functional.cross_entropy(grown(images()), torch.arange(6)).backward()
    reading = grown.stages[1][0].conv
    assert not reading.weight[:, 8:].any()
    assert (reading.weight.grad[:, 8:].abs().amax((0, 2, 3)) > 1e-6).all()


def test_what_is_not_contained_is_refused() -> None:
    old = SPACE.parse(SMALL.format("bb_r1_k3_s2", "cn_r1_k5_s2"))
    others = [
        SMALL.format("cn_r1_k3_s2", "cn_r1_k5_s2"),  # another kind
        SMALL.format("bb_r1_k3_s2", "cn_r1_k3_s2"),  # a smaller kernel
        str(old).replace("_c16", "_c32"),
    ]
    assert contains(SPACE.parse(others[2]), old)
    assert not contains(old, SPACE.parse(others[2]))  # narrower
    for text in others[:2]:
        assert not contains(SPACE.parse(text), old)
        with pytest.raises(InputError, match="larger architecture"):
            grow(trained_like(old), old, SPACE.parse(text), SPACE, 1)
