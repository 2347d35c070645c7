"""What a study reads is looked for before it works, and a signal ends it gracefully."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from archwright.errors import InputError, Interrupted
from archwright.execution.base import Item
from archwright.execution.processes import Processes
from archwright.reproduce.base import DECLARED, SEVERAL, Outcome, Settings, needs, reproduce, reproductions
from archwright.runs.stop import Stop


def test_every_study_declares_what_it_reads() -> None:
    for entry in reproductions:
        assert reproductions.get(entry.name) in DECLARED, f"put @needs(...) before {entry.target}"


def test_what_the_list_says_of_only_is_what_is_accepted() -> None:
    assert {entry.name for entry in reproductions if "--only" in entry.summary} == set(SEVERAL)


@pytest.mark.parametrize("name", [entry.name for entry in reproductions])
def test_a_missing_table_or_data_set_is_an_error_before_any_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder without tables, and with images that do not exist."""
    monkeypatch.setenv("ARCHWRIGHT_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    tables = DECLARED[reproductions.get(name)].tables
    missing = f"{tables[0]}.npz" if tables else "no.npz|no --data for a study without images"
    with pytest.raises(InputError, match=missing):
        reproduce(name, Settings(tmp_path / "out" / name, data="npz:no.npz"))
    assert list(tmp_path.iterdir()) == []


def test_a_termination_signal_ends_a_study_and_its_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = []

    @needs(images=False)
    def study(settings: Settings) -> Outcome:
        assert isinstance(settings.executor, Processes)
        pools.append(settings.executor)
        assert next(settings.executor.run(print, [Item("one", {})], Stop())) == ("one", None)  # a worker is there
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the signal was lost")

    monkeypatch.setattr(reproductions, "get", lambda name: study)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="stopped by SIGTERM; what is finished is kept, and the same command goes on"):
        reproduce("any", Settings(tmp_path / "out", workers=2))
    assert signal.getsignal(signal.SIGTERM) == before
    assert pools[0].started == 1
    assert not pools[0]._idle
    assert not (tmp_path / "out").exists()
