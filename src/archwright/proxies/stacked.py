"""Tens of NAS-Bench-201 networks in one tensor program, as layer records for the training-free metrics.

The networks of a chunk share everything but their cells' operations. For every cell and source node, the (network,
edge) pairs that carry one operation are gathered into lanes (`archwright.proxies.lanes`) and run together; forward and
backward are written out by hand, and the two cotangents (batch-mean loss, summed true-class logits) go backward
through one forward pass side by side.

Weights come from common random numbers: those of a layer depend on the seed and the layer's place alone, so that all
architectures with an operation on an edge share its weights. Scores then differ by the architecture and not by
the draw, and a network scores the same whatever it is stacked with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad

from archwright.errors import InputError
from archwright.proxies import lanes
from archwright.proxies.batches import check_batch
from archwright.proxies.blocks import folded, random_signs
from archwright.proxies.initialise import Initialisation, weight_scale
from archwright.proxies.metrics import Pass, Proxy, Tally
from archwright.proxies.records import BlockRecord, Geometry, InputRecord, LayerRecord, Need, ReluRecord
from archwright.spaces.base import Architecture
from archwright.spaces.nasbench201 import Cell201

NONE, SKIP, CONV_1X1, CONV_3X3, AVG_POOL = range(5)
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
"""(source, target) of the six edges in the order of the NAS-Bench-201 table."""


@dataclass(frozen=True)
class ProxyScale:
    """Size of the networks that are scored: a small stand-in for the 16-channel, 5-cell, 32-pixel original."""

    channels: int = 4
    cells: int = 1
    classes: int = 10


def operations_of(architectures: Sequence[Architecture]) -> NDArray[np.int64] | None:
    """(A, 6) operations where every architecture is a cell of NAS-Bench-201, which this program is for; else None."""
    cells = [architecture for architecture in architectures if isinstance(architecture, Cell201)]
    return np.array([cell.operations for cell in cells]) if len(cells) == len(architectures) else None


Weights = Callable[[str, tuple[int, ...]], Tensor]
"""From the name of a layer and the shape (C', C, k, k) to its weight."""


class SharedWeights:
    """Convolution weights by layer name, drawn once per (seed, name) and shared by all architectures."""

    def __init__(self, seed: int, initialisation: Initialisation = "lecun") -> None:
        self.seed, self.initialisation = seed, initialisation
        self._drawn: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The weight called ``name`` of shape (C', C, k, k)."""
        if name not in self._drawn:
            words = np.random.SeedSequence([self.seed, *name.encode()]).generate_state(2)
            generator = torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
            self._drawn[name] = torch.randn(shape, generator=generator) * weight_scale(shape, self.initialisation)
        return self._drawn[name]


@dataclass(frozen=True)
class _Conv:
    """One stacked convolution of the forward pass, with what its backward pass needs."""

    name: str
    rows: Tensor
    inputs: Tensor
    weight: Tensor
    stride: int = 1
    normalised: Tensor | None = None
    scale: Tensor | None = None


@dataclass(frozen=True)
class _Move:
    """The lanes of one operation leaving one node: network, target node and the convolution that ran, if any."""

    operation: int
    rows: Tensor
    targets: Tensor
    convolution: _Conv | None = None


class _Program:
    """Forward and backward of A stacked networks.

    Every part of `forward` puts its own backward step on the tape. A step takes T cotangents (T, A, C, H, W, B) of the
    part's output, hands the records of its layers to ``tally`` and returns the cotangents of its input.
    """

    def __init__(self, operations: Tensor, weights: Weights, scale: ProxyScale, tally: Tally, kind: Pass) -> None:
        self.operations, self.weights, self.scale, self.tally, self.kind = operations, weights, scale, tally, kind
        self.rows = torch.arange(len(operations), device=operations.device)
        self.batch_norm = kind != "synflow"
        needs = tally.needs()
        self.patterns = kind == "data" and "relu" in needs
        self.cotangents = [name for name in ("loss", "logit", "input") if name in needs] if kind == "data" else ["loss"]
        if not self.cotangents and any(proxy.term and proxy.reads == "data" for proxy in tally.proxies):
            self.cotangents = ["loss"]  # layers are recorded on the way back, also where they are only counted
        self.recording = True
        self.wanted: frozenset[str] = frozenset(needs & {"features", "jumps"}) if kind == "data" else frozenset()
        self.features: list[Tensor] = []
        self.tape: list[Callable[[Tensor], Tensor]] = []

    def forward(self, images: Tensor) -> Tensor:
        """Images (C, H, W, B) to logits (A, classes, B)."""
        x = self._block(self._stem(images))
        for stage in range(3):
            if stage:
                x = self._block(self._reduction(x, f"reduction{stage}"))
            for number in range(self.scale.cells):
                x = self._block(self._cell(x, f"cell{stage}.{number}"))
        return self._head(x)

    def _block(self, x: Tensor) -> Tensor:
        if self.wanted:
            self.features.append(x)
        return x

    def describe_blocks(self, seed: int) -> None:
        """Records of all blocks; ``jumps`` sends random signs through each block's own backward step."""
        self.recording = False
        for number, features in enumerate(self.features):
            signs = signals = None
            if number and "jumps" in self.wanted:
                drawn = random_signs(seed, number, tuple(features.shape[1:])).to(features)
                back = self.tape[number](drawn.expand(1, *features.shape))[0]
                signs, signals = drawn.flatten(1), folded(back, *features.shape[2:4])
            blocks = len(self.features)
            self.tally.add_block(BlockRecord(self.rows, number, blocks, features.flatten(2), signs, signals))
        self.recording = True
        self.features.clear()

    def backward(self, gradients: Tensor) -> None:
        """Cotangents (T, A, classes, B) of the logits, back through the tape; activations are freed on the way."""
        while self.tape:
            gradients = self.tape.pop()(gradients)

    def _weight(self, name: str, *shape: int) -> Tensor:
        """One weight for every network: (A, C', C, k, k), a view of the shared draw."""
        return self.weights(name, shape).expand(len(self.rows), *shape)

    def _stem(self, images: Tensor) -> Tensor:
        # All networks share the stem's weight, so it runs once; only its gradient differs between them.
        weight = self._weight("stem", self.scale.channels, images.shape[0], 3, 3)
        out, conv = self._convolve(images[None], weight[:1], "stem", self.rows[:1])

        def back(gradients: Tensor) -> Tensor:
            everyone = images.expand(len(self.rows), *images.shape)
            wanted = "input" in self.cotangents
            own = replace(conv, rows=self.rows, inputs=everyone, weight=weight)
            found = self._convolve_back(gradients, own, want_input=wanted)
            if wanted:
                slope = found[self.cotangents.index("input")]
                self.tally.add_input(InputRecord(self.rows, _examples_first(slope)))
            return found

        self.tape.append(back)
        return out.expand(len(self.rows), *out.shape[1:])

    def _reduction(self, x: Tensor, name: str) -> Tensor:
        """Residual block that halves the map and doubles the channels; its shortcut has no batch norm."""
        narrow, wide = x.shape[1], 2 * x.shape[1]
        self._pattern(x)
        weight = self._weight(f"{name}.first", wide, narrow, 3, 3)
        middle, first = self._convolve(x.relu(), weight, f"{name}.first", self.rows, stride=2)
        self._pattern(middle)
        weight = self._weight(f"{name}.second", wide, wide, 3, 3)
        out, second = self._convolve(middle.relu(), weight, f"{name}.second", self.rows)
        pooled = lanes.halve(x)
        weight = self._weight(f"{name}.shortcut", wide, narrow, 1, 1)
        around, shortcut = self._convolve(pooled, weight, f"{name}.shortcut", self.rows, norm=False)

        def back(gradients: Tensor) -> Tensor:
            through = self._convolve_back(gradients, second) * (middle > 0)
            through = self._convolve_back(through, first) * (x > 0)
            short = self._convolve_back(gradients, shortcut) / 4
            return through + short.repeat_interleave(2, 3).repeat_interleave(2, 4)

        self.tape.append(back)
        return out + around

    def _head(self, x: Tensor) -> Tensor:
        """Batch norm, ReLU, global average pool and the linear classifier (its bias is zero)."""
        hat, scale = lanes.normalise(x) if self.batch_norm else (x, None)
        self._pattern(hat)
        pooled = hat.relu().mean((2, 3), keepdim=True)
        weight = self._weight("classifier", self.scale.classes, x.shape[1], 1, 1)
        logits, linear = self._convolve(pooled, weight, "classifier", self.rows, norm=False)

        def back(gradients: Tensor) -> Tensor:
            spread = self._convolve_back(gradients[:, :, :, None, None], linear) / (x.shape[2] * x.shape[3])
            spread = spread * (hat > 0)
            return spread if scale is None else lanes.normalise_gradient(spread, hat, scale)

        self.tape.append(back)
        return logits[:, :, 0, 0]

    def _cell(self, x: Tensor, name: str) -> Tensor:
        """Four nodes (4, A, C, H, W, B); the pairs (network, edge) with one operation and source run as lanes."""
        nodes = torch.cat([x[None], x.new_zeros(3, *x.shape)])
        flat = nodes.flatten(0, 1)
        tape = []
        for source in range(3):
            self._pattern(nodes[source], self._convolutions_leaving(source))
            moves = [self._run(nodes[source], move, f"{name}.node{source}") for move in self._moves(source)]
            for move, value in moves:
                flat.index_add_(0, move.targets * len(x) + move.rows, value)
            tape.append((source, nodes[source] > 0, [move for move, _ in moves]))
        self.tape.append(lambda gradients: self._cell_back(gradients, tape))
        return nodes[3]

    def _cell_back(self, gradients: Tensor, tape: list[tuple[int, Tensor, list[_Move]]]) -> Tensor:
        cotangents, count = gradients.shape[:2]
        nodes = torch.cat([gradients.new_zeros(cotangents, 3, *gradients.shape[1:]), gradients[:, None]], 1)
        flat = nodes.flatten(1, 2)
        for source, positive, moves in reversed(tape):
            behind_relu = torch.zeros_like(gradients)
            for move in moves:
                back = flat.index_select(1, move.targets * count + move.rows)
                if move.convolution is not None:
                    behind_relu.index_add_(1, move.rows, self._convolve_back(back, move.convolution))
                    continue
                if move.operation == AVG_POOL:
                    back = lanes.box_sum(back * lanes.inverse_counts(back))
                nodes[:, source].index_add_(1, move.rows, back)
            nodes[:, source] += behind_relu * positive
        return nodes[:, 0]

    def _moves(self, source: int) -> list[_Move]:
        """The lanes leaving ``source``, grouped by operation; operations nobody has do not run."""
        edges = [(index, target) for index, (start, target) in enumerate(EDGES) if start == source]
        chosen = self.operations[:, [index for index, _ in edges]].T
        found = []
        for operation in (SKIP, CONV_1X1, CONV_3X3, AVG_POOL):
            edge, rows = (chosen == operation).nonzero(as_tuple=True)
            if len(rows):
                found.append(_Move(operation, rows, edge + edges[0][1]))
        return found

    def _run(self, source: Tensor, move: _Move, name: str) -> tuple[_Move, Tensor]:
        x = source.index_select(0, move.rows)
        if move.operation == SKIP:
            return move, x
        if move.operation == AVG_POOL:
            return move, lanes.box_sum(x) * lanes.inverse_counts(x)
        kernel = 1 if move.operation == CONV_1X1 else 3
        width = x.shape[1]
        first = int(move.targets.min())
        drawn = torch.stack(
            [self.weights(f"{name}.to{t}.conv{kernel}", (width, width, kernel, kernel)) for t in range(first, 4)]
        )
        out, conv = self._convolve(x.relu(), drawn[move.targets - first], f"{name}.conv{kernel}", move.rows)
        return replace(move, convolution=conv), out

    def _convolutions_leaving(self, source: int) -> Tensor:
        """How many ReLUs read ``source`` in each network: one a convolution, (A,)."""
        edges = [index for index, (start, _) in enumerate(EDGES) if start == source]
        chosen = self.operations[:, edges]
        return ((chosen == CONV_1X1) | (chosen == CONV_3X3)).sum(1)

    def _pattern(self, x: Tensor, times: Tensor | None = None) -> None:
        if self.patterns:
            active = (x > 0).flatten(1, 3).transpose(1, 2)
            self.tally.add_pattern(ReluRecord(self.rows, active, x.new_ones(len(x)) if times is None else times))

    def _convolve(
        self, x: Tensor, weight: Tensor, name: str, rows: Tensor, stride: int = 1, norm: bool = True
    ) -> tuple[Tensor, _Conv]:
        out = lanes.convolve(x, weight, stride)
        if not (norm and self.batch_norm):
            return out, _Conv(name, rows, x, weight, stride)
        hat, scale = lanes.normalise(out)
        return hat, _Conv(name, rows, x, weight, stride, hat, scale)

    def _convolve_back(self, gradients: Tensor, conv: _Conv, want_input: bool = True) -> Tensor:
        """Cotangents (T, L, C', H', W', B) of the output to those of the input, recording the layer on the way."""
        if conv.normalised is not None and conv.scale is not None:
            gradients = lanes.normalise_gradient(gradients, conv.normalised, conv.scale)
        if self.recording:
            self._record(gradients, conv)
        if not want_input:
            return gradients
        weight = conv.weight.repeat(len(gradients), 1, 1, 1, 1)
        height, width = conv.inputs.shape[2:4]
        back = lanes.convolve_input_gradient(gradients.flatten(0, 1), weight, conv.stride, height, width)
        return back.view(*gradients.shape[:2], *back.shape[1:])

    def _record(self, gradients: Tensor, conv: _Conv) -> None:
        parts = dict(zip(self.cotangents, gradients, strict=True))
        kernel = conv.weight.shape[-1]
        found: dict[str, Any] = {}
        if "loss" in parts:
            product = lanes.convolve_weight_gradient(parts["loss"], conv.inputs, kernel, conv.stride)
            if self.kind == "hessian":
                found["hessian_weight"] = _tangent(product)
            found["weight_gradient"] = _primal(product)
            found["loss_gradients"] = _examples_first(parts["loss"])
        if "logit" in parts:
            found["logit_gradients"] = _examples_first(parts["logit"])
        geometry = Geometry((conv.stride, conv.stride), (kernel // 2, kernel // 2))
        shape = (gradients.shape[3], gradients.shape[4])
        inputs, weight = _examples_first(conv.inputs), _primal(conv.weight)
        self.tally.add(LayerRecord(conv.name, conv.rows, geometry, inputs, weight, shape, **found), self.kind)


def _examples_first(x: Tensor) -> Tensor:
    """(L, C, H, W, B) seen as (L, B, C, H, W); nothing is copied."""
    return _primal(x).permute(0, 4, 1, 2, 3)


def _primal(x: Tensor) -> Tensor:
    primal: Tensor = forward_ad.unpack_dual(x).primal  # type: ignore[no-untyped-call]
    return primal


def _tangent(x: Tensor) -> Tensor:
    tangent: Tensor | None = forward_ad.unpack_dual(x).tangent  # type: ignore[no-untyped-call]
    return torch.zeros_like(x) if tangent is None else tangent


@torch.no_grad()
def score_stacked(
    operations: NDArray[np.integer[Any]],
    images: Tensor,
    labels: Tensor,
    proxies: Sequence[Proxy],
    *,
    seed: int = 0,
    scale: ProxyScale | None = None,
    initialisation: Initialisation = "lecun",
    stack: int = 64,
    weights: Weights | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Score NAS-Bench-201 architectures, ``stack`` networks at a time.

    Args:
        operations: (A, 6) operation of each edge: 0 none, 1 skip, 2 conv 1x1, 3 conv 3x3, 4 average pool.
        images: (m, C, H, W), H and W divisible by 4.
        labels: (m,) integer classes.
        proxies: the metrics; passes are shared between them.
        seed: draws the shared weights, together with each layer's name.
        scale: channels, cells a stage and classes.
        initialisation: scale of the weights.
        stack: networks per tensor program; the scores do not depend on it.
        weights: in place of ``seed`` and ``initialisation``, a function from layer name and shape to its weight.

    Returns:
        Metric name -> (A,) scores. A disconnected network gets zero gradients and so the worst scores.
    """
    scale = scale or ProxyScale()
    chosen = _checked(operations, images, labels, scale)
    check_batch(images, labels, proxies)
    drawn = weights or SharedWeights(seed, initialisation)

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        return drawn(name, shape).to(images.device)

    # Networks alike in their operations run in one program, so that fewer kinds of lanes occur in it.
    order = np.lexsort(np.asarray(operations).T[[5, 4, 2, 3, 1, 0]])
    parts = []
    for rows in np.array_split(order, max(1, -(-len(order) // stack))):
        tally = Tally(proxies, len(rows))
        _run_passes(chosen[rows], images, labels, draw, scale, tally, seed)
        parts.append({name: score.numpy() for name, score in tally.scores(len(labels)).items()})
    back = np.argsort(order)
    return {proxy.name: np.concatenate([part[proxy.name] for part in parts])[back] for proxy in proxies}


def _run_passes(
    operations: Tensor, images: Tensor, labels: Tensor, draw: Weights, scale: ProxyScale, tally: Tally, seed: int
) -> None:
    """One forward and backward for the data metrics, one with tangents for grasp, one in float64 for synflow."""
    needs = tally.needs()
    batch = images.permute(1, 2, 3, 0).contiguous()
    if needs - {"synflow", "hessian", "halves"} or not needs:
        program = _Program(operations, draw, scale, tally, "data")
        logits = program.forward(batch)
        if program.wanted:
            program.describe_blocks(seed)
        if program.cotangents:
            program.backward(torch.stack([_cotangent(kind, logits, labels) for kind in program.cotangents]))
        program.tape.clear()  # it refers to the program, and the program to it
    if "halves" in needs:
        _run_halves(operations, batch, labels, draw, scale, tally)
    if "hessian" in needs:
        with forward_ad.dual_level():
            # The tangent of the weight gradient along theta is H theta.
            program = _Program(operations, lambda n, s: _dual(draw(n, s)), scale, tally, "hessian")
            logits = program.forward(batch)
            program.backward(_cotangent("loss", logits, labels)[None])
    if "synflow" in needs:
        # on the CPU, because not every accelerator has float64
        program = _Program(operations.cpu(), lambda n, s: draw(n, s).cpu().double().abs(), scale, tally, "synflow")
        logits = program.forward(torch.ones(*batch.shape[:3], 1, dtype=torch.float64))
        program.backward(torch.ones_like(logits)[None])


class _Kept(Tally):
    """Keeps the weight gradients of all layers instead of adding anything up."""

    def __init__(self, architectures: int) -> None:
        super().__init__([], architectures)
        self.records: list[LayerRecord] = []

    def needs(self) -> set[Need]:
        """The loss."""
        return {"loss"}

    def add(self, record: LayerRecord, kind: Pass) -> None:
        """Keep it, without the activations."""
        self.records.append(replace(record, inputs=record.weight, loss_gradients=None))


def _run_halves(
    operations: Tensor, batch: Tensor, labels: Tensor, draw: Weights, scale: ProxyScale, tally: Tally
) -> None:
    """A forward and backward pass of each half of the batch; both halves' gradients together are a record."""
    half, kept = len(labels) // 2, []
    for part in (slice(0, half), slice(half, 2 * half)):
        keep = _Kept(len(operations))
        program = _Program(operations, draw, scale, keep, "data")
        logits = program.forward(batch[..., part].contiguous())
        program.backward(_cotangent("loss", logits, labels[part])[None])
        kept.append(keep.records)
    for first, second in zip(*kept, strict=True):
        assert first.weight_gradient is not None
        assert second.weight_gradient is not None
        both = torch.stack([first.weight_gradient, second.weight_gradient], 1)
        tally.add(replace(first, half_gradients=both), "halves")


def _cotangent(kind: str, logits: Tensor, labels: Tensor) -> Tensor:
    """Gradient at the logits (A, classes, B) of the mean cross entropy, of all true-class logits, or of all logits."""
    if kind == "input":
        return torch.ones_like(logits)
    truth = F.one_hot(labels, logits.shape[1]).T.to(logits.dtype).expand(logits.shape)
    return (logits.softmax(1) - truth) / len(labels) if kind == "loss" else truth


def _dual(weight: Tensor) -> Tensor:
    dual: Tensor = forward_ad.make_dual(weight, weight)  # type: ignore[no-untyped-call]
    return dual


def _checked(operations: NDArray[np.integer[Any]], images: Tensor, labels: Tensor, scale: ProxyScale) -> Tensor:
    table = np.asarray(operations)
    if table.ndim != 2 or table.shape[1] != 6 or len(table) == 0 or table.min() < 0 or table.max() > 4:
        raise InputError("operations (A, 6) with values 0 to 4", f"an array of shape {table.shape}")
    if images.ndim != 4 or images.shape[2] % 4 or images.shape[3] % 4:
        raise InputError("images (m, C, H, W) with sides divisible by 4", f"shape {tuple(images.shape)}")
    if len(labels) != len(images) or int(labels.max()) >= scale.classes:
        raise InputError(
            f"{len(images)} labels below {scale.classes}", f"{len(labels)} labels up to {int(labels.max())}"
        )
    return torch.from_numpy(table.astype(np.int64)).to(images.device)
