"""The choice of widths: exact beside enumeration and HiGHS, within its limits, on the steps of the device."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from archwright.costs.layers import LayerTimes, NetworkTimes
from archwright.errors import InfeasibleError
from archwright.methods.width_removal import Removal, chosen_items, in_units_of_groups, knapsack, widths_of
from archwright.solvers import milp, pareto
from archwright.spaces.base import Scale
from archwright.spaces.width import WidthSpace
from archwright.supernets.scored import Scores

SMALL = Scale(8, 1, classes=3, image_size=8, image_channels=1)


def removal(**changes: object) -> Removal:
    space = WidthSpace("resnet20", SMALL)
    scores = Scores(space.structure)
    values = np.random.default_rng(0).exponential(size=scores.total)
    return Removal(space, scores, values, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_the_knapsack_is_exact_beside_enumeration_and_highs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, size=5)
    worth = [np.sort(rng.exponential(size=n)) for n in sizes]
    costs = [np.sort(rng.normal(size=n)) for n in sizes]  # savings of single groups may be negative
    limit = float(rng.uniform(sum(one.min() for one in costs), sum(one.max() for one in costs)))
    picks = [
        (sum(v[k] for v, k in zip(worth, chosen, strict=True)), chosen)
        for chosen in product(*map(range, sizes))
        if sum(c[k] for c, k in zip(costs, chosen, strict=True)) <= limit
    ]
    best, chosen = max(picks)
    problem, offsets = knapsack(worth, {"ms": costs})
    exact = pareto.solve(problem, "ms", limit - offsets["ms"])
    assert exact.value == pytest.approx(best)
    assert tuple(chosen_items(exact.choice)) == chosen
    assert (exact.bound, exact.gap) == (pytest.approx(best), pytest.approx(0, abs=1e-9))
    assert milp.solve(problem, {"ms": limit - offsets["ms"]}).value == pytest.approx(best)


def test_where_costs_add_up_no_other_widths_are_worth_more() -> None:
    """Channels add up exactly, so the answer can be held against all choices of widths."""
    own = removal(step=4, keep=0.5)
    own.options = [one[:2] + one[-1:] if len(one) > 3 else one for one in own.options[:5]] + [
        one[-1:] for one in own.options[5:]
    ]
    limit = 0.93 * own.costs(own.full)["channels"]
    found = own.best({"channels": limit})
    tried = [shape for shape in product(*own.options) if own.costs(shape)["channels"] <= limit]
    assert found.value == pytest.approx(max(map(own.value, tried)))
    assert found.gap == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("resource", ["macs", "params", "channels"])
@pytest.mark.parametrize("by_resource", [True, False])
def test_what_is_chosen_keeps_the_limit_and_beats_uniform_widths(resource: str, by_resource: bool) -> None:
    own = removal(step=4, by_resource=by_resource)
    whole = own.costs(own.full)[resource]
    for share in (0.8, 0.5):
        found, uniform = own.best({resource: share * whole}), own.uniform({resource: share * whole})
        assert 0.75 * share * whole < found.costs[resource] <= share * whole
        assert uniform.costs[resource] <= share * whole
        assert own.space.structure.cost(found.width.channels).macs == found.costs["macs"]
        if by_resource:
            assert found.value >= uniform.value


def test_two_limits_are_kept_at_once() -> None:
    own = removal(step=4)
    whole = own.costs(own.full)
    limits = {"macs": 0.6 * whole["macs"], "params": 0.5 * whole["params"]}
    found = own.best(limits)
    assert all(found.costs[name] <= limit for name, limit in limits.items())


def test_every_channel_has_one_price_where_a_score_says_nothing_of_the_loss() -> None:
    own = removal(by_resource=False, keep=0.01)
    found = own.best({"channels": 100.0})
    kept = sorted(own.values)[-100:]
    assert found.value == pytest.approx(sum(kept), rel=1e-3)  # of wide groups not every width is looked at


def test_a_limit_below_the_least_widths_is_refused_with_the_range() -> None:
    own = removal(step=8, keep=0.5)
    least, most = own.costs(own.thinnest)["macs"], own.costs(own.full)["macs"]
    with pytest.raises(InfeasibleError, match=f"macs from {least:.6g} to {most:.6g} .50% of each group's channels"):
        own.best({"macs": 1000.0})


def test_a_staircase_is_climbed_where_it_is_worth_it() -> None:
    """A layer that is as slow with 5 to 8 channels as with 8 keeps 8."""
    own = removal(step=1)
    stairs = LayerTimes(inputs=[8], outputs=[4, 5, 8], ms=[[1.0, 2.0, 2.0]])
    name = own.scores.groups[0].name
    own.times = NetworkTimes(step=1, tables=[stairs], layers={name: 0})
    assert own.best({"latency_ms": 2.0}).shape[0] == 8
    assert own.best({"latency_ms": 1.99}).shape[0] == 4


@pytest.mark.parametrize(
    ("channels", "members", "least", "step", "wanted"),
    [
        (16, 1, 2, 16, [8, 16]),
        (64, 1, 7, 16, [16, 32, 48, 64]),
        (32, 1, 4, 8, [8, 16, 24, 32]),
        (20, 1, 2, 8, [8, 16, 20]),
        (3, 1, 1, 8, [1, 2, 3]),
        (4, 16, 1, 16, [1, 2, 3, 4]),  # heads of sixteen
        (5, 1, 5, 1, [5]),
        (4, 1, 1, 1, [1, 2, 3, 4]),
    ],
)
def test_widths_lie_on_the_steps(channels: int, members: int, least: int, step: int, wanted: list[int]) -> None:
    assert widths_of(channels, members, least, step) == wanted


def test_wide_groups_have_few_options() -> None:
    assert len(widths_of(1152, 1, 116, 1)) <= 26


def test_scores_are_compared_within_their_group() -> None:
    assert in_units_of_groups(np.array([1.0, 3.0, 10.0, 30.0]), [2, 2]).tolist() == [0.5, 1.5, 0.5, 1.5]
