"""Any module is scored right: every metric of gradients against per-example gradients by torch.func in float64."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.flop_counter import FlopCounterMode

from archwright.errors import InputError
from archwright.proxies.initialise import initialise
from archwright.proxies.modules import record_module
from archwright.proxies.score import score

CLASSES, EXAMPLES = 4, 5


def small_vit() -> nn.Module:
    path = Path(__file__).parents[2] / "examples" / "small_vit.py"
    spec = importlib.util.spec_from_file_location("small_vit", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SmallVit(CLASSES, 6, 2, width=8, depth=2, heads=2)


class Wrapped(nn.Module):
    """A network of parts and a function of them."""

    def __init__(self, forward: Callable[[nn.Module, Tensor], Tensor], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self.run = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


def tokens(x: Tensor) -> Tensor:
    """Images (m, 2, 6, 6) as 6 tokens of 12 features."""
    return x.transpose(1, 2).flatten(2)


def plain() -> nn.Module:
    first, second = nn.Conv2d(2, 4, 3, padding="same"), nn.Conv2d(4, 6, 3, 2, padding=2, dilation=2, groups=2)
    return nn.Sequential(first, nn.GroupNorm(2, 4), nn.ReLU(inplace=True), second, nn.ReLU6(),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.5), nn.Linear(6, CLASSES))  # fmt: skip


def tied() -> nn.Module:
    shared = nn.Conv2d(2, 2, 3, padding=1)
    return nn.Sequential(shared, nn.ReLU(), shared, nn.Flatten(), nn.Linear(72, CLASSES))


def tied_transposed() -> nn.Module:
    return Wrapped(
        lambda net, x: net.out(F.linear(net.there(x.flatten(1)).tanh(), net.there.weight.t())),
        there=nn.Linear(72, 3), out=nn.Linear(72, CLASSES),
    )  # fmt: skip


def packed() -> nn.Module:
    """One parameter whose halves are two layers."""
    return Wrapped(
        lambda net, x: net.out(F.linear(F.relu(F.linear(x.flatten(1), net.both[:, :72])), net.both[:, 72:])),
        both=nn.Parameter(0.2 * torch.randn(5, 77)), out=nn.Linear(5, CLASSES),
    )  # fmt: skip


def decoder() -> nn.Module:
    wider = nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2)
    return nn.Sequential(nn.Conv2d(2, 4, 3, 2), nn.ReLU(), wider, nn.Flatten(), nn.LazyLinear(CLASSES))


def token_mixer() -> nn.Module:
    across, along = nn.Linear(6, 6), nn.Linear(12, 8)
    return Wrapped(lambda net, x: net.out(net.along(net.across(tokens(x).mT).relu().mT).tanh().mean(1)),
                   across=across, along=along, out=nn.Linear(8, CLASSES))  # fmt: skip


def cross_attention() -> nn.Module:
    attention = nn.MultiheadAttention(4, 2, kdim=12, vdim=12, dropout=0.3, batch_first=True)

    def run(net: nn.Module, x: Tensor) -> Tensor:
        seen = tokens(x)
        return net.out(net.attention(net.query(seen), seen, seen, need_weights=False)[0].mean(1))

    return Wrapped(run, query=nn.Linear(12, 4), attention=attention, out=nn.Linear(4, CLASSES))


def packed_cross_attention() -> nn.Module:
    def run(net: nn.Module, x: Tensor) -> Tensor:
        seen = tokens(x).transpose(0, 1)
        return net.out(net.attention(seen.sin(), seen, 2 * seen)[0].mean(0))

    return Wrapped(run, attention=nn.MultiheadAttention(12, 3), out=nn.Linear(12, CLASSES))


def sequence_first() -> nn.Module:
    """As many tokens as images: which axis is the batch cannot be told from one shape."""
    return Wrapped(lambda net, x: net.out(net.body(tokens(x)[:, :EXAMPLES].transpose(0, 1)).relu().square().mean(0)),
                   body=nn.Linear(12, 7), out=nn.Linear(7, CLASSES))  # fmt: skip


def windows() -> nn.Module:
    """Each image cut in two, run as images of their own."""

    def run(net: nn.Module, x: Tensor) -> Tensor:
        halves = x.unflatten(2, (2, 3)).transpose(1, 2).flatten(0, 1)
        return net.out(net.body(halves).relu().mean((2, 3)).view(len(x), -1))

    return Wrapped(run, body=nn.Conv2d(2, 3, 3, padding=1), out=nn.Linear(6, CLASSES))


def products() -> nn.Module:
    return Wrapped(lambda net, x: net.out(torch.einsum("mtf,fo->mto", tokens(x), net.a).relu().mean(1) @ net.b),
                   a=nn.Parameter(torch.randn(12, 5)), b=nn.Parameter(torch.randn(5, 6)),
                   out=nn.Linear(6, CLASSES))  # fmt: skip


def recurrent() -> nn.Module:
    return Wrapped(lambda net, x: net.out(net.body(tokens(x))[0][:, -1]), body=nn.GRU(12, 3, batch_first=True),
                   out=nn.Linear(3, CLASSES))  # fmt: skip


def rows() -> nn.Module:
    return nn.Sequential(nn.Flatten(2), nn.Conv1d(2, 4, 5, 2, 1), nn.ReLU(), nn.Flatten(), nn.LazyLinear(CLASSES))


NETWORKS = [plain, tied, tied_transposed, packed, decoder, token_mixer, cross_attention, packed_cross_attention,
            sequence_first, windows, products, recurrent, rows, small_vit]  # fmt: skip


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(EXAMPLES, 2, 6, 6, generator=generator, dtype=torch.float64)
    return images, torch.tensor([0, 1, 2, 3, 1])


def made(build: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    network = build().double()
    network(batch()[0])  # lazy layers get their shape
    return network


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """All parameters of two axes or more; those of the transformer that are added are no weights."""
    return {n: p.detach() for n, p in network.named_parameters() if p.ndim >= 2 and n not in ("first", "positions")}


@pytest.mark.parametrize("build", NETWORKS, ids=lambda build: build.__name__)
@pytest.mark.filterwarnings("ignore:not counted", "ignore:Lazy")
def test_scores_against_per_example_gradients(build: Callable[[], nn.Module]) -> None:
    network, (x, y) = made(build), batch()
    found = score(network, (x, y), ["grad", "snip", "grasp", "trace", "kappa", "knas", "params"], initialisation=None)
    exact = score(network, (x, y), ["trace", "kappa"], initialisation=None, ntk="exact")
    network.eval().requires_grad_(False)  # dropout off; none of these has batch norm
    weights = weights_of(network)

    def loss(w: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(functional_call(network, w, (x,)), y)

    each = [
        grad(lambda w, i=i: functional_call(network, w, (x[i : i + 1],))[0, y[i]])(weights) for i in range(EXAMPLES)
    ]
    jacobian = torch.stack([torch.cat([one[n].flatten() for n in weights]) for one in each])
    theta = (jacobian @ jacobian.T).detach().numpy()
    with sdpa_kernel(SDPBackend.MATH):  # the other kernels have no forward derivative
        gradient, product = jvp(grad(loss), (weights,), (weights,))
    expected = {
        "grad": sum(float(g.norm()) for g in gradient.values()),
        "snip": sum(float((weights[n] * gradient[n]).abs().sum()) for n in weights),
        "grasp": -sum(float((gradient[n] * product[n]).sum()) for n in weights),
        "trace": np.sqrt(np.trace(theta) / EXAMPLES),
        "kappa": np.linalg.cond(theta),
        "knas": theta.mean(),
        "params": sum(w.numel() for w in weights.values()),
    }
    for name, value in expected.items():
        assert found[name][0] == pytest.approx(value, rel=1e-7), name
    assert exact["trace"][0] == pytest.approx(expected["trace"], rel=1e-9)
    assert exact["kappa"][0] == pytest.approx(expected["kappa"], rel=1e-6)


def test_a_parametrised_weight_is_the_weight_that_is_used() -> None:
    (x, y), names = batch(), ["grad", "snip", "trace", "fisher", "params", "macs", "synflow"]
    network = made(
        lambda: nn.Sequential(weight_norm(nn.Conv2d(2, 3, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(48, CLASSES))
    )
    twin = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, CLASSES)).double()
    with torch.no_grad():
        twin[0].weight.copy_(network[0].weight)
        twin[0].bias.copy_(network[0].bias)
    twin[3].load_state_dict(network[3].state_dict())
    ours, theirs = (score(one, (x, y), names, initialisation=None) for one in (network, twin))
    np.testing.assert_allclose(ours.values[:, :6], theirs.values[:, :6], rtol=1e-9)
    assert ours["synflow"][0] > 0
    before = network[0].weight.detach().clone()
    score(network, (x, y), ["grad"])  # drawn anew, and put back
    torch.testing.assert_close(network[0].weight, before)


def test_multiply_accumulates_are_those_of_the_flop_counter_and_by_hand() -> None:
    network, (x, _) = made(small_vit), batch()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(x)
    assert _one(network, "macs") == counter.get_total_flops() / 2 / EXAMPLES
    linear = made(token_mixer)
    assert _one(linear, "macs") == 12 * 36 + 6 * 96 + 32


def test_dropout_is_off_and_frozen_weights_are_left_out() -> None:
    network, (x, y) = made(plain), batch()
    assert _one(network, "grad") == _one(network, "grad")
    network[0].weight.requires_grad_(False)
    before = network[0].weight.clone()
    records, *_ = record_module(network, x, y)
    assert [record.name for record in records] == ["3", "8"]
    initialise(network, torch.Generator().manual_seed(0))
    assert torch.equal(network[0].weight, before)
    network.requires_grad_(False)
    with pytest.raises(InputError, match="frozen"):
        score(network, (x, y), ["grad"], initialisation=None)


def test_what_is_not_counted_is_named() -> None:
    network, (x, y) = made(small_vit), batch()
    with pytest.warns(UserWarning, match="not counted.*: first, positions"):
        score(network, (x, y), ["grad"])
    with pytest.warns(UserWarning, match="fisher does not see.*body.weight_ih_l0"):
        score(made(recurrent), (x, y), ["fisher"])


def test_a_functional_relu_counts_and_a_network_without_one_is_refused() -> None:
    generator = torch.Generator().manual_seed(0)
    by_module = nn.Sequential(nn.Flatten(), nn.Linear(72, 6), nn.ReLU(), nn.Linear(6, CLASSES))
    by_function = Wrapped(
        lambda net, x: net.b(F.relu(net.a(x.flatten(1)))), a=nn.Linear(72, 6), b=nn.Linear(6, CLASSES)
    )
    found = []
    for network in (by_module, by_function):
        initialise(network.double(), generator.manual_seed(0))
        found.append(score(network, batch(), ["naswot", "regions"], initialisation=None).values[0])
    np.testing.assert_array_equal(*found)
    with pytest.raises(InputError, match="ReLUs for naswot"):
        _one(made(small_vit), "naswot")


def test_initialisation_leaves_what_is_no_weight() -> None:
    layers = nn.ModuleDict(
        {"norm": nn.LayerNorm((2, 3)), "prelu": nn.PReLU(4, 0.2), "embedding": nn.Embedding(3, 4),
         "attention": nn.MultiheadAttention(64, 2), "up": nn.ConvTranspose2d(64, 8, 3, groups=2)}
    )  # fmt: skip
    embedding = layers["embedding"].weight.detach().clone()
    initialise(layers, torch.Generator().manual_seed(0))
    assert (layers["norm"].weight == 1).all()
    assert (layers["prelu"].weight == 0.2).all()
    assert torch.equal(layers["embedding"].weight, embedding)
    assert float(layers["attention"].in_proj_weight.detach().var()) == pytest.approx(1 / 64, rel=0.1)
    assert float(layers["up"].weight.detach().var()) == pytest.approx(1 / (32 * 9), rel=0.1)


def _one(network: nn.Module, name: str) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(score(network, batch(), [name], initialisation=None)[name][0])
