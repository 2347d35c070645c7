"""What many runs, long runs and long studies cost: ``python benchmarks/growth.py [--json] [--quick]``.

Run folders are made as the package writes them, then measured by new processes, as people use them. Seconds are of the
processor, which other work on the machine changes less; memory is the most that a process held at once.

- ``runs-list-10000``: ``archwright runs list`` of 10,000 runs; ``-first`` without an index, as after copying them.
- ``report-100000``: ``archwright runs report`` of a run with 100,000 events; ``runs-show-100000`` the same of
  ``runs show``; ``report-100000-memory`` what the page adds to a process that has imported everything, at most, and
  ``-kept`` what is left of it afterwards.
- ``study-20000``: opening a study of 20,000 questions and answers again.
- ``streams-200``: seconds of the dashboard for each second that 200 pages look on at a run of 100,000 events.
- ``events``: how many a run records in a second, each of them on disk.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
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
    from archwright.runs.files import write_sealed
    from archwright.runs.run import Run

    made = Run.create(root / "first", configuration(), {"device": "cpu", "model": "none", "threads": 1})
    header = json.dumps(made.header, indent=1)
    best = {"architecture": "|none~0|", "accuracy": 91.25, "accuracy_on": "digits test, 360 images", "params": 12_345}
    write_sealed(made.folder / "stages" / "answer.json", {"best": best, "evaluations": 20})
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
    memory = part("--report", str(folder))
    found["report-100000-memory"] = (memory["most"], "MB")
    found["report-100000-memory-kept"] = (memory["kept"], "MB")
    return found


def report(folder: Path) -> dict[str, float]:
    """Megabytes that a page takes: at most, and afterwards."""
    from archwright.report.page import run_page
    from archwright.runs.run import Run

    small = folder.with_name("small")
    make_long_run(small, 100)
    run_page(Run.open(small))  # imports everything
    before = resident()
    run_page(Run.open(folder))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before
    return {"most": most, "kept": resident() - before}


def resident() -> float:
    """Megabytes that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


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
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--study", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.report or arguments.study:
        print(json.dumps(report(arguments.report) if arguments.report else reopen(arguments.study)))
        return
    share = 100 if arguments.quick else 1
    found: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        found |= runs_list(root / "runs", 10_000 // share)
        found |= long_run(root / "long", 100_000 // share)
        found |= study(root / "study", 20_000 // share)
        found |= events(root / "events", 1000 // share)
    results = [{"label": label, "value": round(value, 3), "unit": unit} for label, (value, unit) in found.items()]
    for one in results:
        print(f"{one['label']:<30} {one['value']:>10.3f} {one['unit']}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"benchmark": "growth", "results": results, "ratios": []}))


if __name__ == "__main__":
    main()
