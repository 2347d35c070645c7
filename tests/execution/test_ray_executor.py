"""Ray: one connection, same results as here, a killed worker loses nothing, errors are short."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from archwright.errors import InputError
from archwright.execution.base import Executor, Item, make_executor, run_items
from archwright.execution.ray_guard import of_cluster
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop

pytestmark = pytest.mark.filterwarnings("ignore")


def double(payload: Any, stop: Stop) -> Any:
    """Kills its own worker the first time it meets the marked item."""
    marker = Path(payload["marker"])
    with marker.open("a") as file:
        file.write(f"{payload['value']}\n")
    if payload["value"] == 3 and marker.read_text().split().count("3") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * payload["value"]


def refuse(payload: Any, stop: Stop) -> Any:
    raise InputError("an even number", str(payload), "Add one.")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Executor]:
    """A local cluster for all tests here, as one for a whole run."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("the extra 'ray' is not installed")
    before = signal.getsignal(signal.SIGTERM)
    with make_executor("ray", 2) as executor:
        yield executor
    signal.signal(signal.SIGTERM, before)  # Ray has put its own in place and leaves it there


def test_a_killed_worker_loses_nothing(cluster: Executor, tmp_path: Path) -> None:
    items = [Item(str(i), {"value": i, "marker": str(tmp_path / "calls")}) for i in range(8)]
    log = ItemLog(tmp_path / "log.jsonl")
    found = run_items(cluster, double, items, log, Stop())
    assert found == {str(i): 2 * i for i in range(8)}
    assert list(found) == [str(i) for i in range(8)]
    calls = (tmp_path / "calls").read_text().split()
    assert calls.count("3") == 2
    assert ItemLog(tmp_path / "log.jsonl").done == found
    assert run_items(make_executor("here"), double, items, log, Stop()) == found
    assert len((tmp_path / "calls").read_text().split()) == len(calls)  # nothing was run again


def test_an_error_arrives_as_it_was_raised_and_the_connection_stays(cluster: Executor, tmp_path: Path) -> None:
    import ray

    with pytest.raises(InputError) as caught:
        list(cluster.run(refuse, [Item("one", 3)], Stop()))
    assert str(caught.value) == "expected an even number, got 3. Add one."
    assert ray.is_initialized()
    payload = {"value": 1, "marker": str(tmp_path / "calls")}
    assert list(cluster.run(double, [Item("two", payload)], Stop())) == [("two", 2)]


def test_what_an_item_needs_is_looked_for_on_every_machine_before_it_runs(cluster: Executor, tmp_path: Path) -> None:
    payload = {"value": 1, "marker": str(tmp_path / "calls")}
    with pytest.raises(InputError, match=r"photos on every machine of the Ray cluster, got nothing on .* share"):
        list(cluster.run(double, [Item("one", payload, (str(tmp_path / "photos"),))], Stop()))
    assert not (tmp_path / "calls").exists()
    (tmp_path / "photos").mkdir()
    assert list(cluster.run(double, [Item("one", payload, (str(tmp_path / "photos"),))], Stop())) == [("one", 2)]


def test_machines_that_differ_are_refused() -> None:
    from archwright.execution.ray import _compare

    here = {"version": "1", "sizes": {"/a": 10, "/b": -1}}
    _compare("m", here, {"version": "1", "sizes": {"/a": 10, "/b": -1}})
    for there, message in (
        ({"version": "1", "sizes": {"/a": 10, "/b": None}}, "/b on every machine of the Ray cluster, got nothing on m"),
        ({"version": "1", "sizes": {"/a": 11, "/b": -1}}, "/a on every machine of the Ray cluster, got something else"),
        ({"version": "2", "sizes": {"/a": 10, "/b": -1}}, "archwright 1 on m, got version 2"),
    ):
        with pytest.raises(InputError, match=message):
            _compare("m", here, there)


def listening(processes: set[int]) -> dict[str, str]:
    """The command of each of these processes by the address that it listens at."""
    addresses = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *fields = line.split()
            if state == "0A":
                addresses[f"socket:[{fields[5]}]"] = local.partition(":")[0]
    found = {}
    for process in processes:
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(OSError):
                address = addresses.get(str(descriptor.readlink()))
                if address is not None:
                    found[address] = Path(f"/proc/{process}/comm").read_text().strip()
    return found


def test_a_local_cluster_listens_to_this_machine_only(cluster: Executor) -> None:
    import ray

    cluster.require(())
    processes = of_cluster(os.getpid(), str(Path(ray.__file__).parent), set())
    assert len(processes) >= 4
    found = listening({one.number for one in processes} | {os.getpid()})
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert found
    assert found.keys() <= loopback, found
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in os.environ


DRIVER = """
import os, sys, time
from pathlib import Path
import ray
from archwright.execution.base import make_executor
from archwright.execution.ray_guard import of_cluster
executor = make_executor("ray", 1)
executor.require(())
print(*(one.number for one in of_cluster(os.getpid(), str(Path(ray.__file__).parent), set())), flush=True)
if sys.argv[1] == "close":
    executor.close()
    time.sleep(600)
time.sleep(600)
"""


@pytest.mark.parametrize("end", ["kill", "close"])
def test_nothing_of_a_local_cluster_outlives_its_run(cluster: Executor, end: str) -> None:
    """Ray's own agents stay for minutes where the driver is killed (-9)."""
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, end], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    try:
        processes = [int(text) for text in driver.stdout.readline().split()]
        assert len(processes) >= 4
        if end == "kill":
            driver.kill()
            driver.wait()
        deadline = time.monotonic() + 60
        while any(is_alive(one) for one in processes) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert [one for one in processes if is_alive(one)] == []
    finally:
        driver.kill()
        driver.communicate()


def is_alive(process: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_an_address_that_does_not_answer() -> None:
    with pytest.raises(InputError, match="no answer"):
        make_executor("ray", 1, "127.0.0.1:9")
    for address in ("nowhere", "127.0.0.1:99999", "127.0.0.1:", ":6379"):
        with pytest.raises(InputError, match="HOST:PORT"):
            make_executor("ray", 1, address)
