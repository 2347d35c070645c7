"""Sparse Boolean polynomials: sums of parities over +-1 bits, and their exact minimum.

f(x) = sum_S f(S) chi_S(x), chi_S(x) = prod_{i in S} x_i (CoNAS, Definition 2.1). Bits that share no monomial do not
see each other, so the minimum is taken component by component: by enumeration where a component has at most
``ENUMERATED_BITS`` bits, by an integer program (HiGHS) where it has more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import csr_array

from archwright.errors import InputError
from archwright.solvers.highs import milp

Monomial = tuple[int, ...]
"""The bits of a parity, rising; empty for the constant."""

ENUMERATED_BITS = 25
CHUNK_BITS = 18


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A sum of parities over n bits.

    Args:
        n: number of bits.
        terms: coefficient by monomial.
    """

    n: int
    terms: Mapping[Monomial, float]

    def __post_init__(self) -> None:
        for monomial in self.terms:
            inside = all(0 <= bit < self.n for bit in monomial)
            if not inside or tuple(sorted(set(monomial))) != monomial:
                raise InputError(f"monomials of different, rising bits below {self.n}", str(monomial))

    @cached_property
    def bits(self) -> tuple[int, ...]:
        """The bits that occur, rising."""
        return tuple(sorted({bit for monomial in self.terms for bit in monomial}))

    def __call__(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """Values (...) at the rows of x (..., n) of +-1."""
        x = np.asarray(x)
        values = np.zeros(x.shape[:-1])
        for monomial, coefficient in self.terms.items():
            values += coefficient * x[..., list(monomial)].prod(axis=-1)
        return values

    def restrict(self, fixed: Mapping[int, int]) -> Polynomial:
        """The polynomial of the other bits with ``fixed`` (bit -> +-1) put in (Definition 2.2); n stays."""
        terms: dict[Monomial, float] = {}
        for monomial, coefficient in self.terms.items():
            rest = tuple(bit for bit in monomial if bit not in fixed)
            sign = float(np.prod([fixed[bit] for bit in monomial if bit in fixed]))
            terms[rest] = terms.get(rest, 0.0) + coefficient * sign
        return Polynomial(self.n, terms)

    def components(self) -> list[Polynomial]:
        """The constant aside, polynomials that share no bit and sum to this one."""
        owner = {bit: bit for bit in self.bits}

        def root(bit: int) -> int:
            while owner[bit] != bit:
                bit = owner[bit]
            return bit

        for monomial in self.terms:
            for bit in monomial[1:]:
                owner[root(bit)] = root(monomial[0])
        parts: dict[int, dict[Monomial, float]] = {}
        for monomial, coefficient in self.terms.items():
            if monomial:
                parts.setdefault(root(monomial[0]), {})[monomial] = coefficient
        return [Polynomial(self.n, terms) for terms in parts.values()]


@dataclass(frozen=True)
class Minimum:
    """The exact minimum of a polynomial.

    Args:
        x: (n,) of +-1; bits that do not occur are -1 (off).
        value: the polynomial there.
        solver: ``enumeration``, or ``integer program`` where a component was too large to enumerate.
        gap: value less the best proven bound; 0 but where the integer program ran out of time.
    """

    x: NDArray[np.int8]
    value: float
    solver: str
    gap: float


def minimise(polynomial: Polynomial, enumerated: int = ENUMERATED_BITS, time_limit: float = 60.0) -> Minimum:
    """The minimum over {-1, 1}^n; of equal ones, enumeration takes the first with bits off before bits on.

    Args:
        polynomial: of any degree.
        enumerated: components with more bits than this go to the integer program.
        time_limit: seconds of the integer program a component.
    """
    x = np.full(polynomial.n, -1, dtype=np.int8)
    solver, gap = "enumeration", 0.0
    for part in polynomial.components():
        if len(part.bits) <= max(enumerated, 1):
            x[list(part.bits)] = _enumerate(part)
        else:
            x[list(part.bits)], part_gap = _integer_program(part, time_limit)
            solver, gap = "integer program", gap + part_gap
    return Minimum(x, float(polynomial(x)), solver, gap)


def _local(polynomial: Polynomial) -> list[tuple[Monomial, float]]:
    """The terms with bits numbered from 0 within the polynomial's own."""
    place = {bit: index for index, bit in enumerate(polynomial.bits)}
    return [(tuple(place[bit] for bit in monomial), value) for monomial, value in polynomial.terms.items()]


def _enumerate(polynomial: Polynomial) -> NDArray[np.int8]:
    """The minimiser over the k bits of ``polynomial``, (k,), from all 2^k values, 2^CHUNK_BITS at a time."""
    k, terms = len(polynomial.bits), _local(polynomial)
    inner = min(k, CHUNK_BITS)
    signs = np.array([-1.0, 1.0])
    best, chosen = np.inf, np.zeros(k, dtype=np.int8)
    for outer in range(2 ** (k - inner)):
        # the first k - inner bits are those of the counter, the others span an array of 2 x 2 x ...
        head = [1 if outer >> (k - inner - 1 - bit) & 1 else -1 for bit in range(k - inner)]
        values = np.zeros((2,) * inner)
        for monomial, coefficient in terms:
            term = np.full((1,) * inner, coefficient * np.prod([head[bit] for bit in monomial if bit < k - inner]))
            for bit in monomial:
                if bit >= k - inner:
                    shape = [1] * inner
                    shape[bit - (k - inner)] = 2
                    term = term * signs.reshape(shape)
            values += term
        index = int(values.argmin())
        if values.flat[index] < best:
            best = float(values.flat[index])
            tail = np.array(np.unravel_index(index, values.shape), dtype=np.int8)
            chosen = np.concatenate([np.array(head, dtype=np.int8), 2 * tail - 1])
    return chosen


def _integer_program(polynomial: Polynomial, time_limit: float) -> tuple[NDArray[np.int8], float]:
    """The minimiser (k,) and its gap.

    Binaries b_i (on) and, for each monomial of two bits or more, p_S = whether an odd number of its bits is off, so
    that chi_S = 1 - 2 p_S. (off bits, p_S) has an even number of ones: the odd-set inequalities of the parity polytope
    say so, and are its convex hull.
    """
    k, terms = len(polynomial.bits), _local(polynomial)
    products = [monomial for monomial, _ in terms if len(monomial) > 1]
    column = {monomial: k + index for index, monomial in enumerate(products)}
    cost = np.zeros(k + len(products))
    for monomial, coefficient in terms:
        if len(monomial) > 1:
            cost[column[monomial]] -= 2 * coefficient
        else:
            cost[monomial[0]] += 2 * coefficient
    rows: list[dict[int, float]] = []
    upper: list[float] = []
    for monomial in products:
        for size in range(1, len(monomial) + 2, 2):
            for odd in combinations((*monomial, column[monomial]), size):
                # sum over odd of o - sum over the others of o <= |odd| - 1, with o = 1 - b for bits and o = p
                row, right = {}, float(size - 1)
                for variable in (*monomial, column[monomial]):
                    sign = 1.0 if variable in odd else -1.0
                    row[variable] = sign if variable >= k else -sign
                    right -= sign if variable < k else 0.0
                rows.append(row)
                upper.append(right)
    entries = [(i, j, value) for i, row in enumerate(rows) for j, value in row.items()]
    i, j, values = zip(*entries, strict=True)
    matrix = csr_array((values, (i, j)), shape=(len(rows), len(cost)))
    found = milp(
        cost,
        integrality=np.ones(len(cost)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, ub=np.array(upper)),
        options={"time_limit": time_limit, "mip_rel_gap": 0.0},
    )
    if found.x is None:
        raise InputError("a minimum of the polynomial in time", str(found.message), "Keep fewer coefficients.")
    gap = max(float(found.fun - found.mip_dual_bound), 0.0) if found.mip_dual_bound is not None else 0.0
    signs: NDArray[np.int8] = np.where(found.x[:k] > 0.5, 1, -1).astype(np.int8)
    return signs, gap if found.status == 1 else 0.0
