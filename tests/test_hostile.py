"""A part of the hostile catalogue, some of every kind; ``python benchmarks/hostile.py`` is all of it."""

from __future__ import annotations

from collections import Counter

from helpers.hostile_cases import catalogue
from helpers.hostile_judge import Case
from helpers.hostile_watch import judged

MOST_OF_A_KIND = 3
LONG = ("own functions", "streams")
"""Kinds whose cases start processes of their own."""


def sample() -> list[Case]:
    """A few cases of every kind, from all over it."""
    cases = list(catalogue())
    assert len(cases) > 1000
    count = Counter(case.kind for case in cases)
    kept: list[Case] = []
    for kind in count.keys() - set(LONG):
        kept += [case for case in cases if case.kind == kind][:: -(-count[kind] // MOST_OF_A_KIND)]
    return kept


def test_a_part_of_the_catalogue_has_no_traceback_hang_or_wrong_accept() -> None:
    bad = [
        (case.kind, case.name, outcome, said)
        for case, outcome, said in judged(sample())
        if outcome not in ("refused", "accepted")
    ]
    assert not bad
