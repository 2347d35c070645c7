"""The elastic supernet against stand-alone networks, and its batch-norm policy against hand calculation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from archwright.errors import InputError
from archwright.solvers.problem import StagedChoice
from archwright.spaces.mbconv import SCALES, MbConv
from archwright.supernets import elastic
from archwright.supernets.elastic import SMALLEST_GROUP, ElasticSupernet, deal

SPACE = MbConv(
    SCALES["mbconv-8"].changed(
        stage_widths=(24, 40), stage_strides=(1, 2), activations=("relu", "swish"), last_widths=(96, 128), classes=3
    )
)
SCALE = SPACE.scale


@pytest.fixture
def supernet() -> ElasticSupernet:
    """With weights, affine parameters and statistics that all differ, so that taking the wrong ones shows."""
    torch.manual_seed(0)
    supernet = ElasticSupernet(SPACE)
    for module in supernet.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
            nn.init.uniform_(module.running_mean, -0.5, 0.5)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
    return supernet


def images(count: int) -> torch.Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def test_cut_out_networks_equal_their_paths(supernet: ElasticSupernet) -> None:
    supernet.eval()
    rng = np.random.default_rng(0)
    x = images(5)
    for architecture in [SPACE.heaviest(), SPACE.lightest(), *(SPACE.sample(rng) for _ in range(6))]:
        network = supernet.cut_out(architecture)
        with torch.no_grad():
            path = supernet(x, SPACE.to_choice(architecture))
            torch.testing.assert_close(network(x), path, atol=1e-5, rtol=1e-5)


def test_every_image_takes_its_own_path(supernet: ElasticSupernet) -> None:
    supernet.eval()
    x, choices = images(30), deal(30, np.random.default_rng(0), SCALE)
    with torch.no_grad():
        together = supernet(x, choices)
        for number in range(30):
            alone = supernet.cut_out(SPACE.from_choice(choices[number]))(x[number : number + 1])
            torch.testing.assert_close(together[number : number + 1], alone, atol=1e-5, rtol=1e-5)


def test_heaviest_path_trains_like_the_stand_alone_network(supernet: ElasticSupernet) -> None:
    supernet.train()
    network = supernet.cut_out(SPACE.heaviest())
    x = images(16)
    network(x).logsumexp(1).sum().backward()
    supernet(x, SPACE.to_choice(SPACE.heaviest())).logsumexp(1).sum().backward()
    block, alone = supernet.stages[1][2], network.blocks[6]
    torch.testing.assert_close(block.expand.weight.grad, alone.expand.weight.grad, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(block.depthwise[1].weight.grad, alone.depthwise.weight.grad, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(block.expand_norm.running_mean, alone.expand_norm.running_mean)
    torch.testing.assert_close(block.project_norms[5].running_var, alone.project_norm.running_var)


def test_gradients_reach_all_weights_and_nothing_else_moves(supernet: ElasticSupernet) -> None:
    x, choices = images(72), deal(72, np.random.default_rng(0), SCALE)
    supernet.train()(x, choices).logsumexp(1).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in supernet.parameters())
    supernet.zero_grad()
    supernet(x, SPACE.to_choice(SPACE.lightest())).logsumexp(1).sum().backward()
    block = supernet.stages[0][0]
    width = 2 * SCALE.first_channels
    assert block.expand.weight.grad[:width].abs().sum() > 0
    assert block.expand.weight.grad[width:].abs().sum() == 0
    assert block.depthwise[1].weight.grad is None
    assert supernet.stages[0][2].expand.weight.grad is None


def test_statistics_are_private_as_documented(supernet: ElasticSupernet) -> None:
    before = {name: value.clone() for name, value in supernet.named_buffers()}
    block = [row.copy() for row in SPACE.to_choice(SPACE.lightest()).configurations]
    choice = StagedChoice(np.array([2, 2]), np.array(block))
    choice.configurations[0, 0] = SPACE.configurations.index((3, 5, True))
    supernet.train()(images(16), choice)
    moved = {name for name, value in supernet.named_buffers() if not torch.equal(value, before[name])}
    inside = {name.removeprefix("stages.0.0.") for name in moved if name.startswith("stages.0.0.")}
    pair = 1 * 2 + 1  # expansion 3 is the second, squeeze-excite on the second
    names = ("expand_norm", "depthwise_norms.1", f"project_norms.{pair}")
    assert inside == {f"{name}.running_{what}" for name in names for what in ("mean", "var")}


def test_small_groups_use_the_running_statistics_and_move_them() -> None:
    norm = nn.BatchNorm2d(4)
    x = torch.randn(SMALLEST_GROUP - 1, 4, 3, 3) + 5
    expected = torch.nn.functional.batch_norm(x, norm.running_mean.clone(), norm.running_var.clone())
    torch.testing.assert_close(elastic.normalised(norm, x, 0.5), expected)
    torch.testing.assert_close(norm.running_mean, 0.05 * x.mean((0, 2, 3)))
    torch.testing.assert_close(norm.running_var, 0.95 + 0.05 * x.var((0, 2, 3)))
    large = torch.randn(SMALLEST_GROUP, 4, 3, 3) + 5
    assert elastic.normalised(norm, large, 1.0).mean().abs() < 1e-5


def test_dealing_is_balanced() -> None:
    choices = deal(50, np.random.default_rng(0), SCALE)
    for stage in range(2):
        assert sorted(np.unique(choices.depths[:, stage], return_counts=True)[1]) == [16, 17, 17]
        for block in range(4):
            chosen = choices.configurations[:, stage, block]
            counts = np.bincount(chosen[chosen >= 0], minlength=12)
            assert counts.max() - counts.min() <= 1
            assert np.ptp(counts.reshape(6, 2).sum(1)) <= 1  # (expansion, kernel) pairs
            assert counts.sum() == (choices.depths[:, stage] > block).sum()


def test_dealing_is_uniform_for_one_image() -> None:
    rng = np.random.default_rng(0)
    hands = [deal(5, rng, SCALE) for _ in range(2000)]
    depths = np.array([hand.depths[0, 0] for hand in hands])
    first = np.array([hand.configurations[0, 0, 0] for hand in hands])
    assert np.abs(np.bincount(depths)[2:] / 2000 - 1 / 3).max() < 0.04
    assert np.abs(np.bincount(first, minlength=12) / 2000 - 1 / 12).max() < 0.025


def test_multi_path_training_lowers_the_loss() -> None:
    torch.manual_seed(0)
    supernet = ElasticSupernet(SPACE).train()
    x, labels = images(48), torch.arange(48) % 3
    x = x + labels[:, None, None, None]
    optimiser = torch.optim.SGD(supernet.parameters(), 0.05, momentum=0.9)
    rng, losses = np.random.default_rng(0), []
    for _ in range(20):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(supernet(x, deal(48, rng, SCALE)), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])


def test_spreading_the_heaviest(supernet: ElasticSupernet) -> None:
    x, heaviest = images(6), SPACE.to_choice(SPACE.heaviest())
    supernet.eval()
    with torch.no_grad():
        before = supernet(x, heaviest)
        supernet.spread_heaviest()
        torch.testing.assert_close(supernet(x, heaviest), before)
    block = supernet.stages[1][0]
    torch.testing.assert_close(block.depthwise[0].weight, block.depthwise[1].weight[:, :, 1:4, 1:4])
    torch.testing.assert_close(block.depthwise_norms[0].running_mean, block.depthwise_norms[1].running_mean)
    assert all(torch.equal(norm.bias, block.project_norms[5].bias) for norm in block.project_norms)


def test_bad_input(supernet: ElasticSupernet) -> None:
    choices = deal(4, np.random.default_rng(0), SCALE)
    with pytest.raises(InputError, match="5 images"):
        supernet(images(5), choices)
    with pytest.raises(InputError, match="channels"):
        supernet(torch.zeros(4, 3, 8, 8), choices)
    with pytest.raises(InputError, match="px"):
        supernet(torch.zeros(4, 1, 1, 1), choices)
    other = ElasticSupernet(MbConv(SCALE.changed(classes=7)))
    with pytest.raises(InputError, match="3 classes"):
        supernet.load_state_dict(other.state_dict())
    with pytest.raises(InputError, match="channels"):
        supernet.cut_out(MbConv(SCALE.changed(width=1.0)).lightest())
