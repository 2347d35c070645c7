"""Latencies of cell operations."""

from __future__ import annotations

import pytest

from archwright.costs.measure import Timing
from archwright.costs.operations import operation_latencies
from archwright.errors import InputError
from archwright.spaces.mbconv import MBCONV
from archwright.spaces.nasbench201 import NASBENCH201


def test_every_operation_has_a_latency() -> None:
    scale = NASBENCH201.scales["small"]
    found = operation_latencies(NASBENCH201, scale, Timing(warm_up=1, repeats=5), size=16)
    assert set(found) == set(NASBENCH201.operations)
    assert found["none"] == 0.0
    assert all(value > 0 for name, value in found.items() if name != "none")
    assert found["nor_conv_3x3"] > found["skip_connect"]


def test_other_spaces_are_refused() -> None:
    with pytest.raises(InputError, match="cell operations"):
        operation_latencies(MBCONV, MBCONV.scale)
