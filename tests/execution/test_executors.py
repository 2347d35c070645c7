from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from archwright.errors import ArchwrightError, InputError, Interrupted
from archwright.execution.base import Executor, Item, cheap, make_executor, run_items
from archwright.execution.local import InProcess
from archwright.execution.processes import Processes
from archwright.runs.files import Json
from archwright.runs.progress import Bar
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from helpers import execution_work as work


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
    record = ItemLog.record_all

    def full_at_third(self: ItemLog, results: list[tuple[str, Json]]) -> None:
        if len(self.done) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        record(self, results)

    with monkeypatch.context() as patch:
        patch.setattr(ItemLog, "record_all", full_at_third)
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


# --- the pool over a whole run ---------------------------------------------------------------------------------------


def numbered(count: int) -> list[Item]:
    return [Item(str(n), {"n": n}) for n in range(count)]


def test_a_pool_serves_all_batches_with_the_same_processes() -> None:
    with Processes(2) as pool:
        assert pool.started == 0  # nothing before the first item
        first = dict(pool.run(work.say_pid, numbered(1), Stop()))
        assert pool.started == 1  # no more workers than items
        later = [pid for _ in range(3) for _, pid in pool.run(work.say_pid, numbered(6), Stop())]
        assert pool.started == 2
        assert set(first.values()) <= set(later)
        assert len(set(later)) <= 2
        assert os.getpid() not in later
    _wait_for(lambda: not any(_alive(pid) for pid in later))
    with pool:  # closed, it starts anew
        assert dict(pool.run(work.say_pid, numbered(1), Stop()))["0"] not in later
        assert pool.started == 3


@pytest.mark.parametrize(
    ("kind", "raised", "text"),
    [
        ("ValueError", ValueError, "three is no number"),
        ("Strange", ArchwrightError, "Strange: it is strange"),
        ("lambda", Exception, "lambda"),
    ],
)
def test_an_exception_arrives_with_its_reason_and_the_pool_lives_on(
    pool: Processes, kind: str, raised: type[Exception], text: str
) -> None:
    before = pool.started
    with pytest.raises(raised, match=text) as caught:
        list(pool.run(work.fail, [Item("bad", {"raise": kind})], Stop()))
    if raised is ValueError:
        assert "execution_work.py" in "".join(caught.value.__notes__)  # where it was raised
    assert list(pool.run(work.fail, [Item("good", {"raise": ""})], Stop())) == [("good", "")]
    assert pool.started == max(1, before)


@pytest.fixture(scope="module")
def pool() -> Iterator[Processes]:
    with Processes(1) as made:
        yield made


def test_items_under_way_end_with_the_run_that_wanted_them(tmp_path: Path) -> None:
    """A run that is given up leaves no worker busy with its items."""
    with Processes(2) as pool:
        run = pool.run(work.slow, items(tmp_path, 2), Stop())
        assert next(run) == ("item 0", 0)
        run.close()
        assert dict(pool.run(work.say_pid, numbered(4), Stop())).keys() == {"0", "1", "2", "3"}


def test_cheap_work_stays_here(tmp_path: Path) -> None:
    with Processes(2) as pool:
        log = ItemLog(tmp_path / "log.jsonl")
        assert set(run_items(pool, cheap(say_pid_here), numbered(4), log, Stop()).values()) == {os.getpid()}
        assert pool.started == 0


def say_pid_here(payload: Json, stop: Stop) -> Json:
    return os.getpid()


def test_work_of_the_script_itself_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(say_pid_here, "__module__", "__main__")
    with pytest.raises(InputError, match="Move it into a module"):
        list(Processes(1).run(say_pid_here, numbered(1), Stop()))


# --- killed parents --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    tests = Path(__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tests}:{tests.parent / 'src'}",
        "DEAF_FOLDER": str(tmp_path_factory.mktemp("deaf")),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "helpers.drivers"],
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    process.deaf_folder = Path(environment["DEAF_FOLDER"])  # type: ignore[attr-defined]
    with process:
        yield process
        process.kill()


def start_driver(drivers: subprocess.Popen[str], module: str) -> int:
    """Its process and session number, said just before it starts its workers."""
    assert drivers.stdin is not None
    assert drivers.stdout is not None
    drivers.stdin.write(f"{module}\n")
    drivers.stdin.flush()
    return int(drivers.stdout.readline())


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1, 0.3, 1.0, 3.0])
def test_no_worker_outlives_a_parent_killed_at_any_moment(drivers: subprocess.Popen[str], seconds: float) -> None:
    """Before its workers start, while they start, while they import torch, while they work."""
    session = start_driver(drivers, "helpers.heavy_work")
    time.sleep(seconds)  # the moments differ, and all must do
    os.kill(session, signal.SIGKILL)
    _wait_for(lambda: not _session(session))


@pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")
def test_a_worker_that_lets_no_thread_run_ends_with_its_parent(drivers: subprocess.Popen[str]) -> None:
    folder: Path = drivers.deaf_folder  # type: ignore[attr-defined]
    session = start_driver(drivers, "helpers.deaf_work")
    _wait_for(lambda: len(list(folder.iterdir())) == 2)
    assert len(_session(session)) == 3
    os.kill(session, signal.SIGKILL)
    _wait_for(lambda: not _session(session))


def test_workers_of_a_thread_that_ended_live_on() -> None:
    """The parent-death signal would follow the thread."""
    with Processes(1) as pool:
        found: list[Json] = []
        thread = threading.Thread(target=lambda: found.extend(pool.run(work.say_pid, numbered(1), Stop())))
        thread.start()
        thread.join()
        assert list(pool.run(work.say_pid, numbered(1), Stop())) == found
        assert pool.started == 1


def _session(number: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == number and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _wait_for(happened: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)
