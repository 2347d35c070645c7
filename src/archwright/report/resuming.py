"""Searches that the dashboard continues: each is a process of its own that outlives the server."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

from archwright.errors import InputError
from archwright.terminal import visible

STOPPED = 130
"""Exit code of a search that was interrupted, which is no failure."""
MOST_BYTES = 4000
"""Of what a failed process said, its end."""


class Resumer:
    """Starts ``archwright runs resume`` for runs and remembers how that ended."""

    def __init__(self) -> None:
        self._started: dict[str, tuple[subprocess.Popen[bytes], IO[bytes]]] = {}

    def start(self, folder: Path, allow_import: bool = False) -> None:
        """Continue the run in ``folder``; no shell sees its name. The process is the leader of its own session.

        Args:
            folder: of the run.
            allow_import: whether modules of the user's that the run names may be imported.
        """
        name = folder.name
        if self.starting(name):
            raise InputError("a run that nobody works on", f"{name}, which is being continued")
        said = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has ended
        command = [sys.executable, "-m", "archwright", "runs", "resume", str(folder.resolve())]
        command += ["--allow-import"] * allow_import
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
        )
        self._started[name] = (process, said)

    def starting(self, name: str) -> bool:
        """Whether a process that was started here for this run is alive."""
        return name in self._started and self._started[name][0].poll() is None

    def failure(self, name: str) -> str:
        """What the last process for this run said when it failed; empty where none did."""
        if name not in self._started or self._started[name][0].poll() in (None, 0, STOPPED):
            return ""
        process, said = self._started[name]
        said.seek(0, 2)
        said.seek(max(0, said.tell() - MOST_BYTES))
        lines = said.read().decode(errors="replace").splitlines()
        last = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
        return visible(last) or f"The process ended with code {process.returncode}."
