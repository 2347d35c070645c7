"""``archwright search METHOD``: one command a registered method, its options read from the method itself."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from archwright.cli.values import FINITE_POSITIVE, PATH, RANKS_HELP, TEXT, YES_HELP
from archwright.search.registry import methods

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from archwright.search.method import Method

LEVELS = ("debug", "info", "warning", "error")
LIMITS, RUN = "Limits", "Run and output"
"""Groups of options that are no fields of a model."""


class SearchGroup(click.Group):
    """Lists methods from the registry; a method's module is imported only when its command is used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read ``args`` as click does in ``ctx``; an option before the name of a method is refused."""
        if args and args[0].startswith("--") and args[0] != "--help":
            named = ", ".join(entry.name for entry in methods)
            raise click.UsageError(f"Name a method before {args[0]}, as in 'archwright search binas' ({named}).", ctx)
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the registered methods, in alphabetical order."""
        return [entry.name for entry in methods]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of the method called ``name``, with all its options; ``ctx`` says whether a shell completes."""
        if name not in methods:
            if ctx.resilient_parsing:  # the shell completes: nobody reads an error
                return None
            methods.get(name)
        return _method_command(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries of all methods to ``formatter``, without importing any; ``ctx`` is click's."""
        with formatter.section("Methods"):
            formatter.write_dl([(entry.name, entry.summary) for entry in methods])


class GroupedOption(click.Option):
    """An option that is shown under a heading; bounds of numbers are left to the sentence that refuses them."""

    def __init__(self, *args: Any, group: str, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.group = group

    def get_help_extra(self, ctx: click.Context) -> Any:
        """What click adds to the sentence of an option, less the bounds of its number."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


class MethodCommand(click.Command):
    """A command whose help shows its options under their headings, in the order of the first option of each."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section a heading to ``formatter``; ``ctx`` is that of the command."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):  # said in the first lines
                sections.setdefault(getattr(param, "group", RUN), []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def _method_command(name: str) -> click.Command:
    from archwright.search.configuration import DATA, TIME, group_of

    method: type[Method] = methods.get(name)
    settings = setting_options(method)
    first = [one for one in settings if one.group in (DATA["group"], TIME["group"])]
    own = [_option(field, info, group=group_of(info)) for field, info in method.Options.model_fields.items()]
    rest = [one for one in settings if one not in first]
    params: list[click.Parameter] = [*_limit_options(method), *first, *own, *rest, *run_options()]

    def callback(**values: Any) -> None:
        _run(name, values)

    summary = next(entry.summary for entry in methods if entry.name == name)
    example = f"Example: archwright search {name} --data folder:photos{_example_limit(method)} --minutes 30"
    return MethodCommand(name, params=params, callback=callback, help=f"{name}: {summary}.\n\n\b\n{example}")


def _example_limit(method: type[Method]) -> str:
    """A limit for the example, where the method keeps any."""
    if not method.resources:
        return ""
    return " --latency-ms 8" if method.measures_latency else " --params 200000"


def _limit_options(method: type[Method]) -> list[GroupedOption]:
    """One a resource; those that the method does not keep are hidden, and refused with a sentence later."""
    from archwright.costs.limits import RESOURCES
    from archwright.search.flags import limit_flag

    several = " (given several times, a limit asks for several answers)" if method.several_limits else ""
    return [
        GroupedOption(
            [limit_flag(name), f"limit_{name}"],
            type=FINITE_POSITIVE,
            metavar="NUMBER",
            multiple=True,
            group=f"{LIMITS}{several}",
            hidden=name not in method.resources,
            help=f"Upper limit: {resource.meaning}.",
        )
        for name, resource in RESOURCES.items()
    ]


def setting_options(method: type[Method]) -> list[GroupedOption]:
    """One a setting; what the method has no use for is hidden, and refused with a sentence later."""
    from archwright.search.configuration import SETTINGS, Configuration, group_of

    idle = method.idle(Configuration(method=method.name, data="digits"))
    found = []
    for name, info in Configuration.model_fields.items():
        if name in SETTINGS:
            default = method.default_space if name == "space" else None
            note = f" Not {idle[name]}." if name in idle else ""
            hidden = name not in method.uses
            found.append(_option(name, info, default, group=group_of(info), hidden=hidden, note=note))
    return found


def run_options() -> list[GroupedOption]:
    """Where a run is kept, who shares its work and what is printed."""
    folder = "Folder of the run; a new one in ./runs by default."
    last = "Print one JSON object as the last line of stdout."
    return [
        GroupedOption(["--run"], type=PATH, group=RUN, help=folder),
        GroupedOption(["--ranks"], type=click.IntRange(min=1), default=1, group=RUN, help=RANKS_HELP),
        *output_options(),
        GroupedOption(["--yes"], is_flag=True, group=RUN, help=YES_HELP),
        GroupedOption(["--json", "as_json"], is_flag=True, group=RUN, help=last),
    ]


def output_options(group: str = RUN) -> list[GroupedOption]:
    """What a command that works for long says, and to whom; read by :func:`output_of`.

    Args:
        group: heading that they are shown under.
    """
    log = "Also log to tensorboard, mlflow or wandb; repeatable. Behind a colon a folder, an address or a project."
    level = "Write the program's log to stderr: debug has every event."
    return [
        GroupedOption(["--log"], type=TEXT, multiple=True, metavar="TRACKER", help=log, group=group),
        GroupedOption(["--quiet", "-q"], is_flag=True, help="Say nothing but the result and warnings.", group=group),
        GroupedOption(["--log-level"], type=click.Choice(LEVELS), help=level, group=group),
    ]


def output_of(log: Sequence[str], quiet: bool, level: str | None) -> dict[str, Any]:
    """The arguments ``log`` and ``progress`` of a search, of what was given for :func:`output_options`.

    Args:
        log: trackers.
        quiet: whether only warnings are shown.
        level: of the program's log on stderr; None for none.
    """
    from archwright.log import show_log
    from archwright.runs.progress import QuietProgress, TerminalProgress

    if level is not None:
        show_log(level)
    return {"log": log, "progress": QuietProgress() if quiet else TerminalProgress()}


def _run(name: str, values: dict[str, Any]) -> None:
    from archwright.cli.view import show_answer
    from archwright.costs.limits import RESOURCES
    from archwright.search.engine import search

    output = output_of(*(values.pop(name) for name in ("log", "quiet", "log_level")))
    run, yes, as_json, ranks = (values.pop(one) for one in ("run", "yes", "as_json", "ranks"))
    given = {key: list(values.pop(f"limit_{key}")) for key in RESOURCES}
    values = {key: None if value == () else value for key, value in values.items()}  # not given
    limits = {key: numbers if len(numbers) > 1 else numbers[0] for key, numbers in given.items() if numbers}
    result = search(name, run=run, limits=limits, yes=yes, ranks=ranks, **output, **values)
    show_answer(result, as_json)


def _option(
    name: str, info: FieldInfo, default: Any = None, *, group: str, hidden: bool = False, note: str = ""
) -> GroupedOption:
    """A click option from a pydantic field; None means "not given", so that defaults stay in one place.

    Args:
        name: of the field.
        info: its type, default and description.
        default: to show in place of the field's own.
        group: heading that it is shown under.
        hidden: whether it is left out of the help.
        note: a further sentence of the help.
    """
    from archwright.search.flags import flag_of, words_of

    kind, flag = _plain_type(info.annotation), flag_of(name)
    text = (info.description or "").rstrip(".")
    text = f"{text[:1].upper()}{text[1:]}.{note}"
    if default is None and not info.is_required():
        default = info.get_default(call_default_factory=True)
    if default not in (None, "", {}, ()):
        text += f" [default: {default}]"
    shown: dict[str, Any] = {"help": text, "group": group, "hidden": hidden}
    if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("several"):
        return GroupedOption([flag, name], type=TEXT, multiple=True, metavar="NUMBER", **shown)
    if kind is bool:
        return GroupedOption([f"{flag}/{words_of(flag, False)[0]}", name], default=None, **shown)
    if get_origin(kind) is Literal:
        return GroupedOption([flag, name], type=click.Choice(get_args(kind)), **shown)
    return GroupedOption([flag, name], type=kind if kind in (int, float) else TEXT, **shown)


def _plain_type(annotation: Any) -> Any:
    """The type without ``| None``."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [one for one in get_args(annotation) if one is not type(None)]
        return inner[0] if len(inner) == 1 else str
    return annotation
