"""What a search found, typed and versioned; its JSON is what scripts rely on.

    {"format", "method", "space", "data", "seed", "best": {...}, "front": [...], "evaluations", "seconds", "run"}

with ``models`` (one a limit, by rising limit), ``members`` (of an ensemble), ``beside`` (simple things tried in the
same time) and ``details`` (what only this method knows) where there are any. A field that is not known is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from archwright.errors import InputError, RunError, missing_extra
from archwright.runs.files import Json, inside, read_json, write_json
from archwright.search.values import StageResult

if TYPE_CHECKING:
    import pandas as pd

    from archwright.ensembles import Ensemble
    from archwright.models import Model, Prediction

FORMAT = 1
"""Version of the answer's form."""
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
        limits: that it was asked to meet.
        latency_ms: measured where it was timed here, else by the table.
        predicted_latency_ms: by the table.
        measured_latency_ms: where it was timed here.
        memory_bytes: weights and activations of one image.
        scale: of its network.
        epochs: that its network was trained for.
        model: file of the trained network (of an ensemble, its folder), relative to the run; ``onnx`` the same as ONNX.
        tests: accuracy on other data sets, by name.
        topology: width and depth of its cells.
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
    limits: dict[str, float] | None = None
    params: int | None = None
    macs: int | None = None
    latency_ms: float | None = None
    predicted_latency_ms: float | None = None
    measured_latency_ms: Spread | None = None
    memory_bytes: int | None = None
    scale: dict[str, Any] | None = None
    epochs: int | None = None
    model: str | None = None
    onnx: str | None = None
    tests: dict[str, float] | None = None
    topology: dict[str, Any] | None = None
    details: dict[str, Any] | None = None

    _folder: Path | None = PrivateAttr(None)
    _model: Any = PrivateAttr(None)

    def __eq__(self, other: object) -> bool:
        """By what is known of it, wherever its run lies."""
        return isinstance(other, Candidate) and self.model_dump() == other.model_dump()

    __hash__ = None  # type: ignore[assignment]

    def load(self) -> Model | Ensemble:
        """The trained network (or ensemble of them), read from the run once."""
        from archwright.models import load_model

        if self.model is None or self._folder is None:
            raise InputError(
                "an architecture that was trained", "one without a model", "Search with data to get a trained model."
            )
        if self._model is None:
            self._model = load_model(inside(self._folder, self.model))
        found: Model | Ensemble = self._model
        return found

    def export(self, path: Path | str) -> float:
        """Write the trained network as ONNX; gives the largest difference of a probability from PyTorch's."""
        return self.load().export(path)

    def predict(self, images: Sequence[Path | str], top: int = 3) -> list[Prediction]:
        """Classify image files with the trained network."""
        return self.load().predict(images, top=top)


class Beside(BaseModel):
    """Something simple that was tried on the same images in the same time."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, extra="allow")

    accuracy: float
    accuracy_on: str
    accuracy_interval: tuple[float, float] | None = None
    validation_accuracy: float | None = None


class Found(StageResult):
    """What the last stage of a method returns.

    Attributes:
        best: the answer; of several models the one of highest validation accuracy.
        front: undominated networks, cheapest first, where the method has a front.
        models: one answer a limit, by rising limit.
        members: of an ensemble.
        beside: simple things, by name.
        evaluations: how many networks (or rows of measurements) the search looked at.
        details: what only this method knows.
    """

    best: Candidate
    front: list[Candidate] = Field(default_factory=list)
    models: list[Candidate] = Field(default_factory=list)
    members: list[Candidate] = Field(default_factory=list)
    beside: dict[str, Beside] = Field(default_factory=dict)
    evaluations: int
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
        """The run."""
        return Path(self.run)

    def model_post_init(self, _context: Any) -> None:
        """Candidates find their files in the run."""
        for one in (self.best, *self.models, *self.members):
            one._folder = self.folder

    def front_frame(self) -> pd.DataFrame:
        """The front as a data frame, one row a network; needs pandas."""
        try:
            import pandas as pd
        except ImportError as error:
            raise missing_extra("pandas", "frames", "data frames") from error
        return pd.DataFrame([one.model_dump(exclude_none=True) for one in self.front])

    def to_json(self) -> dict[str, Json]:
        """What scripts rely on: strict JSON without unknown fields."""
        found: dict[str, Json] = self.model_dump(mode="json", exclude_none=True)
        for name in ("models", "members", "beside", "details"):
            if not found[name]:
                del found[name]
        first = ("format", "method", "space", "data", "seed", "best", "models", "members", "front", "beside")
        ordered = {name: found[name] for name in first if name in found}
        return {**ordered, **found, "data": self.data}

    def save(self) -> None:
        """Into its run."""
        write_json(self.folder / RESULT, self.to_json())

    @classmethod
    def read(cls, folder: Path) -> Answer:
        """The answer of the run in ``folder``, wherever that was moved to."""
        path = folder / RESULT
        values = read_json(path)
        form = values.get("format") if isinstance(values, dict) else None
        if form != FORMAT:
            raise RunError(f"expected an answer of format {FORMAT} in {path}, got {form}.")
        try:
            return cls(**{**values, "run": str(folder)})
        except (ValidationError, TypeError) as error:
            raise RunError(f"expected the answer of a search in {path}, got a damaged or altered file.") from error
