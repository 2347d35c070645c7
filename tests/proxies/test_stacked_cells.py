"""Stacked DARTS-style networks are what they are one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from archwright.errors import DivergedError, InputError
from archwright.proxies import stacked_cells
from archwright.proxies.program import SharedWeights
from archwright.proxies.registry import PROXIES
from archwright.proxies.score import find_proxies, score
from archwright.proxies.stacked_cells import pairs_of, score_stacked_cells
from archwright.spaces.base import Scale
from archwright.spaces.cells import Cell, CellPair, build_cells
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201

ALL = [entry.name for entry in PROXIES]
SCALE = Scale(channels=2, cells=3, classes=4, image_size=8)


def batch(size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 3, size, size, generator=generator), torch.arange(8) % 4


def pairs() -> list[CellPair]:
    rng = np.random.default_rng(0)
    odd = Cell(
        (
            (("sep_conv_3x3", 0), ("sep_conv_3x3", 0)),  # the same edge twice
            (("none", 1), ("none", 0)),  # nothing
            (("dil_conv_5x5", 3), ("skip_connect", 2)),  # from nothing
            (("max_pool_3x3", 4), ("avg_pool_3x3", 0)),
        ),
        (2, 3, 4, 5),
    )
    other = Cell(
        (
            (("conv_7x1_1x7", 0), ("sep_conv_7x7", 1)),
            (("nor_conv_3x3", 1), ("skip_connect", 0)),
            (("nor_conv_1x1", 3), ("conv_7x1_1x7", 2)),
            (("max_pool_3x3", 1), ("avg_pool_3x3", 4)),
        ),
        (2, 3, 4, 5),
    )
    return [*(DARTS.sample(rng) for _ in range(4)), CellPair(odd, odd), CellPair(other, other)]


def with_weights(pair: CellPair, weights: SharedWeights) -> nn.Module:
    """The network of the space itself with the weights that the program draws by their place."""
    network = build_cells(pair, SCALE)

    def put(layer: nn.Module, name: str) -> None:
        shape = tuple(layer.weight.shape)
        layer.weight.copy_(weights(name, shape if len(shape) == 4 else (*shape, 1, 1)).view(shape))

    def put_operation(module: nn.Module, name: str) -> None:
        if hasattr(module, "second"):
            put(module.first, f"{name}.first")
            put(module.second, f"{name}.second")
        for number, layer in enumerate(module if isinstance(module, nn.Sequential) else []):
            if isinstance(layer, nn.Conv2d):
                put(layer, f"{name}.{number}")

    with torch.no_grad():
        put(network.stem[0], "stem")
        for number, cell in enumerate(network.stack):
            put_operation(cell.first, f"cell{number}.first")
            put_operation(cell.second, f"cell{number}.second")
            edges = iter(cell.inner.edges)
            for node, incoming in enumerate(cell.inner.cell.nodes, 2):
                seen: list[tuple[str, int]] = []
                for edge in incoming:
                    place = f"cell{number}.{node}.{edge[1]}.{edge[0]}.{seen.count(edge)}"
                    put_operation(next(edges), place)
                    seen.append(edge)
        put(network.classifier, "classifier")
        network.classifier.bias.zero_()
    return network


@pytest.mark.parametrize("size", [8, 6])  # 6 pixels become 3, and their half is rounded up
def test_stacked_is_one_by_one(size: int) -> None:
    (x, y), weights = batch(size), SharedWeights(seed=5)
    names = [name for name in ALL if name not in {"grasp", "grasp-abs"}]
    if size == 6:
        names.remove("trainability")  # which folds the pixels that become one, and 3 do not become 2
    stacked = score_stacked_cells(pairs(), x, y, find_proxies(names), scale=SCALE, weights=weights, stack=3)
    single = score((with_weights(pair, weights) for pair in pairs()), (x, y), names, initialisation=None)
    for name in names:
        rtol = {"zico": 1e-2, "kappa": 1e-2}.get(name, 1e-3)
        mask = single[name] < 1e5 if name == "kappa" else np.ones(len(pairs()), bool)
        np.testing.assert_allclose(stacked[name][mask], single[name][mask], rtol=rtol, atol=1e-6, err_msg=name)


def test_second_derivatives_in_float64() -> None:
    (x, y), drawn = batch(), SharedWeights(seed=1)
    weights = lambda name, shape: drawn(name, shape).double()  # noqa: E731
    found = score_stacked_cells(pairs()[:2], x.double(), y, find_proxies(["grasp"]), scale=SCALE, weights=weights)
    networks = (with_weights(pair, drawn).double() for pair in pairs()[:2])
    single = score(networks, (x.double(), y), ["grasp"], initialisation=None)
    np.testing.assert_allclose(found["grasp"], single["grasp"], rtol=1e-9)


def test_scores_do_not_depend_on_the_company() -> None:
    (x, y), proxies = batch(), find_proxies(["grad", "swap"])
    together = score_stacked_cells(pairs(), x, y, proxies, scale=SCALE, seed=3)
    alone = score_stacked_cells(pairs()[2:3], x, y, proxies, scale=SCALE, seed=3)
    assert together["grad"][2] == pytest.approx(alone["grad"][0], rel=1e-4)
    assert together["swap"][2] == alone["swap"][0]


def test_a_loss_that_is_not_finite_is_refused() -> None:
    def broken(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.full(shape, torch.nan)

    with pytest.raises(DivergedError, match="finite loss"):
        score_stacked_cells(pairs(), *batch(), find_proxies(["grad"]), scale=SCALE, weights=broken)


def test_large_maps_are_stacked_less_high() -> None:
    assert stacked_cells._stack_size(torch.empty(32, 3, 8, 8), Scale(4, 3)) == 48
    assert stacked_cells._stack_size(torch.empty(64, 3, 16, 16), Scale(8, 3)) == 6
    assert stacked_cells._stack_size(torch.empty(256, 3, 32, 32), Scale(16, 3)) == 4


def test_what_cannot_be_stacked() -> None:
    rng = np.random.default_rng(0)
    assert pairs_of([NASBENCH201.sample(rng), *pairs()]) is None
    small = Cell(((("skip_connect", 0),),), (2,))
    assert pairs_of([CellPair(small, small)]) is None
    assert pairs_of(pairs()) == pairs()
    with pytest.raises(InputError, match="labels"):
        score_stacked_cells(pairs(), batch()[0], batch()[1] + 2, find_proxies(["grad"]), scale=SCALE)
