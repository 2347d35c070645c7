import numpy as np
import pytest

from archwright.analysis.bilevel import (
    coercivity_warning,
    darts_trajectory,
    milenas_trajectory,
    plot_fig1,
    quadratic_losses,
    rarts_equilibrium,
    rarts_trajectory,
)
from archwright.errors import InputError

PAIRS = [(15, 15), (10, 10), (10, 5), (5, 10), (2, 10), (10, 2), (3, 3), (20, 4), (4, 20), (1.5, 8)]


def equilibrium_system(lam, beta):
    """Equations (13) to (15), from the derivatives of the losses by hand: unknowns (a, w, y)."""
    matrix = np.array(
        [
            [-2 * lam, 2 * lam + beta, -beta],  # lam (2w - 2a) + beta (w - y) = 0
            [1.0, -beta, beta],  # a + beta (y - w) = 0
            [2 * lam, -2 * lam, 1.0],  # lam (2a - 2w) + y - 2 = 0
        ]
    )
    return np.linalg.solve(matrix, [0.0, 0.0, 2.0])


@pytest.mark.parametrize(("lam", "beta"), PAIRS)
def test_rarts_ends_at_the_solution_of_the_three_equations(lam, beta):
    solution = equilibrium_system(lam, beta)
    assert np.allclose(rarts_equilibrium(lam, beta), solution)
    end = rarts_trajectory(lam=lam, beta=beta, steps=20_000).end
    assert np.allclose(np.concatenate(end), solution, atol=1e-6)


def test_rarts_at_fifteen_is_the_printed_point():
    assert np.allclose(rarts_equilibrium(15, 15), (1.0526, 1.0175, 0.9474), atol=5e-5)


@pytest.mark.parametrize("trajectory", [darts_trajectory, milenas_trajectory])
def test_first_order_methods_end_at_the_spurious_point(trajectory):
    a, w, _ = trajectory(steps=20_000).end
    assert np.allclose([a[0], w[0]], [2, 2], atol=1e-6)


@pytest.mark.parametrize("xi", [0.01, 0.1, 0.5, 1.0])
def test_second_order_darts_depends_on_its_look_ahead(xi):
    a, w, _ = darts_trajectory(xi=xi, steps=20_000).end
    assert np.allclose([a[0], w[0]], 2 / (1 + 2 * xi), atol=1e-6)


@pytest.mark.parametrize(("lam", "beta"), PAIRS)
def test_the_lagrangian_of_the_solvable_model_falls(lam, beta):
    values = rarts_trajectory(lam=lam, beta=beta, steps=2000).lagrangian
    assert (np.diff(values) <= 1e-12).all()


def test_coercivity_is_the_sign_of_the_smallest_eigenvalue():
    rng = np.random.default_rng(0)
    seen = set()
    for lam, beta in rng.uniform(0.05, 3, (200, 2)):
        hessian = np.array(  # second derivatives by (a, w, y)
            [[2 * lam, -2 * lam, 1.0], [-2 * lam, 2 * lam + beta, -beta], [1.0, -beta, beta]]
        )
        coercive = np.linalg.eigvalsh(hessian)[0] > 0
        assert (coercivity_warning(lam, beta) == "") == coercive
        seen.add(bool(coercive))
    assert seen == {True, False}
    assert "4*lambda*beta > 2*lambda + beta" in coercivity_warning(0.5, 0.1)


def test_outside_the_coercive_region_the_iterates_run_away():
    assert coercivity_warning(0.4, 0.4)
    assert abs(rarts_trajectory(lam=0.4, beta=0.4, steps=5000).a[-1, 0]) > 100


@pytest.mark.parametrize("seed", range(10))
def test_theorem_1_the_lagrangian_never_increases_on_convex_quadratics(seed):
    rng = np.random.default_rng(seed)
    n, m = 5, 3

    def convex():
        root = rng.standard_normal((n + m, n + m))
        return root @ root.T + 0.1 * np.eye(n + m), rng.standard_normal(n + m)

    (train, b), (validation, c) = convex(), convex()
    lam, beta = rng.uniform(0.2, 5, 2)
    losses = quadratic_losses(train, b, validation, c, n)
    lipschitz = max(np.linalg.eigvalsh(train)[-1], np.linalg.eigvalsh(validation)[-1])
    lr = 0.2 / ((1 + lam) * lipschitz + beta)
    start = rng.standard_normal(m), rng.standard_normal(n), rng.standard_normal(n)
    found = rarts_trajectory(losses, *start, lam=lam, beta=beta, lr=lr, steps=3000)
    assert (np.diff(found.lagrangian) <= 1e-9 * np.abs(found.lagrangian[:-1]).max()).all()
    # and it ends at the minimum of the whole quadratic, solved directly
    stacked = np.zeros((m + 2 * n, m + 2 * n))  # order (a, w, y)
    a, w, y = slice(0, m), slice(m, m + n), slice(m + n, None)
    stacked[a, a] = lam * train[n:, n:] + validation[n:, n:]
    stacked[a, w], stacked[w, a] = lam * train[n:, :n], lam * train[:n, n:]
    stacked[a, y], stacked[y, a] = validation[n:, :n], validation[:n, n:]
    stacked[w, w] = lam * train[:n, :n] + beta * np.eye(n)
    stacked[y, y] = validation[:n, :n] + beta * np.eye(n)
    stacked[w, y] = stacked[y, w] = -beta * np.eye(n)
    right = -np.concatenate([lam * b[n:] + c[n:], lam * b[:n], c[:n]])
    best = np.linalg.solve(stacked, right)
    value = best @ stacked @ best / 2 - right @ best
    assert found.lagrangian[-1] >= value - 1e-9
    assert found.lagrangian[-1] - value < 0.2 * (found.lagrangian[0] - value)


def test_quadratic_gradients_match_differences():
    rng = np.random.default_rng(3)
    root = rng.standard_normal((2, 4, 4))
    losses = quadratic_losses(
        root[0] + root[0].T, rng.standard_normal(4), root[1] + root[1].T, rng.standard_normal(4), 3
    )
    w, a, v, e = rng.standard_normal(3), rng.standard_normal(1), rng.standard_normal(3), 1e-6
    for value, by_a in ((losses.train, losses.train_a), (losses.validation, losses.validation_a)):
        assert np.isclose((value(w, a + e) - value(w, a - e)) / (2 * e), by_a(w, a)[0], atol=1e-6)
    mixed = (losses.train_a(w + e * v, a) - losses.train_a(w - e * v, a)) / (2 * e)
    assert np.allclose(mixed, losses.train_mixed(w, a, v), atol=1e-6)


def test_bad_values_are_refused():
    with pytest.raises(InputError):
        rarts_equilibrium(0, 1)
    with pytest.raises(InputError):
        rarts_equilibrium(0.75, 1.5 / (4 * 0.75 - 1))  # the denominator is zero


def test_fig_1_ends_near_the_minimum(tmp_path):
    ends = plot_fig1(tmp_path / "fig1.png")
    assert (tmp_path / "fig1.png").stat().st_size > 10_000
    assert np.allclose(ends.pop("darts-1"), (2, 2), atol=1e-3)
    for label, end in ends.items():
        assert np.hypot(end[0] - 1, end[1] - 1) < 0.5, label
