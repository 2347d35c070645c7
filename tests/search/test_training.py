"""An architecture that is given, by its text, a published name or a run that found it, is trained as an answer is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import archwright as aw
from archwright.cli.main import main
from archwright.errors import InputError
from archwright.spaces.cells import parse_cell_pair
from archwright.spaces.gallery import GALLERY, PUBLISHED_MBCONV

NOISE = "random:classes=3,size=8,channels=1,count=120"
CELL = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|none~1|avg_pool_3x3~2|"
FEW: dict[str, Any] = {"data": NOISE, "channels": 4, "cells": 1, "epochs": 1, "threads": 1}
WIDE = {**FEW, "cells": 3, "batch_size": 32}


def weights(folder: Path) -> dict[str, bytes]:
    return {name: one.numpy().tobytes() for name, one in load_file(folder / "artifacts" / "best.safetensors").items()}


def test_a_text_is_trained_as_a_search_trains_its_answer(tmp_path: Path) -> None:
    """The oracle is a search that can only find this one."""
    same = {**FEW, "seed": 3, "training": {"warmup_epochs": 0.25}}
    found = aw.search("random", run=tmp_path / "searched", evaluations=1, final_epochs=2, **same)
    text = found.best.architecture
    trained = aw.train(text, run=tmp_path / "trained", **{**same, "epochs": 2})
    assert trained.best.architecture == text
    assert trained.best.accuracy == found.best.accuracy
    assert weights(tmp_path / "trained") == weights(tmp_path / "searched")


@pytest.mark.parametrize(
    ("name", "space"), [("DARTS_V2", "darts"), ("nasnet", "published"), ("amoebanet-a", "published")]
)
def test_published_cells_are_found_by_name(name: str, space: str, tmp_path: Path) -> None:
    found = aw.train(name, run=tmp_path / "run", **WIDE)
    kept = json.loads((tmp_path / "run" / "run.json").read_text())["configuration"]
    assert kept["space"] == space
    assert parse_cell_pair(found.best.architecture) in GALLERY.values()
    assert found.best.epochs == 1


def test_published_networks_have_their_own_scale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr("archwright.search.training.search", lambda method, **given: asked.update(given))
    aw.train("BINAS_A", data=NOISE)
    assert (asked["space"], asked["scale"]) == ("mbconv", "mbconv-224-published")
    aw.find_space("mbconv").at_scale(PUBLISHED_MBCONV.scale).parse(asked["options"]["architecture"])


def test_what_a_run_found_is_trained_on_other_images(tmp_path: Path) -> None:
    source = tmp_path / "source"
    found = aw.search("random", run=source, evaluations=2, **{**FEW, "final_epochs": 1, "lr": 0.03})
    other = aw.train(source=source, data="digits", run=tmp_path / "run", epochs=1)
    kept = json.loads((tmp_path / "run" / "run.json").read_text())["configuration"]
    assert other.best.architecture == found.best.architecture
    assert (kept["channels"], kept["cells"], kept["lr"], kept["space"]) == (4, 1, 0.03, "nasbench201")
    assert "digits" in str(other.best.accuracy_on)


def test_shards_shared_by_two_processes_end_with_the_same_weights(tmp_path: Path) -> None:
    shared = {**FEW, "shards": 2, "batch_size": 32}
    aw.train(CELL, run=tmp_path / "one", **shared)
    aw.train(CELL, run=tmp_path / "two", ranks=2, **shared)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")


def test_the_help_says_what_holds_for_a_training(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "by default that of the run, or the first that knows the text" in said
    assert "default: nasbench201" not in said
    assert "training in the search" not in said


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    few = ["--data", NOISE, "--channels", "4", "--cells", "1", "--epochs", "1", "--threads", "1", "--json"]
    with pytest.raises(SystemExit) as ended:
        main(["train", CELL, "--space", "nasbench201", "--run", str(run), *few])
    assert ended.value.code == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (answer["method"], answer["best"]["architecture"], answer["evaluations"]) == ("train", CELL, 0)
    with pytest.raises(SystemExit) as ended:
        main(["runs", "resume", str(run), "--json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["best"] == answer["best"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"architecture": "resnet-9000"}, "something published"),
        ({}, "--from"),
        ({"architecture": CELL, "space": "darts"}, "expected"),
        ({"architecture": CELL, "final_epochs": 3}, "--final-epochs"),
        ({"source": "/absent"}, "run"),
        ({"architecture": "nasnet-a", "cells": 2}, "at least 4 channels and 3 cells"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_a_folder_exists(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        aw.train(arguments.pop("architecture", None), run=tmp_path / "run", **{**FEW, **arguments})
    assert not (tmp_path / "run").exists()
