"""Runs that come from somebody else: links, pipes, devices and folders in place of files are refused, never opened."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archwright.cli.main import main
from archwright.errors import RunError
from archwright.runs.files import JsonLines
from archwright.runs.run import Run
from archwright.search.answer import Answer, Candidate

PLACES = (
    "run.json",
    "events.jsonl",
    "lock",
    "artifacts",
    "artifacts/result.json",
    "artifacts/best.safetensors",
    "items",
    "items/search.jsonl",
    "stages",
    "stages/answer.json",
    "checkpoints",
    "checkpoints/search/000000001.safetensors",
)
COMMANDS = (("runs", "show"), ("runs", "report"), ("runs", "resume"), ("runs", "stop"), ("runs", "time"), ("predict",))


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("origin") / "run"
    run = Run.create(folder, {"method": "random", "space": "nasbench201", "data": "digits", "seed": 0}, {})
    run.event("started")
    run.finish_stage("answer", {"best": {"accuracy": 50.0}})
    run.items("search").record("a", {"accuracy": 1.0})
    run.checkpoints("search").save(1, {"x": 1})
    run.artifact("best.safetensors").write_bytes(b"x")
    known: Any = {"method": "random", "space": "nasbench201", "data": "digits", "seed": 0, "evaluations": 1}
    answer = Answer(best=Candidate(architecture="a", accuracy=50.0), seconds=1.0, run=str(folder), **known)
    run.artifact("result.json").write_text(answer.model_dump_json())
    with run.locked():
        pass
    return folder


def replace(path: Path, kind: str) -> None:
    """Something else at ``path``."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    if kind == "link":
        outside = path.parents[3] / "outside"
        outside.mkdir(exist_ok=True)
        (outside / "precious").write_text("precious")
        path.symlink_to(outside / "precious" if path.suffix or path.name == "lock" else outside)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif path.suffix or path.name == "lock":
        path.mkdir()
    else:
        path.write_text("a file")


def ended(*arguments: object) -> int:
    with pytest.raises(SystemExit) as leaving:
        main([str(one) for one in arguments])
    code: Any = leaving.value.code
    return int(code)


@pytest.mark.parametrize("kind", ["link", "pipe", "endless", "the other of file and folder"])
@pytest.mark.parametrize("place", PLACES)
def test_it_is_refused_by_every_command_and_blocks_no_list(
    place: str, kind: str, finished: Path, runs_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "odd"):
        shutil.copytree(finished, runs_folder / name)
    replace(runs_folder / "odd" / place, kind)
    before = sorted(str(path) for path in runs_folder.parent.rglob("*"))
    assert ended("runs", "show", runs_folder / "good") == 0
    capsys.readouterr()
    for command in COMMANDS:
        words = (*command, runs_folder / "odd", *(["x.png"] if command == ("predict",) else []))
        assert ended(*words) == 2, (words, capsys.readouterr())
        err = capsys.readouterr().err
        assert "unexpected" not in err
        assert "precious" not in err.replace("outside/precious", "")
    assert ended("runs", "list") == 0
    assert "good" in capsys.readouterr().out
    assert ended("runs", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert str(runs_folder / "good") in [one["run"] for one in listed["runs"]]
    assert sorted(str(path) for path in runs_folder.parent.rglob("*")) == before


@pytest.mark.parametrize("place", ["run.json", "events.jsonl", "items/search.jsonl", "stages/answer.json", "lock"])
def test_a_file_that_claims_a_terabyte_is_not_read(
    place: str, finished: Path, runs_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "odd"):
        shutil.copytree(finished, runs_folder / name)
    os.truncate(runs_folder / "odd" / place, 2**40)  # zeros, without a byte on the disk
    for command in ("show", "report", "resume"):
        assert ended("runs", command, runs_folder / "odd") in (0, 2)
        assert "unexpected" not in capsys.readouterr().err
    assert ended("runs", "list") == 0
    assert "good" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["stages", "stages/answer.json"])
def test_a_link_to_itself_leads_nowhere(
    place: str, finished: Path, runs_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("good", "odd"):
        shutil.copytree(finished, runs_folder / name)
    odd = runs_folder / "odd" / place
    shutil.rmtree(odd) if odd.is_dir() else odd.unlink()
    odd.symlink_to(odd.name)
    assert ended("runs", "list") == 0
    assert "good" in capsys.readouterr().out
    with pytest.raises(RunError, match="a link"):
        Run.open(runs_folder / "odd")


def test_a_log_that_claims_a_terabyte_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").touch()
    os.truncate(tmp_path / "log.jsonl", 2**40)
    with pytest.raises(RunError, match="no beginning"):
        JsonLines(tmp_path / "log.jsonl").append({"a": 1})


def test_a_link_to_a_run_is_not_removed(
    finished: Path, runs_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "kept")
    runs_folder.mkdir()
    (runs_folder / "alias").symlink_to(tmp_path / "kept")
    assert ended("runs", "delete", "alias", "--yes") == 2
    assert f"Name the folder itself: {tmp_path / 'kept'}" in capsys.readouterr().err
    assert (tmp_path / "kept" / "run.json").is_file()


@pytest.mark.parametrize("text", ["²", "१", "99999999999999999999 1 x", "", "\0", "12 ² \n", "1" * 5000])
def test_a_lock_with_any_text_says_nothing_wrong(text: str, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "artifacts" / "result.json").unlink()
    (tmp_path / "run" / "lock").write_text(text)
    assert Run.open(tmp_path / "run").status() in ("running", "stopped")
