"""A network with a score for every channel that may go: scores multiply feature maps, and zero means gone.

A score multiplies its channel where later layers read it, which is the same as multiplying their kernels of that input
channel: the network itself stays as it is, any module will do, and a pass costs no more than the products of scores
and kernels. A channel of score 0 can be removed without changing the output, batch norms and residual sums between its
writers and its readers included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from archwright.spaces.channel_groups import TOLERANCE, ChannelGroup, Channels, example_images
from archwright.spaces.width import Width, WidthSpace


class Scores:
    """Where each score acts. All scores together are one vector (total,), group after group.

    Args:
        channels: structure of the network.
        only: names of the groups that are scored; all by default.
    """

    def __init__(self, channels: Channels, only: Collection[str] | None = None) -> None:
        self.all_groups = channels.groups
        self.groups = tuple(group for group in channels.groups if only is None or group.name in only)
        sizes = [group.channels for group in self.groups]
        self.offsets = dict(
            zip((group.name for group in self.groups), np.cumsum([0, *sizes])[:-1].tolist(), strict=True)
        )
        self.total = sum(sizes)
        self._places = {
            f"{layer}.weight": self._place(layer, channels)
            for layer in dict.fromkeys(part.layer for group in self.groups for part in group.readers)
        }

    def _place(self, layer: str, channels: Channels) -> Tensor:
        """For each input of a kernel of ``layer`` the number of its score; ``total`` where it has none."""
        shape = channels.shapes[layer]
        place = torch.full((shape.inputs // shape.groups,), self.total)
        for group in self.groups:
            for part in group.readers:
                if part.layer == layer:
                    for position, unit in zip(part.positions, part.units, strict=True):
                        place[position % len(place)] = self.offsets[group.name] + unit
        return place

    def kernels(self, network: nn.Module, scores: Tensor) -> dict[str, Tensor]:
        """The kernels of all readers of ``network``, times ``scores`` (total,), by the names of its parameters."""
        with_one = torch.cat([scores, scores.new_ones(1)])
        found = {}
        for name, place in self._places.items():
            kernel = network.get_parameter(name)
            gate = with_one[place.to(scores.device)]
            found[name] = kernel * gate.view(1, -1, *[1] * (kernel.dim() - 2))
        return found

    def logits(self, network: nn.Module, scores: Tensor, images: Tensor) -> Tensor:
        """What a network with scores says of images: (B, classes).

        Args:
            network: left as it is.
            scores: (total,), or (B, total) with those of every image.
            images: (B, C, H, W).
        """
        found: Tensor
        if scores.dim() > 1:
            with self.gated(network, scores):
                found = network(images)
            return found
        found = functional_call(network, self.kernels(network, scores), (images,))
        return found

    @contextmanager
    def gated(self, network: nn.Module, gates: Tensor) -> Iterator[None]:
        """Inside, every reader of ``network`` sees its channels times ``gates`` (B, total), image by image.

        Args:
            network: called on B images inside; left as it was after.
            gates: a score for every image and channel.
        """
        with_one = torch.cat([gates, gates.new_ones(len(gates), 1)], 1)

        def multiply(place: Tensor) -> Callable[[nn.Module, tuple[Tensor, ...]], tuple[Tensor, ...]]:
            def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
                x = inputs[0]
                axis = 1 if isinstance(layer, nn.Conv2d) else x.dim() - 1
                gate = with_one[:, place.repeat(x.shape[axis] // len(place)).to(gates.device)]
                shape = [len(gate), *[1] * (x.dim() - 1)]
                shape[axis] = x.shape[axis]
                return (x * gate.view(shape), *inputs[1:])

            return hook

        hooks = [
            network.get_submodule(name.removesuffix(".weight")).register_forward_pre_hook(multiply(place))
            for name, place in self._places.items()
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    @torch.no_grad()
    def fold(self, network: nn.Module, scores: Tensor) -> None:
        """Multiply ``scores`` (total,) into the kernels of ``network``, in place: the same function without scores."""
        for name, kernel in self.kernels(network, scores).items():
            network.get_parameter(name).copy_(kernel)

    def of_group(self, group: ChannelGroup, scores: NDArray[Any]) -> NDArray[Any]:
        """The part of ``scores`` (total,) that belongs to ``group``."""
        start = self.offsets[group.name]
        return scores[start : start + group.channels]

    def kept(self, mask: NDArray[Any]) -> Width:
        """The architecture of a 0/1 vector (total,); groups without scores keep all."""
        scored = {group.name: np.flatnonzero(self.of_group(group, mask)) for group in self.groups}
        return Width.of({one.name: scored.get(one.name, np.arange(one.channels)) for one in self.all_groups})

    def mask(self, kept: Width) -> NDArray[Any]:
        """The 0/1 vector (total,) of which :meth:`kept` makes this architecture."""
        found = np.zeros(self.total, dtype=np.int8)
        for name, channels in kept.channels.items():
            if name not in self.offsets:
                continue
            found[self.offsets[name] + np.array(channels)] = 1
        return found


@torch.no_grad()
def removal_error(space: WidthSpace, network: nn.Module, kept: Mapping[str, list[int]]) -> float:
    """By how much removing channels differs from scoring them zero, relative to the largest output.

    Args:
        space: of the network.
        network: with any weights, on the CPU; it is left as it is.
        kept: channels of each group that stay.
    """
    scores, images = Scores(space.structure), example_images(space.scale, 2)
    mask = torch.from_numpy(scores.mask(Width.of(kept))).float()
    was_training = network.training
    network.eval()
    zeroed = scores.logits(network, mask, images)
    removed = space.removed(network, Width.of(kept)).eval()(images)
    network.train(was_training)
    if removed.shape != zeroed.shape:
        return float("inf")
    return float((removed - zeroed).abs().max() / zeroed.abs().max().clamp_min(1e-12))


def broken_groups(space: WidthSpace, network: nn.Module, only: Collection[str] | None = None) -> list[str]:
    """Names of the groups whose channels cannot be removed without changing the output; none where all can.

    Half of all channels of the groups ``only`` go at once; only where that changes the output each is tried alone.

    Args:
        space: of the network.
        network: with any weights, on the CPU; it is left as it is.
        only: names of the groups that are tried; all by default.
    """
    everything = {group.name: list(range(group.channels)) for group in space.structure.groups}
    half = {name: channels[::2] for name, channels in everything.items() if only is None or name in only}
    if removal_error(space, network, {**everything, **half}) <= TOLERANCE:
        return []
    found = [
        name
        for name, channels in half.items()
        if not removal_error(space, network, {**everything, name: channels}) <= TOLERANCE
    ]
    return found or list(half)
