"""The examples run as users find them, cell by cell; only the one long search is cut short."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from archwright.search.registry import methods
from helpers.binas_plans import planned_run, space_of

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
    "search_own_network": "reachable: ",
}


SMALLER = {"epochs": 1, "final_epochs": 1, "search_epochs": 1, "supernet_epochs": 1, "channels": 4, "pool": 4}
SHOWN_BY_TUTORIALS = {
    "binas": "limit {'latency_ms'",
    "evolution": "asked and told",
    "hnas": "% after 3 trainings",
    "nasi": "logistic regression",
    "rarts": "skips in the cell",
    "rarts_width": "parameters",
    "conas": "|",
    "nesbs": "two members disagree",
    "nsga2": "on the front",
}


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(EXAMPLES).with_suffix("")))
def test_the_cells_of_a_notebook_run(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, tutorial = MADE["place_of"](script), script.parent.name == "tutorials"
    assert path.read_text() == MADE["written"](script), "python examples/make_notebooks.py writes it anew"
    if script.stem == "folder_to_onnx":
        pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in read(path)["cells"]:
        if cell["cell_type"] == "code":
            code = "".join(cell["source"]).replace(LONG, repr(SHORT))
            if tutorial:
                code = cut(code, script.stem, tmp_path)
            exec(compile(code, path.name, "exec"), names)  # noqa: S102 - our own notebook
    assert (SHOWN_BY_TUTORIALS if tutorial else SHOWS)[script.stem] in capsys.readouterr().out
    assert names.get("SEARCH", SHORT) == SHORT


def test_every_method_of_its_own_has_a_tutorial() -> None:
    told = {script.stem.replace("_", "-") for script in SCRIPTS if script.parent.name == "tutorials"}
    alike = {"darts", "milenas", "gdas", "pc-darts", "drnas", "smooth-darts", "oles", "snas"}  # as rarts
    assert told == {entry.name for entry in methods} - alike - {"random", "rsps", "train"}


def cut(code: str, name: str, folder: Path) -> str:
    """Code of a tutorial with a search that takes seconds on any machine."""
    for setting, value in SMALLER.items():
        code = re.sub(rf'"{setting}": [\d.]+', f'"{setting}": {value}', code)
    if name == "binas":
        plan = planned_run(folder / "plan", space_of(8, 10, 1)) if "minutes=MINUTES" in code else ""
        code = code.replace("minutes=MINUTES, threads=1", f"plan_from={plan!r}, minutes_of='processor', threads=1")
    return code


def test_notebooks_are_of_the_scripts_and_have_no_outputs() -> None:
    notebooks = sorted((EXAMPLES / "notebooks").rglob("*.ipynb"))
    assert notebooks == sorted(MADE["place_of"](script) for script in SCRIPTS)
    assert len(notebooks) >= 6
    for path in notebooks:
        assert all(cell.get("outputs", []) == [] for cell in read(path)["cells"])


def test_grey_images_are_refused_by_the_network_that_was_trained_on_photographs(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / "images" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (64, 64), 20 * number).save(path)
    with pytest.raises(SystemExit, match=r"expected colour images .* got grey"):
        runpy.run_path(str(EXAMPLES / "trained_network.py"))["fine_tune"](str(tmp_path / "images"), 1)
