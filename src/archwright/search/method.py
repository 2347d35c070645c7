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
from archwright.errors import InputError
from archwright.runs.files import Json
from archwright.search.configuration import validated
from archwright.search.context import Context


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

    def __init__(self, context: Context) -> None:
        self.context = context
        self.options = validated(self.Options, context.configuration.options, f"options of the method {self.name!r}")

    def check(self) -> None:
        """Refuse what cannot work; everything named in the configuration is loaded and validated here."""
        context = self.context
        _ = context.benchmark, context.recipe
        if context.benchmark is None and context.configuration.data is None:
            raise InputError("a data set (--data) or a benchmark (--benchmark)", "neither")
        _ = context.scale
        context.check_limits()

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
