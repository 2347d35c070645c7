"""What a search space is, and what everything built from it shares.

The contract (checked for every registered space by :func:`archwright.testing.check_space`):

- an :class:`Architecture` is a frozen, hashable value; ``str(architecture)`` is its one canonical text and
  ``space.parse`` inverts it;
- ``encode`` and ``decode`` are inverse 0/1 forms with the shapes of ``decisions``;
- randomness comes only from the generator passed in;
- ``cost`` counts without building; ``build`` gives a :class:`Network` at any :class:`Scale`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from archwright.bounds import MOST_CELLS, MOST_CHANNELS, MOST_CLASSES, MOST_PIXELS
from archwright.errors import InputError, unknown_name
from archwright.spaces.operations import Cost, DropPath
from archwright.strict import from_plain

Encoding = dict[str, NDArray[np.int8]]


class Architecture:
    """A point of a space: a frozen value whose text (``str``) parses back. Subclasses are frozen dataclasses."""

    __slots__ = ()


A = TypeVar("A", bound=Architecture)


_MOST = {
    "channels": MOST_CHANNELS,
    "cells": MOST_CELLS,
    "classes": MOST_CLASSES,
    "image_size": MOST_PIXELS,
    "image_channels": 3,
}


@dataclass(frozen=True)
class Scale:
    """Everything about a network that the architecture does not say.

    Attributes:
        channels: of the first cell.
        cells: per stage in ``nasbench201`` and ``nasbench1shot1``, in total in ``darts``.
        classes: outputs of the classifier.
        image_size: height and width of the input.
        image_channels: 1 for grey, 3 for colour.
        stem: ``plain`` keeps the image size, ``imagenet`` divides it by eight.
        auxiliary: whether a second classifier at two thirds of the depth helps training.
        pool_norm: whether pooling is followed by a batch norm, as in the search network of DARTS.
    """

    channels: int
    cells: int
    classes: int = 10
    image_size: int = 32
    image_channels: int = 3
    stem: Literal["plain", "imagenet"] = "plain"
    auxiliary: bool = False
    pool_norm: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON; ``Scale(**d)`` inverts it."""
        return asdict(self)

    def check_bounds(self) -> None:
        """Refuse sizes that no network on one machine has."""
        for field, most in _MOST.items():
            if not 1 <= getattr(self, field) <= most:
                raise InputError(f"{field} from 1 to {most:,}", str(getattr(self, field)))

    def changed(self, **changes: Any) -> Self:
        """A copy with some fields replaced; None leaves a field as it is."""
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise unknown_name("field of a scale", name, known)
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


class Network(nn.Module):
    """A stand-alone network of some space: ``forward(x)`` gives logits (B, classes)."""

    def with_auxiliary(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Logits and, where the network has a second classifier and is in training, its logits."""
        return self(x), None

    @property
    def has_auxiliary(self) -> bool:
        """Whether there is a second classifier."""
        return False

    @property
    def has_drop_path(self) -> bool:
        """Whether there are paths that training can drop."""
        return any(isinstance(module, DropPath) for module in self.modules())

    @property
    def drop_path(self) -> float:
        """Probability with which training drops a path."""
        return next((module.p for module in self.modules() if isinstance(module, DropPath)), 0.0)

    @drop_path.setter
    def drop_path(self, probability: float) -> None:
        for module in self.modules():
            if isinstance(module, DropPath):
                module.p = probability


class Space(ABC, Generic[A]):
    """A set of architectures: how to make, read, write, encode, vary, count and build them."""

    name: str
    operations: ClassVar[tuple[str, ...]]
    """Names of the candidate operations, in the order of the columns of an encoding."""
    scales: ClassVar[Mapping[str, Scale]]
    """Named scales: ``paper`` (the published evaluation network), ``search`` and ``small`` (fits a laptop)."""
    widths_in_architecture: ClassVar[bool] = False
    """Whether an architecture says its own widths, so that the space depends on the scale (see :meth:`at_scale`)."""
    any_encoding: ClassVar[bool] = False
    """Whether every 0/1 array of the right shape is the encoding of an architecture."""
    counts_memory: ClassVar[bool] = False
    """Whether :meth:`memory_bytes` is there."""
    additive_costs: ClassVar[bool] = False
    """Whether each change that :meth:`neighbours` makes costs the same whatever the rest of the architecture is."""

    proxy_size: ClassVar[int] = 8
    """Image size at which training-free scores of the space's small networks rank it well, in pixels."""

    scored_whole: ClassVar[bool] = False
    """Whether networks are scored at the size of the images, as nobody knows how small an image they take."""

    def proxy_scale(self, channels: int, cells: int, classes: int, image_size: int, image_channels: int) -> Scale:
        """The scale of the small networks that training-free metrics score; refused where there are none.

        Args:
            channels: of the first cell.
            cells: a stage or in all, as the space counts them.
            classes: outputs of the classifier.
            image_size: height and width of the images, in pixels.
            image_channels: 1 for grey, 3 for colour.
        """
        if not self.builds_networks:
            raise InputError(
                "a space with networks for training-free scores", f"the space {self.name!r}, which builds none"
            )
        return Scale(channels, cells, classes, image_size, image_channels)

    @property
    def makers(self) -> tuple[Any, ...]:
        """Classes and functions whose code makes the networks."""
        return (type(self),)

    @property
    def builds_networks(self) -> bool:
        """Whether :meth:`build` and :meth:`cost` work; a space without serves only a user's own function."""
        return True

    def at_scale(self, scale: Scale) -> Space[A]:
        """The space of the architectures that networks of ``scale`` have: itself, unless they say their own widths."""
        return self

    def scale_from(self, values: Mapping[str, Any]) -> Scale:
        """Inverse of ``Scale.to_dict`` for scales of this space."""
        return from_plain(Scale, values, f"a scale of the space {self.name}")

    def named_scale(self, name: str, classes: int, image_size: int, image_channels: int) -> Scale:
        """A named scale, set to the data's images and classes.

        Args:
            name: one of :attr:`scales`.
            classes: outputs of the classifier.
            image_size: height and width of the images, in pixels.
            image_channels: 1 for grey, 3 for colour.
        """
        if name not in self.scales:
            raise unknown_name(f"scale of the space {self.name}", name, self.scales)
        return self.scales[name].changed(classes=classes, image_size=image_size, image_channels=image_channels)

    @property
    @abstractmethod
    def size(self) -> int:
        """How many architectures there are."""

    def enumerated(self) -> Iterator[A] | None:
        """All architectures, one after another; None where nobody could wait for them."""
        return None

    @property
    @abstractmethod
    def decisions(self) -> dict[str, tuple[int, int]]:
        """Shape (slots, choices) of each named decision; an architecture is a 0/1 array of each shape."""

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> A:
        """A uniformly random architecture."""

    @abstractmethod
    def parse(self, text: str) -> A:
        """The architecture written as ``text``; malformed text is an :class:`InputError` that says where."""

    def format(self, architecture: A) -> str:
        """The canonical text, ``str(architecture)``."""
        return str(architecture)

    @abstractmethod
    def encode(self, architecture: A) -> Encoding:
        """0/1 arrays with the shapes of :attr:`decisions`."""

    @abstractmethod
    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> A:
        """The architecture of a 0/1 encoding; anything else is an :class:`InputError`."""

    @abstractmethod
    def neighbours(self, architecture: A) -> list[A]:
        """All architectures one change away, without repeats and without the architecture itself."""

    def mutate(self, architecture: A, rng: np.random.Generator) -> A:
        """A uniformly random neighbour of ``architecture``, drawn by ``rng``."""
        neighbours = self.neighbours(architecture)
        return neighbours[int(rng.integers(len(neighbours)))]

    @abstractmethod
    def crossover(self, first: A, second: A, rng: np.random.Generator) -> A:
        """A child that takes each part from one of its parents, ``first`` or ``second``, as ``rng`` draws it."""

    @abstractmethod
    def canonical(self, architecture: A) -> A:
        """The representative of all architectures that are the same function up to the naming of weights."""

    @abstractmethod
    def is_connected(self, architecture: A) -> bool:
        """Whether the output depends on the input."""

    @abstractmethod
    def build(self, architecture: A, scale: Scale) -> Network:
        """A freshly initialised network (PyTorch's default initialisation).

        Args:
            architecture: of this space.
            scale: everything about the network that ``architecture`` does not say.
        """

    @abstractmethod
    def cost(self, architecture: A, scale: Scale) -> Cost:
        """Parameters and multiply-accumulates of ``build(architecture, scale)`` in inference, counted by formula.

        Operations that nothing reaches count like the others (as in the benchmarks' tables), though they never run.
        """

    def memory_bytes(self, architecture: A, scale: Scale) -> int:
        """Bytes of the weights and of all activations of one image in float32, where the space :attr:`counts_memory`.

        Args:
            architecture: of this space.
            scale: of its network.
        """
        raise NotImplementedError(f"the space {self.name} does not count memory")

    def total_stride(self, scale: Scale) -> int:
        """By how much the network shrinks an image; smaller images cannot be used."""
        return 32 if scale.stem == "imagenet" else 4

    def check_encoding(self, encoding: Mapping[str, NDArray[Any]]) -> Encoding:
        """``encoding`` as 0/1 arrays of the shapes of :attr:`decisions`; anything else is an error."""
        if set(encoding) != set(self.decisions):
            raise InputError(f"the decisions {', '.join(self.decisions)}", f"{', '.join(encoding) or 'none'}")
        return {name: check_one_hot(name, encoding[name], shape) for name, shape in self.decisions.items()}

    def check_scale(self, scale: Scale) -> None:
        """Refuse a scale that no network can have, before anything is built."""
        scale.check_bounds()
        if scale.channels % 2:
            raise InputError("an even number of channels", str(scale.channels))
        stride = self.total_stride(scale)
        if scale.image_size < stride:
            raise InputError(
                f"images of at least {stride} px (the network's total stride)",
                f"{scale.image_size} px",
                "Use larger images (--image-size) or a space with fewer reductions.",
            )


def check_one_hot(name: str, array: NDArray[Any], shape: tuple[int, int]) -> NDArray[np.int8]:
    """``array`` as a 0/1 array of ``shape``; anything else is an error that says the decision's ``name``."""
    given = np.asarray(array)
    if given.shape != shape or not np.isin(given, (0, 1)).all():
        raise InputError(f"a 0/1 array of shape {shape} for the decision {name!r}", f"{given.shape} of {given.dtype}")
    return given.astype(np.int8)
