from __future__ import annotations

import torch

from archwright.training.curve import PARTS, Recorded
from archwright.training.loop import Position


def test_a_curve_has_the_means_of_every_part() -> None:
    told: list[tuple[float, dict[str, float]]] = []
    step = Recorded(lambda position: {"loss": torch.tensor(float(position.index))}, lambda *part: told.append(part))
    for index in range(100):
        step(Position.at(index, 50, 2))
    assert len(told) == PARTS
    assert [percent for percent, _ in told] == [5.0 * (n + 1) for n in range(PARTS)]
    assert [metrics["loss"] for _, metrics in told] == [5 * n + 2.0 for n in range(PARTS)]


def test_a_resumed_training_tells_what_is_left_and_no_infinite_loss() -> None:
    told: list[tuple[float, dict[str, float]]] = []
    step = Recorded(lambda _: {"loss": float("inf"), "accuracy": 50.0}, lambda *part: told.append(part))
    for index in range(52, 60):
        step(Position.at(index, 60, 1))
    assert [round(percent) for percent, _ in told] == [90, 95, 100]
    assert all(metrics == {"accuracy": 50.0} for _, metrics in told)


def test_fewer_steps_than_parts_give_a_point_each() -> None:
    told: list[float] = []
    step = Recorded(lambda _: {"loss": 1.0}, lambda percent, _: told.append(percent))
    for index in range(3):
        step(Position.at(index, 3, 1))
    assert [round(percent) for percent in told] == [33, 67, 100]
