"""What once ended in a traceback: each in its own words, and without one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from archwright.cli.main import main
from archwright.data import from_object, load
from archwright.data.kept import keep, load_kept
from archwright.errors import InputError, RunError
from archwright.runs.run import Run
from archwright.runs.telling import told
from archwright.search.engine import search
from archwright.spaces.choice_space import ChoiceSpace
from archwright.spaces.registry import find_space
from helpers.wrong_data import GOOD
from helpers.wrong_files import Site

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"


def folder_of_images(root: Path, first: bytes = b"cat") -> Path:
    """Two classes of six grey images; the name of the first class may be any bytes."""
    rng = np.random.default_rng(0)
    for name in (first, b"dog"):
        place = os.path.join(os.fsencode(root), name)  # noqa: PTH118 - bytes
        os.makedirs(place)  # noqa: PTH103 - bytes
        for number in range(6):
            path = Path(os.fsdecode(place)) / f"{number}.png"
            Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    return root


# --- images ----------------------------------------------------------------------------------------------------------


def test_an_eps_file_is_no_image(refused: Any, site: Site) -> None:
    (site.copy() / "drawn.png").write_bytes(EPS)
    assert "drawn.png" in refused("predict", "model.safetensors", "drawn.png")


@pytest.mark.parametrize("spec", ["folder:~nosuchuser/x", "npz:~nosuchuser/x.npz"])
def test_the_home_of_nobody(spec: str, refused: Any) -> None:
    assert "~nosuchuser" in refused("search", "random", "--data", spec)


def test_classes_whose_name_is_no_utf8(refused: Any, tmp_path: Path) -> None:
    folder_of_images(tmp_path / "data", b"cat\xff")
    assert r"names of classes in UTF-8, got b'cat\xff'" in refused("search", "random", "--data", "folder:data")


def test_files_whose_name_is_no_utf8_are_images_like_others(tmp_path: Path) -> None:
    root = folder_of_images(tmp_path / "data")
    before = load(f"folder:{root}").fingerprint
    (root / "cat" / "0.png").rename(root / "cat" / os.fsdecode(b"0\xff.png"))
    assert load(f"folder:{root}").fingerprint != before


@pytest.mark.parametrize("words", [("--data", "folder:d\udcff"), ("--data", "digits", "--run", "r\udcff")])
def test_paths_that_are_no_utf8(words: tuple[str, ...], refused: Any, tmp_path: Path) -> None:
    folder_of_images(tmp_path / "d\udcff")
    assert "in UTF-8" in refused("search", "random", *words)


def test_a_run_whose_name_is_no_utf8_is_shown(
    finished: Path, runs_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(finished, runs_folder / "r\udcff")
    for command in ("show", "report"):
        with pytest.raises(SystemExit) as leaving:
            main(["runs", command, "r\udcff"])
        assert leaving.value.code == 0
        assert "\\udcff" in capsys.readouterr().out
    assert "\\udcff" in (runs_folder / "r\udcff" / "report.html").read_text()


@pytest.mark.parametrize("names", [np.array([b"cat", b"dog"]), np.array(["cat", "dog"])])
def test_names_of_classes_may_be_bytes(names: Any) -> None:
    assert from_object({**GOOD, "class_names": names}).class_names == ("cat", "dog")


def test_bytes_that_are_no_utf8_are_no_names() -> None:
    with pytest.raises(InputError, match="class_names in UTF-8"):
        from_object({**GOOD, "class_names": np.array([b"cat\xff", b"dog"])})


def test_images_are_kept_whatever_the_clock_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a battery begins in 1970, and archives know no year before 1980."""
    monkeypatch.setattr("time.time", lambda: -86_400.0)
    data = from_object((GOOD["x_train"], GOOD["y_train"]))
    keep(data, tmp_path / "data.npz")
    assert load_kept(tmp_path / "data.npz").fingerprint == data.fingerprint


# --- spaces ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1000, 50_000])
def test_choices_nested_without_end(depth: int, refused: Any, tmp_path: Path) -> None:
    text = '{"x": ' + "[" * depth + "]" * depth + "}"
    (tmp_path / "deep.json").write_text(text)
    refused("score", "--space", "choices:deep.json", "{}")
    with pytest.raises(InputError):
        find_space(f"choices:{text}").parse(text)
    with pytest.raises(InputError):
        ChoiceSpace({"x": [1, 2]}).parse(text)


def test_a_range_of_channels_is_not_written_out_first() -> None:
    with pytest.raises(InputError, match="a channel above"):
        find_space("width:resnet20").parse('{"blocks.0.conv1": "0-999999999999"}')


# --- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(finished: Path, runs_folder: Path) -> Run:
    shutil.copytree(finished, runs_folder / "run")
    return Run.open(runs_folder / "run")


@pytest.mark.parametrize(
    "plan",
    [
        *(["x"], [{"name": 1, "title": "x"}], [{"name": "a"}], "x", {"a": 1}, [None]),
        *([{"name": name, "title": "x"}] for name in ("../../x", "a\0b", "x" * 300, "")),
    ],
)
@pytest.mark.parametrize("command", ["show", "report", "resume"])
def test_another_plan(plan: Any, command: str, run: Run, refused: Any) -> None:
    (run.folder / "run.json").write_text(json.dumps({**run.header, "plan": plan}))
    assert "plan" in refused("runs", command, run.folder)


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "stage"},
        {"kind": "stage", "name": 3, "title": "x"},
        {"kind": "epoch", "stage": "train"},
        {"kind": "epoch", "stage": "train", "epoch": "one"},
        {"kind": "diagnostics"},
        {"kind": "said", "text": ["a"]},
        {"kind": ["stage"]},
        {"kind": "started", "time": 1e300},
    ],
)
@pytest.mark.parametrize("command", ["show", "report"])
def test_an_event_without_what_its_kind_says(event: Any, command: str, run: Run, refused: Any) -> None:
    with (run.folder / "events.jsonl").open("a") as file:
        file.write(json.dumps({"time": 1.0, **event}) + "\n")
    assert "events.jsonl" in refused("runs", command, run.folder)


def test_numbers_that_are_none_are_no_json(run: Run, refused: Any) -> None:
    with (run.folder / "events.jsonl").open("a") as file:
        file.write('{"time": NaN, "kind": "said", "text": ""}\n')
    assert "NaN" in refused("runs", "show", run.folder)


def test_items_without_a_key(run: Run) -> None:
    log = run.items("search")
    log._lines.append({"result": {"accuracy": 1.0}})
    with pytest.raises(RunError, match="as they were written"):
        run.items("search")


@pytest.mark.parametrize(
    "result", [{}, [], None, 3, "x", {"accuracy": "high"}, {"accuracy": None}, {"accuracy": 170.0}]
)
def test_items_of_another_shape(result: Any, run: Run, refused: Any) -> None:
    """With a checksum that is right: whoever alters a run can write that, too."""
    (run.folder / "artifacts" / "result.json").unlink()
    shutil.rmtree(run.folder / "stages")
    (run.folder / "items" / "search.jsonl").unlink()
    run.items("search").record("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|", result)
    assert "items/search.jsonl" in refused("runs", "resume", run.folder)


def test_a_run_beside_itself(run: Run, refused: Any) -> None:
    assert "different runs" in refused("runs", "report", run.folder, run.folder)


def test_runs_of_one_name_are_compared(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(run.folder, tmp_path / "elsewhere" / run.folder.name)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as leaving:
        main(["runs", "report", str(run.folder), str(tmp_path / "elsewhere" / run.folder.name)])
    assert leaving.value.code == 0
    assert (tmp_path / "comparison.html").read_text().count(f">{run.folder.name}</a>") == 2


def test_a_folder_removed_while_a_search_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # this search is to start

    def remove(event: dict[str, Any]) -> None:
        if event["kind"] == "stage":
            shutil.rmtree(tmp_path / "gone")

    small: dict[str, Any] = {"channels": 4, "cells": 1, "epochs": 1, "final_epochs": 1, "evaluations": 1}
    with pytest.raises(RunError, match="removed or moved while a process worked on it"):
        search("random", run=tmp_path / "gone", data="random:count=24,size=8", callbacks=[remove], **small)


def test_a_clock_before_1970(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: -86_400.0)
    run.event("started")
    assert run.events()[-1]["time"] == -86_400.0
    assert told(run.events()[-1]).endswith("Work begins, CPU threads: ?.")


# --- the program -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["runs list", "runs list --json", "spaces", "runs show nothing"])
def test_closed_streams(words: str, closed: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m archwright {words} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == (2 if "nothing" in words else 0), done.stderr
    assert "unexpected" not in done.stderr
