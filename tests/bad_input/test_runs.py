"""Runs, and places for them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers.wrong_files import DAMAGE, Place, Site, altered, header_cases


@pytest.mark.parametrize(("place", "new"), list(header_cases()))
def test_a_run_with_another_header_is_refused(
    place: Place, new: Any, refused: Any, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps(altered(json.loads(path.read_text()), place, new)))
    refused("runs", "resume", "run")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    "kept", ["run.json", "events.jsonl", "stages/*.json", "items/*.jsonl", "artifacts/result.json"]
)
def test_a_run_with_a_damaged_file_is_refused(
    kept: str, damage: str, refused: Any, finished: Path, tmp_path: Path
) -> None:
    """``items`` and ``stages`` are read by the run that goes on, so the answer and what comes after are taken away."""
    for original in sorted(finished.glob(kept)):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(finished, folder)
        if kept != "artifacts/result.json":
            (folder / "artifacts" / "result.json").unlink()
        if kept.startswith("items"):
            shutil.rmtree(folder / "stages")
        path = folder / original.relative_to(finished)
        damaged = DAMAGE[damage](path.read_bytes())
        if path.suffix == ".jsonl":
            if damage in ("empty", "cut at the start", "cut in half"):
                continue  # a log that ends early is what a crash leaves
            damaged = damaged.rstrip(b"\n") + b"\n"
        path.write_bytes(damaged)
        said = refused("runs", "show" if path.name == "events.jsonl" else "resume", "run")
        assert path.name in said


@pytest.mark.parametrize("command", [("runs", "resume"), ("runs", "show")])
@pytest.mark.parametrize("kind", ["below a file", "a file", "a folder without a run", "run.json is a folder"])
def test_something_else_is_no_run(command: tuple[str, ...], kind: str, refused: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder" / "run.json").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    names = {"below a file": "file/x", "a file": "file", "a folder without a run": "empty"}
    refused(*command, names.get(kind, "folder"))


@pytest.mark.parametrize("root", ["a-file", "/proc/no-such-place", "/dev/null/x", "a" * 300])
def test_a_runs_folder_that_cannot_be_is_said(
    root: str, refused: Any, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.copy()
    monkeypatch.undo()
    monkeypatch.chdir(site.folder)
    monkeypatch.setenv("ARCHWRIGHT_RUNS", root)
    refused("search", "random", "--data", "random:count=24,size=8,classes=2", "--epochs", "1", "--evaluations", "1")
