"""ONNX files: the same answers as PyTorch, all facts in the metadata, and clear errors for everything else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from archwright.cli.main import cli, main
from archwright.data import load as load_images
from archwright.errors import InputError, RunError
from archwright.export import OnnxClassifier
from archwright.models import Model, load_classifier, load_model
from archwright.spaces.mbconv import MbConv, scale_for

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def model() -> Model:
    data = load_images("digits", seed=0)
    space = MbConv(scale_for(8, 10, 1))
    torch.manual_seed(0)
    architecture = space.sample(np.random.default_rng(0))
    return Model(space.build(architecture, space.scale), "mbconv", architecture, space.scale, data.preprocessing)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "some.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (13, 9, 3), dtype=np.uint8)).save(path)
    return path


def test_an_mbconv_model_comes_back_from_both_files_with_the_same_answers(model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m.safetensors")
    assert model.export(tmp_path / "m.onnx") < 1e-5
    images = torch.randn(5, 1, 8, 8)
    expected = model.probabilities(images)
    loaded = load_model(tmp_path / "m.safetensors")
    assert (loaded.architecture, loaded.scale) == (model.architecture, model.scale)
    assert torch.equal(loaded.probabilities(images), expected)
    for count in (1, 5):  # the batch size is free
        assert torch.allclose(
            load_classifier(tmp_path / "m.onnx").probabilities(images[:count]), expected[:count], atol=1e-5
        )


def test_the_metadata_says_how_to_use_the_file(model: Model, tmp_path: Path) -> None:
    model.export(tmp_path / "m.onnx")
    found = {one.key: json.loads(one.value) for one in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert found["class_names"] == [str(digit) for digit in range(10)]
    assert found["image_size"] == 8
    assert found["mean"] == list(model.preprocessing.mean)
    assert found["std"] == list(model.preprocessing.std)
    assert found["archwright"]["architecture"] == str(model.architecture)
    for word in ("EXIF", "white", "grey", "crop", "bilinear", "255", "mean", "std"):
        assert any(word in step for step in found["preprocessing"]), word


def test_the_command_predicts_the_same_with_either_file(
    model: Model, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model.save(tmp_path / "m.safetensors")
    model.export(tmp_path / "m.onnx")
    answers = []
    for name in ("m.safetensors", "m.onnx"):
        cli.main(["predict", str(tmp_path / name), str(image), "--json"], standalone_mode=False)
        answers.append(json.loads(capsys.readouterr().out.splitlines()[-1])["predictions"][0])
    assert answers[0]["class"] == answers[1]["class"]
    assert answers[0]["probability"] == pytest.approx(answers[1]["probability"], abs=1e-5)


def test_files_that_are_no_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="an ONNX file"):
        load_classifier(tmp_path / "missing.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    with pytest.raises(InputError, match="an ONNX file"):
        load_classifier(tmp_path / "broken.onnx")
    torch.onnx.export(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), str(tmp_path / "foreign.onnx"), dynamo=False)
    with pytest.raises(InputError, match="written by archwright"):
        load_classifier(tmp_path / "foreign.onnx")


def test_without_the_extra_the_error_says_how_to_install_it(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InputError, match=r"archwright\[onnx\]"):
        model.export(tmp_path / "m.onnx")
    with pytest.raises(InputError, match=r"archwright\[onnx\]"):
        OnnxClassifier(tmp_path / "m.onnx")
    with pytest.raises(SystemExit) as left:
        main(["predict", str(tmp_path / "m.onnx"), "some.png"])
    assert left.value.code == 2
    assert "archwright[onnx]" in capsys.readouterr().err


def test_graphs_that_ours_never_are_are_refused(model: Model, tmp_path: Path) -> None:
    model.export(tmp_path / "m.onnx")
    graph = onnx.load(tmp_path / "m.onnx")
    weight = graph.graph.initializer[0]

    def refused(match: str, error: type[Exception] = InputError) -> None:
        (tmp_path / "other.onnx").write_bytes(graph.SerializeToString())
        with pytest.raises(error, match=match):
            OnnxClassifier(tmp_path / "other.onnx").probabilities(torch.zeros(1, 1, 8, 8))

    kept, shape = weight.raw_data, list(weight.dims)
    weight.CopyFrom(onnx.numpy_helper.from_array(np.full(shape, np.nan, np.float32), weight.name))
    refused("finite class probabilities", RunError)
    weight.CopyFrom(onnx.numpy_helper.from_array(np.frombuffer(kept, np.float32).reshape(shape), weight.name))
    weight.data_location = onnx.TensorProto.EXTERNAL
    refused("other files")
    weight.data_location = onnx.TensorProto.DEFAULT
    graph.graph.node.add().op_type = "Loop"
    refused("without loops")
