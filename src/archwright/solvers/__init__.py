"""Solvers: pure functions on numpy arrays that know neither networks nor torch.

A search ends in one question: which depths, widths and block configurations have the highest predicted accuracy within
the limits? ``problem`` states it (``blocks`` from a plain table), ``pareto`` answers it exactly for every limit of one
resource, ``milp`` for several resources at once, ``quadratic`` for objectives that couple stages; ``frank_wolfe`` and
``evolution`` are the published heuristics to compare with. ``fourier`` recovers a function of bits as a sparse
``polynomial`` by the ``lasso``, and minimises it exactly. Objectives come from :mod:`archwright.predictors`.
"""

from __future__ import annotations

from archwright.solvers.blocks import BlockTable, problem_from_blocks
from archwright.solvers.problem import Solution, StagedChoice, StagedProblem

__all__ = ["BlockTable", "Solution", "StagedChoice", "StagedProblem", "problem_from_blocks"]
