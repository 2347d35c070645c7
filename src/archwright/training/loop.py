"""The one training loop: it drives a step function, and survives being killed at any moment.

A step is a function of its position; what it changes is declared in ``state``. The loop knows nothing of losses
or data, so plain training, two-copy search and distillation differ in their step only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from archwright.errors import DivergedError, InputError, RunError
from archwright.runs import checkpoints as kept
from archwright.runs.checkpoints import CheckpointStore
from archwright.runs.stop import Stop
from archwright.training.meter import Meter


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
    """
    if epochs < 1 or steps_per_epoch < 1:
        raise InputError(
            "at least one epoch and one step an epoch", f"{epochs} epochs of {steps_per_epoch} steps",
            "Give more images or a smaller batch size.",
        )  # fmt: skip
    plan = {"epochs": epochs, "steps_per_epoch": steps_per_epoch, "seed": seed}
    seconds = kept.SECONDS if checkpoint_seconds is None else checkpoint_seconds
    keeper = _Keeper(state, plan, checkpoints, seconds)
    index = keeper.restore()
    with _own_generator():
        while index < (total := epochs * steps_per_epoch if length is None else length(index)):
            stopping = stop is not None and stop.requested
            keeper.keep(index, now=stopping)
            if stop is not None and stopping:
                stop.check()
            position = Position.at(index, steps_per_epoch, epochs) if length is None else Position.at(index, total, 1)
            _seed_all(step_seed(seed, index))
            keeper.meter.add(index, step(position))
            if on_step is not None:
                on_step(position)
            index += 1
            if position.step == position.steps_per_epoch - 1:
                metrics = keeper.meter.close()
                keeper.history.append(metrics)
                if on_epoch is not None:
                    on_epoch(position.epoch, metrics)
        keeper.keep(index, now=True)
    return keeper.history


def step_seed(seed: int, index: int) -> int:
    """The seed of step ``index`` in a training of ``seed``: neighbouring seeds and steps share nothing."""
    return int(np.random.SeedSequence([seed, index]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _seed_all(seed: int) -> None:
    """Seed torch's global generators; without an accelerator only the CPU's.

    For each kind of accelerator that is not there torch keeps the seed with a stack trace, which takes .2 to .5 ms.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@contextmanager
def _own_generator() -> Iterator[None]:
    """Leave the caller's random state, on the CPU and every GPU, as it was."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


@dataclass
class _Keeper:
    """What is kept of a running training, and when."""

    state: Mapping[str, Stateful]
    plan: dict[str, int]
    store: CheckpointStore | None
    seconds: float
    history: list[dict[str, float]] = field(default_factory=list)
    meter: Meter = field(default_factory=Meter)
    saved_index: int = 0
    saved_time: float = field(default_factory=time.monotonic)

    def restore(self) -> int:
        """Load the newest checkpoint; returns the number of steps it has done."""
        found = None if self.store is None else self.store.latest()
        if found is None:
            return 0
        self.saved_index, tree = found
        if tree["plan"] != self.plan or tree["state"].keys() != self.state.keys():
            raise RunError(
                f"expected a checkpoint of {self.plan} with {sorted(self.state)}, got one of {tree['plan']} with "
                f"{sorted(tree['state'])}. Start a new run, or resume with the settings it was started with."
            )
        for name, thing in self.state.items():
            thing.load_state_dict(tree["state"][name])
            if isinstance(thing, torch.optim.Optimizer):
                _match_layout(thing)
        self.meter.load_state_dict(tree["meter"])
        self.history = tree["history"]
        return self.saved_index

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
