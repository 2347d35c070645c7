"""How much fits into the minutes a user has: a configuration cut down once, before a run starts, and kept in it.

The clock is read here and nowhere later: a resumed run does what was planned, and gives the same answer as one that was
never stopped. Searches under limits count steps in a stage of their own instead (:mod:`archwright.search.budget`).
"""

from __future__ import annotations

from math import floor
from typing import Any

from archwright.errors import InputError
from archwright.search.configuration import Configuration
from archwright.search.method import Method
from archwright.search.proposals import ProposalSearch

FEWEST = 8
"""Evaluations below which a search is no search; the training is shortened before there are fewer."""


def planned(method: Method, minutes: float) -> tuple[Configuration, float]:
    """The configuration of ``method`` cut down to ``minutes``, and the minutes it will take by the same estimate.

    What fits is left as it is. Else there are fewer evaluations, and where those are few already, every number of
    epochs is cut by one factor. One epoch and the fewest evaluations are always done, so that there is an answer.
    """
    seconds = method.estimate_seconds()
    if seconds is None:
        raise InputError(
            "a search whose time can be estimated, with --minutes",
            "one by your own function, whose time nobody knows",
            "Say how many architectures to evaluate (--evaluations).",
        )
    return cut(method, seconds, 60 * minutes)


def cut(method: Method, seconds: float, budget: float) -> tuple[Configuration, float]:
    """As :func:`planned`, in seconds; gives minutes.

    Args:
        method: whose configuration is cut down.
        seconds: that it is estimated to take.
        budget: seconds that it may take.
    """
    c = method.context.configuration
    changes: dict[str, Any] = {}
    options = dict(c.options)
    if seconds > budget and isinstance(method, ProposalSearch):
        count, total = method.count, method.rounds + method.final_rounds
        each = seconds / total
        fitting = floor((budget / each - method.final_rounds) * count / method.rounds)
        options["evaluations"] = max(min(count, FEWEST), min(count, fitting))
        seconds -= each * method.rounds * (1 - options["evaluations"] / count)
    if seconds > budget and c.data is not None:
        part = budget / seconds
        recipe, final = method.context.task.recipe, method.context.task.final_recipe
        if c.trains_answer:
            changes["epochs"] = max(1, floor(recipe.epochs * part))
            changes["final_epochs"] = max(1, floor(final.epochs * part))
        for name, value in method.options.model_dump().items():
            if name.endswith("epochs") and value is not None:
                options[name] = max(1, floor(value * part))
        seconds *= max(part, changes.get("epochs", 0) / recipe.epochs)
    return c.model_copy(update={**changes, "options": options}), seconds / 60
