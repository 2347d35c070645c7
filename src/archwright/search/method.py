"""What a search method is: named stages over one context. The contract is in the docstring of :class:`Method`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator, model_validator

from archwright.bounds import least_of, most_of
from archwright.costs.measure import Timing
from archwright.errors import InputError, RunError, missing_extra
from archwright.export import has_onnx
from archwright.runs import disk
from archwright.search.answer import Beside, Candidate, Found
from archwright.search.beside import (
    CHANCE,
    FEW_BESIDE,
    BesideResult,
    PlainTraining,
    guess,
    simple_things,
    steps_within,
    verdict,
)
from archwright.search.configuration import OF_EVALUATIONS, OF_WORK, SETTINGS, Configuration, validated
from archwright.search.context import Context
from archwright.search.evaluator import evaluation_seconds, team_share
from archwright.search.final import train_answer
from archwright.search.objectives import front_of, objectives_of, values_of
from archwright.search.task import Task
from archwright.search.tried import keep_tried
from archwright.search.values import Choice, StageResult, Trained
from archwright.spaces.base import Architecture
from archwright.spaces.operations import Cost
from archwright.spaces.topology import topology_json

R = TypeVar("R", bound=StageResult)

Redone = frozenset[Literal["limits", "latency"]]
BY_LIMITS: Redone = frozenset({"limits"})
"""A stage whose result depends on which limits are asked for."""
BY_LATENCY: Redone = frozenset({"latency"})
"""A stage whose result depends on latencies that are measured here."""


@dataclass(frozen=True)
class Stage:
    """A part of a method.

    Attributes:
        name: of its files in the run.
        title: what people read while it works.
        work: does it, saving as it goes, and returns what later stages need.
        redone: when a finished run is asked for further limits, or for latencies measured anew, the stages that depend
            on these are done again; what they trained before is kept in the run's items.
    """

    name: str
    title: str
    work: Callable[[], StageResult]
    redone: Redone = frozenset()


class Options(BaseModel):
    """Base of a method's own options: unknown ones are refused, and numbers that nobody means."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="after")
    @classmethod
    def _within_reason(cls, value: Any, info: ValidationInfo) -> Any:
        """The bounds of every number that declares none of its own."""
        if isinstance(value, int | float):
            most, least = most_of(info.field_name or "", type(value)), least_of(info.field_name or "")
            if abs(value) > most:
                raise ValueError(f"at most {most:,} is expected")
            if 0 < abs(value) < least:
                raise ValueError(f"at least {least:g} is expected")
        return value

    @model_validator(mode="after")
    def _rates_fall(self) -> Self:
        """A learning rate at the end that somebody chose is not above the one at the start."""
        for name, field in type(self).model_fields.items():
            end, first = getattr(self, name), name.removesuffix("_min")
            if not name.endswith("_lr_min") or end in (None, field.default):
                continue
            start = getattr(self, first)
            if start is not None and end > start:
                raise ValueError(f"{name} ({end:g}) must not be above {first} ({start:g})")
        return self


class Method(ABC):
    """A search method on a context. Subclasses set ``name`` and ``Options`` and list their stages.

    The engine calls, in this order (a resumed run begins at the top again, in a new process):

    1. ``Method(context)`` validates ``options``; nothing is loaded, and there may be no run folder yet.
    2. :meth:`check` refuses what cannot work, before anything expensive and before a folder exists.
    3. :meth:`estimate_seconds`, once, for a new run: what people are told before it starts.
    4. :meth:`stages`: the list of them. It depends on the configuration alone, so that every session has the same.
    5. ``stage.work()`` of each stage that the run has no result of yet, in order. What it returns is kept in
       ``stages/NAME.json``, its checkpoints are dropped, and it is never called again.
    6. The last stage is called ``answer`` and returns a :class:`~archwright.search.answer.Found`.

    What a stage must keep to:

    - It is a function of the configuration and of earlier results, which it reads by :meth:`result`. Attributes set by
      an earlier stage are not there after a resume.
    - Randomness comes from :meth:`Context.rng <archwright.search.context.Context.rng>`, by the seed and its purpose.
    - It saves as it goes (``evaluate_proposals``, ``training.drive`` and ``run_items`` do), polls ``context.stop``, and
      called again after a kill it goes on and ends with the same result.
    - The test part of the data is looked at by :mod:`archwright.search.final` only.

    What a method declares, so that the command line offers what it goes by and anything else is refused before anything
    is loaded: :attr:`uses`, :attr:`resources`, ``Options``, and :meth:`idle` for what depends on the other settings.

    All of it is checked for every registered method by :func:`archwright.testing.check_method`.

    Example: a search that takes the first architecture it draws (:class:`SearchMethod` trains, tests and answers).

        class First(SearchMethod):
            name, Options = "first", Options

            def search_stages(self):
                return [Stage("search", "draw one architecture", self._draw)]

            def _draw(self):
                drawn = self.context.task.space.sample(self.context.rng("first"))
                return Choice(architecture=str(drawn), accuracy=None, accuracy_on="nothing", evaluations=0)
    """

    name: ClassVar[str]
    Options: ClassVar[type[Options]]
    default_space: ClassVar[str] = "nasbench201"
    """The space of a search that names none."""
    uses: ClassVar[frozenset[str]] = SETTINGS - OF_WORK - OF_EVALUATIONS
    """The settings (fields of a configuration) that it goes by. One that sends work items to ``context.executor`` adds
    ``OF_WORK``; one that asks an :class:`~archwright.search.evaluator.Evaluator` for accuracies of architectures, so
    that a user's own function can give them, adds ``OF_EVALUATIONS``."""
    resources: ClassVar[tuple[str, ...]] = ("params", "macs", "latency_ms", "memory_bytes")
    """What can be limited; empty where it keeps no limits."""
    several_limits: ClassVar[bool] = False
    """Whether it answers each of several limits on a resource."""
    measures_latency: ClassVar[bool] = False
    """Whether it times networks on this machine itself, so that a latency limit needs no table."""
    timed_items: ClassVar[tuple[str, ...]] = ()
    """Logs of latencies, which are forgotten when these are to be measured anew."""

    @classmethod
    def completed(cls, task: Task) -> dict[str, Any]:
        """Settings of a new search where the user says nothing, by name; those that were given stay as they are.

        Args:
            task: of what was asked for; ``task.configuration.model_fields_set`` are the settings that were given. It
                loads what is named when first asked for, and what it has loaded is not loaded again.
        """
        return {"space": cls.default_space}

    @classmethod
    def idle(cls, asked: Configuration) -> dict[str, str]:
        """Settings and options that do nothing beside the others that were asked for.

        Returns:
            where that is, as the end of a sentence ("where nothing is trained"), by the name of a setting or option; a
            field of the recipe is called ``training.NAME``. What is in it and was given is refused.
        """
        return asked.idle

    def __init__(self, context: Context) -> None:
        self.context = context
        self.options = validated(self.Options, context.configuration.options, f"options of the method {self.name!r}")

    def check(self) -> None:
        """Refuse what cannot work; everything named in the configuration is loaded and validated here."""
        context, task = self.context, self.context.task
        c = context.configuration
        _ = task.table, task.recipe
        if task.table is None and c.data is None and c.evaluate is None:
            raise InputError("data (--data), a benchmark (--benchmark) or a function (--evaluate)", "none of them")
        self.check_own()
        _ = task.scale, task.final_recipe
        if c.data is not None:
            task.check_recipe()
        if (c.onnx or c.precision in ("any", "int8")) and not has_onnx():
            raise missing_extra("onnx", "onnx", "writing ONNX files")
        task.check_limits(context.rng("limits"), ("latency_ms",) if self.measures_latency else ())

    def check_own(self) -> None:
        """Refuse objects of the user that cannot be used."""
        self.context.task.check_own(sends_away=self.context.configuration.executor != "here")

    def forget_latencies(self) -> None:
        """Drop what was timed on this machine, so that it is measured anew."""
        for name in self.timed_items:
            disk.remove(self.context.run.folder / "items" / f"{name}.jsonl")

    @property
    def timing(self) -> Timing | None:
        """How the method times networks on this machine; None where it does not."""
        return None

    @property
    def counts_epochs(self) -> bool:
        """Whether the recipe's epochs say how long trainings are."""
        return True

    @property
    def limits(self) -> dict[str, float | list[float]]:
        """The limits that the run works under."""
        return self.context.configuration.limits

    def largest(self) -> Cost | None:
        """What the largest network that is trained costs, by a count that builds none; None where none is trained.

        By it a search is refused before a step is timed, where nobody has the time or the memory.
        """
        context, task = self.context, self.context.task
        if not context.configuration.trains_answer or not task.space.builds_networks:
            return None
        return task.space.cost(task.space.sample(context.rng("effort")), task.scale)

    def estimate_seconds(self) -> float | None:
        """Rough duration of the whole run, or None where it is a matter of seconds."""
        return None

    def batch_sizes(self) -> list[int]:
        """Images a step, of plain trainings first; each batch is cut into the search's shards."""
        return [self.context.task.recipe.batch_size] if self.context.task.trains_answer else []

    # --- what simple things reach, for every method that trains on images ---

    def beside_stage(self, trained: Callable[[], Architecture]) -> Stage:
        """The stage ``beside``: what simple things reach on the same images, so that no answer is shown alone.

        Args:
            trained: gives the architecture of the answer, whose training the plain network's is a part of.
        """
        return Stage("beside", "simple models to compare", lambda: self._try_simple(trained()))

    def _try_simple(self, architecture: Architecture) -> BesideResult:
        context, task = self.context, self.context.task
        if not context.configuration.beside:
            return BesideResult(found={CHANCE: Beside(**guess(task.data))})
        recipe, macs = task.final_recipe, task.space.cost(architecture, task.scale).macs
        plain = PlainTraining(
            recipe=recipe.changed(epochs=1),
            steps=steps_within(task.data, recipe, macs),
            augment=task.augmentation(),
            seed=context.configuration.seed,
            device=context.device.name,
            checkpoints=context.run.checkpoints("beside"),
            stop=context.stop,
        )
        with context.progress.task("simple models to compare", max(1, plain.steps)) as bar:
            found = simple_things(task.data, plain, bar.advance, FEW_BESIDE)
        return BesideResult(found={name: Beside(**one) for name, one in found.items()})

    @property
    def simple(self) -> dict[str, Beside]:
        """What the stage ``beside`` found; nothing where the run has none."""
        done = self.context.run.stage_result("beside") is not None
        return self.result("beside", BesideResult).found if done else {}

    @abstractmethod
    def stages(self) -> list[Stage]:
        """Its stages in the order of their work; the same in every session."""

    def result(self, stage: str, kind: type[R]) -> R:
        """What the earlier stage called ``stage`` returned, as a value of ``kind``."""
        run = self.context.run
        found = run.stage_result(stage)
        if found is None:
            raise RuntimeError(f"stage {stage!r} has not finished")
        try:
            return kind.model_validate(found)
        except ValidationError as error:
            raise RunError(
                f"expected the result of stage {stage!r} in {run.folder}, got a damaged or altered file "
                f"({error.errors()[0]['msg']})."
            ) from error


class SearchMethod(Method):
    """A method whose first stages choose one architecture; training and testing it is common to all.

    Subclasses give :meth:`search_stages`; the last of them returns a :class:`~archwright.search.values.Choice`.
    """

    @abstractmethod
    def search_stages(self) -> list[Stage]:
        """The method's own stages."""

    def stages(self) -> list[Stage]:
        """The method's own, then train (unless a table gives the answer's accuracy) and answer."""
        own = self.search_stages()
        training = [Stage("train", "train the chosen network", lambda: self._train(own[-1].name))]
        rest = [*training, self.beside_stage(lambda: self.chosen(own[-1].name))] if self.trains_answer else []
        return own + rest + [Stage("answer", "answer", lambda: self._answer(own[-1].name))]

    @property
    def trains_answer(self) -> bool:
        """Whether the chosen network is trained on the data."""
        return self.context.task.trains_answer

    @property
    def rounds(self) -> float:
        """How many evaluations the search makes one after another, for the estimate of time; none by default."""
        return 0

    def estimate_seconds(self) -> float | None:
        """The evaluations and the final training, from a few timed steps; what a method does besides is not counted.

        Nothing is known of the time that a user's own function takes.
        """
        if self.context.configuration.evaluate is not None:
            return None
        return evaluation_seconds(self.context) * (self.rounds + self.final_rounds)

    @property
    def final_rounds(self) -> float:
        """How many evaluations the training of the answer takes as long as, by those who train it."""
        task = self.context.task
        return self.team_share * task.final_recipe.epochs / task.recipe.epochs if self.trains_answer else 0.0

    @cached_property
    def team_share(self) -> float:
        """Seconds of a training step with all processes over those of one; timed once."""
        return team_share(self.context)

    def chosen(self, stage: str) -> Architecture:
        """The architecture that ``stage`` ended with."""
        architecture: Architecture = self.context.task.space.parse(self.result(stage, Choice).architecture)
        return architecture

    def tried(self, stage: str, measured_on: str) -> Iterator[Candidate]:
        """What the item log of ``stage`` keeps of the networks that were evaluated, failures left out.

        Args:
            stage: that evaluated them.
            measured_on: what their accuracies are of.
        """
        task, wanted = self.context.task, objectives_of(self.context.configuration)
        for text, result in self.context.run.items(stage).done.items():
            accuracy = result.get("accuracy") if isinstance(result, dict) else None
            if isinstance(accuracy, int | float):
                costs = task.costs(task.space.parse(text))
                known = {"search_accuracy": accuracy, "search_accuracy_on": measured_on}
                values = values_of(result, wanted, costs) or None
                yield Candidate(architecture=text, objectives=values, **known, **costs)

    def _train(self, stage: str) -> Trained:
        """Train the choice for longer, test it once, save the model."""
        return train_answer(self.context, self.chosen(stage))

    def _answer(self, stage: str) -> Found:
        task, table = self.context.task, self.context.task.table
        choice, architecture = self.result(stage, Choice), self.chosen(stage)
        if not task.feasible(architecture):
            raise RunError(f"the chosen architecture {architecture} breaks the limits; this is a bug.")
        known: dict[str, Any] = {}
        if task.configuration.evaluate is not None:
            known = {"accuracy": choice.accuracy, "accuracy_on": choice.accuracy_on}
        if table is not None:
            split, epochs = table.report_protocol
            tests = {d: table.accuracy(architecture, d, epochs, split) for d in table.datasets}
            dataset = task.configuration.dataset
            known["accuracy"] = tests[dataset]
            known["accuracy_on"] = f"{dataset} {split} after {epochs} epochs ({table.name} table)"
            known["tests"] = tests
        if self.trains_answer:
            known |= self.result("train", Trained).model_dump()
            known["scale"] = task.scale.to_dict()
        tried = list(self.tried(stage, choice.accuracy_on))
        keep_tried(self.context.run, tried)
        front = front_of(tried, objectives_of(self.context.configuration))
        chosen = next((one.objectives for one in front if one.architecture == choice.architecture), None)
        best = Candidate(
            architecture=str(architecture),
            search_accuracy=choice.accuracy,
            search_accuracy_on=choice.accuracy_on,
            topology=topology_json(architecture) or None,
            objectives=chosen,
            **known,
            **task.costs(architecture),
        )
        beside = self.simple
        return Found(
            best=best,
            front=front,
            evaluations=choice.evaluations,
            failures=choice.failures,
            beside=beside,
            verdict=(verdict(best, beside) or None) if beside else None,
        )
