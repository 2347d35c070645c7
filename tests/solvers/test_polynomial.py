from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from archwright.errors import InputError
from archwright.solvers.polynomial import Polynomial, minimise


def random_polynomial(seed: int, n: int, terms: int, degree: int = 2) -> Polynomial:
    rng = np.random.default_rng(seed)
    found = {}
    while len(found) < terms:
        size = int(rng.integers(1, degree + 1))
        found[tuple(sorted(rng.choice(n, size, replace=False).tolist()))] = float(rng.normal())
    return Polynomial(n, {(): 0.7, **found})


@cache
def every_string(n: int) -> np.ndarray:
    return np.array(list(product((-1, 1), repeat=n)))


def brute_force(polynomial: Polynomial) -> float:
    x = every_string(polynomial.n)
    columns = [x[:, list(monomial)].prod(axis=1) * value for monomial, value in polynomial.terms.items()]
    return float(sum(columns).min())  # type: ignore[union-attr]


def test_minimum_is_brute_force_for_1000_random_polynomials() -> None:
    for seed in range(1000):
        polynomial = random_polynomial(seed, n=8, terms=1 + seed % 12, degree=2 + seed % 2)
        found = minimise(polynomial)
        assert found.value == pytest.approx(brute_force(polynomial), abs=1e-9)
        assert polynomial(found.x) == pytest.approx(found.value)
        unused = [bit for bit in range(8) if bit not in polynomial.bits]
        assert (found.x[unused] == -1).all()


@pytest.mark.parametrize("degree", [2, 3])
def test_integer_program_equals_enumeration(degree: int) -> None:
    for seed in range(5):
        polynomial = random_polynomial(seed, n=10, terms=14, degree=degree)
        found = minimise(polynomial, enumerated=0)
        assert found.value == pytest.approx(brute_force(polynomial), abs=1e-7)
        assert found.solver == "integer program"
        assert found.gap == pytest.approx(0.0, abs=1e-7)


def test_chunked_enumeration_of_a_ring() -> None:
    # a frustrated ring of 19 pairs that want to differ: an odd ring must leave one pair equal
    n = 19
    ring = Polynomial(n, {tuple(sorted((i, (i + 1) % n))): 1.0 for i in range(n)})
    assert minimise(ring).value == pytest.approx(-(n - 2))


def test_a_support_too_large_to_enumerate_goes_to_the_integer_program() -> None:
    n = 31
    ring = Polynomial(n, {tuple(sorted((i, (i + 1) % n))): 1.0 for i in range(n)})
    found = minimise(ring)
    assert (found.solver, found.value) == ("integer program", pytest.approx(-(n - 2)))


def test_restriction_puts_values_in() -> None:
    polynomial = random_polynomial(3, n=7, terms=10)
    rest = polynomial.restrict({1: -1, 4: 1})
    x = np.array([x for x in product((-1, 1), repeat=7) if x[1] == -1 and x[4] == 1])
    np.testing.assert_allclose(rest(x), polynomial(x), atol=1e-12)
    assert not {1, 4} & set(rest.bits)


def test_bad_monomials_are_refused() -> None:
    for bad in ((2, 1), (1, 1), (0, 9)):
        with pytest.raises(InputError, match="monomials"):
            Polynomial(5, {bad: 1.0})
