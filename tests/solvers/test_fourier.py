from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.solvers.fourier import (
    ParityFeatures,
    RecoverySettings,
    choose_lambda,
    clean,
    feature_count,
    recover,
    samples_needed,
    samples_sufficient,
    search_by_rounds,
)
from archwright.solvers.polynomial import Polynomial


def planted(seed: int, n: int = 60, s: int = 10) -> Polynomial:
    """s pairs and single bits of a random choice with coefficients of at least .5."""
    rng = np.random.default_rng(seed)
    all_monomials = [*((i,) for i in range(n)), *combinations(range(n), 2)]
    chosen = rng.choice(len(all_monomials), s, replace=False)
    values = rng.choice([-1, 1], s) * rng.uniform(0.5, 1.5, s)
    return Polynomial(n, {all_monomials[int(k)]: float(v) for k, v in zip(chosen, values, strict=True)})


def strings(seed: int, m: int, n: int) -> np.ndarray:
    return np.random.default_rng(seed).choice([-1, 1], size=(m, n))


@pytest.mark.parametrize(("n", "count"), [(196, 19_307), (60, 1_831), (24, 301)])
def test_numbers_of_features(n: int, count: int) -> None:
    assert feature_count(n, 2) == count
    assert ParityFeatures(strings(0, 3, n), 2).shape == (3, count)
    assert len(ParityFeatures(strings(0, 3, n), 2).monomials) == count


def test_columns_are_products_of_bits() -> None:
    x = strings(0, 5, 7)
    A = ParityFeatures(x, 3)
    for column, monomial in zip(A.matrix.T, A.monomials, strict=True):
        np.testing.assert_array_equal(column, np.prod([x[:, bit] for bit in monomial], axis=0) * np.ones(5))


def test_parities_are_orthonormal_in_expectation() -> None:
    # the expectation over uniform bits is the mean over all 2^6 strings
    A = ParityFeatures(np.array(list(product((-1, 1), repeat=6))), 3).matrix
    np.testing.assert_allclose(A.T @ A / len(A), np.eye(A.shape[1]), atol=1e-12)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_matrix_free_products_are_the_dense_ones(degree: int) -> None:
    x, rng = strings(1, 40, 14), np.random.default_rng(2)
    A = ParityFeatures(x, degree, dense=False)
    r, u = rng.normal(size=40), rng.normal(size=A.shape[1])
    np.testing.assert_allclose(A.correlate(r), A.matrix.T @ r, atol=1e-8)
    np.testing.assert_allclose(A.product(u), A.matrix @ u, atol=1e-8)


@pytest.mark.parametrize("dense", [True, False])
def test_centred_columns_have_no_mean(dense: bool) -> None:
    x, r = np.where(np.random.default_rng(3).random((30, 9)) < 0.2, 1, -1), np.random.default_rng(4).normal(size=30)
    plain = ParityFeatures(x, 2).matrix
    centred = ParityFeatures(x, 2, dense=dense, centred=True)
    np.testing.assert_allclose(centred.matrix, plain - plain.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(centred.correlate(r), (plain - plain.mean(axis=0)).T @ r, atol=1e-10)


def test_rare_bits_are_recovered_with_their_constant() -> None:
    x = np.where(np.random.default_rng(5).random((200, 20)) < 0.2, 1, -1)
    truth = Polynomial(20, {(): 2.0, (3,): 0.4, (5, 7): -0.3})
    found = recover(x, truth(x), RecoverySettings(sparsity=2, lam=0.5)).polynomial
    assert found.terms.keys() == truth.terms.keys()
    np.testing.assert_allclose([found.terms[k] for k in truth.terms], list(truth.terms.values()), atol=1e-9)


def test_planted_polynomial_is_found_exactly() -> None:
    for seed in range(3):
        truth, x = planted(seed), strings(100 + seed, 150, 60)
        found = recover(x, truth(x), RecoverySettings(sparsity=10, lam=1.0))
        terms = {monomial: value for monomial, value in found.polynomial.terms.items() if monomial}
        assert terms.keys() == truth.terms.keys()
        np.testing.assert_allclose([terms[k] for k in truth.terms], list(truth.terms.values()), atol=1e-9)
        assert found.polynomial.terms[()] == pytest.approx(0.0, abs=1e-9)
        assert found.diagnostics.residual < 1e-15


def test_success_grows_with_the_measurements() -> None:
    # METHODS.md: 1 of 10 runs at 60 noiseless samples, all of them soon after s d ln n = 82
    def successes(m: int) -> int:
        hits = 0
        for seed in range(8):
            truth, x = planted(seed), strings(200 + seed, m, 60)
            found = recover(x, truth(x), RecoverySettings(sparsity=10, lam=0.5)).polynomial
            hits += set(found.terms) - {()} == set(truth.terms)
        return hits

    assert successes(40) == 0
    assert successes(140) == 8


def test_without_refit_coefficients_are_shrunk_by_half_lambda_over_m() -> None:
    x = np.array(list(product((-1, 1), repeat=6)))
    truth = Polynomial(6, {(0,): 1.0, (1, 3): -0.5})
    found = recover(x, truth(x) + 3.0, RecoverySettings(sparsity=2, lam=6.4, refit=False)).polynomial
    assert found.terms[(0,)] == pytest.approx(1.0 - 0.05, abs=1e-3)
    assert found.terms[(1, 3)] == pytest.approx(-0.5 + 0.05, abs=1e-3)
    assert found.terms[()] == pytest.approx(3.0)


def test_coherence_sees_two_bits_that_always_agree() -> None:
    x = strings(0, 64, 8)
    x[:, 5] = x[:, 2]
    found = recover(x, x[:, 2] + 0.1 * x[:, 0], RecoverySettings(sparsity=3, lam=0.5))
    assert found.diagnostics.coherence == pytest.approx(1.0)
    free = strings(0, 64, 8)
    assert recover(free, free[:, 2] * 1.0, RecoverySettings(sparsity=1, lam=0.5)).diagnostics.coherence < 0.6


def test_bounds() -> None:
    assert samples_needed(10, 2, 60) == 82
    # by hand for s = 12, d = 2, n = 196: .7768 * 5.828 * 12 * 3.3663^2 * 2 * 5.278
    assert samples_sufficient(12, 2, 196) == pytest.approx(6500, rel=1e-2)
    truth, x = planted(0), strings(1, 30, 60)
    warned = recover(x, truth(x), RecoverySettings(sparsity=10, lam=1.0)).diagnostics
    assert "82" in warned.warning
    assert f"{samples_sufficient(10, 2, 60):,}" in warned.warning
    assert not recover(strings(1, 90, 60), truth(strings(1, 90, 60)), RecoverySettings(sparsity=10)).diagnostics.warning


def test_cross_validation_keeps_signal_and_leaves_noise() -> None:
    truth, x, rng = planted(1, n=30, s=5), strings(5, 200, 30), np.random.default_rng(6)
    y = truth(x) + 0.5 * rng.normal(size=200)
    lam = choose_lambda(ParityFeatures(x, 2), y - y.mean())
    # the noise alone correlates up to about 2 * .5 * sqrt(2 m ln F) = 70: no lambda far below that is chosen
    assert 10 < lam < 200
    found = recover(x, y, RecoverySettings(sparsity=5, lam=None))
    assert set(found.polynomial.terms) - {()} == set(truth.terms)
    assert found.diagnostics.lam == pytest.approx(lam)


def test_restriction_finds_a_planted_two_stage_solution() -> None:
    # x0 and x1 decide almost all; what 2, 3 and 4 do shows only where 0 is on and 1 is off
    def f(x: np.ndarray) -> np.ndarray:
        reached = (x[:, 0] == 1) & (x[:, 1] == -1)
        detail = 0.3 * x[:, 2] - 0.4 * x[:, 3] + 0.2 * x[:, 2] * x[:, 4]
        return np.asarray(-5.0 * x[:, 0] + 4.0 * x[:, 1] + reached * detail)

    def measure(number: int, fixed: Mapping[int, int]) -> tuple[np.ndarray, np.ndarray]:
        x = strings(number, 80, 12)
        x[:, list(fixed)] = list(fixed.values())
        return x, f(x)

    everything = np.array(list(product((-1, 1), repeat=12)))
    rounds = search_by_rounds(measure, 12, RecoverySettings(sparsity=3, lam=1.0), rounds=2)
    assert rounds[1].fixed.keys() >= {0, 1}
    best = rounds[-1].minimum.x
    assert f(best[None])[0] == pytest.approx(f(everything).min())
    assert f(rounds[0].minimum.x[None])[0] > f(everything).min()
    assert rounds[1].minimum.value == pytest.approx(f(everything).min())
    stopped = search_by_rounds(measure, 12, RecoverySettings(sparsity=2, lam=1.0), rounds=2, enough=lambda x: True)
    assert len(stopped) == 1


def test_bad_losses_are_dropped_and_counted() -> None:
    x = np.array([[1, 1], [1, -1], [-1, 1], [-1, 1], [-1, -1], [1, 1]])
    y = np.array([np.nan, 0.5, 0.2, 0.4, 9.0, np.inf])
    found = clean(x, y, threshold=1.0)
    assert found.dropped == {"not_finite": 2, "above_threshold": 1, "duplicates": 1}
    assert {tuple(row): loss for row, loss in zip(found.x.tolist(), found.y.tolist(), strict=True)} == {
        (1, -1): 0.5,
        (-1, 1): pytest.approx(0.3),
    }


def test_losses_that_say_nothing_are_refused() -> None:
    x = strings(0, 20, 6)
    with pytest.raises(InputError, match="finite"):
        clean(x, np.full(20, np.nan))
    with pytest.raises(InputError, match="Raise the threshold"):
        clean(x, np.full(20, 2.0), threshold=1.5)
    with pytest.raises(InputError, match="differ"):
        recover(x, np.full(20, 2.0), RecoverySettings())
    with pytest.raises(InputError, match="-1 and 1"):
        recover(np.zeros((3, 4)), np.arange(3.0), RecoverySettings())
