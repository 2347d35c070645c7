from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.proxies import lanes
from archwright.proxies.program import Program, SharedWeights
from archwright.proxies.registry import PROXIES
from archwright.proxies.score import find_proxies, score
from archwright.proxies.stacked import ProxyScale, score_stacked
from archwright.proxies.stacked_cells import score_stacked_cells
from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from helpers.nb201_module import Network, with_weights

ALL = [entry.name for entry in PROXIES]


def batch(m: int = 12, size: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(m, 3, size, size, generator=generator), torch.randint(10, (m,), generator=generator)


def some_operations(count: int) -> np.ndarray:
    rows = np.random.default_rng(0).integers(5, size=(count, 6))
    rows[0] = 3
    rows[1] = [0, 0, 0, 1, 0, 0]
    return rows


@pytest.fixture
def in_double() -> Iterator[None]:
    """Float64 throughout: ratios of small differences (zico, grasp) differ between processors in float32."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(("size", "cells"), [(8, 1), (4, 2)])
def test_stacked_is_one_by_one(size: int, cells: int, in_double: None) -> None:
    (x, y), rows, weights = batch(size=size), some_operations(14), SharedWeights(seed=5)
    stacked = score_stacked(rows, x, y, find_proxies(ALL), scale=ProxyScale(cells=cells), weights=weights, stack=5)
    networks = (with_weights(Network(row, cells=cells), weights, cells) for row in rows)
    single = score(networks, (x, y), ALL, initialisation=None)
    for name in ALL:
        mask = single[name] < 1e5 if name == "kappa" else np.ones(len(rows), bool)
        np.testing.assert_allclose(stacked[name][mask], single[name][mask], rtol=1e-6, atol=1e-9, err_msg=name)


def test_scores_do_not_depend_on_what_they_are_stacked_with() -> None:
    (x, y), rows, proxies = batch(), some_operations(9), find_proxies(["grad", "snip", "trace"])
    together = score_stacked(rows, x, y, proxies, stack=9)
    reverse = score_stacked(rows[::-1], x, y, proxies, stack=2)
    for name, values in together.items():
        np.testing.assert_allclose(values, reverse[name][::-1], rtol=1e-4)


def test_disconnected_cell_is_defined_and_worst() -> None:
    (x, y), rows = batch(), some_operations(6)
    rows[3] = [3, 3, 3, 0, 0, 0]
    scores = score_stacked(rows, x, y, find_proxies(ALL))
    for name in set(ALL) - {"naswot", "regions", "params", "macs", "swap", "meco", "zico"}:
        assert np.isfinite(scores[name]).all()
        assert np.argmin(PROXIES.get(name).direction * scores[name]) == 3


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**40 + 3])
def test_a_weight_is_drawn_from_its_seed_and_the_letters_of_its_name(seed: int) -> None:
    words = np.random.SeedSequence([seed, *b"stem"]).generate_state(2)
    generator = torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
    drawn = torch.randn(4, 3, 3, 3, generator=generator) / 27**0.5
    torch.testing.assert_close(SharedWeights(seed)("stem", (4, 3, 3, 3)), drawn)


def test_weights_depend_on_seed_and_name_only() -> None:
    first, second = SharedWeights(1), SharedWeights(1)
    second("other", (4, 4, 1, 1))
    assert torch.equal(first("stem", (4, 3, 3, 3)), second("stem", (4, 3, 3, 3)))
    assert not torch.equal(first("stem", (4, 3, 3, 3)), SharedWeights(2)("stem", (4, 3, 3, 3)))
    wide = SharedWeights(0, "he")("wide", (64, 64, 3, 3))
    assert float(wide.var()) == pytest.approx(2 / 576, rel=0.05)


@pytest.mark.parametrize("size", [(4, 4), (5, 3)])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("kernel", [(1, 1), (3, 3), (1, 7)])
def test_lane_convolutions_against_autograd(
    kernel: tuple[int, int], stride: tuple[int, int], size: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, *size, 5), torch.randn(2, 6, 3, *kernel)
    out = lanes.convolve(x, weight, stride)
    signal = torch.randn_like(out)
    padding = (kernel[0] // 2, kernel[1] // 2)
    for lane in range(2):
        images = x[lane].permute(3, 0, 1, 2).requires_grad_()
        kernel_ = weight[lane].clone().requires_grad_()
        plain = torch.nn.functional.conv2d(images, kernel_, stride=stride, padding=padding)
        torch.testing.assert_close(out[lane].permute(3, 0, 1, 2), plain, rtol=1e-4, atol=1e-5)
        dx, dw = torch.autograd.grad(plain, (images, kernel_), signal[lane].permute(3, 0, 1, 2))
        back = lanes.convolve_input_gradient(signal, weight, stride, *size)[lane]
        torch.testing.assert_close(back.permute(3, 0, 1, 2), dx, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            lanes.convolve_weight_gradient(signal, x, kernel, stride)[lane], dw, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("stride", [(1, 1), (2, 2)])
def test_gradients_of_single_examples_where_lanes_share_their_input(stride: tuple[int, int]) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 4, 4, 5), torch.randn(2, 6, 3, 3, 3)
    out = lanes.convolve(x.expand(2, *x.shape), weight, stride)
    signals = torch.randn(2, *out.shape)
    found = lanes.convolve_single_gradients(signals, x, (3, 3), stride)
    for example in range(5):
        alone = x[None, ..., example : example + 1].expand(2, -1, -1, -1, -1)
        for signal, part in zip(signals, found, strict=True):
            plain = lanes.convolve_weight_gradient(signal[..., example : example + 1], alone, (3, 3), stride)
            torch.testing.assert_close(part[..., example], plain, rtol=1e-4, atol=1e-4)


def test_bad_input() -> None:
    x, y = batch()
    proxies = find_proxies(["grad"])
    with pytest.raises(InputError, match="operations"):
        score_stacked(np.array([[5, 0, 0, 0, 0, 0]]), x, y, proxies)
    with pytest.raises(InputError, match="operations"):
        score_stacked(np.zeros((0, 6), int), x, y, proxies)
    with pytest.raises(InputError, match="divisible by 4"):
        score_stacked(some_operations(2), x[..., :6], y, proxies)
    with pytest.raises(InputError, match="labels"):
        score_stacked(some_operations(2), x, y, proxies, scale=ProxyScale(classes=2))
    with pytest.raises(InputError, match="two images"):
        score_stacked(some_operations(2), x[:1], y[:1], find_proxies(["kappa"]))


def test_programs_are_freed_without_the_garbage_collector() -> None:
    # Activations in reference cycles would pile up: tensors are large and few, so collections are rare.
    images, labels = torch.randn(8, 3, 4, 4), torch.arange(8)
    gc.collect()
    gc.disable()
    try:
        score_stacked(np.full((2, 6), 3), images, labels, find_proxies(["grad", "kappa", "grasp", "synflow", "naswot"]))
        score_stacked(np.full((2, 6), 3), images, labels, find_proxies(["naswot"]))
        pair, metrics = DARTS.sample(np.random.default_rng(0)), find_proxies(["grad", "kappa", "grasp", "trainability"])
        score_stacked_cells([pair], images, labels, metrics, scale=Scale(4, 1, image_size=4))
        score_stacked_cells([pair], images, labels, find_proxies(["naswot"]), scale=Scale(4, 1, image_size=4))
        left = [one for one in gc.get_objects() if Program in type(one).__mro__]
    finally:
        gc.enable()
    assert left == []
