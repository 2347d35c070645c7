"""How to train: one validated value with every setting of plain training, and the recipes that papers use."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from archwright.errors import InputError, unknown_name
from archwright.training.schedule import Schedule, ScheduleName, make_schedule


class Recipe(BaseModel):
    """Settings of plain training; the defaults are plain SGD with a cosine and nothing else."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: int = Field(ge=1, description="passes over the training part")
    batch_size: int = Field(ge=1, description="images a step; the data are cut into batches of it")
    optimizer: Literal["sgd", "adam", "adamw"] = Field(default="sgd", description="which update rule")
    lr: float = Field(gt=0, description="highest learning rate, after the warm-up")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum of SGD, first beta of Adam and AdamW")
    nesterov: bool = Field(default=False, description="Nesterov's form of momentum (SGD only)")
    weight_decay: float = Field(
        default=0.0, ge=0, description="on all weights; decoupled in AdamW, else added to the gradient"
    )
    schedule: ScheduleName = Field(default="cosine", description="how the learning rate falls, step by step")
    lr_min: float = Field(default=0.0, ge=0, description="learning rate at the end of the schedule")
    warmup_epochs: float = Field(default=0.0, ge=0, description="epochs of linear climb from 0 to lr")
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="share of the label spread evenly over all classes"
    )
    clip: float = Field(default=0.0, ge=0, description="largest norm of the whole gradient; 0 = off")
    drop_path: float = Field(
        default=0.0, ge=0, lt=1, description="probability of dropping a path at the end, linear from 0"
    )
    auxiliary_weight: float = Field(default=0.0, ge=0, description="weight of the auxiliary head's loss; 0 = off")
    ema_decay: float = Field(default=0.0, ge=0, lt=1, description="decay of the moving average of the weights; 0 = off")
    precision: Literal["float32", "bfloat16", "auto"] = Field(
        default="float32",
        description="float32, bfloat16 autocast, or auto: bfloat16 on CUDA devices that have it, float32 elsewhere",
    )
    distill_weight: float = Field(
        default=0.0, ge=0, le=1, description="weight of the teacher's answer against the label's"
    )
    distill_temperature: float = Field(default=1.0, gt=0, description="temperature of both answers in distillation")
    head_lr: float = Field(
        default=1.0, gt=0, description="learning rate of the last linear layer, as a multiple of the others'"
    )
    frozen_norms: bool = Field(
        default=False, description="batch norms keep their statistics and normalise by them: for pretrained weights"
    )
    sync_norm: bool = Field(
        default=False,
        description="batch norms see the whole batch, whatever its shards; several processes agree to rounding only",
    )
    channels_last: bool = Field(default=True, description="keep images channels last in memory: faster on CPU and GPU")

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.nesterov and (self.optimizer != "sgd" or self.momentum == 0):
            raise ValueError("nesterov needs the optimizer sgd with momentum above 0")
        if self.lr_min > self.lr:
            raise ValueError(f"lr_min ({self.lr_min}) must not be above lr ({self.lr})")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(f"warmup_epochs ({self.warmup_epochs}) must be below epochs ({self.epochs})")
        return self

    def changed(self, **changes: Any) -> Recipe:
        """A copy with some settings changed, validated; all mistakes are in one message.

        With other ``epochs`` the warm-up is at most a quarter of them, and with another optimiser than SGD momentum is
        not Nesterov's, unless these are given, too.
        """
        epochs = changes.get("epochs")
        if isinstance(epochs, int) and "warmup_epochs" not in changes:
            changes["warmup_epochs"] = min(self.warmup_epochs, epochs / 4)
        if changes.get("optimizer", "sgd") != "sgd":
            changes.setdefault("nesterov", False)
        try:
            return Recipe(**{**self.model_dump(), **changes})
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, one['loc']))} {one['msg']}".strip() for one in error.errors())
            raise InputError("a valid training recipe", wrong) from error

    def learning_rate(self) -> Schedule:
        """The learning rate as a function of the position."""
        return make_schedule(self.schedule, self.lr, self.lr_min, self.warmup_epochs)


RECIPES: dict[str, Recipe] = {
    "nasbench201": Recipe(epochs=200, batch_size=256, lr=0.1, nesterov=True, weight_decay=5e-4),
    "darts": Recipe(
        epochs=600, batch_size=96, lr=0.025, weight_decay=3e-4, clip=5.0, drop_path=0.2, auxiliary_weight=0.4
    ),
    "short": Recipe(epochs=8, batch_size=64, lr=0.1, nesterov=True, weight_decay=5e-4, warmup_epochs=1.0, clip=5.0),
}
"""The protocols of NAS-Bench-201 and of the DARTS evaluation network, and a few epochs for small searches."""


def get_recipe(name: str, **changes: Any) -> Recipe:
    """The recipe called ``name`` with some settings changed, validated again; all mistakes are in one message.

    Args:
        name: of a recipe in :data:`RECIPES`.
        changes: settings with their new values.
    """
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name].changed(**changes)
