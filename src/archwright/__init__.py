"""Archwright finds neural-network architectures for your data and your device.

The public names are imported when first used, so that ``import archwright`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archwright.ensembles import Ensemble
    from archwright.measuring import latency, score
    from archwright.models import Model, load_model
    from archwright.search.answer import Answer
    from archwright.search.engine import resume, search
    from archwright.search.study import Study
    from archwright.spaces.choice_space import ChoiceSpace

__version__ = "0.1.0"

_LAZY = {
    "search": "archwright.search.engine",
    "resume": "archwright.search.engine",
    "Answer": "archwright.search.answer",
    "score": "archwright.measuring",
    "latency": "archwright.measuring",
    "ChoiceSpace": "archwright.spaces.choice_space",
    "Ensemble": "archwright.ensembles",
    "Model": "archwright.models",
    "Study": "archwright.search.study",
    "load_model": "archwright.models",
}
__all__ = [
    "Answer",
    "ChoiceSpace",
    "Ensemble",
    "Model",
    "Study",
    "__version__",
    "latency",
    "load_model",
    "resume",
    "score",
    "search",
]


def __getattr__(name: str) -> Any:
    if name in ("data", "spaces"):
        return importlib.import_module(f"archwright.{name}")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'archwright' has no attribute {name!r}")
