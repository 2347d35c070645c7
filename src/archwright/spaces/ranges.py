"""Ranges of numbers among the choices of a :class:`~archwright.spaces.choice_space.ChoiceSpace`.

A range is a fine grid: every integer of it (of more than a thousand a thousand), or a thousand steps between two real
numbers, even in the number or in its logarithm. So an architecture stays a value with one text, and every method can
count, mutate and encode it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite, log
from typing import Any

from archwright.errors import InputError

STEPS = 1000
"""Of a range of real numbers, and of integers at most."""
DIGITS = 6
"""Significant digits of a real number on the grid."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, both included.

    Args:
        low: the least.
        high: the greatest.
        log: whether steps are even in the logarithm, as for learning rates and widths.
        whole: whether they are integers.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        ends = (self.low, self.high)
        if any(isinstance(one, bool) or not isinstance(one, int | float) or not isfinite(one) for one in ends):
            raise InputError("two finite numbers as the ends of a range", f"{self.low!r} and {self.high!r}")
        if self.whole and any(float(one) != int(one) for one in ends):
            raise InputError("integers as the ends of an integer range", f"{self.low} and {self.high}")
        if not self.low < self.high:
            raise InputError("a range whose low end is below its high end", f"{self.low:g} to {self.high:g}")
        if self.log and self.low <= 0:
            raise InputError("numbers above 0 in a range by logarithm", f"{self.low:g}")

    @cached_property
    def levels(self) -> list[float]:
        """The numbers of the grid, rising; integers as int."""
        count = min(STEPS, int(self.high - self.low)) if self.whole else STEPS
        if self.whole and not self.log and count == self.high - self.low:
            return list(range(int(self.low), int(self.high) + 1))
        found = [self._at(number / count) for number in range(count + 1)]
        return sorted(set(found))

    def _at(self, share: float) -> float:
        """The number at a part of the way from low to high."""
        if share in (0.0, 1.0):
            value = self.low if share == 0.0 else self.high
        elif self.log:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + share * (self.high - self.low)
        return round(value) if self.whole else float(f"{float(value):.{DIGITS}g}")

    def nearest(self, value: Any) -> int:
        """The position on the grid that is nearest to a number within the range."""
        number = not isinstance(value, bool) and isinstance(value, int | float)
        if not number or not self.low <= value <= self.high or (self.whole and value != int(value)):
            raise InputError(str(self), repr(value))
        scale = log if self.log else float
        return min(range(len(self.levels)), key=lambda one: abs(scale(self.levels[one]) - scale(value)))

    def moves(self, position: int) -> list[int]:
        """Positions one, two, four ... steps away on both sides: near ones to refine, far ones to explore."""
        found, step = [], 1
        while step < len(self.levels):
            found += [other for other in (position - step, position + step) if 0 <= other < len(self.levels)]
            step *= 2
        return found

    def to_json(self) -> dict[str, Any]:
        """As it is written in ``choices:{...}``."""
        kind = "integer" if self.whole else "real"
        return {kind: [self.low, self.high], **({"log": True} if self.log else {})}

    @classmethod
    def from_json(cls, name: str, given: Mapping[str, Any]) -> Range:
        """The range written as ``{"real": [0.001, 0.1], "log": true}`` or ``{"integer": [8, 256]}``.

        Args:
            name: of the choice, for errors.
            given: what is written.
        """
        kinds = [kind for kind in ("real", "integer") if kind in given]
        ends = given.get(kinds[0]) if len(kinds) == 1 else None
        by_log = given.get("log", False)
        known = set(given) <= {"real", "integer", "log"} and isinstance(by_log, bool)
        if not known or not isinstance(ends, list | tuple) or len(ends) != 2:
            raise InputError(
                f'{name!r} as {{"real": [0.001, 0.1], "log": true}} or {{"integer": [8, 256]}}', str(given)
            )
        return cls(ends[0], ends[1], by_log, kinds[0] == "integer")

    def __str__(self) -> str:
        return f"{'an integer' if self.whole else 'a number'} from {self.low:g} to {self.high:g}"


def Real(low: float, high: float, *, log: bool = False) -> Range:
    """Real numbers from ``low`` to ``high``, for a choice of a space.

    Args:
        low: the least.
        high: the greatest.
        log: whether steps are even in the logarithm.
    """
    return Range(low, high, log)


def Integer(low: int, high: int, *, log: bool = False) -> Range:
    """Integers from ``low`` to ``high``, both included, for a choice of a space.

    Args:
        low: the least.
        high: the greatest.
        log: whether steps are even in the logarithm.
    """
    return Range(low, high, log, whole=True)
