"""From a trained compact network to a larger one that computes the same, so that training goes on where it was.

The larger architecture has all blocks of the smaller one, each at least as wide, with at least its kernel and
expansion, and more blocks behind them in some stages (:func:`contains`):

- wider layers: old channels come first, with their norms and statistics; new ones are initialised as in a new network,
  and the weights by which old channels read them are zero. (Net2Net's copies of old channels keep the function too, but
  have nearly equal gradients and stay together for long.)
- larger kernels are the smaller ones with zeros around;
- an added residual block ends in a norm of weight zero; an added plain block copies its input, which is never negative.

Outputs are equal in evaluation mode. In training mode they are as well, but for added plain blocks, whose norm knows
the statistics of its input only where ``images`` are given.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.spaces.compact import Compact, CompactArchitecture
from archwright.spaces.compact_network import BasicBlock, CompactNetwork, FusedBlock, InvertedBlock, PlainBlock
from archwright.supernets.shrink import contains


@torch.no_grad()
def grow(
    network: CompactNetwork,
    smaller: CompactArchitecture,
    larger: CompactArchitecture,
    space: Compact,
    seed: int,
    images: Tensor | None = None,
) -> CompactNetwork:
    """A network of ``larger`` with the same outputs as ``network``, which is of ``smaller`` and stays as it is.

    Args:
        network: trained.
        smaller: its architecture.
        larger: what it becomes.
        space: of both, at the scale of ``network``.
        seed: of the weights that do not count yet.
        images: (B, C, H, W), some training images as the network sees them; added plain blocks take the statistics of
            their inputs from these.
    """
    if not contains(larger, smaller):
        raise InputError(
            "a larger architecture with all blocks of the smaller one, each as wide at least",
            f"{larger} for {smaller}",
            "Blocks are added behind the others of a stage; kinds stay.",
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        grown = space.build(larger, space.scale)
    assert isinstance(grown, CompactNetwork)
    grown.to(next(network.parameters()).device)
    for old_stage, new_stage in zip(network.stages, grown.stages, strict=True):
        old_blocks, new_blocks = list(old_stage.children()), list(new_stage.children())
        for old, new in zip(old_blocks, new_blocks, strict=False):
            _copy(old, new)
        for added in new_blocks[len(old_blocks) :]:
            _change_nothing(added)
    _copy(network.end, grown.end)
    if images is not None:
        _learn_statistics(network, grown.eval(), images)
    return grown.train(network.training)


def _copy(old: nn.Module, new: nn.Module) -> None:
    """Put every tensor of ``old`` into the corner of ``new``'s that old channels have; these read no new ones."""
    targets = dict(_tensors(new))
    for name, given in _tensors(old):
        target = targets[name]
        corner = tuple(slice(size) for size in given.shape[:2])
        if given.ndim == 4:
            margin = (target.shape[-1] - given.shape[-1]) // 2
            target[: len(given)] = 0.0
            target[corner] = nn.functional.pad(given, (margin,) * 4)
        elif given.ndim == 2:
            target.zero_()
            target[corner] = given
        else:
            target[corner] = given


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from ((name, buffer) for name, buffer in module.named_buffers() if buffer.ndim)


def _change_nothing(block: nn.Module) -> None:
    """Make an added block the identity."""
    if isinstance(block, PlainBlock):
        nn.init.dirac_(block.conv.weight)
        nn.init.constant_(block.norm.weight, (1.0 + block.norm.eps) ** 0.5)  # statistics are still mean 0, variance 1
    elif isinstance(block, BasicBlock):
        nn.init.zeros_(block.norm2.weight)
    else:
        assert isinstance(block, FusedBlock | InvertedBlock)
        nn.init.zeros_(block.project_norm.weight)


def _learn_statistics(network: CompactNetwork, grown: CompactNetwork, images: Tensor) -> None:
    """Give added plain blocks the statistics of their inputs, and the scale and shift that undo them."""
    x = images
    for old_stage, new_stage in zip(network.stages, grown.stages, strict=True):
        for number, block in enumerate(new_stage.children()):
            if number >= len(list(old_stage.children())) and isinstance(block, PlainBlock):
                variance, mean = torch.var_mean(x, dim=(0, 2, 3), correction=0)
                assert block.norm.running_mean is not None
                assert block.norm.running_var is not None
                block.norm.running_mean.copy_(mean)
                block.norm.running_var.copy_(variance)
                block.norm.weight.copy_((variance + block.norm.eps).sqrt())
                block.norm.bias.copy_(mean)
            x = block(x)
