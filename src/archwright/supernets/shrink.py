"""From a trained compact network to a smaller one inside it, which begins with what the larger one has learnt.

The smaller architecture is contained in the larger one (:func:`contains`): the same kinds of
block, each at most as wide, and fewer of them in some stages. In every stage, and inside every block that has channels
of its own, the channels stay that count most: by the sum, over all paths from there to the answer, of the products of
absolute weights. What was behind dropped blocks reads the blocks before them. The smaller network computes something
else, but less else than a new one: it is trained on, best towards the larger one's answers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.spaces.compact import Compact, CompactArchitecture
from archwright.spaces.compact_network import BasicBlock, CompactNetwork, FusedBlock, InvertedBlock, PlainBlock


def contains(larger: CompactArchitecture, smaller: CompactArchitecture) -> bool:
    """Whether a network of ``smaller`` is a part of one of ``larger``: every block, at most as wide."""
    if len(larger.stages) != len(smaller.stages):
        return False
    for ours, theirs in zip(larger.stages, smaller.stages, strict=True):
        if len(ours) < len(theirs) or ours[0].channels < theirs[0].channels or ours[0].stride != theirs[0].stride:
            return False
        for one, other in zip(ours, theirs, strict=False):
            new, old = one.configuration, other.configuration
            if new.kind != old.kind or new.kernel < old.kernel or new.expansion < old.expansion:
                return False
    return True


@torch.no_grad()
def shrink(
    network: CompactNetwork, larger: CompactArchitecture, smaller: CompactArchitecture, space: Compact
) -> CompactNetwork:
    """A network of ``smaller`` with the strongest channels of ``network``, which is of ``larger`` and stays as it is.

    Args:
        network: trained.
        larger: its architecture.
        smaller: contained in it.
        space: of both, at the scale of ``network``.
    """
    if not contains(larger, smaller):
        raise InputError(
            "a smaller architecture whose blocks are all in the larger one", f"{smaller} in {larger}", "Kinds stay."
        )
    small = space.build(smaller, space.scale)
    assert isinstance(small, CompactNetwork)
    small.to(next(network.parameters()).device)
    old_stages = [[*stage.children()][: len(kept)] for stage, kept in zip(network.stages, smaller.stages, strict=True)]
    weights = _stage_weights(network, old_stages)
    read: Tensor | None = None  # channels of the stage before that stay; all of the image's
    for blocks, stage, weight in zip(old_stages, small.stages, weights, strict=True):
        new_blocks = [*stage.children()]
        written = sum((_written(block) for block in blocks), torch.zeros(()))
        stay = _strongest(weight[-1] * written, len(_written(new_blocks[0])))
        for place, (old_block, new_block) in enumerate(zip(blocks, new_blocks, strict=True)):
            _take(old_block, new_block, read if place == 0 else stay, stay, weight[place])
        read = stay
    old, new = network.end[-1], small.end[-1]
    assert isinstance(old, nn.Linear)
    assert isinstance(new, nn.Linear)
    new.weight.copy_(old.weight[:, read])
    new.bias.copy_(old.bias)
    return small.train(network.training)


def _strongest(weight: Tensor, count: int) -> Tensor:
    """Places of the ``count`` largest entries of ``weight`` (n,), in order."""
    return weight.topk(count).indices.sort().values


def _stage_weights(network: CompactNetwork, stages: list[list[nn.Module]]) -> list[list[Tensor]]:
    """What the outputs of every block count, (C,) each, stage by stage: path products from there to the answer."""
    end = network.end[-1]
    assert isinstance(end, nn.Linear)
    weight, found = end.weight.abs().sum(0), list[list[Tensor]]()
    for blocks in reversed(stages):
        own = list[Tensor]()
        for block in reversed(blocks):
            own.insert(0, weight)
            weight = _before(block, weight)
        found.insert(0, own)
    return found


def _before(block: nn.Module, weight: Tensor) -> Tensor:
    """What the inputs of a block count, where its outputs count ``weight`` (C,)."""
    if isinstance(block, PlainBlock):
        return _back(block.conv, block.norm, weight)
    inner = _inner(block, weight)
    if isinstance(block, BasicBlock):
        through = _back(block.conv1, block.norm1, inner)
        shortcut = block.shortcut
        return through + (_back(shortcut, block.shortcut_norm, weight) if isinstance(shortcut, nn.Conv2d) else weight)
    assert isinstance(block, FusedBlock | InvertedBlock)
    if isinstance(block, InvertedBlock):
        inner = inner * block.depthwise_norm.weight.abs() * _area(block.depthwise)
    through = _back(block.expand, block.expand_norm, inner)
    return through + weight if block.residual else through


def _inner(block: nn.Module, weight: Tensor) -> Tensor:
    """What a block's channels of its own count, as they are read by its last convolution."""
    if isinstance(block, BasicBlock):
        return _back(block.conv2, block.norm2, weight)
    assert isinstance(block, FusedBlock | InvertedBlock)
    return _back(block.project, block.project_norm, weight)


def _back(conv: nn.Module, norm: nn.Module, weight: Tensor) -> Tensor:
    """From what the outputs of a convolution and its norm count to what its inputs do."""
    assert isinstance(conv.weight, Tensor)
    assert isinstance(norm.weight, Tensor)
    return (norm.weight.abs() * weight) @ conv.weight.abs().sum((2, 3))


def _area(conv: nn.Module) -> Tensor:
    """Sum of the absolute weights of a depth-wise convolution, (C,)."""
    assert isinstance(conv.weight, Tensor)
    return conv.weight.abs().sum((1, 2, 3))


def _written(block: nn.Module) -> Tensor:
    """Absolute weight of the last norm of a block, (C,)."""
    if isinstance(block, PlainBlock):
        return block.norm.weight.abs()
    last = block.norm2 if isinstance(block, BasicBlock) else block.project_norm
    assert isinstance(last, nn.BatchNorm2d)
    return last.weight.abs()


def _take(old: nn.Module, new: nn.Module, read: Tensor | None, stay: Tensor, weight: Tensor) -> None:
    """Put the channels of ``old``, whose outputs count ``weight`` (C,), that stay into ``new``."""
    if isinstance(old, PlainBlock) and isinstance(new, PlainBlock):
        _conv(old.conv, new.conv, stay, read)
        _norm(old.norm, new.norm, stay)
    elif isinstance(old, BasicBlock) and isinstance(new, BasicBlock):
        inner = _strongest(old.norm1.weight.abs() * _inner(old, weight), new.conv1.out_channels)
        _conv(old.conv1, new.conv1, inner, read)
        _norm(old.norm1, new.norm1, inner)
        _conv(old.conv2, new.conv2, stay, inner)
        _norm(old.norm2, new.norm2, stay)
        if isinstance(old.shortcut, nn.Conv2d):
            _conv(old.shortcut, new.shortcut, stay, read)
            _norm(old.shortcut_norm, new.shortcut_norm, stay)
    elif isinstance(old, FusedBlock | InvertedBlock) and isinstance(new, FusedBlock | InvertedBlock):
        norm = old.expand_norm if isinstance(old, FusedBlock) else old.depthwise_norm
        inner = _strongest(norm.weight.abs() * _inner(old, weight), new.expand.out_channels)
        _conv(old.expand, new.expand, inner, read)
        _norm(old.expand_norm, new.expand_norm, inner)
        if isinstance(old, InvertedBlock) and isinstance(new, InvertedBlock):
            _conv(old.depthwise, new.depthwise, inner, None)
            _norm(old.depthwise_norm, new.depthwise_norm, inner)
        _conv(old.project, new.project, stay, inner)
        _norm(old.project_norm, new.project_norm, stay)


def _conv(old: nn.Module, new: nn.Module, written: Tensor, read: Tensor | None) -> None:
    """Weights (out, in, k, k) of some channels, the middle of a kernel that becomes smaller."""
    assert isinstance(old.weight, Tensor)
    assert isinstance(new.weight, Tensor)
    weight = old.weight[written]
    weight = weight if read is None or weight.shape[1] == 1 else weight[:, read]
    margin = (weight.shape[-1] - new.weight.shape[-1]) // 2
    side = new.weight.shape[-1]
    new.weight.copy_(weight[..., margin : margin + side, margin : margin + side])


def _norm(old: nn.Module, new: nn.Module, stay: Tensor) -> None:
    """Scale, shift and statistics of some channels."""
    assert isinstance(old, nn.BatchNorm2d)
    assert isinstance(new, nn.BatchNorm2d)
    for name in ("weight", "bias", "running_mean", "running_var"):
        getattr(new, name).copy_(getattr(old, name)[stay])
