"""The loss around a trained network, s(a, b) = E f(w + a d1 + b d2), and the gradient's variance there (4.3.2).

Directions are random and *filter-normalised* (Li et al., 2018): every filter of a direction has the norm of the
network's own filter, so that networks of different scales can be compared; biases and norm parameters do not move.

Batch norms keep the running statistics of w everywhere (``kept``, as in the published figures), or every batch
normalises itself, as training would at that point (``batch``): the images' batches then matter. All grid points see the
same images.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from archwright.errors import InputError
from archwright.runs.files import save_figure

Floats = NDArray[np.float64]
NormPolicy = Literal["kept", "batch"]
Direction = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
"""Losses (B,) of logits (B, ...) and labels (B,)."""

HIGHEST = 1e4
"""Losses above this, and those that overflow, are cut to it and marked."""
BATCH = 250
"""Images that go through the network at once."""


def example_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of every example, (B,), from ``logits`` (B, classes) and ``labels`` (B,)."""
    return F.cross_entropy(logits, labels, reduction="none")


def random_directions(network: nn.Module, seed: int) -> tuple[Direction, Direction]:
    """Two filter-normalised Gaussian directions by parameter name; all-zero ones are an error.

    Args:
        network: whose filters' norms the directions get.
        seed: of the draws.
    """
    generator = torch.Generator().manual_seed(seed)
    first, second = (_direction(network, generator) for _ in range(2))
    for direction in (first, second):
        if not any(bool(part.any()) for part in direction.values()):
            raise InputError(
                "a network with filters of non-zero norm", "directions of zero norm", "Train it, or load its weights."
            )
    return first, second


def _direction(network: nn.Module, generator: torch.Generator) -> Direction:
    found = {}
    for name, weight in network.named_parameters():
        drawn = torch.randn(weight.shape, generator=generator).to(weight.device, weight.dtype)
        if weight.ndim < 2:
            found[name] = torch.zeros_like(weight)
            continue
        rows, own = drawn.flatten(1), weight.detach().flatten(1)
        scale = own.norm(dim=1, keepdim=True) / rows.norm(dim=1, keepdim=True)
        found[name] = (rows * scale).view_as(weight)
    return found


@dataclass(frozen=True, eq=False)
class Landscape:
    """Values on a grid: ``values[i, j]`` at w + steps[i] d1 + steps[j] d2; ``cut`` marks values that were clipped."""

    steps: Floats
    values: Floats
    cut: NDArray[np.bool_]

    def share_under(self, level: float) -> float:
        """Part of the grid whose value is at most ``level``: how wide the valley is."""
        return float((self.values <= level).mean())

    @property
    def centre(self) -> float:
        """The value at w itself (the grid point next to it)."""
        i = int(np.abs(self.steps).argmin())
        return float(self.values[i, i])

    def to_json(self) -> dict[str, Any]:
        """Plain lists; :meth:`from_json` inverts it."""
        return {"steps": self.steps.tolist(), "values": self.values.tolist(), "cut": self.cut.tolist()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Landscape:
        """A landscape as :meth:`to_json` wrote it."""
        return cls(np.array(value["steps"]), np.array(value["values"]), np.array(value["cut"], dtype=bool))


def grid_steps(points: int, span: float) -> Floats:
    """``points`` steps from ``-span`` to ``span``, (points,)."""
    if points < 2 or not (np.isfinite(span) and span > 0):
        raise InputError("at least 2 points a side and a positive span", f"{points} and {span}")
    return np.linspace(-span, span, points)


@torch.no_grad()
def loss_landscape(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    directions: tuple[Direction, Direction],
    steps: Floats,
    *,
    norms: NormPolicy = "kept",
    losses: Loss = example_losses,
    batch: int = BATCH,
) -> Landscape:
    """Mean loss at every point of the grid ``steps`` x ``steps``.

    Args:
        network: with the weights w; unchanged afterwards.
        images: (n, C, H, W).
        labels: (n,).
        directions: by parameter name, as of :func:`random_directions`.
        steps: (k,) of both axes, in units of the directions.
        norms: what batch norms do away from w.
        losses: of single examples.
        batch: images that go through the network at once.
    """
    parts = list(zip(torch.split(images, batch), torch.split(labels, batch), strict=True))

    def mean_loss(moved: nn.Module) -> float:
        return sum(float(losses(moved(x), y).double().sum()) for x, y in parts) / len(labels)

    moving = copy.deepcopy(network).eval()
    if norms == "batch":
        _normalise_batches(moving)
    return _clipped(steps, _values(moving, directions, steps, mean_loss))


@torch.no_grad()
def variance_landscape(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    directions: tuple[Direction, Direction],
    steps: Floats,
    *,
    losses: Loss = example_losses,
    chunk: int = 64,
) -> Landscape:
    """Var[grad f_i(w + a d1 + b d2)] = E |g_i|^2 - |E g_i|^2 over the examples, at every point of the grid.

    Args:
        network: with the weights w; unchanged afterwards.
        images: (n, C, H, W).
        labels: (n,).
        directions: by parameter name, as of :func:`random_directions`.
        steps: (k,) of both axes, in units of the directions.
        losses: of single examples.
        chunk: examples whose gradients are in memory at once.
    """

    def variance(moved: nn.Module) -> float:
        weights = {name: weight.detach() for name, weight in moved.named_parameters()}
        return gradient_variance(moved, weights, images, labels, losses=losses, chunk=chunk)

    moving = copy.deepcopy(network).eval()
    return _clipped(steps, _values(moving, directions, steps, variance), highest=np.inf)


def _values(
    moving: nn.Module, directions: tuple[Direction, Direction], steps: Floats, value: Callable[[nn.Module], float]
) -> Floats:
    """``value`` of the network at every point of the grid, (k, k); its weights move."""
    _check_directions(moving, directions)
    first, second = directions
    own = {name: weight.detach().clone() for name, weight in moving.named_parameters()}
    found = np.empty((len(steps), len(steps)))
    for i, a in enumerate(steps.tolist()):
        for j, b in enumerate(steps.tolist()):
            for name, weight in moving.named_parameters():
                weight.copy_(own[name] + a * first[name] + b * second[name])
            found[i, j] = value(moving)
    return found


def _normalise_batches(network: nn.Module) -> None:
    """Let every batch norm use the statistics of its batch and keep none."""
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.train()
            module.track_running_stats, module.running_mean, module.running_var = False, None, None


def gradient_variance(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    losses: Loss = example_losses,
    chunk: int = 64,
) -> float:
    """Var[grad f_i] of a network in eval mode, from the gradient of every example.

    Args:
        network: in eval mode; unchanged afterwards.
        weights: by parameter name, where the gradients are taken.
        images: (n, C, H, W).
        labels: (n,).
        losses: of single examples.
        chunk: examples whose gradients are in memory at once.
    """
    buffers = dict(network.named_buffers())

    def loss_of(parameters: Mapping[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(network, (dict(parameters), buffers), (x[None],))
        return losses(logits, y[None])[0]

    per_example = vmap(grad(loss_of), in_dims=(None, 0, 0))
    squares, mean = 0.0, {name: torch.zeros_like(weight, dtype=torch.float64) for name, weight in weights.items()}
    for x, y in zip(torch.split(images, chunk), torch.split(labels, chunk), strict=True):
        for name, gradients in per_example(dict(weights), x, y).items():
            squares += float(gradients.double().square().sum())
            mean[name] += gradients.double().sum(0)
    n = len(labels)
    return squares / n - sum(float(total.square().sum()) for total in mean.values()) / n**2


def _check_directions(network: nn.Module, directions: tuple[Direction, Direction]) -> None:
    own = {name: weight.shape for name, weight in network.named_parameters()}
    for direction in directions:
        if {name: part.shape for name, part in direction.items()} != own:
            raise InputError("directions of the network's own parameters", "others", "Draw them for this network.")


def _clipped(steps: Floats, values: Floats, highest: float = HIGHEST) -> Landscape:
    over = ~np.isfinite(values) | (values > highest)
    finite = values[~over]
    ceiling = highest if np.isfinite(highest) else float(finite.max()) if len(finite) else 0.0
    return Landscape(steps, np.where(over, ceiling, values), over)


# --- pictures ----------------------------------------------------------------------------------------------------


WIDE_RANGE = 20.0
"""Values that range over more than this factor are drawn by their logarithm."""


def plot_landscapes(found: Mapping[str, Landscape], path: Path, what: str = "loss", root: bool = False) -> None:
    """Contours above, surfaces below, one column a landscape, on one scale; clipped points are grey.

    Args:
        found: by title.
        path: of the image.
        what: the values' name.
        root: draw the square root (of a variance).
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = len(found)
    figure = plt.figure(figsize=(3.6 * columns, 6.8), layout="constrained")
    shown = {title: np.sqrt(one.values) if root else one.values for title, one in found.items()}
    values = np.concatenate([shown[title][~one.cut].ravel() for title, one in found.items()])
    if not len(values):
        raise InputError("a landscape with values to draw", "none: all points were clipped")
    low, high = float(values.min()), float(np.quantile(values, 0.95))
    if low > 0 and high > WIDE_RANGE * low:  # else the valley is one colour
        shown = {title: np.log10(value) for title, value in shown.items()}
        low, high, what = float(np.log10(low)), float(np.log10(high)), f"log10 of the {what}"
    levels = np.linspace(low, max(high, low + 1e-9), 20)
    for column, (title, one) in enumerate(found.items()):
        x, y = np.meshgrid(one.steps, one.steps, indexing="ij")
        flat = np.where(one.cut, np.nan, shown[title])
        axis = figure.add_subplot(2, columns, column + 1)
        axis.set_facecolor("lightgrey")
        drawn = axis.contourf(x, y, np.minimum(flat, levels[-1]), levels=levels, cmap="viridis")
        axis.contour(x, y, flat, levels=levels, colors="white", linewidths=0.4)
        axis.plot([0], [0], "r+", markersize=8)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("a")
        axis.set_ylabel("b")
        if column == columns - 1:
            figure.colorbar(drawn, ax=axis, label=what)
        surface: Any = figure.add_subplot(2, columns, columns + column + 1, projection="3d")
        surface.plot_surface(x, y, np.minimum(np.nan_to_num(flat, nan=levels[-1]), levels[-1]), cmap="viridis")
        surface.set_zlim(levels[0], levels[-1])
        surface.set_xlabel("a", fontsize=8)
        surface.set_ylabel("b", fontsize=8)
    save_figure(figure, path)
    plt.close(figure)
