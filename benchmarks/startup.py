"""How long ``archwright --help`` takes, beside importing torch, which it must not do.

``python benchmarks/startup.py [--json] [--repeats N]``: new processes in turn, the median of each; wall-clock seconds,
and seconds of the processor, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "archwright --help": [sys.executable, "-m", "archwright", "--help"],
    "archwright search --help": [sys.executable, "-m", "archwright", "search", "--help"],
    "import torch": [sys.executable, "-c", "import torch"],
    "python alone": [sys.executable, "-c", "pass"],
}


def measured(command: list[str]) -> tuple[float, float]:
    before, begin = os.times(), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after, end = os.times(), time.perf_counter()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return end - begin, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(arguments.repeats):
        for name, command in COMMANDS.items():
            times[name].append(measured(command))
    results, used = [], {}
    for name, pairs in times.items():
        wall, used[name] = (statistics.median(column) for column in zip(*pairs, strict=True))
        results.append({"label": name, "value": round(wall, 3), "unit": "s"})
        results.append({"label": f"{name}, processor", "value": round(used[name], 3), "unit": "s"})
    ratio = round(used["archwright --help"] / used["import torch"], 3)
    ratios = [{"label": "archwright --help / import torch, processor", "value": ratio}]
    for one in results:
        print(f"{one['label']:<38} {one['value']:.3f} s", file=sys.stderr)
    print(f"{ratios[0]['label']}: {ratio}", file=sys.stderr)
    if arguments.json:
        print(json.dumps({"benchmark": "startup", "results": results, "ratios": ratios}))


if __name__ == "__main__":
    main()
