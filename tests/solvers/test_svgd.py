from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.solvers import svgd


def autograd_update(x: np.ndarray, log_p, delta: float, h: float) -> np.ndarray:
    """Eq. B.10 written with autograd: each kernel gradient by the argument that the equation names."""
    points = torch.from_numpy(x)
    total = torch.zeros_like(points)
    for i in range(len(points)):
        for j in range(len(points)):
            xj, xi = points[j].clone().requires_grad_(), points[i].clone().requires_grad_()
            k = torch.exp(-(xj - xi).square().sum() / h)
            by_j, by_i = torch.autograd.grad(k, (xj, xi))
            at_j = points[j].clone().requires_grad_()
            (score,) = torch.autograd.grad(log_p(at_j), at_j)
            total[i] += k.detach() * score + by_j - delta * by_i
    return (total / len(points)).numpy()


def torch_mixture(x: torch.Tensor) -> torch.Tensor:
    means, variance = torch.tensor([[-1.0, 0.0], [0.0, 1.0]]).double(), torch.tensor([0.25, 0.5]).double()
    parts = torch.distributions.MultivariateNormal(means, torch.diag(variance).expand(2, 2, 2))
    return torch.logsumexp(parts.log_prob(x), dim=0)


@pytest.mark.parametrize("delta", [-2.0, -0.5, 0.0, 1.0])
def test_the_update_is_equation_b10(delta: float) -> None:
    x = np.random.default_rng(0).standard_normal((5, 2))
    target = svgd.figure_5_2_target()
    ours = svgd.svgd_direction(x, target.gradient(x), delta, bandwidth=0.7)
    assert np.allclose(ours, autograd_update(x, torch_mixture, delta, 0.7))


@pytest.mark.parametrize("delta", [-2.0, 0.0, 1.0])
def test_one_particle_climbs_the_density_whatever_delta(delta: float) -> None:
    target, start = svgd.figure_5_2_target(), np.array([[2.0, -1.0]])
    plain, velocity = start.copy(), np.zeros_like(start)
    for _ in range(200):
        velocity = 0.9 * velocity + target.gradient(plain)
        plain = plain + 0.1 * velocity
    assert np.allclose(svgd.sample(target.gradient, start, delta=delta, steps=200), plain)


def test_svgd_reaches_mean_and_covariance_of_a_gaussian() -> None:
    root = np.array([[1.0, 0.0], [0.6, 0.5]])
    covariance, mean = root @ root.T, np.array([1.0, -2.0])
    inverse = np.linalg.inv(covariance)
    start = np.random.default_rng(0).standard_normal((100, 2))
    found = svgd.sample(lambda x: -(x - mean) @ inverse, start, steps=3000, momentum=0.5)
    assert np.allclose(found.mean(axis=0), mean, atol=0.05)
    assert np.allclose(np.cov(found.T), covariance, atol=0.15)


def test_diversity_rises_with_delta_and_collapses_below_minus_one() -> None:
    """Figure 5.2: n = 15, L = 1000, rate .1."""
    target, start = svgd.figure_5_2_target(), np.random.default_rng(0).standard_normal((15, 2))
    found = {d: svgd.sample(target.gradient, start, delta=d) for d in (-0.5, 0.0, 0.5, 1.0, 2.0)}
    apart = {d: svgd.mean_pairwise_distance(x) for d, x in found.items()}
    rising = [apart[d] for d in (-0.5, 0.0, 0.5, 1.0, 2.0)]
    assert all(a < b for a, b in itertools.pairwise(rising))
    fixed = svgd.sample(target.gradient, start, delta=-1.5, bandwidth=1.0)
    assert svgd.mean_pairwise_distance(fixed) < 1e-3  # the median heuristic's kernel shrinks along and hides it


def test_the_density_of_architectures_by_autograd() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((3, 4))
    density = svgd.ArchitectureDensity(svgd.tempered(logits, 0.7))
    x = rng.standard_normal((5, 12))
    points = torch.from_numpy(x).requires_grad_()
    p = torch.softmax(torch.from_numpy(logits) / 0.7, dim=1)
    normal = torch.distributions.MultivariateNormal(torch.eye(4).double(), 4 * torch.eye(4).double())
    each = normal.log_prob(points.view(5, 3, 1, 4).expand(5, 3, 4, 4))
    total = torch.logsumexp(each + p.log(), dim=2).sum()
    assert np.allclose(density.gradient(x), torch.autograd.grad(total, points)[0].numpy())


def test_a_flat_temperature_makes_a_uniform_posterior() -> None:
    logits = np.array([[3.0, 0.0]])
    assert np.allclose(svgd.tempered(logits, 1e9), 0.5)
    assert svgd.tempered(logits, 0.01)[0, 0] > 0.999


def test_errors_of_an_ensemble_by_hand() -> None:
    labels = np.array([0, 1, 1, 0])
    first = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.8, 0.2]])  # wrong on image 1
    second = np.array([[0.4, 0.6], [0.1, 0.9], [0.3, 0.7], [0.45, 0.55]])  # wrong on images 0 and 3
    assert svgd.average_test_error([first, second], labels) == pytest.approx((25 + 50) / 2)
    assert svgd.pairwise_disagreement([first, second]) == pytest.approx(75)
    assert svgd.ensemble_error([first, second], labels) == 0  # means: .65, .35, .25, .625 for class 0
    assert svgd.pairwise_disagreement([first]) == 0


def test_calibration_by_hand() -> None:
    sure = np.array([[1.0, 0.0]] * 4)
    assert svgd.calibration_error(sure, np.array([0, 0, 0, 1])) == pytest.approx(25)
    assert svgd.calibration_error(np.array([[0.75, 0.25]] * 4), np.array([0, 0, 0, 1])) == pytest.approx(0)


def test_bandwidth_of_one_particle_and_of_coinciding_ones() -> None:
    assert svgd.median_bandwidth(np.zeros((1, 3))) == 1.0
    assert svgd.median_bandwidth(np.zeros((4, 3))) == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": np.zeros(3)}, "particles"),
        ({"start": np.full((1, 2), np.nan)}, "particles"),
        ({"delta": np.inf}, "delta"),
        ({"steps": 0}, "step"),
        ({"momentum": 1.0}, "momentum"),
        ({"bandwidth": 0.0}, "bandwidth"),
    ],
)
def test_bad_input(changes, message) -> None:
    settings = {"start": np.zeros((2, 2)), **changes}
    with pytest.raises(InputError, match=message):
        svgd.sample(lambda x: -x, settings.pop("start"), **settings)


def test_rows_that_are_no_probabilities() -> None:
    with pytest.raises(InputError, match="sum to 1"):
        svgd.ArchitectureDensity(np.ones((2, 3)))
