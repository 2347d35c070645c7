"""Values of the command line: numbers with their bounds declared, so that click refuses ``nan`` and absurd sizes, and
texts that are not empty (an unset variable of a shell script must not mean the default).
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from archwright.bounds import (
    MOST_BATCH,
    MOST_CELLS,
    MOST_CHANNELS,
    MOST_CLASSES,
    MOST_COUNT,
    MOST_PIXELS,
    MOST_SEED,
    MOST_THREADS,
    MOST_WIDTH,
    MOST_WORKERS,
)
from archwright.errors import InputError


class FiniteRange(click.FloatRange):
    """A range of finite numbers (click's own lets ``nan`` through every bound)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value`` as a float within the bounds; errors name ``param`` and ``ctx``."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


def refuse_idle(where: str, *names: str) -> None:
    """Refuse options of the present command that were given and do nothing ``where`` it is.

    Args:
        where: as "beside --network".
        names: of the parameters.
    """
    context = click.get_current_context()
    given = [name for name in names if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    flags = [max(param.opts, key=len) for param in context.command.params if param.name in given]
    if flags:
        raise InputError("only options that do something", f"{', '.join(flags)} {where}", "Leave it out.")


class Text(click.types.StringParamType):
    """Text that is not empty."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value`` unless it is empty; errors name ``param`` and ``ctx``."""
        if not str(value).strip():
            self.fail("an empty text.", param, ctx)
        return super().convert(value, param, ctx)


class FilePath(click.Path):
    """The path of a file or folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value`` as a path; refused where it is empty, which would be the present folder, or has a null byte.

        Errors name ``param`` and ``ctx``.
        """
        if not str(value).strip() or "\0" in str(value):
            self.fail("an empty path." if not str(value).strip() else "a path with a null byte.", param, ctx)
        return super().convert(value, param, ctx)


TEXT = Text()
PATH = FilePath()
FINITE_POSITIVE = FiniteRange(min=0, min_open=True)
WIDTH = FiniteRange(min=0, max=MOST_WIDTH, min_open=True)
SEED = click.IntRange(0, MOST_SEED)
THREADS = click.IntRange(1, MOST_THREADS)
PIXELS = click.IntRange(1, MOST_PIXELS)
CHANNELS = click.IntRange(1, MOST_CHANNELS)
CLASSES = click.IntRange(2, MOST_CLASSES)
CELLS = click.IntRange(1, MOST_CELLS)
BATCH = click.IntRange(1, MOST_BATCH)
WORKERS = click.IntRange(1, MOST_WORKERS)
PORT = click.IntRange(0, 65535)
COUNT = click.IntRange(1, MOST_COUNT)
COUNT_OR_NONE = click.IntRange(0, MOST_COUNT)
RANKS_HELP = "Processes on this machine that train one network together; a divisor of --shards. The answer is the same."
YES_HELP = "Start even what takes days or most of the memory."
YES = click.option("--yes", is_flag=True, help=YES_HELP)
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace a file there that this command did not write.")
