import copy

import pytest
import torch
import torch.nn.functional as F

from archwright.spaces.base import Scale
from archwright.spaces.darts import DARTS
from archwright.spaces.nasbench201 import NASBENCH201
from archwright.supernets.cell import CellSupernet
from archwright.supernets.parallel import mixtures


def test_mixtures_and_their_derivatives():
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)]
    scales = [torch.randn(3, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)]
    found = mixtures(values, scales)
    for edge, output in enumerate(found):
        assert torch.allclose(output, scales[0][edge] * values[0] + scales[1][edge] * values[1])

    def function(*arguments):
        return mixtures(arguments[:2], arguments[2:])

    assert torch.autograd.gradcheck(function, (*values, *scales))
    assert torch.autograd.gradgradcheck(function, (*values, *scales))


@pytest.mark.parametrize(
    ("space", "scale"),
    [(NASBENCH201, Scale(channels=8, cells=1, image_size=16)), (DARTS, Scale(channels=4, cells=3, image_size=8))],
    ids=["nasbench201", "darts"],
)
def test_float32_channels_last_gives_the_gradients_of_float64(space, scale):
    torch.manual_seed(0)
    supernet = CellSupernet(space, scale).to(memory_format=torch.channels_last)
    precise = copy.deepcopy(supernet).to(memory_format=torch.contiguous_format).double()
    images, labels = torch.randn(16, 3, scale.image_size, scale.image_size), torch.arange(16) % 10
    alphas = {name: torch.randn(shape).requires_grad_() for name, shape in space.decisions.items()}
    twins = {name: value.detach().double().requires_grad_() for name, value in alphas.items()}
    found = []
    for network, tensors, x in (
        (supernet, alphas, images.contiguous(memory_format=torch.channels_last)),
        (precise, twins, images.double()),
    ):
        loss = F.cross_entropy(network(x, {name: value.softmax(-1) for name, value in tensors.items()}), labels)
        found.append(torch.autograd.grad(loss, list(tensors.values())))
    for single, double in zip(*found, strict=True):
        assert torch.allclose(single.double(), double, rtol=1e-2, atol=1e-4)
