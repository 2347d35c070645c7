"""Work whose import never ends and never lets another Python thread run."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

(Path(os.environ["DEAF_FOLDER"]) / str(os.getpid())).touch()
ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the interpreter's lock


def stay(payload: Any, stop: Any) -> Any:
    """Never reached."""
