"""Supernets made and trained in one place: the step against SGD by hand, what is off stays, seeds decide weights."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import archwright
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.cell import CellSupernet
from archwright.supernets.train import SharedTraining, new_elastic_supernet, new_supernet
from archwright.training import Position, drive
from archwright.training.schedule import make_schedule

SCALE = NASBENCH201.scales["small"].changed(channels=4, cells=1, image_size=8, image_channels=1, classes=3)
CONVOLUTION = NASBENCH201.parse("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|skip_connect~2|")
LR, MOMENTUM, CLIP = 0.2, 0.9, 0.05


class Images:
    """Two batches of four images."""

    def __len__(self) -> int:
        return 2

    def get(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(10 * epoch + step)
        return torch.randn(4, 1, 8, 8, generator=generator), torch.tensor([0, 1, 2, 0])


def supernet() -> CellSupernet:
    return new_supernet(NASBENCH201, SCALE, seed=3, device="cpu")


def training(network: CellSupernet, **changes: Any) -> SharedTraining:
    sgd = torch.optim.SGD(network.parameters(), LR, MOMENTUM)
    weights = network.one_hot(CONVOLUTION)
    rate = make_schedule("linear", LR)
    return SharedTraining(network, Images(), lambda position, images, shard: weights, sgd, rate, **changes)


def test_a_step_is_sgd_with_momentum_on_the_drawn_sub_network_by_hand() -> None:
    network, shared = supernet(), training(supernet(), clip=CLIP)
    weights = network.one_hot(CONVOLUTION)
    momenta: dict[str, Tensor] = {}
    for index in range(4):
        position = Position.at(index, 2, 2)
        found = shared.step(position)
        images, labels = Images().get(position.epoch, position.step)
        logits = network(images.contiguous(memory_format=torch.channels_last), weights)
        loss = F.cross_entropy(logits, labels)
        named = dict(network.named_parameters())
        gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        used = {name: g for name, g in zip(named, gradients, strict=True) if g is not None}
        norm = torch.stack([(g * g).sum() for g in used.values()]).sum().sqrt()
        with torch.no_grad():
            for name, gradient in used.items():
                clipped = gradient * min(1.0, CLIP / (float(norm) + 1e-6))
                momenta[name] = clipped if name not in momenta else MOMENTUM * momenta[name] + clipped
                named[name] -= LR * (1 - index / 4) * momenta[name]
        assert float(found["loss"]) == pytest.approx(float(loss.detach()), rel=1e-5)
        assert float(found["accuracy"]) == pytest.approx(100 * float((logits.argmax(1) == labels).float().mean()))
    for name, value in shared.supernet.named_parameters():
        torch.testing.assert_close(value, named[name], atol=1e-5, rtol=1e-4)


def test_what_no_drawn_sub_network_uses_stays() -> None:
    network = supernet()
    before = {name: value.clone() for name, value in network.named_parameters()}
    shared = training(network)
    drive(shared.step, shared.state, epochs=1, steps_per_epoch=2, seed=0)
    moved = {name for name, value in network.named_parameters() if not torch.equal(value, before[name])}
    unused = {name for name, value in network.named_parameters() if value.grad is None}
    assert moved
    assert unused
    assert not moved & unused


def test_the_loss_sees_the_images_and_their_memory_is_as_asked() -> None:
    seen: list[Tensor] = []

    def loss(logits: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        seen.append(images)
        return F.cross_entropy(logits, labels)

    for memory_format in (torch.channels_last, torch.contiguous_format):
        training(supernet(), loss=loss, memory_format=memory_format).step(Position.at(0, 2, 1))
        assert seen[-1].is_contiguous(memory_format=memory_format)


def test_weights_are_those_of_the_seed_whatever_was_drawn_before() -> None:
    space = MbConv(SCALES["mbconv-8"])
    made = [
        lambda seed: new_supernet(NASBENCH201, SCALE, seed=seed, device="cpu"),
        lambda seed: new_elastic_supernet(space, seed=seed, device="cpu"),
    ]
    for make in made:
        torch.manual_seed(1)
        before = torch.random.get_rng_state()
        first = make(5).state_dict()
        assert torch.equal(torch.random.get_rng_state(), before)
        torch.rand(3)
        assert all(torch.equal(value, first[name]) for name, value in make(5).state_dict().items())
        assert any(not torch.equal(value, first[name]) for name, value in make(6).state_dict().items())


def test_no_method_makes_a_supernet_by_itself() -> None:
    methods = Path(archwright.__file__).parent / "methods"
    makers = {"CellSupernet", "ElasticSupernet"}
    calls = [
        f"{path.name}:{node.lineno} {getattr(node.func, 'id', '')}"
        for path in methods.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    ]
    assert len(calls) > 1000
    assert not [call for call in calls if call.partition(" ")[2] in makers]
