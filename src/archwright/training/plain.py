"""Plain training of one network: the step with everything a :class:`Recipe` can ask for, and the whole training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from archwright.data.shards import Shard, taken
from archwright.errors import InputError
from archwright.numerics import autocast, compiled
from archwright.runs.checkpoints import CheckpointStore
from archwright.runs.stop import Stop
from archwright.training.curve import OnPart, Recorded
from archwright.training.ema import Ema
from archwright.training.loop import Length, Position, Stateful, Step, drive
from archwright.training.losses import classification_loss
from archwright.training.recipe import Recipe
from archwright.training.schedule import Schedule
from archwright.training.sync_norm import whole_norms
from archwright.training.team import ALONE, Pass, Team

FACTOR = "factor"
"""Of a group of parameters: what the schedule's learning rate is multiplied by."""


class BatchSource(Protocol):
    """Training batches as a function of (epoch, step); the length is the number of steps an epoch.

    One that serves trainings of several shards takes a third argument, the :class:`~archwright.data.shards.Shard`.
    """

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Images (B, C, H, W) and labels (B,) of step ``step`` of epoch ``epoch``, both from 0."""

    def __len__(self) -> int: ...


def make_optimizer(parameters: Iterable[nn.Parameter], recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser of a ``recipe`` over all trainable ``parameters``, in one group (the papers decay everything)."""
    return _optimizer([{"params": [parameter for parameter in parameters if parameter.requires_grad]}], recipe)


def _optimizer_of(network: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser of a network, whose last linear layer may have a learning rate of its own."""
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    if recipe.head_lr == 1.0 or not linear:
        return make_optimizer(network.parameters(), recipe)
    head = list(linear[-1].parameters())
    own = {id(parameter) for parameter in head}
    rest = [one for one in network.parameters() if one.requires_grad and id(one) not in own]
    return _optimizer([{"params": rest}, {"params": head, FACTOR: recipe.head_lr}], recipe)


def _optimizer(trainable: list[dict[str, Any]], recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(
            trainable,
            lr=recipe.lr,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
        )
    adam = torch.optim.Adam if recipe.optimizer == "adam" else torch.optim.AdamW
    return adam(trainable, lr=recipe.lr, betas=(recipe.momentum, 0.999), weight_decay=recipe.weight_decay)


def plain_step(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: BatchSource,
    recipe: Recipe,
    *,
    device: torch.device | str,
    ema: Ema | None = None,
    teacher: nn.Module | None = None,
    schedule: Schedule,
    team: Team = ALONE,
) -> Step:
    """One step of gradient descent on a batch; its metrics are ``loss`` and ``accuracy`` (percent) on that batch.

    Args:
        network: trained in place.
        optimizer: of its parameters.
        batches: of images (B, C, H, W) and labels (B,).
        recipe: how to train.
        device: where batches go; the network is there already.
        ema: moving average that is updated after the step.
        teacher: whose answers are distilled, where the recipe gives them a weight.
        schedule: learning rate at a position.
        team: who shares the batch.
    """
    check_network(network, recipe)
    _check_teacher(teacher, recipe)
    where, run = torch.device(device), compiled(network)
    if teacher is not None:
        teacher.eval()

    def one(position: Position, shard: Shard) -> Pass:
        images, labels = taken(batches, position.epoch, position.step, shard)
        images, labels = images.to(where, non_blocking=True), labels.to(where, non_blocking=True)
        if recipe.channels_last and images.dim() == 4:
            images = images.contiguous(memory_format=torch.channels_last)
        with autocast(where, recipe.precision):
            logits, loss = _forward(network, run, images, labels, recipe, teacher)
        return Pass(loss, len(labels), {"accuracy": 100 * (logits.argmax(1) == labels).float().mean()})

    def step(position: Position) -> Mapping[str, float | Tensor]:
        if not network.training:
            network.train()
        if recipe.frozen_norms:
            freeze_norms(network)
        if recipe.drop_path > 0:
            network.drop_path = recipe.drop_path * position.progress  # type: ignore[assignment]
        for group in optimizer.param_groups:
            group["lr"] = group.get(FACTOR, 1.0) * schedule(position)

        optimizer.zero_grad(set_to_none=True)
        metrics = team.backward([network], lambda shard: one(position, shard))
        if recipe.clip > 0:
            nn.utils.clip_grad_norm_(network.parameters(), recipe.clip)
        optimizer.step()
        if ema is not None:
            ema.update(network)
        return metrics

    return step


def train(
    network: nn.Module,
    batches: BatchSource,
    recipe: Recipe,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    teacher: nn.Module | None = None,
    checkpoints: CheckpointStore | None = None,
    checkpoint_seconds: float | None = None,
    stop: Stop | None = None,
    on_epoch: Callable[[int, dict[str, float]], None] | None = None,
    on_step: Callable[[Position], None] | None = None,
    on_part: OnPart | None = None,
    length: Length | None = None,
    team: Team = ALONE,
) -> list[dict[str, float]]:
    """Train ``network`` in place, resuming where ``checkpoints`` left off; returns ``loss`` and ``accuracy`` by epoch.

    At the end the network holds its averaged weights if the recipe asks for them; the rest is as in :func:`drive`.

    Args:
        network: from images (B, C, H, W) to logits (B, classes); moved to the device.
        batches: of images and labels (B,).
        recipe: how to train.
        seed: of the draws inside a step.
        device: where it trains.
        teacher: whose answers are distilled, where the recipe gives them a weight.
        checkpoints: where to keep the state.
        checkpoint_seconds: least time between two checkpoints.
        stop: polled before every step.
        on_epoch: called with the number and metrics of an epoch when it ends.
        on_step: called with its position after every step.
        on_part: told the learning curve, a twentieth of the training at a time.
        length: of a training of one epoch whose steps are counted as it goes.
        team: who trains with this process; as its leader, this calls for the others.
    """
    if recipe.sync_norm:
        team = replace(team, shards=team.size)
    if team.leads:
        sent = {"network": network, "batches": batches, "recipe": recipe, "teacher": teacher}
        team.call(_train_along, **sent, seed=seed, device=str(device), counted=length is None)
    network.to(device)
    if recipe.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if teacher is not None:
        teacher.to(device)
    optimizer = _optimizer_of(network, recipe)
    state: dict[str, Stateful] = {"network": network, "optimizer": optimizer}
    ema = Ema(network, recipe.ema_decay) if recipe.ema_decay > 0 else None
    if ema is not None:
        state["ema"] = ema
    step = plain_step(
        network,
        optimizer,
        batches,
        recipe,
        device=device,
        ema=ema,
        teacher=teacher,
        schedule=recipe.learning_rate(),
        team=team,
    )
    with whole_norms(network, team) if recipe.sync_norm else nullcontext():
        history = drive(
            step if on_part is None else Recorded(step, on_part),
            state,
            epochs=recipe.epochs,
            steps_per_epoch=len(batches),
            seed=seed,
            checkpoints=checkpoints,
            checkpoint_seconds=checkpoint_seconds,
            stop=stop,
            on_epoch=on_epoch,
            on_step=on_step,
            length=length,
            team=team,
        )
    if ema is not None:
        ema.copy_to(network)
    return history


def _train_along(team: Team, stop: Stop, *, counted: bool, **arguments: Any) -> None:
    """As a follower: :func:`train` with the leader, which keeps the result.

    Args:
        team: of the leader.
        stop: of this process.
        counted: whether the number of steps is known beforehand; else the leader says before each whether it is one.
        arguments: of the training.
    """
    train(**arguments, stop=stop, length=None if counted else lambda _: 0, team=team)


def _forward(
    network: nn.Module,
    run: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor,
    recipe: Recipe,
    teacher: nn.Module | None,
) -> tuple[Tensor, Tensor]:
    """Logits and the loss to descend; ``run`` is the network, perhaps compiled."""
    auxiliary: Tensor | None = None
    if recipe.auxiliary_weight > 0:
        logits, auxiliary = network.with_auxiliary(images)  # type: ignore[operator]
    else:
        logits = run(images)
    soft: Tensor | None = None
    if teacher is not None:
        with torch.no_grad():
            soft = teacher(images)
    loss = classification_loss(
        logits,
        labels,
        label_smoothing=recipe.label_smoothing,
        teacher_logits=soft,
        distill_weight=recipe.distill_weight,
        distill_temperature=recipe.distill_temperature,
    )
    if auxiliary is not None:
        loss = loss + recipe.auxiliary_weight * classification_loss(
            auxiliary, labels, label_smoothing=recipe.label_smoothing
        )
    return logits, loss


def freeze_norms(network: nn.Module) -> None:
    """Let batch norms normalise by their running statistics and leave these alone, while the rest is in training."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.eval()


def check_network(network: nn.Module, recipe: Recipe) -> None:
    """Refuse a setting of ``recipe`` that ``network`` cannot obey: a mistake, not a silence."""
    for setting, ability in (("drop_path", "has_drop_path"), ("auxiliary_weight", "has_auxiliary")):
        if getattr(recipe, setting) > 0 and not getattr(network, ability, False):
            part = "paths to drop" if setting == "drop_path" else "an auxiliary classifier"
            raise InputError(
                f"a network with {part} for a recipe with {setting} = {getattr(recipe, setting)}",
                f"{type(network).__name__} without",
                f"Set {setting}=0 (--training {setting}=0).",
            )


def _check_teacher(teacher: nn.Module | None, recipe: Recipe) -> None:
    if (teacher is not None) != (recipe.distill_weight > 0):
        raise InputError(
            "a teacher together with distill_weight above 0",
            f"{'a' if teacher is not None else 'no'} teacher with distill_weight = {recipe.distill_weight}",
            "Give both or neither.",
        )
