"""The supernet of a user's own network: the network itself, whose choices mix their options by weights.

It meets the contract of :mod:`archwright.supernets.base`: one row of weights a decision. Nothing but the options that
run is called, so that the batch norm of one that is off sees nothing. Batch-norm policy as in
:mod:`archwright.supernets.cell`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from archwright.nn import outermost, take
from archwright.owncode import own_code
from archwright.spaces.base import Architecture, Network, Scale
from archwright.spaces.choice_space import Combination, OwnNetwork
from archwright.spaces.model_choices import guided, named, without_in_place
from archwright.spaces.model_space import ModelSpace
from archwright.supernets.base import Active, Statistics, Supernet, Weights
from archwright.supernets.mixing import Mixing
from archwright.supernets.parallel import set_statistics


class ModelSupernet(Supernet):
    """All architectures of a user's network in one.

    Args:
        space: of the network.
        scale: as for a stand-alone network.
        statistics: batch-norm policy.
    """

    space: ModelSpace

    def __init__(self, space: ModelSpace, scale: Scale, *, statistics: Statistics = "batch") -> None:
        super().__init__()
        space.check_scale(scale)
        shapes = space.shapes(scale)
        self.space, self.scale, self.statistics = space, scale, statistics
        self.network = space.whole(scale)
        places = named(self.network)
        for place, one in places.items():
            one.keeps_shape = shapes[place].keeps_shape
        self.choices = list(places.values())  # a plain list: they are parts of the network already
        without_in_place(self.network)
        set_statistics(self.network, statistics)

    def forward(self, x: Tensor, weights: Weights, active: Active | None = None) -> Tensor:
        """Images (B, C, H, W) and weights (1, options) by decision to logits (B, classes).

        Args:
            x: images.
            weights: of the options.
            active: which options run.
        """
        running = self.active_operations(weights) if active is None else active
        with guided(self.choices, Mixing(weights, running)), own_code(f"your network {self.space.title}"):
            logits: Tensor = self.network(x)
        return logits

    def identity(self) -> dict[str, Any]:
        """Space, with the digest of the network's code, scale and batch-norm policy."""
        return {"space": self.space.supernet_name, "scale": self.scale.to_dict(), "statistics": self.statistics}

    def inherit(self, architecture: Architecture) -> Network:
        """The stand-alone network with this supernet's weights and statistics, copied."""
        assert isinstance(architecture, Combination)
        ours = take(_shallow(self.network), self.space.picks_of(architecture))
        network = self.space.build(architecture, self.scale)
        assert isinstance(network, OwnNetwork)
        network.to(next(iter(self.network.parameters())).device)
        missing, unexpected = network.body.load_state_dict(ours.state_dict(), strict=False)
        norms = {name for name, module in network.body.named_modules() if isinstance(module, _BatchNorm)}
        wrong = [key for key in missing if key.rpartition(".")[0] not in norms] + list(unexpected)
        if wrong:
            raise RuntimeError(f"the supernet does not cover {wrong}")
        return network

    def operation_weights(self) -> Iterator[tuple[Tensor, int, list[int]]]:
        """Every parameter inside a choice, with the innermost option that it is in."""
        number, owner = 0, dict[int, tuple[Tensor, int]]()

        def walk(module: nn.Module) -> None:
            nonlocal number
            for _, one in outermost(module):
                for _, part in one.inner():
                    own = list(part.parameters())
                    owner.update({id(weight): (weight, number) for weight in own})
                    number += bool(own)
                    walk(part)

        walk(self.network)
        numbers = {old: new for new, old in enumerate(sorted({number for _, number in owner.values()}))}
        for weight, own in owner.values():
            yield weight, 1, [numbers[own]]


def load_by_key(network: nn.Module, state: Mapping[str, Tensor]) -> tuple[int, int]:
    """Put weights into a network with choices, by key; gives how many were taken, and how many tensors there are.

    A key is that of the network with all its choices, or of the network as written, in which a choice's first option
    stands in its place.

    Args:
        network: changed in place.
        state: tensors by key.
    """
    whole, places = network.state_dict(), named(network)
    twin = take(_shallow(network), {one.decision: one.options[0] for one in places.values()})
    same = {tensor.data_ptr(): key for key, tensor in twin.state_dict().items() if tensor.numel()}
    taken = 0
    with torch.no_grad():
        for key, tensor in whole.items():
            for name in (key, same.get(tensor.data_ptr(), "")):
                if name in state and state[name].shape == tensor.shape:
                    tensor.copy_(state[name])
                    taken += 1
                    break
    return taken, len(whole)


def _shallow(network: nn.Module) -> nn.Module:
    """A copy of the modules that has the same tensors."""
    memo = {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())}
    return copy.deepcopy(network, memo)
