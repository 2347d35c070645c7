"""The best choice for any additive score: depths and configurations stage by stage, widths along the chain of stages.

Given the widths before and of a stage its best depth and configurations are found apart from all others, which leaves a
shortest-path problem over the widths: to_go^s_v = max_w (score^s_{v,w} + to_go^{s+1}_w).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from archwright.solvers.problem import Floats, StagedChoice, StagedProblem


def best_choice(problem: StagedProblem, block_scores: Floats, depth_scores: Floats) -> tuple[StagedChoice, Floats]:
    """The choice of highest total score, and what the stages from s on add at best after each width.

    Args:
        problem: what may be chosen.
        block_scores: (S, W, W, D, C).
        depth_scores: (S, W, D).

    Returns:
        The choice, and to_go (S + 1, W): the best of stages s, s + 1, ... if the stage before has that width.
    """
    from archwright.solvers.problem import StagedChoice

    stages, widest = depth_scores.shape[:2]
    scores = np.where(problem.allowed_configurations[:, None, None], block_scores, -np.inf)
    configurations = scores.argmax(-1)
    by_depth = np.take_along_axis(scores, configurations[..., None], -1)[..., 0].cumsum(-1) + depth_scores[:, None]
    by_depth = np.where(problem.allowed[:, None, None], by_depth, -np.inf)
    depths = by_depth.argmax(-1)
    by_width = np.take_along_axis(by_depth, depths[..., None], -1)[..., 0]
    by_width = np.where(np.arange(widest) < np.array(problem.widths)[:, None, None], by_width, -np.inf)
    to_go = np.zeros((stages + 1, widest))
    widths = np.zeros(stages, np.int64)
    if widest == 1:
        to_go[:-1, 0] = by_width[::-1, 0, 0].cumsum()[::-1]
    else:
        for stage in range(stages - 1, -1, -1):
            to_go[stage] = (by_width[stage] + to_go[stage + 1]).max(1)
        before = 0
        for stage in range(stages):
            before = widths[stage] = int((by_width[stage, before] + to_go[stage + 1]).argmax())
    place = np.arange(stages), np.concatenate([[0], widths[:-1]]), widths
    return StagedChoice.masked(depths[place] + 1, configurations[place], widths), to_go
