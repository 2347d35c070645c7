"""Who works on a run, also on another machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from archwright.cli.show_runs import show_run
from archwright.errors import RunError
from archwright.runs import lock
from archwright.runs.run import Run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "run", {"method": "random", "space": "nasbench201", "seed": 1}, {})


def leave(run: Run, text: str, seconds: float) -> None:
    """A lock as somebody wrote it ``seconds`` ago."""
    path = run.folder / lock.FILE
    path.write_text(text)
    os.utime(path, (time.time() - seconds,) * 2)


def test_another_machine_at_work_is_named_with_its_last_sign_of_life(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(run, "12 345 far away", 60)
    assert run.status() == "running"
    with (
        pytest.raises(RunError, match=r"process 12 on far away, last sign of life 60 s ago.* 4 min from now"),
        run.locked(),
    ):
        pass
    assert (run.folder / lock.FILE).read_text() == "12 345 far away"
    show_run(run)
    assert "In use by process 12 on far away, last sign of life 60 s ago." in capsys.readouterr().out


def test_a_lock_that_another_machine_left_long_ago_does_not_hold(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    leave(run, "12 345 far", 3 * 3600)
    assert run.status() == "stopped"
    show_run(run)
    said = capsys.readouterr().out
    assert "Left behind by process 12 on far, last sign of life 3 h ago." in said
    assert "runs resume" in said
    with run.locked():
        assert str(run.left_by) == "process 12 on far, last sign of life 3 h ago"
    with run.locked():
        assert run.left_by is None


def test_a_process_at_work_gives_signs_of_life(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "SECONDS_A_SIGN", 0.01)
    path = run.folder / lock.FILE
    with run.locked():
        os.utime(path, (0, 0))
        deadline = time.monotonic() + 10
        while path.stat().st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert time.time() - path.stat().st_mtime < 60


@pytest.mark.parametrize(
    "text", ["", "rubbish", "\xb2 1 here", "99999999999999999999 1 x", "1", "1 2", "-1 2 x", "\0" * 50]
)
def test_anything_else_in_a_lock_holds_nothing(run: Run, text: str) -> None:
    leave(run, text, 0)
    assert run.status() == "stopped"
    with run.locked():
        assert run.status() == "running"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0 s"), (119, "119 s"), (150, "2 min"), (7200, "2 h"), (86400 * 5, "5 days")]
)
def test_ages(seconds: float, said: str) -> None:
    assert lock.age(seconds) == said
