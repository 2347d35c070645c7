"""Members in a plane: distances that a plane has are kept, and a disagreement is the square of one."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import pdist, squareform

from archwright.reproduce.thesis5_members import disagreement, in_a_plane


def test_points_of_a_plane_keep_their_distances() -> None:
    points = np.random.default_rng(0).standard_normal((7, 2))
    found, kept = in_a_plane(squareform(pdist(points)) ** 2)
    np.testing.assert_allclose(pdist(found), pdist(points), atol=1e-10)
    np.testing.assert_allclose(kept, 1.0)


def test_of_points_at_one_distance_two_axes_keep_their_part() -> None:
    n = 9
    _, kept = in_a_plane(1.0 - np.eye(n))
    np.testing.assert_allclose(kept, 2 / (n - 1))


def test_disagreement_is_half_the_squared_distance_of_one_hot_predictions() -> None:
    predicted = np.random.default_rng(1).integers(0, 4, (5, 60))
    hot = np.eye(4)[predicted].reshape(5, -1)
    np.testing.assert_allclose(disagreement(list(predicted)), squareform(pdist(hot)) ** 2 / 2 / 60, atol=1e-12)
