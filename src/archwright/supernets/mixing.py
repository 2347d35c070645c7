"""One pass through a user's network: each choice gives the weighted sum of its options that run.

Two things make it as quick as the supernet of cells, and change nothing but the rounding of sums. Layers without
parameters at the beginning of options (an activation, a pooling) that see the same tensor in several places run once.
The weight of an option that ends with a batch norm multiplies that norm's own scale, which costs nothing. Both are done
only inside a sum of several options and between layers of ``torch.nn``, which change nothing in place: what leaves a
choice is always a tensor of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.nn import Choice, Guide, Searched
from archwright.spaces.model_choices import NOTHING
from archwright.supernets.base import Active, Weights
from archwright.supernets.parallel import mixtures

STATELESS = (nn.Identity, nn.ReLU, nn.ReLU6, nn.GELU, nn.SiLU, nn.Hardswish, nn.AvgPool2d, nn.MaxPool2d)
"""Layers that give the same for the same input, and keep nothing."""
FOLDED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class Term(NamedTuple):
    """What an option gives, and whether its weight is in it already."""

    value: Tensor
    weighted: bool = False


class Mixing(Guide):
    """One pass.

    Args:
        weights: (1, options) by decision.
        active: which options run, of the same shapes.
    """

    def __init__(self, weights: Weights, active: Active) -> None:
        self.rows = {name: tensor[0] for name, tensor in weights.items()}
        self.numbers: dict[str, NDArray[Any] | None] = {
            name: None if row.requires_grad else row.detach().cpu().numpy() for name, row in self.rows.items()
        }
        self.columns = {name: np.flatnonzero(np.asarray(mask)[0]).tolist() for name, mask in active.items()}
        self.seen: dict[Any, tuple[Tensor, Tensor]] = {}

    def running(self, choice: Searched) -> Sequence[int]:
        """The active columns of ``choice``."""
        found: list[int] = self.columns[choice.decision]
        return found

    def output(self, choice: Searched, column: int, call: Callable[[], Any], inputs: Sequence[Any]) -> Term | None:
        """What ``call`` gives of the option ``column`` of ``choice`` for ``inputs``; nothing of one of zeros."""
        if not isinstance(choice, Choice):
            return Term(call())
        part = choice.parts[column]
        if isinstance(part, NOTHING):
            return None
        if self._several(choice) and len(inputs) == 1 and isinstance(inputs[0], Tensor):
            return self._layers(choice, column, part, inputs[0])
        return Term(call())

    def _several(self, choice: Choice) -> bool:
        kept = [column for column in self.columns[choice.decision] if not isinstance(choice.parts[column], NOTHING)]
        return len(kept) > 1

    def combine(self, choice: Searched, columns: Sequence[int], outputs: Sequence[Any]) -> Tensor | None:
        """The sum of the ``outputs`` of the ``columns`` of ``choice``, each times its weight."""
        kept = [(column, term) for column, term in zip(columns, outputs, strict=True) if term is not None]
        ready: list[Tensor] = [term.value for _, term in kept if term.weighted]
        others = [(column, term.value) for column, term in kept if not term.weighted]
        if others and not self._are_ones(choice, [column for column, _ in others]):
            scales = self.rows[choice.decision].to(others[0][1].dtype).unsqueeze(1).unbind()
            (mixed,) = mixtures([value for _, value in others], [scales[column] for column, _ in others], ready)
            return mixed
        return _sum([*(value for _, value in others), *ready])

    def _are_ones(self, choice: Searched, columns: Sequence[int]) -> bool:
        numbers = self.numbers[choice.decision]
        return numbers is not None and all(numbers[column] == 1 for column in columns)

    # --- what several options have in common ---

    def _layers(self, choice: Choice, column: int, part: nn.Module, x: Tensor) -> Term:
        """The option's layers one by one where it is nothing but a row of them."""
        if type(part) is not nn.Sequential or _is_watched(part) or not len(part):
            return Term(self._shared(part, x) if _is_stateless(part) else part(x))
        layers, begin = list(part), 0
        while begin < len(layers) - 1 and _is_stateless(layers[begin]) and _is_ours(layers[begin + 1]):
            x, begin = self._shared(layers[begin], x), begin + 1
        for layer in layers[begin:-1]:
            x = layer(x)
        last = layers[-1]
        if _is_folded(last) and not self._are_ones(choice, [column]):
            return Term(_normed(last, x, self._scale(choice, column, x)), weighted=True)
        return Term(last(x))

    def _scale(self, choice: Choice, column: int, x: Tensor) -> Tensor:
        """The weight of an option in the precision that batch norms of ``x`` take."""
        return self.rows[choice.decision][column].to(torch.promote_types(x.dtype, torch.float32))

    def _shared(self, layer: nn.Module, x: Tensor) -> Tensor:
        """What a layer that keeps nothing gives for ``x``, computed once a pass; ``x`` is kept, as its id names it."""
        settings = tuple((name, str(value)) for name, value in vars(layer).items() if name[0] != "_")
        key = (id(x), type(layer), settings)
        if key not in self.seen:
            self.seen[key] = x, layer(x)
        return self.seen[key][1]


def _sum(terms: Sequence[Tensor]) -> Tensor | None:
    """A tensor of its own where there are several."""
    if len(terms) < 2:
        return terms[0] if terms else None
    total = terms[0] + terms[1]
    for one in terms[2:]:
        total += one
    return total


def _is_watched(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _is_stateless(module: nn.Module) -> bool:
    return type(module) in STATELESS and not _is_watched(module)


def _is_ours(module: nn.Module) -> bool:
    """Whether it is a layer of PyTorch itself, which leaves its input as it is."""
    return type(module).__module__.startswith("torch.nn.")


def _is_folded(module: nn.Module) -> bool:
    """Whether it is a batch norm that remembers nothing, whose scale may be another one in every pass."""
    return isinstance(module, FOLDED) and module.running_mean is None and not _is_watched(module)


def _normed(norm: nn.Module, x: Tensor, scale: Tensor) -> Tensor:
    """``x`` (B, C, ...) normalised by its own statistics, times ``scale`` (0-d)."""
    assert isinstance(norm, nn.modules.batchnorm._BatchNorm)
    weight = scale.expand(norm.num_features) if norm.weight is None else norm.weight * scale
    bias = None if norm.bias is None else norm.bias * scale
    return F.batch_norm(x, None, None, weight, bias, True, 0.0, norm.eps)
