"""The NAS-Bench-1Shot1 supernet: its sums, what runs, gradients, and inherited networks of the same function."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from archwright.errors import InputError
from archwright.spaces.base import Scale
from archwright.spaces.nasbench1shot1 import NASBENCH1SHOT1_1, NASBENCH1SHOT1_2, SPACES, NasBench1Shot1
from archwright.supernets.cell import CellSupernet
from archwright.supernets.node_cell import NodeCell

SMALL = Scale(channels=4, cells=2, classes=3, image_size=8)
each = pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))


def soft(space: NasBench1Shot1, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {n: torch.rand(shape, generator=generator).softmax(-1) for n, shape in space.decisions.items()}


def images(seed: int = 0) -> torch.Tensor:
    return torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def test_cell_is_the_hand_written_sum() -> None:
    torch.manual_seed(0)
    space, weights = NASBENCH1SHOT1_1, soft(NASBENCH1SHOT1_1)
    cell = NodeCell(space.pattern, 5, 4, affine=True, pool_norm=False).eval()
    x = torch.randn(2, 5, 6, 6)

    def mixed(vertex: int, value: torch.Tensor) -> torch.Tensor:
        return sum(op(value) * w for op, w in zip(cell.operations[str(vertex)], weights["operation"][vertex - 1]))  # type: ignore[arg-type,return-value]  # noqa: B905

    into = {v: cell.projections[str(v)](x) for v in range(1, 6)}
    third, fourth, last = weights["inputs_3"][0], weights["inputs_4"][0], weights["output"][0]
    one = mixed(1, into[1])
    two = mixed(2, into[2] + one)  # two parents of two: no weights
    three = mixed(3, third[0] * into[3] + third[1] * one + third[2] * two)
    four = mixed(4, fourth[0] * into[4] + fourth[1] * one + fourth[2] * two + fourth[3] * three)
    expected = torch.cat([last[0] * into[5], last[1] * one, last[2] * two, last[3] * three, last[4] * four], 1)
    active = {name: np.ones(shape, dtype=bool) for name, shape in space.decisions.items()}
    torch.testing.assert_close(cell(x, weights, active), expected)


@each
@pytest.mark.parametrize("affine", [False, True])
def test_inherited_network_is_the_same_function(space: NasBench1Shot1, affine: bool) -> None:
    torch.manual_seed(1)
    supernet = CellSupernet(space, SMALL, affine=affine, statistics="running")
    for name, parameter in supernet.named_parameters():
        if "projections" in name or "operations" in name:
            torch.nn.init.normal_(parameter, 0.3, 0.3)
    rng = np.random.default_rng(0)
    for _ in range(4):
        architecture = space.sample(rng)
        weights = supernet.one_hot(architecture)
        with torch.no_grad():
            supernet.float().train()(images(), weights)  # moves the running statistics
            network = supernet.inherit(architecture).eval().double()
            double = {name: tensor.double() for name, tensor in weights.items()}
            expected = supernet.eval().double()(images().double(), double)
            torch.testing.assert_close(network(images().double()), expected)
        assert sum(p.numel() for p in network.parameters()) < sum(p.numel() for p in supernet.parameters())


@each
def test_zero_weight_parts_do_not_run_and_change_nothing(space: NasBench1Shot1) -> None:
    torch.manual_seed(2)
    supernet = CellSupernet(space, SMALL)
    architecture = space.sample(np.random.default_rng(3))
    weights = supernet.one_hot(architecture)
    everything = {name: np.ones(shape, dtype=bool) for name, shape in space.decisions.items()}
    ran: list[str] = []
    for name, module in supernet.network.stages[0][0].operations.named_modules():  # type: ignore[index,union-attr]
        if name.count(".") == 1:
            module.register_forward_hook(lambda _m, _i, _o, name=name: ran.append(name))
    with torch.no_grad():
        lazy = supernet(images(), weights)
        live = architecture.live()[1:-1]
        assert ran == [f"{vertex}.{architecture.operations[vertex - 1]}" for vertex in live]
        torch.testing.assert_close(lazy, supernet(images(), weights, everything))


def test_unselected_parts_of_a_hard_sample_get_gradients() -> None:
    torch.manual_seed(3)
    space = NASBENCH1SHOT1_2
    supernet = CellSupernet(space, SMALL)
    architecture = space.sample(np.random.default_rng(1))
    weights = {name: tensor.requires_grad_() for name, tensor in supernet.one_hot(architecture).items()}
    supernet(images(), weights).square().sum().backward()
    gradients = {name: tensor.grad for name, tensor in weights.items()}
    live = [vertex - 1 for vertex in architecture.live()[1:-1]]
    dead = sorted(set(range(4)) - set(live))
    assert dead  # this sample has loose ends
    assert (gradients["output"] != 0).all()
    assert (gradients["operation"][live] != 0).all()  # type: ignore[index]
    assert (gradients["operation"][dead] == 0).all()  # type: ignore[index]


def test_operation_subset_and_links_are_masked_apart() -> None:
    """Leaving an operation out must not touch the parents, whose rows may be three wide too."""
    torch.manual_seed(4)
    space = NASBENCH1SHOT1_1
    supernet = CellSupernet(space, SMALL, operations=("conv1x1", "conv3x3"))
    weights = soft(space)
    without = {name: tensor.clone() for name, tensor in weights.items()}
    without["operation"][:, 2] = 0
    with torch.no_grad():
        torch.testing.assert_close(supernet(images(), weights), supernet(images(), without))
        closed = {name: tensor.clone() for name, tensor in weights.items()}
        closed["inputs_3"][0, 2] = 0
        assert not torch.allclose(supernet(images(), weights), supernet(images(), closed))


def test_nothing_chosen_is_zero_not_an_error() -> None:
    supernet = CellSupernet(NASBENCH1SHOT1_1, SMALL)
    weights = {name: torch.zeros(shape) for name, shape in NASBENCH1SHOT1_1.decisions.items()}
    assert supernet(images(), weights).shape == (3, 3)


def test_partial_channels_are_refused() -> None:
    with pytest.raises(InputError, match="partial"):
        CellSupernet(NASBENCH1SHOT1_1, SMALL, partial=2)
