"""The supernet cell of NAS-Bench-1Shot1: operations on vertices, weights on the parents of vertices and of the output.

A vertex adds up its possible parents, each times its weight, and applies every operation, each times its weight. The
cell's input reaches each vertex, and the output, through a 1x1 convolution of its own. The output joins the projected
input and all vertices, each times its weight: vertices + 1 blocks of the stage's channels, zero where not chosen.

**Not the networks of the table.** NAS-Bench-101 divides the output's channels among the vertices that feed it, adds the
projected input instead of joining it, and so changes a vertex' width with the architecture; one set of shared weights
cannot follow that. :func:`inherit_node_network` therefore does not give ``space.build(...)`` but its *wide* form, the
network that the supernet computes for one architecture with everything unused taken away (:class:`WideCell`): the same
function, to be measured, recalibrated or fine-tuned. To train an architecture as the benchmark does, build it afresh.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import add

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.spaces.base import Architecture, Network, Scale
from archwright.spaces.cell_space import VertexCell
from archwright.spaces.nasbench101 import OPERATIONS_101, PROJECTION, Cell101, Skeleton101

Masks = Mapping[str, NDArray[np.bool_]]


class NodeCell(nn.Module):
    """A cell with every operation on every vertex, (B, in_channels, H, W) to (B, (vertices + 1) * channels, H, W)."""

    def __init__(self, pattern: VertexCell, in_channels: int, channels: int, *, affine: bool, pool_norm: bool) -> None:
        super().__init__()
        self.vertices, self.channels = pattern.vertices, channels
        self.decision = {vertex: name for name, vertex in pattern.links.items()}
        self.projections = nn.ModuleDict(
            {str(v): pattern.projection.build(in_channels, channels, 1, affine) for v in range(1, self.vertices + 2)}
        )
        self.operations = nn.ModuleDict(
            {
                str(v): nn.ModuleList(op.build(channels, channels, 1, affine, pool_norm) for op in pattern.operations)
                for v in range(1, self.vertices + 1)
            }
        )

    def forward(self, x: Tensor, weights: Mapping[str, Tensor], active: Masks) -> Tensor:
        """Run the vertices that reach the output; of each, the active parents and operations.

        Args:
            x: (B, in_channels, H, W).
            weights: by decision: ``operation`` (vertices, operations), and a row of possible parents for each link.
            active: which of them run, 0/1 of the same shapes.
        """
        output = self.vertices + 1
        parents = {vertex: self._active_parents(vertex, active) for vertex in range(1, output + 1)}
        needed = {output}
        for vertex in range(output, 0, -1):
            if vertex in needed:
                needed.update(parents[vertex])
        states: dict[int, Tensor] = {}
        for vertex in sorted(needed - {0, output}):
            terms = self._weighted(vertex, x, states, parents[vertex], weights)
            columns = np.flatnonzero(active["operation"][vertex - 1])
            if terms and len(columns):
                states[vertex] = self._mixed(vertex, reduce(add, terms.values()), columns, weights["operation"])
        joined = self._weighted(output, x, states, parents[output], weights)
        blank = x.new_zeros(x.shape[0], self.channels, *x.shape[2:])
        return torch.cat([joined.get(vertex, blank) for vertex in range(output)], dim=1)

    def _active_parents(self, vertex: int, active: Masks) -> list[int]:
        """Parents of ``vertex`` that may contribute; all where there is no choice."""
        name = self.decision.get(vertex)
        return list(range(vertex)) if name is None else [int(p) for p in np.flatnonzero(active[name][0])]

    def _weighted(
        self, vertex: int, x: Tensor, states: dict[int, Tensor], parents: list[int], weights: Mapping[str, Tensor]
    ) -> dict[int, Tensor]:
        """What each parent sends to ``vertex``: its value (the projected input for 0) times its weight."""
        name = self.decision.get(vertex)
        terms = {parent: states[parent] for parent in parents if parent in states}
        if 0 in parents:
            terms[0] = self.projections[str(vertex)](x)
        if name is None:
            return terms
        return {parent: value * weights[name][0, parent] for parent, value in terms.items()}

    def _mixed(self, vertex: int, value: Tensor, columns: NDArray[np.intp], weights: Tensor) -> Tensor:
        """The weighted sum of the vertex' active operations."""
        operations: nn.ModuleList = self.operations[str(vertex)]  # type: ignore[assignment]
        terms: list[Tensor] = [operations[int(c)](value) * weights[vertex - 1, int(c)] for c in columns]
        return reduce(add, terms)


class WideCell(nn.Module):
    """One pruned architecture in the form the supernet computes: whole vertices, joined at the output.

    (B, in_channels, H, W) to (B, parents of the output * channels, H, W).
    """

    def __init__(self, cell: Cell101, in_channels: int, channels: int, pool_norm: bool) -> None:
        super().__init__()
        self.cell = cell
        self.projections = nn.ModuleDict(
            {str(v): PROJECTION.build(in_channels, channels, 1, True) for v, p in enumerate(cell.parents, 1) if 0 in p}
        )
        self.operations = nn.ModuleDict(
            {
                str(vertex): OPERATIONS_101[operation].build(channels, channels, 1, True, pool_norm)
                for vertex, operation in enumerate(cell.operations, 1)
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """Its input to its output, vertex by vertex."""
        states = [x]
        for vertex, parents in enumerate(self.cell.parents, 1):
            values = [states[parent] if parent else self.projections[str(vertex)](x) for parent in parents]
            if vertex == self.cell.output:
                return torch.cat(values, dim=1)
            states.append(self.operations[str(vertex)](reduce(add, values)))
        raise AssertionError("a cell ends with its output")


def inherit_node_network(supernet: Network, architecture: Architecture, scale: Scale) -> Network:
    """The wide form of ``architecture`` at ``scale`` with the weights and statistics of ``supernet``, copied."""
    assert isinstance(architecture, Cell101)
    chosen = architecture.parents[-1]
    whole = architecture.pruned()
    network = Skeleton101(
        scale, lambda before, channels: WideCell(whole, before, channels, scale.pool_norm), blocks=len(chosen)
    )
    names = _names(architecture)
    state = supernet.state_dict()
    wide = {}
    for key, target in network.state_dict().items():
        stage, number, rest = _split(key)
        source = key if rest is None else f"stages.{stage}.{number}.{_translate(rest, names)}"
        if source in state:
            wide[key] = _chosen_blocks(state[source], target, architecture.output, chosen)
    missing, _ = network.load_state_dict(wide, strict=False)
    norms = {name for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)}
    uncovered = [key for key in missing if key.rpartition(".")[0] not in norms]
    if uncovered:
        raise RuntimeError(f"the supernet does not cover {uncovered}")
    return network


def _split(key: str) -> tuple[str, str, str | None]:
    """Stage, number and inner name of a cell's parameter; None for what lies outside the cells."""
    parts = key.split(".", 3)
    return (parts[1], parts[2], parts[3]) if parts[0] == "stages" else ("", "", None)


def _names(architecture: Cell101) -> dict[str, str]:
    """For each module of the wide cell of ``architecture``, its name in the mixed cell."""
    live = architecture.live()[1:]
    names = {f"projections.{new}": f"projections.{old}" for new, old in enumerate(live, 1)}
    for new, old in enumerate(live[:-1], 1):
        names[f"operations.{new}"] = f"operations.{old}.{architecture.operations[old - 1]}"
    return names


def _translate(rest: str, names: Mapping[str, str]) -> str:
    kind, vertex, inner = rest.split(".", 2)
    return f"{names[f'{kind}.{vertex}']}.{inner}"


def _chosen_blocks(source: Tensor, target: Tensor, blocks: int, chosen: tuple[int, ...]) -> Tensor:
    """``source`` as it is, or, for a convolution over joined blocks, only the input channels of the chosen ones."""
    if source.shape == target.shape:
        return source.clone()
    out, joined, *kernel = source.shape
    return source.view(out, blocks, joined // blocks, *kernel)[:, list(chosen)].reshape(target.shape)
