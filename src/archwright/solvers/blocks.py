"""A staged problem from a plain table of blocks: one row a block, as a CSV file or a data frame gives them.

A row says the block's ``stage`` and ``block`` (numbers from 1), its ``configuration`` (any text), its ``value`` and its
cost of each resource. Where stages choose widths it has ``width`` and, in a first block, ``width_before`` too::

    rows = [
        {"stage": 1, "block": 1, "configuration": "plain", "value": 1.0, "latency_ms": 0.1},
        {"stage": 1, "block": 1, "configuration": "fused", "value": 1.5, "latency_ms": 0.3},
        {"stage": 1, "block": 2, "configuration": "plain", "value": 0.4, "latency_ms": 0.2},
    ]
    table = problem_from_blocks(rows, ["latency_ms"])
    found = pareto.solve(table.problem, "latency_ms", 0.35)
    table.rows(found.choice)  # the chosen rows: here the second
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from archwright.errors import InputError
from archwright.solvers.problem import StagedChoice, StagedProblem

Row = Mapping[str, Any]
Key = tuple[int, int, Any, Any, Any]
"""(stage, block, width before, width, configuration); the widths None where there are none."""


@dataclass(frozen=True, eq=False)
class BlockTable:
    """A problem and the rows that it was made of.

    Attributes:
        problem: for the solvers.
        widths: per stage the names of its widths, in their order of appearance; (None,) without a choice.
        configurations: names of all configurations, in their order of appearance.
        by_key: every row.
    """

    problem: StagedProblem
    widths: tuple[tuple[Any, ...], ...]
    configurations: tuple[Any, ...]
    by_key: dict[Key, Row]

    def rows(self, choice: StagedChoice) -> list[Row]:
        """The rows of one choice's blocks, in order."""
        found, before = [], None
        for stage, own in enumerate(self.widths):
            width = own[int(choice.widths[stage])]
            for block in range(int(choice.depths[stage])):
                configuration = self.configurations[int(choice.configurations[stage, block])]
                found.append(self.by_key[stage + 1, block + 1, before if block == 0 else width, width, configuration])
            before = width
        return found


def problem_from_blocks(
    rows: Iterable[Row],
    resources: Sequence[str],
    depths: Sequence[Sequence[int]] | None = None,
    fixed_value: float = 0.0,
    fixed_costs: Mapping[str, float] | None = None,
) -> BlockTable:
    """The problem of choosing blocks among ``rows`` (see the module).

    Args:
        rows: one a (stage, block, configuration), or a (stage, block, width before, width, configuration).
        resources: names of the columns that are costs.
        depths: per stage the allowed depths; by default every number of blocks from 1 to the stage's last.
        fixed_value: value of what is not searched.
        fixed_costs: its cost by resource.
    """
    by_key = _by_key(rows, resources)
    stages = max(key[0] for key in by_key)
    widths = tuple(tuple(dict.fromkeys(key[3] for key in by_key if key[0] == stage + 1)) for stage in range(stages))
    blocks = [max((key[1] for key in by_key if key[0] == stage + 1), default=0) for stage in range(stages)]
    configurations = tuple(dict.fromkeys(key[4] for key in by_key))
    widest, shape = max(map(len, widths)), (stages, max(blocks), len(configurations))
    tables = {name: np.zeros((stages, widest, widest, *shape[1:])) for name in ("value", *resources)}
    allowed = np.zeros(shape, bool)
    for stage, block, _, _, configuration in by_key:
        allowed[stage - 1, block - 1, configurations.index(configuration)] = True
    for stage, block, number in np.argwhere(allowed).tolist():
        for width, own in enumerate(widths[stage]):
            befores = (widths[stage - 1] if stage else (None,)) if block == 0 else (own,)
            for before, name_before in enumerate(befores):
                key = stage + 1, block + 1, name_before, own, configurations[number]
                if key not in by_key:
                    raise InputError("a row for every block between all widths of its stages", f"none of {key}")
                place = stage, before if block == 0 else slice(None), width, block, number
                for name, table in tables.items():
                    table[place] = float(by_key[key].get(name, 0.0))
    single = widest == 1
    values = {name: table[:, 0, 0] if single else table for name, table in tables.items()}
    problem = StagedProblem(
        values["value"], {name: values[name] for name in resources}, np.zeros((stages, shape[1])), {},
        tuple(map(tuple, depths)) if depths is not None else tuple(tuple(range(1, count + 1)) for count in blocks),
        fixed_value, dict(fixed_costs or {}), tuple(map(len, widths)), allowed,
    )  # fmt: skip
    return BlockTable(problem, widths, configurations, by_key)


def _by_key(rows: Iterable[Row], resources: Sequence[str]) -> dict[Key, Row]:
    found: dict[Key, Row] = {}
    for number, row in enumerate(rows, 1):
        lacking = [name for name in ("stage", "block", "configuration", *resources) if name not in row]
        if lacking:
            raise InputError(f"{', '.join(lacking)} in row {number}", f"{', '.join(map(str, row))}")
        stage, block, width = int(row["stage"]), int(row["block"]), row.get("width")
        if stage < 1 or block < 1:
            raise InputError(f"stage and block from 1 on in row {number}", f"{stage} and {block}")
        before = (row.get("width_before") if stage > 1 else None) if block == 1 else width
        key = stage, block, before, width, row["configuration"]
        if key in found:
            raise InputError("one row a block", f"{key} again in row {number}")
        found[key] = row
    if not found:
        raise InputError("at least one row", "none")
    return found
