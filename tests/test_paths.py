"""What may be read and what may be written over: plain files, of ours or new ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from archwright.cli.main import main
from archwright.errors import InputError, RunError
from archwright.models import Model
from archwright.paths import check_output, check_plain_run, odd_kind, open_plain, read_plain, user_path
from archwright.runs.files import write_atomic
from helpers.hostile_files import KINDS, make_odd, saved_model


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return saved_model(tmp_path / "m.safetensors")


@pytest.fixture
def image(tmp_path: Path) -> Path:
    from PIL import Image

    Image.new("L", (8, 8), 100).save(tmp_path / "image.png")
    return tmp_path / "image.png"


def ended(*arguments: object) -> int:
    with pytest.raises(SystemExit) as leaving:
        main([str(one) for one in arguments])
    code: Any = leaving.value.code
    return int(code)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_a_plain_file_is_written_over(kind: str, tmp_path: Path) -> None:
    path = make_odd(tmp_path / "out", kind)
    before = path.lstat()
    with pytest.raises(InputError, match=kind.removesuffix(" to nothing")):
        write_atomic(path, b"x")
    with pytest.raises(InputError, match="the name of a file to write"):
        check_output(path, b"mark", overwrite=True)
    assert path.lstat().st_ino == before.st_ino


@pytest.mark.parametrize("kind", KINDS)
def test_predict_writes_its_table_over_no_odd_file(
    kind: str, model: Model, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = make_odd(tmp_path / "out.csv", kind)
    before = path.lstat()
    assert ended("predict", tmp_path / "m.safetensors", image, "--csv", path, "--overwrite") == 2
    assert kind.removesuffix(" to nothing") in capsys.readouterr().err
    assert path.lstat().st_ino == before.st_ino
    assert not (tmp_path / "elsewhere").exists() or (tmp_path / "elsewhere").read_text() == "precious"


@pytest.mark.parametrize("name", ["image.png", "m.safetensors", "again.png"])
def test_predict_writes_over_none_of_its_inputs(name: str, model: Model, image: Path, tmp_path: Path) -> None:
    os.link(image, tmp_path / "again.png")  # by another name
    before = (tmp_path / name).read_bytes()
    assert ended("predict", tmp_path / "m.safetensors", image, "--csv", tmp_path / name, "--overwrite") == 2
    assert (tmp_path / name).read_bytes() == before


def test_a_foreign_file_is_replaced_only_when_asked(model: Model, image: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("my,own,table\n")
    words = ("predict", tmp_path / "m.safetensors", image, "--csv", table)
    assert ended(*words) == 2
    assert table.read_text() == "my,own,table\n"
    assert ended(*words, "--overwrite") == 0
    assert table.read_text().startswith("image,class_1,probability_1")
    assert ended(*words) == 0  # its own table
    table.write_text("")
    assert ended(*words) == 0  # nothing to lose, as mktemp leaves it


def test_a_model_is_saved_and_exported_over_no_foreign_file(model: Model, tmp_path: Path) -> None:
    foreign = tmp_path / "notes.json"
    foreign.write_text('{"mine": 1}')
    with pytest.raises(InputError, match="something else"):
        model.save(tmp_path / "notes.safetensors")
    assert foreign.read_text() == '{"mine": 1}'
    model.save(tmp_path / "m.safetensors")  # again
    with pytest.raises(InputError, match=r"ends with \.onnx"):
        model.export(tmp_path / "m.safetensors")
    foreign.rename(tmp_path / "mine.onnx")
    with pytest.raises(InputError, match="something else"):
        model.export(tmp_path / "mine.onnx")
    model.export(tmp_path / "m.onnx")
    model.export(tmp_path / "m.onnx")
    model.export(tmp_path / "mine.onnx", overwrite=True)


@pytest.mark.parametrize("command", ["latency", "analyze"])
def test_other_commands_refuse_a_foreign_file_before_the_work(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("it began to work")

    monkeypatch.setattr("archwright.measuring.measure_table", started)
    monkeypatch.setattr("archwright.analysis.page.analyse", started)
    (tmp_path / "mine").write_text("my own")
    words = ["latency"] if command == "latency" else ["analyze", "DARTS_V2"]
    assert ended(*words, "--out", tmp_path / "mine") == 2
    (tmp_path / "new.json.part.jsonl").write_text("my own")
    if command == "latency":
        assert ended("latency", "--out", tmp_path / "new.json") == 2
    assert (tmp_path / "mine").read_text() == (tmp_path / "new.json.part.jsonl").read_text() == "my own"


@pytest.mark.parametrize("kind", KINDS)
def test_only_plain_files_are_read(kind: str, tmp_path: Path) -> None:
    path = make_odd(tmp_path / "in", kind)
    with pytest.raises((InputError, FileNotFoundError)):
        open_plain(path, follow=False)
    if kind == "a link":
        assert read_plain(path) == b"precious"
    else:
        with pytest.raises((InputError, FileNotFoundError)):
            read_plain(path)


def test_what_is_no_odd_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert odd_kind(tmp_path / "file") is None
    assert odd_kind(tmp_path / "nothing") is None
    assert odd_kind(tmp_path / "file" / "below") is None


def test_the_home_of_nobody_is_a_name_like_any_other() -> None:
    assert user_path("~nosuchuser/x") == Path("~nosuchuser/x")
    assert user_path("~/x") == Path.home() / "x"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "place", ["run.json", "artifacts", "items/x.jsonl", "checkpoints/search/1", "stages/a.json", "lock"]
)
def test_a_run_with_an_odd_file_is_refused(kind: str, place: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / place).parent.mkdir(parents=True)
    folder_there = kind == "a folder" and place in ("artifacts", "checkpoints/search/1")
    make_odd(run / place, kind)
    (run / place).parent.joinpath("elsewhere").unlink(missing_ok=True)
    if folder_there:
        check_plain_run(run)
    else:
        with pytest.raises(RunError, match=kind.removesuffix(" to nothing")):
            check_plain_run(run)


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "items").write_text("x")
    with pytest.raises(RunError, match="for a folder"):
        check_plain_run(tmp_path)


def test_an_exported_file_says_where_it_comes_from(model: Model, tmp_path: Path) -> None:
    model.export(tmp_path / "m.onnx")
    assert b"\n\narchwright\x12" in (tmp_path / "m.onnx").read_bytes()
    assert torch.isfinite(model.probabilities(torch.zeros(1, 1, 8, 8))).all()
