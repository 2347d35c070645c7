"""What stacked programs have in common: shared weights, recorded convolutions, and the passes that metrics ask for.

A program runs tens of networks in lanes (`archwright.proxies.lanes`), forward and backward written out by hand; the
cotangents that metrics need (batch-mean loss, summed true-class logits, summed logits) go back through one forward pass
side by side. `archwright.proxies.stacked` and `archwright.proxies.stacked_cells` are the two kinds.

Weights come from common random numbers: those of a layer depend on the seed and the layer's place alone, so that all
architectures with an operation in a place share its weights. Scores then differ by the architecture and not by the
draw, and a network scores the same whatever it is stacked with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from archwright.errors import DivergedError
from archwright.proxies import lanes, windows
from archwright.proxies.blocks import folded, random_signs
from archwright.proxies.initialise import Initialisation, weight_scale
from archwright.proxies.metrics import Pass, Tally
from archwright.proxies.records import BlockRecord, Geometry, InputRecord, LayerRecord, Need, ReluRecord

Weights = Callable[[str, tuple[int, ...]], Tensor]
"""From the name of a layer and the shape (C', C, k, k) to its weight."""

PLAIN = Geometry()
"""A 1x1 convolution of stride 1."""


class SharedWeights:
    """Convolution weights by layer name, drawn once per (seed, name) and shared by all architectures."""

    def __init__(self, seed: int, initialisation: Initialisation = "lecun") -> None:
        self.seed, self.initialisation = seed, initialisation
        self._drawn: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The weight called ``name`` of shape (C', C, k, k)."""
        if name not in self._drawn:
            entropy = np.array([*_words(self.seed), *name.encode()], dtype=np.uint32)
            words = np.random.SeedSequence(entropy).generate_state(2)
            generator = torch.Generator().manual_seed(int(words[0]) << 31 | int(words[1]) >> 1)
            self._drawn[name] = torch.randn(shape, generator=generator) * weight_scale(shape, self.initialisation)
        return self._drawn[name]


def _words(seed: int) -> list[int]:
    """A number in 32-bit words, low ones first, as numpy splits it; given an array, numpy is five times as fast."""
    return [seed] if seed < 2**32 else [seed % 2**32, *_words(seed >> 32)]


@dataclass(frozen=True)
class Conv:
    """One stacked convolution of the forward pass, with what its backward pass needs.

    Attributes:
        name: where it sits.
        rows: (L,) the networks its lanes belong to.
        inputs: (L, C, H, W, B).
        weight: (L, C', C, k, k), or (L, C, 1, k, k) where it is depthwise.
        geometry: padding is "same"; ``groups`` above 1 is depthwise, and only that may be dilated.
        output: (L, C', H', W', B) before the norm, where a metric asks for it.
        normalised, scale: what `lanes.normalise` made of the output, where a batch norm follows.
        shared: all lanes have the same input.
    """

    name: str
    rows: Tensor
    inputs: Tensor
    weight: Tensor
    geometry: Geometry = PLAIN
    output: Tensor | None = None
    normalised: Tensor | None = None
    scale: Tensor | None = None
    shared: bool = False

    @property
    def kernel(self) -> lanes.Pair:
        """Height and width of the window."""
        return self.weight.shape[-2], self.weight.shape[-1]

    def forward(self) -> Tensor:
        """The output, (L, C', H', W', B)."""
        if self.geometry.groups > 1:
            return windows.depthwise(self.inputs, self.weight, self.geometry.stride, self.geometry.dilation[0])
        return lanes.convolve(self.inputs, self.weight, self.geometry.stride)

    def input_gradient(self, gradients: Tensor) -> Tensor:
        """Cotangents (T, L, C', H', W', B) of the output as those of the input."""
        height, width = self.inputs.shape[2:4]
        stride = self.geometry.stride
        if self.geometry.groups > 1:
            dilation = self.geometry.dilation[0]
            return windows.depthwise_input_gradient(gradients, self.weight, (height, width), stride, dilation)
        weight = self.weight.repeat(len(gradients), 1, 1, 1, 1)
        back = lanes.convolve_input_gradient(gradients.flatten(0, 1), weight, stride, height, width)
        return back.view(*gradients.shape[:2], *back.shape[1:])

    def single_examples(self, gradients: Tensor) -> Tensor | None:
        """Gradients of single examples in the weight, (T, *weight, B), from those at the output.

        Formed here where a record would need much more: patches of every lane though all have one input, or patches of
        a depthwise convolution, k*k times the memory of the map. None for all other layers.
        """
        stride = self.geometry.stride
        if self.geometry.groups > 1:
            dilation = self.geometry.dilation[0]
            found = windows.depthwise_weight_gradients(gradients, self.inputs, self.kernel, stride, dilation)
            return found[:, :, :, None]
        return lanes.convolve_single_gradients(gradients, self.inputs[0], self.kernel, stride) if self.shared else None


class Program(ABC):
    """Forward and backward of A stacked networks; the backward pass hands the records of all layers to ``tally``."""

    def __init__(self, rows: Tensor, weights: Weights, tally: Tally, kind: Pass) -> None:
        self.rows, self.weights, self.tally, self.kind = rows, weights, tally, kind
        self.batch_norm = kind != "synflow"
        needs = tally.needs()
        self.patterns = kind == "data" and "relu" in needs
        self.cotangents = [name for name in ("loss", "logit", "input") if name in needs] if kind == "data" else ["loss"]
        if not self.cotangents and any(proxy.term and proxy.reads == "data" for proxy in tally.proxies):
            self.cotangents = ["loss"]  # layers are recorded on the way back, also where they are only counted
        self.keep_outputs = kind == "data" and "outputs" in needs
        self.recording = True
        self.wanted: frozenset[Need] = frozenset(needs & {"features", "jumps"}) if kind == "data" else frozenset()
        self.features: list[Tensor] = []

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor:
        """Images (C, H, W, B) to logits (A, classes, B)."""

    @abstractmethod
    def backward(self, gradients: Tensor) -> None:
        """Cotangents (T, A, classes, B) of the logits, back to the images; activations are freed on the way."""

    @abstractmethod
    def through_block(self, number: int, gradients: Tensor) -> Tensor:
        """Cotangents of a block's output as those of the output of the block before.

        Args:
            number: of the block.
            gradients: (T, A, C, H, W, B).
        """

    @abstractmethod
    def release(self) -> None:
        """Let go of all activations: the steps of the backward pass refer to the program, and the program to them."""

    def block(self, x: Tensor) -> Tensor:
        """Note the output of a block, where a metric asks for it."""
        if self.wanted:
            self.features.append(x)
        return x

    def describe_blocks(self, seed: int) -> None:
        """Records of all blocks; ``jumps`` sends random signs back through each block."""
        self.recording = False
        for number, features in enumerate(self.features):
            signs = signals = None
            if number and "jumps" in self.wanted:
                drawn = random_signs(seed, number, tuple(features.shape[1:])).to(features)
                back = self.through_block(number, drawn.expand(1, *features.shape))[0]
                signs, signals = drawn.flatten(1), folded(back, *features.shape[2:4])
            blocks = len(self.features)
            self.tally.add_block(BlockRecord(self.rows, number, blocks, features.flatten(2), signs, signals))
        self.recording = True
        self.features.clear()

    def common_weight(self, name: str, *shape: int) -> Tensor:
        """One weight for every network: (A, C', C, k, k), a view of the shared draw called ``name`` of ``shape``."""
        return self.weights(name, shape).expand(len(self.rows), *shape)

    def pattern(self, x: Tensor, rows: Tensor, times: Tensor | None = None) -> None:
        """Note which units a ReLU lets pass, where a metric asks for it.

        Args:
            x: its input, (L, C, H, W, B).
            rows: network of each lane, (L,).
            times: how often the network has such a ReLU, (L,); None for once.
        """
        if self.patterns:
            active = (x > 0).flatten(1, 3).transpose(1, 2)
            self.tally.add_pattern(ReluRecord(rows, active, x.new_ones(len(x)) if times is None else times))

    def convolve(
        self, x: Tensor, weight: Tensor, name: str, rows: Tensor, geometry: Geometry = PLAIN, norm: bool = True
    ) -> tuple[Tensor, Conv]:
        """A convolution and the batch norm behind it: the lanes, and what the way back needs.

        Args:
            x: (L, C, H, W, B).
            weight: (L, C', C/groups, k, k).
            name: of the layer, for its record.
            rows: network of each lane, (L,).
            geometry: stride, padding, dilation and groups.
            norm: normalise the output, where the program has norms at all.
        """
        conv = Conv(name, rows, x, weight, geometry)
        out = conv.forward()
        if self.keep_outputs:
            conv = replace(conv, output=out)
        if not (norm and self.batch_norm):
            return out, conv
        hat, scale = lanes.normalise(out)
        return hat, replace(conv, normalised=hat, scale=scale)

    def convolve_back(self, gradients: Tensor, conv: Conv, want_input: bool = True) -> Tensor:
        """Cotangents of a convolution's output to those of its input, recording the layer on the way.

        Args:
            gradients: (T, L, C', H', W', B).
            conv: what :meth:`convolve` gave beside the lanes.
            want_input: False leaves the last step away; what is returned means nothing then.
        """
        if conv.normalised is not None and conv.scale is not None:
            gradients = lanes.normalise_gradient(gradients, conv.normalised, conv.scale)
        if self.recording:
            self._record(gradients, conv)
        return conv.input_gradient(gradients) if want_input else gradients

    def stem(self, images: Tensor, channels: int) -> tuple[Tensor, Callable[[Tensor], None]]:
        """The 3x3 convolution that all networks begin with, (A, C, H, W, B), and its way back.

        All networks share its weight, so it runs once; only its gradient differs between them.

        Args:
            images: (C, H, W, B).
            channels: of its output.
        """
        weight = self.common_weight("stem", channels, images.shape[0], 3, 3)
        out, conv = self.convolve(images[None], weight[:1], "stem", self.rows[:1], Geometry(padding=(1, 1)))

        def back(gradients: Tensor) -> None:
            count, wanted = len(self.rows), "input" in self.cotangents
            output = None if conv.output is None else conv.output.expand(count, *conv.output.shape[1:])
            everyone = images.expand(count, *images.shape)
            own = replace(conv, rows=self.rows, inputs=everyone, weight=weight, output=output, shared=True)
            found = self.convolve_back(gradients, own, want_input=wanted)
            if wanted:
                slope = found[self.cotangents.index("input")]
                self.tally.add_input(InputRecord(self.rows, _examples_first(slope)))

        return out.expand(len(self.rows), *out.shape[1:]), back

    def _record(self, gradients: Tensor, conv: Conv) -> None:
        """Hand the layer to the tally; ``gradients`` (T, L, C', H', W', B) are at its output."""
        parts = dict(zip(self.cotangents, gradients, strict=True))
        kinds = [name for name in self.cotangents if name != "input"]
        each = conv.single_examples(gradients[: len(kinds)])
        single = {} if each is None else dict(zip(kinds, each, strict=True))
        found: dict[str, Any] = {}
        if "loss" in parts:
            stride = conv.geometry.stride
            product = (
                single["loss"].sum(-1)
                if single
                else lanes.convolve_weight_gradient(parts["loss"], conv.inputs, conv.kernel, stride)
            )
            if self.kind == "hessian":
                found["hessian_weight"] = _tangent(product)
            found["weight_gradient"] = _primal(product)
            found["loss_gradients"] = _examples_first(parts["loss"])
        if "logit" in parts:
            found["logit_gradients"] = _examples_first(parts["logit"])
            found["jacobian"] = single["logit"].movedim(-1, 1) if single else None
        if conv.output is not None:
            found["outputs"] = _examples_first(conv.output)
        shape = (gradients.shape[3], gradients.shape[4])
        inputs, weight = _examples_first(conv.inputs), _primal(conv.weight)
        self.tally.add(LayerRecord(conv.name, conv.rows, conv.geometry, inputs, weight, shape, **found), self.kind)


MakeProgram = Callable[[Weights, Tally, Pass], Program]
"""A program for the networks of a stack with these weights, adding to this tally in this pass."""


def run_passes(make: MakeProgram, images: Tensor, labels: Tensor, draw: Weights, tally: Tally, seed: int) -> None:
    """All passes that the tally's metrics need.

    One forward and backward for the data metrics, one for each half batch (zico), one with tangents for grasp, one in
    float64 for synflow.

    Args:
        make: a program from weights, a tally and the kind of a pass.
        images: (m, C, H, W).
        labels: (m,).
        draw: the weight of a name and a shape.
        tally: sums what the metrics ask for.
        seed: of the signs of blocks.
    """
    needs = tally.needs()
    batch = images.permute(1, 2, 3, 0).contiguous()
    if needs - {"synflow", "hessian", "halves"} or not needs:
        program = make(draw, tally, "data")
        logits = program.forward(batch)
        if not torch.isfinite(logits).all():
            raise DivergedError("expected a finite loss at initialisation. Check the scale of the images.")
        if program.wanted:
            program.describe_blocks(seed)
        if program.cotangents:
            program.backward(torch.stack([_cotangent(kind, logits, labels) for kind in program.cotangents]))
        program.release()
    if "halves" in needs:
        _run_halves(make, batch, labels, draw, tally)
    if "hessian" in needs:
        with forward_ad.dual_level():
            # The tangent of the weight gradient along theta is H theta.
            program = make(lambda name, shape: _dual(draw(name, shape)), tally, "hessian")
            logits = program.forward(batch)
            program.backward(_cotangent("loss", logits, labels)[None])
    if "synflow" in needs:
        # on the CPU, because not every accelerator has float64
        program = make(lambda name, shape: draw(name, shape).cpu().double().abs(), tally, "synflow")
        logits = program.forward(torch.ones(*batch.shape[:3], 1, dtype=torch.float64))
        program.backward(torch.ones_like(logits)[None])


class _Kept(Tally):
    """Keeps the weight gradients of all layers instead of adding anything up."""

    def __init__(self, architectures: int) -> None:
        super().__init__([], architectures)
        self.records: list[LayerRecord] = []

    def needs(self) -> set[Need]:
        return {"loss"}

    def add(self, record: LayerRecord, kind: Pass) -> None:
        """Keep it, without the activations."""
        self.records.append(replace(record, inputs=record.weight, loss_gradients=None))


def _run_halves(make: MakeProgram, batch: Tensor, labels: Tensor, draw: Weights, tally: Tally) -> None:
    """A forward and backward pass of each half of the batch; both halves' gradients together are a record."""
    half, kept = len(labels) // 2, []
    for part in (slice(0, half), slice(half, 2 * half)):
        keep = _Kept(tally.architectures)
        program = make(draw, keep, "data")
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


def _examples_first(x: Tensor) -> Tensor:
    """(L, C, H, W, B) seen as (L, B, C, H, W); nothing is copied."""
    return _primal(x).permute(0, 4, 1, 2, 3)


def _dual(weight: Tensor) -> Tensor:
    dual: Tensor = forward_ad.make_dual(weight, weight)  # type: ignore[no-untyped-call]
    return dual


def _primal(x: Tensor) -> Tensor:
    primal: Tensor = forward_ad.unpack_dual(x).primal  # type: ignore[no-untyped-call]
    return primal


def _tangent(x: Tensor) -> Tensor:
    tangent: Tensor | None = forward_ad.unpack_dual(x).tangent  # type: ignore[no-untyped-call]
    return torch.zeros_like(x) if tangent is None else tangent
