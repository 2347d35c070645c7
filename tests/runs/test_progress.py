"""What a log gets where there is no terminal."""

from __future__ import annotations

import pytest

from archwright.runs import progress
from archwright.runs.progress import TerminalProgress


def test_without_a_terminal_there_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    with TerminalProgress().task("evaluating", 100) as bar:
        for number in range(100):
            clock[0] += 1.0
            bar.note(f"best {number}")
            bar.advance()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "evaluating: 30 of 100, about 1.2 min left (best 29)",
        "evaluating: 60 of 100, about 0.7 min left (best 59)",
        "evaluating: 90 of 100, about 0.2 min left (best 89)",
    ]
