"""DARTS-style cells as values and networks: any number of nodes, any number of inputs a node, any published operation.

A network is built from two cells: the *normal* cell keeps the image size, the *reduction* cell (at one and two thirds
of the depth) halves it and doubles the channels. Each cell sees the outputs of the two cells before it (sources 0 and
1), its nodes 2, 3, ... sum their incoming edges, and the nodes in ``concat`` are joined to its output. The ``darts``
space is a validated subset of these values.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from archwright.errors import InputError, unknown_name
from archwright.spaces.base import Architecture, Network, Scale
from archwright.spaces.operations import OPERATIONS, RELU_CONV_1X1, Cost, DropPath, FactorizedReduce, norm_params
from archwright.strict import parse_json

Edge = tuple[str, int]
"""(operation, source)."""


@dataclass(frozen=True, order=True)
class Cell:
    """Nodes, each a multiset of edges (kept sorted by source), and the nodes joined at the output."""

    nodes: tuple[tuple[Edge, ...], ...]
    concat: tuple[int, ...]

    def __post_init__(self) -> None:
        ordered = tuple(tuple(sorted(node, key=lambda edge: (edge[1], edge[0]))) for node in self.nodes)
        object.__setattr__(self, "nodes", ordered)
        object.__setattr__(self, "concat", tuple(sorted(self.concat)))
        self._validate()

    def _validate(self) -> None:
        for number, node in enumerate(self.nodes, 2):
            for operation, source in node:
                if operation not in OPERATIONS:
                    raise unknown_name("operation", operation, OPERATIONS)
                if not 0 <= source < number:
                    raise InputError(f"a source from 0 to {number - 1} at node {number}", str(source))
        known = range(2, len(self.nodes) + 2)
        if not self.concat or len(set(self.concat)) != len(self.concat) or not set(self.concat) <= set(known):
            raise InputError(f"distinct nodes from 2 to {len(self.nodes) + 1} in 'concat'", str(list(self.concat)))

    def to_json(self) -> dict[str, Any]:
        """``{"nodes": [[[operation, source], ...], ...], "concat": [...]}``."""
        return {"nodes": [[list(edge) for edge in node] for node in self.nodes], "concat": list(self.concat)}

    @classmethod
    def from_json(cls, value: Any) -> Cell:
        """Inverse of :meth:`to_json`; says what is wrong with anything else."""
        expected = 'a cell like {"nodes": [[["sep_conv_3x3", 0], ["skip_connect", 1]], ...], "concat": [2, ...]}'
        if not isinstance(value, dict) or set(value) != {"nodes", "concat"}:
            raise InputError(expected, repr(value)[:200])
        try:
            nodes = tuple(tuple((str(name), _integer(source)) for name, source in node) for node in value["nodes"])
            concat = tuple(_integer(node) for node in value["concat"])
        except (TypeError, ValueError) as error:
            raise InputError(expected, repr(value)[:200]) from error
        return cls(nodes, concat)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


@dataclass(frozen=True, order=True)
class CellPair(Architecture):
    """A network's normal and reduction cell; its text is compact JSON."""

    normal: Cell
    reduce: Cell

    def __str__(self) -> str:
        return json.dumps(
            {"normal": self.normal.to_json(), "reduce": self.reduce.to_json()}, separators=(",", ":"), sort_keys=True
        )


def parse_cell_pair(text: str) -> CellPair:
    """The architecture of the JSON text ``{"normal": cell, "reduce": cell}``."""
    expected = 'JSON with the keys "normal" and "reduce"'
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InputError(expected, f"{text[:80]!r} ({error})") from error
    if not isinstance(value, dict) or set(value) != {"normal", "reduce"}:
        raise InputError(expected, repr(value)[:200])
    return CellPair(Cell.from_json(value["normal"]), Cell.from_json(value["reduce"]))


def reaches_output(cell: Cell) -> bool:
    """Whether some node joined at the output depends on an input of the cell."""
    live = {0, 1}
    for number, node in enumerate(cell.nodes, 2):
        if any(source in live and operation != "none" for operation, source in node):
            live.add(number)
    return any(node in live for node in cell.concat)


# --- networks --------------------------------------------------------------------------------------------------------


class StandaloneCell(nn.Module):
    """The operations of one cell between its preprocessed inputs and its joined output."""

    def __init__(self, cell: Cell, channels: int, reduction: bool, pool_norm: bool) -> None:
        super().__init__()
        self.cell, self.stride = cell, 2 if reduction else 1
        self.edges = nn.ModuleList()
        for node in cell.nodes:
            for operation, source in node:
                stride = 2 if reduction and source < 2 else 1
                self.edges.append(OPERATIONS[operation].build(channels, channels, stride, True, pool_norm))
        self.drop = DropPath()

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """``first`` and ``second`` (B, C, H, W) to (B, C * len(concat), H', W'); a node without an input is zero."""
        states: list[Tensor | None] = [first, second]
        edges = iter(self.edges)
        for node in self.cell.nodes:
            total: Tensor | None = None
            for operation, source in node:
                module, value = next(edges), states[source]
                if operation == "none" or value is None:
                    continue
                value = module(value) if isinstance(module, nn.Identity) else self.drop(module(value))
                total = value if total is None else total + value
            states.append(total)
        nothing = torch.zeros_like(first[:, :, :: self.stride, :: self.stride])
        joined = [states[node] for node in self.cell.concat]
        return torch.cat([nothing if state is None else state for state in joined], dim=1)


MakeCell = Callable[[int, bool], nn.Module]
"""From (channels, reduction) a module that takes two inputs, and a supernet's further arguments."""


class PreprocessedCell(nn.Module):
    """A cell behind the two 1x1 convolutions that bring its inputs to ``channels`` and to one image size."""

    def __init__(
        self, inner: nn.Module, sources: tuple[int, int], channels: int, halve_first: bool, affine: bool
    ) -> None:
        super().__init__()
        first, second = sources
        self.first = (
            FactorizedReduce(first, channels, affine)
            if halve_first
            else RELU_CONV_1X1.build(first, channels, 1, affine)
        )
        self.second = RELU_CONV_1X1.build(second, channels, 1, affine)
        self.inner = inner

    def forward(self, before_last: Tensor, last: Tensor, *arguments: Any) -> Tensor:
        """The outputs of the two cells before to this cell's output, all (B, channels of their own, height, width).

        Args:
            before_last: output of the cell before the last.
            last: output of the last cell.
            arguments: what the inner cell takes besides, such as a supernet's weights.
        """
        out: Tensor = self.inner(self.first(before_last), self.second(last), *arguments)
        return out


class AuxiliaryHead(nn.Module):
    """The second classifier at two thirds of the depth; pools to 2x2 whatever the image size."""

    def __init__(self, channels: int, classes: int, size: int) -> None:
        super().__init__()
        pool: nn.Module = nn.AvgPool2d(5, size - 5, count_include_pad=False) if size >= 6 else nn.AdaptiveAvgPool2d(2)
        self.features = nn.Sequential(
            nn.ReLU(),
            pool,
            nn.Conv2d(channels, 128, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(),
            nn.Conv2d(128, 768, 2, bias=False),
            nn.BatchNorm2d(768),
            nn.ReLU(),
        )
        self.classifier = nn.Linear(768, classes)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, size, size) to logits (B, classes)."""
        logits: Tensor = self.classifier(self.features(x).flatten(1))
        return logits


@dataclass(frozen=True)
class CellPlan:
    """Where one cell stands: its channels, its inputs' channels and image size, and whether it reduces."""

    channels: int
    sources: tuple[int, int]
    reduction: bool
    halve_first: bool
    size: int


def plan_cells(scale: Scale, multipliers: tuple[int, int]) -> list[CellPlan]:
    """Where the cells of a network stand, from the stem on.

    Args:
        scale: of the network.
        multipliers: joined nodes of (normal, reduction) cells.
    """
    if scale.stem == "imagenet":
        before, last, halve, size = scale.channels, scale.channels, True, ceil(scale.image_size / 8)
    else:
        before = last = 3 * scale.channels
        halve, size = False, scale.image_size
    channels, plans = scale.channels, []
    for number in range(scale.cells):
        reduction = number in (scale.cells // 3, 2 * scale.cells // 3)
        channels *= 2 if reduction else 1
        plans.append(CellPlan(channels, (before, last), reduction, halve, size))
        before, last, halve = last, channels * multipliers[reduction], reduction
        size = ceil(size / 2) if reduction else size
    return plans


class CellNetwork(Network):
    """Stem, cells, optional auxiliary head, classifier; the cells may take further arguments (a supernet's weights).

    Args:
        scale: channels, cells, stem, image and class numbers.
        multipliers: joined nodes of (normal, reduction) cells.
        make_cell: from (channels, reduction), a cell.
        affine: whether the batch norms of the cells' inputs have trainable parameters; DARTS' supernet has none.
    """

    def __init__(self, scale: Scale, multipliers: tuple[int, int], make_cell: MakeCell, affine: bool = True) -> None:
        super().__init__()
        channels = scale.channels
        plans = plan_cells(scale, multipliers)
        if scale.stem == "imagenet":
            self.stem: nn.Module = nn.Sequential(
                nn.Conv2d(scale.image_channels, channels // 2, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(channels // 2),
                nn.ReLU(),
                nn.Conv2d(channels // 2, channels, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(channels),
            )
            self.second_stem: nn.Module = nn.Sequential(
                nn.ReLU(), nn.Conv2d(channels, channels, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(channels)
            )
        else:
            self.stem = nn.Sequential(
                nn.Conv2d(scale.image_channels, 3 * channels, 3, padding=1, bias=False), nn.BatchNorm2d(3 * channels)
            )
            self.second_stem = nn.Identity()
        self.stack = nn.ModuleList(
            PreprocessedCell(make_cell(p.channels, p.reduction), p.sources, p.channels, p.halve_first, affine)
            for p in plans
        )
        out_channels = plans[-1].channels * multipliers[plans[-1].reduction]
        self.classifier = nn.Linear(out_channels, scale.classes)
        self.auxiliary: AuxiliaryHead | None = None
        self._auxiliary_after = 2 * scale.cells // 3
        if scale.auxiliary:
            plan = plans[self._auxiliary_after]
            size = ceil(plan.size / 2) if plan.reduction else plan.size
            self.auxiliary = AuxiliaryHead(plan.channels * multipliers[plan.reduction], scale.classes, size)

    def cells(self) -> list[tuple[nn.Module, bool]]:
        """All cells in order, each with whether it reduces."""
        last = len(self.stack)
        return [(cell.inner, number in (last // 3, 2 * last // 3)) for number, cell in enumerate(self.stack)]  # type: ignore[misc]

    def blocks(self) -> list[nn.Module]:
        """Stem and cells in order."""
        return [self.stem, *self.stack]

    def forward(self, x: Tensor, *cell_arguments: Any) -> Tensor:
        """Images ``x`` (B, image_channels, H, W) to logits (B, classes); ``cell_arguments`` go to every cell."""
        return self._run(x, cell_arguments, with_head=False)[0]

    @property
    def has_auxiliary(self) -> bool:
        """Whether the scale asks for one."""
        return self.auxiliary is not None

    def with_auxiliary(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits and, in training, the auxiliary head's logits."""
        return self._run(x, (), with_head=self.training)

    def _run(self, x: Tensor, arguments: tuple[Any, ...], with_head: bool) -> tuple[Tensor, Tensor | None]:
        before = self.stem(x)
        last, side = self.second_stem(before), None
        for number, cell in enumerate(self.stack):
            before, last = last, cell(before, last, *arguments)
            if with_head and self.auxiliary is not None and number == self._auxiliary_after:
                side = self.auxiliary(last)
        return self.classifier(last.mean(dim=(2, 3))), side


def build_cells(pair: CellPair, scale: Scale) -> CellNetwork:
    """The stand-alone network of any ``pair`` of cells at ``scale``."""

    def make_cell(channels: int, reduction: bool) -> nn.Module:
        return StandaloneCell(pair.reduce if reduction else pair.normal, channels, reduction, scale.pool_norm)

    return CellNetwork(scale, (len(pair.normal.concat), len(pair.reduce.concat)), make_cell)


def cost_cells(pair: CellPair, scale: Scale) -> Cost:
    """Parameters and multiply-accumulates of ``build_cells(pair, scale)`` in inference: without the auxiliary head."""
    c, size, first = scale.channels, scale.image_size, scale.image_channels
    if scale.stem == "imagenet":
        halves = [ceil(size / 2), ceil(size / 4), ceil(size / 8)]
        weights = [9 * first * (c // 2), 9 * (c // 2) * c, 9 * c * c]
        total = Cost(sum(weights), sum(w * s * s for w, s in zip(weights, halves, strict=True)))
        total += norm_params(c // 2) + norm_params(c) * 2
    else:
        total = Cost(27 * first * c, 27 * first * c * size * size) + norm_params(3 * c)
    multipliers = (len(pair.normal.concat), len(pair.reduce.concat))
    plans = plan_cells(scale, multipliers)
    for plan in plans:
        c, size = plan.channels, plan.size
        if plan.halve_first:
            total += OPERATIONS["skip_connect"].cost(plan.sources[0], c, 2 * size, 2)
        else:
            total += RELU_CONV_1X1.cost(plan.sources[0], c, size, 1)
        total += RELU_CONV_1X1.cost(plan.sources[1], c, size, 1)
        for node in (pair.reduce if plan.reduction else pair.normal).nodes:
            for operation, source in node:
                outer = plan.reduction and source < 2
                inside = ceil(size / 2) if plan.reduction and not outer else size
                total += OPERATIONS[operation].cost(c, c, inside, 2 if outer else 1)
    width = plans[-1].channels * multipliers[plans[-1].reduction]
    return total + Cost((width + 1) * scale.classes, width * scale.classes)
