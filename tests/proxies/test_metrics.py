from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from archwright.proxies.blocks import IDENTITY, entropies, folded, jumps, least_rise, mean_jump
from archwright.proxies.metrics import LOWEST, distinct_codes, linear_regions, pattern_codes
from archwright.proxies.records import BlockRecord, ReluRecord
from archwright.proxies.registry import PROXIES
from archwright.proxies.score import score
from helpers.small_networks import small_batch, small_network

ALL = [entry.name for entry in PROXIES]


def weights_of(model: nn.Module) -> list[torch.Tensor]:
    return [m.weight for m in model.modules() if isinstance(m, nn.Conv2d | nn.Linear)]


def own(model: nn.Module, name: str, m: int = 6) -> float:
    return float(score(model, small_batch(m), [name], initialisation=None)[name][0])


def test_grad_and_snip_by_autograd() -> None:
    model, (x, y) = small_network(), small_batch()
    weights = weights_of(model)
    gradients = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
    assert own(model, "grad") == pytest.approx(sum(float(g.norm()) for g in gradients), rel=1e-5)
    products = [float((w * g).abs().sum().detach()) for w, g in zip(weights, gradients, strict=True)]
    assert own(model, "snip") == pytest.approx(sum(products), rel=1e-5)
    flat, weight = (torch.cat([one.detach().flatten() for one in several]) for several in (gradients, weights))
    assert own(model, "grad-whole") == pytest.approx(float(flat.norm()), rel=1e-5)
    assert own(model, "snip-whole") == pytest.approx(abs(float(weight @ flat)), rel=1e-4)


def test_grasp_by_finite_difference() -> None:
    model, (x, y) = small_network().double(), small_batch()
    x = x.double()
    weights = weights_of(model)
    gradient = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
    step = 1e-6

    def gradient_at(sign: int) -> list[torch.Tensor]:
        with torch.no_grad():
            for w, g in zip(weights, gradient, strict=True):
                w += sign * step * g
        found = torch.autograd.grad(F.cross_entropy(model(x), y), weights)
        with torch.no_grad():
            for w, g in zip(weights, gradient, strict=True):
                w -= sign * step * g
        return list(found)

    up, down = gradient_at(+1), gradient_at(-1)
    flow = sum(float((w * (a - b)).sum().detach()) / (2 * step) for w, a, b in zip(weights, up, down, strict=True))
    found = score(model, (x, y), ["grasp", "grasp-abs"], initialisation=None)
    assert found["grasp"][0] == pytest.approx(-flow, rel=1e-5)
    assert found["grasp-abs"][0] == pytest.approx(abs(flow), rel=1e-5)


def test_synflow_of_a_linear_network_in_closed_form() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5, bias=False), nn.Linear(5, 4, bias=False))
    first, second = (w.detach().double().abs() for w in weights_of(model))
    flow = float((second @ first @ torch.ones(12, dtype=torch.float64)).sum())
    found = score(model, (torch.randn(3, 3, 2, 2), torch.tensor([0, 1, 2])), ["synflow"], initialisation=None)
    assert found["synflow"][0] == pytest.approx(2 * flow, rel=1e-12)  # each of the two layers carries the whole flow


def test_naswot_by_hand() -> None:
    """Two inputs, three ReLU units; patterns 110, 011, 111 agree on 1, 2 and 2 units."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0, -0.1], [1.0, 1.0], [-0.1, 1.0]]))
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).view(3, 2, 1, 1)
    kernel = np.array([[3, 1, 2], [1, 3, 2], [2, 2, 3]])
    found = score(model, (x, torch.tensor([0, 1, 0])), ["naswot"], initialisation=None)
    assert found["naswot"][0] == pytest.approx(np.log(np.linalg.det(kernel)))


def test_naswot_of_equal_patterns_is_worst_not_infinite() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    found = score(model, (torch.ones(3, 2, 1, 1), torch.tensor([0, 1, 0])), ["naswot"])
    assert found["naswot"][0] == LOWEST


def test_fisher_by_hand() -> None:
    model, (x, y) = small_network(), small_batch()
    outputs: list[torch.Tensor] = []
    with torch.no_grad():
        model[0].bias.zero_()
        model[8].bias.zero_()
    value = x
    for module in model:
        value = module(value)
        if isinstance(module, nn.Conv2d | nn.Linear):
            outputs.append(value)
            value = value.clone()
    gradients = torch.autograd.grad(F.cross_entropy(value, y), outputs)
    expected = sum(
        float((a * g).flatten(2).sum(2).square().mean(0).sum() / 2) if a.ndim == 4 else
        float((a * g).square().mean(0).sum() / 2)
        for a, g in zip(outputs, gradients, strict=True)
    )  # fmt: skip
    assert own(model, "fisher") == pytest.approx(expected, rel=1e-4)


def test_fisher_with_the_fan_in_by_hand() -> None:
    """One linear layer: its channels all have the same fan-in."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 5, bias=False))
    assert own(model, "fisher-fan-in") == pytest.approx(192 * own(model, "fisher"))


def test_jacob_cov_by_numpy_and_of_a_linear_network() -> None:
    model, (x, _) = small_network().double(), small_batch()
    images = x.double().requires_grad_()
    (gradient,) = torch.autograd.grad(model(images).sum(), images)
    values = np.linalg.eigvalsh(np.corrcoef(gradient.flatten(1).numpy())) + 1e-5
    found = score(model, (x.double(), small_batch()[1]), ["jacob_cov"], initialisation=None)["jacob_cov"][0]
    assert found == pytest.approx(-(np.log(values) + 1 / values).sum(), rel=1e-6)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(192, 5))  # every image has the same gradient: one eigenvalue is m
    value, rest = 6 + 1e-5, 1e-5
    expected = -(np.log(value) + 1 / value) - 5 * (np.log(rest) + 1 / rest)
    assert own(linear, "jacob_cov") == pytest.approx(expected, rel=1e-3)


def test_knas_is_the_mean_of_the_kernel_and_below_trace() -> None:
    model, (x, y) = small_network(batch_norm=False), small_batch()
    summed = torch.autograd.grad(model(x).gather(1, y[:, None]).mean(), weights_of(model))
    assert own(model, "knas") == pytest.approx(sum(float(g.square().sum()) for g in summed), rel=1e-4)
    assert own(model, "knas") <= own(model, "trace") ** 2  # D.12


def test_params_and_macs_by_hand() -> None:
    model = small_network()
    assert own(model, "params") == 4 * 27 + 6 * 2 * 9 + 30
    assert own(model, "macs") == 16 * (4 * 27) + 16 * (6 * 2 * 9) + 30


@pytest.mark.parametrize("name", ALL)
def test_disconnected_network_has_a_finite_worst_score(name: str) -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = small_network()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.body[-1](0 * self.body[:-1](x))

    scores = score([small_network(), Cut()], small_batch(), [name])
    assert np.isfinite(scores.values).all()
    if name not in {"params", "macs", "naswot", "swap", "meco", "expressivity", "progressivity", "trainability"}:
        assert list(scores.best_first(name)) == [0, 1]


def test_listing_imports_no_torch() -> None:
    code = (
        "import sys; from archwright.proxies.registry import PROXIES; list(PROXIES); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ALL)
def test_every_registered_metric_says_what_it_is(name: str) -> None:
    proxy = PROXIES.get(name)
    assert proxy.name == name
    assert proxy.direction in (-1, 1)
    assert np.isfinite(proxy.worst)
    assert sum(part is not None for part in (proxy.term, proxy.pattern, proxy.at_input, proxy.block)) == 1


def test_linear_regions_by_hand() -> None:
    # Four images on three units: the first two agree everywhere, the others are alone. And a network with one region.
    kernel = torch.tensor([[3, 3, 1, 0], [3, 3, 1, 0], [1, 1, 3, 2], [0, 0, 2, 3]])
    found = linear_regions(torch.stack([kernel, torch.full((4, 4), 3)]).double())
    assert found.tolist() == pytest.approx([3.0, 1.0])


def test_swap_by_hand() -> None:
    """Three units over three images, as in naswot's example: 101, 111, 011; a second layer adds 001 and 101 again."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 2, bias=False), nn.ReLU())
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[1.0, -0.1], [1.0, 1.0], [-0.1, 1.0]]))
        model[3].weight.copy_(torch.tensor([[1.0, -1.0, 1.0], [1.0, 0.0, 0.0]]))
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]).view(3, 2, 1, 1)
    hidden = model[2](model[1](x.flatten(1)))
    patterns = {tuple(row) for row in torch.cat([hidden, model[4](model[3](hidden))], 1).gt(0).T.tolist()}
    found = score(model, (x, torch.tensor([0, 1, 0])), ["swap"], initialisation=None)
    assert found["swap"][0] == len(patterns)


@pytest.mark.parametrize("examples", [5, 63, 64, 150])
def test_codes_of_patterns_tell_all_of_them_apart(examples: int) -> None:
    rng = np.random.default_rng(0)
    kinds = rng.integers(2, size=(40, examples)).astype(bool)
    units = kinds[rng.integers(40, size=300)]
    active = torch.from_numpy(np.stack([units.T, units.T]))
    codes = pattern_codes(ReluRecord(torch.arange(2), active, torch.tensor([1.0, 0.0])))
    different = len({tuple(row) for row in units.tolist()})
    rows = torch.arange(2)[:, None].expand(codes.shape)
    assert distinct_codes(rows.flatten(), codes.flatten(), 2).tolist() == [different, 0]


def test_zico_by_numpy() -> None:
    model, (x, y) = small_network(batch_norm=False).double(), small_batch()
    x = x.double()
    halves = [
        torch.autograd.grad(F.cross_entropy(model(x[part]), y[part]), weights_of(model))
        for part in (slice(0, 3), slice(3, 6))
    ]
    expected = 0.0
    for pair in zip(*halves, strict=True):
        g = np.abs(np.stack([one.numpy().ravel() for one in pair]))
        g = g[:, g.std(0) > 0]  # units that no image of either half turns on say nothing
        expected += np.log((g.mean(0) / g.std(0)).sum())
    found = score(model, (x, y), ["zico"], initialisation=None)
    assert found["zico"][0] == pytest.approx(expected, rel=1e-9)


def test_meco_by_numpy() -> None:
    model, (x, _) = small_network(batch_norm=False), small_batch()
    maps = model[0](x[:1])
    later = model[3](model[2](maps.clone()))
    expected = sum(np.linalg.eigvalsh(np.corrcoef(one[0].flatten(1).detach().numpy()))[0] for one in (maps, later))
    assert own(model, "meco") == pytest.approx(expected, rel=1e-3)  # the classifier has one position: 0


def test_expressivity_and_progressivity_of_known_spectra() -> None:
    wave = torch.tensor([[1.0, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]])
    flat, one = wave[None], torch.ones(3, 1) * wave[:1]
    rows = torch.zeros(1, dtype=torch.long)
    records = [BlockRecord(rows, n, 3, f) for n, f in enumerate((one[None], flat, torch.zeros(1, 3, 4)))]
    table = sum(entropies(record) for record in records)
    assert table[0].tolist() == pytest.approx([0.0, np.log(3), 0.0])
    assert float(least_rise(table)) == pytest.approx(-np.log(3))


def test_trainability_of_linear_blocks() -> None:
    """Rows of a Hadamard matrix are signs without correlation: the estimate is the Jacobian itself."""
    signs = torch.tensor([[1.0, 1, -1, -1], [1, -1, 1, -1]])
    rows, features = torch.zeros(1, dtype=torch.long), torch.zeros(1, 2, 4)
    weight = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    first = BlockRecord(rows, 0, 3, features)
    second = BlockRecord(rows, 1, 3, features, signs, (weight.T @ signs)[None])
    identity = BlockRecord(rows, 2, 3, features, signs, signs[None])
    assert jumps(first)[0].tolist() == [0, 0, 0]
    assert jumps(second)[0].tolist() == pytest.approx([0, 2 - 3 - 1 / 3, 0], abs=1e-5)
    assert jumps(identity)[0, 2] == IDENTITY
    assert float(mean_jump(jumps(first) + jumps(second))) == pytest.approx((2 - 3 - 1 / 3) / 2, abs=1e-5)


def test_folding_is_a_pixel_unshuffle() -> None:
    images = torch.randn(2, 3, 4, 4)
    expected = F.pixel_unshuffle(images, 2)
    found = folded(images.permute(1, 2, 3, 0)[None], 2, 2)[0]
    torch.testing.assert_close(found.view(12, 2, 2, 2).permute(3, 0, 1, 2), expected)
