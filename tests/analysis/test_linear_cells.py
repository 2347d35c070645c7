from __future__ import annotations

import numpy as np
import pytest
import torch

from archwright.analysis.linear_cells import LinearCell, check_theorems, gradient_variance, smoothness


def objective(cell: LinearCell, weights: list[torch.Tensor], narrow: bool, quadratic: bool) -> torch.Tensor:
    """Losses (m,) written down once more, for autograd."""
    x = torch.from_numpy(cell.inputs)
    nodes, value = [], x
    for weight in weights:
        value = (value if narrow else x) @ weight.T
        nodes.append(value)
    z = torch.cat(nodes, dim=1)
    linear = (torch.from_numpy(cell.slope) * z).sum(1)
    return linear + (0.5 * ((z @ torch.from_numpy(cell.curvature)) * z).sum(1) if quadratic else 0.0)


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("quadratic", [True, False])
def test_gradients_are_autograds(narrow: bool, quadratic: bool) -> None:
    cell = LinearCell.draw(np.random.default_rng(0), nodes=3, width=2, examples=4)
    ours = cell.gradients(narrow, quadratic=quadratic)
    for example in range(4):
        weights = [torch.from_numpy(w.copy()).requires_grad_() for w in cell.weights]
        found = torch.autograd.grad(objective(cell, weights, narrow, quadratic)[example], weights)
        assert np.allclose(ours[example], torch.stack(found).numpy())


@pytest.mark.parametrize("narrow", [True, False])
def test_smoothness_is_the_largest_hessian_singular_value(narrow: bool) -> None:
    cell = LinearCell.draw(np.random.default_rng(1), nodes=3, width=2, examples=5)
    for i in range(3):

        def loss(block: torch.Tensor, i: int = i) -> torch.Tensor:
            weights = [torch.from_numpy(w) for w in cell.weights]
            weights[i] = block.view(2, 2)
            return objective(cell, weights, narrow, True).mean()

        hessian = torch.func.hessian(loss)(torch.from_numpy(cell.weights[i]).flatten())
        assert smoothness(cell, i, narrow) == pytest.approx(float(torch.linalg.matrix_norm(hessian, 2)))


def test_variance_by_hand() -> None:
    cell = LinearCell.draw(np.random.default_rng(2), nodes=2, width=2, examples=6)
    first = np.einsum("mi,mj->mij", cell.slope[:, :2], cell.inputs)  # the widest cell's gradient by W_1 is q_1 x^T
    assert gradient_variance(cell, 0, narrow=False) == pytest.approx(first.var(axis=0).sum())


def test_theorems_on_a_thousand_cells() -> None:
    """4.4 with spectral norms and the corrected 4.3 hold everywhere; 4.3 as printed does not."""
    found = check_theorems(1000)
    assert found.checks == 3000
    assert found.theorem_44_broken == 0
    assert found.corrected_43_broken == 0
    assert found.printed_43_broken > 1000
    assert found.printed_43_worst > 2
