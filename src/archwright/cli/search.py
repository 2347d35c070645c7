"""``archwright search METHOD``: one command a registered method, its options read from the method itself."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from archwright.cli.values import FINITE_POSITIVE, PATH, TEXT
from archwright.search.registry import methods

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo


class SearchGroup(click.Group):
    """Lists methods from the registry; a method's module is imported only when its command is used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options come after the name of a method."""
        if args and args[0].startswith("--") and args[0] != "--help":
            named = ", ".join(entry.name for entry in methods)
            raise click.UsageError(f"Name a method before {args[0]}, as in 'archwright search binas' ({named}).", ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Registered names."""
        return [entry.name for entry in methods]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of one method, with all its options."""
        if name not in methods:
            if ctx.resilient_parsing:  # the shell completes: nobody reads an error
                return None
            methods.get(name)
        return _method_command(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The summaries, without importing any method."""
        with formatter.section("Methods"):
            formatter.write_dl([(entry.name, entry.summary) for entry in methods])


def _method_command(name: str) -> click.Command:
    from archwright.costs.limits import RESOURCES
    from archwright.search.configuration import SETTINGS, Configuration
    from archwright.search.flags import limit_flag

    method = methods.get(name)
    own: type[BaseModel] = method.Options
    params: list[click.Parameter] = []
    for field, info in own.model_fields.items():
        params.append(_option(field, info))
    # What the method has no use for is not shown, and refused with a sentence by whoever refuses it in Python.
    for field, info in Configuration.model_fields.items():
        if field in SETTINGS:
            default = method.default_space if field == "space" else None
            params.append(_option(field, info, default, hidden=field not in method.uses))
    params += [
        click.Option(
            [limit_flag(limit), f"limit_{limit}"],
            type=FINITE_POSITIVE,
            multiple=True,
            hidden=limit not in method.resources,
            help=f"Upper limit: {RESOURCES[limit].meaning}. Methods with several answers take it several times.",
        )
        for limit in RESOURCES
    ]
    params += [
        click.Option(["--run"], type=PATH, help="Folder of the run; default: a new one in ./runs."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object as the last line of stdout."),
    ]

    def callback(**values: Any) -> None:
        _run(name, set(own.model_fields), values)

    example = f"Example: archwright search {name} --data folder:photos --minutes 30"
    summary = next(entry.summary for entry in methods if entry.name == name)
    return click.Command(name, params=params, callback=callback, help=f"{name}: {summary}.", epilog=example)


def _run(name: str, own: set[str], values: dict[str, Any]) -> None:
    from archwright.cli.view import show_answer
    from archwright.costs.limits import RESOURCES
    from archwright.runs.progress import TerminalProgress
    from archwright.search.engine import search

    run, as_json = values.pop("run"), values.pop("as_json")
    limits = {key: values.pop(f"limit_{key}") for key in RESOURCES if f"limit_{key}" in values}
    given = {key: value for key, value in values.items() if value is not None}
    options = {key: given.pop(key) for key in list(given) if key in own}
    settings = {**given, "limits": {key: list(v) if len(v) > 1 else v[0] for key, v in limits.items() if v}}
    result = search(name, run=run, progress=TerminalProgress(), options=options, **settings)
    show_answer(result, as_json)


def _option(name: str, info: FieldInfo, default: Any = None, hidden: bool = False) -> click.Option:
    """A click option from a pydantic field; None means "not given", so that defaults stay in one place."""
    from archwright.search.flags import flag_of, words_of

    kind, flag = _plain_type(info.annotation), flag_of(name)
    text = (info.description or "").rstrip(".") + "."
    if default is None and not info.is_required():
        default = info.get_default(call_default_factory=True)
    text += f" [default: {default}]" if default not in (None, "", {}) else ""
    if kind is bool:
        return click.Option([f"{flag}/{words_of(flag, False)[0]}", name], default=None, help=text, hidden=hidden)
    if get_origin(kind) is Literal:
        return click.Option([flag, name], type=click.Choice(get_args(kind)), help=text, hidden=hidden)
    return click.Option([flag, name], type=kind if kind in (int, float) else TEXT, help=text, hidden=hidden)


def _plain_type(annotation: Any) -> Any:
    """The type without ``| None``."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [one for one in get_args(annotation) if one is not type(None)]
        return inner[0] if len(inner) == 1 else str
    return annotation
