"""Models, ONNX files, weights to start from, and texts of architectures."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from helpers.wrong_data import architecture_cases
from helpers.wrong_files import DAMAGE, Place, Site, altered, fact_cases, onnx_fact_cases
from helpers.wrong_options import NONSENSE, SOUND


def save_with_facts(source: Path, target: Path, text: str | None) -> None:
    save_file(load_file(source), target, metadata=None if text is None else {"archwright": text})


@pytest.mark.parametrize(("place", "new"), list(fact_cases()))
def test_a_model_with_other_facts_is_refused(place: Place, new: Any, refused: Any, site: Site) -> None:
    folder = site.copy()
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["archwright"])
    save_with_facts(path, path, json.dumps(altered(facts, place, new)))
    assert "model.safetensors" in refused("predict", path, "image.png")


@pytest.mark.parametrize(("place", "new"), list(onnx_fact_cases()))
def test_an_onnx_file_with_other_facts_is_refused(
    place: Place, new: Any, refused: Any, site: Site, onnx_bytes: bytes
) -> None:
    import onnx

    folder, graph = site.copy(), onnx.load_from_string(onnx_bytes)
    for entry in graph.metadata_props:
        if entry.key == "archwright":
            entry.value = json.dumps(altered(json.loads(entry.value), place, new))
    (folder / "model.onnx").write_bytes(graph.SerializeToString())
    assert "model.onnx" in refused("predict", "model.onnx", "image.png")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["model.safetensors", "image.png", "table.json"])
def test_a_damaged_file_is_refused(name: str, damage: str, refused: Any, site: Site) -> None:
    path = site.copy() / name
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    command = ["search", "binas", "--latency-table", name] if name == "table.json" else ["predict", *SOUND["predict",]]
    assert name in refused(*command)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_onnx_file_is_refused(damage: str, refused: Any, site: Site, onnx_bytes: bytes) -> None:
    path = site.copy() / "model.onnx"
    path.write_bytes(DAMAGE[damage](onnx_bytes))
    assert "model.onnx" in refused("predict", path, "image.png")


def test_a_foreign_onnx_graph_is_refused(refused: Any, site: Site, onnx_bytes: bytes) -> None:
    import onnx

    folder, graph = site.copy(), onnx.load_from_string(onnx_bytes)
    facts = list(graph.metadata_props)
    for name, inputs in (("no inputs", []), ("other inputs", ["x"])):
        shape = onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, 3])
        given = [onnx.helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, [1, 3]) for one in inputs]
        constant = onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1, 3], [0.0] * 3)
        node = (
            onnx.helper.make_node("Identity", inputs, ["logits"])
            if inputs
            else onnx.helper.make_node("Constant", [], ["logits"], value=constant)
        )
        other = onnx.helper.make_model(
            onnx.helper.make_graph([node], name, given, [shape]), opset_imports=[onnx.helper.make_opsetid("", 17)]
        )
        other.metadata_props.extend(facts)
        other.ir_version = 8
        (folder / "model.onnx").write_bytes(other.SerializeToString())
        assert "model.onnx" in refused("predict", "model.onnx", "image.png")


def weight_damage() -> dict[str, Callable[[dict[str, torch.Tensor]], object]]:
    first = "stem.0.weight"
    return {
        "none": lambda state: state.clear(),
        "one missing": lambda state: state.pop(first),
        "one more": lambda state: state.update(more=torch.zeros(3)),
        "another shape": lambda state: state.update({first: torch.zeros(2, 2)}),
        "transposed": lambda state: state.update({first: state[first].flatten()}),
        "not a number": lambda state: state.update({first: state[first] * math.nan}),
        "infinite": lambda state: state.update({first: state[first] / 0}),
        "one number each": lambda state: state.update({name: torch.zeros(()) for name in state}),
    }


@pytest.mark.parametrize("damage", weight_damage())
def test_other_weights_are_refused(damage: str, refused: Any, site: Site) -> None:
    path = site.copy() / "model.safetensors"
    state = load_file(path)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    weight_damage()[damage](state)
    save_file(state, path, metadata=metadata)
    assert "model.safetensors" in refused("predict", path, "image.png")


@pytest.mark.parametrize("facts", [None, "", "{", "[]", "null", "{}", '"text"', "[" * 100_000])
def test_a_safetensors_file_without_facts_is_refused(facts: str | None, refused: Any, site: Site) -> None:
    path = site.copy() / "model.safetensors"
    save_with_facts(path, path, facts)
    assert "model.safetensors" in refused("predict", path, "image.png")


@pytest.mark.parametrize(
    "start",
    [
        "",
        "None",
        "resnet50",
        "efficientnet-lite9",
        "model.safetensors",
        "mobilenetv2_100.safetensors",
        "a/b",
        NONSENSE,
        "\0",
    ],
)
def test_weights_that_are_none_are_refused(start: str, refused: Any) -> None:
    refused("search", "binas", "--data", "digits", "--pretrained", start)


@pytest.mark.parametrize("content", [b"", b"\x80\x04]\x94.", b"\xff" * 64, b"\x08" + 7 * b"\0" + b'{"a":1} '])
@pytest.mark.parametrize("name", ["efficientnet_lite0.safetensors", "efficientnet_lite0.pth"])
def test_a_file_that_has_no_weights_is_refused(name: str, content: bytes, refused: Any, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert "efficientnet_lite0" in refused("search", "binas", "--data", "digits", "--pretrained", name)


@pytest.mark.parametrize(("space", "text"), list(architecture_cases()))
def test_a_text_that_is_no_architecture_is_refused(space: str, text: str, refused: Any) -> None:
    refused("score", "--space", space, "--", text)
