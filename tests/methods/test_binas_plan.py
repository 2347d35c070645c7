"""Plans of BINAS: time shared out and counted in steps, exact proposals within two resources, and growth by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from archwright.costs.additive import counted_costs
from archwright.methods.binas.plan import (
    FEWEST_STEPS,
    GROWTH_STEPS,
    STEP,
    TRIED,
    default_minutes,
    growth,
    step_fit,
    wishes,
    worth,
)
from archwright.solvers.problem import StagedChoice, StagedProblem
from archwright.spaces.compact import Compact, CompactScale
from archwright.spaces.mbconv import SCALES, MbConv
from helpers.binas_plans import PLAN, table_of

SPACE = Compact(
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
    costs = counted_costs(SPACE) | table_of(SPACE).costs(SPACE)
    return worth(SPACE, (costs | table_of(SPACE, True, 10.0).costs(SPACE, STEP)).problem(SPACE))


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


def test_the_time_is_shared_out_among_candidates_answers_and_the_plain_network() -> None:
    plan = PLAN.model_copy(update={"seconds": 100.0, "steps_a_pass": 100.0, "plain_step_ms": 5.0, "least_step_ms": 2.0})
    assert plan.shared  # the answers' 60 s are 10,000 steps of 5 + 1 ms: a hundred passes
    assert 4 * plan.candidate_seconds(4) == pytest.approx(10.0)
    assert plan.trunk_seconds == 2 * plan.growth_seconds == pytest.approx(40.0)
    assert plan.plain_seconds == pytest.approx(30.0)
    assert plan.plain_steps == 6000
    assert plan.steps(plan.growth_seconds, 19.0) == 1000  # 20 s; of each step a millisecond is for images
    assert plan.steps(1e-9, 10.0) == 1
    assert plan.steps(plan.trunk_seconds, plan.longest_step_ms) == FEWEST_STEPS
    assert plan.steps(plan.growth_seconds, plan.longest_grown_ms) == GROWTH_STEPS
    without = plan.model_copy(update={"beside": False})
    assert without.trunk_seconds + without.growth_seconds == pytest.approx(90.0)
    assert plan.model_dump()["trunk_seconds"] == plan.trunk_seconds  # who gets what is written down


def test_a_time_too_short_to_be_shared_is_the_first_answers() -> None:
    changes = {"seconds": 100.0, "plain_step_ms": 5.0, "least_step_ms": 2.0}
    plan = PLAN.model_copy(update={**changes, "steps_a_pass": 101.0})
    assert not plan.shared
    assert plan.trunk_seconds == plan.plain_seconds == pytest.approx(45.0)
    assert plan.growth_seconds == pytest.approx(20.0)  # of a limit that comes later
    assert plan.model_copy(update={"beside": False, "steps_a_pass": 1000.0}).trunk_seconds == pytest.approx(90.0)
    few = PLAN.model_copy(update={**changes, "seconds": 10.0, "steps_a_pass": 1.0})  # seen 1,000 times in 6 s
    assert few.longest_grown_ms < few.first_step_ms
    assert not few.shared  # as nothing larger would have its thousand steps
    little = PLAN.model_copy(update={"seconds": 1e-3, "limits": 1, "least_step_ms": 7.0})
    assert little.longest_step_ms == little.longest_grown_ms == 7.0  # the quickest network is always looked at
    assert little.plain_seconds == little.trunk_seconds


def test_sums_of_blocks_become_steps_by_the_line_through_whole_networks() -> None:
    summed = np.array([2.0, 4.0, 20.0])
    assert step_fit(summed, 3 * summed - 2.0, 1.0) == pytest.approx((3.0, -2.0))
    assert step_fit(summed, np.array([4.0, 9.0, 50.0]), 1.0)[0] == pytest.approx(2.5, rel=0.1)
    # a line that falls, or makes the least network free, is none: the middle one of the ratios instead
    assert step_fit(summed, np.array([6.0, 4.0, 2.0]), 1.0) == (1.0, 0.0)
    assert step_fit(summed, 3 * summed - 2.0, 0.5) == (2.5, 0.0)


def test_more_and_larger_images_get_more_minutes() -> None:
    assert default_minutes(1079, 8) == 2
    assert default_minutes(360, 32) == default_minutes(1000, 32) == 4
    assert default_minutes(360, 32) < default_minutes(8000, 32) < default_minutes(8000, 64) <= 60


def test_proposals_are_the_best_of_all_networks_within_the_limit_and_the_step(problem: StagedProblem) -> None:
    networks = every(problem)
    values, costs = problem.evaluate(networks)
    plain = (networks.configurations != 1).all((1, 2))
    limit = float(np.quantile(costs["latency_ms"], 0.4))
    plan = PLAN.model_copy(update={"least_step_ms": float(np.quantile(costs[STEP], 0.5))})
    for (_, only_plain), wish in zip(TRIED, wishes(SPACE, problem, plan), strict=True):
        found = wish.within({"latency_ms": limit})
        fits = (costs["latency_ms"] <= limit) & (costs[STEP] <= wish.step_ms) & (plain | (not only_plain))
        assert found.value == pytest.approx(values[fits].max())
        assert found.costs["latency_ms"] <= limit
        assert found.costs[STEP] <= wish.step_ms


def test_wider_and_deeper_is_worth_more(problem: StagedProblem) -> None:
    small, wide, deep = (SPACE.to_choice(SPACE.plain(*shape)) for shape in ((1, 0), (1, 1), (2, 0)))
    value = {name: float(problem.evaluate(one)[0]) for name, one in (("small", small), ("wide", wide), ("deep", deep))}
    assert value["wide"] == pytest.approx(value["small"] + 2)  # two stages, twice the width
    assert value["deep"] > value["small"]


def test_what_grows_contains_what_it_grew_from(problem: StagedProblem) -> None:
    base = StagedChoice(np.array([1, 1]), np.array([[0, -1], [0, -1]]), np.array([1, 0]))
    networks = every(problem)
    values, costs = problem.evaluate(networks)
    contains = (networks.widths >= base.widths).all(1)
    contains &= (networks.configurations[:, :, 0] == 0).all(1)  # the base's blocks
    for share in (0.5, 0.8, 1.0):
        limit = float(np.quantile(costs["latency_ms"][contains], share))
        found = growth(SPACE, problem, base, float(costs[STEP].max())).within({"latency_ms": limit})
        assert found.value == pytest.approx(values[contains & (costs["latency_ms"] <= limit)].max())


def test_growing_leaves_the_space_as_it_is() -> None:
    space = MbConv(SCALES["mbconv-8"])
    size, problem = space.size, counted_costs(space).problem(space)
    growth(space, problem, space.to_choice(space.lightest()), 1.0)
    assert space.size == size
