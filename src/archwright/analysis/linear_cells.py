"""Theorems 4.3 and 4.4 as numeric checks: linear cells of n nodes, the widest against the narrowest.

The widest cell has nodes y_i = W_i x, the narrowest y_i = W_i ... W_1 x; both feed the same objective of the joined
nodes. Two corrections to the print, both shown here:

- lambda_i must be the spectral norm of W_i; the largest eigenvalue is smaller for a matrix that is not normal.
- 4.3 claims that the block-wise smoothness of the narrowest cell is at most (prod_{j<i} lambda_j) L_i. The proof takes
  the gradients at y_k, k > i, as fixed while W_i changes. They are not: for a quadratic objective the claim fails, and
  (prod_{j<i} lambda_j)^2 * sum_{k>=i} prod_{i<j<=k} lambda_j^2 * L holds,
  with L of the objective over the joined nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LinearCell:
    """One draw: weights (n, d, d), inputs (m, d), and a quadratic objective 1/2 z^T Q z + q^T z of the joined nodes.

    Attributes:
        weights: W_1 .. W_n.
        inputs: the examples x.
        curvature: Q (n*d, n*d), symmetric and positive semidefinite; zero for a linear objective.
        slope: (m, n*d), q of each example.
    """

    weights: Floats
    inputs: Floats
    curvature: Floats
    slope: Floats

    @classmethod
    def draw(cls, rng: np.random.Generator, nodes: int, width: int, examples: int, scale: float = 1.0) -> LinearCell:
        """Gaussian weights of standard deviation ``scale / sqrt(width)``, Gaussian examples and slopes.

        Args:
            rng: generator of the draws.
            nodes: n, number of nodes.
            width: d, entries of a node.
            examples: m, number of inputs.
            scale: of the weights.
        """
        total = nodes * width
        root = rng.standard_normal((total, total)) / np.sqrt(total)
        return cls(
            scale * rng.standard_normal((nodes, width, width)) / np.sqrt(width),
            rng.standard_normal((examples, width)),
            root @ root.T,
            rng.standard_normal((examples, total)),
        )

    @property
    def spectral_norms(self) -> Floats:
        """lambda_i, the spectral norm of each weight matrix, (n,)."""
        norms: Floats = np.linalg.norm(self.weights, ord=2, axis=(1, 2))
        return norms

    def nodes(self, narrow: bool, weights: Floats | None = None) -> Floats:
        """Joined nodes z of every example, (m, n*d).

        Args:
            narrow: each node sees the one before it; else all see the input.
            weights: (n, d, d) instead of the cell's own.
        """
        chosen = self.weights if weights is None else weights
        found, value = [], self.inputs
        for weight in chosen:
            value = (value if narrow else self.inputs) @ weight.T
            found.append(value)
        return np.concatenate(found, axis=1)

    def gradients(self, narrow: bool, weights: Floats | None = None, quadratic: bool = True) -> Floats:
        """Gradient of every example's objective by every weight matrix, (m, n, d, d) (eq. A.1 and A.2).

        Args:
            narrow: of the narrowest cell; else of the widest.
            weights: (n, d, d) instead of the cell's own.
            quadratic: of the quadratic objective; else of the linear one.
        """
        chosen = self.weights if weights is None else weights
        n, d = chosen.shape[:2]
        z = self.nodes(narrow, chosen)
        at_nodes = (self.slope + (z @ self.curvature if quadratic else 0.0)).reshape(len(z), n, d)
        if not narrow:
            wide: Floats = np.einsum("mni,mj->mnij", at_nodes, self.inputs)
            return wide
        states = [self.inputs]
        for weight in chosen:
            states.append(states[-1] @ weight.T)
        found = np.empty((len(z), n, d, d))
        back = np.zeros((len(z), d))
        for i in reversed(range(n)):
            back = at_nodes[:, i] + (back @ chosen[i + 1] if i + 1 < n else 0.0)
            found[:, i] = np.einsum("mi,mj->mij", back, states[i])
        return found


def smoothness(cell: LinearCell, i: int, narrow: bool) -> float:
    """Block-wise Lipschitz constant of the mean gradient by W_i for the quadratic objective (Frobenius norms).

    z = A W_i s + const, s what W_i sees and A (n*d, d) how its node reaches the joined ones. The gradient A^T Q A W_i
    E[s s^T] + const is linear in W_i, so that the constant is the product |A^T Q A| |E s s^T| of spectral norms.

    Args:
        cell: weights, inputs and objective.
        i: index of the weight matrix.
        narrow: of the narrowest cell; else of the widest.
    """
    n, d = cell.weights.shape[:2]
    reach, seen = np.zeros((n * d, d)), cell.inputs
    onward = np.eye(d)
    for k in range(i, n if narrow else i + 1):
        onward = cell.weights[k] @ onward if k > i else onward
        reach[k * d : (k + 1) * d] = onward
    for weight in cell.weights[:i] if narrow else ():
        seen = seen @ weight.T
    second_moment = seen.T @ seen / len(seen)
    return float(np.linalg.norm(reach.T @ cell.curvature @ reach, ord=2) * np.linalg.norm(second_moment, ord=2))


def printed_bound_43(cell: LinearCell, i: int) -> float:
    """Theorem 4.3 as printed: (prod_{j<i} lambda_j) * L_i, L_i of the widest ``cell``, for its matrix ``i``."""
    return float(np.prod(cell.spectral_norms[:i])) * smoothness(cell, i, narrow=False)


def corrected_bound_43(cell: LinearCell, i: int) -> float:
    """The bound that holds, for matrix ``i`` of ``cell``, with L = |Q| * |E x x^T|.

    (prod_{j<i} lambda_j)^2 * sum_{k>=i} prod_{i<j<=k} lambda_j^2 * L.
    """
    norms = cell.spectral_norms
    after = sum(float(np.prod(norms[i + 1 : k + 1] ** 2)) for k in range(i, len(norms)))
    second_moment = float(np.linalg.norm(cell.inputs.T @ cell.inputs / len(cell.inputs), ord=2))
    curvature = float(np.linalg.norm(cell.curvature, ord=2))
    return float(np.prod(norms[:i])) ** 2 * after * curvature * second_moment


def gradient_variance(cell: LinearCell, i: int, narrow: bool) -> float:
    """E |g - E g|^2 (Frobenius) of the gradient by W_i over the examples, for the linear objective.

    Args:
        cell: weights, inputs and objective.
        i: index of the weight matrix.
        narrow: of the narrowest cell; else of the widest.
    """
    gradients = cell.gradients(narrow, quadratic=False)[:, i]
    return float(((gradients - gradients.mean(0)) ** 2).sum((1, 2)).mean())


def bound_44(cell: LinearCell, i: int) -> float:
    """Theorem 4.4 for matrix ``i`` of ``cell``: n * sum_{k>=i} (sigma_k / lambda_i * prod_{j<=k} lambda_j)^2.

    sigma_k^2 is the gradient's variance in the widest cell.
    """
    norms, n = cell.spectral_norms, len(cell.weights)
    terms = (
        gradient_variance(cell, k, narrow=False) * float(np.prod(norms[: k + 1]) / norms[i]) ** 2 for k in range(i, n)
    )
    return n * sum(terms)


@dataclass(frozen=True)
class TheoremCheck:
    """How often each bound was broken over all (cell, i), and the largest ratio of value to bound."""

    checks: int
    printed_43_broken: int
    printed_43_worst: float
    corrected_43_broken: int
    corrected_43_worst: float
    theorem_44_broken: int
    theorem_44_worst: float


def check_theorems(cells: int, seed: int = 0, nodes: int = 3, width: int = 3, examples: int = 8) -> TheoremCheck:
    """Compare values and bounds on random cells whose weights have various scales.

    Args:
        cells: number of random cells.
        seed: of the draws.
        nodes: of each cell.
        width: entries of a node.
        examples: inputs of each cell.
    """
    rng = np.random.default_rng(seed)
    ratios: dict[str, list[float]] = {"printed": [], "corrected": [], "variance": []}
    for _ in range(cells):
        cell = LinearCell.draw(rng, nodes, width, examples, scale=float(rng.uniform(0.5, 2.0)))
        for i in range(nodes):
            value = smoothness(cell, i, narrow=True)
            ratios["printed"].append(value / printed_bound_43(cell, i))
            ratios["corrected"].append(value / corrected_bound_43(cell, i))
            ratios["variance"].append(gradient_variance(cell, i, narrow=True) / bound_44(cell, i))
    tolerance = 1 + 1e-9
    broken = {name: sum(ratio > tolerance for ratio in values) for name, values in ratios.items()}
    return TheoremCheck(
        checks=cells * nodes,
        printed_43_broken=broken["printed"],
        printed_43_worst=max(ratios["printed"]),
        corrected_43_broken=broken["corrected"],
        corrected_43_worst=max(ratios["corrected"]),
        theorem_44_broken=broken["variance"],
        theorem_44_worst=max(ratios["variance"]),
    )
