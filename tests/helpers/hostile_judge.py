"""Who judges a hostile case: the program runs in this process, in a folder with good files of every kind beside it.

A case is refused cleanly (exit code 2 or 3, or 130 where a question is not answered; one screen on stderr without a
control character, nothing on stdout, no file left behind), accepted, or ends in a traceback; who runs it from outside
sees whether it ends at all.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import numpy as np
from PIL import Image

from archwright.cli.main import main
from archwright.data.preprocessing import Preprocessing
from archwright.ensembles import Ensemble
from archwright.errors import Interrupted
from archwright.models import Model
from archwright.search.engine import search
from archwright.spaces.nasbench201 import NASBENCH201
from helpers.latency_tables import counted_table
from helpers.wrong_data import GOOD
from helpers.wrong_files import SCALE
from helpers.wrong_options import CELL

Wanted = Literal["refused", "accepted", "either"]
Outcome = Literal["refused", "accepted", "traceback", "unclean"]
STARTS = (
    *("runs.run.Run.create", "runs.run.Run.locked", "costs.tables._measure_all"),
    "report.server.uvicorn.Server",
)
"""Where the work of searches, measurements and the dashboard begins."""
SCORES = "proxies.engine.run_items"
"""Where that of scores begins, which is done unless there is much of it."""
SCREEN_LINES, SCREEN_CHARACTERS = 10, 4000
SMALL: dict[str, Any] = {
    "data": "random:count=24,size=8,classes=2",
    **dict.fromkeys(("cells", "epochs", "final_epochs"), 1),
    "channels": 4,
    "evaluations": 2,
}


@dataclass(frozen=True)
class Case:
    """Something bad that the program is given.

    Attributes:
        kind: of what is wrong, for the counts.
        name: what is wrong.
        words: of the command line, in a folder with a copy of the good files.
        prepare: makes the bad files in that folder.
        wanted: what is right; ``either`` where both are, but no traceback.
        starts: whether what is accepted may really begin.
        much: whether it may ask for more scores than can be waited for.
        call: instead of the command line: a function of the folder that gives an exit code.
    """

    kind: str
    name: str
    words: tuple[str, ...] = ()
    prepare: Callable[[Path], object] = lambda folder: None
    wanted: Wanted = "refused"
    starts: bool = False
    much: bool = False
    call: Callable[[Path], int] | None = None


@dataclass(frozen=True)
class Verdict:
    """How a case ended, and the first of what was said."""

    outcome: Outcome
    said: str

    def is_right(self, wanted: Wanted) -> bool:
        """Whether it is what the case wants."""
        return self.outcome == wanted or (wanted == "either" and self.outcome in ("refused", "accepted"))


def make_site(folder: Path) -> Path:
    """One good thing of every kind in ``folder``: models, an image, data, tables, runs, an ensemble, texts."""
    cell = NASBENCH201.parse(CELL)
    how = Preprocessing(8, 3, (0.5,) * 3, (0.25,) * 3, ("cat", "dog", "owl"))
    model = Model(NASBENCH201.build(cell, SCALE), "nasbench201", cell, SCALE, how, {"accuracy": 50.0})
    model.save(folder / "model.safetensors")
    model.export(folder / "model.onnx")
    Ensemble((model, model)).save(folder / "both")
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).save(folder / "image.png")
    for name in ("cat", "dog"):
        (folder / "data" / name).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "data" / name / f"{number}.png")
    np.savez(folder / "data.npz", **GOOD)  # type: ignore[arg-type]
    counted_table(folder / "table.json")
    (folder / "cells.txt").write_text(CELL + "\n")
    (folder / "choices.json").write_text('{"x": [1, 2]}')
    (folder / "a-file").write_text("text")
    (folder / "a-folder").mkdir()
    (folder / "a-folder" / "a-file").write_text("text")
    search("random", run=folder / "runs" / "whole", **SMALL)
    with suppress(Interrupted):
        search("random", run=folder / "runs" / "half", callbacks=[_leave], **SMALL)
    return folder


def _leave(event: dict[str, Any]) -> None:
    if event["kind"] == "stage" and event["name"] == "train":
        raise Interrupted("enough")


def judge(case: Case, site: Path, folder: Path) -> Verdict:
    """Run ``case`` in ``folder``, which is made anew from the good files in ``site``."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(site, folder)
    os.chdir(folder)
    os.environ["ARCHWRIGHT_RUNS"] = str(folder / "runs")
    case.prepare(folder)
    before = _files(folder)
    started: list[bool] = []
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), _nothing_starts(case, started), _no_stdin():
        code = _ended(case, folder)
    said = err.getvalue()
    if started or code == 0:
        return Verdict("accepted", said[:300])
    if code not in (2, 3, 130) or "Traceback" in said or "This is a bug" in said:
        return Verdict("traceback", f"{code}: {said[:1000]}")
    problem = _unclean(said, out.getvalue(), before, _files(folder))
    return Verdict("unclean" if problem else "refused", problem or said[:300])


def _ended(case: Case, folder: Path) -> int:
    """The exit code; 1 for whatever else comes out."""
    try:
        if case.call is not None:
            return case.call(folder)
        main(list(case.words))
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else 1
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is one
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
    return 1


def _files(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if path.name != ".archwright-index.json"}


def _unclean(said: str, out: str, before: set[str], after: set[str]) -> str:
    """What is wrong with the way in which something was refused."""
    if not said or len(said.splitlines()) > SCREEN_LINES or len(said) > SCREEN_CHARACTERS:
        return f"not one screen: {len(said.splitlines())} lines, {len(said)} characters"
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", said):
        return "control characters on stderr"
    if out:
        return f"on stdout: {out[:100]}"
    return f"left behind: {sorted(after - before)[:3]}" if after - before else ""


@contextmanager
def _nothing_starts(case: Case, started: list[bool]) -> Iterator[None]:
    """What passes every check is accepted, and ends there, unless the case lets it begin."""

    def accepted(*_: object, **__: object) -> None:
        started.append(True)
        raise SystemExit(0)

    if case.starts:
        yield
        return
    with ExitStack() as patched:
        for place in (*STARTS, *([SCORES] if case.much else [])):
            patched.enter_context(mock.patch(f"archwright.{place}", accepted))
        yield


@contextmanager
def _no_stdin() -> Iterator[None]:
    with Path(os.devnull).open() as nothing, mock.patch("sys.stdin", nothing):
        yield
