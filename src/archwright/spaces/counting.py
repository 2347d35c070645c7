"""Parameters and multiply-accumulates of a built network, counted from what it calls."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from archwright.spaces.base import Scale
from archwright.spaces.operations import Cost


def count_network(network: nn.Module, scale: Scale) -> Cost:
    """Parameters, and multiply-accumulates of convolutions and matrix products in an evaluation pass of one image.

    Args:
        network: on any device; left in the mode it was in.
        scale: channels and pixels a side of the image.
    """
    parameter = next(network.parameters(), None)
    device = parameter.device if parameter is not None else torch.device("meta")
    was_training = network.training
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network.eval()(torch.empty(1, scale.image_channels, scale.image_size, scale.image_size, device=device))
    network.train(was_training)
    return Cost(sum(one.numel() for one in network.parameters()), counter.get_total_flops() // 2)
