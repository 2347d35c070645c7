"""A method that answers limits: table -> a strategy's trainings -> choose -> beside -> answer.

:class:`LimitedSearch` is the frame. What is trained between the table and the choice is a :class:`Strategy`'s; how
latencies are measured and whether a limit is kept is :mod:`archwright.costs.clock`'s. Further limits
(``runs resume --latency-ms``), latencies measured anew (``--remeasure``), counted steps that are repeated
(``plan_from``) and chosen networks timed again (``runs time``) work for every method that is built so.

A run's *plan* is here what its stage ``plan`` counted: the steps of every training. Strategies and lists of stages are
called that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

from pydantic import BaseModel, Field
from pydantic.config import JsonDict
from torch import nn

from archwright.costs.backends import find_backend
from archwright.costs.clock import middle_round, stopwatch
from archwright.costs.device_table import (
    FLOAT,
    LATENCY_FILE,
    TIMED_ITEMS,
    DeviceTable,
    TableResult,
    latency_file,
    measured_here,
)
from archwright.costs.limits import said_limits
from archwright.costs.measure import Timing, measure
from archwright.costs.registry import EAGER, default_backend
from archwright.costs.tables import LatencyTable
from archwright.data.augmentation import Augment
from archwright.device import Device
from archwright.ensembles import Ensemble
from archwright.errors import InputError, missing_extra
from archwright.export import graph_of, has_onnx
from archwright.models import Model, load_model
from archwright.quantise import Int8, Precision
from archwright.runs import disk
from archwright.runs.files import Json, inside, write_atomic
from archwright.runs.progress import Progress
from archwright.runs.run import Run
from archwright.search.answer import Answer, Beside, Candidate, Found, Spread
from archwright.search.beside import CHANCE, PLAIN, BesideResult, PlainTraining, guess, simple_things, verdict
from archwright.search.configuration import OF_TABLES, AbsolutePath, Configuration
from archwright.search.context import Context
from archwright.search.final import keep_answer
from archwright.search.method import BY_LATENCY, BY_LIMITS, Method, Options, Stage
from archwright.search.registry import methods
from archwright.search.trained import INT8_SUFFIX, LENGTHS, TrainedNetwork, Trainer, with_int8, without_twins
from archwright.search.tried import keep_tried
from archwright.search.values import StageResult, Trained
from archwright.spaces.base import Architecture
from archwright.spaces.staged import StagedSpace
from archwright.training import Recipe

TIMED_FILES = ("stages/table.json", f"artifacts/{LATENCY_FILE}")
"""What a run whose plan can be repeated has, beside its strategy's own files; the stage first."""
TIMED_LOGS = (
    *(f"items/{name}.jsonl" for name in ("proposals", "sizes", "between", "timed", "allotted", LENGTHS)),
    f"artifacts/{latency_file('int8')}",
)
"""What it may have: networks that were timed when they were proposed, and a table of int8."""
REDONE = BY_LIMITS | BY_LATENCY


PLAN: JsonDict = {"group": "Plan"}
LATENCIES: JsonDict = {"group": "Latencies"}
"""Headings of the help that options are shown under."""


class LimitedOptions(Options):
    """Options of every method that answers latency limits with staged spaces."""

    plan_from: AbsolutePath | None = Field(
        None,
        description="run folder of an earlier search whose latency table and plan are repeated, step by step",
        json_schema_extra=PLAN,
    )
    backend: str | None = Field(
        None,
        description="program that runs the networks that are timed: eager (PyTorch), onnxruntime, openvino, "
        "onnxruntime-cuda, onnxruntime-tensorrt; onnxruntime where it is installed, else eager",
        json_schema_extra=LATENCIES,
    )
    latency_threads: int = Field(
        1, ge=1, description="CPU threads of a network that is timed", json_schema_extra=LATENCIES
    )
    latency_repeats: int = Field(50, ge=1, description="calls behind one latency", json_schema_extra=LATENCIES)
    latency_table: AbsolutePath | None = Field(
        None,
        description="latency table to go by, made by archwright latency here or on another device",
        json_schema_extra=LATENCIES,
    )
    verify: bool = Field(
        True,
        description="time the networks of the answer on this machine, and take quicker ones where a limit is broken",
        json_schema_extra=LATENCIES,
    )


@dataclass(frozen=True)
class PlainSteps:
    """How the plain network beside is trained: like an answer.

    Attributes:
        recipe: of one pass over the steps.
        steps: that it has, where they are counted.
        augment: of its training images.
        seconds: after which it ends by the clock; None where steps are counted.
    """

    recipe: Recipe
    steps: int
    augment: Augment | None
    seconds: float | None = None


@dataclass(frozen=True)
class Summary:
    """What the answer says beside its models.

    Attributes:
        front: undominated networks, the quickest first.
        evaluations: how many networks (or rows of measurements) were looked at.
        insights: sentences for people.
        details: what only this strategy knows.
        front_points: how many networks the whole front has, where ``front`` is a part of it.
    """

    front: list[Candidate]
    evaluations: int
    insights: list[str]
    details: dict[str, Any] = field(default_factory=dict)
    front_points: int | None = None


class Strategy(Protocol):
    """What is trained between the latency table and the choice. One file of a method is one strategy.

    The frame (:class:`LimitedSearch`) makes it with the context and calls, in this order:

    1. ``spaces`` and :meth:`check`, before a folder exists: the networks by image size, and everything that can be
       refused without measuring.
    2. :meth:`before_table`: stages that need no latencies.
    3. :meth:`limits_without`, in the stage ``table``, of a search that was given no limits.
    4. :meth:`training_stages`. They propose networks within the limits, train them and keep them as
       :class:`~archwright.search.trained.TrainedNetwork`. Proposals go by ``table.fitting``, so that what is proposed
       keeps its limit as timed here. What depends on the limits or on latencies is marked in its
       :class:`~archwright.search.method.Stage`. Steps are counted by a stage ``plan``, whose result the
       run keeps; nothing later reads a clock.
    5. :meth:`pool` and :meth:`preferred`, in the stage ``choose``: what an answer may be, and which of the networks
       within a limit it is. A looser limit contains a tighter one's networks, so it is never worse by the same rule.
    6. :meth:`plain` and :meth:`beside`, in the stage ``beside``.
    7. :meth:`summary`, in the stage ``answer``.

    Attributes:
        table: latencies and limits; the frame gives it before the first stage.
        spaces: networks by image size, the smallest first.
        trainer: that trained the pool.
        repeated: files of a run, beside the table's, that a repeated plan takes over.
        facts: what every model's file is to say of it (a start, a licence).
    """

    table: DeviceTable

    @property
    def spaces(self) -> Mapping[Any, StagedSpace[Any]]:
        """Networks by place: an image size, with a start where there are several."""

    @property
    def trainer(self) -> Trainer:
        """That trained the pool."""

    @property
    def repeated(self) -> tuple[str, ...]:
        """Files that a repeated plan takes over."""

    @property
    def facts(self) -> Mapping[str, Json]:
        """What a model's file is to say."""

    def check(self) -> None:
        """Refuse what cannot work, before anything is measured."""

    def check_source(self, source: Run) -> None:
        """Refuse a run whose plan is to be repeated and does not fit."""

    def estimate_seconds(self) -> float:
        """Of the whole run."""

    def limits_without(self) -> list[float]:
        """Latency limits in milliseconds, tightest first, of a search that was given none."""

    def before_table(self) -> list[Stage]:
        """Stages that need no latencies."""

    def training_stages(self) -> list[Stage]:
        """Everything between the table and the choice."""

    def pool(self) -> list[TrainedNetwork]:
        """The networks that answers are chosen among."""

    def preferred(self, within: Sequence[TrainedNetwork]) -> TrainedNetwork:
        """The one to take of those that keep a limit."""

    def plain(self) -> PlainSteps:
        """How the plain network beside is trained."""

    def beside(self) -> dict[str, Beside]:
        """Further simple things, by name."""

    def summary(self) -> Summary:
        """What the answer says beside its models."""


class RepeatResult(StageResult):
    """The run whose plan was taken over."""

    run: str


class QuantiseResult(StageResult):
    """Names of the int8 networks."""

    networks: list[str]


class ChooseResult(StageResult):
    """One network for every set of limits."""

    models: list[Candidate]


class LimitedSearch(Method):
    """A search that answers every limit with a trained network; a subclass picks the :attr:`strategy`."""

    Options: ClassVar[type[Options]] = LimitedOptions
    options: LimitedOptions
    uses = Method.uses - OF_TABLES
    several_limits = True
    measures_latency = True
    timed_items: ClassVar[tuple[str, ...]] = TIMED_ITEMS
    searches_precision: ClassVar[bool] = False

    @abstractmethod
    def make_strategy(self) -> Strategy:
        """The strategy that the options ask for, made with the context."""

    @cached_property
    def strategy(self) -> Strategy:
        """What trains, with the table it goes by."""
        strategy = self.make_strategy()
        strategy.table = self.make_table(strategy.spaces)
        return strategy

    @property
    def table(self) -> DeviceTable:
        """Latencies and limits of this search, on its device."""
        return self.strategy.table

    def make_table(self, spaces: Mapping[Any, StagedSpace[Any]]) -> DeviceTable:
        """Of the networks of ``spaces``, as the options say."""
        o, context = self.options, self.context
        return DeviceTable(
            place=context,
            spaces=spaces,
            given_limits=context.configuration.limit_sets if context.configuration.limits else [],
            timing=self.timing,
            seed=context.configuration.seed,
            given=None if o.latency_table is None else Path(o.latency_table),
            verify=o.verify,
            precisions=(FLOAT, "int8") if "int8" in self.precisions else (FLOAT,),
        )

    @property
    def timing(self) -> Timing:
        """How latencies are measured."""
        o, device = self.options, self.context.device.name
        backend = o.backend or default_backend(device.partition(":")[0])
        processor = device if find_backend(backend).any_processor else "cpu"
        return Timing(backend, o.latency_threads, repeats=o.latency_repeats, processor=processor)

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Those that answers may have, as asked; by default all that the back end computes in."""
        asked, can = self.context.configuration.precision, find_backend(self.timing.backend).precisions
        if not self.searches_precision or asked == FLOAT or self.options.latency_table is not None:
            return (FLOAT,)
        if asked == "int8":
            return ("int8",)
        return can

    def forget_latencies(self) -> None:
        """Also the table that further searches would take."""
        super().forget_latencies()
        for precision in self.table.precisions:
            disk.remove(self.table.kept(precision=precision))

    # --- before the run ---

    def check(self) -> None:
        """Refuse images, options, limits, tables and plans that cannot be used, before anything is measured."""
        self.check_own()
        self.check_options()
        runs = find_backend(self.timing.backend)
        runs.check()
        asked = self.context.configuration.precision
        if asked in ("any", "int8") and "int8" not in runs.precisions:
            raise InputError(
                "a back end that computes int8 (onnxruntime, openvino)",
                runs.name,
                "Leave --precision or --backend out.",
            )
        if asked in ("any", "int8") and self.options.latency_table is not None:
            raise InputError("no int8 beside --latency-table, which is of one precision", asked)
        if self.context.configuration.onnx and not has_onnx():
            raise missing_extra("onnxruntime", "onnx", "ONNX files and their latencies")
        self.strategy.check()
        if self.options.plan_from is not None:
            self.strategy.check_source(self._source())
        self.table.check()

    def check_options(self) -> None:
        """Refuse settings that this method has no use for, or that do not go together; none by default."""

    def _source(self) -> Run:
        """The run whose plan is repeated."""
        source = Run.open(Path(self.options.plan_from or ""))
        missing = [name for name in self._taken_over() if not (source.folder / name).is_file()]
        if missing:
            raise InputError(f"a run of {self.name} with a plan", f"{source.folder} without {missing[0]}")
        chosen = TableResult.model_validate(source.stage_result("table")).chosen_limits_ms
        if not chosen and not self.context.configuration.limits:
            raise InputError("limits (--latency-ms)", f"none, where the run in {source.folder} was given its own")
        return source

    def _taken_over(self) -> tuple[str, ...]:
        return (*TIMED_FILES, *self.strategy.repeated)

    def estimate_seconds(self) -> float:
        """How long the whole run will take, in seconds, by the strategy."""
        return self.strategy.estimate_seconds()

    def batch_sizes(self) -> list[int]:
        """Of the strategy's trainings."""
        return [self.strategy.trainer.recipe.batch_size]

    @property
    def limits(self) -> dict[str, float | list[float]]:
        """As given, else those that the finished table brought."""
        given = self.context.configuration.limits
        if given or self.context.run.stage_result("table") is None:
            return given
        return {"latency_ms": [one["latency_ms"] for one in self.table.limit_sets]}

    # --- stages ---

    def stages(self) -> list[Stage]:
        """Table, the strategy's trainings, choice, simple things, answer."""
        s = self.strategy
        return [
            *([Stage("repeat", "take over a plan", self._repeat)] if self.options.plan_from else []),
            *s.before_table(),
            Stage("table", "latency table", lambda: self.table.make(s.limits_without), redone=BY_LATENCY),
            *s.training_stages(),
            *([Stage("quantise", "int8", self._quantise, redone=REDONE)] if "int8" in self.precisions else []),
            Stage("choose", "choose", self._choose, redone=BY_LIMITS | BY_LATENCY),
            Stage("beside", "simple models to compare", self._beside),
            Stage("answer", "answer", self._answer, redone=BY_LIMITS | BY_LATENCY),
        ]

    def _repeat(self) -> RepeatResult:
        """Copy what was timed from the run that is repeated: the stages of its table and plan are then done."""
        source, run = self._source(), self.context.run
        present = [name for name in TIMED_LOGS if (source.folder / name).is_file()]
        for name in (*present, *reversed(self._taken_over())):  # stages last: they say that the rest is there
            if name.startswith("stages/"):
                run.finish_stage(Path(name).stem, source.stage_result(Path(name).stem))
            else:
                write_atomic(run.folder / name, (source.folder / name).read_bytes())
        return RepeatResult(run=str(source.folder))

    # --- precision ---

    def _quantise(self) -> QuantiseResult:
        """Make an int8 network of everything that may be an answer."""
        pool = self.strategy.pool() if "int8" in self.table.timed_in else []
        with self.context.progress.task("int8 networks", len(pool)) as bar:
            for one in pool:
                self.context.stop.check()
                self.strategy.trainer.in_int8(one)
                bar.advance()
        both = with_int8(self.context.run, pool)
        return QuantiseResult(networks=[one.name for one in both if one.precision == "int8"])

    def _pool(self) -> list[TrainedNetwork]:
        """Everything that may be an answer, in the precisions that were asked for; in float where there is no other."""
        every = with_int8(self.context.run, self.strategy.pool())
        return [one for one in every if one.precision in self.precisions] or every

    # --- choosing ---

    def _keeps(self, limits: dict[str, float], one: TrainedNetwork, margin: bool = True) -> bool:
        return self.table.keeps(one.place, self._parsed(one), limits, one.precision, margin)

    def _space(self, one: TrainedNetwork) -> StagedSpace[Any]:
        return self.strategy.spaces[one.place]

    def _parsed(self, one: TrainedNetwork) -> Architecture:
        architecture: Architecture = self._space(one).parse(one.architecture)
        return architecture

    def known(self, one: TrainedNetwork) -> dict[str, float]:
        """What a network takes of every resource, its latency as timed here."""
        return self.table.known(one.place, self._parsed(one), one.precision)

    def _choose(self) -> ChooseResult:
        """Time what was trained, give every limit what is preferred of what keeps it, test and save these."""
        context, pool = self.context, self._pool()
        with context.progress.task("timing and testing", len(pool) + len(self.table.limit_sets)) as bar:
            for one in pool:
                self.known(one)
                bar.advance()
            models = []
            for limits in self.table.limit_sets:
                taken, reason = self._best_within(limits, pool)
                models.append(self._model(taken, limits).model_copy(update={"reason": reason}))
                bar.advance()
        return ChooseResult(models=models)

    def _best_within(
        self, limits: dict[str, float], pool: Sequence[TrainedNetwork]
    ) -> tuple[TrainedNetwork, str | None]:
        """The network to take, and why, where another one within the limits was better on validation."""
        within = [one for one in pool if self._keeps(limits, one)] or [
            one for one in pool if self._keeps(limits, one, margin=False)
        ]
        if not within:
            self.context.progress.say(
                f"Warning: nothing keeps {said_limits(limits)} as timed now; the quickest network is taken. "
                "Measure again on a quiet machine: archwright runs resume RUN --remeasure"
            )
            within = [min(pool, key=lambda one: self.known(one)["latency_ms"])]
        within = without_twins(within)
        taken, best = self.strategy.preferred(within), max(within, key=lambda one: one.validation_accuracy)
        if best.validation_accuracy <= taken.validation_accuracy:
            return taken, None
        rule = ": larger networks and images are better as a rule"
        slower = self.known(taken)["latency_ms"] >= self.known(best)["latency_ms"]
        which = f"the slower one is taken{rule}" if slower else "the quicker one is taken"
        pair = best.validation_accuracy, taken.validation_accuracy
        digits = 1 if f"{pair[0]:.1f}" != f"{pair[1]:.1f}" else 2
        return taken, (
            f"Validation on {len(self.context.task.data.validation):,} images cannot tell "
            f"{pair[0]:.{digits}f} % from {pair[1]:.{digits}f} %; of networks that close {which}."
        )

    def _model(self, one: TrainedNetwork, limits: dict[str, float]) -> Candidate:
        """All that is known of the answer of a limit; its latency is the measured one where it was timed."""
        space, architecture = self._space(one), self._parsed(one)
        size, cost = one.image_size, space.cost(architecture, space.scale)
        predicted = self.table.predicted(one.place, architecture, one.precision)
        timed = self.table.timed(one.place, architecture, precision=one.precision)
        details = {"steps": one.steps, "network": one.name, **one.known}
        if timed is not None:
            details |= {"slowdown": timed.slowdown, "raw_median_ms": timed.raw_median_ms}
        return Candidate(
            **self._kept(one).model_dump(exclude={"precision"}),
            architecture=one.architecture,
            image_size=size if len(self.strategy.spaces) > 1 else None,
            limits=limits,
            params=cost.params,
            macs=cost.macs,
            latency_ms=predicted["latency_ms"] if timed is None else timed.median_ms,
            predicted_latency_ms=predicted["latency_ms"],
            predicted_accuracy=details.pop("predicted_accuracy", None),
            measured_latency_ms=None if timed is None else Spread(**timed.model_dump(include=set(Spread.model_fields))),
            precision=one.precision if self.searches_precision else None,
            memory_bytes=round(predicted["memory_bytes"]),
            scale=space.scale.to_dict(),
            details=details,
        )

    def _kept(self, one: TrainedNetwork) -> Trained:
        """What the network's test says; tested and saved once."""
        log, trainer = self.context.run.items("kept"), self.strategy.trainer
        if one.name not in log.done:
            space, int8 = self._space(one), one.precision == "int8"
            file = trainer.int8_file(one.name.removesuffix(INT8_SUFFIX))
            kept = keep_answer(
                self.context,
                trainer.load(one.weights),
                self._parsed(one),
                space.scale,
                f"model-{len(log.done) + 1}",
                one.epochs,
                onnx=has_onnx(),
                data=trainer.data(one.place),
                known={**self.strategy.facts, **one.known.get("facts", {})},
                int8=Int8.of(file.read_bytes(), one.known["int8"]) if int8 else None,
            )
            log.record(one.name, kept.model_dump(mode="json"))
        return Trained.model_validate(log.done[one.name])

    # --- simple things, and the answer ---

    def _beside(self) -> BesideResult:
        """What simple things reach, the plain network after as many steps as the strategy gives it."""
        context, data = self.context, self.context.task.data
        if not context.configuration.beside:
            return BesideResult(found={CHANCE: Beside(**guess(data))})
        asked = self.strategy.plain()
        plain = PlainTraining(
            recipe=asked.recipe,
            steps=asked.steps,
            augment=asked.augment,
            seed=context.configuration.seed,
            device=context.device.name,
            checkpoints=context.run.checkpoints("beside"),
            stop=context.stop,
            seconds=asked.seconds,
            log=context.run.items(LENGTHS),
        )
        with context.progress.task("simple models to compare", plain.steps) as bar:
            found = simple_things(data, plain, bar.advance if plain.seconds is None else lambda: None)
        if PLAIN in found and self.table.clock(self.table.result.sizes[-1]) is not None:
            shape = (data.image_channels, data.image_size, data.image_size)
            found[PLAIN]["latency_ms"] = measure(plain.network(data), shape, self.table.timing).median_ms
        simple = {name: Beside(**one) for name, one in found.items()}
        return BesideResult(found={**simple, **self.strategy.beside()})

    def _answer(self) -> Found:
        """One model a limit, in the order of the limits; ``best`` is the best on validation, the quicker of equals."""
        summary, table = self.strategy.summary(), self.table.result
        if not has_onnx():
            self.context.progress.say("No ONNX files: install them with: pip install 'archwright[onnx]'")
        models = self.result("choose", ChooseResult).models
        best = max(models, key=lambda one: (one.validation_accuracy or 0.0, -(one.latency_ms or 0.0)))
        self._copy_best(best)
        keep_tried(self.context.run, map(self._tried, self._pool()))
        beside = self.result("beside", BesideResult).found
        return Found(
            best=best,
            models=models,
            front=summary.front,
            front_points=summary.front_points,
            beside=beside,
            evaluations=summary.evaluations,
            verdict=verdict(best, beside, models) or None,
            insights=summary.insights,
            latency_on=table.device,
            reachable_ms=(table.least_ms, table.most_ms),
            details=summary.details,
        )

    def _tried(self, one: TrainedNetwork) -> Candidate:
        """A network of the pool, with the latency that it was chosen by."""
        space, architecture, known = self._space(one), self._parsed(one), self.known(one)
        cost = space.cost(architecture, space.scale)
        return Candidate(
            architecture=one.architecture,
            validation_accuracy=one.validation_accuracy,
            image_size=one.image_size if len(self.strategy.spaces) > 1 else None,
            params=cost.params,
            macs=cost.macs,
            latency_ms=known["latency_ms"],
            precision=one.precision if self.searches_precision else None,
            memory_bytes=round(known["memory_bytes"]),
        )

    def _copy_best(self, best: Candidate) -> None:
        """The files of the best answer under the name ``best``."""
        run = self.context.run
        for suffix in (".safetensors", ".json", ".onnx"):
            source = inside(run.folder, best.model or "").with_suffix(suffix)
            if source.exists():
                write_atomic(run.artifact(f"best{suffix}"), source.read_bytes())
            else:
                disk.remove(run.artifact(f"best{suffix}"))  # of an answer before


# --- for strategies ---------------------------------------------------------------------------------------------------


def tightest_first(limit_sets: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """Sets of limits in rising order."""
    return sorted(limit_sets, key=lambda limits: list(limits.values()))


def front_of(networks: Sequence[TrainedNetwork], latency_ms: Callable[[TrainedNetwork], float]) -> list[Candidate]:
    """Those of some trained networks that none is quicker and more accurate than on validation, the quickest first.

    Args:
        networks: to choose from.
        latency_ms: of a network, in milliseconds.
    """
    front, best, several = list[Candidate](), -1.0, len({one.image_size for one in networks}) > 1
    precisions = len({one.precision for one in networks}) > 1
    for one in sorted(networks, key=lambda one: (latency_ms(one), -one.validation_accuracy)):
        if one.validation_accuracy > best:
            best = one.validation_accuracy
            size = one.image_size if several else None
            known = {"validation_accuracy": best, "latency_ms": latency_ms(one), "image_size": size}
            own = one.precision if precisions else None
            front.append(Candidate(architecture=one.architecture, precision=own, **known))
    return front


# --- networks of a finished search, timed again -----------------------------------------------------------------------


class TimedAgain(BaseModel):
    """One model of the answer.

    Attributes:
        limit_ms: that it was chosen within.
        medians_ms: of every time that it was timed, in milliseconds.
    """

    architecture: str
    limit_ms: float
    medians_ms: list[float]

    @property
    def within(self) -> bool:
        """Whether it kept its limit each time."""
        return max(self.medians_ms) <= self.limit_ms


def time_again(
    folder: Path | str, times: int = 3, progress: Progress | None = None, backend: str | None = None
) -> list[TimedAgain]:
    """Time every network that a finished search chose for a latency limit, nothing corrected.

    All are timed once before the first is timed again. A time is the median of the calls of the middle of three rounds,
    in the way the run measured its latencies; for a table of another device there is nothing to time here.

    Args:
        folder: of the run.
        times: how often.
        progress: where to show it.
        backend: what runs the networks; as the run measured its latencies if not given.
    """
    if times < 1:
        raise InputError("at least one time", str(times))
    run = Run.open(Path(folder))
    if run.status() != "finished":
        raise InputError("a finished run", f"one that is {run.status()} in {run.folder}")
    answer = Answer.read(run.folder)
    models = [one for one in answer.models or [answer.best] if "latency_ms" in (one.limits or {}) and one.model]
    if not models:
        raise InputError("models with a latency limit", f"none in {run.folder}")
    timing = timing_of(run)
    if backend is not None:
        processor = timing.processor if find_backend(backend).any_processor else "cpu"
        timing = replace(timing, backend=backend, processor=processor)
    clocks = {one.model or "": _clock(run.folder, one, timing) for one in models}  # one network may have several limits
    medians: dict[str, list[float]] = {name: [] for name in clocks}
    with (progress or Progress()).task("timing", times * len(clocks)) as bar:
        for _ in range(times):
            for name, clock in clocks.items():
                medians[name].append(clock())
                bar.advance()
    return [
        TimedAgain(
            architecture=one.architecture,
            limit_ms=(one.limits or {})["latency_ms"],
            medians_ms=medians[one.model or ""],
        )
        for one in models
    ]


def timing_of(run: Run) -> Timing:
    """How a run measured its latencies: as its table says, else as its method does."""
    path = run.folder / "artifacts" / LATENCY_FILE
    if not path.is_file():
        configuration = Configuration(**run.configuration)
        context = Context(configuration, run, Device.choose(configuration.device, configuration.threads))
        timing: Timing | None = methods.get(configuration.method)(context).timing
        if timing is None:
            raise InputError("a run of a method that times networks", f"one of {configuration.method!r}")
        return timing
    table = LatencyTable.load(path)
    if not measured_here(table):
        raise InputError(
            "a table of this device", f"one of {table.provenance.device}", "Time the exported model over there."
        )
    return table.timing


def _delivered(model: Model | Ensemble, timing: Timing) -> nn.Module | bytes:
    """What is timed of a saved model: its file where int8 answers, else its network, which the back end compiles."""
    members = model.members if isinstance(model, Ensemble) else (model,)
    if all(one.int8 is None for one in members) or timing.backend == EAGER:
        return model.network
    return graph_of(model)


def _clock(folder: Path, one: Candidate, timing: Timing) -> Callable[[], float]:
    """Times a saved network."""
    model = load_model(inside(folder, one.model or ""))
    scale = model.members[0].scale if isinstance(model, Ensemble) else model.scale
    watch = stopwatch(_delivered(model, timing), scale, timing)
    return lambda: middle_round(watch).median_ms
