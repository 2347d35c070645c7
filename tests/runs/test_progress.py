"""What a log gets where there is no terminal, and what the run keeps for those who look on."""

from __future__ import annotations

from pathlib import Path

import pytest

from archwright.runs import progress
from archwright.runs.files import read_json
from archwright.runs.progress import KeptProgress, Progress, TerminalProgress, said_seconds, seconds_left
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
        "evaluating: 30 of 100, about 70 s left (best 29)",
        "evaluating: 60 of 100, about 40 s left (best 59)",
        "evaluating: 90 of 100, about 10 s left (best 89)",
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


def test_the_time_left_is_said_when_it_is_known_to_a_factor_of_two() -> None:
    assert seconds_left(1, 9999, 15.0) is None  # "2,499 min" after one step
    assert seconds_left(3, 3, 9.0) is None
    assert seconds_left(4, 1000, 9.0) is None  # a three-hundredth says little
    assert seconds_left(4, 6, 8.0) == 12.0
    assert seconds_left(40, 60, 8.0) == 12.0
    assert seconds_left(10, 0, 8.0) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.1, "1 s"), (89, "89 s"), (600, "10 min"), (2470, "41 min"), (9000, "2.5 h"), (400_000, "4.6 days")],
)
def test_seconds_as_a_person_says_them(seconds: float, text: str) -> None:
    assert said_seconds(seconds) == text
