"""The mbconv space: values, encodings, counted costs against built networks, bad input."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from archwright.costs.additive import counted_costs
from archwright.errors import InputError
from archwright.solvers.pareto import front
from archwright.solvers.problem import StagedChoice
from archwright.spaces.base import Scale
from archwright.spaces.gallery import NETWORKS, PUBLISHED_MBCONV
from archwright.spaces.mbconv import MBCONV, SCALES, MbConv, scale_for
from archwright.spaces.mbconv_scale import MbConvScale
from archwright.spaces.staged_scale import round_to_eight
from helpers.counting import counted

TINY = MbConv(
    SCALES["mbconv-8"].changed(
        stage_widths=(24, 40), stage_strides=(1, 2), activations=("relu", "swish"), last_widths=(96, 128)
    )
)


@pytest.mark.parametrize("name", SCALES)
def test_cost_is_what_the_built_network_has(name: str) -> None:
    space = MbConv(SCALES[name])
    scale = space.scale
    rng = np.random.default_rng(1)
    for architecture in (space.heaviest(), space.sample(rng)):
        with torch.device("meta"):
            network = space.build(architecture, scale)
        cost = space.cost(architecture, scale)
        assert (cost.params, cost.macs) == counted(network, scale.image_channels, scale.image_size)


def test_papers_shape() -> None:
    space = MbConv(SCALES["mbconv-224"])
    assert space.decisions == {"configuration": (20, 12), "depth": (5, 3)}
    assert sum(a * b for a, b in space.decisions.values()) == 255
    assert space.scale.stage_channels == (24, 40, 80, 112, 192)
    assert space.total_stride(space.scale) == 32
    assert space.size == (12**2 + 12**3 + 12**4) ** 5
    # Table 3, right: the configurations in their order.
    assert space.configurations[:4] == ((2, 3, False), (2, 3, True), (2, 5, False), (2, 5, True))
    assert space.configurations[11] == (6, 5, True)
    sizes = [row[0].size for row in space.heaviest().geometries(space.scale)]
    assert sizes == [112, 56, 28, 14, 14]  # the inputs' sizes of stages 3 to 7


def test_text_reads_back_and_is_timm_style() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        architecture = MBCONV.sample(rng)
        assert MBCONV.parse(str(architecture)) == architecture
    first = str(MbConv(SCALES["mbconv-224"]).heaviest()).split("/")[0]
    assert first.startswith("ir_r1_k5_s2_e6_c24_se0.25|ir_r1_k5_s1_e6_c24_se0.25|")


def test_encodings_and_choices_invert() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        architecture = MBCONV.sample(rng)
        assert MBCONV.decode(MBCONV.encode(architecture)) == architecture
        choice = MBCONV.to_choice(architecture)
        assert MBCONV.from_choice(choice) == architecture
        assert ((choice.configurations == -1) == (np.arange(4) >= choice.depths[:, None])).all()


def test_size_counts_every_architecture_once() -> None:
    space = MbConv(TINY.scale.changed(depths=(1, 2), expansions=(2,), kernels=(3,)))
    seen, frontier = {space.lightest()}, [space.lightest()]
    while frontier:  # all that neighbours lead to
        frontier = [n for a in frontier for n in space.neighbours(a) if n not in seen]
        seen |= set(frontier)
    assert len(seen) == space.size == (2 + 4) ** 2


MIXED = MbConv(
    TINY.scale.changed(
        depths=(1, 2, 3),
        expansions=(2, 6),
        kernels=(3, 5),
        squeeze_excite=(False,),
        stage_depths=(3, 1),
        stage_kernels=(5, 3),
        full_stages=1,
        last_widths=(32,),
        activations=("relu6", "relu6"),
        norm_eps=1e-3,
    )
)
"""Stages that differ: the first has up to three blocks of kernel 5 and expansion 6, the second one of kernel 3."""


def test_stages_may_differ_in_depth_kernel_and_expansion() -> None:
    seen, frontier = {MIXED.lightest()}, [MIXED.lightest()]
    while frontier:
        frontier = [n for a in frontier for n in MIXED.neighbours(a) if n not in seen]
        seen |= set(frontier)
    assert len(seen) == MIXED.size == 3 * 2
    rng = np.random.default_rng(0)
    assert {MIXED.sample(rng) for _ in range(200)} == seen
    assert all({(b.kernel, b.expansion) for b in one.stages[0]} == {(5, 6)} for one in seen)
    assert {one.stages[1][0].kernel for one in seen} == {3}
    assert max(seen, key=lambda one: MIXED.cost(one, MIXED.scale).macs) == MIXED.heaviest()
    assert min(seen, key=lambda one: MIXED.cost(one, MIXED.scale).macs) == MIXED.lightest()
    for one in seen:
        assert MIXED.parse(str(one)) == MIXED.decode(MIXED.encode(one)) == one
    first = MIXED.heaviest().stages[0]
    with pytest.raises(InputError, match="stage 1"):
        MIXED.parse(str(MIXED.heaviest()).replace(str(first[0]), str(first[0]).replace("e6", "e2")))


def test_the_exact_front_of_stages_that_differ_is_that_of_all_architectures() -> None:
    rng = np.random.default_rng(1)
    problem = counted_costs(MIXED).problem(MIXED, rng.random(MIXED.shape), rng.random(MIXED.shape[:2]))
    rows = [MIXED.lightest(), *(MIXED.sample(rng) for _ in range(200))]
    value, costs = problem.evaluate(StagedChoice.stack([MIXED.to_choice(one) for one in rows]))
    found = front(problem, "macs")
    for limit in np.unique(costs["macs"]):
        assert found.problem.evaluate(found.best(float(limit)))[0] == pytest.approx(value[costs["macs"] <= limit].max())


def test_one_last_convolution_and_the_eps_of_norms_are_built_and_counted() -> None:
    with torch.device("meta"):
        network = MIXED.build(MIXED.heaviest(), MIXED.scale)
    cost = MIXED.cost(MIXED.heaviest(), MIXED.scale)
    assert counted(network, MIXED.scale.image_channels, MIXED.scale.image_size) == (cost.params, cost.macs)
    assert {m.eps for m in network.modules() if isinstance(m, nn.BatchNorm2d)} == {1e-3}


@pytest.mark.parametrize("name", NETWORKS)
def test_published_networks_are_of_their_space(name: str) -> None:
    space = PUBLISHED_MBCONV
    assert space.parse(str(NETWORKS[name])) == NETWORKS[name]
    with torch.device("meta"):
        network = space.build(NETWORKS[name], space.scale)
    cost = space.cost(NETWORKS[name], space.scale)
    assert (cost.params, cost.macs) == counted(network, 3, 224)


def test_squeeze_excite_of_the_expanded_channels_or_of_the_input() -> None:
    blocks = [row[0] for row in TINY.heaviest().geometries(TINY.scale)]
    assert [block.squeezed for block in blocks] == [round_to_eight(block.inner / 4) for block in blocks]
    narrow = TINY.scale.changed(squeeze_of="input")
    others = [row[0] for row in TINY.heaviest().geometries(narrow)]
    assert [block.squeezed for block in others] == [max(8, block.in_channels // 4) for block in others]
    assert str(blocks[1]) != str(others[1])  # a latency table must not take one for the other
    space = MbConv(narrow)
    with torch.device("meta"):
        network = space.build(space.heaviest(), narrow)
    cost = space.cost(space.heaviest(), narrow)
    assert (cost.params, cost.macs) == counted(network, narrow.image_channels, narrow.image_size)
    with pytest.raises(InputError, match="squeeze_of"):
        TINY.scale.changed(squeeze_of="output").check()
    with pytest.raises(InputError, match="pooled_last"):
        TINY.scale.changed(pooled_last=True, last_widths=(64,)).check()


def test_neighbours_are_distinct_and_mutual() -> None:
    architecture = TINY.sample(np.random.default_rng(3))
    found = TINY.neighbours(architecture)
    assert len(set(found)) == len(found)
    assert architecture not in found
    assert all(architecture in TINY.neighbours(other) for other in found[::7])


def test_crossover_takes_every_block_from_a_parent() -> None:
    rng = np.random.default_rng(0)
    one, other = TINY.heaviest(), TINY.lightest()
    children = {TINY.crossover(one, other, rng) for _ in range(30)}
    assert len(children) > 5
    for child in children:
        for stage, blocks in enumerate(child.stages):
            assert len(blocks) in (2, 4)
            for place, block in enumerate(blocks):
                assert any(place < len(p.stages[stage]) and p.stages[stage][place] == block for p in (one, other))


def test_sample_is_uniform_over_decisions() -> None:
    rng = np.random.default_rng(0)
    depths = np.stack([TINY.to_choice(TINY.sample(rng)).depths for _ in range(1500)])
    for depth in (2, 3, 4):
        assert abs((depths == depth).mean() - 1 / 3) < 0.03


@pytest.mark.parametrize(("size", "name"), [(8, "mbconv-8"), (28, "mbconv-32"), (64, "mbconv-64"), (224, "mbconv-224")])
def test_scale_for_picks_a_preset_that_fits(size: int, name: str) -> None:
    scale = scale_for(size, classes=2, image_channels=1)
    assert scale == SCALES[name].changed(image_size=size, classes=2, image_channels=1)
    network = MbConv(scale).build(MbConv(scale).lightest(), scale)
    assert network.eval()(torch.zeros(2, 1, size, size)).shape == (2, 2)


def test_scale_survives_json() -> None:
    scale = SCALES["mbconv-32"]
    assert MbConvScale(**json.loads(json.dumps(scale.to_dict()))) == scale


def test_width_multiplier_rounds_to_eight() -> None:
    assert SCALES["mbconv-224"].changed(width=0.5).stage_channels == (16, 24, 40, 56, 96)
    assert SCALES["mbconv-224"].changed(width=1.0).stage_channels == (24, 40, 80, 112, 192)


GOOD = str(TINY.lightest())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "stage 1"),
        (GOOD.replace("k3", "k4"), "odd kernel"),
        (GOOD.replace("k3", "k7"), "kernel in"),
        (GOOD.replace("e2", "e4"), "expansion in"),
        (GOOD.replace("c16", "c24"), "16 channels"),
        (GOOD.split("/")[0], "2 stages"),
        (GOOD.replace("|ir_r1_k3_s1_e2_c16", "", 1), "depth among"),
        (GOOD.replace("ir_r1", "ds_r1", 1), "ds_r1"),
        (GOOD.replace("_s1_", "_s2_"), "stride"),
    ],
)
def test_bad_text_says_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TINY.parse(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"image_size": 1},
        {"image_size": (8, 12)},
        {"classes": 0},
        {"width": 0.0},
        {"depths": ()},
        {"depths": (3, 2)},
        {"kernels": (4,)},
        {"expansions": (0, 2)},
        {"stage_strides": (1,)},
        {"activations": ("gelu", "relu")},
        {"auxiliary": True},
        {"stage_depths": (2,)},
        {"stage_depths": (2, 9)},
        {"stage_kernels": (3, 7)},
        {"full_stages": 3},
        {"norm_eps": 0.0},
    ],
)
def test_scales_no_network_can_have_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        MbConv(TINY.scale.changed(**changes))


def test_other_bad_input() -> None:
    with pytest.raises(InputError, match="8 px"):
        scale_for(7)
    with pytest.raises(InputError, match="mbconv"):
        TINY.build(TINY.lightest(), Scale(channels=16, cells=2))
    with pytest.raises(InputError, match="4 px"):
        TINY.build(TINY.lightest(), TINY.scale.changed(image_size=3, stem_stride=2))
    with pytest.raises(InputError, match="channels"):
        TINY.encode(MbConv(TINY.scale.changed(width=1.0)).lightest())
    with pytest.raises(InputError, match="depths"):
        TINY.from_choice(StagedChoice(np.array([1, 2]), np.full((2, 4), -1)))
    encoding = TINY.encode(TINY.lightest())
    encoding["configuration"][3, 0] = 1
    with pytest.raises(InputError, match="beyond"):
        TINY.decode(encoding)
