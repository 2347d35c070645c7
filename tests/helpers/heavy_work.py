"""Work whose module takes seconds to import, as that of every training does; then it stays."""

from __future__ import annotations

import time
from typing import Any

import torch  # noqa: F401 - the weight


def stay(payload: Any, stop: Any) -> Any:
    """Until it is ended."""
    time.sleep(600)
