"""Shapes inside a user's network: one pass with every option on says what each choice is given, and what does not fit.

The pass is on tensors without memory where the network can be made and run so, else on zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from archwright.errors import InputError
from archwright.nn import Guide, Searched
from archwright.owncode import told

Shape = tuple[int, ...]


class PlaceShape:
    """What a module is given and gives in the network.

    Attributes:
        output: shape for one image, of a choice.
        calls: of each call, arguments with shapes in place of tensors, for 2 images and for 3: what differs grows with
            the images.
    """

    def __init__(self, output: Shape, inputs: Sequence[Any], more: Sequence[Any]) -> None:
        self.output, self.calls = output, list(zip(inputs, more, strict=True))

    @property
    def keeps_shape(self) -> bool:
        """Whether the output has the shape of the first input, in every call."""
        return bool(self.calls) and all(self._kept(arguments) for arguments, _ in self.calls)

    def _kept(self, arguments: Any) -> bool:
        first = arguments[0] if arguments else None
        first = first[0] if isinstance(first, list) and first else first
        return isinstance(first, torch.Size) and tuple(first[1:]) == self.output


class Pass(NamedTuple):
    """What one pass says: the network's output, shapes of choices by place, and arguments of all calls by module."""

    output: Any
    shapes: dict[str, Shape]
    calls: dict[int, list[Any]]


class AllOptions(Guide):
    """Runs every option, compares the shapes of what they give, and goes on with the first."""

    def __init__(self, places: Mapping[str, Searched]) -> None:
        self.places = {id(one): place for place, one in places.items()}
        self.outputs: dict[str, Shape] = {}

    def running(self, choice: Searched) -> Sequence[int]:
        """All columns of ``choice``."""
        return range(len(choice.options))

    def output(self, choice: Searched, column: int, call: Callable[[], Any], inputs: Sequence[Any]) -> Any:
        """Refuses an option that changes its input, which the others are given, too."""
        tensors = [one for one in inputs if isinstance(one, Tensor)]
        before = [one._version for one in tensors]
        found = call()
        if [one._version for one in tensors] != before:
            where = f"{choice.options[column]!r} of the choice {choice.decision!r}"
            raise InputError("options that leave their input as it is", f"{where}, which changes it in place")
        return found

    def combine(self, choice: Searched, columns: Sequence[int], outputs: Sequence[Any]) -> Tensor | None:
        """The first output, where all have its shape."""
        for column, output in zip(columns, outputs, strict=True):
            where = f"{choice.options[column]!r} of the choice {choice.decision!r}"
            if not isinstance(output, Tensor):
                raise InputError(f"one tensor from {where}", type(output).__name__)
            now, first = tuple(output.shape[1:]), outputs[0]
            if output.shape != first.shape:
                wanted = text_of(tuple(first.shape[1:]))
                do = "Widths and other values that change shapes belong to ChoiceSpace(build=...), or to width:."
                raise InputError(f"{wanted} from {where}, as from its first option", text_of(now), do)
        whole: Tensor = outputs[0]
        self.outputs[self.places[id(choice)]] = tuple(whole.shape[1:])
        return whole


class recorded:
    """Inside, the arguments of every call of a choice and of the modules in it are noted, shapes for tensors."""

    def __init__(self, places: Mapping[str, Searched]) -> None:
        inner = [part for one in places.values() for _, part in one.inner()]
        self.modules = {id(one): one for one in (*places.values(), *inner)}
        self.seen: dict[int, list[Any]] = {}

    def __enter__(self) -> dict[int, list[Any]]:
        def note(module: nn.Module, inputs: Any, named: Any) -> None:
            self.seen.setdefault(id(module), []).append([*_shaped(list(inputs)), *([_shaped(named)] if named else [])])

        self.hooks = [one.register_forward_pre_hook(note, with_kwargs=True) for one in self.modules.values()]
        return self.seen

    def __exit__(self, *_error: object) -> None:
        for hook in self.hooks:
            hook.remove()


def _shaped(value: Any) -> Any:
    """``value`` with shapes in place of tensors."""
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, list | tuple):
        return [_shaped(one) for one in value]
    return {name: _shaped(one) for name, one in value.items()} if isinstance(value, dict) else value


def refuse_hidden(noted: Sequence[Searched]) -> None:
    """Refuse choices that were called, but that the network does not know as parts of it."""
    if noted:
        options = ", ".join(noted[0].options)
        do = "Keep it as an attribute of a module, or in an nn.ModuleList or nn.ModuleDict."
        raise InputError("choices that are parts of the network", f"one of {options} in a list or dict of Python", do)


def called_with(network: nn.Module, x: Tensor, title: str) -> Any:
    """What a user's network gives for images; what it raises is refused, or passed on where there may be another try.

    Args:
        network: with its choices.
        x: images; errors with those on ``meta`` pass.
        title: of the network, for people.
    """
    try:
        return network(x)
    except InputError:
        raise
    except Exception as error:
        if x.is_meta:
            raise
        raise InputError(
            f"a network that takes images of {text_of(tuple(x.shape[1:]))}", f"{told(error)} in {title}"
        ) from error


def text_of(shape: Shape) -> str:
    """``8 x 4 x 4``, for people."""
    return " x ".join(map(str, shape)) or "a number"
