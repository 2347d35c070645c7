"""Back ends: the same answers from all of them, one error where one is missing, and others' own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from archwright.costs import backends as module
from archwright.costs.backends import Backend, Program, find_backend
from archwright.costs.measure import Timing, measure
from archwright.costs.registry import backends, default_backend
from archwright.errors import InputError
from archwright.quantise import to_onnx

EXAMPLE = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval()


def installed() -> list[str]:
    found = []
    for entry in backends:
        try:
            find_backend(entry.name).check()
        except InputError:
            continue
        found.append(entry.name)
    return found


@pytest.mark.parametrize("name", [entry.name for entry in backends])
def test_every_back_end_says_what_it_is(name: str) -> None:
    made = find_backend(name)
    assert made.name == name
    assert made.words
    assert "fp32" in made.precisions
    assert ("int8" in made.precisions) == ("int8" in made.dtypes)


@pytest.mark.parametrize("name", installed())
def test_every_installed_back_end_gives_the_networks_answer(name: str) -> None:
    made = find_backend(name)
    wanted = network()(EXAMPLE).detach()
    for dtype in {"float32", "int8"} & set(made.dtypes):
        program = made.compile(network(), EXAMPLE.clone(), threads=1, dtype=dtype, processor="cpu")
        answer: Any = program()
        if answer is None:
            continue  # PyTorch's are not looked at
        first = torch.as_tensor(next(iter(answer.values())) if hasattr(answer, "values") else answer[0])
        assert float((first - wanted).abs().max()) < (1e-4 if dtype == "float32" else 0.05)
        assert measure(network(), (3, 8, 8), Timing(name, dtype=dtype, warm_up=1, repeats=3)).median_ms > 0


def test_a_file_is_timed_as_it_is() -> None:
    pytest.importorskip("onnxruntime")
    content = to_onnx(network(), EXAMPLE)
    assert measure(content, (3, 8, 8), Timing("onnxruntime", warm_up=1, repeats=3)).median_ms > 0
    with pytest.raises(InputError, match="runs ONNX files"):
        measure(content, (3, 8, 8), Timing("eager", warm_up=1, repeats=3))


def test_what_is_missing_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "openvino" else object())
    with pytest.raises(InputError, match=r"archwright\[openvino\]"):
        find_backend("openvino").check()
    with pytest.raises(InputError, match="backend"):
        Timing("no-such-thing")


def test_a_gpu_that_is_not_there_is_said() -> None:
    runtime = pytest.importorskip("onnxruntime")
    if "CUDAExecutionProvider" in runtime.get_available_providers():
        pytest.skip("there is one")
    for name in ("onnxruntime-cuda", "onnxruntime-tensorrt"):
        with pytest.raises(InputError, match="ExecutionProvider"):
            find_backend(name).check()


def test_the_default_is_what_people_deploy_with(monkeypatch: pytest.MonkeyPatch) -> None:
    from archwright.costs import registry

    monkeypatch.setattr(registry, "find_spec", lambda name: object())
    assert default_backend() == "onnxruntime"
    assert default_backend("cuda") == "eager"
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    assert default_backend() == "eager"


class Counting(Backend):
    """Somebody's own: it counts its calls."""

    name = "counting"
    words = "counted"
    calls = 0

    def compile(self, network: nn.Module, example: Tensor, *, threads: int, dtype: str, processor: str) -> Program:
        def call() -> None:
            Counting.calls += 1

        return call


def test_a_third_party_adds_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(backends.entries, "counting", backends.entries["eager"])
    monkeypatch.setattr(type(backends), "get", lambda self, name: Counting)
    measure(network(), (3, 8, 8), Timing("counting", warm_up=2, repeats=3))
    assert Counting.calls == 5
    with pytest.raises(InputError, match="dtype float32"):
        Timing("counting", dtype="int8")
