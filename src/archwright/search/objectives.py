"""Several objectives of one search: their names and directions, their values, and the front of what was evaluated.

An objective is a number that the user's function returns under its name, ``accuracy`` (of a trained network), or a
counted cost (``params``, ``macs``). A minus before the name means that less is better: ``accuracy,-macs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from archwright.errors import InputError
from archwright.runs.files import Json
from archwright.search.answer import Candidate
from archwright.search.configuration import Configuration
from archwright.search.task import Task
from archwright.solvers.dominance import undominated

ACCURACY = "accuracy"
COSTS = ("params", "macs")
"""Costs that are counted on an architecture."""
HOW = 'Say which is better: --objectives accuracy,-seconds (in Python: objectives=("accuracy", "-seconds")).'


@dataclass(frozen=True)
class Objective:
    """A number to be made large, or small.

    Attributes:
        name: of it.
        sign: 1 where more is better, -1 where less is.
    """

    name: str
    sign: int

    @classmethod
    def read(cls, text: str) -> Objective:
        """From ``name`` or ``-name``."""
        return cls(text.removeprefix("-"), -1 if text.startswith("-") else 1)


def objectives_of(configuration: Configuration) -> tuple[Objective, ...]:
    """What a search goes by; none where it has one score."""
    return tuple(map(Objective.read, configuration.objectives or ()))


def check_objectives(task: Task) -> None:
    """Refuse objectives that nothing gives, before anything is evaluated."""
    c = task.configuration
    if c.evaluate is not None:  # what it returns is known when it has returned
        return
    given = (ACCURACY, *COSTS)
    for one in objectives_of(c):
        if one.name not in given:
            raise InputError(f"objectives among {', '.join(given)} without a function", one.name, "Give --evaluate.")


def read_scores(found: Any, wanted: Sequence[str], counted: bool = True) -> dict[str, Json]:
    """What a user's function returned as the result of an evaluation.

    Args:
        found: a number, or numbers by name.
        wanted: the objectives of the search, as texts.
        counted: whether costs are counted on the space's networks, so that the function need not return them.
    """
    if not isinstance(found, Mapping):
        if wanted:
            named = ", ".join(Objective.read(one).name for one in wanted)
            raise InputError(f"a dict with {named} from your function (objectives)", type(found).__name__)
        return {"accuracy": float(found)}
    if not wanted:
        raise InputError("one number from your function", f"a dict with {', '.join(map(str, found))}", HOW)
    values = {str(name): float(value) for name, value in found.items()}
    own = [one for one in map(Objective.read, wanted) if one.name in values or not counted or one.name not in COSTS]
    missing = [one.name for one in own if one.name not in values]
    if missing:
        raise InputError(
            f"a dict with {', '.join(one.name for one in own)} from your function", ", ".join(values) or "{}"
        )
    first = Objective.read(wanted[0])
    score = first.sign * values[first.name] if first.name in values else 0.0
    bad = [name for name in (one.name for one in own) if not isfinite(values[name])]
    return {"accuracy": float("nan") if bad else score, "objectives": values}


def values_of(
    result: Mapping[str, Json], objectives: Sequence[Objective], costs: Mapping[str, Any]
) -> dict[str, float]:
    """The value of each objective for one architecture; nothing where its evaluation failed.

    Args:
        result: what the run keeps of the evaluation.
        objectives: of the search.
        costs: counted ones of the architecture.
    """
    if not isinstance(result.get("accuracy"), int | float):
        return {}
    known = {ACCURACY: result["accuracy"], **costs, **(result.get("objectives") or {})}
    missing = [one.name for one in objectives if not isinstance(known.get(one.name), int | float)]
    if missing:
        raise InputError(f"objectives among {', '.join(known)}", ", ".join(missing), HOW)
    return {one.name: float(known[one.name]) for one in objectives}


def front_of(tried: Sequence[Candidate], objectives: Sequence[Objective]) -> list[Candidate]:
    """Those of what was evaluated that no other one beats in everything, the best in the first objective first.

    Args:
        tried: with their objectives.
        objectives: of the search.
    """
    known = [one for one in tried if one.objectives]
    values = np.array([[o.sign * (one.objectives or {})[o.name] for o in objectives] for one in known])
    kept = undominated(values.reshape(len(known), len(objectives)))
    return [known[number] for number in sorted(kept, key=lambda number: -values[number, 0])]
