"""Searches that propose architectures and are told their accuracies; a proposal is a function of the past alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import ClassVar

import numpy as np
from pydantic import Field

from archwright.costs.limits import walk_within
from archwright.errors import ArchwrightError, InfeasibleError
from archwright.search.configuration import OF_EVALUATIONS, OF_WORK
from archwright.search.context import Context
from archwright.search.evaluator import Evaluated, Evaluator, accuracy_on
from archwright.search.method import Options, SearchMethod, Stage
from archwright.search.objectives import check_objectives
from archwright.search.values import Choice
from archwright.spaces.base import Architecture

Propose = Callable[[Sequence[Evaluated], int], Architecture]
"""From the evaluations so far and the number of the next one, the architecture to evaluate; a pure function."""


WALKS = 20
"""Random architectures from which one within the limits is walked to, where draws find none."""


class ProposalOptions(Options):
    """What every such search is asked."""

    evaluations: int = Field(20, ge=1, description="architectures to evaluate")


class ProposalSearch(SearchMethod):
    """A search that evaluates proposals and returns the best one."""

    Options: ClassVar[type[Options]] = ProposalOptions
    options: ProposalOptions

    uses: ClassVar[frozenset[str]] = SearchMethod.uses | OF_WORK | OF_EVALUATIONS

    remembers: ClassVar[bool] = True
    """Whether a proposal may depend on earlier ones other than by their evaluations: then a study that is opened again
    lets the method propose all of them once more, in turn, which takes its time."""

    def check(self) -> None:
        """Also refuses objectives that nothing gives."""
        super().check()
        check_objectives(self.context.task)

    needs_objectives: ClassVar[bool] = False
    """Whether it goes by several objectives, which a study, told one score, does not have."""

    @abstractmethod
    def propose(self, history: Sequence[Evaluated], number: int) -> Architecture:
        """The architecture to evaluate next; a function of its arguments and the seed alone.

        Args:
            history: evaluations so far, in their order; a failed one has accuracy minus infinity.
            number: of the evaluation, from 0.
        """

    @property
    def batch(self) -> int:
        """How many proposals are made from the same past."""
        return 1

    @property
    def rounds(self) -> float:
        """Evaluations over what runs side by side."""
        return self.count / min(self.batch, self.context.executor.workers)

    @property
    def count(self) -> int:
        """How many architectures are evaluated."""
        return self.options.evaluations

    def conclude(self, history: Sequence[Evaluated], best: Evaluated) -> Choice:
        """What the search ends with; a method may keep more of it.

        Args:
            history: all evaluations, in their order.
            best: the one of greatest accuracy, the first of equals.
        """
        return Choice(
            architecture=str(best.architecture),
            accuracy=best.accuracy,
            accuracy_on=accuracy_on(self.context),
            evaluations=len(history),
            failures=sum(one.accuracy == -inf for one in history),
        )

    def search_stages(self) -> list[Stage]:
        """The one stage ``search``, that evaluates all proposals."""
        return [Stage("search", "evaluate architectures", self._search)]

    def _search(self) -> Choice:
        context = self.context
        history = evaluate_proposals(context, "search", self.propose, self.count, self.batch)
        best = max(history, key=lambda one: one.accuracy)
        return self.conclude(history, best)


def evaluate_proposals(
    context: Context, stage: str, propose: Propose, evaluations: int, batch: int = 1
) -> list[Evaluated]:
    """Propose, evaluate, repeat; ``batch`` architectures are proposed from the same past.

    A resumed run proposes the same again and finds the finished ones in the item log. Failed evaluations count, and
    the search goes on from them as from the worst there are.

    Args:
        context: of the search.
        stage: whose item log keeps the evaluations.
        propose: gives the next architecture.
        evaluations: how many there are, failed ones among them.
        batch: proposals that are evaluated together.
    """
    evaluator = Evaluator(context, stage)
    history: list[Evaluated] = []
    unit = "" if context.configuration.evaluate or context.configuration.objectives else " %"  # of one's own: unknown
    with context.progress.task("evaluating", evaluations) as bar:
        while len(history) < evaluations:
            count = min(batch, evaluations - len(history))
            chosen = [propose(history, len(history) + i) for i in range(count)]
            for architecture, accuracy in zip(chosen, evaluator(chosen), strict=True):
                history.append(Evaluated(architecture, accuracy, evaluator.objectives(architecture)))
            best = max(one.accuracy for one in history)
            bar.advance(count)
            bar.note(f"best {best:.2f}{unit}" if best > -inf else "all failed")
    if best == -inf:
        raise ArchwrightError(f"all {len(history)} evaluations failed; the reasons are in {context.run.folder}.")
    return history


def feasible_sample(context: Context, draw: Callable[[], Architecture], tries: int = 10_000) -> Architecture:
    """The first drawn architecture that is connected and meets the limits.

    Args:
        context: of the search, with its space and limits.
        draw: one architecture, another one each time.
        tries: draws after which the limits are refused.
    """
    task = context.task
    for _ in range(tries):
        architecture = draw()
        if task.space.is_connected(architecture) and task.feasible(architecture):
            return architecture
    limits = ", ".join(f"{name} <= {limit:g}" for name, limit in context.configuration.single_limits.items())
    raise InfeasibleError(f"no architecture that meets {limits or 'connectedness'} was found in {tries:,} draws.")


def feasible_start(context: Context, rng: np.random.Generator) -> Architecture:
    """A connected architecture within the limits: a random one, or where hardly any is, the end of a walk to one.

    Args:
        context: of the search, with its space and limits.
        rng: of the draws.
    """
    task, limits = context.task, context.configuration.single_limits
    try:
        return feasible_sample(context, lambda: task.space.sample(rng), tries=2000)
    except InfeasibleError:
        for _ in range(WALKS if limits else 0):
            start = task.space.sample(rng)
            found = walk_within(task.space, start, lambda one: task.costs(one, limits), limits)
            if found is not None and task.space.is_connected(found):
                return found
        raise
