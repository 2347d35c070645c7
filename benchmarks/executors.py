"""What executors cost and gain: look-ups in a table, the start of workers, and sixty trainings of about one second.

``python benchmarks/executors.py [--json] [--quick]``. All sides use one thread a process. A look-up is one of a search
on NAS-Bench-201 that proposes four at a time and records each; it stays in this process, so what sending it away would
cost is shown beside it. Trainings run half here, all in two processes (their start included), half here again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch

import numpy as np
import torch

from archwright.data.request import DataRequest
from archwright.execution.base import Executor, Item, make_executor, run_items
from archwright.runs.run import ItemLog
from archwright.runs.stop import Stop
from archwright.search.jobs import TrainingJob, look_up, train_and_measure
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.tables.locate import shared_data
from archwright.training import get_recipe

WORKERS = 2
PROPOSED_TOGETHER = 4
TRAINING_SECONDS = 1.0


def look_ups(count: int) -> list[Item]:
    rng = np.random.default_rng(0)
    fields = {"space": "nasbench201", "benchmark": "nb201", "dataset": "cifar10"}
    cells = {str(NASBENCH201.sample(rng)): None for _ in range(2 * count)}
    return [Item(cell, {"architecture": cell, **fields}) for cell in list(cells)[:count]]


def trainings(count: int, epochs: int) -> list[Item]:
    """Networks of NAS-Bench-201 on noise of the digits' size, which needs no further library; each item another."""
    scale = NASBENCH201.scales["small"].changed(channels=4, cells=1, image_size=8, image_channels=1, classes=10)
    recipe = get_recipe("short", epochs=epochs, warmup_epochs=0.25).model_dump()
    rng = np.random.default_rng(1)
    job = {
        "data": DataRequest("random:classes=10,size=8,channels=1,count=1797", 0),
        "space": "nasbench201",
        "scale": scale.to_dict(),
        "recipe": recipe,
        "augment": "default",
    }
    drawn = [NASBENCH201.sample(rng) for _ in range(20 * count)]
    cells = [str(cell) for cell in drawn if NASBENCH201.is_connected(cell)][:count]
    made = [TrainingJob(**job, architecture=cell, seed=0, device="cpu", split="validation") for cell in cells]
    return [Item(str(number), job.to_json()) for number, job in enumerate(made)]


def seconds(action: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def searched(executor: Executor, items: list[Item], folder: Path) -> None:
    """The look-ups of a search: a few at a time, each recorded."""
    log = ItemLog(folder / f"{time.perf_counter_ns()}.jsonl")
    for start in range(0, len(items), PROPOSED_TOGETHER):
        run_items(executor, look_up, items[start : start + PROPOSED_TOGETHER], log, Stop())


def measure_look_ups(executors: dict[str, Executor], items: list[Item], repeats: int) -> dict[str, tuple[float, str]]:
    """Milliseconds a look-up on each executor, and with the look-up sent to a worker; seconds that workers start."""
    found: dict[str, tuple[float, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        searched(executors["here"], items, Path(folder))  # reads the table
        times: dict[str, list[float]] = {name: [] for name in executors}
        for _ in range(repeats):
            for name, executor in executors.items():
                times[name].append(seconds(lambda e=executor: searched(e, items, Path(folder))))
        for name, values in times.items():
            found[f"look-up {name}"] = (1000 * statistics.median(values) / len(items), "ms")
    for name, executor in executors.items():
        if name == "here":
            continue
        first = seconds(lambda e=executor: list(e.run(look_up, items[:WORKERS], Stop())))
        found[f"start {name}, first look-up in a worker included"] = (first, "s")
        sent = [seconds(lambda e=executor: list(e.run(look_up, items, Stop()))) for _ in range(repeats)]
        found[f"look-up sent to a worker, {name}"] = (1000 * statistics.median(sent) / len(items), "ms")
    return found


def calibrated_epochs() -> int:
    """Epochs that make a training last about a second here."""
    items = trainings(6, 2)
    train_and_measure(items[0].payload, Stop())  # loads the images and warms up
    each = seconds(lambda: [train_and_measure(item.payload, Stop()) for item in items]) / len(items)
    return max(2, round(2 * TRAINING_SECONDS / each))


def measure_trainings(count: int) -> dict[str, tuple[float, str]]:
    items = trainings(count, calibrated_epochs())
    here, results = make_executor("here"), {}

    def done(executor: Executor, some: list[Item]) -> None:
        results.update({(type(executor), key): value["loss"] for key, value in executor.run(work, some, Stop())})

    work = train_and_measure
    first = seconds(lambda: done(here, items[: count // 2]))
    with make_executor("processes", WORKERS) as pool:
        beside = seconds(lambda: done(pool, items))
    last = seconds(lambda: done(here, items[count // 2 :]))
    same = all(results[type(here), item.key] == results[type(pool), item.key] for item in items)
    assert same, "an executor changed a result"
    return {
        f"{count} trainings here": (first + last, "s"),
        f"{count} trainings in {WORKERS} processes": (beside, "s"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, and no Ray")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, tuple[float, str]] = {}
    executors = {"here": make_executor("here"), "processes": make_executor("processes", WORKERS)}
    if not arguments.quick and find_spec("ray") is not None:
        executors["ray"] = make_executor("ray", WORKERS)
    if shared_data("nb201.npz") is None:
        print("no nb201 table in the data folder: look-ups are left out", file=sys.stderr)
    else:
        found |= measure_look_ups(executors, look_ups(40 if arguments.quick else 200), 3)
    for executor in executors.values():
        executor.close()
    timed = measure_trainings(6 if arguments.quick else 60)
    found |= timed
    here, beside = (value for value, _ in timed.values())
    results = [{"label": label, "value": round(value, 4), "unit": unit} for label, (value, unit) in found.items()]
    ratios = [{"label": "processes/here", "value": round(beside / here, 3)}]
    for row in [*results, *ratios]:
        print(f"{row['label']:<50} {row['value']:>9} {row.get('unit', '')}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"benchmark": "executors", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
