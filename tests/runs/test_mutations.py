"""Runs and models of somebody else: whole folders with files made bad at random, and all that reads them.

A longer loop than ``make test-slow`` has: ``ARCHWRIGHT_MUTATIONS=5000 pytest -m slow tests/runs/test_mutations.py``.
"""

from __future__ import annotations

import io
import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import matplotlib.figure
import pytest
import torch

from archwright.cli.show_runs import show_run, show_runs
from archwright.errors import ArchwrightError
from archwright.models import Classifier, load_classifier
from archwright.report.page import report_run
from archwright.runs import checkpoints, disk, progress
from archwright.runs.index import list_folder
from archwright.runs.run import RESULT, Run
from archwright.search.answer import Answer
from archwright.search.engine import resume, search
from helpers.faults import Tree, look, put, states
from helpers.mutations import mutated
from helpers.small_searches import smallest

MUTATIONS = int(os.environ.get("ARCHWRIGHT_MUTATIONS", "150"))
"""Folders that are tried of each method, once finished and once on the way."""
METHODS = ("random", "hnas", "rarts", "rarts-width", "nesbs", "conas", "binas")
SECONDS = 30
"""Of the processor, for all that reads one folder."""


class HangError(BaseException):
    """It took too long."""


@contextmanager
def in_time(what: str) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise HangError(what)

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "SECONDS", 0.0)
    monkeypatch.setattr(progress, "SECONDS_A_WRITE", 1e9)
    monkeypatch.setattr(disk, "sync", lambda _: None)
    monkeypatch.setattr(disk, "sync_folder", lambda _: None)
    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", lambda self, file, **_: file.write(b"a picture"))


def answers(classifier: Classifier) -> None:
    how = classifier.preprocessing
    classifier.probabilities(torch.zeros(2, how.image_channels, how.image_size, how.image_size))


READERS: dict[str, Callable[[Path], object]] = {
    "list": lambda run: show_runs(*list_folder(run.parent)),
    "show": lambda run: show_run(Run.open(run)),
    "report": report_run,
    "answer": lambda run: Answer.read(run) if (run / RESULT).is_file() else None,
    "model": lambda run: answers(load_classifier(run)),
    "resume": resume,
}


def read_all(run: Path, what: str) -> None:
    """Everything that reads a run ends, well or by one of our errors."""
    for name, read in READERS.items():
        try:
            with in_time(f"{what}: {name}"), redirect_stdout(io.StringIO()):
                read(run)
        except ArchwrightError:
            continue
        except Exception as error:
            error.add_note(f"{what}: {name}")
            raise


def other(tree: Tree, draw: random.Random) -> tuple[Tree, str]:
    """One or two files of a folder made bad, and which."""
    files = sorted(name for name, content in tree.items() if content)
    chosen = draw.sample(files, min(len(files), draw.choice((1, 1, 1, 2))))
    return {**tree, **{name: mutated(name, tree[name] or b"", draw) for name in chosen}}, ", ".join(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_run_made_bad_is_read_or_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    monkeypatch.setenv("ARCHWRIGHT_RUNS", str(folder))
    on_the_way, _ = states(folder, lambda: search(name, run=folder / "run", **smallest(name, tmp_path / "plan")))
    begun = [state.tree for state in on_the_way if "run/run.json" in state.tree]
    finished = look(folder)
    for seed in range(MUTATIONS):
        draw = random.Random(seed)
        for kind, tree in (("finished", finished), ("on the way", draw.choice(begun))):
            bad, which = other(tree, draw)
            put(folder, bad)
            read_all(folder / "run", f"{name}, {kind}, seed {seed}, {which}")


@pytest.mark.slow
def test_model_files_made_bad_are_read_or_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    search("random", run=tmp_path / "run", onnx=True, **smallest("random", tmp_path))
    for suffix in (".safetensors", ".onnx"):
        path = tmp_path / "run" / "artifacts" / f"best{suffix}"
        content = path.read_bytes()
        for seed in range(10 * MUTATIONS):
            path.write_bytes(mutated(path.name, content, random.Random(seed)))
            try:
                with in_time(f"{suffix}, seed {seed}"):
                    answers(load_classifier(path))
            except ArchwrightError:
                continue
