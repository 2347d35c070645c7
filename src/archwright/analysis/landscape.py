"""The loss around a trained network, s(a, b) = E f(w + a d1 + b d2), and the gradient's variance there (4.3.2).

Directions are random and *filter-normalised* (Li et al., 2018): every filter of a direction has the norm of the
network's own filter, so that networks of different scales can be compared; biases and norm parameters do not move.

Batch norm, one of two policies:

- ``kept``: the running statistics of w everywhere, as in the published figures. A norm is then a fixed affine map and
  is folded into the convolution before it, in the network and in the directions alike, which changes nothing but time.
- ``batch``: every batch normalises itself, as training would at that point. The images' batches then matter.

All grid points see the same images; a batch goes through many points while it is in the cache.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from archwright.errors import InputError

Floats = NDArray[np.float64]
NormPolicy = Literal["kept", "batch"]
Direction = dict[str, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]
"""Losses (B,) of logits (B, ...) and labels (B,)."""

HIGHEST = 1e4
"""Losses above this, and those that overflow, are cut to it and marked."""
BATCH = 200
"""Images a batch: large enough for the kernels, small enough for the cache (benchmarks/landscape.py)."""


def example_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of every example, (B,)."""
    return F.cross_entropy(logits, labels, reduction="none")


def random_directions(network: nn.Module, seed: int) -> tuple[Direction, Direction]:
    """Two filter-normalised Gaussian directions by parameter name; all-zero ones are an error."""
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
        """Inverse of :meth:`to_json`."""
        return cls(np.array(value["steps"]), np.array(value["values"]), np.array(value["cut"], dtype=bool))


def grid_steps(points: int, span: float) -> Floats:
    """``points`` steps from -span to span."""
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
    workers: int = 1,
    on_point: Callable[[], None] = lambda: None,
) -> Landscape:
    """Mean loss at every point of the grid ``steps`` x ``steps``.

    Args:
        network: with the weights w; unchanged afterwards.
        images: (n, C, H, W).
        labels: (n,).
        directions: by parameter name, as of :func:`random_directions`.
        steps: of both axes.
        norms: what batch norms do away from w.
        losses: of single examples.
        batch: images that go through the network at once.
        workers: threads that share the rows of the grid, each with a copy of the network; give torch one thread each.
        on_point: called after every point.
    """
    _check_directions(network, directions)
    prepared, (first, second) = _prepared(network, directions, norms)
    parts = [
        (x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x, y)
        for x, y in zip(torch.split(images, batch), torch.split(labels, batch), strict=True)
    ]
    own = {name: weight.detach() for name, weight in prepared.named_parameters()}
    copies: SimpleQueue[nn.Module] = SimpleQueue()
    for _ in range(workers):
        copies.put(copy.deepcopy(prepared))

    @torch.no_grad()  # a thread does not inherit it
    def values(a: float) -> list[float]:
        moved, found = copies.get(), []
        row = {name: own[name] + a * first[name] for name in own}
        for b in steps.tolist():
            for name, weight in moved.named_parameters():
                torch.add(row[name], second[name], alpha=b, out=weight.data)
            found.append(sum(float(losses(moved(x), y).double().sum()) for x, y in parts) / len(labels))
            on_point()
        copies.put(moved)
        return found

    with ThreadPoolExecutor(workers) as pool:
        return _clipped(steps, np.array(list(pool.map(values, steps.tolist()))))


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
    on_point: Callable[[], None] = lambda: None,
) -> Landscape:
    """Var[grad f_i(w + a d1 + b d2)] = E |g_i|^2 - |E g_i|^2 over the examples, with the running statistics of w."""
    _check_directions(network, directions)
    first, second = directions
    kept = copy.deepcopy(network).eval()
    own = {name: weight.detach() for name, weight in network.named_parameters()}
    found = np.empty((len(steps), len(steps)))
    for i, a in enumerate(steps.tolist()):
        for j, b in enumerate(steps.tolist()):
            weights = {name: own[name] + a * first[name] + b * second[name] for name in own}
            found[i, j] = gradient_variance(kept, weights, images, labels, losses=losses, chunk=chunk)
            on_point()
    return _clipped(steps, found, highest=np.inf)


def gradient_variance(
    network: nn.Module,
    weights: Mapping[str, Tensor],
    images: Tensor,
    labels: Tensor,
    *,
    losses: Loss = example_losses,
    chunk: int = 64,
) -> float:
    """Var[grad f_i] of a network in eval mode at ``weights``, from the gradient of every example."""
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


# --- batch norm --------------------------------------------------------------------------------------------------


def _prepared(
    network: nn.Module, directions: tuple[Direction, Direction], norms: NormPolicy
) -> tuple[nn.Module, tuple[Direction, Direction]]:
    """A copy to move about, and the directions in its parameters."""
    if norms == "kept":
        moved = folded(network)
        carried = tuple(_folded_direction(network, direction, moved) for direction in directions)
    else:
        moved = copy.deepcopy(network).eval()
        for module in moved.modules():
            if isinstance(module, _BatchNorm):
                module.train()
                module.track_running_stats, module.running_mean, module.running_var = False, None, None
        carried = directions
    moved.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return moved, (carried[0], carried[1])


def _foldable(network: nn.Module) -> Iterator[tuple[str, nn.Sequential, int]]:
    """Where a convolution stands right before a batch norm: (name of the sequence, sequence, place)."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Sequential):
            for place in range(len(module) - 1):
                if isinstance(module[place], nn.Conv2d) and isinstance(module[place + 1], nn.BatchNorm2d):
                    yield name, module, place


def _gain(norm: nn.BatchNorm2d) -> Tensor:
    """What a norm in eval mode multiplies a channel by."""
    assert norm.running_var is not None
    scale = torch.rsqrt(norm.running_var + norm.eps)
    return scale if norm.weight is None else scale * norm.weight.detach()


@torch.no_grad()
def folded(network: nn.Module) -> nn.Module:
    """A copy in eval mode in which norms that follow a convolution are part of it; the function is the same."""
    found = copy.deepcopy(network).eval()
    for _, sequence, place in list(_foldable(found)):
        convolution, norm = sequence[place], sequence[place + 1]
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, nn.BatchNorm2d)
        assert norm.running_mean is not None
        gain = _gain(norm)
        before = convolution.bias if convolution.bias is not None else torch.zeros_like(norm.running_mean)
        shift = norm.bias.detach() if norm.bias is not None else torch.zeros_like(norm.running_mean)
        convolution.weight.data.mul_(gain.view(-1, 1, 1, 1))
        convolution.bias = nn.Parameter((before.detach() - norm.running_mean) * gain + shift)
        sequence[place + 1] = nn.Identity()
    return found


def _folded_direction(network: nn.Module, direction: Direction, moved: nn.Module) -> Direction:
    """The direction as seen by :func:`folded`: a filter's part is multiplied by its norm's gain."""
    carried = {
        name: direction[name].clone() if name in direction else torch.zeros_like(weight)
        for name, weight in moved.named_parameters()
    }
    for name, sequence, place in _foldable(network):
        norm = sequence[place + 1]
        assert isinstance(norm, nn.BatchNorm2d)
        prefix = f"{name}." if name else ""
        carried[f"{prefix}{place}.weight"] *= _gain(norm).view(-1, 1, 1, 1)
    return carried


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
    values = np.concatenate([shown[title][~one.cut].ravel() for title, one in found.items()] or [np.ones(1)])
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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
