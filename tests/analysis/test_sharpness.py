from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from archwright.analysis.sharpness import lanczos, largest_curvature
from archwright.errors import InputError


@pytest.mark.parametrize("size", [1, 5, 40])
def test_lanczos_is_the_dense_eigenvalue(size: int) -> None:
    root = np.random.default_rng(size).standard_normal((size, size))
    matrix = torch.from_numpy(root + root.T)
    found = lanczos(lambda vector: matrix @ vector, size, steps=size, tolerance=0)
    assert found == pytest.approx(float(torch.linalg.eigvalsh(matrix)[-1]), rel=1e-8)


def test_largest_curvature_is_that_of_the_whole_hessian() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    x, y = torch.randn(12, 3).double(), torch.randint(3, (12,))
    names = [name for name, _ in network.named_parameters()]
    shapes = [p.shape for p in network.parameters()]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = torch.split(flat, [shape.numel() for shape in shapes])
        weights = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return nn.functional.cross_entropy(torch.func.functional_call(network, weights, (x,)), y)

    flat = torch.cat([p.detach().flatten() for p in network.parameters()])
    dense = torch.linalg.eigvalsh(torch.func.hessian(loss)(flat))[-1]
    assert largest_curvature(network, x, y, steps=31) == pytest.approx(float(dense), rel=1e-6)


def test_no_matrix() -> None:
    with pytest.raises(InputError, match="at least one"):
        lanczos(lambda vector: vector, 0, 3)
