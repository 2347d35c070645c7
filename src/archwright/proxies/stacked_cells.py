"""Tens of DARTS-style networks in one tensor program, as layer records for the training-free metrics.

The networks of a stack share everything but their cells. They lie side by side in the channels, (m, A * C, H, W),
where ReLU, batch norm, pooling and depthwise convolutions need no change and other convolutions become grouped ones.
For every cell and node, all edges of all networks that carry one operation run together. Gradients are autograd's.

Weights come from common random numbers, by the layer's place, as in `archwright.proxies.stacked`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from archwright.errors import DivergedError, InputError
from archwright.proxies.batches import check_batch
from archwright.proxies.blocks import folded, random_signs
from archwright.proxies.initialise import Initialisation
from archwright.proxies.metrics import Proxy, Tally
from archwright.proxies.records import BlockRecord, Geometry, InputRecord, LayerRecord, Need, ReluRecord
from archwright.proxies.stacked import SharedWeights, Weights
from archwright.spaces.base import Architecture, Scale
from archwright.spaces.cells import Cell, CellPair, plan_cells
from archwright.spaces.operations import OPERATIONS, RELU_CONV_1X1, Convolution, Operation

CONCAT = (2, 3, 4, 5)


def pairs_of(architectures: Sequence[Architecture]) -> list[CellPair] | None:
    """The architectures where this program can run all of them: pairs of cells of four nodes, all joined; else None."""
    pairs = [one for one in architectures if isinstance(one, CellPair)]
    alike = all(len(cell.nodes) == 4 and cell.concat == CONCAT for one in pairs for cell in (one.normal, one.reduce))
    return pairs if alike and len(pairs) == len(architectures) else None


@dataclass(frozen=True)
class _Call:
    """One stacked convolution: L lanes of networks ``rows``, weight (L, C', C/groups, k, k), maps (m, L * C, H, W)."""

    name: str
    rows: Tensor
    weight: Tensor
    inputs: Tensor
    output: Tensor
    geometry: Geometry

    def lanes(self, maps: Tensor) -> Tensor:
        """(m, L * C, H, W) as (L, m, C, H, W)."""
        return _lanes(maps, len(self.rows))


@dataclass(frozen=True)
class _Lane:
    """One edge of one network: its row, its source and how often the same edge came before at this node."""

    row: int
    source: int
    repeat: int


class _Program:
    """The forward pass of A networks, and what it met."""

    def __init__(self, pairs: Sequence[CellPair], weights: Weights, scale: Scale, normalise: bool = True) -> None:
        self.pairs, self.weights, self.scale, self.normalise = pairs, weights, scale, normalise
        self.calls: list[_Call] = []
        self.relus: list[tuple[Tensor, Tensor]] = []
        self.features: list[Tensor] = []
        self.everyone = torch.arange(len(pairs))

    def forward(self, images: Tensor) -> Tensor:
        """Images (m, A * C, H, W), a copy a network, to logits (A, m, classes)."""
        count = len(self.pairs)
        stem = self._convolve(images, ["stem"] * count, self.everyone, (3 * self.scale.channels, 3, 3), padding=1)
        before = last = self._norm(stem)
        self.features.append(last)
        for number, plan in enumerate(plan_cells(self.scale, (len(CONCAT), len(CONCAT)))):
            name = f"cell{number}"
            first = (
                self._halve(before, [f"{name}.first"] * count, self.everyone, plan.channels)
                if plan.halve_first
                else self._run(RELU_CONV_1X1, before, [f"{name}.first"] * count, self.everyone, plan.channels, 1)
            )
            second = self._run(RELU_CONV_1X1, last, [f"{name}.second"] * count, self.everyone, plan.channels, 1)
            cells = [pair.reduce if plan.reduction else pair.normal for pair in self.pairs]
            before, last = last, self._cell(cells, [first, second], name, plan.reduction)
            self.features.append(last)
        pooled = last.mean((2, 3), keepdim=True)
        logits = self._convolve(pooled, ["classifier"] * count, self.everyone, (self.scale.classes, 1, 1))
        return logits.view(len(images), count, -1).transpose(0, 1)

    def _cell(self, cells: Sequence[Cell], states: list[Tensor], name: str, reduction: bool) -> Tensor:
        """Nodes one after another; a node that nothing reaches stays zero and passes nothing on."""
        count, examples = len(cells), len(states[0])
        channels = states[0].shape[1] // count
        alive = [{0, 1} for _ in cells]
        step = 2 if reduction else 1
        size = [-(-side // step) for side in states[0].shape[2:]]
        for node in range(2, 6):
            total = states[0].new_zeros(examples, count, channels, *size)
            for (operation, stride), lanes in self._groups(cells, alive, node, reduction).items():
                rows = torch.tensor([lane.row for lane in lanes])
                seen = self._gather(states, lanes, count)
                names = [f"{name}.{node}.{lane.source}.{operation}.{lane.repeat}" for lane in lanes]
                out = self._run(OPERATIONS[operation], seen, names, rows, channels, stride)
                total = total.index_add(1, rows, out.view(examples, len(lanes), channels, *size))
                for lane in lanes:
                    alive[lane.row].add(node)
            states.append(total.flatten(1, 2))
        joined = torch.stack([state.view(examples, count, channels, *size) for state in states[2:]], 2)
        return joined.reshape(examples, -1, *size)

    def _groups(
        self, cells: Sequence[Cell], alive: list[set[int]], node: int, reduction: bool
    ) -> dict[tuple[str, int], list[_Lane]]:
        """The edges into ``node`` of all networks by operation and stride, in the order of their sources."""
        found: dict[tuple[str, int], list[_Lane]] = {}
        for row, cell in enumerate(cells):
            before: Counter[tuple[str, int]] = Counter()
            for operation, source in cell.nodes[node - 2]:
                if operation != "none" and source in alive[row]:
                    stride = 2 if reduction and source < 2 else 1
                    lane = _Lane(row, source, before[operation, source])
                    found.setdefault((operation, stride), []).append(lane)
                    before[operation, source] += 1
        for lanes in found.values():
            lanes.sort(key=lambda lane: (lane.source, lane.row, lane.repeat))
        return found

    def _gather(self, states: Sequence[Tensor], lanes: list[_Lane], count: int) -> Tensor:
        """The lanes' inputs side by side, in the order of ``lanes``, which is that of their sources."""
        parts = []
        for source in sorted({lane.source for lane in lanes}):
            rows = torch.tensor([lane.row for lane in lanes if lane.source == source])
            state = states[source].unflatten(1, (count, -1))  # type: ignore[no-untyped-call]
            parts.append(state.index_select(1, rows))
        return torch.cat(parts, 1).flatten(1, 2)

    def _run(
        self, operation: Operation, x: Tensor, names: Sequence[str], rows: Tensor, channels: int, stride: int
    ) -> Tensor:
        """One operation on all its lanes (m, L * C, H, W)."""
        if operation.kind == "skip":
            return x if stride == 1 else self._halve(x, names, rows, channels)
        if operation.kind == "average":
            return F.avg_pool2d(x, 3, stride, 1, count_include_pad=False)
        if operation.kind == "maximum":
            return F.max_pool2d(x, 3, stride, 1)
        for number, layer in enumerate(operation.layers):
            if layer == "relu":
                x = self._relu(x, rows)
            elif layer == "norm":
                x = self._norm(x)
            else:
                assert isinstance(layer, Convolution)
                geometry = layer.geometry(stride)
                places = [f"{name}.{number}" for name in names]
                x = self._convolve(x, places, rows, (channels, *layer.kernel), *geometry, depthwise=layer.depthwise)
        return x

    def _halve(self, x: Tensor, names: Sequence[str], rows: Tensor, channels: int) -> Tensor:
        """The factorised reduction: two offset 1x1 convolutions of stride 2, joined network by network."""
        x = self._relu(x, rows)
        offset = F.pad(x[:, :, 1:, 1:], (0, x.shape[3] % 2, 0, x.shape[2] % 2))
        halves = [
            self._convolve(part, [f"{name}.{kind}" for name in names], rows, (channels // 2, 1, 1), stride=2)
            for part, kind in ((x, "first"), (offset, "second"))
        ]
        joined = torch.cat([half.view(len(x), len(names), -1, *half.shape[2:]) for half in halves], 2)
        return self._norm(joined.flatten(1, 2))

    def _relu(self, x: Tensor, rows: Tensor) -> Tensor:
        self.relus.append((rows, x.detach()))
        return F.relu(x)

    def _norm(self, x: Tensor) -> Tensor:
        return F.batch_norm(x, None, None, training=True) if self.normalise else x

    def _convolve(
        self,
        x: Tensor,
        names: Sequence[str],
        rows: Tensor,
        shape: tuple[int, int, int],
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        depthwise: bool = False,
    ) -> Tensor:
        channels = x.shape[1] // len(names)
        full = (channels, 1, *shape[1:]) if depthwise else (shape[0], channels, *shape[1:])
        weight = torch.stack([self.weights(name, full) for name in names]).to(x.dtype).requires_grad_()
        groups = channels if depthwise else 1
        out = F.conv2d(x, weight.flatten(0, 1), None, stride, padding, dilation, len(names) * groups)
        geometry = Geometry(_two(stride), _two(padding), _two(dilation), groups)
        self.calls.append(_Call(names[0], rows, weight, x, out, geometry))
        return out


def _two(value: Any) -> tuple[int, int]:
    return (int(value[0]), int(value[1])) if isinstance(value, tuple) else (int(value), int(value))


def _lanes(maps: Tensor, count: int) -> Tensor:
    return maps.detach().view(len(maps), count, -1, *maps.shape[2:]).transpose(0, 1)


def score_stacked_cells(
    pairs: Sequence[CellPair],
    images: Tensor,
    labels: Tensor,
    proxies: Sequence[Proxy],
    *,
    scale: Scale,
    seed: int = 0,
    initialisation: Initialisation = "lecun",
    stack: int = 24,
    weights: Weights | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Score pairs of DARTS-style cells, ``stack`` networks at a time.

    Args:
        pairs: as :func:`pairs_of` gives them.
        images: (m, C, H, W).
        labels: (m,) integer classes.
        proxies: the metrics; passes are shared between them.
        scale: of the networks.
        seed: draws the shared weights, together with each layer's name.
        initialisation: scale of the weights.
        stack: networks per tensor program; the scores do not depend on it.
        weights: in place of ``seed`` and ``initialisation``, a function from layer name and shape to its weight.

    Returns:
        Metric name -> (A,) scores.
    """
    check_batch(images, labels, proxies)
    if int(labels.max()) >= scale.classes:
        raise InputError(f"labels below {scale.classes}", f"up to {int(labels.max())}")
    drawn = weights or SharedWeights(seed, initialisation)
    parts = []
    for start in range(0, len(pairs), stack):
        some = pairs[start : start + stack]
        tally = Tally(proxies, len(some))
        _run_passes(some, images, labels, drawn, scale, tally, seed)
        parts.append({name: score.numpy() for name, score in tally.scores(len(labels)).items()})
    return {proxy.name: np.concatenate([part[proxy.name] for part in parts]) for proxy in proxies}


def _run_passes(
    pairs: Sequence[CellPair], images: Tensor, labels: Tensor, draw: Weights, scale: Scale, tally: Tally, seed: int
) -> None:
    """One forward pass for all that see the data, one for each half batch (zico), one in float64 for synflow."""
    needs = tally.needs()
    if needs - {"synflow", "halves"} or not needs:
        _data_pass(pairs, images, labels, draw, scale, tally, seed)
    if "halves" in needs:
        half = len(labels) // 2
        found = []
        for part in (slice(0, half), slice(half, 2 * half)):
            program = _Program(pairs, draw, scale)
            logits = program.forward(_copies(images[part], len(pairs)))
            gradients = _gradients(_loss(logits, labels[part]), [call.weight for call in program.calls])
            found.append([_record(c, weight_gradient=g) for c, g in zip(program.calls, gradients, strict=True)])
        for first, second in zip(*found, strict=True):
            assert first.weight_gradient is not None
            assert second.weight_gradient is not None
            both = torch.stack([first.weight_gradient, second.weight_gradient], 1)
            tally.add(replace(first, half_gradients=both), "halves")
    if "synflow" in needs:
        program = _Program(pairs, lambda name, shape: draw(name, shape).double().abs(), scale, normalise=False)
        ones = torch.ones(1, *images.shape[1:], dtype=torch.float64)
        total = program.forward(_copies(ones, len(pairs))).sum()
        gradients = _gradients(total, [call.weight for call in program.calls])
        for call, gradient in zip(program.calls, gradients, strict=True):
            tally.add(_record(call, weight_gradient=gradient), "synflow")


def _data_pass(
    pairs: Sequence[CellPair], images: Tensor, labels: Tensor, draw: Weights, scale: Scale, tally: Tally, seed: int
) -> None:
    needs, program = tally.needs(), _Program(pairs, draw, scale)
    copies = _copies(images, len(pairs)).requires_grad_("input" in needs)
    logits, calls = program.forward(copies), program.calls
    fields: list[dict[str, Tensor | None]] = [{} for _ in calls]
    outputs, weights = [call.output for call in calls], [call.weight for call in calls]
    if needs & {"loss", "hessian"}:
        both = _gradients(_loss(logits, labels), outputs + weights, create_graph="hessian" in needs)
        for field, at_output, at_weight in zip(fields, both, both[len(calls) :], strict=False):
            field |= {"loss_gradients": at_output, "weight_gradient": at_weight}
        if "hessian" in needs:
            used = [(g, w) for g, w in zip(both[len(calls) :], weights, strict=True) if g is not None]
            along = torch.stack([(g * w.detach()).sum() for g, w in used]).sum()
            for field, product in zip(fields, _gradients(along, weights), strict=True):
                field["hessian_weight"] = product
    if "logit" in needs:
        truth = logits.gather(2, labels.expand(len(pairs), -1)[..., None]).sum()
        for field, gradient in zip(fields, _gradients(truth, outputs), strict=True):
            field["logit_gradients"] = gradient
    for call, field in zip(calls, fields, strict=True):
        record = _record(call, **field)
        tally.add(record, "data")
        if "hessian" in needs:
            tally.add(record, "hessian")
    if "relu" in needs:
        for rows, x in program.relus:
            active = _lanes(x > 0, len(rows)).flatten(2)
            tally.add_pattern(ReluRecord(rows, active, torch.ones(len(rows))))
    if "input" in needs:
        (slope,) = _gradients(logits.sum(), [copies])
        slope = torch.zeros_like(copies) if slope is None else slope
        tally.add_input(InputRecord(program.everyone, _lanes(slope, len(pairs))))
    if "features" in needs:
        _describe_blocks(program, tally, seed, needs)


def _describe_blocks(program: _Program, tally: Tally, seed: int, needs: set[Need]) -> None:
    """Records of stem and cells; random signs go back from each one's output to that of the one before."""
    count = len(program.pairs)
    for number, output in enumerate(program.features):
        maps = _lanes(output, count).permute(0, 2, 3, 4, 1)  # (A, C, H, W, m)
        signs = signals = None
        if number and "jumps" in needs:
            drawn = random_signs(seed, number, tuple(maps.shape[1:])).to(maps)
            outermost = drawn.permute(3, 0, 1, 2).repeat(1, count, 1, 1)
            before = program.features[number - 1]
            (back,) = torch.autograd.grad(output, [before], outermost, retain_graph=True, allow_unused=True)
            back = torch.zeros_like(before) if back is None else back
            signals = folded(_lanes(back, count).permute(0, 2, 3, 4, 1), *maps.shape[2:4])
            signs = drawn.flatten(1)
        tally.add_block(BlockRecord(program.everyone, number, len(program.features), maps.flatten(2), signs, signals))


def _copies(images: Tensor, count: int) -> Tensor:
    """(m, C, H, W) as (m, A * C, H, W): every network has its own."""
    return images.repeat(1, count, 1, 1)


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum over networks of their batch-mean losses, so that each one's gradient is its own."""
    count = len(logits)
    loss = F.cross_entropy(logits.flatten(0, 1), labels.repeat(count)) * count
    if not torch.isfinite(loss):
        raise DivergedError("expected a finite loss at initialisation. Check the scale of the images.")
    return loss


def _gradients(value: Tensor, targets: list[Tensor], create_graph: bool = False) -> tuple[Tensor | None, ...]:
    if not value.requires_grad:
        return (None,) * len(targets)
    return torch.autograd.grad(value, targets, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _record(call: _Call, **fields: Tensor | None) -> LayerRecord:
    """A call's tensors with the lanes first; a missing gradient is zero."""
    at_weight = {"weight_gradient", "hessian_weight"}
    full: dict[str, Any] = {}
    for name, gradient in fields.items():
        like = call.weight if name in at_weight else call.output
        value = torch.zeros_like(like) if gradient is None else gradient.detach()
        full[name] = value if name in at_weight else call.lanes(value)
    shape = (call.output.shape[2], call.output.shape[3])
    inputs, outputs, weight = call.lanes(call.inputs), call.lanes(call.output), call.weight.detach()
    return LayerRecord(call.name, call.rows, call.geometry, inputs, weight, shape, outputs=outputs, **full)
