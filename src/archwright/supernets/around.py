"""An elastic supernet around one trained network: it computes what the network does, and smaller ones nearly that.

Weights are nested, so a smaller expansion uses the first channels: they are brought into the order of what they add to
their block's output. The norm after a block of fewer channels is set so that its output has the mean and the spread
that the whole block's has; nothing else of a trained network's statistics is touched.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from archwright.spaces.mbconv import MbConv
from archwright.spaces.mbconv_network import InvertedResidual, MbConvNetwork
from archwright.supernets.elastic import ElasticBlock, ElasticSupernet, first

TINY = 1e-10
"""Variance of a channel that is taken for none."""


@torch.no_grad()
def supernet_around(network: MbConvNetwork, space: MbConv, images: Tensor) -> ElasticSupernet:
    """The supernet of ``space`` whose heaviest sub-network is ``network``, seen on ``images`` (B, C, H, W)."""
    supernet = ElasticSupernet(space).to(images.device)
    supernet.start.load_state_dict(network.start.state_dict())
    supernet.end.load_state_dict(network.end.state_dict())
    inner = _inputs([block.project for block in _blocks(network)], network, images)
    scale, blocks = space.scale, zip(_blocks(network), inner, strict=True)
    for stage, elastic in enumerate(supernet.stages):
        kernel = scale.stage_kernels[stage] if scale.stage_kernels else scale.kernels[-1]
        for target, (block, seen) in zip(
            _elastic(elastic), itertools.islice(blocks, len(_elastic(elastic))), strict=True
        ):
            _copy(block, target, scale.kernels.index(kernel), _importance(block, seen).argsort(descending=True), seen)
    return supernet.eval()


def _blocks(network: MbConvNetwork) -> list[InvertedResidual]:
    return [block for block in network.blocks if isinstance(block, InvertedResidual)]


def _elastic(stage: Any) -> list[ElasticBlock]:
    return list(stage)


def _inputs(modules: list[nn.Conv2d], network: nn.Module, images: Tensor) -> list[Tensor]:
    """What each of ``modules`` gets when ``network`` sees ``images``."""
    seen: list[Tensor] = []
    hooks = [module.register_forward_pre_hook(lambda _, given: seen.append(given[0])) for module in modules]
    try:
        network.eval()(images)
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def _importance(block: InvertedResidual, seen: Tensor) -> Tensor:
    """(inner,): the mean size of each inner channel times the L1 norm of the weights that project it."""
    return seen.abs().mean((0, 2, 3)) * block.project.weight.abs().sum((0, 2, 3))


def _copy(block: InvertedResidual, target: ElasticBlock, kernel: int, order: Tensor, seen: Tensor) -> None:
    """Put a trained block into the widest configuration with its kernel; match the norms of the narrower ones."""
    target.expand.weight.copy_(block.expand.weight[order])
    target.project.weight.copy_(block.project.weight[:, order])
    depthwise = target.depthwise[kernel]
    assert isinstance(depthwise, nn.Conv2d)
    depthwise.weight.copy_(block.depthwise.weight[order])
    _copy_norm(block.expand_norm, target.expand_norm, order)
    _copy_norm(block.depthwise_norm, target.depthwise_norms[kernel], order)
    whole = F.conv2d(seen, block.project.weight)
    for expansion, norm in zip(target.expansions, target.project_norms, strict=True):
        assert isinstance(norm, nn.BatchNorm2d)
        norm.load_state_dict(block.project_norm.state_dict())
        width = expansion * target.in_channels
        if width < len(order):
            _match(norm, whole, F.conv2d(seen[:, order[:width]], first(target.project.weight, width, dim=1)))


def _copy_norm(source: nn.BatchNorm2d, target: nn.Module, order: Tensor) -> None:
    for name, value in target.state_dict().items():
        given = source.state_dict()[name]
        value.copy_(given if given.ndim == 0 else given[order])


def _match(norm: nn.BatchNorm2d, whole: Tensor, part: Tensor) -> None:
    """Change the statistics of ``norm`` so that it makes of ``part`` the mean and spread it makes of ``whole``.

    Both are (B, C, H, W). With r the ratio of their deviations, (part - m') / (s r) has them for
    m' = mean(part) - r (mean(whole) - m).
    """
    assert norm.running_mean is not None
    assert norm.running_var is not None
    (part_var, part_mean), (var, mean) = (torch.var_mean(x, dim=(0, 2, 3)) for x in (part, whole))
    ratio = ((part_var + TINY) / (var + TINY)).sqrt()
    spread = (norm.running_var + norm.eps) * ratio**2 - norm.eps
    norm.running_mean.copy_(part_mean - ratio * (mean - norm.running_mean))
    norm.running_var.copy_(spread.clamp(min=0.0))
