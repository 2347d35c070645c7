"""From timed training steps to steps that fit: sums become steps, and what other work takes does not count."""

from __future__ import annotations

import numpy as np
import pytest

from archwright.data import Batches, load
from archwright.device import Device
from archwright.search import budget
from archwright.search.beside import PlainNetwork
from archwright.search.budget import Pace, step_fit, steps_within
from archwright.training import Recipe

ALONE, TWO = Device.choose("cpu", 1), Device.choose("cpu", 2)


def test_sums_of_blocks_become_steps_by_the_line_through_whole_networks() -> None:
    summed = np.array([2.0, 4.0, 20.0])
    assert step_fit(summed, 3 * summed - 2.0, 1.0) == pytest.approx((3.0, -2.0))
    assert step_fit(summed, np.array([4.0, 9.0, 50.0]), 1.0)[0] == pytest.approx(2.5, rel=0.1)
    # a line that falls, or makes the least network free, is none: the middle one of the ratios instead
    assert step_fit(summed, np.array([6.0, 4.0, 2.0]), 1.0) == (1.0, 0.0)
    assert step_fit(summed, 3 * summed - 2.0, 0.5) == (2.5, 0.0)


def test_at_least_one_step_fits() -> None:
    assert steps_within(20.0, 20.0) == 1000
    assert steps_within(1e-9, 10.0) == 1


@pytest.mark.parametrize(("device", "share"), [(ALONE, 0.25), (TWO, 1.0)])
def test_the_share_is_what_the_processor_gives_this_process(
    device: Device, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By clocks on which a block takes eight seconds on the wall and two of the processor's."""
    wall, worked = iter((100.0, 108.0)), iter((5.0, 7.0))
    times = {"perf_counter": lambda: next(wall), "process_time": lambda: next(worked)}
    if device is TWO:  # several threads share the work: the wall's seconds count
        wall = iter((100.0, 100.0, 108.0, 108.0))
    monkeypatch.setattr(budget.time, "perf_counter", times["perf_counter"])
    monkeypatch.setattr(budget.time, "process_time", times["process_time"])
    pace = Pace(device, batch=4)
    assert pace.share == 1.0
    with pace.watched():
        pass
    assert pace.share == share


def test_a_step_of_a_real_training_is_timed_between_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    data = load("random:classes=2,size=8,channels=1,count=60")
    pace, moments = Pace(ALONE, batch=12), iter(np.arange(100) ** 2.0)
    monkeypatch.setattr(Pace, "clock", lambda _: float(next(moments)))
    recipe = Recipe(epochs=1, batch_size=12, lr=0.05)
    found = pace.real_step_ms(PlainNetwork(data), Batches(data, "train", 12), recipe, steps=4)
    assert found == 1000 * 3.0  # of the differences 1, 3, 5


def test_a_step_is_timed_as_it_is_trained() -> None:
    data = load("random:classes=2,size=8,channels=1,count=60")
    assert Pace(ALONE, batch=4).step_ms(PlainNetwork(data), (1, 8, 8), warm_up=0, repeats=2) > 0
