"""The posterior over architectures: closed forms of its divergence, its samples and a likelihood that is known."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from archwright.errors import InputError
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.spaces.registry import spaces
from archwright.supernets.posterior import Posterior, Sampler, fit_step
from helpers.triangle_space import NAMES, TriangleSpace

CELL_SPACES = ["nasbench201", "darts", "nasbench1shot1-1", "nasbench1shot1-3"]


def test_the_divergence_is_zero_at_first_and_that_of_torch_after() -> None:
    posterior = Posterior(NASBENCH201)
    assert float(posterior.divergence().detach()) == pytest.approx(0, abs=1e-6)
    torch.nn.init.normal_(posterior.alpha[0])
    rows = torch.distributions.Categorical(logits=posterior.alpha[0])
    uniform = torch.distributions.Categorical(logits=torch.zeros(6, 4))
    expected = torch.distributions.kl_divergence(rows, uniform).sum()
    assert torch.allclose(posterior.divergence(), expected)


@pytest.mark.parametrize("name", CELL_SPACES)
def test_a_sample_is_an_architecture_and_its_rows_have_gradients(name: str) -> None:
    space = spaces.get(name)
    torch.manual_seed(0)
    posterior = Posterior(space)
    weights, active = posterior.draw(1.0)
    arrays = {key: value.detach().numpy().round().astype(np.int8) for key, value in weights.items()}
    space.decode(arrays)  # a member of the space
    for key, value in weights.items():
        assert np.allclose(value.detach().numpy(), arrays[key], atol=1e-6)
        assert (active[key].any(axis=1) == arrays[key].any(axis=1)).all()
        assert (active[key] >= arrays[key].astype(bool)).all()
    torch.stack([(value * torch.randn_like(value)).sum() for value in weights.values()]).sum().backward()
    for key, alpha in zip(weights, posterior.alpha, strict=True):
        moved = (alpha.grad.abs().sum(dim=1) > 0).numpy()
        assert (moved == arrays[key].any(axis=1)).all()


def test_monte_carlo_draws_have_the_posterior_s_frequencies() -> None:
    logits = np.zeros((6, 4))
    logits[0] = np.log([0.1, 0.2, 0.3, 0.4])
    sampler, rng = Sampler(NASBENCH201, {"cell": logits.tolist()}), np.random.default_rng(0)
    seen = Counter(sampler.monte_carlo(rng).operations[0] for _ in range(2000))
    assert [seen[operation] / 2000 for operation in (1, 2, 3, 4)] == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.04)
    assert seen[0] == 0  # none is no candidate
    flat = Sampler(NASBENCH201, {"cell": logits.tolist()}, temperature=100.0)
    seen = Counter(flat.monte_carlo(rng).operations[0] for _ in range(2000))
    assert [seen[operation] / 2000 for operation in (1, 2, 3, 4)] == pytest.approx([0.25] * 4, abs=0.04)


def test_edges_of_darts_are_drawn_uniformly() -> None:
    """Node 3 keeps two of three edges: each with probability 2/3, whatever the operations' logits."""
    rng = np.random.default_rng(0)
    logits = {name: (3 * rng.standard_normal((14, 7))).tolist() for name in DARTS.decisions}
    sampler = Sampler(DARTS, logits)
    seen: Counter[int] = Counter()
    for _ in range(1500):
        seen.update(source for _, source in sampler.monte_carlo(rng).normal.nodes[1])
    assert [seen[source] / 1500 for source in range(3)] == pytest.approx([2 / 3] * 3, abs=0.05)


@pytest.mark.parametrize("name", CELL_SPACES)
def test_particles_are_architectures_near_the_posterior_s_best(name: str) -> None:
    """With nearly all probability on one operation a row, every particle of repelling ones still ends there."""
    space = spaces.get(name)
    logits = {}
    for key in space.decisions:
        rows = len(Sampler(space).densities[key].probabilities), Sampler(space).densities[key].probabilities.shape[1]
        logits[key] = np.eye(rows[1])[np.zeros(rows[0], dtype=int)] * 50
    sampler = Sampler(space, {key: value.tolist() for key, value in logits.items()})
    found = sampler.particles(3, np.random.default_rng(0), delta=-1.0, steps=300)
    for one in found:
        assert space.parse(str(one)) == one
    if name == "nasbench201":
        assert {one.operations for one in found} == {(1,) * 6}


def test_a_particle_is_decoded_to_its_nearest_operations() -> None:
    """Eq. 5.9, against distances to the one-hot vectors."""
    point = np.random.default_rng(1).standard_normal((6, 4))
    nearest = ((point[:, None, :] - np.eye(4)) ** 2).sum(axis=2).argmin(axis=1)
    found = Sampler(NASBENCH201)._derived({"cell": point})
    assert found.operations == tuple(nearest + 1)


def test_more_delta_more_architectures() -> None:
    """A sharp but not certain posterior: repelled particles are different cells, attracted ones the same."""
    rows = np.tile(np.array([1.0, 0.0, 0.5, 0.2]), (6, 1))
    sampler = Sampler(NASBENCH201, {"cell": rows.tolist()})
    counts = [len(set(sampler.particles(5, np.random.default_rng(0), delta=delta, steps=500))) for delta in (-2.0, 2.0)]
    assert counts[0] < counts[1] == 5


def test_a_known_posterior_is_recovered() -> None:
    """With log p(D|A) = -sum of costs of the operations the posterior is softmax(-cost), row by row (eq. 5.2)."""
    space = TriangleSpace()
    costs = torch.tensor([[0.0, 0.0, 1.0], [0.0, 2.0, 0.0], [0.0, 0.5, 0.5]])
    torch.manual_seed(0)
    posterior = Posterior(space)

    def network(_images: Tensor, weights: dict[str, Tensor], _active: object) -> Tensor:
        """Logits whose cross entropy at label 0 is the sum of costs, up to a constant."""
        total = (weights["edges"] * costs).sum() + 0.1
        return torch.stack([torch.zeros(()), torch.log(torch.expm1(total))])[None]

    adam = torch.optim.Adam(posterior.parameters(), lr=0.02)
    batch = torch.zeros(1, 1, 4, 4), torch.zeros(1, dtype=torch.int64)
    kept = []
    for number in range(1200):
        for group in adam.param_groups:
            group["lr"] = 0.02 * (1 - number / 1200) + 1e-3
        fit_step(posterior, adam, network, lambda _: batch, temperature=0.4, kl_weight=1.0)
        if number >= 700:
            kept.append(torch.softmax(posterior.alpha[0].detach(), dim=1))
    found = torch.stack(kept).mean(dim=0)
    expected = torch.softmax(-costs[:, 1:], dim=1)  # none is no candidate
    assert torch.allclose(found, expected, atol=0.06)
    assert NAMES[0] == "none"


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(InputError, match="temperature above 0"):
        Sampler(NASBENCH201, None, temperature=0.0)
