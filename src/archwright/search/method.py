"""What a search method is: named stages over one context.

The contract (checked for every registered method by :func:`archwright.testing.check_method`):

- ``check`` refuses what cannot work before anything expensive starts;
- each stage is a function of the configuration and the stages before it; it returns JSON that is kept, and saves as it
  goes, so that a run killed anywhere and resumed gives the same answer;
- randomness comes from :meth:`Context.rng`, keyed by the seed and what it is for;
- the last stage returns the answer: ``best`` with ``architecture`` and ``accuracy``, ``accuracy_on``, ``evaluations``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, field_validator

from archwright.bounds import MOST_COUNT, MOST_NUMBER
from archwright.errors import InputError, RunError
from archwright.runs.files import Json
from archwright.search.configuration import validated
from archwright.search.context import Context
from archwright.search.evaluator import Evaluator
from archwright.search.final import train_answer
from archwright.spaces.base import Architecture
from archwright.spaces.topology import topology_json


@dataclass(frozen=True)
class Stage:
    """A named part of a method; ``work`` returns JSON."""

    name: str
    title: str
    work: Callable[[], Json]


class Options(BaseModel):
    """Base of a method's own options: unknown ones are refused, and numbers that nobody means."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="after")
    @classmethod
    def _within_reason(cls, value: Any) -> Any:
        """The bounds of everything that declares none of its own."""
        if isinstance(value, int) and abs(value) > MOST_COUNT:
            raise ValueError(f"at most {MOST_COUNT:,} is expected")
        if isinstance(value, float) and abs(value) > MOST_NUMBER:
            raise ValueError(f"at most {MOST_NUMBER:g} is expected")
        return value


class Method(ABC):
    """A search method on a context. Subclasses set ``Options`` and list their stages."""

    name: ClassVar[str]
    Options: ClassVar[type[Options]]
    default_space: ClassVar[str] = "nasbench201"
    """The space of a search that names none."""
    redone_for_limits: ClassVar[tuple[str, ...]] = ()
    """Stages that a finished run does again when it is asked for further limits; empty where it cannot be."""
    redone_for_latency: ClassVar[tuple[str, ...]] = ()
    """Stages that are done again when latencies are to be measured anew; empty where none are measured."""
    timed_items: ClassVar[tuple[str, ...]] = ()
    """Logs of latencies, which are forgotten then."""

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The settings of a search with what the method chooses where the user said nothing."""
        return {"space": cls.default_space, **values}

    def __init__(self, context: Context) -> None:
        self.context = context
        self.options = validated(self.Options, context.configuration.options, f"options of the method {self.name!r}")

    def check(self) -> None:
        """Refuse what cannot work; everything named in the configuration is loaded and validated here."""
        context, task = self.context, self.context.task
        _ = task.table, task.recipe
        if task.table is None and context.configuration.data is None:
            raise InputError("a data set (--data) or a benchmark (--benchmark)", "neither")
        _ = task.scale, task.final_recipe
        task.check_limits(context.rng("limits"))

    @property
    def limits(self) -> dict[str, float | list[float]]:
        """The limits that the run works under."""
        return self.context.configuration.limits

    def estimate_seconds(self) -> float | None:
        """Rough duration of the whole run, or None where it is a matter of seconds."""
        return None

    @abstractmethod
    def stages(self) -> list[Stage]:
        """In order."""

    def result(self, stage: str) -> Json:
        """What an earlier stage returned."""
        found = self.context.run.stage_result(stage)
        if found is None:
            raise RuntimeError(f"stage {stage!r} has not finished")
        return found


class SearchMethod(Method):
    """A method whose first stages choose one architecture; training and testing it is common to all.

    Subclasses give :meth:`search_stages`; the last of them returns at least ``architecture``, ``accuracy`` (what the
    search saw, or None), ``accuracy_on`` and ``evaluations``.
    """

    @abstractmethod
    def search_stages(self) -> list[Stage]:
        """The method's own stages."""

    def stages(self) -> list[Stage]:
        """The method's own, then train (unless a table gives the answer's accuracy) and answer."""
        own = self.search_stages()
        training = [Stage("train", "train the chosen network", lambda: self._train(own[-1].name))]
        rest = training if self.trains_answer else []
        return own + rest + [Stage("answer", "answer", lambda: self._answer(own[-1].name))]

    @property
    def trains_answer(self) -> bool:
        """Whether the chosen network is trained on the data."""
        return self.context.task.trains_answer

    @property
    def rounds(self) -> float:
        """How many evaluations the search makes one after another, for the estimate of time; none by default."""
        return 0

    def estimate_seconds(self) -> float:
        """The evaluations and the final training, from a few timed steps; what a method does besides is not counted."""
        return Evaluator(self.context, "search").seconds_each() * (self.rounds + self.final_rounds)

    @property
    def final_rounds(self) -> float:
        """How many evaluations the training of the answer takes as long as."""
        task = self.context.task
        return task.final_recipe.epochs / task.recipe.epochs if self.trains_answer else 0.0

    def chosen(self, stage: str) -> Architecture:
        """The architecture that ``stage`` ended with."""
        architecture: Architecture = self.context.task.space.parse(self.result(stage)["architecture"])
        return architecture

    def _train(self, stage: str) -> Json:
        """Train the choice for longer, test it once, save the model."""
        return train_answer(self.context, self.chosen(stage)).model_dump(mode="json")

    def _answer(self, stage: str) -> Json:
        task, table = self.context.task, self.context.task.table
        search = self.result(stage)
        architecture = self.chosen(stage)
        if not task.feasible(architecture):
            raise RunError(f"the chosen architecture {architecture} breaks the limits; this is a bug.")
        best: dict[str, Json] = {"architecture": str(architecture)}
        if table is not None:
            split, epochs = table.report_protocol
            tests = {d: table.accuracy(architecture, d, epochs, split) for d in table.datasets}
            dataset = task.configuration.dataset
            best["accuracy"] = tests[dataset]
            best["accuracy_on"] = f"{dataset} {split} after {epochs} epochs ({table.name} table)"
            best["tests"] = tests
        if self.trains_answer:
            best |= self.result("train")
        topology = topology_json(architecture)
        if topology:
            best["topology"] = topology
        best["search_accuracy"], best["search_accuracy_on"] = search["accuracy"], search["accuracy_on"]
        return {"best": best | task.costs(architecture), "front": [], "evaluations": search["evaluations"]}
