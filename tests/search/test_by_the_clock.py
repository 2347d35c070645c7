"""Trainings that end by the clock: their seconds are kept on a machine that becomes slower, and repeated exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from archwright.data import Endless, load
from archwright.data.batches import Batches
from archwright.errors import Interrupted
from archwright.runs.checkpoints import Checkpoints
from archwright.runs.run import ItemLog
from archwright.search.beside import PlainNetwork
from archwright.search.budget import ByTheClock
from archwright.training import Recipe, train


class Hours:
    """A clock that a step moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def walked(log: ItemLog, seconds: float, step_s: Callable[[int], float], guess: int = 50, start: int = 0) -> int:
    """Steps of a training whose steps take so long."""
    clock = Hours()
    length, index = ByTheClock(log, "one", seconds, guess, clock), start
    while index < length(index):
        clock.now += step_s(index)
        index += 1
    return index


@pytest.mark.parametrize("guess", [1, 50, 5000])
def test_the_seconds_are_used_whatever_was_guessed(guess: int, tmp_path: Path) -> None:
    done = walked(ItemLog(tmp_path / "log.jsonl"), 10.0, lambda _: 0.01, guess)
    assert done == pytest.approx(1000, abs=2)


def test_a_machine_that_becomes_busy_costs_steps_and_not_seconds(tmp_path: Path) -> None:
    spent = [0.0]

    def step(index: int) -> float:
        taken = 0.01 if index < 300 else 0.03
        spent[0] += taken
        return taken

    done = walked(ItemLog(tmp_path / "log.jsonl"), 10.0, step)
    assert done == pytest.approx(300 + 7 / 0.03, rel=0.05)
    assert spent[0] == pytest.approx(10.0, rel=0.05)


def test_a_repeated_training_has_the_same_steps_however_long_they_take(tmp_path: Path) -> None:
    first = walked(ItemLog(tmp_path / "log.jsonl"), 3.0, lambda _: 0.01)
    kept = (tmp_path / "log.jsonl").read_bytes()
    assert walked(ItemLog(tmp_path / "log.jsonl"), 3.0, lambda _: 0.5) == first
    assert (tmp_path / "log.jsonl").read_bytes() == kept


def test_a_resumed_one_goes_by_what_was_decided_and_then_by_the_time_left(tmp_path: Path) -> None:
    log = ItemLog(tmp_path / "log.jsonl")
    clock = Hours()
    length, index = ByTheClock(log, "one", 10.0, 50, clock), 0
    while index < 500:
        assert index < length(index)
        clock.now += 0.01
        index += 1
    again = ItemLog(tmp_path / "log.jsonl")
    checkpoint = 400  # some decided steps are done again
    assert walked(again, 10.0, lambda _: 0.01, start=checkpoint) == pytest.approx(1000, abs=12)


def test_a_killed_training_by_the_clock_ends_with_the_same_weights(tmp_path: Path) -> None:
    data = load("digits", seed=0)
    recipe = Recipe(epochs=1, batch_size=16, lr=0.05, schedule="linear", warmup_epochs=0.1)

    def run(name: str, kill_at: int | None) -> dict[str, torch.Tensor]:
        torch.manual_seed(0)
        network, clock = PlainNetwork(data), Hours()
        log = ItemLog(tmp_path / f"{name}.jsonl")

        def on_step(position: object) -> None:
            clock.now += 0.01
            if kill_at is not None and position.index == kill_at:  # type: ignore[attr-defined]
                raise Interrupted("here")

        train(
            network,
            Endless(Batches(data, "train", 16, seed=1)),
            recipe,
            seed=0,
            checkpoints=Checkpoints(tmp_path / name),
            checkpoint_seconds=0.0,
            on_step=on_step,
            length=ByTheClock(log, "one", 0.6, 20, clock),
        )
        return network.state_dict()

    whole = run("whole", None)
    with pytest.raises(Interrupted):
        run("killed", 33)
    resumed = run("killed", None)
    assert all(torch.equal(resumed[name], value) for name, value in whole.items())
