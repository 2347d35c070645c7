"""Stands for ``MODULE.stay`` without importing the module; light, so that nothing else is imported before it."""

from __future__ import annotations

import importlib
from typing import Any


class Named:
    """Becomes the function where it is unpickled."""

    def __init__(self, module: str) -> None:
        self.module = module

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return stay_of, (self.module,)

    def __call__(self, payload: Any, stop: Any) -> Any:
        raise NotImplementedError


def stay_of(module: str) -> Any:
    """Imports it."""
    return importlib.import_module(module).stay
