"""int8 as an answer: of any method, in ensembles, in a script without the package; and what is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

pytest.importorskip("onnxruntime")

import archwright as aw
from archwright.data.request import DataRequest, load_data
from archwright.ensembles import Ensemble
from archwright.errors import InputError
from archwright.models import Model, load_classifier, load_member
from archwright.quantise import CALIBRATION_IMAGES
from archwright.search.answer import Answer
from archwright.search.calibration import calibration_images, in_turn
from archwright.search.limited import time_again
from helpers.told import Told

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bright and dark pictures, with some noise."""
    root, rng = tmp_path_factory.mktemp("images") / "photos", np.random.default_rng(0)
    for name, low in (("bright", 90), ("dark", 60)):
        (root / name).mkdir(parents=True)
        for number in range(40):
            pixels = rng.integers(low, low + 60, (16, 16, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number:02d}.png")
    return root


def searched(folder: Path, photos: Path, **settings: Any) -> Answer:
    known: dict[str, Any] = {"data": f"folder:{photos}", "space": "nasbench201", "channels": 4, "cells": 1}
    return aw.search("random", run=folder, evaluations=1, epochs=1, threads=1, **known, **settings)


@pytest.fixture(scope="module")
def found(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Answer:
    return searched(tmp_path_factory.mktemp("runs") / "int8", photos, precision="int8")


def loaded(found: Answer) -> Model:
    model = found.best.load()
    assert isinstance(model, Model)
    return model


def test_the_answer_of_any_method_is_its_int8_file(found: Answer, photos: Path) -> None:
    assert found.best.precision == "int8"
    model, files = loaded(found), sorted(photos.rglob("*.png"))
    assert model.int8 is not None
    assert model.measured["precision"] == "int8"
    assert model.measured["calibration"]["images"] == 48
    onnx = load_classifier(found.folder / str(found.best.onnx))
    ours, theirs = model.predict(files), onnx.predict(files)
    assert [one.label for one in ours] == [one.label for one in theirs]
    in_float = Model(model.network, model.space, model.architecture, model.scale, model.preprocessing)
    assert ours[0].probability != in_float.predict(files[:1])[0].probability


def test_a_script_that_knows_nothing_of_the_package_finds_the_same_accuracy(found: Answer, photos: Path) -> None:
    script = ROOT / "examples" / "check_onnx.py"
    assert "import archwright" not in script.read_text()
    assert "from archwright" not in script.read_text()
    command = [sys.executable, str(script), str(found.folder / str(found.best.onnx)), str(photos)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0].startswith("int8 network for 16 px images")
    assert said[1].split()[0] == said[2].split()[0] == f"{found.best.accuracy:.4f}"


def test_weights_without_their_int8_file_are_refused(found: Answer, tmp_path: Path) -> None:
    (tmp_path / "alone.safetensors").write_bytes((found.folder / str(found.best.model)).read_bytes())
    with pytest.raises(InputError, match=r"alone\.onnx beside it, got no such file"):
        load_member(tmp_path / "alone.safetensors")


@pytest.mark.parametrize("mean", ["probabilities", "logits"])
def test_ensembles_answer_by_the_files_of_their_members(found: Answer, mean: Any, tmp_path: Path) -> None:
    one = loaded(found)
    other = Model(one.network, one.space, one.architecture, one.scale, one.preprocessing)  # the same in float
    both = Ensemble((one, other), mean)
    images = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    parts = torch.stack([one.probabilities(images), other.probabilities(images)])
    wanted = parts.mean(0) if mean == "probabilities" else parts.log().mean(0).softmax(1)
    assert torch.allclose(both.probabilities(images), wanted, atol=1e-5)
    assert not torch.allclose(parts[0], parts[1], atol=1e-5)
    both.save(tmp_path / "both")
    again = aw.load_model(tmp_path / "both")
    assert torch.equal(again.probabilities(images), both.probabilities(images))
    both.export(tmp_path / "both.onnx")
    assert torch.allclose(load_classifier(tmp_path / "both.onnx").probabilities(images), wanted, atol=1e-4)


def test_any_takes_int8_where_it_is_not_clearly_less_accurate(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert searched(tmp_path / "any", photos, precision="any").best.precision == "int8"
    monkeypatch.setattr("archwright.search.final.clearly_lower", lambda *_: True)
    assert searched(tmp_path / "float", photos, precision="any").best.precision is None


def test_precision_needs_a_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--precision without --data"):
        aw.search("random", run=tmp_path / "run", benchmark="nb201", precision="int8")


def test_calibration_images_are_of_every_class_in_turn() -> None:
    labels = np.array([0] * 90 + [1] * 3 + [2] * 7)
    chosen = in_turn(labels, 10)
    assert np.bincount(labels[chosen]).tolist() == [4, 3, 3]
    assert len(set(chosen.tolist())) == 10
    assert in_turn(labels, 1000).tolist() == list(range(100))
    assert set(labels[in_turn(labels, 2)].tolist()) == {0, 1}


def test_classes_without_a_calibration_image_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    data, told = load_data(DataRequest("digits", seed=0)), Told()
    assert len(calibration_images(data, told)) == CALIBRATION_IMAGES
    assert not told.lines
    monkeypatch.setattr("archwright.search.calibration.CALIBRATION_IMAGES", 8)
    assert len(calibration_images(data, told)) == 8
    missing = sorted(set(range(10)) - set(data.train.labels[in_turn(data.train.labels, 8)].tolist()))
    assert len(missing) == 2
    assert told.lines == [f"int8 is calibrated without images of {missing[0]}, {missing[1]}."]


@pytest.mark.slow
def test_small_networks_from_scratch_in_int8(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": "digits", "minutes": 1.5, "threads": 1, "beside": False, "latency_repeats": 5}
    found = aw.search("binas", run=tmp_path / "run", precision="int8", **settings)
    assert all(one.precision == "int8" for one in found.models)
    assert {type(one.load().int8) for one in found.models} == {bytes}
    assert len(time_again(found.folder, times=1)) == len(found.models)
