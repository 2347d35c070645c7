"""Values of the command line: numbers with their bounds declared, so that click refuses ``nan`` and absurd sizes, and
texts that are not empty (an unset variable of a shell script must not mean the default).
"""

from __future__ import annotations

import math
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


class FiniteRange(click.FloatRange):
    """A range of finite numbers (click's own lets ``nan`` through every bound)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value`` as a float within the bounds."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


class Text(click.types.StringParamType):
    """Some text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """``value`` unless it is empty."""
        if not str(value).strip():
            self.fail("an empty text.", param, ctx)
        return super().convert(value, param, ctx)


TEXT = Text()
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
OVERWRITE = click.option("--overwrite", is_flag=True, help="Replace a file there that this command did not write.")
