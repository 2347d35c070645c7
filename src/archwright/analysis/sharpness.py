"""The largest eigenvalue of the loss's Hessian by Lanczos' iteration: how sharp its valley is at worst."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from archwright.analysis.landscape import Loss, example_losses
from archwright.errors import InputError

Product = Callable[[Tensor], Tensor]


def lanczos(product: Product, size: int, steps: int, seed: int = 0, tolerance: float = 1e-6) -> float:
    """Largest eigenvalue of a symmetric matrix given by its products with vectors.

    Fully reorthogonalised; ends early when the largest Ritz value moves by less than ``tolerance`` of itself.

    Args:
        product: the matrix times a float64 vector (size,).
        size: rows of the matrix.
        steps: at most so many products.
        seed: of the first vector.
        tolerance: relative change at which it ends.
    """
    if size < 1 or steps < 1:
        raise InputError("a matrix of at least one row and at least one step", f"{size} and {steps}")
    generator = torch.Generator().manual_seed(seed)
    vector = torch.randn(size, generator=generator, dtype=torch.float64)
    basis = [vector / vector.norm()]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    best = -np.inf
    for _ in range(min(steps, size)):
        image = product(basis[-1]).double().cpu()
        diagonal.append(float(image @ basis[-1]))
        before, best = best, float(_ritz(diagonal, off_diagonal)[-1])
        for _twice in range(2):  # once is not enough in finite precision
            for known in basis:
                image = image - (image @ known) * known
        rest = float(image.norm())
        if rest < 1e-12 * max(1.0, abs(best)) or abs(best - before) <= tolerance * abs(best):
            break
        off_diagonal.append(rest)
        basis.append(image / rest)
    return best


def _ritz(diagonal: list[float], off_diagonal: list[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    from scipy.linalg import eigvalsh_tridiagonal

    values: np.ndarray[tuple[int], np.dtype[np.float64]] = eigvalsh_tridiagonal(
        np.array(diagonal), np.array(off_diagonal[: len(diagonal) - 1])
    )
    return values


def largest_curvature(
    network: nn.Module, images: Tensor, labels: Tensor, *, losses: Loss = example_losses, steps: int = 30, seed: int = 0
) -> float:
    """Largest Hessian eigenvalue of the mean loss on these images by all trainable weights, in eval mode.

    Args:
        network: unchanged afterwards.
        images: (n, C, H, W), in one pass.
        labels: (n,).
        losses: of single examples.
        steps: at most so many Hessian-vector products.
        seed: of the first vector.
    """
    modes = {module: module.training for module in network.modules()}
    network.eval()
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    sizes = [weight.numel() for weight in weights]
    try:
        with torch.enable_grad():
            loss = losses(network(images), labels).mean()
            gradients = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True, allow_unused=True)

            def product(vector: Tensor) -> Tensor:
                parts = torch.split(vector.to(weights[0].device, weights[0].dtype), sizes)
                inner = torch.stack(
                    [(g.flatten() * part).sum() for g, part in zip(gradients, parts, strict=True)]
                ).sum()
                found = torch.autograd.grad(
                    inner,
                    weights,
                    retain_graph=True,
                    materialize_grads=True,
                    allow_unused=True,
                )
                return torch.cat([one.flatten() for one in found]).detach()

            return lanczos(product, sum(sizes), steps, seed)
    finally:
        for module, mode in modes.items():
            module.training = mode
