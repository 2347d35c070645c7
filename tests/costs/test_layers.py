"""Times of layers by their widths: the staircase, the grid, and what a whole network is predicted to take."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from archwright.costs import layers
from archwright.costs.layers import LayerTimes, NetworkTimes, grid_of, layer_kinds, step_from, step_of, time_layers
from archwright.costs.measure import Timing


@pytest.mark.parametrize("step", [1, 2, 4, 8, 16])
def test_the_step_of_a_staircase_is_found(step: int) -> None:
    times = {n: float(-(-n // step) * step) for n in range(32, 65)}
    assert step_from(times) == step


def test_widths_between_steps_that_are_slower_than_both_do_not_count() -> None:
    times = {n: float(n) if n % 8 == 0 else 100.0 for n in range(32, 65)}
    assert step_from(times) == 8


def test_a_flat_line_has_the_usual_step() -> None:
    assert step_from(dict.fromkeys(range(32, 65), 1.0)) == 8


def test_the_grid_has_both_ends_and_lies_on_steps() -> None:
    assert grid_of(16, 128, 16) == [16, 64, 96, 128]
    assert grid_of(5, 5, 8) == [5]
    assert grid_of(1, 3, 8) == [1, 3]


def test_times_are_straight_between_widths() -> None:
    table = LayerTimes(inputs=[8, 16], outputs=[8, 16], ms=[[1.0, 2.0], [3.0, 6.0]])
    assert table.at(8, 8) == 1.0
    assert table.at(12, 8) == 2.0
    assert table.at(12, 12) == 3.0


class CountedWatch:
    """A millisecond for each product of channels of a layer."""

    def __init__(self, network: nn.Module, shape: tuple[int, int, int], timing: Timing) -> None:
        self.timing = timing
        self.ms = float(sum(one.numel() for one in network.parameters()))

    def times_ms(self, repeats: int) -> NDArray[np.float64]:
        return np.full(repeats, self.ms)


def test_a_network_is_the_sum_of_its_layers_fitted_to_two_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "Stopwatch", CountedWatch)
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
        nn.Conv2d(8, 16, 1, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 4, bias=False),
    )
    kinds = layer_kinds(network, torch.zeros(1, 3, 8, 8))
    assert list(kinds) == ["0", "1", "2", "5"]
    assert kinds["1"].depthwise
    least = {"0": (3, 2), "1": (2, 2), "2": (2, 4), "5": (4, 4)}
    times = time_layers(kinds, least, 2, Timing(), lambda: None)
    whole = {"0": (3, 8), "1": (8, 8), "2": (8, 16), "5": (16, 4)}
    assert times.layers_ms(whole) == 3 * 8 * 9 + 8 * 9 + 8 * 16 + 16 * 4
    fitted = times.fitted((whole, 10.0), (least, 2.0))
    assert fitted.latency_ms(whole) == pytest.approx(10.0)
    assert fitted.latency_ms(least) == pytest.approx(2.0)


def test_ends_that_say_nothing_leave_the_line_through_zero() -> None:
    table = NetworkTimes(step=1, tables=[LayerTimes(inputs=[4], outputs=[1, 4], ms=[[1.0, 4.0]])], layers={"a": 0})
    fitted = table.fitted(({"a": (4, 4)}, 8.0), ({"a": (4, 1)}, 9.0))
    assert fitted.latency_ms({"a": (4, 2)}) == pytest.approx(4.0)


def test_a_network_without_mixing_layers_has_no_steps() -> None:
    assert step_of({}, Timing()) == 1
