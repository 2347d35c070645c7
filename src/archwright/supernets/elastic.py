"""One elastic supernet for the mbconv space: every image of a batch may take its own sub-network.

Weights are nested: an expansion uses the first channels of the widest one, squeeze-excite is one module a block whose
weights are cut alike, its squeezed channels included, and every kernel size has its own depth-wise convolution. Of the
batch norms of a block the first is shared by all configurations, the second belongs to a kernel size, the third to an
(expansion, squeeze-excite) pair.
A stage's output is the output of its block d_s.

The images are kept sorted by configuration, so that each configuration runs at its own width on a slice of the batch,
and an image that has left its stage costs nothing more. One gather a block does it all: dropping out and sorting.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.device import on_device
from archwright.errors import InputError
from archwright.solvers.problem import ABSENT, StagedChoice
from archwright.spaces.base import Network
from archwright.spaces.depthwise import DepthwiseConv2d, depthwise_convolution
from archwright.spaces.mbconv import MbConv, MbConvArchitecture
from archwright.spaces.mbconv_network import (
    ACTIVATIONS,
    BlockGeometry,
    InvertedResidual,
    MbConvNetwork,
    NetworkEnd,
    SqueezeExcite,
    make_start,
    set_norm_eps,
)
from archwright.spaces.mbconv_scale import MbConvScale

Ints = NDArray[np.int64]

SMALLEST_GROUP = 4
"""With fewer images than this a group in training is normalised by the running statistics, which it still moves."""


def deal(n_images: int, rng: np.random.Generator, scale: MbConvScale) -> StagedChoice:
    """A sub-network for each image, every decision dealt in balanced random order.

    Each depth of a stage comes up floor or ceil of n / depths times among the n images, and so does each configuration
    of a block position, and each (expansion, kernel) pair, among the images that are deep enough to have it; each
    image's sub-network by itself is uniformly distributed. So the groups that run together have the same few sizes in
    every step, and the CPU library finds its compiled kernels again.

    Args:
        n_images: n, images of a batch.
        rng: shuffles.
        scale: depths and configurations there are.
    """
    stages, most = len(scale.stage_widths), scale.depths[-1]
    depths = np.stack([_dealt(scale.depths, n_images, rng) for _ in range(stages)], axis=1)
    chosen = np.full((n_images, stages, most), ABSENT, dtype=np.int64)
    for stage, block in itertools.product(range(stages), range(most)):
        present = np.flatnonzero(depths[:, stage] > block)
        every, settings = range(len(scale.configurations)), len(scale.squeeze_excite)
        chosen[present, stage, block] = _dealt(every, len(present), rng, settings)
    return StagedChoice(depths, chosen)


def _dealt(options: Sequence[int], count: int, rng: np.random.Generator, family: int = 1) -> Ints:
    """``count`` options in random order: whole decks, and the top of a shuffled one.

    ``family`` options in a row belong together; the shuffled deck has one of every family before a second of any.
    """
    whole, rest = divmod(count, len(options))
    families = rng.permuted(rng.permutation(np.array(options).reshape(-1, family)), axis=1)
    hand = np.concatenate([np.tile(options, whole), families.T.reshape(-1)[:rest]])
    return rng.permutation(hand).astype(np.int64)


class ElasticBlock(nn.Module):
    """All configurations of one block position.

    Args:
        widest: geometry of the block's heaviest configuration.
        scale: which expansions, kernels and squeeze-excite settings there are.
    """

    def __init__(self, widest: BlockGeometry, scale: MbConvScale) -> None:
        super().__init__()
        self.expansions, self.kernels, self.settings = scale.expansions, scale.kernels, scale.squeeze_excite
        self.in_channels, self.stride, self.residual = widest.in_channels, widest.stride, widest.residual
        self.expand = nn.Conv2d(widest.in_channels, widest.inner, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(widest.inner)
        self.depthwise = nn.ModuleList(DepthwiseConv2d(widest.inner, k, widest.stride) for k in self.kernels)
        self.depthwise_norms = nn.ModuleList(nn.BatchNorm2d(widest.inner) for _ in self.kernels)
        gated = True in self.settings
        self.gate = SqueezeExcite(widest.inner, widest.squeezed, widest.activation) if gated else None
        self.squeezed = {e * widest.in_channels: replace(widest, expansion=e).squeezed for e in self.expansions}
        self.project = nn.Conv2d(widest.inner, widest.channels, 1, bias=False)
        pairs = len(self.expansions) * len(self.settings)
        self.project_norms = nn.ModuleList(nn.BatchNorm2d(widest.channels) for _ in range(pairs))
        self.activation = ACTIVATIONS[widest.activation]()

    def forward(self, x: Tensor, chosen: Ints) -> tuple[Tensor, Ints]:
        """Run every image at its own configuration.

        Args:
            x: (B, in_channels, H, W).
            chosen: (B,) configuration numbers, or one number for all images.

        Returns:
            The outputs in another order, and for each of them the row of x it belongs to.
        """
        if chosen.ndim == 0:
            out_rows = in_rows = np.arange(len(x))
            counts = np.zeros(self._shape, np.int64)
            counts.flat[int(chosen)] = len(x)
        else:
            expansion, kernel, setting = np.unravel_index(chosen, self._shape)
            in_rows = np.argsort(chosen, kind="stable")
            out_rows = np.lexsort((kernel, setting, expansion))
            counts = np.bincount(chosen, minlength=int(np.prod(self._shape))).reshape(self._shape)
        residual = take_rows(x, out_rows) if self.residual else None
        x = take_rows(x, in_rows)
        sizes = counts.sum((1, 2)).tolist()
        outputs: list[Tensor] = []
        for number, part in enumerate(split_rows(x, sizes)):
            if sizes[number]:
                outputs += self._run(part, number, counts)
        y = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return (y if residual is None else y + residual), out_rows

    @property
    def _shape(self) -> tuple[int, int, int]:
        return len(self.expansions), len(self.kernels), len(self.settings)

    def _run(self, x: Tensor, number: int, counts: Ints) -> list[Tensor]:
        """The images of one expansion, sorted by kernel and then setting; counts (expansions, kernels, settings).

        Gives one tensor for each setting that occurs, with the images sorted by kernel.
        """
        width, per_kernel = self.expansions[number] * self.in_channels, counts.sum((0, 2))
        inner = pointwise(x, first(self.expand.weight, width))
        inner = self.activation(normalised(self.expand_norm, inner, len(x) / per_kernel.sum()))
        counts = counts[number]
        by_setting: list[list[Tensor]] = [[] for _ in self.settings]
        for kernel, part in enumerate(split_rows(inner, counts.sum(1).tolist())):
            if len(part):
                y = depthwise_convolution(part, self._filters(kernel, width), self.stride)
                y = self.activation(normalised(self.depthwise_norms[kernel], y, len(part) / per_kernel[kernel]))
                for setting, images in enumerate(split_rows(y, counts[kernel].tolist())):
                    if len(images):
                        by_setting[setting].append(images)
        weight = first(self.project.weight, width, dim=1)
        outputs = []
        for setting, parts in enumerate(by_setting):
            if parts:
                if self.settings[setting]:
                    parts = self._gated(parts, width)
                projected = [pointwise(part, weight) for part in parts]
                y = projected[0] if len(projected) == 1 else torch.cat(projected)
                outputs.append(normalised(self.project_norms[number * len(self.settings) + setting], y, 1.0))
        return outputs

    def _filters(self, kernel: int, width: int) -> Tensor:
        convolution = self.depthwise[kernel]
        assert isinstance(convolution, DepthwiseConv2d)
        return first(convolution.weight, width)

    def _gated(self, parts: list[Tensor], width: int) -> list[Tensor]:
        """Squeeze-excite, cut to ``width`` channels."""
        gate = self.gate
        assert gate is not None
        means = torch.cat([part.mean(dim=(2, 3)) for part in parts])
        reduce, reduce_bias, expand, expand_bias = self._gate_weights(gate, width)
        scales = torch.sigmoid(F.linear(gate.activation(F.linear(means, reduce, reduce_bias)), expand, expand_bias))
        pieces = split_rows(scales[:, :, None, None], [len(part) for part in parts])
        return [part * piece for part, piece in zip(parts, pieces, strict=True)]

    def _gate_weights(self, gate: SqueezeExcite, width: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weight and bias of both layers of squeeze-excite, cut to ``width`` channels and their squeezed ones."""
        squeezed = self.squeezed[width]
        reduce, expand = first(gate.reduce.weight, squeezed), first(gate.expand.weight, width)
        return (
            *(first(reduce, width, dim=1), first(gate.reduce.bias, squeezed)),
            *(first(expand, squeezed, dim=1), first(gate.expand.bias, width)),
        )

    @torch.no_grad()
    def cut_into(self, block: InvertedResidual, configuration: int) -> None:
        """Copy the weights and statistics of one configuration into a stand-alone block.

        Args:
            block: of that configuration; changed in place.
            configuration: its number.
        """
        number, kernel, setting = (int(i) for i in np.unravel_index(configuration, self._shape))
        width = self.expansions[number] * self.in_channels
        block.expand.weight.copy_(first(self.expand.weight, width))
        block.depthwise.weight.copy_(self._filters(kernel, width))
        block.project.weight.copy_(first(self.project.weight, width, dim=1))
        _copy_norm(self.expand_norm, block.expand_norm)
        _copy_norm(self.depthwise_norms[kernel], block.depthwise_norm)
        _copy_norm(self.project_norms[number * len(self.settings) + setting], block.project_norm)
        if self.gate is not None and isinstance(block.gate, SqueezeExcite):
            for own, given in zip(block.gate.parameters(), self._gate_weights(self.gate, width), strict=True):
                own.copy_(given)

    @torch.no_grad()
    def spread_heaviest(self) -> None:
        """Give every configuration what the heaviest one has learned: the centre of its filters, and its norms."""
        largest = self._filters(len(self.kernels) - 1, self.expand.out_channels)
        for kernel, size in enumerate(self.kernels):
            margin = (self.kernels[-1] - size) // 2
            self._filters(kernel, len(largest)).copy_(largest[:, :, margin : margin + size, margin : margin + size])
        for norms in (self.depthwise_norms, self.project_norms):
            for norm in norms:
                norm.load_state_dict(norms[-1].state_dict())


class ElasticSupernet(nn.Module):
    """Start, elastic stages, end; ``supernet(x, choices)`` gives logits (B, classes).

    ``choices`` has depths (S,) and configurations (S, D) for one sub-network for the whole batch, or (B, S) and
    (B, S, D) for one sub-network an image. Weights and activations are channels_last.
    """

    def __init__(self, space: MbConv) -> None:
        super().__init__()
        if space.most_widths > 1:
            raise InputError(
                "a supernet of one width a stage",
                f"width_choices {space.scale.width_choices}",
                "Train it at one width; its weights are nested by expansion only.",
            )
        self.space = space
        scale = space.scale
        self.start = make_start(scale)
        self.stages = nn.ModuleList(
            nn.ModuleList(ElasticBlock(geometry, scale) for geometry in row)
            for row in space.heaviest().geometries(scale)
        )
        self.end = NetworkEnd(scale, scale.stage_channels[-1])
        set_norm_eps(self, scale.norm_eps)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, x: Tensor, choices: StagedChoice) -> Tensor:
        """Images ``x`` (B, image_channels, H, W) to logits (B, classes), by the sub-networks ``choices``."""
        self._check(x, choices)
        x = self.start(x.contiguous(memory_format=torch.channels_last))
        if choices.depths.ndim == 1:
            return self.onward(x, choices)
        images = np.arange(len(x))
        for stage in range(len(self.stages)):
            x, images = self._run_stage(x, images, stage, choices)
        return take_rows(self.end(x), np.argsort(images))

    def onward(self, x: Tensor, choices: StagedChoice, first: int = 0) -> Tensor:
        """Logits (B, classes) from a stage on.

        Args:
            x: what comes into stage ``first``, (B, C, H, W).
            choices: one sub-network for the whole batch.
            first: number of the stage, from 0.
        """
        for stage in range(first, len(self.stages)):
            x = self.passed(x, choices, stage)
        logits: Tensor = self.end(x)
        return logits

    def passed(self, x: Tensor, choices: StagedChoice, stage: int) -> Tensor:
        """What comes out of one stage.

        Args:
            x: what comes into it, (B, C, H, W).
            choices: one sub-network for the whole batch.
            stage: its number, from 0.
        """
        blocks = self.stages[stage]
        for block in range(int(choices.depths[stage])):
            x, _ = blocks[block](x, choices.configurations[stage, block])  # type: ignore[index]
        return x

    def _run_stage(self, x: Tensor, images: Ints, stage: int, choices: StagedChoice) -> tuple[Tensor, Ints]:
        """Rows of x belong to ``images``, in any order; so do those of the result."""
        finished: list[Tensor] = []
        owners: list[Ints] = []
        blocks: list[ElasticBlock] = list(self.stages[stage])  # type: ignore[call-overload]
        for number, block in enumerate(blocks):
            active = choices.depths[images, stage] > number
            if not active.all():
                finished.append(take_rows(x, np.flatnonzero(~active)))
                owners.append(images[~active])
                rows = np.flatnonzero(active)
                if not len(rows):
                    return torch.cat(finished), np.concatenate(owners)
                x, images = take_rows(x, rows), images[rows]
            x, rows = block(x, choices.configurations[images, stage, number])
            images = images[rows]
        return torch.cat([*finished, x]), np.concatenate([*owners, images])

    def identity(self) -> dict[str, Any]:
        """What a file of weights must agree in: space and scale."""
        return {"space": self.space.name, "scale": self.space.scale.to_dict()}

    def spread_heaviest(self) -> None:
        """After training the heaviest path alone: let the other configurations start from it, not from scratch."""
        for module in self.modules():
            if isinstance(module, ElasticBlock):
                module.spread_heaviest()

    def cut_out(self, architecture: MbConvArchitecture) -> Network:
        """The stand-alone network of one sub-network, with copies of the supernet's weights and statistics."""
        choice = self.space.to_choice(architecture)
        network = self.space.build(architecture, self.space.scale)
        assert isinstance(network, MbConvNetwork)
        network.start.load_state_dict(self.start.state_dict())
        network.end.load_state_dict(self.end.state_dict())
        blocks = iter(network.blocks)
        for elastic, row in zip(self.stages, choice.configurations, strict=True):
            for block, configuration in zip(elastic, row[row >= 0], strict=False):  # type: ignore[call-overload]
                block.cut_into(next(blocks), int(configuration))
        return network.train(self.training)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As in ``nn.Module``; weights of another space are an :class:`InputError`.

        Args:
            state_dict: weights and statistics by name.
            strict: whether the names must be this supernet's.
            assign: whether the tensors themselves are taken instead of their values.
        """
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except RuntimeError as error:
            widths = self.space.scale.stage_channels
            raise InputError(
                f"weights of a supernet with stages of {widths} channels and {self.space.scale.classes} classes",
                " ".join(str(error).split())[:200],
                "Load them into a supernet of the scale they were trained at.",
            ) from error

    def _check(self, x: Tensor, choices: StagedChoice) -> None:
        scale = self.space.scale
        stages, blocks = self.space.stages, self.space.most_blocks
        lead = choices.depths.shape[:-1]
        if lead not in ((), (len(x),)) or choices.configurations.shape != (*lead, stages, blocks):
            raise InputError(
                f"depths ({stages},) and configurations ({stages}, {blocks}), or these for each of {len(x)} images",
                f"shapes {choices.depths.shape} and {choices.configurations.shape}",
            )
        if x.shape[1] != scale.image_channels or min(x.shape[2:]) < scale.total_stride:
            raise InputError(
                f"images with {scale.image_channels} channels of at least {scale.total_stride} px", f"{tuple(x.shape)}"
            )


def first(weight: Tensor, width: int, dim: int = 0) -> Tensor:
    """The first ``width`` entries of dimension ``dim`` of ``weight``; the tensor itself if these are all."""
    return weight if weight.shape[dim] == width else weight.narrow(dim, 0, width)


def pointwise(x: Tensor, weight: Tensor) -> Tensor:
    """1x1 convolution of ``x`` (B, C, H, W) with ``weight`` (D, C, 1, 1) as a matrix product: fast for small groups."""
    return F.linear(x.permute(0, 2, 3, 1), weight[:, :, 0, 0]).permute(0, 3, 1, 2)


def take_rows(x: Tensor, rows: Ints) -> Tensor:
    """Rows of ``x`` (B, ...) by their numbers ``rows`` (n,), keeping channels_last; ``x`` itself if nothing moves."""
    if len(rows) == len(x) and (rows == np.arange(len(rows))).all():
        return x
    index = on_device(rows, x.device)
    if x.ndim != 4:
        return x.index_select(0, index)
    return x.permute(0, 2, 3, 1).index_select(0, index).permute(0, 3, 1, 2)


def split_rows(x: Tensor, sizes: list[int]) -> list[Tensor]:
    """Consecutive rows of ``x``, as many each as ``sizes`` says; nothing is cut where all rows are in one part."""
    if max(sizes) == len(x):
        return [x if size else x[:0] for size in sizes]
    return list(torch.split(x, sizes))


def normalised(norm: nn.Module, x: Tensor, share: float) -> Tensor:
    """Batch norm with the first channels of a wider one.

    The running statistics move by ``share`` of the momentum, so that several groups move them as a whole batch would.

    Args:
        norm: a ``BatchNorm2d`` of at least as many channels as ``x``.
        x: (B, C, H, W).
        share: the part that these images are of all that ``norm`` sees in this pass, 0 to 1.
    """
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    width, momentum = x.shape[1], (norm.momentum or 0.0) * share
    mean, var = first(norm.running_mean, width), first(norm.running_var, width)
    batch_statistics = norm.training and len(x) >= SMALLEST_GROUP
    if norm.training and not batch_statistics:
        used = mean.clone(), var.clone()  # other groups go on to move the running ones, and backward needs these
        if x.numel() > width:
            batch_var, batch_mean = torch.var_mean(x.detach().float(), dim=(0, 2, 3))
            mean.data.lerp_(batch_mean, momentum)  # .data, for larger groups hold the same buffers without using them
            var.data.lerp_(batch_var, momentum)
        mean, var = used
    weight, bias = first(norm.weight, width), first(norm.bias, width)
    return F.batch_norm(x, mean, var, weight, bias, batch_statistics, momentum, norm.eps)


def _copy_norm(source: nn.Module, target: nn.BatchNorm2d) -> None:
    """The first channels of every weight and statistic."""
    for name, value in target.state_dict().items():
        given = source.state_dict()[name]
        value.copy_(given if given.ndim == 0 else first(given, len(value)))
