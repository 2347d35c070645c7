"""The compact space: values, widths, skips by place, counted costs against built networks, bad input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from archwright.costs.additive import counted_costs
from archwright.errors import InputError
from archwright.solvers.problem import StagedChoice
from archwright.spaces.compact import COMPACT, SCALES, Compact, scale_for
from archwright.spaces.compact_network import BlockGeometry
from archwright.spaces.compact_scale import CompactScale, Configuration
from archwright.spaces.mbconv import SCALES as MBCONV_SCALES
from archwright.spaces.mbconv import MbConv
from archwright.spaces.staged import StagedSpace
from archwright.testing import check_space
from helpers.counting import counted

TINY = Compact(SCALES["compact-8"].changed(channels=8, width_choices=(1.0, 2.0), depths=(1, 2)))
WIDE_MBCONV = MbConv(
    MBCONV_SCALES["mbconv-8"].changed(
        stage_widths=(24, 40), stage_strides=(1, 2), activations=("relu", "swish"), last_widths=(96, 128),
        width_choices=(1.0, 2.0), expansions=(2,), depths=(1, 2),
    )
)  # fmt: skip


def test_a_small_space_keeps_the_contract() -> None:
    check_space(TINY, samples=5)


def test_mbconv_with_widths_reads_and_varies_them() -> None:
    assert WIDE_MBCONV.widths == ((8, 16), (16, 24))
    architecture = WIDE_MBCONV.sample(np.random.default_rng(0))
    assert WIDE_MBCONV.parse(str(architecture)) == architecture
    assert WIDE_MBCONV.decode(WIDE_MBCONV.encode(architecture)) == architecture
    found = WIDE_MBCONV.neighbours(architecture)
    assert len(set(found)) == len(found)
    assert all(architecture in WIDE_MBCONV.neighbours(other) for other in found)
    assert sum(a.stages[0][0].channels != architecture.stages[0][0].channels for a in found) == 1
    WIDE_MBCONV.build(WIDE_MBCONV.heaviest(), WIDE_MBCONV.scale)(torch.zeros(2, 1, 8, 8))


def test_the_network_a_person_would_try_is_in_it() -> None:
    architecture = COMPACT.parse("cn_r1_k3_s2_c16/cn_r1_k3_s1_c32/cn_r1_k3_s2_c64")
    assert architecture == COMPACT.plain()
    network = COMPACT.build(architecture, COMPACT.scale)
    kinds = [type(module) for module in network.modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    assert kinds == [nn.Conv2d, nn.Conv2d, nn.Conv2d, nn.Linear]


@pytest.mark.parametrize("name", SCALES)
def test_cost_is_what_the_built_network_has(name: str) -> None:
    space = Compact(SCALES[name])
    scale, rng = space.scale, np.random.default_rng(1)
    for architecture in (space.heaviest(), space.lightest(), *(space.sample(rng) for _ in range(4))):
        with torch.device("meta"):
            network = space.build(architecture, scale)
        cost = space.cost(architecture, scale)
        assert (cost.params, cost.macs) == counted(network, scale.image_channels, scale.image_size)
        assert scale.image_size % space.total_stride(scale) == 0


@pytest.mark.parametrize("space", [TINY, WIDE_MBCONV], ids=["compact", "mbconv"])
def test_sums_by_widths_are_the_costs_of_architectures(space: StagedSpace) -> None:
    problem, rng = counted_costs(space).problem(space), np.random.default_rng(0)
    assert problem.widths == (2,) * space.stages
    for architecture in (space.heaviest(), space.lightest(), *(space.sample(rng) for _ in range(10))):
        counted_cost = space.cost(architecture, space.scale)
        _, summed = problem.evaluate(space.to_choice(architecture))
        assert (summed["params"], summed["macs"]) == (counted_cost.params, counted_cost.macs)
    assert problem.cost_range("macs") == tuple(
        space.cost(end, space.scale).macs for end in (space.lightest(), space.heaviest())
    )


def test_size_counts_every_architecture_once() -> None:
    space = Compact(TINY.scale.changed(stage_factors=(1, 2), stage_strides=(1, 2), configurations=("cn_k3", "bb_k3")))
    seen, frontier = {space.lightest()}, [space.lightest()]
    while frontier:
        frontier = list({n for a in frontier for n in space.neighbours(a)} - seen)
        seen |= set(frontier)
    assert len(seen) == space.size == (2 * (1 + 2)) * (2 * (2 + 4))


@pytest.mark.parametrize("kind", ["bb_k3", "er_k3_e2", "ir_k3_e3"])
def test_a_skip_is_a_matter_of_place(kind: str) -> None:
    """With nothing left of its own branch a block is the identity, unless it is the first of a stage."""
    x = torch.rand(2, 8, 4, 4)
    for first in (True, False):
        block = BlockGeometry(8, 8, Configuration.parse(kind), 1, 4, first).build().eval()
        last = block.norm2 if kind == "bb_k3" else block.project_norm
        nn.init.zeros_(last.weight)
        assert torch.equal(block(x), x) != first


def test_text_reads_back_and_is_timm_style() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        architecture = COMPACT.sample(rng)
        assert COMPACT.parse(str(architecture)) == architecture
        assert COMPACT.from_choice(COMPACT.to_choice(architecture)) == architecture
        assert architecture.stages[0][0].configuration.kind == "cn"


def test_sample_is_uniform_over_widths() -> None:
    rng = np.random.default_rng(0)
    widths = np.stack([COMPACT.to_choice(COMPACT.sample(rng)).widths for _ in range(600)])
    for number in range(5):
        assert (np.abs((widths == number).mean(0) - 0.2) < 0.06).all()


@pytest.mark.parametrize(
    ("size", "name"), [(8, "compact-8"), (16, "compact-16"), (28, "compact-32"), (96, "compact-64")]
)
def test_scale_for_picks_a_preset_that_fits(size: int, name: str) -> None:
    scale = scale_for(size, classes=2, image_channels=1)
    assert scale == SCALES[name].changed(image_size=size, classes=2, image_channels=1)
    assert CompactScale(**json.loads(json.dumps(scale.to_dict()))) == scale
    space = Compact(scale)
    assert space.build(space.lightest(), scale).eval()(torch.zeros(2, 1, size, size)).shape == (2, 2)


GOOD = str(COMPACT.plain())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "stage 1"),
        (GOOD.replace("k3", "k4"), "odd kernel"),
        (GOOD.replace("k3", "k7"), "blocks among"),
        (GOOD.replace("c16", "c17"), "8 or 16 or 24 or 32 or 48 channels"),
        (GOOD.replace("cn", "bb", 1), "plain first block"),
        (GOOD.replace("cn_r1_k3_s2_c64", "er_r1_k3_s2_c64"), "an expansion"),
        (GOOD + "/cn_r1_k3_s1_c64", "3 stages"),
        ("|".join([GOOD, *["cn_r1_k3_s1_c64"] * 3]), "depth among"),
        (GOOD + "|cn_r1_k3_s2_c64", "a stride only"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        COMPACT.parse(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"image_size": 3}, {"depths": ()}, {"depths": (2, 1)}, {"width_choices": (0.0, 1.0)}, {"stage_strides": (1, 2)},
        {"configurations": ("bb_k3",)}, {"configurations": ("cn_k3", "cn_k3")}, {"configurations": ("cn_k2",)},
        {"configurations": ("xx_k3",)}, {"auxiliary": True}, {"classes": 0},
    ],
)  # fmt: skip
def test_scales_that_no_network_has_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Compact(SCALES["compact-16"].changed(**changes))


def test_choices_of_other_spaces_are_refused() -> None:
    choice = COMPACT.to_choice(COMPACT.plain())
    for bad in (
        StagedChoice(choice.depths, choice.configurations, choice.widths + 5),
        StagedChoice(choice.depths, np.where(choice.configurations == 0, 1, -1)),
        StagedChoice(choice.depths[:2], choice.configurations[:2]),
    ):
        with pytest.raises(InputError):
            COMPACT.from_choice(bad)


@pytest.mark.parametrize("space", [TINY, WIDE_MBCONV], ids=["compact", "mbconv"])
def test_what_is_allowed_cannot_be_changed_from_outside(space: StagedSpace[Any]) -> None:
    with pytest.raises(ValueError, match="read-only"):
        space.allowed[0, 0] = False


def test_a_staged_space_takes_scales_of_its_own_kind_only() -> None:
    with pytest.raises(InputError, match="a scale of the compact space"):
        Compact(MBCONV_SCALES["mbconv-8"])
    with pytest.raises(InputError, match="a scale of the mbconv space"):
        MbConv(SCALES["compact-8"])


def test_the_gradient_of_the_last_maps_keeps_their_memory_format() -> None:
    """Laid out anew it would make every layer before the pooling slower."""
    space = Compact(SCALES["compact-16"])
    network = space.build(space.plain(), space.scale).to(memory_format=torch.channels_last)
    maps = torch.rand(2, 64, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
    seen: list[torch.Tensor] = []
    inner = maps.relu()
    inner.register_hook(seen.append)
    network.end.train()(inner).sum().backward()
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(network.end(maps), network.end.eval()(maps), atol=1e-6)
