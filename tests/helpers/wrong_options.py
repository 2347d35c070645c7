"""Words that the program refuses: options with wrong values, made from their declared types and bounds."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

import annotated_types
import click
import pytest
from pydantic.fields import FieldInfo

from archwright.bounds import most_of
from archwright.cli.main import cli
from archwright.search.configuration import Configuration
from archwright.search.registry import methods

NONSENSE = "no such thing \x1b[31m[red]"
"""A name that nothing has, with an escape and markup that must not reach the terminal."""


class Wrong(NamedTuple):
    """A value that an option cannot have, and what is wrong with it."""

    kind: str
    value: str


def one_of(rare: list[Wrong], name: str) -> Wrong:
    """One of the rarer kinds for each option: which one follows from its name."""
    return rare[zlib.crc32(name.encode()) % len(rare)]


def wrong_integers(name: str, least: float | None, most: float | None) -> Iterator[Wrong]:
    yield from (Wrong("a word", "many"), Wrong("empty", ""), Wrong("23 digits", "1" * 23))
    rare = [Wrong("a fraction", "1.5"), Wrong("nan", "nan"), Wrong("23 digits below zero", "-" + "1" * 23)]
    yield one_of([*rare, Wrong("hex", "0x10"), Wrong("5000 digits", "1" * 5000)], name)
    if least is not None:
        yield Wrong("below", str(math.floor(least) - 1))
    if most is not None:
        yield Wrong("above", str(math.ceil(most) + 1))


def wrong_floats(
    name: str, least: float | None, most: float | None, open_least: bool, open_most: bool
) -> Iterator[Wrong]:
    yield from (Wrong("a word", "many"), Wrong("nan", "nan"), Wrong("infinite", "inf"))
    rare = [Wrong("empty", ""), Wrong("two numbers", "1 2"), Wrong("minus infinite", "-inf")]
    yield one_of([*rare, Wrong("too large", "1e400")], name)
    if least is not None:
        yield Wrong("below", repr(least if open_least else least - 1))
    if most is not None:
        yield Wrong("above", repr(most if open_most else most * 2 + 1))


def wrong_choices(known: list[str]) -> Iterator[Wrong]:
    yield from (Wrong("unknown", NONSENSE), Wrong("empty", ""))
    if known[0].upper() != known[0]:
        yield Wrong("other case", known[0].upper())


def wrong_texts(name: str) -> Iterator[Wrong]:
    yield from (Wrong("unknown", NONSENSE), Wrong("empty", ""))
    rare = [Wrong("long", "a" * 100_000), Wrong("no UTF-8", "\udcff\udcfe"), Wrong("a comma", ",")]
    yield one_of([*rare, Wrong("a path", "../../no/such/place")], name)


def wrong_paths() -> Iterator[Wrong]:
    yield from (Wrong("below a file", "a-file/below"), Wrong("too long", "a" * 300), Wrong("a full folder", "a-folder"))
    yield Wrong("no place to write", "/proc/no-such-place/x")


def wrong_values(option: click.Parameter) -> Iterator[Wrong]:
    """By the type that click knows."""
    kind, flag = option.type, str(option.name)
    if isinstance(kind, click.Choice):
        yield from wrong_choices([str(choice) for choice in kind.choices])
    elif isinstance(kind, click.IntRange):
        yield from wrong_integers(flag, kind.min, kind.max)
    elif isinstance(kind, click.FloatRange):
        yield from wrong_floats(flag, kind.min, kind.max, kind.min_open, kind.max_open)
    elif kind is click.INT:
        yield from wrong_integers(flag, None, None)
    elif kind is click.FLOAT:
        yield from wrong_floats(flag, None, None, False, False)
    elif isinstance(kind, click.Path):
        yield from wrong_paths()
    else:
        yield from wrong_texts(flag)


def wrong_field_values(name: str, info: FieldInfo, own: bool = False) -> Iterator[Wrong]:
    """By the annotation and the bounds that pydantic knows; a method's own options have bounds by their names too."""
    kind = info.annotation
    if get_origin(kind) in (Union, type(int | None)):
        kind = next(one for one in get_args(kind) if one is not type(None))
    bounds: dict[type, Any] = {type(one): one for one in info.metadata}
    ge, gt = bounds.get(annotated_types.Ge), bounds.get(annotated_types.Gt)
    le, lt = bounds.get(annotated_types.Le), bounds.get(annotated_types.Lt)
    least = ge.ge if ge else gt.gt if gt else None
    most = le.le if le else lt.lt if lt else None
    if most is None and own and kind in (int, float):
        most = most_of(name, kind)
    if kind is bool:
        return
    if get_origin(kind) is Literal:
        yield from wrong_choices([str(one) for one in get_args(kind)])
    elif kind is int:
        yield from wrong_integers(name, least if gt is None else least + 1, most if lt is None else most - 1)
    elif kind is float:
        yield from wrong_floats(name, least, most, gt is not None, lt is not None)
    elif not (info.json_schema_extra or {}).get("any_text"):  # type: ignore[union-attr]
        yield from wrong_texts(name)


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands below ``group`` with the words that call them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(cli))
CELL = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"
SOUND = {("score",): [CELL], ("predict",): ["model.safetensors", "image.png"], ("reproduce",): ["thesis-7.5"]}
"""Arguments that commands cannot do without, all good."""


def flag_of(option: click.Option) -> str:
    return max(option.opts, key=len)


def option_cases() -> Iterator[Any]:
    """(words, description): each option that takes a value, with each kind of wrong value.

    Settings that all searches share are dealt to the methods in turn; their own options go to each of them.
    """
    names = [entry.name for entry in methods]
    turn = itertools.cycle(names)
    own = {name: methods.get(name).Options.model_fields for name in names}
    for path, command in COMMANDS.items():
        if path[0] == "search" and path[1] != names[0]:
            shared: list[click.Parameter] = []
        else:
            shared = [param for param in command.params if param.name not in own.get(path[-1], {})]
        for option in shared:
            if not isinstance(option, click.Option) or option.is_flag or option.count:
                continue
            info = Configuration.model_fields.get(str(option.name)) if path[0] == "search" else None
            for wrong in wrong_values(option) if info is None else wrong_field_values(str(option.name), info):
                words = ("search", next(turn)) if path[0] == "search" else path
                yield pytest.param(
                    [*words, *SOUND.get(path, []), flag_of(option), wrong.value],
                    id=f"{'-'.join(words)} {flag_of(option)} {wrong.kind}",
                )
        if path[0] == "search":
            for name, info in own[path[1]].items():
                for wrong in wrong_field_values(name, info, own=True):
                    flag = f"--{name.replace('_', '-')}"
                    yield pytest.param([*path, flag, wrong.value], id=f"{'-'.join(path)} {flag} {wrong.kind}")


def command_cases() -> Iterator[Any]:
    """What is wrong with the words themselves."""
    yield pytest.param([NONSENSE], id="unknown command")
    yield pytest.param(["--no-such-option"], id="unknown global option")
    for path, command in COMMANDS.items():
        name = "-".join(path)
        yield pytest.param([*path, "--no-such-option"], id=f"{name} unknown option")
        yield pytest.param([*path, f"--{NONSENSE}"], id=f"{name} unknown option with escapes")
        valued = [p for p in command.params if isinstance(p, click.Option) and not p.is_flag and not p.count]
        if valued:
            yield pytest.param([*path, flag_of(valued[0])], id=f"{name} option without its value")
        taken = [p for p in command.params if isinstance(p, click.Argument)]
        if all(p.nargs == 1 for p in taken):
            yield pytest.param([*path, *["x"] * (len(taken) + 1)], id=f"{name} superfluous argument")
        if any(p.required for p in taken):
            yield pytest.param([*path], id=f"{name} missing argument")
        for argument in taken:
            yield pytest.param([*path, *[NONSENSE] * max(1, len(taken))], id=f"{name} {argument.name} unknown")
            yield pytest.param([*path, *["a" * 300] * max(1, len(taken))], id=f"{name} {argument.name} long")
    for name in sorted({path[0] for path in COMMANDS if len(path) > 1}):
        yield pytest.param([name, NONSENSE], id=f"{name} unknown subcommand")
