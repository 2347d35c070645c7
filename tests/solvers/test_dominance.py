from __future__ import annotations

import numpy as np
import pytest

from archwright.solvers.dominance import crowding, ranks, undominated


def brute_force(values: np.ndarray) -> list[int]:
    """By the definition, pair by pair."""
    return [
        i
        for i in range(len(values))
        if not any(
            all(b >= a for a, b in zip(values[i], values[j], strict=True))
            and any(b > a for a, b in zip(values[i], values[j], strict=True))
            for j in range(len(values))
        )
    ]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_fronts_are_those_of_the_definition(seed: int, objectives: int) -> None:
    values = np.random.default_rng(seed).integers(0, 6, (40, objectives)).astype(float)  # with ties
    assert undominated(values).tolist() == brute_force(values)
    found, left = ranks(values), list(range(40))
    for rank in range(found.max() + 1):
        front = [left[one] for one in brute_force(values[left])]
        assert np.flatnonzero(found == rank).tolist() == front
        left = [one for one in left if one not in front]
    assert left == []


def test_crowding_by_hand() -> None:
    """Three on a line of two objectives: the middle one has (4 - 0) / 4 and (4 - 0) / 4."""
    assert crowding(np.array([[0.0, 4.0], [1.0, 3.0], [4.0, 0.0]])).tolist() == [np.inf, 2.0, np.inf]
    assert crowding(np.array([[1.0, 1.0]])).tolist() == [np.inf]


def test_nothing_has_no_front() -> None:
    assert undominated(np.zeros((0, 2))).tolist() == []
