from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from archwright.errors import InputError, Interrupted
from archwright.runs.stop import Stop, raise_on_signals


def test_without_a_reason_it_never_stops() -> None:
    stop = Stop()
    stop.check()
    assert not stop.requested


def test_the_time_budget_ends() -> None:
    assert not Stop(minutes=60).requested
    stop = Stop(minutes=0)
    assert stop.out_of_time
    assert not stop.signalled
    with pytest.raises(Interrupted, match="time budget"):
        stop.check()


@pytest.mark.parametrize("minutes", [-1, float("nan"), float("inf")])
def test_odd_budgets_are_refused(minutes: float) -> None:
    with pytest.raises(InputError):
        Stop(minutes)


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")])
def test_the_first_signal_is_a_request_and_the_second_ends_at_once(number: int, name: str) -> None:
    before = signal.getsignal(number)
    stop = Stop()
    with stop.on_signals():
        os.kill(os.getpid(), number)
        assert stop.signalled
        with pytest.raises(Interrupted, match=name):
            stop.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_file_asks_to_stop_by_being_there(tmp_path: Path) -> None:
    stop = Stop()
    stop.watch(tmp_path / "stop")
    assert not stop.requested
    (tmp_path / "stop").touch()
    assert stop.signalled
    with pytest.raises(Interrupted, match="a request"):
        stop.check()
    with stop.on_signals():
        os.kill(os.getpid(), signal.SIGTERM)  # the first signal, which does not end the process
        assert stop.requested


def test_a_signal_after_the_last_safe_point_stops_the_work_around() -> None:
    """A reproduction does not go on to its next search."""
    with pytest.raises(Interrupted, match="SIGTERM; all is kept"), raise_on_signals("all is kept"), Stop().on_signals():
        os.kill(os.getpid(), signal.SIGTERM)
