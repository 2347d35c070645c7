from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # worker processes get this path too and import the work by name

import execution_work as work

from archwright.errors import ArchwrightError, InputError, Interrupted
from archwright.execution.base import Executor, Item, make_executor, run_items
from archwright.execution.local import InProcess, Processes
from archwright.runs.files import Json
from archwright.runs.progress import Bar
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop


def items(folder: Path, count: int = 5) -> list[Item]:
    return [Item(f"item {n}", {"n": n, "calls": str(folder / "calls")}) for n in range(count)]


def calls(folder: Path) -> list[int]:
    path = folder / "calls"
    return sorted(int(line) for line in path.read_text().split()) if path.exists() else []


def test_executors_are_made_by_name() -> None:
    assert isinstance(make_executor(), InProcess)
    assert make_executor("processes", 3).workers == 3
    with pytest.raises(InputError, match="'processes'"):
        make_executor("proceses")
    with pytest.raises(InputError, match="at least one worker"):
        make_executor("processes", 0)


class Watching(Bar):
    """Notes how many items are on disk whenever one is reported as done."""

    def __init__(self, path: Path) -> None:
        self.path, self.seen = path, list[int]()

    def advance(self, count: int = 1) -> None:
        self.seen.append(len(ItemLog(self.path).done))


def test_all_executors_give_the_same_results_and_each_is_on_disk_as_soon_as_it_is_done(tmp_path: Path) -> None:
    found = []
    for number, executor in enumerate((InProcess(), Processes(2))):
        bar = Watching(tmp_path / f"{number}.jsonl")
        found.append(run_items(executor, work.square, items(tmp_path), ItemLog(bar.path), Stop(), bar))
        assert bar.seen == [1, 2, 3, 4, 5]
    assert found[0] == found[1]
    assert list(found[0]) == list(found[1]) == [f"item {n}" for n in range(5)]  # in the order asked
    assert [result["square"] for result in found[0].values()] == [0, 1, 4, 9, 16]


def test_nothing_finished_is_repeated_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the third record; afterwards only what is missing is done."""
    path = tmp_path / "log.jsonl"
    record = ItemLog.record

    def full_at_third(self: ItemLog, key: str, result: Json) -> None:
        if len(self.done) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        record(self, key, result)

    with monkeypatch.context() as patch:
        patch.setattr(ItemLog, "record", full_at_third)
        with pytest.raises(OSError, match="No space"):
            run_items(InProcess(), work.square, items(tmp_path), ItemLog(path), Stop())
    assert calls(tmp_path) == [0, 1, 2]
    results = run_items(InProcess(), work.square, items(tmp_path), ItemLog(path), Stop())
    assert [result["square"] for result in results.values()] == [0, 1, 4, 9, 16]
    assert calls(tmp_path) == [0, 1, 2, 2, 3, 4]
    run_items(Processes(1), work.square, items(tmp_path), ItemLog(path), Stop())  # starts no process
    assert calls(tmp_path) == [0, 1, 2, 2, 3, 4]


def test_a_worker_that_dies_is_tried_once_more(tmp_path: Path) -> None:
    results = run_items(Processes(1), work.die_once, items(tmp_path, 4), ItemLog(tmp_path / "log.jsonl"), Stop())
    assert list(results.values()) == [0, 1, 2, 3]
    assert calls(tmp_path).count(0) == 1  # was finished and recorded before the death
    assert calls(tmp_path).count(2) == 2


def test_a_worker_that_dies_twice_is_a_clear_error_and_keeps_what_is_finished(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with pytest.raises(ArchwrightError, match=r"died twice.*item 2.*fewer workers and resume"):
        run_items(Processes(1), work.die_always, items(tmp_path, 4), ItemLog(path), Stop())
    assert ItemLog(path).done == {"item 0": 0, "item 1": 1}
    assert calls(tmp_path).count(0) == calls(tmp_path).count(1) == 1
    assert calls(tmp_path).count(2) == 2


@pytest.mark.parametrize("executor", [InProcess(), Processes(1)], ids=["here", "processes"])
def test_an_error_of_the_work_arrives_as_it_was_raised(tmp_path: Path, executor: Executor) -> None:
    with pytest.raises(InputError, match=r"expected an even number, got 0\. Add one\."):
        run_items(executor, work.refuse, items(tmp_path, 1), ItemLog(tmp_path / "log.jsonl"), Stop())


class StopAfter(Stop):
    """Asks to stop as soon as ``count`` items are recorded."""

    def __init__(self, log: ItemLog, count: int) -> None:
        super().__init__()
        self.log, self.count = log, count

    @property
    def out_of_time(self) -> bool:
        return len(self.log.done) >= self.count


@pytest.mark.parametrize("executor", [InProcess(), Processes(1)], ids=["here", "processes"])
def test_a_stop_is_obeyed_and_keeps_what_is_finished(tmp_path: Path, executor: Executor) -> None:
    """Item 1 would take a minute; the workers are ended instead."""
    log = ItemLog(tmp_path / "log.jsonl")
    with pytest.raises(Interrupted):
        run_items(executor, work.slow, items(tmp_path, 3), log, StopAfter(log, 1))
    assert ItemLog(tmp_path / "log.jsonl").done == {"item 0": 0}


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path\n"
        "from archwright.execution.base import Item\n"
        "from archwright.execution.local import Processes\n"
        "from archwright.runs.stop import Stop\n"
        "import execution_work\n"
        "if __name__ == '__main__':\n"
        f"    items = [Item(str(n), {{'folder': {str(tmp_path)!r}}}) for n in range(2)]\n"
        "    list(Processes(2).run(execution_work.say_pid_and_sleep, items, Stop()))\n"
    )
    (tmp_path / "main.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    parent = subprocess.Popen([sys.executable, str(tmp_path / "main.py")], env=environment)
    try:
        _wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        workers = [int(path.stem) for path in tmp_path.glob("*.pid")]
        assert all(_alive(pid) for pid in workers)
    finally:
        parent.kill()
        parent.wait()
    _wait_for(lambda: not any(_alive(pid) for pid in workers))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_for(happened: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.1)
