"""The largest numbers that make sense, so that a slip of the keyboard is an error and not a full memory.

They are far above anything useful on one machine. Command line, configuration, methods' options and saved files share
them.
"""

from __future__ import annotations

MOST_SEED = 2**32 - 1
"""What every random generator behind a search takes."""
MOST_THREADS = 1024
MOST_SHARDS = 1024
"""Parts of a batch."""
MOST_WORKERS = 4096
MOST_PIXELS = 4096
"""Side of an image."""
MOST_CHANNELS = 16_384
MOST_WIDTH = 64.0
"""Multiple of all widths of a network."""
MOST_CELLS = 1_000
MOST_CLASSES = 1_000_000
MOST_BATCH = 1_000_000
MOST_COUNT = 1_000_000_000
"""Anything else that is counted: epochs, evaluations, samples, rows."""
MOST_ANSWERS = 100
"""Combinations of limits that one search answers."""
MOST_SECONDS = 1e7
"""Of one evaluation."""
MOST_LISTED = 1_000_000
"""Architectures that are drawn before the first is looked at."""
MOST_NUMBER = 1e15
"""Size of anything that is measured."""
MOST_RATE = 1000.0
"""Learning rate or weight decay: weights are no numbers any more after a few steps of more."""
LEAST_NUMBER = 1e-30
"""Of what is not 0: one by less is no number any more."""
LEAST_TEMPERATURE = 1e-4
"""Of a softmax: one by less fits into no exponent."""

_BY_ENDING = {
    "channels": MOST_CHANNELS,
    "cells": MOST_CELLS,
    "size": MOST_PIXELS,
    "batch": MOST_BATCH,
    "threads": MOST_THREADS,
    "workers": MOST_WORKERS,
    "width": MOST_WIDTH,
    "seed": MOST_SEED,
    "pool": MOST_LISTED,
    "lr": MOST_RATE,
    "min": MOST_RATE,
    "decay": MOST_RATE,
}


def most_of(name: str, kind: type = int) -> float:
    """The bound of an option that declares none of its own: by the last word of its name, else wide.

    Args:
        name: of the option, with underscores.
        kind: int or float; decides how wide.

    Example:
        >>> most_of("proxy_channels"), most_of("evaluations")
        (16384, 1000000000)
    """
    return _BY_ENDING.get(name.rpartition("_")[2], MOST_COUNT if kind is int else MOST_NUMBER)


def least_of(name: str) -> float:
    """The least that an option is where it is not 0, by its name.

    Args:
        name: of the option, with underscores.

    Example:
        >>> least_of("gumbel_temperature"), least_of("w_lr")
        (0.0001, 1e-30)
    """
    return LEAST_TEMPERATURE if "temperature" in name else LEAST_NUMBER
