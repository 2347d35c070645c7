"""What C code prints does not reach the JSON on stdout."""

from __future__ import annotations

import os

import pytest

from archwright.solvers.highs import stdout_to_stderr


def test_bytes_written_to_stdout_go_to_stderr_and_only_inside(capfd: pytest.CaptureFixture[str]) -> None:
    with stdout_to_stderr():
        os.write(1, b"inside\n")
    os.write(1, b"after\n")
    assert capfd.readouterr() == ("after\n", "inside\n")


def test_stdout_comes_back_after_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), stdout_to_stderr():
        raise KeyError
    os.write(1, b"after\n")
    assert capfd.readouterr().out == "after\n"
