"""A network small enough to differentiate by hand or exactly, with two architecture parameters, in float64."""

import torch
from torch import nn

from archwright.training import Position
from archwright.training.bilevel import ArchitectureParameters, Problem, Variable, WeightCopy

HERE = Position.at(0, 1, 1)


class TwoLayers(nn.Module):
    """x (B, 4) to a (B, 2): a softmax mixture of tanh and identity between two linear maps."""

    def __init__(self, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(4, 3, generator=generator, dtype=torch.float64) / 2)
        self.second = nn.Parameter(torch.randn(3, 2, generator=generator, dtype=torch.float64) / 2)


def outputs(first, second, alpha, x):
    share = alpha.softmax(-1)
    hidden = x @ first
    return (share[0, 0] * torch.tanh(hidden) + share[0, 1] * hidden) @ second


def loss_of(first, second, alpha, batch):
    x, target = batch
    return ((outputs(first, second, alpha, x) - target) ** 2).mean()


def objective(network, alphas, batch, position):
    return loss_of(network.first, network.second, alphas["cell"], batch)


class FixedBatch:
    """The same batch at every position."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        self.batch = (
            torch.randn(6, 4, generator=generator, dtype=torch.float64),
            torch.randn(6, 2, generator=generator, dtype=torch.float64),
        )

    def get(self, epoch, step):
        return self.batch

    def __len__(self):
        return 1


def descent(parameters, lr):
    """Plain gradient descent."""
    parameters = list(parameters)
    return Variable(parameters, torch.optim.SGD(parameters, lr=lr), lambda position: lr)


def make_problem(lr=0.1):
    alpha = ArchitectureParameters({"cell": torch.tensor([[0.3, -0.2]], dtype=torch.float64)})
    return Problem(objective, FixedBatch(1), FixedBatch(2), alpha, descent(alpha.parameters(), lr))


def make_copy(seed=0, lr=0.2):
    network = TwoLayers(seed)
    return WeightCopy(network, descent(network.parameters(), lr))


def position(index, steps=8):
    return Position.at(index, steps, 1)
