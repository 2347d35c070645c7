"""Mixed precision reaches every step and evaluation; float16 is scaled; settings that do nothing are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import archwright as aw
from archwright import numerics
from archwright.errors import InputError
from archwright.numerics import PLAIN, Numerics, autocast, backward, gradients, use, using

CPU = torch.device("cpu")
FEW: dict[str, Any] = {"data": "random:classes=3,size=8,channels=1,count=120", "channels": 4, "cells": 1, "epochs": 1}
SHARED = {"supernet_epochs": 1, "supernet_batch": 32}
SEARCHES: dict[str, dict[str, Any]] = {
    "random": {"evaluations": 1},
    "rarts": {"search_epochs": 1, "search_batch": 32},
    "darts": {"search_epochs": 1, "search_batch": 32, "order": 2},
    "nasi": {"steps": 1, "nu_samples": 1, "proxy_batch": 16},
    "rsps": {**SHARED, "measurements": 2, "images": 32},
    "nesbs": {**SHARED, "posterior_epochs": 1, "sampler": "mc", "candidates": 2, "size": 2},
}


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    yield
    use(PLAIN, CPU)


@pytest.fixture
def computed_in(monkeypatch: pytest.MonkeyPatch) -> set[tuple[bool, torch.dtype]]:
    """Whether gradients were on, and the type, of every convolution."""
    seen: set[tuple[bool, torch.dtype]] = set()
    convolve = F.conv2d

    def noting(*arguments: Any, **named: Any) -> Tensor:
        result: Tensor = convolve(*arguments, **named)
        seen.add((torch.is_grad_enabled(), result.dtype))
        return result

    monkeypatch.setattr(F, "conv2d", noting)
    return seen


@pytest.mark.parametrize("method", SEARCHES)
def test_every_step_and_evaluation_is_mixed(method: str, tmp_path: Path, computed_in: set[Any]) -> None:
    result = aw.search(
        method, run=tmp_path / "run", amp=True, final_epochs=1, beside=False, **FEW, options=SEARCHES[method]
    )
    assert result.best.accuracy is not None
    assert {(True, torch.bfloat16), (False, torch.bfloat16)} <= computed_in
    timed = {(False, torch.float32)} if method == "nesbs" else set()  # the ensemble's report has a latency
    assert {one for one in computed_in if one[1] is not torch.bfloat16} <= timed


def test_an_elastic_supernet_computes_mixed(computed_in: set[Any]) -> None:
    import numpy as np

    from archwright.spaces.mbconv import SCALES, MbConv
    from archwright.supernets.elastic import ElasticSupernet, deal

    space = MbConv(SCALES["mbconv-8"].changed(classes=3))
    supernet = ElasticSupernet(space).train()
    paths = deal(8, np.random.default_rng(0), space.scale)
    with using(Numerics(amp=True), CPU), autocast(CPU):
        loss = F.cross_entropy(supernet(torch.randn(8, 1, 8, 8), paths), torch.arange(8) % 3)
    loss.backward()
    assert all(weight.grad is None or weight.grad.dtype == torch.float32 for weight in supernet.parameters())
    assert {kind for _, kind in computed_in} == {torch.bfloat16}


def test_the_settings_are_the_process_own_and_put_back() -> None:
    assert numerics.current() == PLAIN
    with using(Numerics(amp=True), CPU):
        assert numerics.current().amp
        with autocast(CPU):
            assert torch.is_autocast_enabled("cpu")
    with autocast(CPU):
        assert not torch.is_autocast_enabled("cpu")
    with autocast(CPU, "bfloat16"):
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    for idle in (Numerics(tf32=True), Numerics(cudnn_benchmark=True)):
        with pytest.raises(InputError, match="for NVIDIA GPUs"):
            use(idle, CPU)
    with pytest.raises(InputError, match="--tf32 on cpu"):
        aw.search("random", data="digits", tf32=True, device="cpu")


class Small(nn.Module):
    """A function with gradients of 1e-8, which float16 does not have."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))

    def forward(self, factor: float) -> Tensor:
        """factor |w|^2, computed as halves are."""
        half = self.weight.half()
        return (half * half).sum().float() * factor


def test_small_gradients_survive_in_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Small()
    network(2e-8).backward()
    assert (network.weight.grad == 0).all()  # lost
    network.weight.grad = None
    monkeypatch.setattr(numerics, "mixed_type", lambda device: torch.float16)
    with using(Numerics(amp=True), CPU):
        backward(network(2e-8), network.parameters)
        assert network.weight.grad.tolist() == pytest.approx([4e-8, 8e-8], rel=0.01)
        (found,) = gradients(network(2e-8), [network.weight])
        assert found.tolist() == pytest.approx([4e-8, 8e-8], rel=0.01)
        network.weight.grad = None
        backward(network(1e4), network.parameters)  # 4096 times that is more than float16 holds
        assert network.weight.grad is None
        assert gradients(network(1e4), [network.weight])[0].tolist() == [0, 0]


def test_a_compiled_network_trains_as_one_that_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(torch, "compile", lambda network: asked.append(network) or network)
    settings = {**FEW, "final_epochs": 1, "options": {"evaluations": 1}}
    compiled = aw.search("random", run=tmp_path / "one", compile=True, **settings)
    plain = aw.search("random", run=tmp_path / "two", **settings)
    assert len(asked) == 2  # the evaluation and the answer
    assert compiled.best.accuracy == plain.best.accuracy
