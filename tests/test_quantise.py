"""int8 files: against ONNX Runtime's own whole procedure, against arithmetic by hand, and what is refused."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("onnxruntime")

from archwright import quantise as quantise_module
from archwright.errors import InputError
from archwright.quantise import (
    Calibrated,
    CannotQuantise,
    clearly_lower,
    quantise,
    run_logits,
    session,
    to_onnx,
    weight_steps,
)


def small(seed: int = 0) -> nn.Module:
    """Two convolutions and a classifier; its norms have seen data."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU()]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    network(torch.randn(32, 3, 8, 8))
    return network.eval()


IMAGES = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def graph(network: nn.Module) -> Calibrated:
    return Calibrated(to_onnx(network, IMAGES[:1]), IMAGES.numpy())


def test_the_file_is_what_the_whole_procedure_of_onnx_runtime_makes(tmp_path: Path) -> None:
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.batches = iter([{"images": IMAGES[start : start + 10].numpy()} for start in range(0, 40, 10)])

        def get_next(self) -> Any:
            return next(self.batches, None)

    content = to_onnx(small(), IMAGES[:1])
    quantize_static(
        onnx.load_from_string(content),
        tmp_path / "theirs.onnx",
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=True,
        reduce_range=weight_steps() < 127,
    )
    ours = run_logits(session(Calibrated(content, IMAGES.numpy()).quantised().content), IMAGES)
    theirs = run_logits(session((tmp_path / "theirs.onnx").read_bytes()), IMAGES)
    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, small()(IMAGES))


def test_one_layer_by_hand() -> None:
    """A 1x1 convolution: images to 255 steps, weights to 127 or 64 a channel, the answer to 255 steps again."""
    torch.manual_seed(3)
    layer = nn.Conv2d(3, 4, 1, bias=False)
    found = run_logits(session(graph(layer).quantised().content), IMAGES[:8])

    def steps(values: Tensor, low: float, high: float) -> Tensor:
        low, high = min(low, 0.0), max(high, 0.0)
        scale = (high - low) / 255
        zero = round(-low / scale)
        return scale * ((values / scale).round() + zero).clamp(0, 255).sub(zero)

    weight = layer.weight.detach()
    scales = weight.abs().amax((1, 2, 3), keepdim=True) / weight_steps()
    rounded = scales * (weight / scales).round()
    with torch.no_grad():
        every = layer(IMAGES)
    seen = steps(IMAGES, float(IMAGES.min()), float(IMAGES.max()))[:8]
    wanted = steps(nn.functional.conv2d(seen, rounded), float(every.min()), float(every.max()))
    step = float(every.max() - every.min()) / 255
    assert float((found - wanted).abs().max()) <= step * 1.01  # a tie may round to the other side
    assert float(((found - wanted).abs() > step / 2).float().mean()) < 0.01


@pytest.mark.parametrize(("cut_off", "steps"), [(False, 127), (True, 64)])
def test_weights_have_fewer_steps_where_the_processor_cuts_sums_off(
    cut_off: bool, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on x86 without VNNI, where two products are added in 16 bits."""

    class Processor:
        def run(self, _: None, given: dict[str, np.ndarray]) -> list[np.ndarray]:
            pair = 2 * 127 * int(given["images"][0, 0])
            return [np.array([[2 * (min(pair, 2**15 - 1) if cut_off else pair)]])]

    monkeypatch.setattr(quantise_module, "session", lambda _: Processor())
    monkeypatch.setattr(quantise_module, "weight_steps", weight_steps.__wrapped__)
    assert weight_steps.__wrapped__() == steps
    monkeypatch.undo()
    made = graph(small())
    monkeypatch.setattr(quantise_module, "weight_steps", lambda: steps)
    import onnx

    weights = [
        onnx.numpy_helper.to_array(one)
        for one in onnx.load_from_string(made.quantised().content).graph.initializer
        if one.data_type == onnx.TensorProto.INT8 and one.dims
    ]
    assert max(int(np.abs(one.astype(int)).max()) for one in weights if one.size > 8) == steps
    assert made.quantised().facts()["calibration"]["weight_steps"] == steps


def test_layers_and_what_stays_in_float() -> None:
    import onnx

    made = graph(small())
    assert len(made.layers) == 3
    kept = made.quantised((made.layers[0],))
    types = {one.name: one.data_type for one in onnx.load_from_string(kept.content).graph.initializer}
    assert list(types.values()).count(onnx.TensorProto.INT8) < list(
        {one.name: one.data_type for one in onnx.load_from_string(made.quantised().content).graph.initializer}.values()
    ).count(onnx.TensorProto.INT8)
    assert kept.facts()["float_layers"] == [made.layers[0]]
    with pytest.raises(InputError, match="nothing-of-it"):
        made.quantised(("nothing-of-it",))


def test_the_facts_say_what_it_was_calibrated_on() -> None:
    facts = graph(small()).quantised().facts()
    digest = hashlib.sha256(IMAGES.numpy().tobytes()).hexdigest()
    assert facts == {
        "precision": "int8",
        "calibration": {"method": "minmax", "images": 40, "sha256": digest, "weight_steps": weight_steps()},
        "float_layers": [],
        "float_operators": [],
    }


def test_equal_biases_leave_no_layer_in_float() -> None:
    """The exporter writes them once: layers that share one were left in float, and seemed slow."""
    import onnx

    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 1))
    for layer in network[::2]:
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    content = graph(network.eval()).quantised().content
    weights = [one for one in onnx.load_from_string(content).graph.initializer if len(one.dims) == 4]
    biases = [
        one for one in onnx.load_from_string(content).graph.initializer if one.data_type == onnx.TensorProto.INT32
    ]
    assert [one.data_type for one in weights] == [onnx.TensorProto.INT8] * 3
    assert len([one for one in biases if one.name.endswith("_quantized")]) == 3


def test_an_operator_that_is_refused_is_named() -> None:
    class Wave(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    found = graph(nn.Sequential(nn.Conv2d(3, 4, 1), Wave(), nn.Conv2d(4, 4, 1)).eval()).quantised()
    assert found.float_operators == ("Sin",)
    assert torch.isfinite(run_logits(session(found.content), IMAGES)).all()


def test_what_cannot_be_quantised_is_an_error() -> None:
    broken = small()
    nn.init.constant_(broken[0].weight, float("nan"))  # type: ignore[index]
    with pytest.raises(CannotQuantise, match="NaN or infinite"):
        graph(broken)
    with pytest.raises(CannotQuantise, match="without any"):
        quantise(to_onnx(nn.ReLU(), IMAGES[:1]), IMAGES.numpy())
    with pytest.raises(InputError, match="calibration images"):
        Calibrated(to_onnx(small(), IMAGES[:1]), IMAGES.numpy()[:0])


@pytest.mark.parametrize(
    ("lost", "gained", "clearly"), [(0, 0, False), (4, 0, False), (5, 0, True), (10, 3, False), (12, 3, True)]
)
def test_clearly_lower(lost: int, gained: int, clearly: bool) -> None:
    """lost - gained > 2 sqrt(lost + gained)"""
    right = np.array([True] * lost + [False] * gained + [True] * 50)
    other = np.array([False] * lost + [True] * gained + [True] * 50)
    assert clearly_lower(right, other) is clearly


class Judge:
    """Answers by which layers are in float: a file is right on all images where ``needed`` of them are."""

    def __init__(self, made: Calibrated, needed: set[str]) -> None:
        self.float_bytes, self.needed, self.asked = made.content, needed, 0

    def in_int8(self, content: bytes) -> set[str]:
        """The layers whose weights are stored as int8."""
        import onnx

        model = onnx.load_from_string(content)
        int8 = {one.name for one in model.graph.initializer if one.data_type == onnx.TensorProto.INT8}
        read = {
            node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in int8
        }
        return {node.name for node in model.graph.node if len(node.input) > 1 and node.input[1] in read}

    def answers(self, content: bytes) -> np.ndarray[Any, Any]:
        self.asked += 1
        good = content == self.float_bytes or not (self.in_int8(content) & self.needed)
        return np.arange(100) < (95 if good else 60)

    def loss(self, content: bytes) -> float:
        return float(len(self.in_int8(content) & self.needed))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_layers_that_cost_accuracy_stay_in_float(number: int) -> None:
    made = graph(small())
    judge = Judge(made, {made.layers[number]})
    found = quantise(made.content, IMAGES.numpy(), judge.answers, judge.loss)
    wanted = {0: (made.layers[0],), 2: (made.layers[2],), 1: (made.layers[0], made.layers[2], made.layers[1])}
    assert found.float_layers == wanted[number]


def test_nothing_stays_in_float_without_a_reason() -> None:
    made = graph(small())
    judge = Judge(made, set())
    assert quantise(made.content, IMAGES.numpy(), judge.answers, judge.loss).float_layers == ()
    assert judge.asked == 2
