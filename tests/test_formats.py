"""Files for other programs: each read back by its own runtime and compared with PyTorch; int8 among them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from archwright.cli.main import cli
from archwright.data import load as load_images
from archwright.errors import InputError, RunError
from archwright.formats import FACTS, FORMATS, export
from archwright.models import Model, load_classifier
from archwright.search.engine import search
from archwright.spaces.mbconv import MbConv, scale_for


def printed(arguments: list[str]) -> dict:
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    return json.loads(done.stdout.splitlines()[-1])


IMAGES = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def model() -> Model:
    data = load_images("digits", seed=0)
    space = MbConv(scale_for(8, 10, 1))
    torch.manual_seed(0)
    architecture = space.sample(np.random.default_rng(0))
    return Model(space.build(architecture, space.scale), "mbconv", architecture, space.scale, data.preprocessing)


@pytest.fixture(scope="module")
def digits() -> np.ndarray:
    return load_images("digits", seed=0).train.pixels(np.arange(200)).numpy()


def test_a_program_of_torch_export_reads_back_without_us(model: Model, tmp_path: Path) -> None:
    assert export(model, tmp_path / "m.pt2") < 1e-5
    kept = {FACTS: ""}
    program = torch.export.load(tmp_path / "m.pt2", extra_files=kept)
    for count in (1, 3):
        found = torch.softmax(program.module()(IMAGES[:count]), 1)
        assert torch.allclose(found, model.probabilities(IMAGES[:count]), atol=1e-5)
    assert json.loads(kept[FACTS])["preprocessing"]["class_names"] == [str(digit) for digit in range(10)]


def test_torchscript_reads_back(model: Model, tmp_path: Path) -> None:
    export(model, tmp_path / "m.torchscript")
    found = torch.softmax(torch.jit.load(tmp_path / "m.torchscript")(IMAGES), 1)
    assert torch.allclose(found, model.probabilities(IMAGES), atol=1e-5)


def test_openvino_reads_back(model: Model, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino", reason="needs the extra openvino")
    export(model, tmp_path / "m.xml")
    compiled = openvino.Core().compile_model(tmp_path / "m.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = torch.softmax(torch.from_numpy(compiled([IMAGES.numpy()])[0]), 1)
    assert torch.allclose(found, model.probabilities(IMAGES), atol=1e-5)


def test_int8_is_a_smaller_file_that_says_what_it_was_calibrated_on(model: Model, digits, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    difference = export(model, tmp_path / "m.int8.onnx", calibrate=digits)
    export(model, tmp_path / "m.onnx")
    assert 0 < difference < 0.2  # quantising costs something
    assert (tmp_path / "m.int8.onnx").stat().st_size < (tmp_path / "m.onnx").stat().st_size
    small = load_classifier(tmp_path / "m.int8.onnx")
    x = model.preprocessing.normalise(torch.from_numpy(digits))
    assert (small.probabilities(x).argmax(1) == model.probabilities(x).argmax(1)).float().mean() > 0.8
    with pytest.raises(InputError, match=r"\.onnx or \.xml"):
        export(model, tmp_path / "m.pt2", calibrate=digits)


def test_int8_for_openvino(model: Model, digits, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino", reason="needs the extra openvino")
    export(model, tmp_path / "m.xml", calibrate=digits)
    compiled = openvino.Core().compile_model(tmp_path / "m.xml", "CPU")
    x = model.preprocessing.normalise(torch.from_numpy(digits))
    found = torch.from_numpy(compiled([x.numpy()])[0]).argmax(1)
    assert (found == model.probabilities(x).argmax(1)).float().mean() > 0.8


@pytest.mark.parametrize("suffix", [".pt2", ".torchscript"])
def test_a_file_that_disagrees_is_not_written(model: Model, suffix: str, tmp_path: Path, monkeypatch) -> None:
    usual = model.probabilities
    monkeypatch.setattr(Model, "probabilities", lambda self, images: usual(images) + 0.01)
    with pytest.raises(RunError, match="agree with PyTorch"):
        export(model, tmp_path / f"m{suffix}")
    assert not (tmp_path / f"m{suffix}").exists()


def test_other_files_and_endings_are_refused(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.onnx, \.xml, \.pt2, \.torchscript"):
        export(model, tmp_path / "m.tflite")
    (tmp_path / "m.pt2").write_text("something else")
    with pytest.raises(InputError, match="overwrite"):
        export(model, tmp_path / "m.pt2")
    export(model, tmp_path / "m.pt2", overwrite=True)
    export(model, tmp_path / "m.pt2")  # one of our own


def test_the_command_writes_all_of_them_and_a_table(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    small = {"evaluations": 1, "epochs": 1, "final_epochs": 1, "channels": 2, "cells": 1, "beside": False}
    search("random", data="digits", run=tmp_path / "run", **small)
    files = [str(tmp_path / f"m{suffix}") for suffix in (".onnx", ".pt2")]
    found = printed(["export", str(tmp_path / "run"), *files, "--json"])
    assert [one["format"] for one in found["files"]] == ["ONNX", "torch.export"]
    assert all(one["difference"] < 1e-4 and one["bytes"] > 1000 for one in found["files"])
    found = printed(["export", str(tmp_path / "run"), str(tmp_path / "int8.onnx"), "--int8", "--json"])
    assert found["files"][0]["difference"] > 0


def test_every_format_is_in_the_one_table() -> None:
    page = (Path(__file__).parents[1] / "docs" / "export.md").read_text()
    assert "<!-- the formats -->" in page
    assert all(one.name and one.runs for one in FORMATS.values())
