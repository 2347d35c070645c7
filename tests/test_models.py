from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from archwright.data import Preprocessing
from archwright.data import load as load_images
from archwright.errors import InputError, RunError
from archwright.models import Model, load_model
from archwright.runs.run import Run
from archwright.spaces.nasbench201 import NASBENCH201

CELL = NASBENCH201.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_1x1~2|")


@pytest.fixture
def model() -> Model:
    data = load_images("digits", seed=0)
    scale = NASBENCH201.scales["small"].changed(
        channels=4, classes=data.classes, image_size=data.image_size, image_channels=data.image_channels
    )
    torch.manual_seed(0)
    network = NASBENCH201.build(CELL, scale)
    return Model(network, "nasbench201", CELL, scale, data.preprocessing, {"accuracy": 91.5})


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "some.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (13, 9, 3), dtype=np.uint8)).save(path)
    return path


def test_a_model_comes_back_as_it_was(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "m" / "best.safetensors"
    model.save(path)
    loaded = load_model(path)
    assert (loaded.architecture, loaded.scale, loaded.space) == (CELL, model.scale, "nasbench201")
    assert isinstance(loaded.preprocessing, Preprocessing)
    assert loaded.preprocessing == model.preprocessing
    assert loaded.measured == {"accuracy": 91.5}
    x = torch.randn(3, model.scale.image_channels, model.scale.image_size, model.scale.image_size)
    assert torch.equal(loaded.probabilities(x), model.probabilities(x))
    assert torch.allclose(loaded.probabilities(x).sum(1), torch.ones(3))
    assert json.loads(path.with_suffix(".json").read_text())["architecture"] == str(CELL)


def test_predictions_are_sorted_and_do_not_depend_on_the_batch(model: Model, image: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.png"
    Image.new("L", (30, 30), 200).save(other)
    paths = [image, other, image]
    found = model.predict(paths, top=10, batch_size=2)
    assert [one.image for one in found] == [str(path) for path in paths]
    for one in found:
        probabilities = [p for _, p in one.top]
        assert probabilities == sorted(probabilities, reverse=True)
        assert sum(probabilities) == pytest.approx(1, abs=1e-5)
        assert (one.label, one.probability) == one.top[0]
    assert found[0].label == found[2].label
    assert found[0].probability == pytest.approx(model.predict([image])[0].probability, abs=1e-6)


def test_an_unreadable_image_is_named_and_the_others_can_be_had(model: Model, image: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(image.read_bytes()[:60])
    for bad in (broken, tmp_path / "absent.png", tmp_path):
        with pytest.raises(InputError, match=f"an image file.*{bad.name}"):
            model.predict([image, bad])
        first, error, last = model.predictions([image, bad, image], batch_size=2)
        assert isinstance(error, InputError)
        assert first == last == model.predict([image])[0]


def test_something_else_is_not_a_model(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a model file"):
        load_model(tmp_path / "absent.safetensors")
    with pytest.raises(InputError, match="a model file"):
        load_model(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(RunError, match=r"expected a safetensors file in .*notes\.txt"):
        load_model(text)
    foreign = tmp_path / "foreign.safetensors"
    save_file({"w": torch.zeros(2)}, foreign)
    with pytest.raises(InputError, match="a model saved by archwright"):
        load_model(foreign)
    whole = tmp_path / "whole.safetensors"
    model.save(whole)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(whole.read_bytes()[:-50])
    with pytest.raises(RunError, match=r"cut\.safetensors"):
        load_model(cut)


def test_a_model_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.safetensors"
    save_file({"w": torch.zeros(2)}, path, metadata={"archwright": json.dumps({"format": 99})})
    with pytest.raises(RunError, match="format 1, got format 99"):
        load_model(path)


def test_a_run_without_a_model_says_why(tmp_path: Path) -> None:
    Run.create(tmp_path / "table", {"method": "random", "data": None, "benchmark": "nb201"}, {})
    with pytest.raises(InputError, match="trained no network"):
        load_model(tmp_path / "table")
    Run.create(tmp_path / "early", {"method": "random", "data": "digits"}, {})
    with pytest.raises(InputError, match=r"has not trained its network yet.*archwright runs resume"):
        load_model(tmp_path / "early")


def test_an_onnx_file_is_no_network_and_the_error_says_what_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"graph")
    with pytest.raises(InputError, match=r"archwright predict FILE\.onnx"):
        load_model(path)


def test_the_model_of_a_run_is_found_by_its_folder(model: Model, tmp_path: Path) -> None:
    run = Run.create(tmp_path / "run", {"method": "random", "data": "digits"}, {})
    model.save(run.artifact("best.safetensors"))
    assert load_model(run.folder).architecture == CELL


def altered(path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any]], object]) -> None:
    """The model at ``path`` with other weights or facts."""
    state, facts = load_file(path), json.loads(path.with_suffix(".json").read_text())
    change(state, facts)
    save_file(state, path, metadata={"archwright": json.dumps(facts)})


@pytest.mark.parametrize("value", [3e38, 1e300, math.nan, math.inf])
def test_weights_that_give_no_probabilities_are_refused(
    value: float, model: Model, image: Path, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    model.save(path)
    kind = torch.float64 if value == 1e300 else torch.float32
    altered(
        path,
        lambda state, _: state.update(
            {n: torch.full_like(t, value, dtype=kind) for n, t in state.items() if t.ndim > 1}
        ),
    )
    with pytest.raises(RunError, match=r"finite|own types"):
        load_model(path).predict([image])


@pytest.mark.parametrize("kind", [torch.int32, torch.complex64, torch.bool])
def test_weights_of_another_kind_are_refused(kind: torch.dtype, model: Model, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    model.save(path)
    altered(path, lambda state, _: state.update({n: t.to(kind) for n, t in state.items() if t.ndim > 1}))
    with pytest.raises(RunError, match="own types"):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "value"), [("mean", 1e300), ("std", 1e-320), ("std", 0.0), ("std", -1.0), ("mean", -1e9)]
)
def test_a_normalisation_that_loses_the_image_is_refused(name: str, value: float, model: Model, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    model.save(path)
    altered(path, lambda _, facts: facts["preprocessing"].update({name: [value]}))
    with pytest.raises(RunError, match="means up to"):
        load_model(path)


def test_a_variance_below_zero_gives_an_error_and_no_class(model: Model, image: Path) -> None:
    for name, tensor in model.network.named_buffers():
        if name.endswith("running_var"):
            tensor.fill_(-1.0)
    with pytest.raises(RunError, match="finite class probabilities"):
        model.predict([image])
