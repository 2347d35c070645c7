"""Bounds of chapters 6 and 7 evaluated beside what they bound, on small networks whose kernels are computed exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacrev, vmap

Array = np.ndarray
DELTA = 0.01
"""Probability with which a bound may fail."""


@dataclass(frozen=True)
class Net:
    """A network in NTK parametrisation, weights N(0, 1), one output, as a function of one flat vector."""

    sizes: tuple[int, ...]
    smooth: bool = False

    @property
    def weights(self) -> int:
        return sum(a * b for a, b in zip(self.sizes, self.sizes[1:], strict=False))

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        place, h = 0, x
        for number, (a, b) in enumerate(zip(self.sizes, self.sizes[1:], strict=False)):
            if number:
                h = torch.tanh(h) if self.smooth else torch.relu(h)
            h = theta[place : place + a * b].view(b, a) @ h / a**0.5
            place += a * b
        return h[0]

    def draw(self, seed: int) -> Tensor:
        return torch.randn(self.weights, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def gradients(self, theta: Tensor, x: Tensor) -> Tensor:
        return vmap(jacrev(self), (None, 0))(theta, x)


def points(count: int, size: int, seed: int) -> Tensor:
    """Inputs inside the unit ball."""
    drawn = torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return drawn / drawn.norm(dim=1, keepdim=True).clamp(min=1.0)


def kernel_of(net: Net, theta: Tensor, x: Tensor) -> Array:
    g = net.gradients(theta, x)
    return (g @ g.T).numpy()


@pytest.mark.parametrize("seed", range(3))
def test_proposition_6_1_the_loss_is_below_the_bound_by_the_trace(seed: int) -> None:
    net, m = Net((5, 128, 1)), 12
    x, theta = points(m, 5, seed), net.draw(seed)
    rng = np.random.default_rng(seed)
    labels, first = rng.random(m), rng.random(m)  # f_0 and y in [0, 1]
    kernel = kernel_of(net, theta, x)
    values, vectors = np.linalg.eigh(kernel)
    rate = 0.9 / values[-1]
    mean = kernel.trace() / m
    assert values[0] > 0
    gap = vectors.T @ (first - labels)
    for t in (0.1, 0.25, 0.5, 1, 5, 50, 500):
        loss = float(((1 - rate * values) ** (2 * t) * gap**2).sum()) / m  # n = 1, of the linearised network
        bound = m * (1 - rate * mean) ** (2 * t if t < 0.5 else 1)
        assert loss <= bound
    one = float(((1 - rate * values) ** 2 * gap**2).sum()) / m
    assert one > 0  # the bound is not compared with nothing


def test_proposition_6_1_holds_for_gradient_descent_on_a_wide_network() -> None:
    net, m = Net((4, 512, 1)), 8
    x, theta = points(m, 4, 0), net.draw(0)
    labels = torch.linspace(0, 1, m, dtype=torch.float64)
    kernel = kernel_of(net, theta, x)
    rate, mean = 0.9 / np.linalg.eigvalsh(kernel)[-1], kernel.trace() / m
    offset = vmap(net, (None, 0))(theta, x) - 0.5  # predictions begin at a half, inside [0, 1]

    def loss(weights: Tensor) -> Tensor:
        return ((vmap(net, (None, 0))(weights, x) - offset - labels) ** 2).sum() / 2

    for _ in range(40):
        theta = theta - rate * grad(loss)(theta)
        assert 2 * float(loss(theta)) / m <= m * (1 - rate * mean)
    assert 2 * float(loss(theta)) / m < 0.5 * float(((0.5 - labels) ** 2).mean())  # it has learned something


def two_distributions(size: int) -> tuple[Tensor, Array, Array, float]:
    """Points, two distributions on them, and the distance Z of these."""
    x = points(40, size, 7)
    p, q = (np.random.default_rng(seed).dirichlet(np.ones(40)) for seed in (0, 1))
    return x, p, q, float(np.abs(p - q).sum())


@pytest.mark.parametrize("depth", [2, 3])
def test_proposition_6_2_traces_of_two_distributions(depth: int) -> None:
    size, net = 6, Net((6, *(150,) * (depth - 1), 1))
    x, p, q, apart = two_distributions(size)
    traces = np.mean([kernel_of(net, net.draw(seed), x).diagonal() for seed in range(4)], axis=0)
    found = abs(float(traces @ p - traces @ q))
    assert 0 < found <= apart * depth / size  # D(1) = L; the infinite width is near at 150


@pytest.mark.parametrize("seed", range(4))
def test_theorem_7_1_metrics_are_below_constants_times_the_trace(seed: int) -> None:
    net, m = Net((3, 6, 6, 1), smooth=True), 10
    x, theta = points(m, 3, seed), net.draw(seed)
    labels = torch.linspace(0, 1, m, dtype=torch.float64)
    g, h = net.gradients(theta, x), vmap(hessian(net), (None, 0))(theta, x)
    first = vmap(net, (None, 0))(theta, x) - labels  # derivative of (f - y)^2 / 2 by f
    beta, gamma = float(first.abs().max()), 1.0
    trace = float((g * g).sum() / m) ** 0.5
    slopes = first[:, None] * g
    d = len(theta)
    room = (d + 2 * (d * np.log(1 / DELTA)) ** 0.5 + 2 * np.log(1 / DELTA)) ** 0.5  # |theta| with high probability
    assert float(theta.norm()) <= room
    grad_metric = float(slopes.mean(0).norm())
    snip = abs(float((slopes @ theta).mean()))
    curved = g[:, :, None] * g[:, None] + first[:, None, None] * h  # Hessian of the loss of each example
    grasp = abs(float((curved @ slopes[:, :, None])[:, :, 0].mul(theta).sum(1).mean()))
    rho_1, rho_2 = float(g.norm(dim=1).max()), float(torch.linalg.matrix_norm(h, 2).max())
    assert grad_metric <= beta * trace
    assert snip <= beta * room * trace
    assert grasp <= beta * (gamma * rho_1**2 + beta * rho_2) * room * trace


@dataclass(frozen=True)
class Learned:
    """The linearised network after some steps, from f_0 = 1/2."""

    training_loss: float
    true_loss: float
    metric: float
    kappa: float
    least: float


def learned(seed: int, steps: float, m: int = 40) -> Learned:
    """Gradient descent with rate m / lambda_max on (f - y)^2 / 2 in the kernel's features; labels follow a rule."""
    net = Net((4, 150, 1))
    theta = net.draw(seed)
    x, others = points(m, 4, seed), points(400, 4, 1000 + seed)
    g = net.gradients(theta, torch.cat([x, others])).numpy()
    scale = 1 / max(1.0, np.linalg.eigvalsh(g[:m] @ g[:m].T)[0]) ** 0.5  # lambda_min in [0, 1]
    g = g * scale
    labels = 0.5 + 0.4 * np.tanh(2 * torch.cat([x, others]).numpy()[:, 0])
    kernel = g[:m] @ g[:m].T
    values, vectors = np.linalg.eigh(kernel)
    rate = 1 / values[-1]
    gap = vectors.T @ (labels[:m] - 0.5)
    moved = g[:m].T @ (vectors @ ((1 - (1 - rate * values) ** steps) / values * gap))
    predicted = 0.5 + g @ moved
    losses = (predicted - labels) ** 2 / 2
    metric = float(kernel.trace() / m) ** 0.5
    return Learned(
        float(losses[:m].mean()), float(losses[m:].mean()), metric, float(values[-1] / values[0]), float(values[0])
    )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steps", [1, 20, 1e6])
def test_theorem_7_2_and_its_corollaries(seed: int, steps: float) -> None:
    m, found = 40, learned(seed, steps)
    chance = 3 * (np.log(2 / DELTA) / (2 * m)) ** 0.5
    assert found.least <= 1
    gap = 2 * found.kappa / found.metric
    assert found.true_loss <= found.training_loss + gap + chance  # Theorem 7.2
    # Corollary 7.2: its training term with c = M^2 / lambda_min, the least that the proof allows
    c = found.metric**2 / found.least
    rate = m / (found.kappa * found.least)
    bound = 0.5 * m * (1 - rate * found.metric**2 / (m * c)) ** (2 * steps)
    assert found.training_loss <= bound + 1e-25  # rounding, where both have vanished
    if steps == 1e6:  # Corollary 7.1: at convergence nothing is left of it
        assert found.training_loss < 1e-3
        assert found.true_loss <= gap + chance + found.training_loss


def test_theorem_7_3_the_metric_of_other_data_does_as_well() -> None:
    size, depth, net = 6, 2, Net((6, 150, 1))
    x, p, q, apart = two_distributions(size)
    traces = np.mean([kernel_of(net, net.draw(seed), x).diagonal() for seed in range(4)], axis=0)
    own, other = float(traces @ p) ** 0.5, float(traces @ q) ** 0.5
    slack = depth * apart / (2 * size * min(own, other))  # alpha = D(1) = L
    assert abs(own - other) <= slack
    if other > slack:  # then the bound with the other metric is above the one with the own
        assert 1 / own <= 1 / (other - slack)
