"""The staged problem over one binary vector x = (alpha, beta), for solvers of mathematical programs.

alpha is (S, D, C) flattened, with zeros for absent blocks, beta (S, D) flattened; ``StagedChoice.one_hot`` makes x. As
alpha^s_{b,c} already is zero where the stage is shallower than b, it stands for the product of eq. 3,
alpha^s_{b,c} * sum_{d >= b} beta^s_d, and values and costs are linear in x.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from archwright.solvers.problem import Floats, StagedChoice, StagedProblem


def coefficients(blocks: Floats, depths: Floats) -> Floats:
    """``blocks`` (S, D, C) and ``depths`` (S, D) as one row over x, (S*D*C + S*D,)."""
    return np.concatenate([blocks.ravel(), depths.ravel()])


def structure(problem: StagedProblem) -> tuple[sparse.csr_array, Floats]:
    """A and b of A x = b: one depth a stage, one configuration in every present block and none in absent ones."""
    stages, blocks, configurations = problem.shape
    one_depth = sparse.kron(sparse.eye_array(stages), np.ones((1, blocks)))
    configured = sparse.kron(sparse.eye_array(stages * blocks), np.ones((1, configurations)))
    present = sparse.kron(sparse.eye_array(stages), np.triu(np.ones((blocks, blocks))))
    rows = sparse.block_array([[None, one_depth], [configured, -present]], format="csr")
    return rows, np.concatenate([np.ones(stages), np.zeros(stages * blocks)])


def upper_bounds(problem: StagedProblem) -> Floats:
    """1 for every entry of x but the depths that are not allowed, which have 0."""
    return coefficients(np.ones(problem.shape), problem.allowed.astype(float))


def decode(problem: StagedProblem, x: Floats) -> StagedChoice:
    """The choice of ``problem`` nearest to ``x`` (S*D*C + S*D,): the largest entry of every simplex."""
    stages, blocks, configurations = problem.shape
    alpha, beta = np.split(np.asarray(x), [stages * blocks * configurations])
    beta = np.where(problem.allowed, beta.reshape(stages, blocks), -np.inf)
    return StagedChoice.masked(beta.argmax(-1) + 1, alpha.reshape(problem.shape).argmax(-1))
