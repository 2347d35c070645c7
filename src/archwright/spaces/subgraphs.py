"""Sub-graphs of a space with a supernet as bit strings: every (place, operation) pair is on (1) or off (-1).

Unlike an architecture a sub-graph may have several operations on one edge, or none at a node. ``none`` has no bit: it
is what remains where all bits of an edge are off. DARTS has 14 edges x 7 operations x 2 cells = 196 bits, NAS-Bench-201
6 x 4 = 24. In NAS-Bench-1Shot1 the operations sit on vertices and parents are chosen, too: it has 3 bits a vertex and
one for every possible parent where there is a choice (24, 26 and 35 bits in its three spaces).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from archwright.spaces.base import Architecture, Space
from archwright.spaces.supernet_space import Masks, as_supernet_space

Signs = NDArray[np.int8]


class Subgraphs:
    """The bits of a space."""

    def __init__(self, space: Space[Any]) -> None:
        self.space = as_supernet_space(space)
        self.places: list[tuple[str, int, int]] = [
            (name, row, column)
            for name, (rows, _) in self.space.decisions.items()
            for row in range(rows)
            for column in self.space.candidates(name).tolist()
        ]
        """(decision, row, column) of every bit."""

    @property
    def n(self) -> int:
        """How many bits there are."""
        return len(self.places)

    @cached_property
    def names(self) -> list[str]:
        """What every bit means, such as ``normal 0>2 sep_conv_3x3``."""
        space = self.space
        return [f"{space.place(name, row)} {space.columns(name)[column]}" for name, row, column in self.places]

    def draw(
        self, rng: np.random.Generator, count: int, probability: float, fixed: Mapping[int, int] | None = None
    ) -> Signs:
        """Random strings of 1 and -1, (count, n).

        Args:
            rng: of the draws.
            count: how many strings.
            probability: with which every bit is on.
            fixed: values, 1 or -1, of some bits by their number; none by default.
        """
        x = np.where(rng.random((count, self.n)) < probability, 1, -1).astype(np.int8)
        for bit, value in (fixed or {}).items():
            x[:, bit] = value
        return x

    def of(self, architecture: Architecture) -> Signs:
        """The string (n,) of an architecture."""
        encoding = self.space.encode(architecture)
        return np.array([2 * int(encoding[name][row, column]) - 1 for name, row, column in self.places], dtype=np.int8)

    def masks(self, x: NDArray[Any]) -> Masks:
        """What is on in the string x (n,), by decision."""
        on: Masks = {name: np.zeros(shape, dtype=bool) for name, shape in self.space.decisions.items()}
        for (name, row, column), value in zip(self.places, x, strict=True):
            on[name][row, column] = value > 0
        return on

    def weights(self, x: NDArray[Any], device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """The 0/1 weights, by decision, with which a supernet on ``device`` runs the sub-graph ``x`` (n,)."""
        return {name: torch.from_numpy(mask).float().to(device) for name, mask in self.masks(x).items()}

    def architecture(self, x: NDArray[Any], scores: NDArray[Any], rng: np.random.Generator | None) -> Architecture:
        """The architecture of a sub-graph.

        Args:
            x: its bits (n,).
            scores: what each bit is worth, (n,).
            rng: draws among what is on, in spaces that choose at random; None takes the largest score.
        """
        worth = {name: np.zeros(shape) for name, shape in self.space.decisions.items()}
        for (name, row, column), score in zip(self.places, scores, strict=True):
            worth[name][row, column] = score
        found: Architecture = self.space.of_subgraph(self.masks(x), worth, rng)
        return found


def write_bits(x: NDArray[Any]) -> str:
    """A string of 0 and 1."""
    return "".join("1" if value > 0 else "0" for value in x)


def read_bits(text: str) -> Signs:
    """The string (n,) of 1 and -1 that :func:`write_bits` wrote as ``text``."""
    return np.array([1 if letter == "1" else -1 for letter in text], dtype=np.int8)
