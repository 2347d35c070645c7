from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from archwright.costs.additive import counted_costs
from archwright.errors import InfeasibleError
from archwright.methods.binas.worth import MACS, best_within, containing, inside, worth
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.spaces.compact import Compact, CompactScale
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.supernets.shrink import contains
from helpers.binas_plans import table_of

FEW = Compact(
    CompactScale(
        image_size=8,
        image_channels=1,
        classes=2,
        channels=8,
        stage_factors=(1, 2),
        stage_strides=(1, 2),
        width_choices=(1.0, 2.0),
        depths=(1, 2),
        configurations=("cn_k3", "bb_k3"),
    )
)
"""576 networks: few enough to go through."""


@pytest.fixture(scope="module")
def problem() -> StagedProblem:
    costs = counted_costs(FEW) | table_of(FEW).costs(FEW)
    return worth(FEW, costs.problem(FEW))


def every(problem: StagedProblem) -> StagedChoice:
    """All networks of the small space."""
    found = []
    plain, any_kind = [0], [0, 1]
    for widths in itertools.product(range(2), range(2)):
        for first, second in itertools.product(range(1, 3), range(1, 3)):
            kinds = [plain, *[any_kind] * (first - 1), *[any_kind] * second]
            for chosen in itertools.product(*kinds):
                rows = np.full((2, 2), -1)
                rows[0, :first], rows[1, :second] = chosen[:first], chosen[first:]
                found.append(StagedChoice(np.array([first, second]), rows, np.array(widths)))
    return StagedChoice(
        *(np.stack([getattr(one, name) for one in found]) for name in ("depths", "configurations", "widths"))
    )


def test_proposals_are_the_best_of_all_networks_within_the_limit_and_the_time(problem: StagedProblem) -> None:
    networks = every(problem)
    values, costs = problem.evaluate(networks)
    for latency, macs in ((0.4, 0.5), (0.2, 0.1), (0.9, 0.3)):
        limit, most = float(np.quantile(costs["latency_ms"], latency)), float(np.quantile(costs[MACS], macs))
        found = best_within(problem, most, {"latency_ms": limit})
        fits = (costs["latency_ms"] <= limit) & (costs[MACS] <= most)
        assert found.value == pytest.approx(values[fits].max())
    short = best_within(problem, 0.0, {"latency_ms": limit})
    assert short.costs[MACS] <= 1.5 * costs[MACS].min(), "the least is looked at in any time"
    with pytest.raises(InfeasibleError):
        best_within(problem, 1e12, {"latency_ms": 1e-6})


def test_wider_and_deeper_is_worth_more(problem: StagedProblem) -> None:
    small, wide, deep = (FEW.to_choice(FEW.plain(*shape)) for shape in ((1, 0), (1, 1), (2, 0)))
    value = {name: float(problem.evaluate(one)[0]) for name, one in (("small", small), ("wide", wide), ("deep", deep))}
    assert value["wide"] > value["small"]
    assert value["deep"] > value["small"]


@pytest.mark.parametrize(
    ("other", "limited", "is_larger"),
    [
        (StagedChoice(np.array([2, 2]), np.array([[0, 1], [0, 1]]), np.array([1, 1])), inside, True),
        (StagedChoice(np.array([1, 1]), np.array([[0, -1], [1, -1]]), np.array([1, 0])), containing, False),
    ],
)
def test_proposals_inside_and_around_a_network(
    other: StagedChoice, limited: Any, is_larger: bool, problem: StagedProblem
) -> None:
    networks = every(problem)
    values, costs = problem.evaluate(networks)
    known = FEW.from_choice(other)

    def nested(choice: StagedChoice) -> bool:
        own = FEW.from_choice(choice)
        return contains(known, own) if is_larger else contains(own, known)

    fits = np.array(
        [
            nested(StagedChoice(*one))
            for one in zip(networks.depths, networks.configurations, networks.widths, strict=True)
        ]
    )
    assert 1 < fits.sum() < len(fits)
    inner = limited(FEW, problem, other)
    for share in (0.3, 0.6, 1.0):
        limit = float(np.quantile(costs["latency_ms"][fits], share)) + 1e-6
        found = best_within(inner, 1e12, {"latency_ms": limit})
        assert found.value == pytest.approx(values[fits & (costs["latency_ms"] <= limit)].max())
        assert nested(found.choice)


def test_proposals_between_two_networks(problem: StagedProblem) -> None:
    networks = every(problem)
    values, costs = problem.evaluate(networks)
    larger = StagedChoice(np.array([2, 2]), np.array([[0, 1], [0, 1]]), np.array([1, 1]))
    smaller = StagedChoice(np.array([1, 1]), np.array([[0, -1], [0, -1]]), np.array([0, 1]))
    most, least = FEW.from_choice(larger), FEW.from_choice(smaller)
    all_of_them = zip(networks.depths, networks.configurations, networks.widths, strict=True)
    parsed = [FEW.from_choice(StagedChoice(*one)) for one in all_of_them]
    fits = np.array([contains(most, one) and contains(one, least) for one in parsed])
    assert 1 < fits.sum() < len(fits)
    between = containing(FEW, inside(FEW, problem, larger), smaller)
    for share in (0.3, 0.6, 1.0):
        limit = float(np.quantile(costs["latency_ms"][fits], share)) + 1e-6
        found = best_within(between, 1e12, {"latency_ms": limit})
        assert found.value == pytest.approx(values[fits & (costs["latency_ms"] <= limit)].max())
        assert contains(most, FEW.from_choice(found.choice))
        assert contains(FEW.from_choice(found.choice), least)


def test_looking_inside_leaves_the_space_as_it_is() -> None:
    space = MbConv(SCALES["mbconv-8"])
    size, problem = space.size, counted_costs(space).problem(space)
    for limited in (inside, containing):
        limited(space, problem, space.to_choice(space.lightest()))
    assert space.size == size
