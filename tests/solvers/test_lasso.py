from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from archwright.errors import InputError
from archwright.solvers.fourier import ParityFeatures
from archwright.solvers.lasso import largest_lambda, lasso, path


def problem(seed: int, m: int = 120, n: int = 20) -> tuple[ParityFeatures, np.ndarray]:
    rng = np.random.default_rng(seed)
    A = ParityFeatures(rng.choice([-1, 1], size=(m, n)), 2)
    u = np.zeros(A.shape[1])
    u[rng.choice(A.shape[1], 8, replace=False)] = rng.normal(size=8)
    return A, A.product(u) + 0.3 * rng.normal(size=m)


@pytest.mark.parametrize("lam", [1.0, 10.0, 60.0])
def test_solution_is_scikit_learns_with_alpha_lambda_over_2m(lam: float) -> None:
    A, y = problem(0)
    found = lasso(A, y, lam, tolerance=1e-9)
    other = Lasso(alpha=lam / (2 * len(y)), fit_intercept=False, tol=1e-10, max_iter=100_000).fit(A.matrix, y)
    u = np.zeros(A.shape[1])
    u[found.indices] = found.coefficients
    np.testing.assert_allclose(u, other.coef_, atol=1e-4)
    objective = ((y - A.matrix @ other.coef_) ** 2).sum() + lam * np.abs(other.coef_).sum()
    assert found.objective == pytest.approx(objective, rel=1e-6)
    assert found.objective - found.gap <= objective + 1e-9


def test_orthonormal_columns_are_soft_thresholded() -> None:
    # all 2^4 strings: A^T A = 16 I, so u = soft(A^T y / 16, lambda / 32)
    x = np.array([[1 - 2 * (k >> b & 1) for b in range(4)] for k in range(16)])
    A = ParityFeatures(x, 2)
    y = np.random.default_rng(1).normal(size=16)
    plain = A.matrix.T @ y / 16
    expected = np.sign(plain) * np.maximum(np.abs(plain) - 3.0 / 32, 0)
    found = lasso(A, y, 3.0, tolerance=1e-12)
    u = np.zeros(A.shape[1])
    u[found.indices] = found.coefficients
    np.testing.assert_allclose(u, expected, atol=1e-6)


def test_nothing_is_left_at_the_largest_lambda_and_something_below() -> None:
    A, y = problem(2)
    top = largest_lambda(A, y)
    assert len(lasso(A, y, top * 1.001).indices) == 0
    assert len(lasso(A, y, top * 0.98).indices) > 0


def test_warm_starts_end_where_cold_starts_end() -> None:
    A, y = problem(3)
    lams = [80.0, 20.0, 5.0]
    for lam, warm in zip(lams, path(A, y, lams), strict=True):
        assert warm.objective == pytest.approx(lasso(A, y, lam).objective, rel=1e-4)


def test_lambda_must_be_positive() -> None:
    A, y = problem(0)
    with pytest.raises(InputError, match="above 0"):
        lasso(A, y, 0.0)
