"""Layer records: all that a training-free metric may see of a network, whoever ran it.

A record describes one convolution or linear weight of ``A`` architectures at once: every tensor has a leading axis over
architectures, then (for activations) one over the m examples of the batch. `archwright.proxies.modules` fills records
from any `nn.Module` with ``A = 1``; `archwright.proxies.program` fills them from many networks run in one tensor
program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Need = Literal["loss", "logit", "hessian", "synflow", "relu", "outputs", "macs", "input", "halves", "features", "jumps"]
NtkMode = Literal["contracted", "exact"]


@dataclass(frozen=True)
class Geometry:
    """How a convolution slides; a linear layer is a 1x1 convolution over its tokens (one where it has none)."""

    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


@dataclass(frozen=True)
class LayerRecord:
    """One weight of A architectures, m examples each.

    Attributes:
        name: where the weight sits in the network.
        rows: (A,) which of the scored architectures each entry belongs to.
        geometry: stride, padding, dilation and groups.
        inputs: (A, m, C, H, W) what the layer saw; a linear layer has its tokens as H and W = 1.
        weight: (A, C', C/groups, k, k); any shape behind A where there is a ``jacobian``.
        output_shape: spatial size (H', W') of the output.
        loss_gradients: (A, m, C', H', W') of the batch-mean loss with respect to the layer's output.
        weight_gradient: like ``weight``, of the batch-mean loss.
        logit_gradients: (A, m, C', H', W') of the sum over the batch of the true-class logits.
        jacobian: (A, m, *weight) per-example gradients of the true-class logit, where the contraction of ``inputs``
            with ``logit_gradients`` is not asked for (``exact``), not possible (a weight used several times) or done
            already (a producer that knows a cheaper way).
        hessian_weight: like ``weight``, this layer's part of H @ theta for the batch-mean loss.
        half_gradients: (A, 2, *weight) of the mean loss of the first and of the second half of the batch.
        outputs: (A, m, C', H', W') what the layer gave; None: recomputed from ``inputs``.
        uses: further (outputs, loss gradients) of a weight that is used several times.
    """

    name: str
    rows: Tensor
    geometry: Geometry
    inputs: Tensor
    weight: Tensor
    output_shape: tuple[int, int]
    loss_gradients: Tensor | None = None
    weight_gradient: Tensor | None = None
    logit_gradients: Tensor | None = None
    jacobian: Tensor | None = None
    hessian_weight: Tensor | None = None
    half_gradients: Tensor | None = None
    outputs: Tensor | None = None
    uses: tuple[tuple[Tensor, Tensor], ...] = ()


@dataclass(frozen=True)
class ReluRecord:
    """The pattern of one ReLU of A architectures: ``active`` (A, m, units) boolean, counted ``times`` (A,) times."""

    rows: Tensor
    active: Tensor
    times: Tensor


@dataclass(frozen=True)
class InputRecord:
    """What the logits depend on at the input of A architectures.

    Attributes:
        rows: (A,) which of the scored architectures each entry belongs to.
        gradients: (A, m, C, H, W) of the sum of all logits of the batch with respect to the images.
    """

    rows: Tensor
    gradients: Tensor


@dataclass(frozen=True)
class BlockRecord:
    """One block (stem, cell, reduction) of A architectures, the ``number``-th of ``blocks`` from the input.

    Attributes:
        rows: (A,) which of the scored architectures each entry belongs to.
        features: (A, C, n) its output, n = pixels x examples.
        signs: (C, n) random signs that stand for a gradient at the output; None for the first block.
        signals: (A, C_in, n) what becomes of them at the output of the block before; where the block shrinks the image,
            the pixels that become one are channels (a pixel unshuffle).
    """

    rows: Tensor
    number: int
    blocks: int
    features: Tensor
    signs: Tensor | None = None
    signals: Tensor | None = None
