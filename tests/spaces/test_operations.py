import itertools

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from archwright.spaces.operations import OPERATIONS, Cost, DropPath, FactorizedReduce, Zero


@pytest.mark.parametrize(
    ("name", "stride", "size"), list(itertools.product(sorted(OPERATIONS), (1, 2), (7, 8))), ids=str
)
def test_cost_and_shape_are_those_of_the_module(name, stride, size):
    operation = OPERATIONS[name]
    module = operation.build(4, 4, stride, True).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        out = module(torch.randn(1, 4, size, size))
    assert out.shape == (1, 4, -(-size // stride), -(-size // stride))
    params = sum(parameter.numel() for parameter in module.parameters())
    assert operation.cost(4, 4, size, stride) == Cost(params, counter.get_total_flops() // 2)
    unscaled = sum(parameter.numel() for parameter in operation.build(4, 4, stride, False).parameters())
    assert operation.cost(4, 4, size, stride, affine=False).params == unscaled


def test_parameter_counts_by_hand():
    def params(name, stride=1):
        return OPERATIONS[name].cost(16, 16, 8, stride).params

    assert params("nor_conv_1x1") == 16 * 16 + 32
    assert params("nor_conv_3x3") == 9 * 16 * 16 + 32
    assert params("sep_conv_5x5") == 2 * (25 * 16 + 16 * 16 + 32)
    assert params("dil_conv_3x3") == 9 * 16 + 16 * 16 + 32
    assert params("conv_7x1_1x7") == 2 * 7 * 16 * 16 + 32
    assert params("skip_connect", 2) == 16 * 16 + 32
    assert params("skip_connect") == params("none") == params("max_pool_3x3") == params("avg_pool_3x3") == 0


def test_a_dilated_convolution_sees_every_other_pixel():
    module = OPERATIONS["dil_conv_3x3"].build(2, 2, 1, True).eval()
    x = torch.ones(1, 2, 9, 9, requires_grad=True)
    module(x)[0, :, 4, 4].sum().backward()
    seen = set(map(tuple, x.grad[0].abs().sum(0).nonzero().tolist()))
    assert seen == {(row, column) for row in (2, 4, 6) for column in (2, 4, 6)}


@pytest.mark.parametrize("size", [6, 7])
def test_factorized_reduce_is_two_offset_convolutions_of_relu(size):
    module = FactorizedReduce(4, 6, affine=True).eval()
    x = torch.randn(2, 4, size, size)
    small = -(-size // 2)
    padded = torch.zeros(2, 4, 2 * small, 2 * small)
    padded[:, :, :size, :size] = x.clamp(min=0)
    expected = torch.zeros(2, 6, small, small)
    for row, column in itertools.product(range(small), repeat=2):
        even, odd = padded[:, :, 2 * row, 2 * column], padded[:, :, 2 * row + 1, 2 * column + 1]
        expected[:, :3, row, column] = even @ module.first.weight[:, :, 0, 0].T
        expected[:, 3:, row, column] = odd @ module.second.weight[:, :, 0, 0].T
    expected /= (1 + module.norm.eps) ** 0.5
    assert torch.allclose(module(x), expected, atol=1e-5)


def test_padding_never_counts_in_average_pooling():
    out = OPERATIONS["avg_pool_3x3"].build(2, 2, 1, True)(torch.ones(1, 2, 4, 4))
    assert torch.equal(out, torch.ones(1, 2, 4, 4))


def test_pool_norm_puts_a_batch_norm_behind_pools_only():
    for name in ("avg_pool_3x3", "max_pool_3x3"):
        module = OPERATIONS[name].build(2, 2, 1, True, pool_norm=True)
        assert isinstance(module[1], nn.BatchNorm2d)
        assert not list(module.parameters())
    assert isinstance(OPERATIONS["skip_connect"].build(2, 2, 1, True, pool_norm=True), nn.Identity)


def test_zero_has_the_shape_of_a_strided_output():
    assert torch.equal(Zero(2)(torch.ones(1, 2, 5, 5)), torch.zeros(1, 2, 3, 3))


def test_drop_path_drops_whole_examples_and_keeps_the_mean():
    torch.manual_seed(0)
    drop = DropPath()
    drop.p = 0.25
    x = torch.ones(20_000, 2, 1, 1)
    out = drop(x)
    assert out.unique().tolist() == pytest.approx([0, 4 / 3])
    assert torch.equal(out[:, 0], out[:, 1])
    assert out.mean().item() == pytest.approx(1, abs=0.02)
    assert torch.equal(drop.eval()(x), x)
