"""The logger ``archwright``, for programs: silent until the program gives it, or the root logger, a handler.

INFO is what a person would be shown by a :class:`~archwright.runs.progress.Progress`, WARNING what such a person should
not miss, DEBUG every event of a run and every bar.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("archwright")
logger.addHandler(logging.NullHandler())
