"""Typed values that stages hand on to later stages; a run keeps each as JSON and reads it back validated."""

from __future__ import annotations

from archwright.runs.values import StageResult

__all__ = ["OWN_FUNCTION", "Choice", "StageResult", "Trained"]

OWN_FUNCTION = "your own function"
"""What an accuracy is measured on where it is the score of a function that the user gave."""


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
    """

    accuracy: float
    accuracy_interval: tuple[float, float]
    accuracy_on: str
    validation_accuracy: float
    epochs: int
    model: str
    onnx: str | None = None
