"""No search at all: an architecture that is given is trained as the answer of a search is."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from archwright.errors import InputError
from archwright.search.configuration import OF_TABLES
from archwright.search.method import Options, SearchMethod, Stage
from archwright.search.task import Task
from archwright.search.values import Choice
from archwright.spaces.base import Architecture
from archwright.spaces.operations import Cost
from archwright.training.recipe import get_recipe


class GivenOptions(Options):
    """Which architecture is to be trained."""

    architecture: str = Field("", description="the architecture to train, as the space writes it")


class Given(SearchMethod):
    """Train what is given, by the final recipe of every search: resumable, and shared by processes."""

    name = "train"
    uses = SearchMethod.uses - OF_TABLES - {"final_epochs"}  # --epochs are those of the one training
    resources = ()
    Options: ClassVar[type[Options]] = GivenOptions
    options: GivenOptions

    @classmethod
    def completed(cls, task: Task) -> dict[str, Any]:
        """All epochs are the answer's."""
        c = task.configuration
        return {**super().completed(task), "final_epochs": c.epochs or get_recipe(c.recipe).epochs}

    def check(self) -> None:
        """Also refuses an architecture that is not of the space."""
        super().check()
        if not self.options.architecture:
            raise InputError("an architecture to train (--architecture)", "none")
        _ = self.architecture

    @property
    def architecture(self) -> Architecture:
        """The architecture that was given."""
        found: Architecture = self.context.task.space.parse(self.options.architecture)
        return found

    def largest(self) -> Cost | None:
        """What the given architecture costs."""
        task = self.context.task
        return task.space.cost(self.architecture, task.scale)

    def search_stages(self) -> list[Stage]:
        """Nothing is searched; the choice is what was given."""
        return [Stage("search", "read the architecture", self._read)]

    def _read(self) -> Choice:
        return Choice(
            architecture=str(self.architecture),
            accuracy=None,
            accuracy_on="nothing: the architecture was given",
            evaluations=0,
        )
