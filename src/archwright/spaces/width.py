"""Networks that exist, thinner: which channels of each layer stay.

An architecture is a value: for each group of channels (named after its first convolution) the channels that stay. The
text is JSON with ranges, ``{"blocks.0.conv1": "0-3,7"}``. A space belongs to one network, named ``width:resnet20`` or,
of a user's own, ``width:MODULE:FUNCTION``: a function that makes the network, and may take ``classes``,
``image_size`` and ``image_channels``. A network of another space is named by JSON, ``width:{"space": ...,
"architecture": ..., "scale": {...}}``, which is what a saved model says of itself.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from archwright.errors import InputError
from archwright.imports import check_shape
from archwright.owncode import called, own_code
from archwright.references import ObjectRef, SpaceRef, resolve, saved_network
from archwright.spaces.attention import with_heads
from archwright.spaces.base import Architecture, Encoding, Network, Scale, Space
from archwright.spaces.channel_groups import Channels
from archwright.spaces.choice_space import check_logits, own_network
from archwright.spaces.known_networks import NETWORKS, build_known
from archwright.spaces.operations import Cost
from archwright.strict import parse_json

MOST_COUNTED = 1_000_000
"""The highest number of a channel in a text, far above that of any layer: ranges are written out."""


@dataclass(frozen=True)
class Width(Architecture):
    """The channels that stay in each group."""

    text: str

    @classmethod
    def of(cls, channels: Mapping[str, Iterable[int]]) -> Width:
        """From the channels' numbers."""
        return cls(json.dumps({name: _ranges(sorted({int(one) for one in kept})) for name, kept in channels.items()}))

    @property
    def channels(self) -> dict[str, list[int]]:
        """The channels' numbers, by group."""
        return {name: _numbers(text) for name, text in json.loads(self.text).items()}

    @property
    def widths(self) -> dict[str, int]:
        """How many stay, by group."""
        ends = {name: [part.partition("-") for part in text.split(",")] for name, text in json.loads(self.text).items()}
        return {name: sum(int(high or low) - int(low) + 1 for low, _, high in parts) for name, parts in ends.items()}

    @property
    def count(self) -> int:
        """How many stay in all."""
        return sum(map(len, self.channels.values()))

    def __str__(self) -> str:
        return self.text


def _ranges(numbers: list[int]) -> str:
    """``0-3,7`` for [0, 1, 2, 3, 7]."""
    parts: list[list[int]] = []
    for one in numbers:
        if parts and parts[-1][-1] == one - 1:
            parts[-1][1:] = [one]
        else:
            parts.append([one])
    return ",".join("-".join(map(str, part)) for part in parts)


def _numbers(text: str) -> list[int]:
    """The numbers that :func:`_ranges` wrote."""
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        if int(high or low) > MOST_COUNTED:
            raise ValueError(f"a channel above {MOST_COUNTED:,}")
        found += range(int(low), int(high or low) + 1)
    return found


class WidthSpace(Space[Width]):
    """All ways to thin one network, with at least one channel of each group left.

    Args:
        network: a known one's name, ``MODULE:FUNCTION``, or a saved one's space, architecture and scale as JSON.
        scale: of the network; its published width on small images by default.
    """

    operations: ClassVar[tuple[str, ...]] = ("gone", "stays")
    widths_in_architecture: ClassVar[bool] = True

    def __init__(self, network: str, scale: Scale | None = None) -> None:
        self.network, self.name = network, str(SpaceRef("width", network))
        self._saved = saved_network(network) if network.startswith("{") else None
        if self._saved is not None:
            inner = self._inner_scale
            usual = Scale(1, 1, inner.classes, inner.image_size, inner.image_channels)
            self.scales = {"small": usual, "paper": usual}  # type: ignore[misc]
            self.scale = scale or usual
            return
        if ObjectRef.find(network) is None and network not in NETWORKS:
            raise InputError(
                f"a network among {', '.join(NETWORKS)}, or your own as MODULE:FUNCTION or FILE.py:FUNCTION",
                repr(network),
            )
        own = ObjectRef.find(network)
        if own is not None and not own.is_local:
            check_shape(own, "network")
        usual = Scale(channels=NETWORKS[network].channels if self.is_known else 1, cells=1)
        self.scales = {"small": usual, "paper": usual}  # type: ignore[misc]
        self.scale = scale or usual

    @property
    def is_known(self) -> bool:
        """Whether it is one of ours."""
        return self.network in NETWORKS

    @cached_property
    def _inner(self) -> Space[Any]:
        """The space of the saved network."""
        from archwright.spaces.registry import find_space

        assert self._saved is not None
        return find_space(self._saved["space"])

    @cached_property
    def _inner_scale(self) -> Scale:
        assert self._saved is not None
        return self._inner.scale_from(self._saved["scale"])

    @property
    def shown(self) -> str:
        """The network, for people."""
        return self.network if self._saved is None else f"the saved network of {self._saved['space']}"

    def at_scale(self, scale: Scale) -> WidthSpace:
        """The space of the network for these images, classes and width; the structure is found once."""
        return _space_at(self.network, scale)

    def check_scale(self, scale: Scale) -> None:
        """Also refuses a width of a user's own network, and images that are too small."""
        scale.check_bounds()
        usual = self.scales["small"]
        if scale.cells != 1:
            raise InputError(f"no --cells with the network {self.network}", str(scale.cells))
        if not self.is_known and scale.channels != usual.channels:
            raise InputError(f"no --channels with your own network {self.shown}", str(scale.channels))
        if self._saved is not None:
            known, asked = ((one.classes, one.image_channels) for one in (self._inner_scale, scale))
            if known != asked:
                raise InputError(
                    f"images of {known[1]} channel(s) in {known[0]} classes, as {self.shown} has them",
                    f"{asked[1]} channel(s) in {asked[0]} classes",
                )
        least = NETWORKS[self.network].least_pixels if self.is_known else 2
        if scale.image_size < least:
            raise InputError(f"images of at least {least} px for {self.network}", f"{scale.image_size} px")

    def total_stride(self, scale: Scale) -> int:
        """The least image size."""
        return NETWORKS[self.network].least_pixels if self.is_known else 2

    # --- the network ---

    @property
    def makers(self) -> tuple[Any, ...]:
        """Also a user's own function."""
        if self._saved is not None:
            return (type(self), *self._inner.makers)
        return (type(self),) if self.is_known else (type(self), resolve(self.network, "network"))

    def whole(self) -> Network:
        """The network with all its channels, as it is made; of a user's own, with the weights it comes with."""
        if self.is_known:
            return build_known(self.network, self.scale)
        if self._saved is not None:
            scale = self._inner_scale.changed(image_size=self.scale.image_size)
            with torch.device("cpu"):
                made = self._inner.build(self._inner.at_scale(scale).parse(self._saved["architecture"]), scale)
            return with_heads(made)  # type: ignore[return-value]
        make = resolve(self.network, "network")
        if not callable(make):
            raise InputError("a function that makes a network", f"{type(make).__name__} at {self.network}")
        known = {name: getattr(self.scale, name) for name in ("classes", "image_size", "image_channels")}
        with torch.device("cpu"):
            network = called(make, known, f"your function {self.network}")
        return with_heads(own_network(network, f"your function {self.network}"))  # type: ignore[return-value]

    @cached_property
    def structure(self) -> Channels:
        """Which channels go together."""
        self.check_scale(self.scale)
        with torch.random.fork_rng(devices=[]), own_code(f"your network {self.shown} to be traced"):
            network = self.whole()
            structure = Channels(network, self.scale)
            if not self.is_known:
                example = torch.zeros(1, self.scale.image_channels, self.scale.image_size, self.scale.image_size)
                check_logits(network.eval()(example), self.scale.classes, f"your network {self.shown}")
        if not structure.groups:
            raise InputError(
                f"a network with channels to remove beside its first layer ({structure.first}) and its classifier",
                f"{self.shown} without",
            )
        return structure

    def removed(self, network: nn.Module, width: Width) -> nn.Module:
        """A copy of ``network``, which has all channels, with only those of ``width``."""
        thin = copy.deepcopy(network).cpu()
        self.structure.remove(thin, self.scale, width.channels)
        return thin

    def build(self, architecture: Width, scale: Scale) -> Network:
        """The thinned network, freshly made."""
        space = self if scale == self.scale else self.at_scale(scale)
        thin = space.removed(space.whole(), architecture)
        assert isinstance(thin, Network)
        return thin

    def cost(self, architecture: Width, scale: Scale) -> Cost:
        """Counted by formula, from the structure of the whole network."""
        space = self if scale == self.scale else self.at_scale(scale)
        return space.structure.cost(architecture.channels)

    # --- the values ---

    @cached_property
    def sizes(self) -> dict[str, int]:
        """How many channels each group has."""
        return {group.name: group.channels for group in self.structure.groups}

    @property
    def full(self) -> Width:
        """The whole network: all channels stay."""
        return Width.of({name: range(size) for name, size in self.sizes.items()})

    @property
    def size(self) -> int:
        """Every non-empty set of channels of each group."""
        total = 1
        for size in self.sizes.values():
            total *= 2**size - 1
        return total

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """One row a channel: it goes, or it stays."""
        return {name: (size, 2) for name, size in self.sizes.items()}

    def sample(self, rng: np.random.Generator) -> Width:
        """Every channel stays or goes by a coin; of a group that would be empty one stays."""
        found = {}
        for name, size in self.sizes.items():
            stays = np.flatnonzero(rng.integers(2, size=size))
            found[name] = stays if len(stays) else rng.integers(size, size=1)
        return Width.of(found)

    def parse(self, text: str) -> Width:
        """The architecture written as JSON, one text of ranges a group."""
        try:
            values = parse_json(text, unique=True)
            kept = {name: _numbers(ranges) for name, ranges in values.items()}
        except (ValueError, AttributeError) as error:
            raise InputError('kept channels as JSON, as {"conv1": "0-3,7"}', f"{text[:80]!r} ({error})") from error
        if list(kept) != list(self.sizes):
            odd = sorted(set(kept) ^ set(self.sizes)) or ["another order"]
            raise InputError(f"kept channels of each of the {len(self.sizes)} groups of {self.shown}", odd[0])
        for name, numbers in kept.items():
            if not numbers or sorted(set(numbers)) != numbers or numbers[-1] >= self.sizes[name] or numbers[0] < 0:
                raise InputError(f"rising channels from 0 to {self.sizes[name] - 1} of {name}", values[name][:80])
        return Width.of(kept)

    def encode(self, architecture: Width) -> Encoding:
        """One row a channel of each group: (1, 0) where it is gone, (0, 1) where it stays."""
        found: Encoding = {}
        for name, kept in architecture.channels.items():
            found[name] = np.zeros((self.sizes[name], 2), dtype=np.int8)
            found[name][:, 0] = 1
            found[name][kept] = (0, 1)
        return found

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> Width:
        """The architecture of one-hot rows."""
        rows = self.check_encoding(encoding)
        for name, row in rows.items():
            if not (row.sum(axis=1) == 1).all() or not row[:, 1].any():
                raise InputError(f"one choice a channel, and one that stays, for {name!r}", "another encoding")
        return Width.of({name: np.flatnonzero(rows[name][:, 1]) for name in self.sizes})

    def neighbours(self, architecture: Width) -> list[Width]:
        """One channel more or less."""
        kept, found = architecture.channels, []
        for name, size in self.sizes.items():
            for channel in range(size):
                changed = sorted(set(kept[name]) ^ {channel})
                if changed:
                    found.append(Width.of({**kept, name: changed}))
        return found

    def crossover(self, first: Width, second: Width, rng: np.random.Generator) -> Width:
        """Each group from one of the parents."""
        parents = first.channels, second.channels
        return Width.of({name: parents[int(rng.integers(2))][name] for name in self.sizes})

    def canonical(self, architecture: Width) -> Width:
        """The architecture as it is: channels differ by their weights, so no two ways to thin are the same."""
        return architecture

    def is_connected(self, architecture: Width) -> bool:
        """Always: every group keeps a channel."""
        return True


@lru_cache(maxsize=8)
def _space_at(network: str, scale: Scale) -> WidthSpace:
    return WidthSpace(network, scale)
