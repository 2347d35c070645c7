"""What can be built: search spaces, their architectures and their networks.

The package itself is read by name: ``archwright.spaces["nasbench201"]`` is that space, and going through
``archwright.spaces`` gives the registered names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any


class _SpacesPackage(ModuleType):
    def __getitem__(self, name: str) -> Any:
        """The space called ``name``, or named by another text."""
        from archwright.spaces.registry import find_space

        return find_space(name)

    def __iter__(self) -> Iterator[str]:
        from archwright.spaces.registry import spaces

        return (entry.name for entry in spaces)


sys.modules[__name__].__class__ = _SpacesPackage
