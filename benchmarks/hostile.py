"""The hostile catalogue: thousands of bad inputs by kind, each refused in a sentence, or the command fails.

``python benchmarks/hostile.py [--json] [--every N] [--only KIND]``: every case of ``tests/helpers/hostile_cases.py``
runs through the real entry point, in a worker process that is watched: one that takes 30 s of the processor, or 180 s
of the clock, hangs, and is replaced. Counted are clean refusals, inputs that are sound and accepted, tracebacks,
hangs and wrong accepts (refusals that leave a file, fill the screen or write to stdout are among these). The exit code
is 0 only where the last three are 0.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from helpers.hostile_cases import catalogue
from helpers.hostile_judge import Case, Verdict, judge, make_site

CPU_SECONDS, WALL_SECONDS = 30.0, 180.0
MEMORY_BYTES = 12 * 2**30
"""A case that asks for more is told that there is none."""
FORK = multiprocessing.get_context("fork")


class Worker:
    """A process that judges cases, one after the other.

    Args:
        cases: all of them.
        site: folder with the good files.
        folder: in which cases are run.
    """

    def __init__(self, cases: Sequence[Case], site: Path, folder: Path) -> None:
        self._arguments = (cases, site, folder)
        self._start()

    def _start(self) -> None:
        self._connection, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_work, args=(theirs, *self._arguments), daemon=True)
        self._process.start()
        theirs.close()

    def judge(self, number: int) -> Verdict | None:
        """How the case ``number`` ended; None where it did not."""
        self._connection.send(number)
        begin, used = time.monotonic(), self._cpu_seconds()
        while not self._connection.poll(0.2):
            if self._cpu_seconds() - used > CPU_SECONDS or time.monotonic() - begin > WALL_SECONDS:
                self.end()
                self._start()
                return None
        try:
            found: Verdict = self._connection.recv()
        except EOFError:  # it died: worse than a traceback
            self._process.join()
            self._start()
            return Verdict("traceback", f"the process ended with {self._process.exitcode}")
        return found

    def _cpu_seconds(self) -> float:
        """Of the worker so far."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """At once."""
        self._process.kill()
        self._process.join()


def _work(connection: Connection, cases: Sequence[Case], site: Path, folder: Path) -> None:
    """What a worker does: a verdict for each number that it is sent."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    while True:
        number = connection.recv()
        connection.send(judge(cases[number], site, folder / str(number)))


def judged(cases: Sequence[Case]) -> Iterator[tuple[Case, str, str]]:
    """Each case with what came of it: refused, accepted, traceback, hang or wrong accept; and what was said."""
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "good").mkdir()
        site = make_site(Path(place) / "good")
        worker = Worker(cases, site, Path(place))
        for number, case in enumerate(cases):
            verdict = worker.judge(number)
            if verdict is None:
                yield case, "hang", ""
            elif verdict.outcome == "traceback" or verdict.is_right(case.wanted):
                yield case, verdict.outcome, verdict.said
            else:
                yield case, "wrong accept", f"{verdict.outcome} instead of {case.wanted}: {verdict.said}"
        worker.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--every", type=int, default=1, help="only every N-th case")
    parser.add_argument("--only", help="one kind of cases")
    arguments = parser.parse_args()
    cases = [case for case in catalogue() if arguments.only in (None, case.kind)][:: arguments.every]
    begin = time.perf_counter()
    counts, kinds, bad = Counter[str](), dict[str, Counter[str]](), list[dict[str, Any]]()
    for case, outcome, said in judged(cases):
        counts[outcome] += 1
        kinds.setdefault(case.kind, Counter())[outcome] += 1
        if outcome not in ("refused", "accepted"):
            bad.append({"kind": case.kind, "case": case.name, "words": case.words, "outcome": outcome, "said": said})
            print(f"{outcome}: {case.kind}: {case.name} {case.words!r:.300}\n  {said:.600}", file=sys.stderr)
    for kind, found in kinds.items():
        print(f"{kind:<16} {', '.join(f'{count} {outcome}' for outcome, count in found.items())}", file=sys.stderr)
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
        print(json.dumps({"benchmark": "hostile", "results": results, "ratios": [], "bad": bad}))
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
