"""Shards are a setting, processes are not: one training, the same weights on one process and on several."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from archwright.data import Batches, load
from archwright.data.augmentation import Augmentation
from archwright.data.shards import Shard
from archwright.errors import InputError
from archwright.training.team import Pass, Team


@pytest.mark.parametrize(("count", "of"), [(64, 4), (10, 3), (2, 2)])
def test_shards_are_the_batch_cut_into_even_parts(count: int, of: int) -> None:
    rows = [list(range(count))[Shard(number, of).rows(count)] for number in range(of)]
    assert [one for part in rows for one in part] == list(range(count))
    assert max(map(len, rows)) - min(map(len, rows)) <= 1


def test_images_of_shards_are_augmented_as_in_the_whole_batch() -> None:
    augment = Augmentation(crop=1, flip=True, cutout=2, zoom=0.8, colour=0.2)
    batches = Batches(load("digits"), "train", 30, augment=augment)
    images, labels = batches.get(1, 2)
    parts = [batches.get(1, 2, Shard(number, 4)) for number in range(4)]
    assert torch.allclose(torch.cat([part[0] for part in parts]), images, atol=1e-6)
    assert torch.equal(torch.cat([part[1] for part in parts]), labels)


def test_a_batch_with_fewer_images_than_shards_is_refused() -> None:
    with pytest.raises(InputError, match="shards"):
        Batches(load("digits"), "train", 2).get(0, 0, Shard(0, 3))


@pytest.mark.parametrize("shards", [2, 3])
def test_the_gradient_of_shards_is_that_of_the_batch_and_unused_weights_have_none(shards: int) -> None:
    torch.manual_seed(0)
    network = nn.ModuleDict({"used": nn.Linear(4, 2).double(), "unused": nn.Linear(4, 2).double()})
    x, y = torch.randn(10, 4, dtype=torch.float64), torch.randint(2, (10,))

    def loss(part: slice) -> Tensor:
        return nn.functional.cross_entropy(network["used"](x[part]), y[part])

    (expected,) = torch.autograd.grad(loss(slice(None)), [network["used"].weight])
    found = Team(shards).backward([network], lambda shard: Pass(loss(shard.rows(10)), len(y[shard.rows(10)])))
    assert torch.allclose(network["used"].weight.grad, expected, atol=1e-12)
    assert network["unused"].weight.grad is None
    assert float(found["loss"]) == pytest.approx(float(loss(slice(None)).detach()), rel=1e-6)


def test_statistics_move_once_a_step_by_the_mean_over_the_shards() -> None:
    norm, x = nn.BatchNorm1d(3), torch.randn(12, 3)
    Team(3).mean([norm], lambda shard: (4, [norm(x[shard.rows(12)]).mean()]), apart=True)
    assert int(norm.num_batches_tracked) == 1
    assert torch.allclose(norm.running_mean, 0.1 * x.mean(0), atol=1e-6)
    norm.eval()
    before = norm.running_mean.clone()
    Team(3).mean([norm], lambda shard: (4, [norm(x[shard.rows(12)]).mean()]), apart=True)
    assert torch.equal(norm.running_mean, before)


def test_draws_of_shards_are_the_same_or_apart() -> None:
    drawn: list[float] = []

    def one(shard: Shard) -> tuple[int, list[Tensor]]:
        drawn.append(float(torch.rand(())))
        return 1, [torch.zeros(())]

    Team(2).mean([], one, apart=False)
    Team(2).mean([], one, apart=True)
    assert drawn[0] == drawn[1]
    assert drawn[2] != drawn[3]
