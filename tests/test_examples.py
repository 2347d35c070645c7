"""The examples run as users find them, cell by cell; only the one long search is cut short."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
MADE = runpy.run_path(str(EXAMPLES / "make_notebooks.py"))
SCRIPTS = MADE["scripts"]()
LONG = '{"method": "binas", "limits": {"latency_ms": 1.0}, "minutes": 2}'
TINY = {"evaluations": 1, "channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1}
SHORT = {"method": "random", "limits": {"params": 9000}, **TINY}
"""Instead of minutes with binas, whose searches have tests of their own."""
SHOWS = {
    "ask_and_tell": "asked again: True",
    "compare_runs": "comparison.html",
    "explain_a_cell": "normal: width",
    "folder_to_onnx": "ONNX Runtime says digit-",
    "own_space_and_metric": "relative-gradient",
}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_cells_of_a_notebook_run(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = EXAMPLES / "notebooks" / f"{script.stem}.ipynb"
    assert path.read_text() == MADE["written"](script), "python examples/make_notebooks.py writes it anew"
    if script.stem == "folder_to_onnx":
        pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"]).replace(LONG, repr(SHORT))
            exec(compile(code, path.name, "exec"), names)  # noqa: S102 - our own notebook
    assert SHOWS[script.stem] in capsys.readouterr().out
    assert names.get("SEARCH", SHORT) == SHORT


def test_notebooks_are_of_the_scripts_and_have_no_outputs() -> None:
    notebooks = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
    assert [path.stem for path in notebooks] == [script.stem for script in SCRIPTS]
    assert len(notebooks) >= 5
    for path in notebooks:
        assert all(cell.get("outputs", []) == [] for cell in read(path)["cells"])
