"""Limits: exact ranges where a space can be gone through or its costs add up, and one refusal for all methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from archwright.costs.additive import counted_costs
from archwright.costs.limits import Reachable, met, reachable
from archwright.errors import InfeasibleError, InputError
from archwright.search.configuration import Configuration
from archwright.search.task import Task
from archwright.spaces.cells import Cell, CellPair
from archwright.spaces.darts import CONCAT, DARTS
from archwright.spaces.mbconv import MBCONV
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.tables.nasbench201 import CompactTable


def check(**settings: Any) -> None:
    Task(Configuration(method="random", **settings)).check_limits(np.random.default_rng(0))


def test_a_limit_that_hardly_any_cell_meets_can_be_met(nb201: CompactTable) -> None:
    """The table's least latency on this device is met by a handful of 15,625 cells; random draws miss them."""
    cells = (NASBENCH201.is_connected(cell) for cell in NASBENCH201.enumerated())
    least = float(nb201.latencies_ms("pixel3")[list(cells)].min())
    check(benchmark="nb201", device="pixel3", limits={"latency_ms": least})
    with pytest.raises(InfeasibleError, match=rf"latency_ms from {least:.6g} to .* \(all 15,284 connected"):
        check(benchmark="nb201", device="pixel3", limits={"latency_ms": 0.999 * least})


def test_several_limits_are_judged_together() -> None:
    seen = [{"params": 1.0, "macs": 9.0}, {"params": 9.0, "macs": 1.0}]
    known = Reachable({"params": (1.0, 9.0), "macs": (1.0, 9.0)}, "exact", seen)
    known.check([{"params": 1.0}, {"macs": 1.0}, {"params": 9.0, "macs": 1.0}])
    with pytest.raises(InfeasibleError, match="params <= 5, macs <= 5 together"):
        known.check([{"params": 5.0, "macs": 5.0}])


def uniform(operation: str) -> CellPair:
    cell = Cell(tuple(((operation, 0), (operation, 1)) for _ in range(4)), CONCAT)
    return CellPair(cell, cell)


def test_walks_end_at_the_least_and_the_greatest_cost_where_costs_add_up() -> None:
    """Parameters of an edge depend on its operation alone, so the ends are the cells of one operation everywhere."""
    scale = DARTS.scales["small"].changed(cells=3)

    def cost(one: Any) -> dict[str, float]:
        return {"params": DARTS.cost(one, scale).params}

    found = reachable(DARTS, cost, [{"params": 1.0}], np.random.default_rng(0))
    expected = [cost(uniform(name))["params"] for name in DARTS.operations[1:]]
    assert found.ranges["params"] == (min(expected), max(expected))
    assert found.how == "exact"


def test_the_memory_of_a_network_is_what_its_parts_add_up_to() -> None:
    costs, rng = counted_costs(MBCONV), np.random.default_rng(0)
    blocks, fixed = costs.block_costs["memory_bytes"], costs.fixed_costs["memory_bytes"]
    for _ in range(5):
        one = MBCONV.sample(rng)
        chosen = MBCONV.to_choice(one).configurations
        present = np.argwhere(chosen >= 0)
        total = fixed + sum(blocks[s, b, chosen[s, b]] for s, b in present)
        assert MBCONV.memory_bytes(one, MBCONV.scale) == total


def test_limits_on_what_is_not_counted_yet_are_not_judged() -> None:
    known = Reachable({"params": (10.0, 20.0)}, "exact")
    known.check([{"params": 10.0, "latency_ms": 1e-9}])
    with pytest.raises(InfeasibleError, match=r"params <= 9\. Reachable: params from 10 to 20 \(exact\)"):
        known.check([{"params": 30.0}, {"params": 9.0}])


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"parms": 3.0}, "Did you mean 'params'"),
        ({"memory_bytes": 1e6}, "which does not count it"),
        ({"latency_ms": 3.0}, "a device with known latencies"),
    ],
)
def test_limits_that_mean_nothing_here_are_refused(limits: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check(data="digits", limits=limits)


@pytest.mark.parametrize("limit", [float("nan"), float("inf")])
def test_limits_that_are_no_numbers_are_refused(limit: float) -> None:
    with pytest.raises(InputError, match="a number as limit of macs"):
        Reachable({}, "exact").check([{"params": 1.0}, {"macs": limit}])


def test_a_limit_is_met_up_to_and_including_it() -> None:
    assert met({"params": 5.0}, {"params": 5.0, "macs": 9.0})
    assert not met({"params": 5.0, "macs": 8.0}, {"params": 5.0, "macs": 9.0})
    assert met({}, {"params": 5.0})
