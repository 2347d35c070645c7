"""The frame that every method and every user stands on; calling the package is :func:`archwright.search.engine.search`.

``archwright.search`` is both this package and the public function: importing a module of the package would otherwise
hide the function behind the package. No plain function serves, because modules are reached through this name
(``archwright.search.engine``), too.
"""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any


class _SearchPackage(ModuleType):
    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """``archwright.search(...)``; the arguments are those of :func:`archwright.search.engine.search`."""
        from archwright.search.engine import search

        return search(*args, **keywords)

    @property
    def __signature__(self) -> inspect.Signature:
        """What notebooks show on ``archwright.search(``."""
        from archwright.search.engine import search

        return inspect.signature(search)


sys.modules[__name__].__class__ = _SearchPackage
