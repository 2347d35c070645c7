"""What every supernet of a space is: the module that methods call, the same for cells and for a user's own network.

``supernet(x, weights, active=None)`` takes one weight tensor (rows, columns) for each decision of its space, and
``active`` of the same shapes says which candidates run. By default, where the weights carry no gradient, those with
non-zero weight; where they carry one, all: the zeros of a hard sample have a derivative too, and leaving them out is a
different (GDAS') estimator that a method must choose aloud.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.spaces.base import Architecture, Network, Scale
from archwright.spaces.supernet_space import SupernetSpace

Statistics = Literal["batch", "running"]
Weights = Mapping[str, Tensor]
Active = Mapping[str, NDArray[np.bool_]]


class Supernet(nn.Module, ABC):
    """All architectures of a space in one network."""

    space: SupernetSpace[Any]
    scale: Scale

    @abstractmethod
    def forward(self, x: Tensor, weights: Weights, active: Active | None = None) -> Tensor:
        """Images to logits (B, classes).

        Args:
            x: images (B, image_channels, H, W).
            weights: (rows, columns) for each decision.
            active: which candidates run, 0/1 of the same shapes; by default see the module's text.
        """

    @abstractmethod
    def inherit(self, architecture: Architecture) -> Network:
        """The stand-alone network of ``architecture`` with this supernet's weights and statistics, copied."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """What a file of weights must agree in: space, scale and options."""

    @abstractmethod
    def operation_weights(self) -> Iterator[tuple[Tensor, int, list[int]]]:
        """Every parameter of a candidate, in how many equal rows it is stacked, and the candidate of each row.

        Candidates are numbered over the whole network; one has as many parameters as its layers have.
        """

    def active_operations(self, weights: Weights) -> dict[str, NDArray[np.bool_]]:
        """The default of ``active``: all where the weights carry gradient, the non-zero ones where not."""
        return {
            name: np.ones(tensor.shape, dtype=bool) if tensor.requires_grad else (tensor != 0).cpu().numpy()
            for name, tensor in weights.items()
        }

    def one_hot(self, architecture: Architecture, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The weights by decision that select ``architecture``, on ``device``."""
        encoding = self.space.encode(architecture)
        return {name: torch.from_numpy(array).float().to(device) for name, array in encoding.items()}
