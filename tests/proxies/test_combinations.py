"""Scores of a pool made of several metrics, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from archwright.proxies.combinations import COMBINATIONS, combined, joined_ranks, parts_of, regularised
from archwright.proxies.registry import PROXIES
from archwright.proxies.score import Scores


def pool() -> Scores:
    values = np.array([[3.0, 1.0, 7.0], [1.0, 1.0, 2.0], [2.0, 9.0, 5.0]])
    return Scores(("grad", "swap", "kappa"), np.array([1, 1, -1]), values, np.zeros_like(values))


def test_ranks_are_joined_in_the_logarithm_and_in_the_right_direction() -> None:
    by_hand = np.log([[3 / 3, 1.5 / 3, 1 / 3], [1 / 3, 1.5 / 3, 3 / 3], [2 / 3, 3 / 3, 2 / 3]]).sum(1)
    assert joined_ranks(pool(), ("grad", "swap", "kappa")) == pytest.approx(by_hand)


def test_a_combination_is_a_positive_scale_beside_kappa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMBINATIONS, "both", ("grad", "swap"))
    found = combined(pool(), "both")
    assert found["both"] == pytest.approx([1.5 / 3, 1.5 / 9, 2 / 3])
    assert found["kappa"].tolist() == [7, 2, 5]
    assert parts_of("both") == ("grad", "swap")
    assert parts_of("grad") == ("grad",)


def test_combinations_are_of_registered_metrics() -> None:
    assert {part for parts in COMBINATIONS.values() for part in parts} <= {entry.name for entry in PROXIES}


def test_the_regulariser_prefers_large_networks_as_far_as_sizes_spread() -> None:
    swap, params = np.array([10.0, 10.0, 10.0]), np.array([1.0, 2.0, 3.0])
    spread = 2 * params.var()
    assert regularised(swap, params) == pytest.approx(10 * np.exp(-np.array([4.0, 1.0, 0.0]) / spread))
    assert regularised(swap, np.ones(3)).tolist() == swap.tolist()
