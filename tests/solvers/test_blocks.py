"""Problems from plain tables of blocks."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from archwright.errors import InputError
from archwright.solvers import pareto, problem_from_blocks

ROWS = [
    {"stage": 1, "block": 1, "configuration": "plain", "value": 1.0, "latency_ms": 0.1},
    {"stage": 1, "block": 1, "configuration": "fused", "value": 1.5, "latency_ms": 0.3},
    {"stage": 1, "block": 2, "configuration": "plain", "value": 0.4, "latency_ms": 0.2},
]


def test_the_documented_example() -> None:
    table = problem_from_blocks(ROWS, ["latency_ms"])
    found = pareto.solve(table.problem, "latency_ms", 0.35)
    assert table.rows(found.choice) == [ROWS[1]]  # 1.5 for .3 ms beats 1.4 for .3
    assert table.rows(pareto.solve(table.problem, "latency_ms", 0.29).choice) == [ROWS[0]]
    assert table.rows(pareto.solve(table.problem, "latency_ms", 9.0).choice) == [ROWS[1], ROWS[2]]


def test_widths_and_fewer_configurations_in_a_stage() -> None:
    rows: list[dict[str, Any]] = []
    for width, kind in product((8, 16), ("plain", "basic")):
        rows.append({"stage": 1, "block": 1, "width": width, "configuration": kind, "value": 0.0, "ms": width / 8})
    for before, width in product((8, 16), (32, 64)):
        cost = before * width / 256
        rows.append(
            {"stage": 2, "block": 1, "width_before": before, "width": width, "configuration": "plain",
             "value": cost**0.5, "ms": cost}
        )  # fmt: skip
    table = problem_from_blocks(rows, ["ms"], fixed_costs={"ms": 0.5})
    assert table.problem.widths == (2, 2)
    assert table.problem.allowed_configurations.sum(-1).tolist() == [[2], [1]]
    assert table.problem.cost_range("ms") == (0.5 + 1 + 1, 0.5 + 2 + 4)
    # 8 before 64 and 16 before 32 are equally good and dear behind, but 8 is cheaper itself.
    chosen = table.rows(pareto.solve(table.problem, "ms", 0.5 + 1 + 2).choice)
    assert [row["width"] for row in chosen] == [8, 64]
    with pytest.raises(InputError, match="between all widths"):
        problem_from_blocks(rows[:-1], ["ms"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one row"),
        ([{"stage": 1, "block": 1, "configuration": "a"}], "ms in row 1"),
        ([{"stage": 0, "block": 1, "configuration": "a", "ms": 1}], "from 1 on"),
        ([{"stage": 1, "block": 1, "configuration": "a", "ms": 1}] * 2, "again in row 2"),
        ([{"stage": 2, "block": 1, "configuration": "a", "ms": 1}], "."),
        ([{"stage": 1, "block": 2, "configuration": "a", "ms": 1}], "allowed configuration"),
    ],
)
def test_bad_rows_are_refused(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        problem_from_blocks(rows, ["ms"])
