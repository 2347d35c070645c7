"""Options of BINAS' fine-tuning: AutoAugment and the moving average of the weights, on a network of a few steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import archwright as aw
from archwright.data import Augmentation
from archwright.device import Device
from archwright.errors import InputError
from archwright.methods.binas import paper, supernet
from archwright.methods.binas.method import Binas
from archwright.methods.binas.paper import PaperPlan
from archwright.models import load_model
from archwright.runs.run import Run
from archwright.search.configuration import Configuration
from archwright.search.context import Context
from archwright.spaces.base import Network

COLOUR = "random:classes=2,size=8,channels=3,count=60"
STEPS = 6


def prepared(folder: Path, data: str = COLOUR, **options: Any) -> PaperPlan:
    """The method on a new run; without distillation no teacher is needed."""
    values = {"method": "binas", "space": "mbconv", "data": data, "epochs": 2, "final_epochs": 2, "batch_size": 12}
    configuration = Configuration(**values, options={"plan": "paper", "distill": 0.0, **options})
    device = Device.choose("cpu", 1)
    run = Run.create(folder, configuration.model_dump(), device.describe())
    method = Binas(Context(configuration, run, device))
    method.check()
    assert isinstance(method.plan, PaperPlan)
    return method.plan


class Recorder:
    """A supernet from which one network is cut out, and a bar that keeps the network's weights after every step."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.states = [self.state()]

    def state(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.network.state_dict().items()}

    def cut_out(self, architecture: Any) -> Network:
        return self.network

    def advance(self) -> None:
        self.states.append(self.state())


def tuned(method: PaperPlan, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    monkeypatch.setattr(paper, "has_onnx", lambda: False)
    torch.manual_seed(0)
    lightest = method.space.lightest()
    recorder = Recorder(method.space.build(lightest, method.space.scale))
    method.work.trained = recorder  # type: ignore[assignment]
    method._tune_one(lightest, "model-1", method.tuning_recipe(), recorder)
    return recorder


@pytest.mark.parametrize("decay", [0.0, 0.2])
def test_the_tuned_model_is_the_average_of_all_steps_if_asked(
    decay: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = tuned(prepared(tmp_path / "run", tune_ema=decay), monkeypatch)
    start, *states = recorder.states
    assert len(states) == STEPS
    saved = load_model(tmp_path / "run" / "artifacts" / "model-1.safetensors").network.state_dict()
    moved = 0
    for name, value in start.items():
        expected = value
        for number, state in enumerate(states, 1):
            d = min(decay, (1 + number) / (10 + number))
            expected = d * expected + (1 - d) * state[name] if value.is_floating_point() else state[name]
        assert torch.allclose(saved[name], expected, atol=1e-6), name
        moved += not torch.allclose(saved[name].float(), states[-1][name].float(), atol=1e-6)
    assert (moved > 0) == (decay > 0)


@pytest.mark.parametrize("asked", [False, True])
def test_autoaugment_is_added_to_the_augmentation_of_the_data(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen = Augmentation(crop=1, flip=True, cutout=2), []
    monkeypatch.setattr(Augmentation, "default_for", lambda data: usual)
    monkeypatch.setattr(supernet, "train", lambda network, batches, *_, **__: seen.append(batches))
    method = prepared(tmp_path / "run", tune_autoaugment=asked)
    tuned(method, monkeypatch)
    (batches,) = seen
    assert batches.augment == Augmentation(1, True, 2, "cifar10" if asked else None)
    assert method.work.batches(method._supernet_recipe()).augment == usual


def test_a_real_tuning_with_autoaugment_and_a_moving_average_stays_finite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = prepared(tmp_path / "run", tune_autoaugment=True, tune_ema=0.9)
    recorder = tuned(method, monkeypatch)
    assert all(bool(value.isfinite().all()) for value in recorder.state().values())


def test_a_decay_of_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tune_ema"):
        aw.search("binas", run=tmp_path / "run", data="digits", plan="paper", epochs=1, tune_ema=1.0)
    assert not (tmp_path / "run").exists()
