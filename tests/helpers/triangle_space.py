"""A third party's cell space in one file: three nodes, three edges, three operations, 27 architectures.

It knows the contract (:class:`archwright.spaces.cell_space.CellSpace`) and nothing of supernets, methods or metrics.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.spaces.base import Architecture, Encoding, Network, Scale
from archwright.spaces.cell_space import CellSpace, EdgeCell, MakeCell
from archwright.spaces.operations import OPERATIONS, Cost, norm_params

EDGES = ((0, 1), (0, 2), (1, 2))
NAMES = ("none", "skip_connect", "nor_conv_3x3")


@dataclass(frozen=True, order=True)
class Triangle(Architecture):
    operations: tuple[int, ...]

    def __str__(self) -> str:
        return "-".join(NAMES[operation] for operation in self.operations)


class TriangleCell(nn.Module):
    def __init__(self, architecture: Triangle, channels: int) -> None:
        super().__init__()
        self.names = [NAMES[o] for o in architecture.operations]
        self.edges = nn.ModuleList(OPERATIONS[name].build(channels, channels, 1, True) for name in self.names)

    def forward(self, x: Tensor) -> Tensor:
        nodes: list[Tensor | None] = [x, None, None]
        for (source, target), name, module in zip(EDGES, self.names, self.edges, strict=True):
            value, before = nodes[source], nodes[target]
            if name != "none" and value is not None:
                nodes[target] = module(value) if before is None else before + module(value)
        return torch.zeros_like(x) if nodes[2] is None else nodes[2]


class TriangleNetwork(Network):
    def __init__(self, scale: Scale, make_cell: MakeCell) -> None:
        super().__init__()
        self.stem = nn.Conv2d(scale.image_channels, scale.channels, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(scale.channels)
        pattern = EdgeCell("edges", EDGES)
        self.cells = nn.ModuleList(make_cell(pattern, scale.channels, scale.channels) for _ in range(scale.cells))
        self.classifier = nn.Linear(scale.channels, scale.classes)

    def forward(self, x: Tensor, *arguments: Any) -> Tensor:
        x = self.norm(self.stem(x))
        for cell in self.cells:
            x = cell(x, *arguments)
        return self.classifier(F.relu(x).mean(dim=(2, 3)))


class TriangleSpace(CellSpace[Triangle]):
    name = "triangle"
    operations = NAMES
    scales: Mapping[str, Scale] = {"small": Scale(channels=4, cells=1, image_size=8)}

    def total_stride(self, scale: Scale) -> int:
        return 2

    @property
    def size(self) -> int:
        return 27

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        return {"edges": (3, 3)}

    def enumerated(self) -> Iterator[Triangle]:
        return map(Triangle, itertools.product(range(3), repeat=3))

    def sample(self, rng: np.random.Generator) -> Triangle:
        return Triangle(tuple(rng.integers(3, size=3).tolist()))

    def parse(self, text: str) -> Triangle:
        words = text.split("-")
        if len(words) != 3 or not set(words) <= set(NAMES):
            raise InputError("three operations joined by '-'", repr(text))
        return Triangle(tuple(map(NAMES.index, words)))

    def encode(self, architecture: Triangle) -> Encoding:
        return {"edges": np.eye(3, dtype=np.int8)[list(architecture.operations)]}

    def decode(self, encoding: Mapping[str, Any]) -> Triangle:
        array = self.check_encoding(encoding)["edges"]
        if not (array.sum(axis=1) == 1).all():
            raise InputError("one operation an edge", str(array.sum(axis=1)))
        return Triangle(tuple(array.argmax(axis=1).tolist()))

    def neighbours(self, architecture: Triangle) -> list[Triangle]:
        o = architecture.operations
        pairs = itertools.product(range(3), range(3))
        return [Triangle((*o[:edge], new, *o[edge + 1 :])) for edge, new in pairs if new != o[edge]]

    def crossover(self, first: Triangle, second: Triangle, rng: np.random.Generator) -> Triangle:
        sides = zip(first.operations, second.operations, rng.integers(2, size=3), strict=True)
        return Triangle(tuple(pair[side] for *pair, side in sides))

    def canonical(self, architecture: Triangle) -> Triangle:
        a, b, c = architecture.operations
        return Triangle((a, b, c) if a and c else (0, b, 0))

    def is_connected(self, architecture: Triangle) -> bool:
        a, b, c = architecture.operations
        return bool(b or (a and c))

    def skeleton(self, scale: Scale, make_cell: MakeCell, affine: bool = True) -> Network:
        return TriangleNetwork(scale, make_cell)

    def build(self, architecture: Triangle, scale: Scale) -> Network:
        self.check_scale(scale)
        return self.skeleton(scale, lambda _pattern, _before, channels: TriangleCell(architecture, channels))

    def cost(self, architecture: Triangle, scale: Scale) -> Cost:
        self.check_scale(scale)
        c, size = scale.channels, ceil(scale.image_size / 2)
        stem = 9 * scale.image_channels * c
        cell = sum((OPERATIONS[NAMES[o]].cost(c, c, size, 1) for o in architecture.operations), Cost())
        whole = Cost(stem, stem * size**2) + norm_params(c) + cell * scale.cells
        return whole + Cost((c + 1) * scale.classes, c * scale.classes)


TRIANGLE = TriangleSpace()
