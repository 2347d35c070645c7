from __future__ import annotations

import copy
import pickle

import pytest

from archwright.errors import (
    ArchwrightError,
    DivergedError,
    InfeasibleError,
    InputError,
    Interrupted,
    RunError,
    missing_extra,
    unknown_name,
)


def test_exit_codes_are_those_scripts_may_rely_on() -> None:
    codes = {kind: kind.exit_code for kind in (InputError, RunError, InfeasibleError, Interrupted, DivergedError)}
    assert codes == {InputError: 2, RunError: 2, InfeasibleError: 3, Interrupted: 130, DivergedError: 1}


def test_a_message_says_what_was_expected_got_and_what_to_do() -> None:
    assert str(InputError("an even number", "7", "Add one.")) == "expected an even number, got 7. Add one."
    assert str(InputError("an even number", "7")) == "expected an even number, got 7."


def test_an_input_error_is_a_value_error_and_survives_copies_between_processes() -> None:
    error = InputError("a", "b", "c")
    assert isinstance(error, ValueError)
    assert isinstance(error, ArchwrightError)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - our own bytes
        assert (str(other), other.expected, other.got, other.do) == (str(error), "a", "b", "c")


@pytest.mark.parametrize(("name", "nearest"), [("nasbench21", "nasbench201"), ("dart", "darts")])
def test_an_unknown_name_suggests_the_nearest(name: str, nearest: str) -> None:
    error = unknown_name("space", name, ["darts", "nasbench201"])
    assert error.do.startswith(f"Did you mean '{nearest}'")
    assert "darts, nasbench201" in str(error)


def test_a_name_near_nothing_lists_what_is_known() -> None:
    error = unknown_name("space", "zzzzzz", ["darts", "nasbench201"])
    assert str(error) == "expected the name of a space (darts, nasbench201), got 'zzzzzz'."


def test_a_missing_extra_says_how_to_install_it() -> None:
    assert "pip install 'archwright[nats]'" in str(missing_extra("nats-bench", "nats", "reading files"))
