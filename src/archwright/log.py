"""The logger ``archwright``, for programs: silent until the program gives it, or the root logger, a handler.

INFO is what is shown by a :class:`~archwright.runs.progress.Progress`, WARNING what should not be
missed, DEBUG every event of a run and every bar. The command line shows it with ``--log-level``.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("archwright")
logger.addHandler(logging.NullHandler())


def show_log(level: str) -> None:
    """Write what the logger hears from now on to stderr, a line each.

    Args:
        level: least important records that are shown: ``debug``, ``info``, ``warning`` or ``error``.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
