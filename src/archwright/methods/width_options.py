"""Options of thinning (:mod:`archwright.methods.rarts_width`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic.config import JsonDict

from archwright.methods.gradients import GradientOptions
from archwright.references import absolute_path
from archwright.search.configuration import AbsolutePath, Own
from archwright.search.texts import read_several
from archwright.spaces.known_networks import NETWORKS
from archwright.training.schedule import ScheduleName

THINNING: JsonDict = {"group": "What stays"}
IMAGES: JsonDict = {"group": "The given network"}
TUNE: JsonDict = {"group": "Fine-tuning"}
LATENCIES: JsonDict = {"group": "Latencies"}
TRAINED: JsonDict = {"group": "Trained scores"}
"""Headings of the help that options are shown under."""


def _several(value: Any) -> Any:
    """Several numbers or texts, each of which may be several with commas; or one of them."""
    values = (value,) if isinstance(value, str | int | float) else value
    if not isinstance(values, list | tuple):
        return values
    return tuple(part for one in values for part in (read_several(one) if isinstance(one, str) else (one,)))


def _shares(values: tuple[float, ...]) -> tuple[float, ...]:
    if any(not 0 < one < 1 for one in values):
        raise ValueError("shares above 0 and below 1 are expected")
    if len(set(values)) < len(values):
        raise ValueError("each share is to be given once")
    return values


def whole_path(text: str) -> str:
    """The whole path of a model file or a run."""
    return absolute_path(text) if ":" not in text and text not in NETWORKS and Path(text).exists() else text


Shares = Annotated[tuple[float, ...], BeforeValidator(_several), AfterValidator(_shares)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_several)]
SHARE: JsonDict = {**THINNING, "several": True}


class WidthOptions(GradientOptions):
    """Options of thinning; trained scores are the architecture parameters (``alpha_*``)."""

    network: Annotated[Own, AfterValidator(whole_path)] = Field(
        "resnet20",
        description="network to thin: MODULE:FUNCTION or FILE.py:FUNCTION of your own, a model file or run of "
        "Archwright, or, from scratch, resnet20, resnet56, resnet164, mobilenetv2, vgg16",
        json_schema_extra=IMAGES,
    )
    accuracy: float | None = Field(
        None,
        gt=0,
        le=100,
        description="accuracy that the given network has, in percent: far below it the search is refused, as images "
        "are not shown as it was trained",
        json_schema_extra=IMAGES,
    )
    preprocessing: str | None = Field(
        None,
        description="how the given network sees images, by name: imagenet or a network with published weights",
        json_schema_extra=IMAGES,
    )
    mean: Numbers | None = Field(
        None,
        description="means by channel that the given network's images are shifted by, as 0.485,0.456,0.406 of pixels "
        "in [0, 1]",
        json_schema_extra=IMAGES,
    )
    std: Numbers | None = Field(
        None, description="deviations by channel that these images are divided by", json_schema_extra=IMAGES
    )
    order: Literal["RGB", "BGR"] | None = Field(
        None,
        description="order of the colours that the given network sees; RGB unless it says otherwise",
        json_schema_extra=IMAGES,
    )
    scores: str | None = Field(
        None,
        description="what a channel is worth: fisher, taylor, l1, random, rarts, rarts-taylor, rarts-images, darts, "
        "darts-2, slimming or a plug-in's; fisher for a network with weights, rarts from scratch",
        json_schema_extra=THINNING,
    )
    keep_channels: Shares = Field(
        (), description="share of the channels that stays; several times for several answers", json_schema_extra=SHARE
    )
    keep_macs: Shares = Field((), description="share of the multiply-accumulates that stays", json_schema_extra=SHARE)
    keep_params: Shares = Field((), description="share of the parameters that stays", json_schema_extra=SHARE)
    l1: float | None = Field(
        None,
        ge=0,
        description="pull of trained scores to 0; without shares and limits, channels of score 0 are removed",
        json_schema_extra=TRAINED,
    )
    keep: float = Field(
        0.2,
        gt=0,
        le=1,
        description="least share of a group's channels that stays, one at least",
        json_schema_extra=THINNING,
    )
    layers: str | None = Field(
        None,
        description="only channels of these layers, as conv1,conv2; all by default",
        json_schema_extra=THINNING,
    )
    step: int | None = Field(
        None,
        ge=1,
        description="channels that a width is a multiple of; found by timing where networks are timed, else 1",
        json_schema_extra=THINNING,
    )
    uniform: bool = Field(
        False, description="keep the same share of every group, to compare with", json_schema_extra=THINNING
    )
    tune_steps: int | None = Field(
        None,
        ge=1,
        description="steps of every fine-tuning, instead of --final-epochs; from given weights three passes over the "
        "images, 60 steps at least",
        json_schema_extra=TUNE,
    )
    distill: float = Field(
        0.0,
        ge=0,
        le=1,
        description="weight of the whole network's answers in the fine-tuning",
        json_schema_extra=TUNE,
    )
    compare: bool = Field(
        True,
        description="also fine-tune the network with all its channels, as it is and with smaller images",
        json_schema_extra=TUNE,
    )
    timing: bool = Field(True, description="time networks on this machine", json_schema_extra=LATENCIES)
    backend: str | None = Field(
        None,
        description="program that runs the networks that are timed; onnxruntime where it is installed, else eager",
        json_schema_extra=LATENCIES,
    )
    latency_threads: int = Field(
        1, ge=1, description="CPU threads of a network that is timed", json_schema_extra=LATENCIES
    )
    search_from: AbsolutePath | None = Field(
        None,
        description="run folder whose scores are used: only removal and fine-tuning are done",
        json_schema_extra=TRAINED,
    )
    lam: float = Field(1.0, gt=0, description="weight of the training loss in the Lagrangian (rarts)")
    beta: float = Field(0.1, ge=0, description="strength of the coupling of the two copies (rarts)")
    fused: bool = Field(
        True, description="take the scores' gradient from the passes of the weight steps: half the time (rarts)"
    )
    search_epochs: int = Field(10, ge=1, description="passes over the training images (both halves)")
    search_batch: int = Field(
        64, ge=4, description="images of a step; where there are two halves, half as many of each"
    )
    w_lr: float | None = Field(  # type: ignore[assignment]
        None, gt=0, description="learning rate of the weights; .1 from scratch, .005 where weights are given"
    )
    w_weight_decay: float = Field(1e-4, ge=0, description="weight decay of the weights")
    alpha_lr: float = Field(0.1, gt=0, description="learning rate of the scores (SGD with momentum)")
    alpha_schedule: ScheduleName = Field("cosine", description="how the learning rate of the scores falls")
    alpha_weight_decay: float = Field(0.0, ge=0, description="weight decay of the scores")
