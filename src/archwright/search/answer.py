"""What a search found, typed and versioned; its JSON is what scripts rely on.

    {"format", "method", "space", "data", "seed", "best": {...}, "front": [...], "evaluations", "seconds", "run"}

with ``models`` (one a limit, by rising limit), ``members`` (of an ensemble), ``beside`` (simple things tried in the
same time), what else :class:`Found` names, and ``details`` (what only this method knows) where there are any. A field
that is not known is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from archwright.errors import InputError, RunError, missing_extra
from archwright.references import SpaceRef
from archwright.runs.files import Json, inside, read_json, write_json
from archwright.search.values import StageResult, check_percent

if TYPE_CHECKING:
    import pandas as pd

    from archwright.ensembles import Ensemble
    from archwright.models import Model, Prediction

FORMAT = 2
"""Version of the answer's form. The first had under ``details`` what are fields of their own now; it is still read."""
NAMED_SINCE_1 = {
    **{name: name for name in ("verdict", "insights", "latency_on", "reachable_ms", "front_points", "failures")},
    "rounds": "loss_rounds",
    "scored": "scored_ensembles",
    "estimated": "chosen_ensemble",
}
"""Keys of ``details`` in the first form, each with its field."""
RESULT = "artifacts/result.json"
"""Where a run keeps its answer."""


class Spread(StageResult):
    """Milliseconds of a network: the median, and the tenth and ninetieth percentile."""

    median_ms: float
    low_ms: float
    high_ms: float


class Candidate(StageResult):
    """An architecture and what is known of it; accuracies in percent.

    Attributes:
        architecture: its canonical text; of an ensemble, a JSON list of its members' texts.
        accuracy: what is reported; ``accuracy_on`` says what it was measured on.
        accuracy_interval: the 95 % confidence interval of a measured one.
        validation_accuracy: what answers are compared by.
        search_accuracy: what the search saw of it, on ``search_accuracy_on``.
        predicted_accuracy: by the method's predictor.
        objectives: values of several objectives by name, where a search was asked for their front.
        limits: that it was asked to meet.
        latency_ms: measured where it was timed here, else by the table.
        predicted_latency_ms: by the table.
        measured_latency_ms: where it was timed here.
        precision: that it is computed in: fp32 or int8, where that was searched.
        memory_bytes: weights and activations of one image.
        image_size: pixels a side of the images that it sees, where networks of one answer differ in it.
        scale: of its network.
        epochs: that its network was trained for.
        model: file of the trained network (of an ensemble, its folder), relative to the run; ``onnx`` the same as ONNX.
        tests: accuracy on other data sets, by name.
        topology: width and depth of its cells.
        reason: why it was taken, in a sentence, where another one was more accurate on validation.
        details: what only this method knows of it.
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")

    architecture: str
    accuracy: float | None = None
    accuracy_interval: tuple[float, float] | None = None
    accuracy_on: str | None = None
    validation_accuracy: float | None = None
    search_accuracy: float | None = None
    search_accuracy_on: str | None = None
    predicted_accuracy: float | None = None
    objectives: dict[str, float] | None = None
    limits: dict[str, float] | None = None
    params: int | None = None
    macs: int | None = None
    latency_ms: float | None = None
    predicted_latency_ms: float | None = None
    measured_latency_ms: Spread | None = None
    precision: str | None = None
    memory_bytes: int | None = None
    image_size: int | None = None
    scale: dict[str, Any] | None = None
    epochs: int | None = None
    model: str | None = None
    onnx: str | None = None
    tests: dict[str, float] | None = None
    topology: dict[str, Any] | None = None
    reason: str | None = None
    details: dict[str, Any] | None = None

    _folder: Path | None = PrivateAttr(None)
    _model: Any = PrivateAttr(None)

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_percent(
            accuracy=(self.accuracy, self.accuracy_on),
            validation_accuracy=(self.validation_accuracy, self.accuracy_on),
            search_accuracy=(self.search_accuracy, self.search_accuracy_on),
        )
        return self

    def __eq__(self, other: object) -> bool:
        """By what is known of it, wherever its run lies."""
        return isinstance(other, Candidate) and self.model_dump() == other.model_dump()

    __hash__ = None  # type: ignore[assignment]

    def load(self, *, allow_import: bool = False) -> Model | Ensemble:
        """The trained network (or ensemble of them), read from the run once.

        Args:
            allow_import: as in :func:`archwright.models.load_model`; what this process searched with needs none.
        """
        from archwright.models import load_model

        if self.model is None or self._folder is None:
            raise InputError(
                "an architecture that was trained", "one without a model", "Search with data to get a trained model."
            )
        if self._model is None:
            self._model = load_model(inside(self._folder, self.model), allow_import=allow_import)
        found: Model | Ensemble = self._model
        return found

    def export(self, path: Path | str, overwrite: bool = False) -> float:
        """Write the trained network as a file; gives the largest difference of a probability from PyTorch's.

        Args:
            path: of the file; its ending says the format: ``.onnx``, ``.xml`` (OpenVINO), ``.pt2``, ``.torchscript``.
            overwrite: whether another file than one that this wrote may be replaced.
        """
        return self.load().export(path, overwrite)

    def predict(self, images: Sequence[Path | str], top: int = 3) -> list[Prediction]:
        """Classify image files with the trained network.

        Args:
            images: files of any size; an unreadable one is an error that names it.
            top: classes to say of each, the likeliest first.
        """
        return self.load().predict(images, top=top)


class Beside(BaseModel):
    """Something simple that was tried on the same images in the same time; accuracies in percent."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="allow")

    accuracy: float
    accuracy_on: str
    accuracy_interval: tuple[float, float] | None = None
    validation_accuracy: float | None = None
    params: int | None = None
    macs: int | None = None
    latency_ms: float | None = None


class Term(StageResult):
    """A product of bits in a polynomial of the loss, with its Fourier coefficient."""

    bits: list[str]
    coefficient: float


class LossRound(StageResult):
    """A polynomial of the loss, recovered from measurements: its terms, strongest first, and what else is known."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="allow")

    terms: list[Term]


class ScoredEnsemble(StageResult):
    """An ensemble with inherited weights on the validation images.

    Attributes:
        architectures: texts of the members.
        loss: mean cross entropy.
        error: of the averaged answer, in percent.
        ate: mean error of a member, in percent.
        ppd: how often two members disagree, in percent.
        delta: repulsion that it was drawn with, where its sampler has one.
        latency_ms: of all members in one, where there is a limit on it.
    """

    architectures: list[str]
    loss: float
    error: float
    ate: float
    ppd: float
    delta: float | None = None
    latency_ms: float | None = None


class EnsembleErrors(StageResult):
    """What a trained ensemble and its members do on the test images, in percent.

    Attributes:
        error: of the averaged answer.
        member_errors: of each member alone.
        ate: their mean.
        ppd: how often two members disagree.
        ece: calibration error of the averaged answer.
        images: how many images.
    """

    error: float
    member_errors: list[float]
    ate: float
    ppd: float
    ece: float
    images: int


class Found(StageResult):
    """What the last stage of a method returns. Only ``best`` and ``evaluations`` are needed.

    Attributes:
        best: the answer; of several models the one of highest validation accuracy.
        front: undominated networks, cheapest first, where the method has a front.
        models: one answer a limit, by rising limit.
        before: the network that was given, as it came, where one is thinned.
        members: of an ensemble; ``ensemble`` what they do alone and together.
        beside: simple things, by name.
        evaluations: how many networks (or rows of measurements) the search looked at.
        failures: how many of them failed.
        verdict: what the answer is worth beside simple things, in a sentence or two; it begins with "Warning" where
            that is nothing.
        insights: what the method found out, in sentences.
        latency_on: the device that latencies are of.
        reachable_ms: least and greatest latency of the space there, in milliseconds.
        front_points: how many networks the whole front has, where ``front`` is a part of it.
        loss_rounds: recovered polynomials of the loss, the first round first.
        scored_ensembles: that were compared with inherited weights; ``chosen_ensemble`` is the one that won.
        details: what only this method knows.
    """

    best: Candidate
    front: list[Candidate] = Field(default_factory=list)
    models: list[Candidate] = Field(default_factory=list)
    before: Candidate | None = None
    members: list[Candidate] = Field(default_factory=list)
    ensemble: EnsembleErrors | None = None
    beside: dict[str, Beside] = Field(default_factory=dict)
    evaluations: int
    failures: int = 0
    verdict: str | None = None
    insights: list[str] = Field(default_factory=list)
    latency_on: str | None = None
    reachable_ms: tuple[float, float] | None = None
    front_points: int | None = None
    loss_rounds: list[LossRound] = Field(default_factory=list)
    scored_ensembles: list[ScoredEnsemble] = Field(default_factory=list)
    chosen_ensemble: ScoredEnsemble | None = None
    details: dict[str, Any] = Field(default_factory=dict)


class Answer(Found):
    """A finished search.

    Example:
        >>> found = archwright.search("random", data="digits", evaluations=4)  # doctest: +SKIP
        >>> found.best.accuracy, found.best.architecture  # doctest: +SKIP
        >>> found.best.export("digits.onnx")  # doctest: +SKIP
    """

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="forbid")

    format: int = FORMAT
    method: str
    space: str
    data: str | None
    seed: int
    seconds: float
    run: str

    @property
    def folder(self) -> Path:
        """The folder of the run that found it."""
        return Path(self.run)

    def model_post_init(self, _context: Any) -> None:
        """Candidates find their files in the run."""
        for one in self.candidates:
            one._folder = self.folder

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """Every network of the answer that has files."""
        return (self.best, *self.models, *self.members, *([self.before] if self.before else []))

    @property
    def needs_import(self) -> bool:
        """Whether another process runs code of the user's when it loads the networks, for which it needs permission."""
        return SpaceRef.parse(self.space).imports is not None

    def front_frame(self) -> pd.DataFrame:
        """The front as a data frame, one row a network; needs pandas."""
        return _frame(self.front)

    def models_frame(self) -> pd.DataFrame:
        """The trained models as a data frame, one row a limit, or the one answer; needs pandas."""
        return _frame(self.models or [self.best])

    def tried_frame(self) -> pd.DataFrame:
        """Every network that the search tried as a data frame, the best first; needs pandas."""
        from archwright.search.tried import read_tried

        return _frame(read_tried(self.folder))

    def to_json(self) -> dict[str, Json]:
        """What scripts rely on: strict JSON without unknown fields."""
        found: dict[str, Json] = self.model_dump(mode="json", exclude_none=True)
        for name in set(Found.model_fields) - {"best", "front", "evaluations"}:
            if not found.get(name):
                found.pop(name, None)
        first = ("format", "method", "space", "data", "seed", "before", "best", "models", "members", "front", "beside")
        ordered = {name: found[name] for name in first if name in found}
        return {**ordered, **found, "data": self.data}

    def save(self) -> None:
        """Write it as JSON into its run, over the one that is there."""
        write_json(self.folder / RESULT, self.to_json())

    @classmethod
    def read(cls, folder: Path) -> Answer:
        """The answer of the run in ``folder``, wherever that was moved to."""
        path = folder / RESULT
        values = read_json(path)
        form = values.get("format") if isinstance(values, dict) else None
        if form not in (1, FORMAT):
            raise RunError(f"expected an answer of format 1 or {FORMAT} in {path}, got {form}.")
        try:
            values = from_first_form(values) if form == 1 else values
            answer = cls(**{**values, "run": str(folder)})
        except (ValidationError, LookupError, TypeError, ValueError) as error:
            raise RunError(f"expected the answer of a search in {path}, got a damaged or altered file.") from error
        for one in answer.candidates:
            for name in filter(None, (one.model, one.onnx)):
                inside(folder, name)
        return answer


def _frame(candidates: Sequence[Candidate]) -> pd.DataFrame:
    """One row a candidate, with what is known of it."""
    try:
        import pandas as pd
    except ImportError as error:
        raise missing_extra("pandas", "frames", "data frames") from error
    return pd.DataFrame([one.model_dump(exclude_none=True) for one in candidates])


def from_first_form(values: dict[str, Json]) -> dict[str, Json]:
    """The values of an answer of format 1 under the names that they have now."""
    details, best = dict(values.get("details", {})), dict(values["best"])
    named = {field: details.pop(key) for key, field in NAMED_SINCE_1.items() if key in details}
    if values.get("members") and "details" in best:
        errors = best.pop("details")
        named["ensemble"] = {name: errors[name] for name in EnsembleErrors.model_fields}
    return {**values, **named, "format": FORMAT, "best": best, "details": details}
