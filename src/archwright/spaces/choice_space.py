"""A whole space in one line: named choices, of which an architecture takes one each.

    ChoiceSpace({"depth": [2, 3, 4], "width": Integer(8, 256, log=True), "activation": ["relu", "silu"]})

It serves a user's own function (``evaluate=``), and with ``build`` it makes networks to be trained like any other.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from archwright.errors import InputError
from archwright.owncode import own_code
from archwright.paths import read_plain, user_path
from archwright.references import SpaceRef
from archwright.spaces.base import Architecture, Encoding, Network, Scale, Space
from archwright.spaces.counting import count_network
from archwright.spaces.operations import Cost
from archwright.spaces.ranges import Range
from archwright.strict import parse_json

_ENUMERATED = 100_000
"""Spaces up to this many architectures can be listed whole."""


@dataclass(frozen=True)
class Combination(Architecture, Mapping[str, Any]):
    """One value for each name, read like a dict (``architecture["depth"]``, ``dict(architecture)``), JSON as text."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __getitem__(self, name: str) -> Any:
        return json.loads(self.text)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(json.loads(self.text))

    def __len__(self) -> int:
        return len(json.loads(self.text))


Build = Callable[[Combination, Scale], nn.Module]


class ChoiceSpace(Space[Combination]):
    """All combinations of the given choices.

    Args:
        choices: for each name the values it may take, each of them plain JSON, or a range of numbers
            (:func:`~archwright.spaces.ranges.Real`, :func:`~archwright.spaces.ranges.Integer`).
        build: makes the network of an architecture for images and classes of a scale; without it the space has no
            networks, and a search needs a function that evaluates architectures.
        name: for people.

    Example:
        >>> space = ChoiceSpace({"depth": [2, 3], "width": [16, 32, 64]})
        >>> space.size, str(space.parse('{"width": 32, "depth": 2}'))
        (6, '{"depth": 2, "width": 32}')
    """

    operations: ClassVar[tuple[str, ...]] = ("choice",)
    scales: ClassVar[Mapping[str, Scale]] = {"small": Scale(channels=16, cells=1)}

    def __init__(
        self, choices: Mapping[str, Iterable[Any] | Range], build: Build | None = None, name: str = "choices"
    ) -> None:
        self.name = name
        if not isinstance(choices, Mapping) or not choices:
            raise InputError('choices such as {"depth": [2, 3], "width": [16, 32]}', repr(choices))
        self.ranges = {key: found for key, given in choices.items() if (found := _range(key, given)) is not None}
        listed: dict[str, Any] = {**choices, **{key: one.levels for key, one in self.ranges.items()}}
        self.choices = _checked(listed)
        self._build = build
        self._texts = {name: [json.dumps(value) for value in values] for name, values in self.choices.items()}
        self._costs: dict[tuple[Combination, Scale], Cost] = {}

    @classmethod
    def from_spec(cls, named: SpaceRef) -> ChoiceSpace:
        """Of the kind ``choices``: JSON such as ``{"depth": [2, 3]}``, or the path of a file with it."""
        try:
            content = named.argument if named.path is None else read_plain(user_path(named.argument))
            choices = parse_json(content, unique=True)
        except (OSError, ValueError) as error:
            raise InputError(
                'a JSON object or a file with one after choices:, as {"depth": [2, 3]}', str(error)
            ) from error
        if not isinstance(choices, dict):
            raise InputError("a JSON object after choices:", type(choices).__name__)
        return cls(choices)

    @property
    def spec(self) -> str | None:
        """The text that makes this space again; None where it builds networks, for which there is no text."""
        said = {
            name: self.ranges[name].to_json() if name in self.ranges else self.choices[name] for name in self.choices
        }
        return None if self._build else str(SpaceRef("choices", json.dumps(said)))

    @property
    def makers(self) -> tuple[Any, ...]:
        """Also the user's function."""
        return (type(self),) if self._build is None else (type(self), self._build)

    @property
    def builds_networks(self) -> bool:
        """Whether the space was given a function that builds them."""
        return self._build is not None

    @property
    def size(self) -> int:
        """How many combinations there are."""
        return math.prod(map(len, self.choices.values()))

    def enumerated(self) -> Iterator[Combination] | None:
        """All combinations, the last choice changing fastest."""
        if self.size > _ENUMERATED:
            return None
        ranges = [range(len(values)) for values in self.choices.values()]
        return (self._combination(picks) for picks in itertools.product(*ranges))

    @property
    def decisions(self) -> dict[str, tuple[int, int]]:
        """One row a name, one column a value."""
        return {name: (1, len(values)) for name, values in self.choices.items()}

    def _combination(self, picks: Iterable[int]) -> Combination:
        """The architecture with these positions, one for each name."""
        pairs = zip(self._texts.items(), picks, strict=True)
        values = ", ".join(f"{json.dumps(name)}: {texts[int(pick)]}" for (name, texts), pick in pairs)
        return Combination("{" + values + "}")

    def _picks(self, architecture: Combination) -> list[int]:
        values = json.loads(architecture.text)
        return [texts.index(json.dumps(values[name])) for name, texts in self._texts.items()]

    def sample(self, rng: np.random.Generator) -> Combination:
        """A uniformly random combination."""
        return self._combination(int(rng.integers(len(values))) for values in self.choices.values())

    def parse(self, text: str) -> Combination:
        """The architecture written as a JSON object with one value for each name."""
        try:
            values = parse_json(text, unique=True)
        except ValueError as error:
            raise InputError(f"a JSON object with {', '.join(self.choices)}", f"{text[:80]!r} ({error})") from error
        if not isinstance(values, dict) or set(values) != set(self.choices):
            got = ", ".join(values) if isinstance(values, dict) else type(values).__name__
            raise InputError(f"a value for each of {', '.join(self.choices)}", got or "none")
        return self._combination([self._position(name, values[name]) for name in self._texts])

    def _position(self, name: str, value: Any) -> int:
        """Where ``value`` is among those of ``name``; of a range the nearest."""
        if name in self.ranges:
            return self.ranges[name].nearest(value)
        texts = self._texts[name]
        if json.dumps(value) not in texts:
            raise InputError(f"one of {', '.join(texts)} for {name!r}", json.dumps(value))
        return texts.index(json.dumps(value))

    def encode(self, architecture: Combination) -> Encoding:
        """One row a choice, with a one at the value that is taken."""
        found: Encoding = {}
        for (name, (_, columns)), pick in zip(self.decisions.items(), self._picks(architecture), strict=True):
            found[name] = np.zeros((1, columns), dtype=np.int8)
            found[name][0, pick] = 1
        return found

    def decode(self, encoding: Mapping[str, NDArray[Any]]) -> Combination:
        """The architecture of one-hot rows."""
        rows = self.check_encoding(encoding)
        for name, row in rows.items():
            if row.sum() != 1:
                raise InputError(f"exactly one choice for {name!r}", str(int(row.sum())))
        return self._combination(int(row[0].argmax()) for row in rows.values())

    def neighbours(self, architecture: Combination) -> list[Combination]:
        """Every architecture that differs in one value; in a range by one, two, four ... steps of it."""
        picks = self._picks(architecture)
        return [
            self._combination([*picks[:slot], other, *picks[slot + 1 :]])
            for slot, name in enumerate(self.choices)
            for other in self._others(name, picks[slot])
        ]

    def _others(self, name: str, pick: int) -> list[int]:
        if name in self.ranges:
            return self.ranges[name].moves(pick)
        return [other for other in range(len(self.choices[name])) if other != pick]

    def crossover(self, first: Combination, second: Combination, rng: np.random.Generator) -> Combination:
        """Each value from one of the parents."""
        pairs = zip(self._picks(first), self._picks(second), strict=True)
        return self._combination([pair[int(rng.integers(2))] for pair in pairs])

    def canonical(self, architecture: Combination) -> Combination:
        """Itself: nothing is known of which choices come to the same."""
        return architecture

    def is_connected(self, architecture: Combination) -> bool:
        """Always true: what the values mean is the user's."""
        return True

    def total_stride(self, scale: Scale) -> int:
        """Unknown; an image needs at least a pixel."""
        return 1

    def build(self, architecture: Combination, scale: Scale) -> Network:
        """What the user's function makes of it."""
        if self._build is None:
            raise InputError(
                "a space that builds networks", f"the choices {', '.join(self.choices)} alone", "Give it build=."
            )
        self.check_scale(scale)
        with own_code("the space's build function"):
            network = self._build(architecture, scale)
        return own_network(network, "the space's build function", in_memory=False)

    def cost(self, architecture: Combination, scale: Scale) -> Cost:
        """Counted on the network, built without memory (on torch's ``meta`` device)."""
        key = (architecture, scale)
        if key not in self._costs:
            with torch.device("meta"), torch.random.fork_rng(devices=[]):
                self._costs[key] = count_network(self.build(architecture, scale), scale)
        return self._costs[key]


class OwnNetwork(Network):
    """A user's module in the form of our networks."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, image_channels, H, W) to logits (B, classes)."""
        with own_code("your network"):
            logits: Tensor = self.body(x)
        return logits


def own_network(network: Any, what: str, in_memory: bool = True) -> Network:
    """A user's module in the form of our networks; refused by :func:`check_own_network` where nothing can work on it.

    Args:
        network: what the user's code made.
        what: the code that made it, as "your function net.py:make".
        in_memory: whether its weights must have values.
    """
    check_own_network(network, what, in_memory)
    return network if isinstance(network, Network) else OwnNetwork(network)


def check_own_network(network: Any, what: str, in_memory: bool = True) -> None:
    """Refuse what nothing here can work on.

    Args:
        network: what the user's code made.
        what: the code that made it, as "your function net.py:make".
        in_memory: whether its weights must have values; costs are counted without.
    """
    if not isinstance(network, nn.Module):
        raise InputError(f"a torch module from {what}", type(network).__name__)
    if isinstance(network, torch.jit.ScriptModule):
        raise InputError(f"a module of Python code from {what}", "a compiled ScriptModule", "Give it before torch.jit.")
    weights = list(network.parameters())
    if any(isinstance(weight, UninitializedParameter) for weight in weights):
        do = "Call it once with an image first."
        raise InputError(f"a module with all its weights from {what}", "a lazy one", do)
    if in_memory and any(weight.is_meta for weight in weights):
        raise InputError(f"a module with weights in memory from {what}", "one on the device 'meta'")
    kinds = {str(weight.dtype).removeprefix("torch.") for weight in weights}
    if kinds - {"float32"}:
        raise InputError(f"weights of type float32 from {what}", ", ".join(sorted(kinds)), "Call .float() on it.")


def check_logits(logits: Any, classes: int, what: str) -> None:
    """Refuse what a user's network gave for a batch of images where it is no (images, classes) of numbers.

    Args:
        logits: what it gave.
        classes: that there are.
        what: the network, as "your network net.py:make".
    """
    good = isinstance(logits, Tensor) and logits.ndim == 2 and logits.shape[1] == classes
    if not good or not logits.is_floating_point():
        got = f"{logits.dtype} {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise InputError(f"logits (images, {classes}) from {what}", got)


def _range(name: str, given: Any) -> Range | None:
    """The range that is given for a choice; None where its values are listed."""
    if isinstance(given, Range):
        return given
    return Range.from_json(name, given) if isinstance(given, Mapping) else None


def _checked(choices: Mapping[str, Iterable[Any]]) -> dict[str, list[Any]]:
    """Names with at least one plain value each and two architectures in all."""
    found: dict[str, list[Any]] = {}
    for name, values in choices.items():
        if not isinstance(name, str) or isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise InputError("a list of values for each name", f"{values!r} for {name!r}")
        found[name] = [value.item() if isinstance(value, np.generic) else value for value in values]
        try:
            texts = [json.dumps(value, allow_nan=False) for value in found[name]]
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"plain JSON values for {name!r}", str(error)) from error
        # True, 1 and 1.0 are one value to Python, and to whoever compares what a function of theirs is given.
        plain = [value for value in found[name] if isinstance(value, bool | int | float | str)]
        if not texts or len(set(texts)) < len(texts) or len(set(plain)) < len(plain):
            raise InputError(f"different values for {name!r}, one at least", ", ".join(texts) or "none")
    if math.prod(map(len, found.values())) < 2:
        raise InputError("at least two architectures in a space", f"one: {found}")
    return found
