"""What a log gets where there is no terminal, and what the run keeps for those who look on."""

from __future__ import annotations

from pathlib import Path

import pytest

from archwright.runs import progress
from archwright.runs.files import read_json
from archwright.runs.progress import KeptProgress, Progress, TerminalProgress
from archwright.runs.run import Run


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


def test_bars_and_lines_are_kept_in_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    run = Run.create(tmp_path / "run", {"method": "random", "space": "nasbench201", "seed": 0}, {})
    kept, path = KeptProgress(Progress(), run), run.folder / progress.FILE

    def shown() -> list[tuple[str, int, int, str]]:
        return [(bar["title"], bar["done"], bar["total"], bar["note"]) for bar in read_json(path)["bars"]]

    kept.say("hello")
    assert [(event["kind"], event["text"]) for event in run.events()] == [("said", "hello")]
    with kept.task("outer", 10, 4) as outer:
        assert shown() == [("outer", 4, 10, "")]
        outer.advance(2)
        assert shown() == [("outer", 4, 10, "")]  # too soon to write again
        clock[0] += progress.SECONDS_A_WRITE
        outer.note("best 93")
        assert shown() == [("outer", 6, 10, "best 93")]
        with kept.task("inner", 3):
            assert [title for title, *_ in shown()] == ["outer", "inner"]
        assert [title for title, *_ in shown()] == ["outer"]
    assert not path.exists()


def test_a_bar_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"method": "random", "space": "nasbench201", "seed": 0}, {})
    (run.folder / progress.FILE).mkdir()
    with KeptProgress(Progress(), run).task("work", 1) as bar:
        bar.advance()
