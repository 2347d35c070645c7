import pytest
import torch
from torch import nn

from archwright.training.ema import Ema


def test_closed_form():
    network = nn.Linear(1, 1, bias=False)
    values = [float(value) for value in torch.randn(60)]
    nn.init.constant_(network.weight, values[0])
    ema = Ema(network, decay=0.5)
    for value in values[1:]:
        nn.init.constant_(network.weight, value)
        ema.update(network)
    # the decay of update n is min(.5, (1 + n) / (10 + n)): below .5 for n < 8
    decays = [min(0.5, (1 + n) / (10 + n)) for n in range(1, 60)]
    expected = 0.0
    for i, value in enumerate(values):
        share = 1.0 if i == 0 else 1 - decays[i - 1]
        for decay in decays[i:]:
            share *= decay
        expected += share * value
    assert ema.average["weight"].item() == pytest.approx(expected, rel=1e-4)


def test_averages_batch_norm_statistics_and_copies_counters():
    network = nn.BatchNorm1d(2)
    ema = Ema(network, decay=0.9)
    network(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    ema.update(network)  # decay 2 / 11
    assert torch.allclose(ema.average["running_mean"], torch.tensor([0.2, 0.4]) * 9 / 11)
    assert ema.average["num_batches_tracked"].item() == 1


def test_state_round_trip_and_copy():
    network = nn.Linear(3, 2)
    ema = Ema(network, decay=0.9)
    nn.init.ones_(network.weight)
    ema.update(network)
    other = Ema(nn.Linear(3, 2), decay=0.9)
    other.load_state_dict(ema.state_dict())
    assert other.updates == 1
    target = nn.Linear(3, 2)
    other.copy_to(target)
    assert torch.equal(target.weight, ema.average["weight"])
    assert not torch.equal(target.weight, network.weight)
