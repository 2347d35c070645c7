"""Who watches the judge of hostile cases: whether each ends at all.

Cases run in a worker process that may use so much time and memory, and is replaced where it does not end.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

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
        verdict = judge(cases[number], site, folder / str(number))
        os.chdir(site)
        shutil.rmtree(folder / str(number), ignore_errors=True)
        connection.send(verdict)


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
