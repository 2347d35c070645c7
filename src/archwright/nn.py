"""Choices inside your own network: put one where a layer goes, and any method of archwright searches it.

    self.body = aw.nn.Choice({"conv3": conv(3), "conv5": conv(5)})             # one of several modules
    self.extra = aw.nn.Optional(conv(3))                                       # a module, or nothing in its place
    self.stage = aw.nn.Depth([block() for _ in range(4)], least=1)             # how many of several modules
    self.pick = aw.nn.Inputs(["before", "after"])                              # one of several tensors

A choice is called like what it stands for. All its options take the same inputs and give one tensor of the same shape.
The first option is the network as you wrote it, so that ``Net()(x)`` means something without any search. Choices of the
same ``name`` are one decision; without a name the decision is called after the place in the network. Choices may stand
inside options of others. What a search finds has no choices left: the chosen module stands in the choice's place.

Values that change shapes, such as widths, are no choices between modules: :class:`archwright.ChoiceSpace` with
``build=`` takes them, and ``width:`` thins the channels of a network.

Nothing here knows a space or a supernet: these guide a choice by a :class:`Guide`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from archwright.errors import InputError

__all__ = ["Choice", "Depth", "Inputs", "Optional", "Zero"]

MOST_OPTIONS = 1000
"""Options of one choice; nobody searches among more."""

Option = nn.Module | Callable[[], nn.Module]
"""A module, or a function that makes it where it is needed: what is large and not taken is then never made."""


UNGUIDED: ContextVar[list[Searched] | None] = ContextVar("UNGUIDED", default=None)
"""Where a list is put here, choices that are called without a guide are noted in it."""


class Guide(ABC):
    """What decides, during a pass through a network, which options of its choices run and what their outputs become."""

    @abstractmethod
    def running(self, choice: Searched) -> Sequence[int]:
        """Columns of ``choice`` that run, rising."""

    def output(self, choice: Searched, column: int, call: Callable[[], Any], inputs: Sequence[Any]) -> Any:
        """What one option gives.

        Args:
            choice: whose option it is.
            column: its number.
            call: runs it.
            inputs: that it is given.
        """
        return call()

    @abstractmethod
    def combine(self, choice: Searched, columns: Sequence[int], outputs: Sequence[Any]) -> Tensor | None:
        """One output of the outputs of the columns that ran; None where they are nothing.

        Args:
            choice: whose options they are.
            columns: that ran.
            outputs: of each, as :meth:`output` gave it; None for one that gives nothing.
        """


class Zero(nn.Module):
    """Nothing: zeros in the shape of the input. Beside it, a residual connection alone remains."""

    def forward(self, x: Tensor, *_others: Any) -> Tensor:
        """Zeros like ``x``; ``_others`` are not looked at."""
        return torch.zeros_like(x)


class Searched(nn.Module):
    """Base of all choices.

    Attributes:
        options: names, the network as written first.
        name: that the user gave; None for the place in the network.
        decision: name of the decision that this place belongs to, known in a space.
        guide: what decides in a pass of a supernet; None in a network as written.
        keeps_shape: whether the output has the shape of the first input, known in a supernet.
    """

    def __init__(self, options: Sequence[str], name: str | None) -> None:
        super().__init__()
        kind = type(self).__name__
        if len(options) < 2 or len(set(options)) < len(options) or len(options) > MOST_OPTIONS:
            raise InputError(f"2 to {MOST_OPTIONS} different options of a {kind}", ", ".join(options)[:200] or "none")
        for word in (*options, *([] if name is None else [name])):
            if not isinstance(word, str) or not word.strip() or not word.isprintable():
                raise InputError(f"names of printable letters in a {kind}", repr(word))
        self.options, self.name, self.decision = tuple(options), name, name or ""
        self.guide: Guide | None = None
        self.keeps_shape = False

    def inner(self, option: str | None = None) -> list[tuple[str, nn.Module]]:
        """The modules inside with their names, made where they were not: all, or those called with ``option``."""
        return []

    def taken(self, option: str) -> nn.Module:
        """What stands in this place where ``option`` is chosen."""
        raise NotImplementedError

    def as_written(self, *inputs: Any, **named: Any) -> Tensor:
        """What the first option gives for ``inputs`` and ``named`` arguments."""
        raise NotImplementedError

    def _unguided(self, *inputs: Any, **named: Any) -> Tensor:
        """The network as written."""
        noted = UNGUIDED.get()
        if noted is not None:
            noted.append(self)
        return self.as_written(*inputs, **named)

    def _combined(self, columns: Sequence[int], outputs: Sequence[Any], inputs: Sequence[Any], **named: Any) -> Tensor:
        """What the guide makes of the outputs; zeros in their shape where that is nothing."""
        assert self.guide is not None
        found = self.guide.combine(self, columns, outputs)
        if found is not None:
            return found
        if self.keeps_shape:
            return torch.zeros_like(inputs[0])
        with torch.no_grad():
            return torch.zeros_like(self.as_written(*inputs, **named))


class Choice(Searched):
    """One of several modules.

    Args:
        options: modules by name, or a list of them, which are then called by their numbers. An option may be a function
            without arguments that makes the module: it is called only where the option is needed. One called ``none``
            (a :class:`Zero`) is never derived from the weights of a supernet.
        name: choices of the same name choose the same.
    """

    def __init__(self, options: Mapping[str, Option] | Sequence[Option], name: str | None = None) -> None:
        if not isinstance(options, Mapping):
            options = {str(number): one for number, one in enumerate(options)}
        super().__init__(list(options), name)
        for word, one in options.items():
            if not isinstance(one, nn.Module) and not callable(one):
                raise InputError(f"a module as the option {word!r}, or a function that makes it", type(one).__name__)
        made = [one if isinstance(one, nn.Module) else _Later(one) for one in options.values()]
        made[0] = _made(made[0])
        self.parts = nn.ModuleList(made)

    def part(self, column: int) -> nn.Module:
        """The module of an option, made now where it was not yet."""
        self.parts[column] = _made(self.parts[column])
        return self.parts[column]

    def inner(self, option: str | None = None) -> list[tuple[str, nn.Module]]:
        """Options by name; ``option`` alone where it is given."""
        names = self.options if option is None else (option,)
        return [(name, self.part(self.options.index(name))) for name in names]

    def taken(self, option: str) -> nn.Module:
        """The module of ``option`` as it is."""
        return self.part(self.options.index(option))

    def as_written(self, *inputs: Any, **named: Any) -> Tensor:
        """What the first module gives for ``inputs`` and ``named`` arguments."""
        output: Tensor = self.parts[0](*inputs, **named)
        return output

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """As each of the modules with ``inputs`` and ``named`` arguments."""
        guide = self.guide
        if guide is None:
            return self._unguided(*inputs, **named)
        columns = guide.running(self)
        outputs = [
            guide.output(self, column, partial(self.parts[column], *inputs, **named), inputs) for column in columns
        ]
        return self._combined(columns, outputs, inputs, **named)


class Optional(Choice):
    """A module, or nothing in its place: its input passes on.

    Args:
        module: the network as written has it; or a function that makes it.
        name: of the decision.
    """

    def __init__(self, module: Option, name: str | None = None) -> None:
        super().__init__({"layer": module, "skip": nn.Identity()}, name)


class Depth(Searched):
    """The first n of several modules, one after another.

    Args:
        blocks: those after the ``least`` must keep the shape. All of them are the network as written.
        least: fewest that stay, from 0.
        name: of the decision.
    """

    def __init__(self, blocks: Sequence[nn.Module], least: int = 1, name: str | None = None) -> None:
        blocks = list(blocks)
        if not all(isinstance(one, nn.Module) for one in blocks):
            raise InputError("a list of modules in a Depth", ", ".join(type(one).__name__ for one in blocks)[:200])
        if not isinstance(least, int) or not 0 <= least < len(blocks):
            raise InputError(f"a least depth from 0 to {len(blocks) - 1}", repr(least), "The Depth has so many blocks.")
        super().__init__([str(count) for count in range(len(blocks), least - 1, -1)], name)
        self.blocks, self.least = nn.ModuleList(blocks), least

    def inner(self, option: str | None = None) -> list[tuple[str, nn.Module]]:
        """The blocks by their numbers; as many as ``option`` says."""
        count = len(self.blocks) if option is None else int(option)
        return [(str(number), block) for number, block in enumerate(self.blocks[:count])]

    def taken(self, option: str) -> nn.Module:
        """So many blocks, one after another."""
        return nn.Sequential(*self.blocks[: int(option)])

    def as_written(self, *inputs: Any, **named: Any) -> Tensor:
        """What all blocks give for ``inputs``, one tensor; ``named`` is empty."""
        value: Tensor = inputs[0]
        for block in self.blocks:
            value = block(value)
        return value

    def forward(self, x: Tensor) -> Tensor:
        """As the blocks one after another."""
        guide = self.guide
        if guide is None:
            return self._unguided(x)
        columns = guide.running(self)
        depths = [int(self.options[column]) for column in columns]
        after, value = {0: x}, x
        for number in range(max(depths, default=0)):
            value = after[number + 1] = self.blocks[number](value)
        outputs = [
            guide.output(self, column, partial(after.__getitem__, depth), [x])
            for column, depth in zip(columns, depths, strict=True)
        ]
        return self._combined(columns, outputs, [x])


class Inputs(Searched):
    """One of several tensors of one shape, given as a list.

    Args:
        names: of the tensors, in the order in which they are given, or how many there are.
        name: of the decision.
    """

    def __init__(self, names: int | Sequence[str], name: str | None = None) -> None:
        super().__init__([str(one) for one in range(names)] if isinstance(names, int) else list(names), name)

    def taken(self, option: str) -> nn.Module:
        """A module that takes that one."""
        return Taken(self.options.index(option))

    def as_written(self, *inputs: Any, **named: Any) -> Tensor:
        """The first of ``inputs``; ``named`` is empty."""
        first: Tensor = inputs[0]
        return first

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """Tensors of the same shape to one of them."""
        if len(inputs) != len(self.options):
            raise InputError(f"{len(self.options)} tensors for the Inputs {self.decision!r}", str(len(inputs)))
        guide = self.guide
        if guide is None:
            return self._unguided(*inputs)
        columns = guide.running(self)
        outputs = [guide.output(self, column, partial(inputs.__getitem__, column), inputs) for column in columns]
        return self._combined(columns, outputs, inputs)


class Taken(nn.Module):
    """What is left of :class:`Inputs` in a network without choices: one of the tensors."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """The one of ``inputs`` that was chosen."""
        return inputs[self.index]

    def extra_repr(self) -> str:
        """The number of the tensor, for people."""
        return f"index={self.index}"


class _Later(nn.Module):
    """In the place of an option that is not made yet."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.make = make


def _made(module: nn.Module) -> nn.Module:
    if not isinstance(module, _Later):
        return module
    found = module.make()
    if not isinstance(found, nn.Module):
        raise InputError("a module from the function of an option", type(found).__name__)
    return found


# --- choices in a network ---------------------------------------------------------------------------------------------


def outermost(module: nn.Module, place: str = "") -> Iterator[tuple[str, Searched]]:
    """The choices in ``module`` that are in no other one, each once, with ``place`` before their names.

    Names are those of attributes; a module that stands in several places is called by the first.
    """
    seen: set[int] = set()

    def walk(one: nn.Module, here: str) -> Iterator[tuple[str, Searched]]:
        if id(one) in seen:
            return
        seen.add(id(one))
        if isinstance(one, Searched):
            yield here, one
            return
        for name, child in one.named_children():
            yield from walk(child, f"{here}.{name}" if here else name)

    yield from walk(module, place)


def take(module: nn.Module, picks: Mapping[str, str]) -> nn.Module:
    """``module`` with every choice replaced, in place, by what ``picks`` says of its decision; inner ones too."""
    replaced: dict[int, nn.Module] = {}

    def walk(one: nn.Module) -> nn.Module:
        if id(one) in replaced:
            return replaced[id(one)]
        found = one
        while isinstance(found, Searched):
            found = found.taken(picks[found.decision])
        replaced[id(one)] = replaced[id(found)] = found
        for name, child in list(found._modules.items()):
            if child is not None:
                found._modules[name] = walk(child)
        return found

    return walk(module)
