"""How the program ends when something fails, and what people see of it."""

from __future__ import annotations

import csv
import errno
import json
import subprocess
import sys
import warnings
from functools import partial
from operator import truediv
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from PIL import Image

from archwright.cli.failures import report_failure
from archwright.cli.main import cli, main
from archwright.data.preprocessing import Preprocessing
from archwright.errors import InfeasibleError, InputError, RunError
from archwright.models import Model
from archwright.runs.files import inside
from archwright.runs.run import Run
from archwright.spaces.base import Scale
from archwright.spaces.nasbench201 import NASBENCH201

CELL = NASBENCH201.parse("|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|")


def leave(*arguments: object) -> int:
    with pytest.raises(SystemExit) as leaving:
        main([str(argument) for argument in arguments])
    return int(leaving.value.code or 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose classes have names that a terminal could take for orders."""
    scale = Scale(4, 1, classes=3, image_size=8, image_channels=3)
    how = Preprocessing(8, 3, (0.5,) * 3, (0.25,) * 3, ("[red]cat[/red]", "\x1b[31mdog", "owl"))
    path = tmp_path / "model.safetensors"
    Model(NASBENCH201.build(CELL, scale), "nasbench201", CELL, scale, how).save(path)
    return path


def picture(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(path)
    return path


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InputError("an apple", "a pear"), 2, "expected an apple, got a pear."),
        (InfeasibleError("no network"), 3, "no network"),
        (PermissionError(errno.EACCES, "Permission denied", "/somewhere"), 2, "Permission denied: '/somewhere'"),
        (OSError(errno.EROFS, "Read-only file system", "/run"), 2, "Read-only"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "/x"), 2, "Is a directory"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "the disk is full"),
        (MemoryError(), 2, "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 99 bytes"), 2, "memory"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.exceptions.Abort(), 130, "interrupted"),
        (click.UsageError("no \x1b[31m such"), 2, "no \\x1b[31m such"),
    ],
)
def test_each_error_has_its_code_and_one_line(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report_failure(error) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert text in line


def test_something_unexpected_is_one_line_with_its_traceback_in_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("archwright.runs.index.list_folder", partial(truediv, 1, 0))  # no line of a user's
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert leave("runs", "list") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "unexpected ZeroDivisionError" in line
    (kept,) = tmp_path.glob("archwright-*.txt")
    assert str(kept) in line
    assert "division by zero" in kept.read_text()


def test_debug_shows_the_traceback_of_any_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert leave("--debug", "runs", "show", "absent") == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert "a run folder" in err.splitlines()[-1]
    assert leave("runs", "show", "absent") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m archwright datasets | head -n 0"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


# --- help ------------------------------------------------------------------------------------------------------------


def all_commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found.append((*path, name))
        found += all_commands(command, (*path, name)) if isinstance(command, click.Group) else []
    return found


def test_every_command_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    for path in [(), *all_commands(cli)]:
        assert leave(*path, "--help") == 0
        assert "Example: archwright" in capsys.readouterr().out, path


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts_call_the_program(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert leave("completion", shell) == 0
    out = capsys.readouterr().out
    assert f"_ARCHWRIGHT_COMPLETE={shell}_complete" in out
    assert out.startswith(f"# Kept by: archwright completion {shell} >")


def test_the_shell_completes_methods(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "_ARCHWRIGHT_COMPLETE": "zsh_complete",
        "COMP_WORDS": "archwright search ev",
        "COMP_CWORD": "2",
    }.items():
        monkeypatch.setenv(name, value)
    assert leave() == 0
    assert "evolution" in capsys.readouterr().out
    monkeypatch.setenv("COMP_WORDS", "archwright search absent --")
    monkeypatch.setenv("COMP_CWORD", "3")
    assert leave() == 0
    assert capsys.readouterr().err == ""


def test_the_doctor_tries_a_search(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert leave("doctor", "--json") == 0
    findings = {f"{one['topic']} {one['name']}": one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["self-test search"]["state"] == "good"
    assert findings["versions torch"]["text"].startswith("2.")
    assert all(
        "pip install" in one["text"]
        for one in findings.values()
        if one["topic"] == "extras" and one["state"] == "missing"
    )

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no luck")

    monkeypatch.setattr("archwright.search.engine.search", fail)
    assert leave("doctor") == 1
    assert "!!  self-test search" in capsys.readouterr().out


# --- predict ---------------------------------------------------------------------------------------------------------


def test_markup_and_escapes_in_names_are_shown(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = picture(tmp_path / "x [" / "photo] [bold]\x1b[7m.png")
    assert leave("predict", model, image) == 0
    out = capsys.readouterr().out
    for text in ("x [/photo] [bold]\\x1b[7m.png", "[red]cat[/red]", "\\x1b[31mdog"):
        assert text in out.replace("\n", "")
    assert "\x1b" not in out


def test_a_folder_is_predicted_to_csv(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = [picture(tmp_path / "photos" / name) for name in ("a.png", "b/c, d.png")]
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    table = tmp_path / "out.csv"
    assert leave("predict", model, tmp_path / "photos", "--csv", table, "--top", 2, "--json") == 0
    found = json.loads(capsys.readouterr().out)["predictions"]
    assert [Path(one["image"]) for one in found] == images
    with table.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["image", "class_1", "probability_1", "class_2", "probability_2"]
    assert [(row[0], row[1]) for row in rows] == [(one["image"], one["class"]) for one in found]
    assert float(rows[0][2]) == pytest.approx(found[0]["probability"], abs=1e-6)


def test_bad_images_stop_or_are_left_out(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture(tmp_path / "photos" / "good.png")
    (tmp_path / "photos" / "bad.png").write_text("no image")
    assert leave("predict", model, tmp_path / "photos", "--csv", tmp_path / "out.csv") == 2
    assert not (tmp_path / "out.csv").exists()
    capsys.readouterr()
    assert leave("predict", model, tmp_path / "photos", "--skip-bad", "--json") == 0
    out, err = capsys.readouterr()
    assert [Path(one["image"]).name for one in json.loads(out)["predictions"]] == ["good.png"]
    assert "Left out" in err
    assert "bad.png" in err


# --- runs ------------------------------------------------------------------------------------------------------------


def test_one_damaged_run_does_not_hide_the_others(runs_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, Any] = {"method": "random", "space": "nasbench201", "seed": 0}
    long = "a-run-with-a-name-that-is-rather-long-" * 4
    for name in ("bad-json", "bad-type", "bad-answer", long):
        Run.create(runs_folder / name, asked, {})
    (runs_folder / "bad-json" / "run.json").write_text('{"form')
    header = json.loads((runs_folder / "bad-type" / "run.json").read_text())
    (runs_folder / "bad-type" / "run.json").write_text(json.dumps({**header, "configuration": [1]}))
    (runs_folder / "bad-answer" / "stages").mkdir()
    (runs_folder / "bad-answer" / "stages" / "answer.json").write_text("12")
    assert leave("runs", "list") == 0
    out = capsys.readouterr().out
    assert long in out
    assert any("bad-answer" in line and "damaged" in line for line in out.splitlines())
    assert sum(line.startswith("Not readable: bad-") for line in out.splitlines()) == 2
    assert leave("runs", "list", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [Path(one["run"]).name for one in listed["runs"]] == [long, "bad-answer"]
    assert len(listed["damaged"]) == 2


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "link/x", "a\0b", "artifacts/../.."])
def test_paths_of_a_run_stay_inside_it(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    with pytest.raises(RunError, match=r"leads out of it|no name of a file"):
        inside(folder, name)


def test_a_path_inside_a_run_is_found(tmp_path: Path) -> None:
    assert inside(tmp_path, "artifacts/a.json") == tmp_path / "artifacts" / "a.json"
    assert inside(tmp_path, "a/../b") == tmp_path / "a" / ".." / "b"


@pytest.mark.parametrize(("flags", "shown"), [((), False), (("--debug",), True)])
def test_a_warning_is_one_sentence_and_its_line_of_code_only_with_debug(
    capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], shown: bool
) -> None:
    @click.command("warn")
    def warn() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = show
            warnings.warn("positions are not counted", stacklevel=1)

    def show(message: Any, category: Any, filename: str, line: int, *_: Any) -> None:  # pytest has put its own in place
        click.echo(warnings.formatwarning(message, category, filename, line), err=True)

    cli.add_command(warn)
    before = warnings.formatwarning
    try:
        assert leave(*flags, "warn") == 0
    finally:
        cli.commands.pop("warn")
    said = capsys.readouterr().err
    assert said.startswith("Warning: positions are not counted\n") is not shown
    assert ("test_failures.py" in said) is shown
    assert warnings.formatwarning is before
