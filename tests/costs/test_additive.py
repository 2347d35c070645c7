"""Additive costs equal the costs of whole architectures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from archwright.costs.additive import StagedCosts, counted_costs
from archwright.errors import InputError
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.spaces.mbconv_network import InvertedResidual


@pytest.mark.parametrize("name", ["mbconv-8", "mbconv-224"])
def test_sums_are_the_costs_of_architectures(name: str) -> None:
    space = MbConv(SCALES[name])
    costs = counted_costs(space)
    problem = costs.problem(space)
    rng = np.random.default_rng(0)
    for architecture in (space.heaviest(), space.lightest(), space.sample(rng)):
        counted = space.cost(architecture, space.scale)
        _, summed = problem.evaluate(space.to_choice(architecture))
        assert (summed["params"], summed["macs"]) == (counted.params, counted.macs)
    least, most = problem.cost_range("macs")
    assert least == space.cost(space.lightest(), space.scale).macs
    assert most == space.cost(space.heaviest(), space.scale).macs


def test_memory_is_weights_and_kept_activations() -> None:
    space = MbConv(SCALES["mbconv-8"])
    geometry = space.part(1, 0, 4)  # no squeeze-excite, strided
    block = InvertedResidual(geometry).eval()
    kept = 0

    def hook(_: object, __: object, output: torch.Tensor) -> None:
        nonlocal kept
        kept += output[0].numel()

    for part in (block.expand, block.depthwise, block.project):
        part.register_forward_hook(hook)
    block(torch.zeros(1, geometry.in_channels, geometry.size, geometry.size))
    params = sum(p.numel() for p in block.parameters())
    assert counted_costs(space).block_costs["memory_bytes"][1, 0, 4] == 4 * (params + kept)


def test_joining_needs_different_resources() -> None:
    one = StagedCosts({"a": np.zeros((1, 1, 1))}, {"a": 1.0})
    two = StagedCosts({"b": np.zeros((1, 1, 1))}, {"b": 2.0})
    assert (one | two).fixed_costs == {"a": 1.0, "b": 2.0}
    with pytest.raises(InputError, match="twice"):
        one | one
