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
from types import SimpleNamespace
from typing import Any

import pytest

import archwright
from archwright.errors import InputError
from archwright.execution.base import Executor, Item, make_executor, run_items
from archwright.execution.ray_guard import of_cluster
from archwright.execution.ray_machines import Machines, compare
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
    here = {"version": "1", "sizes": {"/a": 10, "/b": -1}}
    compare("m", here, {"version": "1", "sizes": {"/a": 10, "/b": -1}})
    for there, message in (
        ({"version": "1", "sizes": {"/a": 10, "/b": None}}, "/b on every machine of the Ray cluster, got nothing on m"),
        ({"version": "1", "sizes": {"/a": 11, "/b": -1}}, "/a on every machine of the Ray cluster, got something else"),
        ({"version": "2", "sizes": {"/a": 10, "/b": -1}}, "archwright 1 on m, got version 2"),
    ):
        with pytest.raises(InputError, match=message):
            compare("m", here, there)


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


# --- machines ---


def read(payload: Any, stop: Stop) -> Any:
    from archwright.paths import user_path

    return user_path(payload).read_text()


class OtherMachines(Machines):
    """As if a machine of the cluster lacked some files, whatever it says."""

    lacking: frozenset[str] = frozenset()

    def _take(self, node: Any, here: Any, there: Any) -> None:
        sizes = {path: None if path in self.lacking else size for path, size in there["sizes"].items()}
        super()._take(node, here, {**there, "sizes": sizes})


def test_small_files_are_sent_to_machines_that_lack_them(
    cluster: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    gone, other, folder = tmp_path / "gone.npz", tmp_path / "other.npz", tmp_path / "photos"
    folder.mkdir()
    for file in (gone, other):
        file.write_text("pixels")
    names = [str(gone), str(other)]
    machines = OtherMachines(ray)
    machines.lacking = frozenset(names)
    machines.require(names)
    assert sorted(machines.sent) == names
    monkeypatch.setattr(cluster, "_machines", machines)
    gone.unlink()  # so that the workers lack it, too
    other.write_text("what another machine has under that name")
    items = [Item(name, name, (name,)) for name in names]
    assert dict(cluster.run(read, items, Stop())) == dict.fromkeys(names, "pixels")
    refusing = OtherMachines(ray)
    refusing.lacking = frozenset({str(folder)})
    with pytest.raises(InputError, match="only files, up to 512 MB"):
        refusing.require([str(folder)])


def node(name: str, cpus: float = 2, gpus: float = 0, alive: bool = True) -> dict[str, Any]:
    resources = {"CPU": cpus, "GPU": gpus}
    return {"NodeID": name, "Alive": alive, "NodeManagerHostname": name, "Resources": resources}


class OneCluster:
    """Ray, as far as machines ask it: every node answers at once with its version."""

    exceptions = SimpleNamespace(RayError=OSError)

    def __init__(self, **versions: str) -> None:
        self.versions, self.found = versions, [node(name) for name in versions]

    def nodes(self) -> list[dict[str, Any]]:
        return self.found

    def get(self, reference: str, timeout: float | None = None) -> Any:
        return {"version": self.versions[reference], "sizes": {}}

    def wait(self, references: list[str], num_returns: int, timeout: float) -> Any:
        return references, []


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machines, "_ask", lambda self, node: node["NodeID"])
    monkeypatch.setattr("archwright.execution.ray_machines.LOOK_SECONDS", 0.0)


@pytest.mark.usefixtures("asking")
def test_a_machine_that_joins_later_takes_part_or_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    ray = OneCluster(a=archwright.__version__)
    machines = Machines(ray)
    machines.require(())
    ray.versions |= {"b": "9.9.9", "c": archwright.__version__}
    ray.found += [node("b"), node("c")]
    machines.look()  # asked
    machines.look()  # answered
    machines.deal(100, "none")
    assert machines.slots == 4  # of a and c
    assert "b, is passed over: expected archwright" in caplog.text
    ray.found[0]["Alive"] = False
    machines.look()
    machines.deal(100, "none")
    assert machines.slots == 2
    with pytest.raises(InputError, match=r"on b, got version 9\.9\.9"):
        Machines(OneCluster(a=archwright.__version__, b="9.9.9")).require(())


@pytest.mark.usefixtures("asking")
def test_slots_are_dealt_by_workers_cpus_and_gpus() -> None:
    ray = OneCluster(a=archwright.__version__, b=archwright.__version__)
    ray.found = [node("a", cpus=4, gpus=1), node("b", cpus=2)]
    machines = Machines(ray)
    machines.require(())

    def dealt(workers: int, gpu: str) -> list[int]:
        machines.deal(workers, gpu)
        return [one.slots for one in machines._fit.values()]

    assert dealt(1, "none") == [1, 0]
    assert dealt(5, "none") == [3, 2]
    assert dealt(100, "none") == [4, 2]
    assert dealt(100, "any") == [1, 2]
    assert dealt(100, "must") == [1, 0]
    machines.deal(5, "none")
    given = []
    while (machine := machines.free()) is not None:
        machine.under_way += 1
        given.append(machine.node)
    assert (given.count("a"), given.count("b")) == (3, 4)  # b is full: one more waits for each of its CPUs
    plain = Machines(OneCluster(a=archwright.__version__))
    plain.require(())
    with pytest.raises(InputError, match="machines with GPUs"):
        plain.deal(1, "must")


def test_small_items_go_together_and_are_recorded_together(cluster: Executor, tmp_path: Path) -> None:
    """Hundreds of items of no time take few tasks and few writes; each result is there once."""
    items = [Item(str(number), {"value": number, "marker": str(tmp_path / "calls")}) for number in range(10, 310)]
    log, writes = ItemLog(tmp_path / "log.jsonl"), []
    record = log.record_all
    log.record_all = lambda results: (writes.append(len(results)), record(results))[1]  # type: ignore[method-assign]
    found = run_items(cluster, double, items, log, Stop())
    assert found == {item.key: 2 * int(item.key) for item in items}
    assert sum(writes) == 300
    assert len(writes) < 100
    assert ItemLog(tmp_path / "log.jsonl").done == found


def fail_at_five(payload: Any, stop: Stop) -> Any:
    if payload == 5:
        raise InputError("another number", "5")
    return payload


def test_what_came_before_a_failure_in_a_task_is_kept() -> None:
    from archwright.execution.ray import _work_off

    _, results, error = _work_off(fail_at_five, [3, 4, 5, 6], {})
    assert results == [3, 4]
    assert isinstance(error, InputError)
