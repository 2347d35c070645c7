"""Timing: what is called how often, what is restored, what is refused."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
import torch
from torch import nn

from archwright.costs.measure import (
    Latency,
    Stopwatch,
    Timing,
    device_name,
    measure,
    time_calls,
    torch_threads,
    versions,
)
from archwright.errors import InputError


def test_quantiles_of_known_times() -> None:
    clock = iter([0, 1_000_000, 0, 2_000_000, 0, 3_000_000, 0, 4_000_000, 0, 100_000_000])
    calls: list[int] = []
    latency = Latency.of(time_calls(lambda: calls.append(1), warm_up=2, repeats=5, clock=lambda: next(clock)))
    assert len(calls) == 7
    assert latency.median_ms == 3.0
    assert latency.low_ms == pytest.approx(1.4)
    assert latency.high_ms == pytest.approx(4 + 0.6 * 96)


def test_threads_are_restored() -> None:
    before = torch.get_num_threads()
    with torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


class Spy(nn.Module):
    """Writes down how it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)
        self.seen: list[tuple[Any, ...]] = []

    def __deepcopy__(self, memo: object) -> Spy:
        copied = Spy()
        copied.seen = self.seen
        return copied.train(self.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append((self.training, torch.is_grad_enabled(), tuple(x.shape), torch.get_num_threads()))
        out: torch.Tensor = self.layer(x)
        return out


def test_eager_runs_in_evaluation_mode_without_gradients() -> None:
    spy = Spy().train()
    measure(spy, (3, 6, 6), Timing(threads=2, batch=5, warm_up=1, repeats=2))
    assert spy.seen == [(False, False, (5, 3, 6, 6), 2)] * 3
    assert spy.training


def test_module_keeps_its_dtype() -> None:
    module = nn.Conv2d(3, 4, 1)
    assert measure(module, (3, 6, 6), Timing(dtype="bfloat16", warm_up=0, repeats=2)).median_ms > 0
    assert module.weight.dtype == torch.float32


def test_onnxruntime() -> None:
    pytest.importorskip("onnxruntime")
    latency = measure(nn.Conv2d(3, 4, 3), (3, 8, 8), Timing(backend="onnxruntime", warm_up=1, repeats=5))
    assert 0 < latency.low_ms <= latency.median_ms <= latency.high_ms


def test_missing_extra_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "onnxruntime":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install 'archwright\[onnx\]'"):
        measure(nn.Conv2d(3, 4, 3), (3, 8, 8), Timing(backend="onnxruntime"))


@pytest.mark.parametrize(
    "bad",
    [
        {"backend": "tensorrt"},
        {"dtype": "int8"},
        {"threads": 0},
        {"batch": 0},
        {"repeats": 0},
        {"backend": "onnxruntime", "dtype": "float16"},
    ],
)
def test_bad_settings(bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Timing(**bad)


def test_provenance() -> None:
    assert device_name()
    assert versions("eager")["torch"] == torch.__version__


def test_training_steps_have_gradients_and_leave_the_weights() -> None:
    module = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
    before = [parameter.clone() for parameter in module.parameters()]
    watch = Stopwatch(module, (8, 4, 4), Timing(batch=4, warm_up=0, training=True))
    assert (watch.times_ms(3) > 0).all()
    inside = watch._module
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in inside.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, inside.parameters(), strict=True))
    with pytest.raises(InputError, match="eager"):
        Timing(backend="onnxruntime", training=True)
