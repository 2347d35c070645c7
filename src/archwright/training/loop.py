"""The one training loop: it drives a step function, and survives being killed at any moment.

A step is a function of its position; what it changes is declared in ``state``. The loop knows nothing of losses
or data, so plain training, two-copy search and distillation differ in their step only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from archwright.data.shards import mixed
from archwright.errors import DivergedError, InputError, Interrupted, RunError
from archwright.runs import checkpoints as kept
from archwright.runs.checkpoints import CheckpointStore
from archwright.runs.stop import Stop
from archwright.training.meter import Meter
from archwright.training.seeds import seed_all
from archwright.training.team import ALONE, GO, LEAVE, STOP, LeftError, Team


class Stateful(Protocol):
    """Anything a checkpoint can hold: networks, optimisers, moving averages."""

    def state_dict(self) -> dict[str, Any]:
        """Nested dicts and lists of tensors and scalars that say everything about the object."""

    def load_state_dict(self, state_dict: dict[str, Any], /) -> Any:
        """Take over what :meth:`state_dict` returned."""


@dataclass(frozen=True)
class Position:
    """Where a training is: ``index`` steps are done, and this is step ``step`` of epoch ``epoch`` (all from 0)."""

    epoch: int
    step: int
    index: int
    steps_per_epoch: int
    epochs: int

    @classmethod
    def at(cls, index: int, steps_per_epoch: int, epochs: int) -> Position:
        """The position after ``index`` steps of a training of ``epochs`` epochs with ``steps_per_epoch`` each."""
        return cls(index // steps_per_epoch, index % steps_per_epoch, index, steps_per_epoch, epochs)

    @property
    def progress(self) -> float:
        """Part of the training that is done, 0 before the first step and 1 after the last."""
        return self.index / (self.epochs * self.steps_per_epoch)


Step: TypeAlias = Callable[[Position], Mapping[str, float | Tensor]]
"""One step of training: changes the state, returns its metrics as numbers or 0-d tensors."""
Length: TypeAlias = Callable[[int], int]
"""How many steps a training is to have in all, as it is thought after so many of them; the same when asked again."""


def drive(
    step: Step,
    state: Mapping[str, Stateful],
    *,
    epochs: int,
    steps_per_epoch: int,
    seed: int,
    checkpoints: CheckpointStore | None = None,
    checkpoint_seconds: float | None = None,
    stop: Stop | None = None,
    on_epoch: Callable[[int, dict[str, float]], None] | None = None,
    on_step: Callable[[Position], None] | None = None,
    length: Length | None = None,
    team: Team = ALONE,
) -> list[dict[str, float]]:
    """Run ``step`` over all epochs, from the newest checkpoint if there is one; returns the mean metrics of each epoch.

    Before every step torch's global generator is seeded from (seed, index), so that dropout, drop-path and Gumbel draws
    depend on the position only; a run killed and resumed is bit for bit the uninterrupted one, provided that ``step``
    draws from torch and that everything it changes is in ``state``. The caller's generator is put back at the end.

    Args:
        step: called with the position; the mean of its metrics over an epoch is the history. A non-finite ``loss``
            raises :class:`DivergedError`.
        state: what the step changes, by name.
        epochs: number of epochs.
        steps_per_epoch: steps in each of them.
        seed: of the draws inside a step.
        checkpoints: where to keep the state; also written after the last step, so a finished training is not repeated.
        checkpoint_seconds: least time between two checkpoints, by default :data:`archwright.runs.checkpoints.SECONDS`;
            0 writes one after every step.
        stop: polled before every step; when it asks, the state is saved and :class:`Interrupted` raised.
        on_epoch: called with the number and metrics of an epoch when it ends; after a kill possibly again.
        on_step: called with its position after every step.
        length: of a training of one epoch whose number of steps is not known beforehand: asked before every step.
            ``steps_per_epoch`` then only says how often the step's source repeats itself.
        team: who does the steps together. All begin with the leader's state; it alone keeps checkpoints, counts metrics
            and calls back, and a stop of one of them is a stop of all. A follower returns no history.
    """
    if epochs < 1 or steps_per_epoch < 1:
        raise InputError(
            "at least one epoch and one step an epoch", f"{epochs} epochs of {steps_per_epoch} steps",
            "Give more images or a smaller batch size.",
        )  # fmt: skip
    plan = {"epochs": epochs, "steps_per_epoch": steps_per_epoch, "seed": seed}
    seconds = kept.SECONDS if checkpoint_seconds is None else checkpoint_seconds
    keeper = _Keeper(state, plan, checkpoints, seconds, team.leads)
    total = epochs * steps_per_epoch
    index = begun = keeper.restore(team)
    with _own_generator():
        while True:
            with team.excused():
                code, total = _intention(keeper, index, stop, length, total)
            code, total = team.agreed(code, total)
            if code == LEAVE:
                raise LeftError
            if index >= total:
                break
            if code == STOP:
                _stop_now(keeper, index, stop)
            position = Position.at(index, steps_per_epoch, epochs) if length is None else Position.at(index, total, 1)
            if position.step == 0 and index > begun:
                _share_buffers(state, team)
            seed_all(step_seed(seed, index))
            with team.bound():
                metrics = step(position)
            index += 1
            if team.leads:
                with team.excused():
                    _note(keeper, position, metrics, on_step, on_epoch)
        if team.leads:
            keeper.keep(index, now=True)
    return keeper.history


def _intention(keeper: _Keeper, index: int, stop: Stop | None, length: Length | None, total: int) -> tuple[int, int]:
    """What this process is for before a step; as the leader also the steps in all, after keeping what is due."""
    code = STOP if stop is not None and stop.requested else GO
    if not keeper.leads:
        return code, 0
    total = total if length is None else length(index)
    if index < total:
        keeper.keep(index, now=False)
    return code, total


def _stop_now(keeper: _Keeper, index: int, stop: Stop | None) -> NoReturn:
    """End the training where that was agreed, with everything saved."""
    if keeper.leads:
        keeper.keep(index, now=True)
    if stop is not None:
        stop.check()
    raise Interrupted("stopped by a process that trains with this one")


def _note(
    keeper: _Keeper,
    position: Position,
    metrics: Mapping[str, float | Tensor],
    on_step: Callable[[Position], None] | None,
    on_epoch: Callable[[int, dict[str, float]], None] | None,
) -> None:
    """Count the metrics of a step that is done, and say so."""
    keeper.meter.add(position.index, metrics)
    if on_step is not None:
        on_step(position)
    if position.step == position.steps_per_epoch - 1:
        means = keeper.meter.close()
        keeper.history.append(means)
        if on_epoch is not None:
            on_epoch(position.epoch, means)


def _share_buffers(state: Mapping[str, Stateful], team: Team) -> None:
    """Give all processes the leader's buffers: what it looked at after an epoch may have moved its statistics."""
    if team.size == 1:
        return
    buffers = [buffer for thing in state.values() if isinstance(thing, nn.Module) for buffer in thing.buffers()]
    for own, told in zip(buffers, team.told(buffers), strict=True):
        if not team.leads:
            own.copy_(told)


def step_seed(seed: int, index: int) -> int:
    """The seed of step ``index`` in a training of ``seed``: neighbouring seeds and steps share nothing."""
    return mixed(seed, index)


@contextmanager
def _own_generator() -> Iterator[None]:
    """Leave the caller's random state, on the CPU and the GPU that computes, as it was."""
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if torch.cuda.is_available() else []):
        yield


@dataclass
class _Keeper:
    """What is kept of a running training, and when."""

    state: Mapping[str, Stateful]
    plan: dict[str, int]
    store: CheckpointStore | None
    seconds: float
    leads: bool = True
    history: list[dict[str, float]] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)
    saved_index: int = 0
    saved_time: float = field(default_factory=time.monotonic)

    def restore(self, team: Team) -> int:
        """Load the newest checkpoint, as the leader of ``team``, or the leader's state; the number of steps done."""
        index = 0
        if team.leads:
            with team.failing_told():
                index = self._load_newest()
        if team.size > 1:
            own = {name: thing.state_dict() for name, thing in self.state.items()} if team.leads else None
            told = team.told((index, own))
            if told is None:
                raise LeftError
            index, states = told
            if not team.leads:
                self._load(states)
        return index

    def _load_newest(self) -> int:
        found = None if self.store is None else self.store.latest()
        if found is None:
            return 0
        self.saved_index, tree = found
        if tree["plan"] != self.plan or tree["state"].keys() != self.state.keys():
            raise RunError(
                f"expected a checkpoint of {self.plan} with {sorted(self.state)}, got one of {tree['plan']} with "
                f"{sorted(tree['state'])}. Start a new run, or resume with the settings it was started with."
            )
        self._load(tree["state"])
        self.meter.load_state_dict(tree["meter"])
        self.history = tree["history"]
        return self.saved_index

    def _load(self, states: Mapping[str, Any]) -> None:
        for name, thing in self.state.items():
            thing.load_state_dict(states[name])
            if isinstance(thing, torch.optim.Optimizer):
                _match_layout(thing)

    def keep(self, index: int, *, now: bool) -> None:
        """Save the state after ``index`` steps if it is time, or ``now``; never a state that has diverged."""
        if index == self.saved_index or not (now or time.monotonic() - self.saved_time >= self.seconds):
            return
        self.meter.check()
        self._check_weights(index)
        if self.store is None:
            return
        tree = {
            "plan": self.plan,
            "state": {name: thing.state_dict() for name, thing in self.state.items()},
            "meter": self.meter.state_dict(),
            "history": self.history,
        }
        self.store.save(index, tree)
        self.saved_index, self.saved_time = index, time.monotonic()

    def _check_weights(self, index: int) -> None:
        """A finite loss can have an infinite gradient: look at the weights before they replace good ones."""
        for name, thing in self.state.items():
            if not isinstance(thing, nn.Module):
                continue
            for parameter, weight in thing.named_parameters():
                if not bool(torch.isfinite(weight).all()):
                    raise DivergedError(
                        f"expected finite weights, got non-finite ones in {parameter!r} of {name!r} at or before step "
                        f"{index - 1} (counted from 0). The last good checkpoint is kept. Try a lower learning rate, "
                        "a warm-up or gradient clipping."
                    )


def _match_layout(optimizer: torch.optim.Optimizer) -> None:
    """Give restored momenta the memory layout of their weights (channels last), which a checkpoint does not keep.

    Mixed layouts take slower kernels, and nothing promises that these agree to the last bit.
    """
    for weight, values in optimizer.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape == weight.shape and value.stride() != weight.stride():
                same = torch.empty_strided(weight.shape, weight.stride(), dtype=value.dtype, device=value.device)
                values[name] = same.copy_(value)
