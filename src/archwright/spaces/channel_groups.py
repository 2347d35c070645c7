"""Which channels of a network go together: found by tracing it, so that they can be scored and really removed.

A channel of a convolution is read by later layers; residual sums, batch norms, depth-wise and grouped convolutions and
concatenations tie channels of several layers together. torch-pruning's dependency graph finds them all. A *group* is
named after its first layer; a channel of it is everything that has to go at once. It can go without changing the
network's output if every layer that *reads* it gives it weight zero: what lies between (batch norms, activations, sums)
treats channels one by one.

Hidden layers of a perceptron are groups, too, and so are the heads of an attention
(:mod:`archwright.spaces.attention`). The first layer, which sees the image, and the classifier stay as they are. Groups
that run through a layer which mixes channels in another way (layer norm, group norm) stay, too, and are named
(:attr:`Channels.left_whole`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.errors import InputError, missing_extra
from archwright.spaces.attention import HeadedAttention
from archwright.spaces.base import Scale
from archwright.spaces.operations import Cost

Kept = Mapping[str, Sequence[int] | NDArray[np.int64]]
"""Numbers of the channels that stay, by group."""
TOLERANCE = 1e-4
"""Largest difference between a network with zeroed and one with removed channels, relative to the largest output."""


@dataclass(frozen=True)
class Part:
    """The channels of one layer that belong to a group.

    Attributes:
        layer: its name.
        written: whether they are the layer's outputs (of a batch norm: its features), else the inputs it reads.
        positions: of the channels in the layer.
        units: which channel of the group each of them is.
    """

    layer: str
    written: bool
    positions: tuple[int, ...]
    units: tuple[int, ...]


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that go together.

    Attributes:
        name: of the first layer that writes them.
        members: for each channel of the group the output channels of that layer; more than one where a grouped
            convolution must lose the same from all its groups, and in a head.
        parts: all layers that write or read them.
    """

    name: str
    members: tuple[tuple[int, ...], ...]
    parts: tuple[Part, ...]

    @property
    def channels(self) -> int:
        """How many can be removed one by one."""
        return len(self.members)

    @property
    def readers(self) -> tuple[Part, ...]:
        """The layers that mix them into other channels."""
        return tuple(part for part in self.parts if not part.written)


@dataclass(frozen=True)
class LayerShape:
    """What a layer costs: its channels, weights of one kernel, whether it has a bias, and its output pixels."""

    inputs: int
    outputs: int
    kernel: int
    groups: int
    bias: bool
    pixels: int

    def cost(self, inputs: int, outputs: int) -> Cost:
        """Its cost with ``inputs`` and ``outputs`` channels; a depth-wise convolution keeps one input a group."""
        groups = outputs if self.groups == self.outputs > 1 else self.groups
        weights = outputs * (inputs // groups) * self.kernel
        return Cost(weights + (outputs if self.bias else 0), weights * self.pixels)


class Channels:
    """The structure of one network for images of one size.

    Args:
        network: on the CPU; it is left as it is.
        scale: of the images and classes.

    Attributes:
        shapes: every layer with weights, in the order in which they run.
        first: the layer that sees the image.
        groups: what may go.
        left_whole: layers whose channels cannot go, and why.
    """

    def __init__(self, network: nn.Module, scale: Scale) -> None:
        self.shapes, first = _layer_shapes(network, scale)
        self.first = first
        self.left_whole: dict[str, str] = {}
        self.groups = _find_groups(network, scale, self.shapes, first, self.left_whole)
        self._attentions = frozenset(_attentions(network))
        self._other_params = sum(one.numel() for one in network.parameters()) - sum(
            shape.cost(shape.inputs, shape.outputs).params for shape in self.shapes.values()
        )
        self._norms = {
            name: 2 * module.num_features
            for name, module in network.named_modules()
            if isinstance(module, NORMS) and module.affine
        }

    @cached_property
    def by_name(self) -> dict[str, ChannelGroup]:
        """The groups by their names."""
        return {group.name: group for group in self.groups}

    def widths(self, kept: Kept) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of every layer with only the channels ``kept`` of each group."""
        lost = self._lost(kept)
        found = {}
        for name, shape in self.shapes.items():
            outputs = shape.outputs - lost.get((name, True), 0)
            depthwise = shape.groups == shape.outputs > 1
            found[name] = (outputs if depthwise else shape.inputs - lost.get((name, False), 0), outputs)
        return found

    def _lost(self, kept: Kept) -> dict[tuple[str, bool], int]:
        """How many inputs (False) and outputs (True) each layer loses."""
        lost: dict[tuple[str, bool], int] = {}
        for group in self.groups:
            staying = np.asarray(kept[group.name], dtype=np.int64)
            for part, count in zip(group.parts, self._counts[group.name], strict=True):
                key = (part.layer, part.written)
                lost[key] = lost.get(key, 0) + len(part.units) - int(count[staying].sum())
        return lost

    @cached_property
    def _counts(self) -> dict[str, list[NDArray[np.int64]]]:
        """By group, for each of its parts: how many positions of the layer each channel has."""
        return {
            group.name: [np.bincount(part.units, minlength=group.channels) for part in group.parts]
            for group in self.groups
        }

    def cost(self, kept: Kept) -> Cost:
        """Parameters and multiply-accumulates with only the channels ``kept`` of each group, counted by formula."""
        lost, params, macs = self._lost(kept), self._other_params, 0
        for name, (inputs, outputs) in self.widths(kept).items():
            cost = self.shapes[name].cost(inputs, outputs)
            params, macs = params + cost.params, macs + cost.macs
            if name.removesuffix(".query") in self._attentions:  # queries by keys, and weights by values
                macs += 2 * self.shapes[name].pixels ** 2 * outputs
        return Cost(params - sum(2 * lost.get((name, True), 0) for name in self._norms), macs)

    def remove(self, network: nn.Module, scale: Scale, kept: Mapping[str, Sequence[int]]) -> None:
        """Take channels out of a network, in place, through its dependency graph.

        Args:
            network: the one of this structure, or a copy of it.
            scale: of its images.
            kept: numbers of the channels that stay, for every group by its name.
        """
        wanted = {group.name: sorted(set(range(group.channels)) - set(kept[group.name])) for group in self.groups}
        if not any(wanted.values()):
            return
        modules = dict(network.named_modules())
        heads = [group.name for group in self.groups if group.name.removesuffix(".query") in self._attentions]
        for name in filter(wanted.get, heads):
            attention = modules[name.removesuffix(".query")]
            assert isinstance(attention, HeadedAttention)
            attention.keep(list(kept[name]))
        with _dependency_graph(network, scale) as (graph, pruning):
            for group in self.groups:
                members = [channel for unit in wanted[group.name] for channel in group.members[unit]]
                if members and group.name not in heads:
                    layer = modules[group.name]
                    graph.get_pruning_group(layer, _pruned_by(layer, pruning), members).prune()


NORMS = (nn.BatchNorm2d, nn.BatchNorm1d)
"""Norms that treat channels one by one."""
FEW_INPUTS = 16
"""Strided 1x1 convolutions with fewer inputs crash in torch's CPU kernels where images are channels last."""


def takes_channels_last(network: nn.Module) -> bool:
    """Whether ``network`` can be trained with channels last, which is faster."""
    return not any(
        isinstance(module, nn.Conv2d)
        and module.kernel_size == (1, 1)
        and module.stride != (1, 1)
        and module.in_channels < FEW_INPUTS
        for module in network.modules()
    )


# --- tracing ---------------------------------------------------------------------------------------------------------


def example_images(scale: Scale, count: int = 1) -> Tensor:
    """Noise for networks of ``scale``, (``count``, image_channels, image_size, image_size), on the CPU."""
    shape = (count, scale.image_channels, scale.image_size, scale.image_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), device="cpu")


@contextmanager
def _as_it_was(network: nn.Module) -> Iterator[None]:
    """Evaluation mode with gradients inside; mode and gradient flags as before after it."""
    training = {module: module.training for module in network.modules()}
    flags = [(parameter, parameter.requires_grad) for parameter in network.parameters()]
    try:
        with torch.enable_grad(), torch.device("cpu"):
            network.eval().requires_grad_(True)
            yield
    finally:
        for module, mode in training.items():
            module.training = mode
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def _layer_shapes(network: nn.Module, scale: Scale) -> tuple[dict[str, LayerShape], str]:
    """Every convolution and linear layer that runs, and the name of the first convolution."""
    names = {module: name for name, module in network.named_modules()}
    shapes: dict[str, LayerShape] = {}
    under_way: list[str] = []

    def enter(module: nn.Module, _inputs: Any) -> None:
        under_way.append(names[module])

    def leave(module: nn.Module, _inputs: Any, output: Any) -> None:
        under_way.pop()
        if isinstance(module, nn.Conv2d):
            ins, outs, kernel = module.in_channels, module.out_channels, module.weight[0, 0].numel()
            pixels = output.shape[-2] * output.shape[-1]
            shapes[names[module]] = LayerShape(ins, outs, kernel, module.groups, module.bias is not None, pixels)
        elif isinstance(module, nn.Linear):
            ins, outs = module.in_features, module.out_features
            rows = output.numel() // outs
            shapes[names[module]] = LayerShape(ins, outs, 1, 1, module.bias is not None, rows)

    hooks = [module.register_forward_pre_hook(enter) for module in network.modules()]
    hooks += [module.register_forward_hook(leave) for module in network.modules()]
    try:
        with _as_it_was(network):
            output = network(example_images(scale))
    except InputError:
        raise
    except Exception as error:  # whatever a user's network raises, the module that raised it is named
        where = under_way[-1] if under_way and under_way[-1] else type(network).__name__
        raise _untraceable(where, f"{type(error).__name__}: {error}") from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(output, Tensor) or output.shape != (1, scale.classes):
        got = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise InputError(
            f"a network that gives logits of shape (1, {scale.classes}) for one image of {scale.image_size} px",
            f"{got} from {type(network).__name__}",
        )
    convolutions = [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)]
    run = [name for name in shapes if name in set(convolutions)]
    if not run:
        raise InputError("a network with convolutions (nn.Conv2d)", f"{type(network).__name__} without")
    return shapes, run[0]


def _untraceable(where: str, why: str) -> InputError:
    return InputError("a network that can be traced", f"one whose module {where!r} cannot be ({why[:200]})")


@contextmanager
def _dependency_graph(network: nn.Module, scale: Scale) -> Iterator[tuple[Any, Any]]:
    """The dependency graph of torch-pruning, and its package."""
    try:
        import torch_pruning
    except ImportError as error:
        raise missing_extra("torch-pruning", "prune", "finding and removing channels") from error
    with _as_it_was(network), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            graph = torch_pruning.DependencyGraph().build_dependency(network, example_inputs=example_images(scale))
        except Exception as error:
            raise _untraceable(type(network).__name__, f"{type(error).__name__}: {error}") from error
        yield graph, torch_pruning


def _attentions(network: nn.Module) -> dict[str, HeadedAttention]:
    """By name, those whose heads can go."""
    return {name: module for name, module in network.named_modules() if isinstance(module, HeadedAttention)}


def _pruned_by(layer: nn.Module, pruning: Any) -> Any:
    """What of torch-pruning takes outputs of ``layer`` away."""
    return pruning.prune_conv_out_channels if isinstance(layer, nn.Conv2d) else pruning.prune_linear_out_channels


def _find_groups(
    network: nn.Module, scale: Scale, shapes: Mapping[str, LayerShape], first: str, left: dict[str, str]
) -> tuple[ChannelGroup, ...]:
    """All groups whose channels may go, in the order in which the layers that write them run; ``left``: why others not.

    Args:
        network: on the CPU.
        scale: of its images.
        shapes: its layers, in the order in which they run.
        first: the layer that sees the image.
        left: gets the other layers that write channels, and why these stay.
    """
    modules = dict(network.named_modules())
    names = {module: name for name, module in modules.items()}
    found: list[ChannelGroup] = []
    inside = {f"{name}.{part}": name for name in _attentions(network) for part in ("query", "key", "value", "out")}
    seen = set(inside)
    with _dependency_graph(network, scale) as (graph, pruning):
        for name in shapes:
            if isinstance(modules[name], nn.Conv2d) and modules[name] not in graph.module2node:
                raise _untraceable(name, "no gradient comes back through it")
        for name in shapes:  # in the order they run
            layer = modules[name]
            if name in inside and name.endswith(".query"):
                found += [_heads_of(inside[name], modules[inside[name]])]
            if name in seen or not _writes_channels(layer) or layer not in graph.module2node:
                continue
            everything = list(range(shapes[name].outputs))
            traced = graph.get_pruning_group(layer, _pruned_by(layer, pruning), everything)
            written = {
                names.get(item.dep.target.module, "")
                for item in traced
                if graph.is_out_channel_pruning_fn(item.dep.handler)
            }
            seen |= written
            group = _group_of(graph, traced, names)
            if first in written:
                left[name] = "it is summed with, or is, the first layer, which sees the image"
            elif isinstance(group, str):
                left[name] = group
            elif group.readers and group.channels > 1:
                found.append(group)
    return tuple(one for one in found if one.channels > 1)


def _writes_channels(layer: nn.Module) -> bool:
    """Whether ``layer`` mixes channels into new ones; a depth-wise convolution does not."""
    if isinstance(layer, nn.Linear):
        return True
    return isinstance(layer, nn.Conv2d) and not layer.groups == layer.out_channels > 1


def _heads_of(name: str, attention: nn.Module) -> ChannelGroup:
    """The heads of an attention: a channel of the group is a whole head."""
    assert isinstance(attention, HeadedAttention)
    width, positions = attention.head_width, tuple(range(attention.heads * attention.head_width))
    units = tuple(one // width for one in positions)
    members = tuple(tuple(range(head * width, (head + 1) * width)) for head in range(attention.heads))
    written = [Part(f"{name}.{one}", True, positions, units) for one in ("query", "key", "value")]
    return ChannelGroup(f"{name}.query", members, (*written, Part(f"{name}.out", False, positions, units)))


def _group_of(graph: Any, traced: Any, names: Mapping[nn.Module, str]) -> ChannelGroup | str:
    """One traced group in our form; why its channels cannot go one by one, where they cannot."""
    root = traced[0].dep.target.module
    unit_of = _tied(traced, root)
    parts = []
    for item in traced:
        module = item.dep.target.module
        if module not in names:
            if isinstance(module, nn.Parameter):
                return "a parameter of the network is tied to its channels"
            continue  # an operation without weights
        written = graph.is_out_channel_pruning_fn(item.dep.handler)
        if not isinstance(module, nn.Conv2d | nn.Linear | nn.BatchNorm2d | nn.BatchNorm1d):
            return f"its channels run through {names[module]} ({type(module).__name__}), which mixes them"
        depthwise = isinstance(module, nn.Conv2d) and module.groups == module.out_channels > 1
        units = tuple(unit_of[channel] for channel in item.root_idxs)
        parts.append(Part(names[module], written or depthwise, tuple(item.idxs), units))
    members: list[list[int]] = [[] for _ in range(max(unit_of) + 1)]
    for channel, unit in enumerate(unit_of):
        members[unit].append(channel)
    return ChannelGroup(names[root], tuple(map(tuple, members)), tuple(parts))


def _tied(traced: Any, root: nn.Conv2d | nn.Linear) -> list[int]:
    """For each output channel of ``root`` the number of its channel in the group.

    A grouped convolution must lose as many channels from each of its groups, so those at the same place go together.
    """
    outputs = root.out_features if isinstance(root, nn.Linear) else root.out_channels
    parent = list(range(outputs))

    def find(one: int) -> int:
        while parent[one] != one:
            one = parent[one]
        return one

    for item in traced:
        module = item.dep.target.module
        if isinstance(module, nn.Conv2d) and 1 < module.groups < max(module.in_channels, module.out_channels):
            inside = item.dep.handler.__name__ == "prune_in_channels"
            size = (module.in_channels if inside else module.out_channels) // module.groups
            if size == 0 or module.groups == module.out_channels:
                continue  # depth-wise: every channel is a group
            first_at: dict[int, int] = {}
            for position, channel in zip(item.idxs, item.root_idxs, strict=True):
                other = first_at.setdefault(position % size, channel)
                parent[find(channel)] = find(other)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(find(channel), len(numbers)) for channel in range(outputs)]
