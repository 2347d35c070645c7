"""HiGHS through SciPy, with what it prints kept off stdout.

It prints some warnings past its own switches. Scripts read one JSON line from stdout, which must stay clean.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from scipy import optimize

_lock = threading.Lock()


def milp(*arguments: Any, **settings: Any) -> Any:
    """:func:`scipy.optimize.milp` of the same ``arguments`` and ``settings``."""
    with stdout_to_stderr():
        return optimize.milp(*arguments, **settings)


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Inside the block file descriptor 1 is that of stderr; one thread at a time."""
    with _lock:
        sys.stdout.flush()
        kept = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
