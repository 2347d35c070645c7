import math

import pytest

from archwright.training.loop import Position
from archwright.training.schedule import make_schedule


def at(index: int) -> Position:
    return Position.at(index, steps_per_epoch=10, epochs=4)


def test_position_counts_epochs_steps_and_progress():
    position = at(23)
    assert (position.epoch, position.step, position.progress) == (2, 3, 23 / 40)
    assert at(0).progress == 0
    assert at(40).progress == 1


def test_cosine_without_warmup():
    rate = make_schedule("cosine", 0.1, 0.02)
    assert rate(at(0)) == pytest.approx(0.1)
    assert rate(at(10)) == pytest.approx(0.02 + 0.08 * (1 + math.sqrt(0.5)) / 2)
    assert rate(at(20)) == pytest.approx(0.06)
    assert rate(at(40)) == pytest.approx(0.02)


def test_linear_and_constant():
    assert [make_schedule("linear", 0.1)(at(i)) for i in (0, 10, 20, 40)] == pytest.approx([0.1, 0.075, 0.05, 0.0])
    assert {make_schedule("constant", 0.1)(at(i)) for i in range(41)} == {0.1}


def test_warmup_climbs_linearly_and_the_cosine_spans_the_rest():
    rate = make_schedule("cosine", 0.1, 0.0, warmup_epochs=0.8)  # 8 steps
    assert [rate(at(i)) for i in range(8)] == pytest.approx([0.1 * (i + 1) / 8 for i in range(8)])
    assert rate(at(8)) == pytest.approx(0.1)
    assert rate(at(24)) == pytest.approx(0.05)
    assert rate(at(40)) == pytest.approx(0.0)


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant"])
@pytest.mark.parametrize("warmup", [0.0, 0.05, 1.55, 3.99])
def test_never_outside_zero_and_lr_and_one_peak(kind, warmup):
    rates = [make_schedule(kind, 0.1, 0.01, warmup)(at(i)) for i in range(41)]
    assert min(rates) > 0
    assert max(rates) <= 0.1 + 1e-12
    peak = rates.index(max(rates))
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
