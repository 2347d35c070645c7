import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from archwright.errors import DivergedError, InputError
from archwright.training.evaluation import evaluate, recalibrate, wilson_interval
from helpers.training_fakes import FakeBatches, ListBatches, small_network


class Scores(nn.Module):
    """Passes its input on as logits."""

    def forward(self, x):
        return x


def test_wilson_table_value():
    low, high = wilson_interval(8, 10)
    assert (round(100 * low, 1), round(100 * high, 1)) == (49.0, 94.3)


@pytest.mark.parametrize(("correct", "count"), [(0, 5), (5, 5), (1, 1), (37, 360), (9999, 10000)])
def test_wilson_equals_scipy(correct, count):
    interval = binomtest(correct, count).proportion_ci(0.95, method="wilson")
    assert wilson_interval(correct, count) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_evaluate_counts_over_unequal_batches():
    logits = torch.eye(3)[[0, 1, 2, 0, 1]] * 5
    labels = torch.tensor([0, 1, 2, 0, 2])
    accuracy = evaluate(Scores(), ListBatches((logits[:4], labels[:4]), (logits[4:], labels[4:])))
    assert (accuracy.percent, accuracy.count) == (80.0, 5)
    assert accuracy.loss == pytest.approx(nn.functional.cross_entropy(logits, labels).item())
    assert accuracy.to_dict() == {"percent": 80.0, "low": accuracy.low, "high": accuracy.high, "count": 5,
                                  "loss": accuracy.loss}  # fmt: skip


def test_evaluate_uses_eval_mode_and_restores_every_mode():
    network = small_network()
    network[1].eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    modes = [module.training for module in network.modules()]
    first, second = (evaluate(network, FakeBatches()) for _ in range(2))
    assert first == second  # no dropout
    assert [module.training for module in network.modules()] == modes
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_evaluate_bad_input():
    with pytest.raises(InputError, match="at least one image"):
        evaluate(Scores(), ListBatches())
    with pytest.raises(DivergedError):
        evaluate(Scores(), ListBatches((torch.full((2, 3), float("nan")), torch.tensor([0, 1]))))


def test_recalibrate_is_the_mean_of_the_batch_statistics():
    network = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm2d(3, momentum=0.3))
    network[1].running_mean.fill_(7.0)
    batches = FakeBatches(steps=3)
    network.train()
    random_state = torch.get_rng_state()
    recalibrate(network, batches, steps=5)  # the last two from the second epoch
    images = [batches.get(*divmod(i, 3))[0] for i in range(5)]
    assert torch.allclose(network[1].running_mean, torch.stack([x.mean((0, 2, 3)) for x in images]).mean(0), atol=1e-6)
    assert torch.allclose(network[1].running_var, torch.stack([x.var((0, 2, 3)) for x in images]).mean(0), atol=1e-5)
    assert network[1].momentum == 0.3
    assert network.training
    assert network[0].training
    assert torch.equal(random_state, torch.get_rng_state())


def test_recalibrate_bad_steps():
    with pytest.raises(InputError):
        recalibrate(small_network(), FakeBatches(), 0)
