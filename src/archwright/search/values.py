"""Typed values that stages hand on to later stages; a run keeps each as JSON and reads it back validated."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from archwright.runs.values import StageResult

__all__ = ["OWN_FUNCTION", "Choice", "StageResult", "Trained"]

OWN_FUNCTION = "your own function"
"""What an accuracy is measured on where it is the score of a function that the user gave."""


MOST = 100 + 1e-6
"""An accuracy in percent, as it comes out of divisions."""


def check_percent(**accuracies: tuple[float | None, str | None]) -> None:
    """Refuse ``accuracies`` that cannot be, each with what it was measured on; scores of a user's own have no unit."""
    for name, (value, measured_on) in accuracies.items():
        if value is not None and measured_on != OWN_FUNCTION and not -1e-6 <= value <= MOST:
            raise ValueError(f"{name}: expected 0 to 100 percent, got {value:g}")


class Choice(StageResult):
    """The architecture that a search ends with.

    Attributes:
        architecture: its canonical text.
        accuracy: in percent, as the search saw it; None where a search sees no accuracies.
        accuracy_on: what that was measured on, for people.
        evaluations: how many architectures the search evaluated, those that failed included.
        failures: how many failed.
    """

    architecture: str
    accuracy: float | None
    accuracy_on: str
    evaluations: int
    failures: int = 0

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_percent(accuracy=(self.accuracy, self.accuracy_on))
        return self


class Trained(StageResult):
    """What is known of a trained answer; accuracies in percent, files relative to the run.

    Attributes:
        accuracy: on the test part, which nothing before has seen.
        accuracy_interval: its 95 % confidence interval.
        accuracy_on: what it was measured on, for people.
        validation_accuracy: on the part that answers are compared by.
        epochs: of its training.
        model: the safetensors file.
        onnx: the ONNX file, where one was asked for.
        precision: ``int8`` where the answer is an int8 file; None in float.
    """

    accuracy: float
    accuracy_interval: tuple[float, float]
    accuracy_on: str
    validation_accuracy: float
    epochs: int
    model: str
    onnx: str | None = None
    precision: Literal["int8"] | None = None

    @model_validator(mode="after")
    def _possible(self) -> Self:
        check_percent(accuracy=(self.accuracy, None), validation_accuracy=(self.validation_accuracy, None))
        return self
