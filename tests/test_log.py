"""What programs hear of a search by ``logging``."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import archwright as aw
from archwright.runs.progress import Progress
from archwright.runs.run import Run

CELL = "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"
SPACE = aw.ChoiceSpace({"x": range(9)})


@pytest.fixture
def heard() -> Iterator[list[logging.LogRecord]]:
    """Every record of the logger, from DEBUG on."""
    records: list[logging.LogRecord] = []
    handler, logger = logging.Handler(), logging.getLogger("archwright")
    handler.emit = records.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def at(level: int, records: list[logging.LogRecord]) -> list[str]:
    return [record.getMessage() for record in records if record.levelno == level]


def fragile(architecture: Any) -> float:
    if architecture["x"] == 3:
        raise ValueError("three\n\x1b[31m")
    return float(architecture["x"])


def test_lines_are_info_and_events_are_debug(tmp_path: Path, heard: list[logging.LogRecord]) -> None:
    aw.search("random", space=SPACE, evaluate=lambda a: 0.0, evaluations=4, run=tmp_path / "run")
    events = Run.open(tmp_path / "run").events()
    said = [event["text"] for event in events if event["kind"] == "said"]
    assert said
    assert at(logging.INFO, heard)[-len(said) :] == said
    lines = at(logging.DEBUG, heard)
    assert sum(line.endswith("reached 0.") for line in lines) == 4
    assert any(line.startswith("Work begins") for line in lines)
    assert lines[-1].startswith("Finished")
    assert at(logging.WARNING, heard) == []


def test_what_should_not_be_missed_is_a_warning_in_one_line(tmp_path: Path, heard: list[logging.LogRecord]) -> None:
    aw.search("random", space=SPACE, evaluate=fragile, evaluations=9, run=tmp_path / "run")
    (text,) = at(logging.WARNING, heard)
    assert text.startswith("An evaluation failed: ValueError: three (")
    assert text.isprintable()
    assert text not in at(logging.INFO, heard)


def test_a_progress_of_ones_own_hears_the_same(tmp_path: Path, heard: list[logging.LogRecord]) -> None:
    class Own(Progress):
        def __init__(self) -> None:
            self.lines: list[str] = []

        def say(self, text: str) -> None:
            self.lines.append(text)

    own = Own()
    aw.search("random", space=SPACE, evaluate=fragile, evaluations=9, run=tmp_path / "run", progress=own)
    assert len(own.lines) == len(at(logging.INFO, heard)) + 1  # and the failure


def test_scores_are_heard_too(heard: list[logging.LogRecord]) -> None:
    aw.score(aw.find_space("nasbench201").parse(CELL), metrics=["params"], batch_size=8, channels=2, cells=1)
    assert any("scor" in text for text in at(logging.DEBUG, heard))


def test_nothing_is_shown_unless_a_program_asks(tmp_path: Path) -> None:
    code = (
        "import archwright as aw\n"
        "def fail(a): raise ValueError('no')\n"
        "try: aw.search('random', space=aw.ChoiceSpace({'x': range(9)}), evaluate=fail, evaluations=2, failures=0)\n"
        "except aw.ArchwrightError: print('ended')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("ended\n", "")
