"""What a search is asked to do: one validated value, kept in the run and enough to repeat it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo

from archwright.bounds import (
    MOST_ANSWERS,
    MOST_BATCH,
    MOST_CELLS,
    MOST_CHANNELS,
    MOST_COUNT,
    MOST_NUMBER,
    MOST_PIXELS,
    MOST_SECONDS,
    MOST_SEED,
    MOST_SHARDS,
    MOST_THREADS,
    MOST_WORKERS,
)
from archwright.errors import InputError, unknown_name
from archwright.numerics import Numerics
from archwright.references import DataRef, ObjectRef, Reference, SpaceRef, absolute_path, refer
from archwright.search.texts import read_mapping, read_several, read_word

M = TypeVar("M", bound=BaseModel)

ASK_AND_TELL = "ask-and-tell"
"""In place of a function's name: the caller evaluates (see :mod:`archwright.search.study`)."""


def _named(thing: Any) -> Any:
    """A function by a text that finds it again."""
    return refer(thing) if callable(thing) else thing


def _absolute_object(text: str) -> str:
    named = ObjectRef.find(text)
    return text if named is None else str(named.absolute())


# Texts that name files of the user's get the whole path, so that a run can be resumed from any folder.
AbsolutePath = Annotated[str, AfterValidator(absolute_path)]
"""A path of the user's."""
SpaceText = Annotated[str, AfterValidator(lambda text: str(SpaceRef.parse(text).absolute()))]
"""A space (:class:`~archwright.references.SpaceRef`)."""
DataText = Annotated[str, AfterValidator(lambda text: str(DataRef.parse(text).absolute()))]
"""Images or a table (:class:`~archwright.references.DataRef`)."""
Own = Annotated[str, BeforeValidator(_named), AfterValidator(_absolute_object)]
"""Something known by its name, or a function of the user's (:class:`~archwright.references.ObjectRef`)."""


# Headings of the help that settings are shown under, in this order; a field of a method's own options may have others.
DATA: JsonDict = {"group": "Data"}
TIME: JsonDict = {"group": "Time and device"}
NETWORKS: JsonDict = {"group": "Networks"}
TRAINING: JsonDict = {"group": "Training"}
EVALUATION: JsonDict = {"group": "Instead of training"}
WORK: JsonDict = {"group": "Where work items run"}
OWN: JsonDict = {"group": "The search"}


def group_of(info: FieldInfo) -> str:
    """The heading that the help shows a setting or an option under."""
    extra = info.json_schema_extra
    return str((extra if isinstance(extra, dict) else {}).get("group", OWN["group"]))


OF_NUMERICS = ("amp", "tf32", "cudnn_benchmark", "compile")
"""Settings of how numbers are computed."""
OF_TRAINING = (
    "recipe",
    "epochs",
    "batch_size",
    "lr",
    "sync_norm",
    "training",
    "onnx",
    "precision",
    "shards",
    *OF_NUMERICS,
)
"""Settings of how networks are trained and kept."""
OF_WORK = frozenset({"executor", "workers", "address"})
"""Settings of where work items run."""
OF_EVALUATIONS = frozenset({"evaluate", "objectives", "failures", "timeout"})
"""Settings of evaluations of single architectures."""
OF_TABLES = frozenset({"benchmark", "dataset"})
"""Settings of looking accuracies up."""


Asked = Literal["any", "fp32", "int8"]
"""The precision that is asked for."""


class Configuration(BaseModel):
    """Everything that decides a search's answer, and where it runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    method: str = Field(description="name of the search method")
    data: DataText | None = Field(
        None,
        description="images: folder:PATH, npz:PATH, or a named set such as cifar10; digits if nothing is given",
        json_schema_extra=DATA,
    )
    split: tuple[float, ...] | None = Field(
        None,
        description="shares of images to train, validate and test on, as 70,15,15; for data without parts of their own",
        json_schema_extra=DATA,
    )
    image_size: int | None = Field(
        None, ge=1, le=MOST_PIXELS, description="side in pixels that images are resized to", json_schema_extra=DATA
    )
    augment: Own = Field(
        "default",
        description="changes to training images: default, off, a list as crop=4,flip,zoom=0.6, or MODULE:FUNCTION",
        json_schema_extra=DATA,
    )
    skip_bad: bool = Field(False, description="leave out unreadable images instead of stopping", json_schema_extra=DATA)
    minutes: float | None = Field(
        None,
        gt=0,
        le=MOST_NUMBER,
        description="time budget; evaluations and epochs are cut beforehand to fit, and the search ends with a model",
        json_schema_extra=TIME,
    )
    seed: int = Field(0, ge=0, le=MOST_SEED, description="random seed", json_schema_extra=TIME)
    device: str = Field(
        "auto",
        description="where to compute: auto, cpu or cuda; with a benchmark, the device whose latency is limited",
        json_schema_extra=TIME,
    )
    threads: int | None = Field(None, ge=1, le=MOST_THREADS, description="CPU threads to use", json_schema_extra=TIME)
    beside: bool = Field(
        True,
        description="also train simple models on the same images, to compare with, in at most a tenth of the time",
        json_schema_extra=TIME,
    )
    shards: int = Field(
        1,
        ge=1,
        le=MOST_SHARDS,
        description="parts of a training batch, each with batch-norm statistics of its own: so many processes, or a "
        "divisor, can share one training (--ranks, torchrun or srun) and end with the same weights",
        json_schema_extra=TIME,
    )
    amp: bool = Field(
        False,
        description="mixed precision in every training step and evaluation: bfloat16, or float16 on GPUs without it",
        json_schema_extra=TIME,
    )
    tf32: bool = Field(
        False, description="TF32 for float32 on NVIDIA GPUs: quicker, 10 bits of a fraction", json_schema_extra=TIME
    )
    cudnn_benchmark: bool = Field(
        False,
        description="let cuDNN take the kernels that are quickest now: a repeated run may differ in the last bits",
        json_schema_extra=TIME,
    )
    compile: bool = Field(
        False,
        description="compile networks that are trained one at a time (torch.compile): a minute each, then quicker; "
        "weights differ in the last bits from those without",
        json_schema_extra=TIME,
    )
    space: SpaceText = Field(
        "nasbench201",
        description='search space: a registered name, MODULE:OBJECT, FILE.py:OBJECT, or choices:{"depth": [2, 3]}',
        json_schema_extra=NETWORKS,
    )
    scale: str = Field(
        "small", description="named size of the networks: small, search or paper", json_schema_extra=NETWORKS
    )
    channels: int | None = Field(
        None,
        ge=1,
        le=MOST_CHANNELS,
        description="channels of the first cell or layer, instead of the scale's",
        json_schema_extra=NETWORKS,
    )
    cells: int | None = Field(
        None,
        ge=1,
        le=MOST_CELLS,
        description="cells of a network (a stage, or in all), instead of the scale's",
        json_schema_extra=NETWORKS,
    )
    recipe: str = Field(
        "short", description="named recipe of a training: short, nasbench201 or darts", json_schema_extra=TRAINING
    )
    epochs: int | None = Field(
        None,
        ge=1,
        le=MOST_COUNT,
        description="epochs of one training in the search, instead of the recipe's",
        json_schema_extra=TRAINING,
    )
    batch_size: int | None = Field(
        None,
        ge=2,
        le=MOST_BATCH,
        description="images a training step, instead of the recipe's",
        json_schema_extra=TRAINING,
    )
    lr: float | None = Field(
        None, gt=0, le=MOST_NUMBER, description="learning rate, instead of the recipe's", json_schema_extra=TRAINING
    )
    sync_norm: bool = Field(
        False,
        description="batch norms of networks that are trained alone see the whole batch, whatever its --shards; "
        "several processes then agree to rounding only",
        json_schema_extra=TRAINING,
    )
    training: dict[str, Any] = Field(
        default_factory=dict,
        description="further fields of the recipe, as optimizer=adamw,label_smoothing=0.1",
        json_schema_extra=TRAINING,
    )
    final_epochs: int | None = Field(
        None,
        ge=1,
        le=MOST_COUNT,
        description="epochs that the answer is trained for; by default three times --epochs, unless a method differs",
        json_schema_extra=TRAINING,
    )
    onnx: bool = Field(False, description="write the trained answer as an ONNX file, too", json_schema_extra=TRAINING)
    precision: Asked | None = Field(
        None,
        description="what the answer is computed in: fp32, int8 (as an ONNX file, calibrated on training images), or "
        "any (int8 where that is not clearly less accurate); from pretrained weights binas searches both by default",
        json_schema_extra=TRAINING,
    )
    benchmark: DataText | None = Field(
        None,
        description="table to look accuracies up in instead of training: nb201, nb101 or nats:PATH",
        json_schema_extra=EVALUATION,
    )
    dataset: str = Field(
        "",
        description="data set of the benchmark to search on; cifar10 if not given",
        json_schema_extra=EVALUATION,
    )
    evaluate: Own | None = Field(
        None,
        description="your own function of an architecture, MODULE:FUNCTION or FILE.py:FUNCTION, instead of training; "
        "higher is better",
        json_schema_extra=EVALUATION,
    )
    objectives: tuple[str, ...] | None = Field(
        None,
        description="several objectives, as accuracy,-macs or -error,-seconds, the most important first; a minus where "
        "less is better; numbers that --evaluate returns by name, accuracy, params, macs. The answer has their front",
        json_schema_extra=EVALUATION,
    )
    failures: int = Field(
        10,
        ge=0,
        le=MOST_COUNT,
        description="evaluations that may fail before the search gives up",
        json_schema_extra=EVALUATION,
    )
    timeout: float | None = Field(
        None,
        gt=0,
        le=MOST_SECONDS,
        description="most seconds of one evaluation; a longer one has failed",
        json_schema_extra=EVALUATION,
    )
    executor: str = Field("here", description="where work items run: here, processes or ray", json_schema_extra=WORK)
    workers: int = Field(
        1,
        ge=1,
        le=MOST_WORKERS,
        description="work items that run at once, with the executors processes and ray",
        json_schema_extra=WORK,
    )
    address: str = Field(
        "", description="HOST:PORT of a Ray cluster; without it a local one is started", json_schema_extra=WORK
    )
    limits: dict[str, float | list[float]] = Field(
        default_factory=dict, description="upper limits: params, macs, latency_ms; a list asks for several answers"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="the method's own options")

    @field_validator("split", mode="before")
    @classmethod
    def _split_of_text(cls, value: Any) -> Any:
        return read_several(value) if isinstance(value, str) else value

    @field_validator("objectives", mode="before")
    @classmethod
    def _objectives_of_text(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else value

    @field_validator("objectives", mode="after")
    @classmethod
    def _objectives_differ(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        names = [one.removeprefix("-") for one in value or ()]
        if value is not None and (len(names) < 2 or len(set(names)) < len(names) or not all(names)):
            raise ValueError("two or more different names are expected, a minus before those that are to be small")
        return value

    @field_validator("training", mode="before")
    @classmethod
    def _training_of_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return read_mapping(value)
        if not isinstance(value, dict):
            return value
        return {name: read_word(one) if isinstance(one, str) else one for name, one in value.items()}

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        """A setting that would do nothing is a mistake, not a silence."""
        if self.benchmark is not None and not self.dataset:
            object.__setattr__(self, "dataset", "cifar10")  # chosen here, and so not among the fields that were given
        idle = {
            "--workers without --executor processes or ray": self.executor == "here" and self.workers != 1,
            "--address without --executor ray": self.executor != "ray" and bool(self.address),
            "--dataset without --benchmark": self.benchmark is None and bool(self.dataset),
            "both --evaluate and --benchmark": self.benchmark is not None and self.evaluate is not None,
        }
        if self.data is None:
            needing = ("split", "image_size", "skip_bad", "final_epochs", "onnx", "precision")
            idle |= {f"--{name.replace('_', '-')} without --data": bool(getattr(self, name)) for name in needing}
            idle["--augment without --data"] = self.augment != "default"
        problems = [text for text, wrong in idle.items() if wrong]
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _few_limits(self) -> Self:
        """Each combination of limits is an answer of its own."""
        lists = [limit for limit in self.limits.values() if isinstance(limit, list)]
        if any(len(set(one)) < len(one) for one in lists):
            raise ValueError("each limit is to be given once")
        if math.prod(map(len, lists)) > MOST_ANSWERS:
            raise ValueError(f"at most {MOST_ANSWERS} combinations of limits are expected")
        return self

    @property
    def numerics(self) -> Numerics:
        """How this search computes."""
        return Numerics(self.amp, self.tf32, self.cudnn_benchmark, self.compile)

    @property
    def trains_answer(self) -> bool:
        """Whether the answer is trained on the data: always without a table, with one only on request."""
        return self.data is not None and (self.benchmark is None or self.final_epochs is not None)

    @property
    def idle(self) -> dict[str, str]:
        """Settings that do nothing beside the others, whatever the method, and where that is, to end a sentence."""
        found: dict[str, str] = {}
        if not self.trains_answer:
            found |= dict.fromkeys((*OF_TRAINING, "beside"), "where nothing is trained")
        if self.shards == 1:
            found["sync_norm"] = "with one shard (--shards)"
        if self.data is None:
            found |= dict.fromkeys(("channels", "cells"), "without --data")
        if self.data is None and self.benchmark is not None:
            found["scale"] = "beside --benchmark without --data"
        if self.benchmark is not None:
            found["timeout"] = "beside --benchmark"
        if self.evaluate == ASK_AND_TELL:
            names = (*OF_TRAINING, "final_epochs", "minutes", "failures", "timeout", "objectives")
            found |= dict.fromkeys(names, "where the caller evaluates")
        return found

    @property
    def limit_sets(self) -> list[dict[str, float]]:
        """Each combination of the limits, one number a resource; one answer is asked for each of them."""
        lists = [limit if isinstance(limit, list) else [limit] for limit in self.limits.values()]
        return [dict(zip(self.limits, chosen, strict=True)) for chosen in itertools.product(*lists)]

    @property
    def single_limits(self) -> dict[str, float]:
        """The limits of a search with one answer."""
        if len(self.limit_sets) != 1:
            raise InputError(f"one limit a resource with the method {self.method!r}", f"{self.limits}")
        return self.limit_sets[0]


SETTINGS = frozenset(Configuration.model_fields) - {"method", "limits", "options"}
"""Fields of a configuration that are one flag each on the command line."""
_REFERENCES: dict[str, Callable[[str], Reference | None]] = {
    "space": SpaceRef.parse,
    "data": DataRef.parse,
    "benchmark": DataRef.parse,
    "evaluate": ObjectRef.find,
    "augment": ObjectRef.find,
}


def references(configuration: Mapping[str, Any]) -> dict[str, Reference]:
    """What a configuration, as a run keeps it, names by text, by field; a word such as ``default`` is no reference."""
    found = {name: read(str(configuration[name])) for name, read in _REFERENCES.items() if configuration.get(name)}
    return {name: one for name, one in found.items() if one is not None}


def imports(configuration: Mapping[str, Any]) -> list[str]:
    """Modules and files of the user's that a run with this configuration imports, each once."""
    found = [one.imports for one in references(configuration).values()]
    return list(dict.fromkeys(one for one in found if one is not None))


def foreign(configuration: Mapping[str, Any]) -> list[str]:
    """What a run with this configuration runs without importing it, in words: pickles and the answers of a cluster."""
    table = DataRef.parse(str(configuration.get("benchmark") or ""))
    found = [f"the pickles in {table.argument}"] if table.kind == "nats" else []
    address = configuration.get("address")
    return [*found, f"what the Ray cluster at {address} answers"] if address else found


def validated(model: type[M], values: dict[str, Any], what: str, beside: type[BaseModel] | None = None) -> M:
    """``model(**values)``, or one :class:`InputError` that lists everything wrong at once.

    Args:
        model: what to validate.
        values: given by the user.
        what: how to call it in the message.
        beside: a model for ``values["options"]`` whose problems belong in the same message; what it was given is then
            in the result as it reads it, with whole paths.
    """
    made, problems = _tried(model, values, what)
    options, more = (None, []) if beside is None else _tried(beside, values.get("options", {}), what)
    if made is None or more:
        raise InputError(f"valid {what}", "; ".join(problems + more))
    if options is None:
        return made
    return made.model_copy(update={"options": options.model_dump(mode="json", exclude_unset=True)})


def _tried(model: type[M], values: dict[str, Any], what: str) -> tuple[M | None, list[str]]:
    """``model(**values)``, or None and what is wrong with the values."""
    try:
        return model(**values), []
    except ValidationError as error:
        found = []
        for one in error.errors():
            name = ".".join(map(str, one["loc"])) or what
            if one["type"] == "extra_forbidden":
                found.append(f"{unknown_name('setting', name, model.model_fields)}")
            elif not one["loc"]:
                found.append(one["msg"].removeprefix("Value error, "))
            else:
                flag = f" (--{name.replace('_', '-')})" if name in model.model_fields else ""
                found.append(f"{name}{flag}: {one['msg']} (got {one.get('input')!r})")
        return None, found
