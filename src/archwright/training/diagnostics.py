"""What a differentiable search reports of itself each epoch, and the plot of it.

The equilibrium equations (9) of RARTS hold where a search has settled; their residuals are norms of

    lam grad_w L_t(w, a) + beta (w - y),   grad_y L_v(y, a) + beta (y - w),   lam grad_a L_t(w, a) + grad_a L_v(y, a)

(+ the latency term in the last). A search with one copy is the case y = w, lam = 1, beta = 0, and the Lagrangian is
then the sum of both losses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from archwright.runs.files import save_figure
from archwright.spaces.supernet_space import SupernetSpace
from archwright.training import Position
from archwright.training.bilevel import Problem, WeightCopy, norm, sums

COLLAPSE_SHARE = 0.5
"""A cell whose strongest operation is a skip connection on more than this share of its edges is called collapsing."""


def equilibrium(
    problem: Problem, w: WeightCopy, y: WeightCopy, lam: float, beta: float, penalty: Sequence[Tensor], cost: float
) -> dict[str, float]:
    """Lagrangian (5), distance of the copies and the residuals of (9) on one fixed batch of each half.

    Args:
        problem: with one batch a half.
        w: copy trained on D_t.
        y: copy trained on D_v; ``w`` itself where there is one copy.
        lam: weight of the training loss.
        beta: strength of the coupling.
        penalty: gradient of the latency term by decision; empty for none.
        cost: value of the latency term.
    """
    here = Position.at(0, 1, 1)
    train = problem.gradients(w.network, w.weights, "train", here, "both")
    validation = problem.gradients(y.network, y.weights, "validation", here, "both")
    with torch.no_grad():
        apart = sums(y.weights, w.weights, -1.0)
        distance = norm(apart)
        scaled = torch._foreach_mul(train.weights, lam)
        architecture = sums(validation.architecture, train.architecture, lam)
        if penalty:
            architecture = sums(architecture, penalty)
        lagrangian = validation.loss + lam * train.loss + beta / 2 * distance**2 + cost
        return {
            "train_loss_w": float(train.loss),
            "validation_loss_y": float(validation.loss),
            "lagrangian": float(lagrangian),
            "distance": float(distance),
            "residual_w": float(norm(sums(scaled, apart, -beta))),
            "residual_y": float(norm(sums(validation.weights, apart, beta))),
            "residual_alpha": float(norm(architecture)),
        }


def cell_state(space: SupernetSpace[Any], weights: Mapping[str, Tensor]) -> dict[str, dict[str, float]]:
    """For each part that the space reports of: mean entropy of a row in nats, and the skip share.

    The skip share is the part of the rows, of those that could, whose strongest candidate passes its input on;
    ``skip_weight`` is the mean weight of what does.

    Args:
        space: whose candidates the choices are.
        weights: softmax weights (rows, choices) by decision.
    """
    found = {}
    for part, decisions in space.reported().items():
        entropies, skipped, weighed = [], [], []
        for name in decisions:
            array = weights[name].detach().cpu().double().numpy()
            entropies.append(-(array * np.log(np.maximum(array, 1e-300))).sum(axis=1))
            skips = list(space.skips(name)) if name in space.operation_decisions else []
            if skips:
                skipped.append(np.isin(space.strongest_columns(name, array), skips))
                weighed.append(array[:, skips].sum(axis=1))
        state = {"entropy": float(np.concatenate(entropies).mean())}
        if skipped:
            state["skip_share"] = float(np.concatenate(skipped).mean())
            state["skip_weight"] = float(np.concatenate(weighed).mean())
        found[part] = state
    return found


def collapse_warning(before: Mapping[str, Any] | None, now: Mapping[str, Any], epoch: int) -> str:
    """A sentence where a cell's skip share has just risen above :data:`COLLAPSE_SHARE`; else empty.

    Args:
        before: :func:`cell_state` of the epoch before; None in the first.
        now: that of this epoch.
        epoch: its number, from 0.
    """
    words = []
    for name, state in now.items():
        share = state.get("skip_share", 0.0)
        old = 0.0 if before is None else before[name].get("skip_share", 0.0)
        if share > COLLAPSE_SHARE >= old:
            words.append(f"{share:.0%} of the edges of {name!r} prefer a skip connection (epoch {epoch + 1})")
    if not words:
        return ""
    return f"Warning: the search may be collapsing: {'; '.join(words)}. Fewer epochs or method rarts may help."


def plot_diagnostics(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Losses, distance, residuals, entropy and skip share over the epochs, saved as an image.

    Args:
        records: one an epoch, as the run's events keep them.
        path: of the image.
    """
    from matplotlib.figure import Figure

    epochs = [record["epoch"] + 1 for record in records]
    figure = Figure(figsize=(11, 6), layout="constrained")
    axes = figure.subplots(2, 3).ravel()

    def draw(axis: Any, title: str, lines: Mapping[str, Sequence[float]], log: bool = False) -> None:
        for label, values in lines.items():
            axis.plot(epochs, values, label=label)
        axis.set_title(title)
        axis.set_xlabel("epoch")
        if log and all(value > 0 for values in lines.values() for value in values):
            axis.set_yscale("log")
        if len(lines) > 1:
            axis.legend(fontsize=8)

    def column(name: str) -> list[float]:
        return [record[name] for record in records]

    draw(axes[0], "loss", {"train": column("train_loss"), "validation": column("validation_loss")})
    draw(axes[1], "Lagrangian", {"Lagrangian": column("lagrangian")})
    draw(axes[2], "distance of the copies |y - w|", {"distance": column("distance")})
    residuals = {name: column(f"residual_{name}") for name in ("w", "y", "alpha")}
    draw(axes[3], "residuals of the equilibrium", residuals, log=True)
    cells = records[0]["cells"]
    draw(axes[4], "entropy (nats)", {name: [record["cells"][name]["entropy"] for record in records] for name in cells})
    shares = {
        name: [record["cells"][name]["skip_share"] for record in records]
        for name in cells
        if "skip_share" in cells[name]
    }
    draw(axes[5], f"skip share (warning above {COLLAPSE_SHARE:.0%})", shares)
    axes[5].set_ylim(-0.05, 1.05)
    save_figure(figure, path, dpi=120)
