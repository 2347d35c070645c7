"""The hostile catalogue: thousands of bad inputs by kind, each refused in a sentence, or the command fails.

``python benchmarks/hostile.py [--json] [--every N] [--only KIND]``: every case of ``tests/helpers/hostile_cases.py``
runs through the real entry point, in a worker process that is watched: one that takes 30 s of the processor, or 180 s
of the clock, hangs, and is replaced (``tests/helpers/hostile_watch.py``). Counted are clean refusals, inputs that are
sound and accepted, tracebacks, hangs and wrong accepts (refusals that leave a file, fill the screen or write to stdout
are among these). The exit code is 0 only where the last three are 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.hostile_cases import catalogue
from helpers.hostile_watch import judged


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="only every N-th case")
    parser.add_argument("--only", help="one kind of cases")
    arguments = parser.parse_args()
    cases = [case for case in catalogue() if arguments.only in (None, case.kind)][:: arguments.every]
    begin = time.perf_counter()
    kinds, bad = dict[str, Counter[str]](), list[dict[str, Any]]()
    for case, outcome, said in judged(cases):
        kinds.setdefault(case.kind, Counter())[outcome] += 1
        if outcome not in ("refused", "accepted"):
            bad.append({"kind": case.kind, "case": case.name, "words": case.words, "outcome": outcome, "said": said})
            print(f"{outcome}: {case.kind}: {case.name} {case.words!r:.300}\n  {said:.600}", file=sys.stderr)
    for kind, found in kinds.items():
        print(f"{kind:<16} {', '.join(f'{count} {outcome}' for outcome, count in found.items())}", file=sys.stderr)
    counts = sum(kinds.values(), Counter[str]())
    results = [
        {"label": label, "value": value, "unit": unit}
        for label, value, unit in (
            ("cases", len(cases), "cases"),
            ("clean refusals", counts["refused"], "cases"),
            ("accepted, as they are sound", counts["accepted"], "cases"),
            ("tracebacks", counts["traceback"], "cases"),
            ("hangs", counts["hang"], "cases"),
            ("wrong accepts", counts["wrong accept"], "cases"),
            ("time", round(time.perf_counter() - begin, 1), "s"),
        )
    ]
    for one in results:
        print(f"{one['label']:<28} {one['value']} {one['unit']}", file=sys.stderr)
    if arguments.json:
        found = {kind: {"cases": sum(counts.values()), **counts} for kind, counts in kinds.items()}
        print(json.dumps({"benchmark": "hostile", "results": results, "kinds": found, "ratios": [], "bad": bad}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
