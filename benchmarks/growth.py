"""What many runs, long runs and long studies cost: ``python benchmarks/growth.py [--json] [--quick]``.

Run folders are made as the package writes them, then measured by new processes, as people use them. Seconds are of the
processor, which other work on the machine changes less; memory is the most that a process held at once.

- ``runs-list-10000``: ``archwright runs list`` of 10,000 runs; ``-first`` without an index, as after copying them.
- ``report-100000``: ``archwright runs report`` of a run with 100,000 events and 14,000 evaluations, and its memory with
  that of imported libraries; ``runs-show-100000`` the same of ``runs show``.
- ``study-20000``: opening a study of 20,000 questions and answers again, without the start of Python and its imports.
- ``streams-200``: of each second, what the dashboard works while 200 pages look on at that run and it goes on; its
  memory, and what it holds when they are gone.
- ``events``: how many a run records in a second, each of them on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()


# --- what is measured on ---------------------------------------------------------------------------------------------


def make_runs(root: Path, count: int) -> None:
    """Runs as they lie about: two thirds finished, the others stopped."""
    from archwright.runs.files import Sealed, write_sealed
    from archwright.runs.run import Run

    made = Run.create(root / "first", configuration(), {"device": "cpu", "model": "none", "threads": 1})
    header = json.dumps(made.header, indent=1)
    best = {"architecture": "|none~0|", "accuracy": 91.25, "accuracy_on": "digits test, 360 images", "params": 12_345}
    write_sealed(made.folder / "stages" / "answer.json", Sealed({"best": best, "evaluations": 20}, {}, {}))
    answer = (made.folder / "stages" / "answer.json").read_bytes()
    shutil.rmtree(made.folder)
    for number in range(count):
        folder = root / f"20260101-{number:06d}-random-nasbench201"
        (folder / "stages").mkdir(parents=True)
        (folder / "artifacts").mkdir()
        (folder / "run.json").write_text(header.replace('"seed": 0', f'"seed": {number}'))
        (folder / "lock").write_text("")
        if number % 3:
            (folder / "stages" / "answer.json").write_bytes(answer)
            (folder / "artifacts" / "result.json").write_text("{}")


def configuration() -> dict[str, Any]:
    from archwright.search.configuration import Configuration

    return Configuration(method="random", space="nasbench201", data="digits").model_dump()


def make_long_run(folder: Path, events: int) -> None:
    """A stopped search with ``events`` events: evaluations of six epochs each."""
    from archwright.runs.run import Run

    run = Run.create(folder, configuration(), {"device": "cpu", "model": "none", "threads": 1})
    run.describe(plan=[{"name": "search", "title": "evaluate architectures"}, {"name": "answer", "title": "answer"}])
    with (folder / "events.jsonl").open("w") as log:
        for record in long_story(events):
            log.write(json.dumps(record) + "\n")
    run.items("search").record("first", {"accuracy": 40})
    first = (folder / "items" / "search.jsonl").read_text()
    (folder / "items" / "search.jsonl").write_text(first * (events // 7))


def long_story(events: int) -> Iterator[dict[str, Any]]:
    now = 1_700_000_000.0
    yield {"time": now, "kind": "started", "threads": 1}
    yield {"time": now, "kind": "stage", "name": "search", "title": "evaluate architectures"}
    for number in range(events - 2):
        cell = f"|nor_conv_3x3~{number // 7}|+|skip_connect~0|nor_conv_1x1~1|+|none~0|none~1|avg_pool_3x3~2|"
        at = {"time": now + number, "stage": "search", "architecture": cell}
        if number % 7 < 6:
            yield {**at, "kind": "epoch", "epoch": number % 7, "loss": 2.0 / (1 + number % 7), "accuracy": 50.0}
        else:
            yield {**at, "kind": "evaluated", "accuracy": 40 + number % 50}


# --- how -------------------------------------------------------------------------------------------------------------


def used(command: list[str], **environment: str) -> float:
    """Seconds of the processor that a command takes."""
    before = os.times()
    given = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=given)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def archwright(*words: str) -> list[str]:
    return [sys.executable, "-m", "archwright", *words]


def part(name: str, *words: str) -> dict[str, float]:
    """What a part of this file, run by a new process, prints."""
    said = subprocess.run([sys.executable, str(HERE), name, *words], stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, float] = json.loads(said.stdout.splitlines()[-1])
    return found


def runs_list(root: Path, count: int) -> dict[str, tuple[float, str]]:
    make_runs(root, count)
    first = used(archwright("runs", "list"), ARCHWRIGHT_RUNS=str(root))
    again = min(used(archwright("runs", "list"), ARCHWRIGHT_RUNS=str(root)) for _ in range(3))
    return {"runs-list-10000": (again, "s"), "runs-list-10000-first": (first, "s")}


def long_run(folder: Path, events: int) -> dict[str, tuple[float, str]]:
    make_long_run(folder, events)
    found = {
        "report-100000": (used(archwright("runs", "report", str(folder))), "s"),
        "runs-show-100000": (used(archwright("runs", "show", str(folder))), "s"),
    }
    return found | {"report-100000-memory": (part("--most", "runs", "report", str(folder))["MB"], "MB")}


def most_memory(words: list[str]) -> dict[str, float]:
    """Of a command, in megabytes; this process has no other children."""
    subprocess.run(archwright(*words), stdout=subprocess.DEVNULL, check=True)
    return {"MB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024}


def streams(folder: Path, count: int, seconds: float) -> dict[str, tuple[float, str]]:
    """The dashboard with ``count`` pages on one run, which records an event a second."""
    environment = {**os.environ, "ARCHWRIGHT_RUNS": str(folder.parent), "PYTHONUNBUFFERED": "1"}
    command = archwright("serve", "--port", "0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            port, token = re.findall(r"127.0.0.1:(\d+)/\?token=(\S+)", process.stdout.readline())[0]
            pages = look_on(int(port), token, folder.name, count)
            drain(pages, folder, 2 * seconds)  # until all have everything
            begin = processor_seconds(process.pid)
            received = drain(pages, folder, seconds)
            worked = processor_seconds(process.pid) - begin
            most = memory(process.pid, "VmHWM")
            for page in pages:
                page.close()
            time.sleep(2)
            kept = memory(process.pid, "VmRSS")
        finally:
            process.kill()
    assert received >= count, "not every page heard of the events"
    return {
        "streams-200": (worked / seconds, "s/s"),
        "streams-200-memory": (most, "MB"),
        "streams-200-memory-kept": (kept, "MB"),
    }


def look_on(port: int, token: str, run: str, count: int) -> list[socket.socket]:
    """Connections that were answered with a stream of ``run``."""
    host = f"Host: 127.0.0.1:{port}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as first:
        first.sendall(f"GET /?token={token} HTTP/1.1\r\n{host}\r\n".encode())
        cookie = re.findall(r"(?i)set-cookie: ([^;]+)", first.recv(65536).decode())[0]
    pages = []
    for _ in range(count):
        page = socket.create_connection(("127.0.0.1", port))
        page.sendall(f"GET /api/stream?run={run} HTTP/1.1\r\n{host}Cookie: {cookie}\r\n\r\n".encode())
        page.setblocking(False)
        pages.append(page)
    return pages


def drain(pages: list[socket.socket], folder: Path, seconds: float) -> int:
    """Read what comes for a while, the run going on; how many times news of the run came in all."""
    from archwright.runs.run import Run

    run, found, end, due = Run.open(folder), 0, time.monotonic() + seconds, 0.0
    while time.monotonic() < end:
        if time.monotonic() >= due:
            run.event("evaluated", stage="search", architecture="x" * 80, accuracy=50)
            due = time.monotonic() + 1
        ready, _, _ = select.select(pages, [], [], 0.1)
        found += sum(page.recv(1 << 20).count(b"event: run\n") for page in ready)
    return found


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int, what: str) -> float:
    """Megabytes that a process holds (VmRSS) or has held (VmHWM)."""
    return int(re.findall(rf"{what}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())[0]) / 1024


def study(folder: Path, count: int) -> dict[str, tuple[float, str]]:
    from archwright.search.study import Study

    with Study("evolution", space="nasbench201", run=folder) as made:
        first = str(made.ask())
        space = made.method.context.task.space
        made.tell(space.parse(first), 0.0)
    import numpy as np

    rng = np.random.default_rng(0)
    with (folder / "items" / "study.jsonl").open("a") as log:
        for number in range(count - 1):
            text = str(space.sample(rng))
            log.write(json.dumps({"architecture": text}) + "\n")
            log.write(json.dumps({"architecture": text, "score": number % 97 / 97, "why": ""}) + "\n")
    return {"study-20000": (min(part("--study", str(folder))["seconds"] for _ in range(3)), "s")}


def reopen(folder: Path) -> dict[str, float]:
    from archwright.search.study import Study

    Study("evolution", space="nasbench201", run=folder.with_name("new")).close()  # imports everything
    begin = time.process_time()
    with Study("evolution", space="nasbench201", run=folder):
        return {"seconds": time.process_time() - begin}


def events(folder: Path, count: int) -> dict[str, tuple[float, str]]:
    from archwright.runs.run import Run

    run = Run.create(folder, configuration(), {"device": "cpu", "model": "none", "threads": 1})
    begin = time.perf_counter()
    for number in range(count):
        run.event("evaluated", stage="search", architecture="x" * 80, accuracy=number)
    return {"events": (count / (time.perf_counter() - begin), "1/s")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object as the last line of stdout")
    parser.add_argument("--quick", action="store_true", help="a hundredth of everything")
    parser.add_argument("--most", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--study", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.most or arguments.study:
        print(json.dumps(most_memory(arguments.most) if arguments.most else reopen(arguments.study)))
        return
    share = 100 if arguments.quick else 1
    found: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        found |= runs_list(root / "runs", 10_000 // share)
        found |= long_run(root / "long" / "run", 100_000 // share)
        found |= streams(root / "long" / "run", 200 // share, 10)
        found |= study(root / "study", 20_000 // share)
        found |= events(root / "events", 1000 // share)
    results = [{"label": label, "value": round(value, 3), "unit": unit} for label, (value, unit) in found.items()]
    for one in results:
        print(f"{one['label']:<30} {one['value']:>10.3f} {one['unit']}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"benchmark": "growth", "results": results, "ratios": []}))


if __name__ == "__main__":
    main()
