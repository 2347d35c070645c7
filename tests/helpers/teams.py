"""Searches by several processes, as a user starts them: on the command line, watched and killed from outside."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ARCHWRIGHT = (sys.executable, "-m", "archwright")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
SMALL = (
    *("darts", "--data", "digits", "--channels", "4", "--cells", "1", "--search-epochs", "20", "--search-images", "64"),
    *("--epochs", "1", "--final-epochs", "1", "--threads", "1"),
)
"""A search of seconds, with an event an epoch."""


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    """Start ``command`` with one thread a process."""
    known = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=known)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and what was said, when the process has ended."""
    try:
        out, err = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"still running: {err[-2000:]}") from None
    return process.returncode, err + out


def archwright(*arguments: str, **environment: str) -> tuple[int, str]:
    """Exit code and texts of a command that is waited for."""
    return end(start(*ARCHWRIGHT, *arguments, **environment))


def weights(run: Path) -> dict[str, str]:
    """A hash of every weights file of a run, by its place."""
    files = sorted((run / "artifacts").glob("**/*.safetensors"))
    return {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def wait_for_epochs(run: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Return when the search has had so many epochs, in this and earlier sessions."""
    while process.poll() is None and _epochs(run) < count:
        time.sleep(0.02)
    assert process.poll() is None, end(process)


def _epochs(run: Path) -> int:
    file = run / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return sum(json.loads(line)["kind"] == "epoch" for line in lines if line.endswith("}"))


def below(process: int) -> list[int]:
    """Numbers of all processes that ``process`` started, and that those started."""
    children = Path(f"/proc/{process}/task").glob("*/children")
    found = [int(one) for file in children for one in file.read_text().split()]
    return found + [one for child in found for one in below(child)]


def follower_of(process: int, word: str) -> int:
    """The number of the process below ``process`` whose command line or environment has ``word``."""
    for one in below(process):
        known = Path(f"/proc/{one}/cmdline").read_bytes() + b"\0" + Path(f"/proc/{one}/environ").read_bytes()
        if word.encode() in known.split(b"\0") or any(part.endswith(word.encode()) for part in known.split(b"\0")):
            return one
    raise AssertionError(f"no process with {word!r}")


def kill(process: int) -> None:
    """As ``kill -9``."""
    os.kill(process, signal.SIGKILL)
