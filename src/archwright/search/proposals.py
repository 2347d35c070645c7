"""Searches that propose architectures and are told their accuracies; a proposal is a function of the past alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from pydantic import Field

from archwright.errors import InfeasibleError, Interrupted
from archwright.search.context import Context
from archwright.search.evaluator import Evaluated, Evaluator
from archwright.search.method import Options, SearchMethod, Stage
from archwright.search.values import Choice
from archwright.spaces.base import Architecture

Propose = Callable[[Sequence[Evaluated], int], Architecture]
"""From the evaluations so far and the number of the next one, the architecture to evaluate; a pure function."""


class ProposalOptions(Options):
    """What every such search is asked."""

    evaluations: int = Field(20, ge=1, description="architectures to evaluate")


class ProposalSearch(SearchMethod):
    """A search that evaluates proposals and returns the best one."""

    Options: ClassVar[type[Options]] = ProposalOptions
    options: ProposalOptions

    @abstractmethod
    def propose(self, history: Sequence[Evaluated], number: int) -> Architecture:
        """The architecture to evaluate as ``number``; a function of the past and the number."""

    @property
    def batch(self) -> int:
        """How many proposals are made from the same past."""
        return 1

    @property
    def rounds(self) -> float:
        """Evaluations over what runs side by side."""
        return self.options.evaluations / min(self.batch, self.context.executor.workers)

    def search_stages(self) -> list[Stage]:
        """One stage."""
        return [Stage("search", "evaluate architectures", self._search)]

    def _search(self) -> Choice:
        context = self.context
        history = evaluate_proposals(context, "search", self.propose, self.options.evaluations, self.batch)
        best = max(history, key=lambda one: one.accuracy)
        return Choice(
            architecture=str(best.architecture),
            accuracy=best.accuracy,
            accuracy_on=Evaluator(context, "search").accuracy_on,
            evaluations=len(history),
        )


def evaluate_proposals(
    context: Context, stage: str, propose: Propose, evaluations: int, batch: int = 1
) -> list[Evaluated]:
    """Propose, evaluate, repeat; ``batch`` architectures are proposed from the same past.

    A resumed run proposes the same again and finds the finished ones in the item log. The end of the time budget ends
    the search with what it has.
    """
    evaluator = Evaluator(context, stage)
    history: list[Evaluated] = []
    with context.progress.task("evaluating", evaluations) as bar:
        while len(history) < evaluations:
            count = min(batch, evaluations - len(history))
            chosen = [propose(history, len(history) + i) for i in range(count)]
            try:
                accuracies = evaluator(chosen)
            except Interrupted:
                done = evaluator.log.done
                history += [Evaluated(a, done[str(a)]["accuracy"]) for a in chosen if str(a) in done]
                if context.stop.signalled or not history:
                    raise
                context.run.event("budget", stage=stage, evaluations=len(history))
                context.progress.say(f"The time budget ends the search after {len(history)} evaluations.")
                return history
            for architecture, accuracy in zip(chosen, accuracies, strict=True):
                history.append(Evaluated(architecture, accuracy))
            best = max(history, key=lambda one: one.accuracy)
            bar.advance(count)
            bar.note(f"best {best.accuracy:.2f} %")
    return history


def feasible_sample(context: Context, draw: Callable[[], Architecture], tries: int = 10_000) -> Architecture:
    """The first drawn architecture that is connected and meets the limits."""
    task = context.task
    for _ in range(tries):
        architecture = draw()
        if task.space.is_connected(architecture) and task.feasible(architecture):
            return architecture
    limits = ", ".join(f"{name} <= {limit:g}" for name, limit in context.configuration.single_limits.items())
    raise InfeasibleError(f"no architecture that meets {limits or 'connectedness'} was found in {tries:,} draws.")
